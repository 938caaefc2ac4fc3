"""PARALLEL loops: bodies as functions of their own, regions on several threads, the same bits as the interpreter's."""

from __future__ import annotations

import numpy as np
import pytest

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    Convert,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Space,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.printing import print_kernel
from polyker.codegen.ir.verify import verify
from polyker.codegen.ir.walk import is_parallel
from polyker.codegen.passes.parallel_profitability import settle
from polyker.errors import InternalError
from polyker.ir.dtypes import DType, bool_, c64, f32, f64, i64
from polyker.structs import replace
from tests.codegen.support import C, V, check_same, compiled, index, run_native, vector_buffer

THREADS = 3


def parallel(var: str, lo: KExpr, hi: KExpr, body: StmtBlock, step: int = 1, thread: str = "") -> For:
    return For(var, lo, hi, body, step, LoopKind.PARALLEL, THREADS, thread=thread)


def at(name: str, *place: KExpr, dtype: DType = f64) -> Load:
    return Load(name, place, dtype)


def scaled(step: int = 1) -> KernelIR:
    value = Op("mul", (at("x", V("i")), Const(2.0, f64)), f64)
    loop = parallel("i", V("lo"), V("hi"), (Store("y", (V("i"),), value),), step)
    buffers = (vector_buffer("x", f64, writable=False), vector_buffer("y", f64))
    return KernelIR("kernel", buffers, ("N", "lo", "hi"), (loop,))


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("lo", [0, 5])
def test_every_iteration_runs_once(step: int, size: int, lo: int) -> None:
    data = np.arange(float(size))
    sizes = {"N": size, "lo": lo, "hi": size}
    assert check_same(scaled(step), {"x": data, "y": np.full(size, -1.0)}, sizes) == 0


def test_a_body_sees_loops_values_and_numbers_around_it() -> None:
    place = (V("k"), index("add", "i", "shift"))
    total = Op("mul", (Op("add", (Var("c", c64), Var("z", c64)), c64), Var("w", c64)), c64)
    body = (
        Let("c", Convert(V("i"), c64)),
        Store("y", place, total),
        If(Var("flag", bool_), (Store("y", place, Const(0, c64)),)),
    )
    inside = (
        Let("w", at("x", V("k"), dtype=c64)),
        Let("z", Const(3 + 1j, c64)),
        Let("shift", index("mul", "k", 2)),
        Let("flag", Op("eq", (V("k"), C(1)), bool_)),
        parallel("i", C(0), index("sub", "M", index("mul", "k", 2)), body),
    )
    rows = Buffer("y", c64, (V("N"), V("M")), (V("M"), C(1)), Space.ARGUMENT)
    loop = For("k", C(0), V("N"), inside)
    kernel = KernelIR("kernel", (vector_buffer("x", c64, writable=False), rows), ("N", "M"), (loop,))
    x = (np.arange(4) + 1j).astype(np.complex64)
    assert check_same(kernel, {"x": x, "y": np.zeros((4, 11), np.complex64)}, {"N": 4, "M": 11}) == 0


def private() -> KernelIR:
    """Each iteration fills its thread's row of a scratch buffer and a stack buffer, and sums both."""
    total = Op("add", (at("y", V("i")), Op("add", (at("s", V("t"), V("j")), at("b", V("j"))), f64)), f64)
    body = (
        Store("y", (V("i"),), Const(0.0, f64)),
        For("p", C(0), C(8), (
            Store("s", (V("t"), V("p")), Convert(index("mul", "i", "p"), f64)),
            Store("b", (V("p"),), Convert(index("add", "i", "p"), f64)),
        )),
        For("j", C(0), C(8), (Store("y", (V("i"),), total),)),
    )  # fmt: skip
    stack = Buffer("b", f64, (C(8),), (C(1),), Space.STACK)
    scratch = Buffer("s", f64, (C(THREADS), C(8)), (C(8), C(1)), Space.SCRATCH)
    loop = parallel("i", C(0), V("N"), (Allocate((stack,), body),), thread="t")
    return KernelIR("kernel", (vector_buffer("y", f64), scratch), ("N",), (loop,))


@pytest.mark.parametrize("size", [0, 1, 50])
def test_threads_have_memory_of_their_own(size: int) -> None:
    buffers = {"y": np.full(size, -1.0), "s": np.zeros((THREADS, 8))}
    run_native(private(), buffers, {"N": size})
    expected = [sum(i * p + i + p for p in range(8)) for i in range(size)]
    assert np.array_equal(buffers["y"], expected)


