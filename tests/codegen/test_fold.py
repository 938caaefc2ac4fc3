"""Folds of neighbouring vectors into one element become one fold, with the same value."""

from __future__ import annotations

import numpy as np
import pytest

from polyker.codegen.ir.kernel import (
    Buffer,
    Const,
    For,
    KernelIR,
    KExpr,
    Load,
    LoopKind,
    Op,
    Space,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.verify import verify
from polyker.codegen.ir.walk import statements
from polyker.codegen.passes.fold_lanes import merge_folds
from polyker.ir.dtypes import DTYPES, DType
from tests.codegen.interpret import run as interpret
from tests.codegen.support import check_same, index

SIZE = 64


def fold(
    op: str, dtype: DType, at: int, element: KExpr | int = 0, *, var: str = "l", lanes: int = 8, trip: int = 8
) -> For:
    """Return `vector l in 0:trip: s[element] = op(s[element], x[at + l])`."""
    place = (Const(element) if isinstance(element, int) else element,)
    term = Load("x", (index("add", at, var),), dtype)
    body = (Store("s", place, Op(op, (Load("s", place, dtype), term), dtype)),)
    return For(var, Const(0), Const(trip), body, kind=LoopKind.VECTOR, lanes=lanes, trip=trip)


def kernel(dtype: DType, *body: For) -> KernelIR:
    buffers = (
        Buffer("x", dtype, (Const(SIZE),), (Const(1),), Space.ARGUMENT, False),
        Buffer("s", dtype, (Const(4),), (Const(1),), Space.ARGUMENT),
    )
    found: StmtBlock = body
    return KernelIR("kernel", buffers, (), found)


def count(found: KernelIR) -> int:
    verify(found)
    return sum(isinstance(s, For) for s in statements(found.body))


def run(found: KernelIR, dtype: DType) -> None:
    codes = np.arange(SIZE) * 7 % 23
    x = codes % 3 > 0 if dtype.kind == "b" else codes.astype(dtype.numpy)
    start = np.array([1, 0, 1, 1]).astype(dtype.numpy)
    assert check_same(found, {"x": x, "s": start}, {}) == 0


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("add", "f32"),
        ("add", "i64"),
        ("minimum", "f64"),
        ("maximum", "f32"),
        ("mul", "u8"),
        ("and", "bool"),
        ("or", "bool"),
    ],
)
@pytest.mark.parametrize("chunks", [2, 3, 5, 8])
def test_neighbouring_folds_become_one(op: str, name: str, chunks: int) -> None:
    dtype = DTYPES[name]
    before = kernel(dtype, *(fold(op, dtype, 8 * k, var=f"l{k}") for k in range(chunks)))
    after = merge_folds(before)
    assert count(after) == 1
    run(after, dtype)
    values = {k: (np.arange(SIZE) % 5 > 0 if name == "bool" else np.arange(SIZE) % 5).astype(dtype.numpy) for k in "x"}
    results = []
    for found in (before, after):
        s = np.ones(4, dtype.numpy)
        assert interpret(found, {**values, "s": s}, {}) == 0
        results.append(s)
    assert np.array_equal(*results)


F32 = DTYPES["f32"]
APART = {
    "two elements": (fold("add", F32, 0), fold("add", F32, 8, 1)),
    "two operations": (fold("add", F32, 0), fold("maximum", F32, 8)),
    "a partial vector": (fold("add", F32, 0), fold("add", F32, 8, trip=5)),
    "two widths": (fold("add", F32, 0), fold("add", F32, 8, lanes=4, trip=4)),
    "elements of the lanes": (fold("add", F32, 0, Op("mod", (Var("l"), Const(4)))),) * 2,
}


@pytest.mark.parametrize("name", APART)
def test_other_loops_stay_apart(name: str) -> None:
    before = kernel(F32, *APART[name])
    assert count(merge_folds(before)) == 2
    assert merge_folds(before) == before
