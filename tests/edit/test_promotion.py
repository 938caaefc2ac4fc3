"""Promotion by name: temporaries in buffers, copies of what a loop reads, copies of what it writes."""

import numpy as np
import pytest

import polyker as pk

MM = pk.op("C[i,j] += A[i,k] * B[k,j]")
HEAT = pk.op("""
heat(A: f64[N,N], steps) -> A:
    for t in 0:steps:
        B[i,j] = 0.25 * (A[i-1,j] + A[i+1,j] + A[i,j-1] + A[i,j+1])  for i in 1:N-1, j in 1:N-1
        A[i,j] = B[i,j]                                              for i in 1:N-1, j in 1:N-1
""")
CHAIN = pk.op("T[i,j] = A[i,j] + 1; O[i,j] = T[i,j] * T[i,0]")


def whole(*shape, dtype="f4"):
    return (np.arange(np.prod(shape)) * 5 % 11 - 5).reshape(shape).astype(dtype)


A, B = whole(9, 14), whole(14, 10)


def tiled():
    s = MM.schedule(A, B, auto=False)
    return s["C"].tile(i=4, j=4, k=8)["C"].interchange("j.tile", "k.tile", "i.tile")


def exact(s):
    np.testing.assert_array_equal(MM.compile(schedule=s)(A, B), A @ B)


def test_each_block_of_an_operand_is_copied_where_it_is_used():
    s = tiled()["C"].promote("B", at="k.tile")["C"].promote("A", at="i.tile")
    lines = [line.strip() for line in str(s).splitlines()]
    assert "with B.packed: f32[8, 4] in stack" in lines
    assert "with A.packed: f32[4, 8] in stack" in lines
    assert "A.packed: A.packed[i, k] = A[i, k]" in lines
    assert "C: C[i, j] += A.packed[i, k]*B.packed[k, j]" in lines
    exact(s)
    # The copies are statements with loops of their own.
    exact(s["B.packed"].vectorise(j=4)["A.packed"].unroll(i=4))


def test_a_result_is_accumulated_in_a_copy():
    s = tiled()["C"].promote("C", at="i.tile")
    lines = [line.strip() for line in str(s).splitlines()]
    assert "C: C.acc[i, j] += A[i, k]*B[k, j]" in lines
    assert "C.store: C[i, j] += C.acc[i, j]" in lines
    exact(s)


def test_a_result_is_held_in_registers_where_the_loops_around_it_are_unrolled():
    s = (
        tiled()["C"]
        .interchange("k.point", "i.point", "j.point")["C"]
        .unroll({"i.point": 4})["C"]
        .vectorise({"j.point": 4})
    )
    s = s["C"].promote("C", at="i.tile", memory="registers")
    assert "with C.acc: f32[4, 4] in registers" in str(s)
    exact(s)
    with pytest.raises(pk.ScheduleError, match="a loop that is not unrolled moves its elements"):
        tiled()["C"].promote("C", at="i.tile", memory="registers")


@pytest.mark.parametrize("layout", [(1, 0), ((1, 2), 0, 1), ((0, 2), (1, 2), 0, 1), ((0, 4), (0, 2), 1, 0)])
@pytest.mark.parametrize("memory", [None, "scratch"])
def test_a_copy_has_a_layout_and_a_memory(layout, memory):
    s = tiled()["C"].promote("B", at="k.tile", layout=layout, memory=memory)
    assert ("in scratch" if memory else "in stack") in str(s)
    assert "laid out by dimensions" in str(s)
    exact(s)
    exact(pk.Schedule.from_json(s.to_json(), MM))


def test_windows_are_copied_with_their_borders_in_every_time_step():
    X = whole(12, 12, dtype="f8")
    s = HEAT.schedule(X, steps=3, auto=False)["B"].tile(i=4, j=4)
    s = s["B"].promote("A", at="j.tile")["B"].promote("B", at="i.tile")
    assert "with A.packed: f64[6, 6] in stack" in str(s)
    np.testing.assert_array_equal(HEAT.compile(schedule=s)(X, 3), HEAT(X, 3))


def test_a_temporary_that_lives_in_a_loop_is_held_in_a_buffer():
    X = whole(6, 7)
    s = CHAIN.schedule(X, auto=False).fuse("T", "O").promote("T", at="i")
    assert "with T: f32[1, 7] in stack" in str(s)
    np.testing.assert_array_equal(CHAIN.compile(schedule=s)(X), CHAIN(X))
    # What is made outside the loop is copied.
    s = CHAIN.schedule(X, auto=False)["O"].promote("T", at="i")
    assert "T.packed: T.packed[j] = T[i', j]" in str(s)
    np.testing.assert_array_equal(CHAIN.compile(schedule=s)(X), CHAIN(X))


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (lambda s: s["C"].promote("D", at="i.tile"), "PK533", "no tensor `D`"),
        (lambda s: s["C"].promote("A"), "PK546", "say `at=`"),
        (lambda s: s["C"].promote("A", at="q"), "PK541", "no loop `q`"),
        (lambda s: s["C.start"].promote("A", at="i"), "PK537", "no statement inside the loop `i` of C.start uses A"),
        (lambda s: s["C"].promote("A", at="i.tile", memory="disk"), "PK543", "'disk'"),
        (lambda s: s["C"].promote("A", at="i.tile", layout=(0,)), "PK546", "dimension 1"),
        (lambda s: s["C"].promote("A", at="i.tile", layout=(0, 5)), "PK546", "dimension 5 of 2"),
        (lambda s: s["C"].promote("A", at="i.tile", layout=((0, 3), (0, 2), 0, 1)), "PK546", "blocks"),
        (lambda s: s["C"].vectorise({"j.tile": 4})["C"].promote("A", at="i.tile"), "PK546", "vector loop"),
    ],
)
def test_what_cannot_be_promoted_says_why(call, code, text):
    with pytest.raises(pk.ScheduleError) as caught:
        call(tiled())
    assert caught.value.code == code
    assert text in str(caught.value)
    assert not isinstance(caught.value, pk.LegalityError)


