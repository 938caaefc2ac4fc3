"""Constants that a scope's buffers begin with are put there whether or not a test around them holds."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import Const, For, If, KExpr, Load, Op, Stmt, Store, Var
from polyker.codegen.passes.hoist_buffer_init import begun
from polyker.ir.dtypes import bool_, f64, i64
from tests.artifacts import generated

HELD = Op("lt", (Const(0), Var("n")), bool_)


def zeros(buffer: str = "acc", place: KExpr = Var("i"), hi: KExpr = Const(4), value: KExpr = Const(0.0, f64)) -> For:
    return For("i", Const(0), hi, (Store(buffer, (place,), value),))


def test_a_test_around_constants_is_left_out() -> None:
    assert begun((If(HELD, (zeros(),)), zeros("C")), {"acc"}) == (zeros(), zeros("C"))


@pytest.mark.parametrize(
    "stmt",
    [
        If(HELD, (zeros("C"),)),  # it is somebody's
        If(HELD, (zeros(),), (zeros(),)),
        If(HELD, (zeros(value=Var("n")),)),
        If(HELD, (zeros(hi=Var("n")),)),  # the test may be what keeps it within the buffer
        If(HELD, (zeros(place=Op("add", (Var("i"), Var("n")))),)),
        If(HELD, (zeros(place=Load("at", (Var("i"),), i64)),)),
    ],
)
def test_other_tests_stay(stmt: Stmt) -> None:
    assert begun((stmt,), {"acc"}) == (stmt,)


def test_what_comes_later_is_left() -> None:
    block = (zeros("C"), If(HELD, (zeros(),)))
    assert begun(block, {"acc"}) == block


def test_blocks_of_terms_of_symbolic_extent_share_their_code() -> None:
    made = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(
        pk.f32["I", "K"], pk.f32["K", "J"], target="cpu:x86-64-v3", threads=1
    )
    loops = generated(made, "loops")
    # One nest of sums for each of the whole tiles, those cut in rows and those cut in columns; one test of each kind of store.
    assert len(re.findall(r"\] = \(t4_p\d\[.* \+ \(", loops)) == 3, loops
    assert not re.search(r"if .*\n +for .*unroll.*\n +for .*unroll.*\n +for .*vector.*\n.* = f32\(0\)", loops)


@pytest.mark.parametrize("terms", [0, 1, 383, 384, 385, 1500])
def test_blocks_of_terms_add_up(terms: int) -> None:
    made = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.i64["I", "K"], pk.i64["K", "J"])
    rng = np.random.default_rng(terms)
    a, b = rng.integers(-9, 9, (37, terms)), rng.integers(-9, 9, (terms, 21))
    np.testing.assert_array_equal(made(a, b), a @ b)
