"""The interpreter of the Kernel IR: what it computes, and what it refuses."""

import numpy as np
import pytest

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    Guard,
    If,
    KernelIR,
    Load,
    LoopKind,
    Op,
    Space,
    Store,
)
from polyker.errors import InternalError
from polyker.ir.dtypes import bool_, f32
from tests.codegen.interpret import run
from tests.codegen.support import C, V, index, vector_buffer

A, B = vector_buffer("A", f32, writable=False), vector_buffer("B", f32)


def load(name, *at):
    return Load(name, at, f32)


def vector(*body, lo=0, hi="N", lanes=8):
    hi = V(hi) if isinstance(hi, str) else C(hi)
    return For("v", C(lo), hi, tuple(body), kind=LoopKind.VECTOR, lanes=lanes)


def execute(body, n=6, buffers=(A, B), **options):
    a, b = np.arange(n, dtype=np.float32) + 1, np.zeros(n, np.float32)
    arrays = {"A": a, "B": b, "W": np.zeros(4, np.float32)}
    status = run(KernelIR("k", buffers, ("N",), body), {x.name: arrays[x.name] for x in buffers}, {"N": n}, **options)
    return status, b


def test_a_vector_statement_runs_for_all_lanes_before_the_next():
    body = (
        vector(
            Store("B", (V("v"),), load("A", V("v"))),
            Store("B", (V("v"),), load("B", index("sub", 5, "v"))),
        ),
    )
    assert execute(body)[1].tolist() == [6, 5, 4, 3, 2, 1]


def test_an_illegal_vectorisation_of_a_recurrence_shows():
    step = Store("B", (index("add", "v", 1),), Op("add", (load("B", V("v")), load("A", V("v"))), f32))
    serial = For("v", C(0), C(5), (step,))
    assert execute((serial,))[1].tolist() == [0, 1, 3, 6, 10, 15]
    assert execute((vector(step, hi=5),))[1].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_reduction_in_a_vector_loop_combines_the_active_lanes():
    total = Store("B", (C(0),), Op("add", (load("B", C(0)), load("A", V("v"))), f32))
    assert execute((vector(total),))[1][0] == 21
    last = Store("B", (C(0),), load("A", V("v")))
    assert execute((vector(last),))[1][0] == 6


def test_two_lanes_that_update_one_element_are_refused():
    at = (index("floordiv", "v", 2),)
    body = (vector(Store("B", at, Op("add", (Load("B", at, f32), load("A", V("v"))), f32))),)
    with pytest.raises(InternalError, match="two lanes"):
        execute(body)


@pytest.mark.parametrize("shift", [-1, 6])
def test_an_access_outside_a_buffer_names_buffer_and_index(shift):
    body = (For("i", C(0), C(1), (Store("B", (index("add", "i", shift),), Const(0.0, f32)),)),)
    with pytest.raises(InternalError, match=f"index {shift} is outside axis 0 of 'B'"):
        execute(body)


def test_an_inactive_lane_may_point_anywhere():
    assert execute((vector(Store("B", (V("v"),), load("A", V("v"))), lanes=16),))[0] == 0


def test_a_predicate_that_is_off_keeps_the_access_away():
    inside = Op("lt", (V("i"), C(2)), bool_)
    value = Load("A", (index("mul", "i", 3),), f32, inside, Const(-1.0, f32))
    body = (For("i", C(0), V("N"), (Store("B", (V("i"),), value),)),)
    assert execute(body)[1].tolist() == [1, 4, -1, -1, -1, -1]


def test_reading_an_element_that_nothing_wrote_is_refused():
    tile = Buffer("S", f32, (C(2),), (C(1),), Space.STACK)
    body = (Allocate((tile,), (Store("S", (C(0),), Const(1.0, f32)), Store("B", (C(0),), load("S", C(1))))),)
    with pytest.raises(InternalError, match="undefined element of 'S'"):
        execute(body)


def test_a_scratch_buffer_starts_undefined():
    scratch = Buffer("W", f32, (C(4),), (C(1),), Space.SCRATCH)
    with pytest.raises(InternalError, match="undefined element of 'W'"):
        execute((Store("B", (C(0),), load("W", C(1))),), buffers=(A, B, scratch))


def test_a_guard_that_fails_gives_its_code():
    body = (For("i", C(0), V("N"), (Guard(Op("lt", (V("i"), C(3)), bool_), 9),)),)
    assert execute(body)[0] == 9


def test_a_guard_in_a_masked_branch_is_for_the_active_lanes():
    small = Op("lt", (V("v"), C(3)), bool_)
    assert execute((vector(If(small, (Guard(small, 4),), ())),))[0] == 0


def test_stores_are_counted():
    counts = {}
    body = (For("i", C(0), C(3), (Store("B", (C(2),), Const(0.0, f32)), Store("B", (V("i"),), Const(0.0, f32)))),)
    execute(body, stores=counts)
    assert counts["B"].tolist() == [1, 1, 4, 0, 0, 0]


def test_more_iterations_than_declared_are_refused():
    with pytest.raises(InternalError, match="VECTOR loop"):
        execute((vector(Store("B", (V("v"),), Const(0.0, f32)), lanes=4),))
    with pytest.raises(InternalError, match="runs 6 times"):
        execute((For("i", C(0), V("N"), (), trip=5),))


def test_an_array_of_another_shape_is_refused():
    with pytest.raises(InternalError, match="declared"):
        run(KernelIR("k", (A,), ("N",), ()), {"A": np.zeros(3, np.float32)}, {"N": 4})