def test_a_recurrence_is_not_copied():
    op = pk.op("S[0] = X[0]; S[t] = S[t-1] + X[t] for t in 1:N")
    with pytest.raises(pk.ScheduleError, match="it is read and written there"):
        op.schedule(pk.f32[9], N=9, auto=False)["S#2"].promote("S", at="t")


def test_loops_without_the_place_may_be_deeper_than_it():
    op = pk.op("O[i,j] += A[i,k] * B[k,j]")
    s = op.schedule(pk.f32["M", "K"], pk.f32["K", "N"])
    loop = s["O"].loops[-1]
    with pytest.raises(pk.ScheduleError):
        s["O"].promote("O.acc", at=loop)


PADDED = pk.op("O[i] = X[i-1; pad=0] + X[i]")
GATHERED = pk.op("O[i] = X[I[i]]")


@pytest.mark.parametrize(
    ("schedule", "tensor", "reason"),
    [
        (lambda: PADDED.schedule(pk.f32[9], auto=False), "X", "O reads it padded"),
        (lambda: GATHERED.schedule(pk.f32[9], pk.i64[9], auto=False), "X", "O gathers from it"),
    ],
)
def test_a_copy_that_cannot_be_made_says_why(schedule, tensor, reason):
    with pytest.raises(pk.ScheduleError, match=reason) as caught:
        schedule().promote(tensor, at="i")
    assert caught.value.code == "PK546"


TURN = pk.op("B[j,i] = A[i,j]")


def blocks(high=16, wide=32, dtype=pk.f32):
    s = TURN.schedule(dtype[64, 96], target="cuda-sim", auto=False).tile(j=wide, i=high)
    return s.map({"j.tile": "block.y", "i.tile": "block.x", "j.point": "thread.y", "i.point": "thread.x"})


@pytest.mark.parametrize(
    ("said", "shown", "elements"),
    [
        ({"swizzle": True}, "f32[16, 32] in shared, swizzled by 8", 512),
        ({"swizzle": 2}, "f32[16, 32] in shared, swizzled by 2", 512),
        ({"swizzle": True, "layout": (1, 0)}, "laid out by dimensions 1 % 32, 0 % 16, swizzled by 4", 512),
        ({"pad": 1}, "f32[16, 32] in shared, rows padded by 1", 528),
        ({"pad": 4, "layout": (1, 0)}, "laid out by dimensions 1 % 32, 0 % 16, rows padded by 4", 640),
    ],
)
def test_rows_of_shared_memory_are_swizzled_or_padded(said, shown, elements):
    s = blocks().promote("A", at="i.tile", memory="shared", **said)
    assert shown in str(s)
    assert s == pk.Schedule.from_json(s.to_json(), TURN)
    assert f", {', '.join(f'{k}={said[k]}' for k in ('pad', 'swizzle') if k in said)})" in str(s.steps[-1])
    assert f"[{elements}];" in TURN.compile(pk.f32[64, 96], schedule=s).source("cuda")


def test_a_schedule_told_before_there_were_swizzles_is_replayed():
    s = blocks().promote("A", at="i.tile", memory="shared")
    assert "swizzle" not in s.to_json() and "pad" not in s.to_json()
    assert "swizzle" not in str(pk.Schedule.from_json(s.to_json(), TURN))


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [
        ({"swizzle": 3}, "PK543", "swizzle=3 is neither True nor a power of two from 2 on in the step `promote`"),
        ({"swizzle": 1}, "PK543", "swizzle=1 is neither"),
        ({"swizzle": -8}, "PK543", "swizzle=-8 is neither"),
        ({"swizzle": "yes"}, "PK543", "swizzle='yes' is neither"),
        ({"swizzle": 8.0}, "PK543", "swizzle=8.0 is neither"),
        ({"pad": 0}, "PK543", "pad=0 is no whole number of elements from 1"),
        ({"pad": True}, "PK543", "pad=True is no whole number of elements from 1"),
        ({"pad": 1, "swizzle": 8}, "PK543", "pad=1 and swizzle=8 exclude each other"),
        ({"swizzle": True, "memory": "stack"}, "PK543", 'swizzle=True is said of memory that is not "shared"'),
        ({"pad": 1, "memory": None}, "PK543", "pad=1 is said of memory that is not"),
        ({"swizzle": 16}, "PK550", "A cannot have swizzle=16 at the loop `i.tile`: its rows have 8 chunks of 16 bytes"),
        ({"pad": 1 << 20}, "PK535", "the buffer of A would take"),
    ],
)
def test_a_swizzle_or_padding_that_cannot_be_says_why(said, code, text):
    with pytest.raises(pk.ScheduleError) as caught:
        blocks().promote("A", at="i.tile", **{"memory": "shared", **said})
    assert caught.value.code == code
    assert text in str(caught.value)
    assert not isinstance(caught.value, pk.LegalityError)


@pytest.mark.parametrize(
    ("wide", "reason"), [(24, "24 elements, which is no power of two"), (4, "1 chunk of 16 bytes, fewer than 2")]
)
def test_rows_without_a_power_of_two_of_chunks_are_not_swizzled(wide, reason):
    with pytest.raises(pk.ScheduleError, match=reason) as caught:
        blocks(wide=wide).promote("A", at="i.tile", memory="shared", swizzle=True)
    assert caught.value.code == "PK550"
    assert "others take pad=" in str(caught.value)
