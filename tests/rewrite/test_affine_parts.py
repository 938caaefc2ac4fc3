"""Subscripts that wrap, stop at an edge or turn back are affine on parts of the domain; the values stay numpy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import f64
from polyker.ir.expr import Call, reads_in, walk
from polyker.ir.quasi_affine import lit
from polyker.poly.binding.bind import bind
from polyker.poly.isl import narrowed, read_set
from polyker.rewrite.indexing.affine_parts import MAX_STATEMENT_PARTS, affine_parts, pieces_of
from polyker.structs import replace

MODES = {"wrap": "wrap", "edge": "edge", "reflect": "reflect"}


def split(text, **shapes):
    return list(affine_parts(bind(parse(text), {n: f64[s] for n, s in shapes.items()}, {})).statements())


def bends(statement):
    return any(r.pad is not None for r in reads_in(statement.expr)) or any(
        isinstance(e, Call) and e.op == "mod" for e in walk(statement.expr)
    )


def number(expr):
    return None if expr is None else int(expr.value.real)


@pytest.mark.parametrize("mode", MODES)
def test_pieces_are_those_that_numpy_pads_with(mode):
    program = bind(parse("O[i] = X[i]"), {"X": f64[9]}, {})
    for size in (1, 2, 3, 5):
        padded = np.pad(np.arange(size), 40, mode=mode) if size > 1 or mode != "reflect" else None
        for low in range(-20, 20):
            for high in range(low, 20):
                pieces = pieces_of(program, mode, read_set(f"{{ [e] : {low} <= e <= {high} }}"), lit(size))
                for e in range(low, high + 1) if pieces is not None and padded is not None else ():
                    (own,) = [
                        p
                        for p in pieces
                        if (p.low is None or number(p.low) <= e) and (p.high is None or e <= number(p.high))
                    ]
                    assert own.sign * e + number(own.shift) == padded[e + 40], (size, low, high, e)
    assert pieces_of(program, mode, read_set("{ [e] : -1 <= e <= 5 }"), lit(5)) is not None


@pytest.mark.parametrize("mode", MODES)
def test_symbolic_sizes_are_parted_too(mode):
    text = f"O[i,j] = X[i-1,j;pad={mode}] + X[i+1,j;pad={mode}] + X[i,j-1;pad={mode}] + X[i,j+1;pad={mode}]"
    program = bind(parse(text), {"X": f64["N", "M"]}, {})
    more = replace(program, context=narrowed(program.context, [f"{n} > 16" for n, _ in program.sizes]))
    found = list(affine_parts(more).statements())
    assert 2 < len(found) <= MAX_STATEMENT_PARTS
    assert any(not bends(s) for s in found)


@settings(deadline=None, max_examples=6)
@given(st.sampled_from(sorted(MODES)), st.integers(2, 60), st.integers(2, 60), st.integers(-3, 3), st.integers(-3, 3))
def test_symbolic_values_are_those_of_numpy(mode, rows, columns, a, b):
    op = pk.op(f"O[i,j] = X[i+{a},j; pad={mode}] - X[i,j+{b}; pad={mode}]")
    x = np.random.default_rng(rows).normal(size=(rows, columns))
    padded = np.pad(x, 3, mode=mode) if min(x.shape) > 3 or mode != "reflect" else None
    found = op.compile(X=f64["N", "M"])(x)
    if padded is not None:
        one = padded[3 + a : 3 + a + rows, 3 : 3 + columns]
        np.testing.assert_array_equal(found, one - padded[3 : 3 + rows, 3 + b : 3 + b + columns])


def test_an_edge_of_a_tensor_that_may_be_empty_is_parted_once():
    """Where a size has no values the first element still seems to lie outside."""
    text = "f(J: f32[d], A, E, w: f32[40]) -> P:\n    S[a,b] = J[a+b] + A[b]\n    P[h,c] = fmod(E[39-h; pad=edge], w[h]) * S[c,h]"
    J, A, E, w = (np.arange(n, dtype="f4") + 1 for n in (70, 40, 40, 40))
    with pk.options(specialize="never"):
        found = pk.op(text)(J, A, E, w)
    S = J[np.add.outer(np.arange(31), np.arange(40))] + A
    np.testing.assert_array_equal(found, np.fmod(E[::-1], w)[:, None] * S.T)


def test_a_shift_is_two_copies():
    for text in ("O[i] = X[i+7; pad=wrap] for i in 0:100", "O[i] = X[(i+7) % 100] for i in 0:100"):
        found = split(text, X=(100,))
        assert len(found) == 2
        assert not any(map(bends, found))


@pytest.mark.parametrize("mode", MODES)
def test_the_inside_of_a_stencil_has_no_padding(mode):
    text = f"O[i,j] = X[i-1,j;pad={mode}] + X[i+1,j;pad={mode}] + X[i,j-1;pad={mode}] + X[i,j+1;pad={mode}]"
    found = split(text, X=(100, 100))
    assert 2 < len(found) <= MAX_STATEMENT_PARTS
    assert any(not bends(s) for s in found)


def test_what_turns_too_often_stays_as_it_is():
    assert len(split("O[i] = X[i % 10] for i in 0:100", X=(10,))) == 1
    assert len(split("O[i] = X[i; pad=wrap] for i in 0:100", X=(10,))) == 1
    assert len(split("O[i] = X[2*i; pad=reflect] for i in 0:100", X=(10,))) == 1


def test_a_statement_that_reads_what_it_writes_stays_as_it_is():
    text = "f(A: f64[9]) -> A:\n    A[i] = A[i+1; pad=wrap] for i in 0:9"
    assert len(list(affine_parts(bind(parse(text), {"A": f64[9]}, {})).statements())) == 1


@settings(deadline=None, max_examples=15)
@given(
    st.sampled_from(sorted(MODES)), st.integers(1, 40), st.integers(1, 9), st.tuples(*[st.integers(-6, 6)] * 2),
    st.sampled_from([1, -1, 2]), st.booleans(),
)  # fmt: skip
def test_values_are_those_of_numpy(mode, rows, columns, shifts, factor, sums):
    x = np.random.default_rng(rows).normal(size=(rows, columns))
    around = 2 * max(rows, 1) + 16
    if mode == "reflect" and 1 in (rows, columns):
        around = 0  # numpy takes no mirror of one element
    text = f"O[i,j] = X[{factor}*i+{shifts[0]}, j+{shifts[1]}; pad={mode}] for i in 0:{rows}, j in 0:{columns}"
    if sums:
        read = f"X[{factor}*i+r+{shifts[0]}, j+s+{shifts[1]}; pad={mode}]"
        text = f"O[i,j] += {read} for i in 0:{rows}, j in 0:{columns}, r in 0:2, s in 0:3"
    found = pk.op(text)(x)
    if not around:
        np.testing.assert_array_equal(found, pk.op(text).check(x) and found)
        return
    padded = np.pad(x, around, mode=MODES[mode])

    def part(r, s):
        i = factor * np.arange(rows) + shifts[0] + r + around
        j = np.arange(columns) + shifts[1] + s + around
        return padded[np.ix_(i, j)]

    want = sum(part(r, s) for r in range(2) for s in range(3)) if sums else part(0, 0)
    np.testing.assert_allclose(found, want, rtol=1e-12)


def test_time_loops_wrap_too():
    text = (
        "heat(A: f64[12,15], steps) -> A:\n    for t in 0:steps:\n"
        "        B[i,j] = (A[i-1,j;pad=wrap] + A[i+1,j;pad=wrap] + A[i,j-1;pad=wrap] + A[i,j+1;pad=wrap]) / 4\n"
        "        A[i,j] = B[i,j]"
    )
    a = np.random.default_rng(1).normal(size=(12, 15))
    want = a.copy()
    for _ in range(4):
        want = sum(np.roll(want, s, axis) for s in (1, -1) for axis in (0, 1)) / 4
    np.testing.assert_allclose(pk.op(text)(a, 4), want, rtol=1e-12)
