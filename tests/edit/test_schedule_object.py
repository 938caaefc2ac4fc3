"""Schedules as objects: they print, change by steps, are told in JSON, and compile."""

import doctest
import json

import numpy as np
import pytest

import polyker as pk
from polyker.api import schedule_object

MM = pk.op("C[i,j] += A[i,k] * B[k,j]")
TYPES = pk.f32[6, 7], pk.f32[7, 16]
TWO = pk.op("T[i] = A[i] * 2; O[i] = T[i] + T[i+1] for i in 0:9")
CHAIN = pk.op("T[i,j] = A[i,j] + 1; D[i] += T[i,j]; O[i,j] = T[i,j] * D[i]")
SWEEP = pk.op("f(A: f64[N,N]) -> A:\n A[i,j] = A[i-1,j] + A[i-1,j+1]  for i in 1:N, j in 0:N-1")


def text(operator, *types, **options):
    return operator.schedule(*types, auto=False, **options)


def same(operator, schedule, *arrays):
    """Assert that the kernel of a schedule gives what the operator gives."""
    kernel = operator.compile(*arrays, schedule=schedule)
    for got, wanted in zip(np.atleast_1d(kernel(*arrays)), np.atleast_1d(operator(*arrays)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def whole(*shape):
    return (np.arange(np.prod(shape)) % 7 - 3).reshape(shape).astype("f4")


def test_the_docstrings_are_true():
    assert doctest.testmod(schedule_object).failed == 0
    from polyker.api import operator as api
    from polyker.edit import methods, step

    assert doctest.testmod(api).failed == doctest.testmod(step).failed == doctest.testmod(methods).failed == 0
    assert doctest.testmod(methods).attempted > 30


def test_the_automatic_schedule_prints_in_the_users_names():
    lines = [line.strip() for line in str(MM.schedule(pk.f32[64, 96], pk.f32[96, 64])).splitlines()]
    assert "C: C.acc[i, j] += A[i, k]*B[k, j]" in lines
    assert "C.store: C[i, j] = C.acc[i, j]" in lines
    assert any(line.startswith("with C.acc: f32[") and line.endswith("in registers") for line in lines)
    assert any(line.startswith("vector(") and " j.lanes = j % " in line for line in lines)


@pytest.mark.parametrize(
    ("operator", "types"),
    [
        (MM, (pk.f32[1024, 1024], pk.f32[1024, 1024])),
        (pk.op("P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"), (pk.f32[100, 200],)),
        (pk.op("O[i] += X[i+r] * K[r]"), (pk.f32["N"], pk.f32["M"])),
        (pk.op("O[f,h,w] += X[c,h+r-1,w+s-1; pad=0] * K[f,c,r,s]  for h in 0:14, w in 0:14"),
         (pk.f32[8, 14, 14], pk.f32[8, 8, 3, 3])),
    ],
)  # fmt: skip
def test_no_generated_name_shows(operator, types):
    import re

    found = operator.schedule(*types)
    assert not re.search(r"\b[Stin]\d", str(found))
    assert len(set(found.statements)) == len(found.statements)


def test_steps_are_pure_and_chain():
    s = text(MM, *TYPES)
    before = str(s)
    t = s.tile(i=2, j=8).interchange("k", "j.point").vectorise({"j.point": 8}).unroll({"i.point": 2})
    assert str(s) == before
    assert [str(x) for x in t.steps] == [
        "s.tile(i=2, j=8)", 's.interchange("k", "j.point")', 's.vectorise({"j.point": 8})', 's.unroll({"i.point": 2})'
    ]  # fmt: skip
    same(MM, t, whole(6, 7), whole(7, 16))
    with pytest.raises(AttributeError, match="never changes"):
        s.anything = 1


def test_a_statements_own_loops():
    s = text(MM, *TYPES)
    assert s.statements == ("C.start", "C")
    assert s["C"].loops == ("i", "j", "k")
    assert "C.start: C[i, j] = 0" in str(s["C.start"].vectorise(j=4))
    with pytest.raises(pk.ScheduleError, match=r"no statement `D`; it has C.start, C"):
        s["D"]
    s = text(pk.op("T[i] = A[i] * 2; O[i] = T[i] + 1"), pk.f32[8])
    with pytest.raises(pk.ScheduleError, match=r"several statements have the loop `i`, each its own: T, O") as caught:
        s.tile(i=2)
    assert 's["T"].tile(...)' in str(caught.value)
    # What they share is changed for both.
    assert s.fuse("T", "O").tile(i=2) == s.fuse("T", "O").tile(i=2)


def test_what_stands_between_two_statements_runs_before_both():
    arrays = (whole(5, 6),)
    s = text(CHAIN, *(pk.f32[a.shape] for a in arrays))
    assert s.statements == ("T", "D.start", "D", "O")
    s = s.fuse("T", "D").fuse("T", "O")
    assert str(s).splitlines()[0].startswith("for i") and str(s).index("D.start:") < str(s).index("T:")
    same(CHAIN, s, *arrays)


@pytest.mark.parametrize("auto", [True, False])
def test_json_tells_a_schedule_again(auto):
    s = MM.schedule(*TYPES, auto=auto)
    s = s["C"].unroll(k=2) if auto else s.tile(i=2).skew(j="i.point").reverse("j").shift(k=1)
    again = pk.Schedule.from_json(s.to_json(), MM)
    assert again == s and str(again) == str(s)
    assert pk.Schedule.from_json(json.loads(s.to_json()), MM, *TYPES) == s
    same(MM, again, whole(6, 7), whole(7, 16))


def test_json_may_be_for_other_types_and_is_proven_for_them():
    s = text(MM, *TYPES).tile(i=2)
    assert (
        MM.compile(schedule=pk.Schedule.from_json(s.to_json(), MM, pk.f64["M", "K"], pk.f64["K", "N"])).types[0]
        == pk.f64["M", "K"]
    )


def test_json_keeps_that_an_input_is_a_number():
    op = pk.op("O[i] = A[i] * x")
    s = op.schedule(pk.f16[8], 3.0, auto=False).tile(i=2)
    again = pk.Schedule.from_json(s.to_json(), op)
    assert again == s
    assert op.compile(schedule=again)(np.ones(8, "f2"), 3.0).dtype == np.float16


GOOD = json.loads(text(MM, *TYPES).tile(i=2).to_json())
HOSTILE = [
    "", "[", "3", "null", "[]", "{}", "[" * 100_000, '{"format": "polyker.schedule"}', "x" * (1 << 21),
    GOOD | {"version": 2}, GOOD | {"version": True}, GOOD | {"format": "other"}, GOOD | {"extra": 1}, GOOD | {"operator": "00"},
    GOOD | {"steps": 3}, GOOD | {"steps": [3]}, GOOD | {"steps": [{}]}, GOOD | {"steps": [{"step": "no"}]},
    GOOD | {"steps": [{"step": ["tile"]}]}, GOOD | {"steps": [{"step": "tile"}]},
    GOOD | {"steps": [{"step": "tile", "sizes": {"i": "2"}}]}, GOOD | {"steps": [{"step": "tile", "sizes": {"i": -2}}]},
    GOOD | {"steps": [{"step": "tile", "sizes": {"i": True}}]}, GOOD | {"steps": [{"step": "tile", "sizes": {"i": 1e400}}]},
    GOOD | {"steps": [{"step": "tile", "sizes": {}}]}, GOOD | {"steps": [{"step": "tile", "sizes": {"i": 2}, "x": 1}]},
    GOOD | {"steps": [{"step": "tile", "statement": 3, "sizes": {"i": 2}}]},
    GOOD | {"steps": [{"step": "tile", "statement": "S0", "sizes": {"i": 2}}]},
    GOOD | {"steps": [{"step": "tile", "sizes": {"i0": 2}}]}, GOOD | {"steps": [{"step": "__init__"}]},
    GOOD | {"steps": [{"step": "tile", "sizes": {"i": 2}}] * 300}, GOOD | {"steps": [{"step": "interchange", "order": "ij"}]},
    GOOD | {"steps": [{"step": "interchange", "order": ["i", "i"]}]}, GOOD | {"steps": [{"step": "skew", "loops": ["i"]}]},
    GOOD | {"steps": [{"step": "shift", "offsets": {"i": 0}}]}, GOOD | {"steps": [{"step": "fuse", "first": "C", "second": "C"}]},
    GOOD | {"types": ["f32[6, 7]"]}, GOOD | {"types": ["f32[6, 7]", "f32[8, 8]"]}, GOOD | {"types": [1, 2]},
    GOOD | {"types": ["f32[6, 7]", "q9[8]"]}, GOOD | {"types": ["f32[6, 7]", "f32[" + "9" * 5000 + "]"]},
    GOOD | {"sizes": {"Z": 1}}, GOOD | {"sizes": []}, GOOD | {"target": "pdp-11"}, GOOD | {"acc": "f99"}, GOOD | {"auto": 1},
]  # fmt: skip


@pytest.mark.parametrize("said", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_json_raises_schedule_errors_only(said):
    with pytest.raises(pk.ScheduleError) as caught:
        pk.Schedule.from_json(said, MM)
    assert len(str(caught.value)) < 3000


def test_an_illegal_step_in_json_is_refused():
    s = text(SWEEP, pk.f64[9, 9])
    said = json.loads(s.to_json())
    said["steps"] = [{"step": "interchange", "order": ["j", "i"]}]
    with pytest.raises(pk.LegalityError):
        pk.Schedule.from_json(said, SWEEP)


def test_a_schedule_is_for_one_operator_its_types_and_its_target():
    s = text(MM, *TYPES)
    for what, compile in {
        "operator": lambda: pk.op("C[i,j] += A[i,k] * B[j,k]").compile(schedule=s),
        "types": lambda: MM.compile(pk.f32[4, 4], pk.f32[4, 4], schedule=s),
        "acc": lambda: MM.compile(schedule=s, acc="f64"),
        "target": lambda: MM.compile(schedule=s, target="cpu:x86-64-v2"),
    }.items():
        with pytest.raises(pk.ScheduleError, match=f"this schedule is for the {what} ") as caught:
            compile()
        assert caught.value.code == "PK545"
    with pytest.raises(pk.ScheduleError, match="this schedule is for the operator "):
        pk.op("D[i] = A[i]").compile(schedule=s)  # which takes another number of arguments


def test_a_kernel_has_its_schedule():
    s = text(MM, *TYPES).tile(i=2)
    assert MM.compile(schedule=s).schedule is s
    assert MM.compile(*TYPES).schedule == MM.schedule(*TYPES)
    # Where indices are joined there are no loops to name: it only prints.
    assert "for " in str(pk.op("O[i,j] = A[i,j] + 1").compile(pk.f32[64, 64]).schedule)


def test_other_layouts_run_by_the_same_schedule():
    k = MM.compile(schedule=text(MM, *TYPES).tile(i=2))
    A, B = whole(7, 6).T, whole(7, 32)[:, ::2]
    np.testing.assert_array_equal(k(A, B), A @ B)


def test_sums_in_half_precision_have_accumulators_in_any_order():
    s = text(pk.op("O[i] += A[i,k]"), pk.f16[3, 40])
    assert "O.acc" in str(s)


def test_an_illegal_step_shows_two_instances_the_element_and_what_is_legal():
    with pytest.raises(pk.LegalityError) as caught:
        text(SWEEP, pk.f64[9, 9]).interchange("j", "i")
    message = str(caught.value)
    assert "read-after-write dependence through A: A(i=" in message
    assert "both use A[" in message
    assert 's.skew(j="i", factor=1).interchange("j\'", "i")' in message
    with pytest.raises(pk.LegalityError, match=r's\["O"\].shift\(i=1\).fuse\("T", "O", depth=1\)'):
        text(TWO, pk.f32[10]).fuse("T", "O")
    with pytest.raises(pk.LegalityError, match=r"legal instead: s.vectorise\(j=8\)"):
        text(SWEEP, pk.f64[9, 9]).vectorise(i=8)
    with pytest.raises(pk.LegalityError, match=r's\["O"\].shift\(i=1\).fuse\("T", "O", depth=2\)'):
        text(pk.op("T[i,j] = A[i,j] * 2; O[i,j] = T[i,j] + T[i,8-j] for i in 0:9, j in 0:9"), pk.f32[9, 9]).fuse(
            "T", "O", 2
        )


def test_a_loop_on_threads_may_have_more_iterations_than_threads():
    op = pk.op("O[z] = L[z//3]  for z in 0:N")
    s = op.schedule(pk.f64["M"], auto=False).parallel("z", threads=3)
    array = whole(9).astype("f8")
    np.testing.assert_array_equal(op.compile(schedule=s)(array, N=25), array[np.arange(25) // 3])


def test_full_and_partial_tiles_of_a_symbolic_size_may_each_run_on_threads():
    op = pk.op("O[i] = A[i] + 1")
    s = op.schedule(pk.f32["N"], target="cpu:x86-64-v2").distribute("i.tile").parallel("i.tile", threads=3)
    kernel = op.compile(schedule=s["O"].interchange("i.vectors", "i.tile", "i.lanes"))
    np.testing.assert_array_equal(kernel(whole(700)), whole(700) + 1)


def test_an_alternative_is_another_schedule():
    floyd = pk.op("f(D: f64[N,N]) -> D:\n  for k in 0:N:\n    D[i,j] = minimum(D[i,j], D[i,k] + D[k,j])")
    with pytest.raises(pk.LegalityError) as caught:
        text(floyd, pk.f64[9, 9]).interchange("i", "k")
    assert "legal instead" not in str(caught.value)


def test_statements_in_between_are_fused_first():
    s = text(CHAIN, pk.f32[5, 6])
    with pytest.raises(pk.LegalityError) as caught:
        s.fuse("T", "O")
    assert 's.fuse("T", "D.start", depth=1).fuse("T", "D", depth=1).fuse("T", "O", depth=1)' in str(caught.value)


def test_a_buffer_that_is_illegal_says_what_is_lost_not_why_there_is_no_copy():
    s = text(pk.op("O[i] = sum[k](A[i,k]) * 2"), pk.f32[5, 6]).fuse("O.sum", "O")
    with pytest.raises(pk.LegalityError, match=r"O\.sum cannot be held in a buffer here"):
        s.promote("O.sum", at="i")


def test_loops_run_on_threads():
    s = text(MM, *TYPES)
    t = s["C"].parallel("i", threads=2)
    assert "parallel(2) i" in str(t)
    same(MM, t, whole(6, 7), whole(7, 16))
    assert s["C"].parallel("i").steps[0]["threads"] >= 1
    with pytest.raises(pk.LegalityError, match=r'legal instead: s.parallel\("j", threads=2\)'):
        text(SWEEP, pk.f64[9, 9]).parallel("i", threads=2)


def test_the_alternatives_are_legal():
    s = text(SWEEP, pk.f64[9, 9]).skew(j="i", factor=1).interchange("j", "i")
    array = whole(9, 9).astype("f8")
    np.testing.assert_array_equal(SWEEP.compile(schedule=s)(array), SWEEP(array))
    s = text(TWO, pk.f32[10])["O"].shift(i=1).fuse("T", "O", depth=1)
    np.testing.assert_array_equal(TWO.compile(schedule=s)(whole(10)), TWO(whole(10)))


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda s: s["D"], "PK540"),
        (lambda s: s[3], "PK540"),
        (lambda s: s.map(i="block.x"), "PK549"),
        (lambda s: s["C"].promote("A", at="i", memory="shared"), "PK549"),
        (lambda s: s.tile(ii=4), "PK541"),
        (lambda s: s.tile(i=4, j=0), "PK543"),
        (lambda s: s.tile(), "PK543"),
        (lambda s: s.skew(j="j"), "PK543"),
        (lambda s: s.skew(), "PK543"),
        (lambda s: s.interchange("i"), "PK543"),
        (lambda s: s.shift(k=0), "PK539"),
        (lambda s: s.fuse("C", "C.start"), "PK527"),
        (lambda s: s.distribute("k"), "PK529"),
        (lambda s: s.vectorise(i=4).reverse("i.point"), "PK525"),
    ],
)
def test_a_bad_argument_raises_a_schedule_error_in_the_users_names(call, code):
    import re

    with pytest.raises(pk.ScheduleError) as caught:
        call(text(MM, *TYPES))
    assert caught.value.code == code
    assert not isinstance(caught.value, pk.LegalityError)
    assert not re.search(r"\b[Sti]\d", str(caught.value))


def test_a_loop_that_is_nearly_named_is_suggested():
    with pytest.raises(pk.ScheduleError, match="did you mean `k`"):
        text(MM, *TYPES).tile(kk=4)
    with pytest.raises(pk.ScheduleError, match="C has i, j, k"):
        text(MM, *TYPES).tile(q=4)
