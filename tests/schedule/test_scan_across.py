"""Recurrences along memory by vectors across the rows: the values of the text, one step after another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from tests.artifacts import generated

Step = Callable[..., object]

# The text after `t`'s first steps, the operands beside S, and a step in NumPy: `s(d)` is the element of d steps before.
FORMS: dict[str, tuple[str, dict[str, str], int, Step]] = {
    "sum": ("S[b,t-1] + X[b,t]", {"X": "BT"}, 1, lambda s, t, X: s(1) + X[:, t]),
    "decay": ("A[b] * S[b,t-1] + X[b,t]", {"X": "BT", "A": "B"}, 1, lambda s, t, X, A: A * s(1) + X[:, t]),
    "gate": ("A[b,t] * S[b,t-1] + X[b,t]", {"X": "BT", "A": "BT"}, 1, lambda s, t, X, A: A[:, t] * s(1) + X[:, t]),
    "times": ("A[t] * S[b,t-1] + X[t,b]", {"X": "TB", "A": "T"}, 1, lambda s, t, X, A: A[t] * s(1) + X[t]),
    "most": ("maximum(S[b,t-1], X[b,t])", {"X": "BT"}, 1, lambda s, t, X: np.maximum(s(1), X[:, t])),
    "order 2": ("S[b,t-1] - S[b,t-2] + X[b,t-1]", {"X": "BT"}, 2, lambda s, t, X: s(1) - s(2) + X[:, t - 1]),
    "order 4": ("S[b,t-4] + X[b,t]", {"X": "BT"}, 4, lambda s, t, X: s(4) + X[:, t]),
    "order 5": ("S[b,t-5] + X[b,t]", {"X": "BT"}, 5, lambda s, t, X: s(5) + X[:, t]),
}
SHAPES = {"BT": ("B", "T"), "TB": ("T", "B"), "B": ("B",), "T": ("T",)}


def source(form: str, dtype: str, *, back: bool) -> str:
    """Return the program of a recurrence in time, or against it."""
    value, operands, order, _ = FORMS[form]
    parts = ", ".join(f"{n}: {dtype}[{','.join(SHAPES[s])}]" for n, s in operands.items())
    text = f"S[b,t] = {value}"
    if back:
        text = re.sub(r"\bt(-\d)?(?=[],])", lambda at: f"T-1-t{(at[1] or '').replace('-', '+')}", text)
    return f"f(S: {dtype}[B,T], {parts}) -> S:\n    {text}  for t in {order}:T, b in 0:B"


def expected(form: str, S: np.ndarray, operands: dict[str, np.ndarray], *, back: bool) -> np.ndarray:
    """Return what the steps give, each rounded to the type of the elements; time runs backwards where `back`."""
    _, kinds, order, step = FORMS[form]
    turned = {n: np.flip(x, kinds[n].index("T")) if back and "T" in kinds[n] else x for n, x in operands.items()}
    found = (S[:, ::-1] if back else S).copy()
    for t in range(order, S.shape[1]):
        found[:, t] = step(lambda d, t=t: found[:, t - d], t, **turned)
    return found[:, ::-1] if back else found


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with pk.options(threads=1):
        yield


@given(
    form=st.sampled_from(sorted(FORMS)),
    dtype=st.sampled_from(("f32", "f64", "i32", "i16")),
    rows=st.integers(1, 40),
    steps=st.integers(8, 120),
    back=st.booleans(),
    symbolic=st.booleans(),
    strided=st.booleans(),
    target=st.sampled_from(("cpu", "cpu:x86-64-v3")),
)
@settings(max_examples=6, deadline=None)
def test_steps_are_taken_one_after_another(
    form: str, dtype: str, rows: int, steps: int, back: bool, symbolic: bool, strided: bool, target: str
) -> None:
    rng = np.random.default_rng(rows * 1000 + steps)
    kind = getattr(pk, dtype)
    sizes = {"B": rows, "T": steps}

    def elements(shape: str) -> np.ndarray:
        found = rng.integers(-3, 4, [sizes[s] for s in SHAPES[shape]]).astype(kind.numpy)
        if not strided:
            return found
        wide = np.zeros([2 * n for n in found.shape], found.dtype)[tuple(slice(None, None, -2) for _ in found.shape)]
        wide[:] = found
        return wide

    operands = {n: elements(shape) for n, shape in FORMS[form][1].items()}
    S = rng.integers(-3, 4, (rows, steps)).astype(kind.numpy)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = expected(form, S, operands, back=back)
    op = pk.op(source(form, dtype, back=back))
    if symbolic:
        shapes = {"S": kind["B", "T"], **{n: kind[SHAPES[s]] for n, s in FORMS[form][1].items()}}
        kernel = op.compile(**shapes, target=target)
        operands = {n: np.ascontiguousarray(x) for n, x in operands.items()}
    else:
        kernel = op.compile(S=S, **operands, target=target)
    assert np.array_equal(kernel(S=S, **operands), wanted, equal_nan=True)


def plan(form: str, dtype: str, rows: int, steps: int, target: str = "cpu:x86-64-v4") -> str:
    """Return the line of the schedule that tells how the recurrence is carried out."""
    kind, sizes = getattr(pk, dtype), {"B": rows, "T": steps}
    shapes = {n: kind[tuple(sizes[s] for s in SHAPES[shape])] for n, shape in FORMS[form][1].items()}
    kernel = pk.op(source(form, dtype, back=False)).compile(S=kind[rows, steps], **shapes, target=target)
    return next(line for line in generated(kernel, "schedule").splitlines() if "depends on itself" in line)


def test_the_vector_is_across_the_rows_where_that_is_quicker() -> None:
    for form in ("sum", "gate", "decay", "times", "order 2", "order 4"):
        assert "vectors of 16 along i1, 1 at a time; loops i1, i0" in plan(form, "f32", 64, 400), form
    assert "vectors of 8 along i1" in plan("sum", "f64", 64, 400)
    # Registers keep four steps; few rows leave lanes without work, few steps make no tile.
    assert "1 at a time; loops i1, i0" not in plan("order 5", "f32", 64, 400)
    assert "scalar x 3 i1" in plan("sum", "f32", 3, 400)
    assert "1 at a time; loops i1, i0" not in plan("sum", "f32", 64, 30)
