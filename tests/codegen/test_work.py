"""The estimate of how much a kernel does."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import Const, For, If, Load, LoopKind, Op, Store, Var
from polyker.codegen.ir.polynomial import form_of
from polyker.codegen.ir.work import exceeds
from polyker.ir.dtypes import bool_, f32
from tests.artifacts import compiled_of

ONE = Const(1)
ADD = Store(
    "y", (Var("i"),), Op("add", (Load("x", (Var("i"),), f32), Const(1.0, f32)), f32)
)  # a load, an addition, a store


def operations(block: tuple, **sizes: int) -> int:
    """Return the least limit that the block does not exceed, less one."""
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exceeds(block, sizes, middle) else (low, middle)
    return low


def test_a_loop_multiplies_and_a_vector_counts_once() -> None:
    assert operations((ADD,)) == 3
    assert operations((For("i", Const(0), Var("n"), (ADD,)),), n=10) == 10 * (1 + 3)
    assert operations((For("i", Const(0), Var("n"), (ADD,), step=4),), n=10) == 3 * (1 + 3)
    assert operations((For("i", Const(0), Var("n"), (ADD,), kind=LoopKind.VECTOR, lanes=16),), n=16) == 1 + 3
    assert operations((For("i", Const(0), Var("n"), (ADD,)),), n=-5) == 0


def test_bounds_that_depend_on_loops_around_count_as_in_the_middle() -> None:
    inner = For("j", Const(0), Op("minimum", (Var("i"), Const(1000))), (ADD,))
    assert operations((For("i", Const(0), Const(100), (inner,)),)) == 100 * (1 + 50 * (1 + 3))


def test_what_cannot_be_told_exceeds_any_limit() -> None:
    loop = For("i", Const(0), Load("n", (), f32), (ADD,))
    assert exceeds((loop,), {}, 10**15)
    assert exceeds((For("i", Const(0), Var("unknown"), (ADD,)),), {}, 10**15)


def test_branches_not_told_apart_add_up_and_functions_weigh_more() -> None:
    condition = Op("lt", (Var("n"), ONE), bool_)
    assert operations((If(condition, (ADD,), (ADD, ADD)),)) == 1 + 3 * 3
    assert operations((If(condition, (ADD,), (ADD, ADD)),), n=3) == 1 + 2 * 3
    assert operations((If(condition, (ADD,), (ADD, ADD)),), n=0) == 1 + 3
    exp = Store("y", (ONE,), Op("exp", (Load("x", (ONE,), f32),), f32))
    assert operations((exp,)) > 5 * operations((Store("y", (ONE,), Op("neg", (Load("x", (ONE,), f32),), f32)),))


@pytest.mark.parametrize(("n", "long"), [(4, False), (32, False), (512, True)])
def test_a_matrix_product_is_long_from_some_size_on(n: int, long: bool) -> None:
    from polyker.runtime.entry.tables import UNLOCK_OPERATIONS

    square = pk.f32[n, n]
    for kernel in (
        pk.op("C[i,j] += A[i,k] * B[k,j]").compile(square, square),
        pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32["M", "K"], pk.f32["K", "N"]),
    ):
        a = np.ones((n, n), np.float32)
        kernel(a, a)
        *_, plan = compiled_of(kernel).plans.values()
        code = plan.executable.artifact().kernel
        assert exceeds(code.body, dict(zip(code.integers, plan.integers)), UNLOCK_OPERATIONS) == long


def test_a_float_is_no_bound_of_a_loop() -> None:
    assert form_of(Const(float("-inf"), f32)) is None
    assert form_of(Const(7)) == 7