def guarded(enough: KExpr | None = None) -> KernelIR:
    """Element i must be 0, else the status is what stands there."""
    wrong = tuple(
        If(Op("eq", (at("x", V("i"), dtype=i64), C(code)), bool_), (Guard(Const(False, bool_), code),))
        for code in (1, 2, 3)
    )
    loop = parallel("i", C(0), V("N"), (*wrong, Store("y", (V("i"),), C(7))))
    loop = replace(loop, enough=enough)
    buffers = (vector_buffer("x", i64, writable=False), vector_buffer("y", i64))
    return KernelIR("kernel", buffers, ("N",), (loop,))


@pytest.mark.parametrize("enough", [None, C(1), C(1000)])
def test_the_first_failing_iteration_decides_the_status(enough: KExpr | None) -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        x = np.zeros(400, np.int64)
        places = rng.choice(400, 3, replace=False)
        x[places] = rng.integers(1, 4, 3)
        found = run_native(guarded(enough), {"x": x, "y": np.zeros(400, np.int64)}, {"N": 400})
        assert found == x[places.min()]
    assert run_native(guarded(enough), {"x": 0 * x, "y": (y := np.zeros(400, np.int64))}, {"N": 400}) == 0
    assert (y == 7).all()


def test_small_loops_become_serial_and_large_ones_know_how_many_iterations_are_enough() -> None:
    loop = parallel("i", C(0), C(100), (For("j", C(0), V("M"), (Store("y", (V("i"),), Const(0.0, f64)),)),))
    kernel = KernelIR("kernel", (vector_buffer("y", f64, 100),), ("M",), (loop,))
    *lets, found = settle(kernel).body
    assert isinstance(found, For)
    assert found.kind is LoopKind.PARALLEL
    assert isinstance(found.enough, Var)
    assert "M" in str(lets)
    verify(settle(kernel))
    fixed = replace(loop, body=(Store("y", (V("i"),), Const(0.0, f64)),), thread="t")
    small = settle(replace(kernel, body=(fixed,)))
    assert not is_parallel(small)
    verify(small)
    assert is_parallel(settle(replace(kernel, body=(fixed,)), least=100))


@pytest.mark.parametrize(("runs", "parallel_"), [(1, False), (4, True), (100, True)])
def test_regions_of_a_loop_may_do_less_each(runs: int, parallel_: bool) -> None:
    inner = For("j", C(0), C(400), (Store("y", (V("i"),), Const(0.0, f64)),), trip=400)
    loop = replace(parallel("i", C(0), C(100), (inner,)), trip=100)
    around = For("t", C(0), C(runs), (loop,), trip=runs)
    kernel = KernelIR("kernel", (vector_buffer("y", f64, 100),), (), (around,))
    settled = settle(kernel)
    assert is_parallel(settled) == parallel_
    verify(settled)
    few = replace(around, body=(replace(loop, hi=C(4), trip=4),))
    assert not is_parallel(settle(replace(kernel, body=(few,))))


def test_what_a_kernel_estimates_at_run_time_decides_whether_threads_take_part() -> None:
    text = compiled(settle(replace(scaled(), body=(replace(scaled().body[0], hi=V("N")),)))).text  # type: ignore[type-var]
    assert "icmp ugt i64" in text
    assert "@participate" in text


def test_parallel_loops_print() -> None:
    assert "# parallel(3), on thread t" in print_kernel(private())


def bad(body: StmtBlock) -> KernelIR:
    return KernelIR("kernel", (vector_buffer("y", f32),), ("N",), body)


def test_the_verifier_refuses_regions_in_regions_and_shared_stack_buffers() -> None:
    write = Store("y", (V("i"),), Const(0.0, f32))
    inner = parallel("i", C(0), V("N"), (write,))
    verify(bad((inner,)))
    with pytest.raises(InternalError, match="PARALLEL loop in"):
        verify(bad((parallel("k", C(0), V("N"), (inner,)),)))
    with pytest.raises(InternalError, match="PARALLEL loop in"):
        verify(bad((For("k", C(0), C(4), (inner,), kind=LoopKind.VECTOR, lanes=4),)))
    stack = Buffer("b", f32, (C(4),), (C(1),), Space.STACK)
    shared = parallel("i", C(0), V("N"), (Store("b", (C(0),), Const(0.0, f32)),))
    with pytest.raises(InternalError, match="no buffer 'b'"):
        verify(bad((Allocate((stack,), (shared,)),)))
