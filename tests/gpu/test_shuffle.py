"""Values that the threads of a warp give each other: in the interpreter, in the simulator, and what is reported."""

import numpy as np
import pytest

from polyker.codegen.cuda.text import cuda_source
from polyker.codegen.ir.kernel import (
    Barrier,
    Buffer,
    Combine,
    Const,
    For,
    If,
    KernelIR,
    Launch,
    Load,
    LoopKind,
    Op,
    Shuffle,
    Space,
    Store,
    Var,
)
from polyker.codegen.ir.meetings import check_meetings
from polyker.codegen.ir.verify import verify
from polyker.codegen.passes.gpu.combine import write_out
from polyker.codegen.passes.simplify import simplify, unroll
from polyker.errors import InternalError
from polyker.ir.dtypes import DTYPES, bool_
from polyker.rewrite.core.accumulate import COMBINE
from polyker.structs import replace
from tests.codegen.interpret import run
from tests.covering import few
from tests.gpu.sim_check import run_checked
from tests.gpu.support import needs_compiler, needs_nvcc

TYPES = ("b1", "i8", "i16", "i32", "i64", "u8", "f16", "bf16", "f32", "f64", "c64", "c128")
TYPES = tuple(n for n in TYPES if n in DTYPES) + ("bool",) * ("bool" in DTYPES)


def memory(name, dtype, count, *, writable=True):
    return Buffer(name, dtype, (Const(count),), (Const(1),), Space.ARGUMENT, writable)


def threads(count, *body):
    return For("t", Const(0), Const(count), body, kind=LoopKind.THREAD, lanes=count, trip=count, axis="x")


def exchanging(dtype, mask, count=64, *, inside=None):
    """Return a kernel in which each thread stores the value of another one of its warp."""
    t = Var("t")
    body = [Shuffle("s", Load("X", (t,), dtype), mask), Store("Y", (t,), Var("s", dtype))]
    if inside is not None:
        body = [If(inside, tuple(body))]
    launch = Launch("exchange", (Const(1), Const(1), Const(1)), (count, 1, 1), (threads(count, *body),))
    return KernelIR("kernel", (memory("X", dtype, count, writable=False), memory("Y", dtype, count)), (), (launch,))


def combining(dtype, op, count, rows=1):
    """Return a kernel whose blocks each combine a row of X into an element of Y."""
    t, b = Var("t"), Var("b")
    row = Op("add", (Op("mul", (b, Const(count))), t))
    body = Combine("Y", (b,), op, Load("X", (row,), dtype), "x")
    blocks = For("b", Const(0), Const(rows), (threads(count, body),), kind=LoopKind.BLOCK, trip=rows, axis="x")
    launch = Launch("combine", (Const(1), Const(1), Const(1)), (count, 1, 1), (blocks,))
    kernel = KernelIR(
        "kernel", (memory("X", dtype, rows * count, writable=False), memory("Y", dtype, rows)), (), (launch,)
    )
    return write_out(simplify(unroll(kernel)))


def values(dtype, count):
    found = np.arange(count) * 7 % 23
    return (found % 2 if dtype.kind == "b" else found - (0 if dtype.kind in "ub" else 11)).astype(dtype.numpy)


def simulated(kernel, *arrays, sanitizer="none"):
    return run_checked(cuda_source(kernel, frozenset(), {}), list(arrays), sanitizer=sanitizer)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("mask", [1, 8, 31])
def test_each_thread_gets_the_value_of_its_partner(name, mask):
    dtype = DTYPES[name]
    kernel = exchanging(dtype, mask)
    verify(kernel)
    x, y = values(dtype, 64), np.zeros(64, dtype.numpy)
    assert run(kernel, {"X": x, "Y": y}, {}) == 0
    np.testing.assert_array_equal(y, x[np.arange(64) ^ mask])


@needs_compiler
@pytest.mark.parametrize("name", ["i8", "f16", "f32", "f64", "c128"])
def test_the_simulator_exchanges_what_the_interpreter_does(name):
    dtype = DTYPES[name]
    x, y = values(dtype, 64), np.zeros(64, dtype.numpy)
    found = simulated(exchanging(dtype, 9), x, y)
    assert (found.report, found.status) == ("", 0)
    np.testing.assert_array_equal(found.arrays[1], x[np.arange(64) ^ 9])


def test_threads_that_miss_a_shuffle_are_found():
    some = Op("lt", (Var("t"), Const(40)), bool_)
    kernel = exchanging(DTYPES["f32"], 1, inside=some)
    x = np.zeros(64, "f4")
    with pytest.raises(InternalError, match=r"some threads of a warp of block .* miss a shuffle"):
        run(kernel, {"X": x, "Y": x.copy()}, {})


@pytest.mark.parametrize(
    ("inside", "found"),
    [
        (Op("lt", (Var("t"), Const(40)), bool_), True),
        (Op("lt", (Load("X", (Var("t"),), DTYPES["f32"]), Const(0.0, DTYPES["f32"])), bool_), True),
        (Op("lt", (Load("X", (Const(3),), DTYPES["f32"]), Const(0.0, DTYPES["f32"])), bool_), False),
    ],
)
def test_no_shuffle_stands_under_what_differs_in_a_warp(inside, found):
    kernel = exchanging(DTYPES["f32"], 1, inside=inside)
    verify(kernel)
    if found:
        with pytest.raises(InternalError, match="threads of a warp of exchange miss a shuffle"):
            check_meetings(kernel)
    else:
        check_meetings(kernel)


def test_no_shuffle_stands_in_a_loop_over_some_threads():
    kernel = exchanging(DTYPES["f32"], 1)
    (launch,) = kernel.body
    wider = replace(launch, block=(128, 1, 1))
    check_meetings(kernel)
    with pytest.raises(InternalError, match="miss a shuffle"):
        check_meetings(replace(kernel, body=(wider,)))


@needs_compiler
def test_the_simulator_reports_threads_that_miss_a_shuffle():
    some = Op("lt", (Var("t"), Const(40)), bool_)
    x = np.zeros(64, "f4")
    report = simulated(exchanging(DTYPES["f32"], 1, inside=some), x, x.copy()).report
    assert "not every thread of a warp reaches a place where it meets" in report


@pytest.mark.parametrize("mask, count", [(0, 64), (32, 64), (1, 48)])
def test_shuffles_outside_a_warp_are_refused(mask, count):
    with pytest.raises(InternalError, match=r"the mask names|whole warps"):
        verify(exchanging(DTYPES["f32"], mask, count))


@pytest.mark.parametrize("op", sorted(set(COMBINE.values()) - {"or", "and"}))
@pytest.mark.parametrize("count", [32, 128])
def test_the_threads_of_a_block_combine_their_values(op, count):
    dtype = DTYPES["i64"]
    kernel = combining(dtype, op, count)
    verify(kernel)
    x, y = values(dtype, count) % 3 + 1, np.ones(1, "i8")
    assert run(kernel, {"X": x, "Y": y}, {}) == 0
    want = {"add": np.add, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum}[op]
    assert y[0] == want.reduce(np.r_[x, 1])


@needs_compiler
@pytest.mark.parametrize(("name", "count"), few(["i32", "f16", "f32", "f64", "c64"], [32, 256], 1))
def test_blocks_that_come_again_wait_for_the_last_fold(name, count):
    dtype = DTYPES[name]
    kernel = combining(dtype, "add", count, rows=3)
    x, y = values(dtype, 3 * count), np.zeros(3, dtype.numpy)
    other = y.copy()
    assert run(kernel, {"X": x, "Y": other}, {}) == 0
    for sanitizer in ("none", "thread"):
        found = simulated(kernel, x, y, sanitizer=sanitizer)
        assert (found.report, found.status) == ("", 0)
        np.testing.assert_array_equal(found.arrays[1], x.reshape(3, count).sum(1))
        np.testing.assert_array_equal(found.arrays[1], other)


def without(block, left_out):
    """Return a block without the statement of that number among those that threads meet in."""
    found, rest = [], left_out
    for stmt in block:
        inner = getattr(stmt, "body", None)
        if inner is not None:
            changed, rest = without(inner, rest)
            stmt = replace(stmt, body=changed)
        if isinstance(stmt, Barrier):
            rest -= 1
            if rest == -1:
                continue
        found.append(stmt)
    return tuple(found), rest


@pytest.mark.parametrize("left_out", [0, 1])
def test_each_barrier_that_is_left_out_is_a_race(left_out):
    kernel = combining(DTYPES["f64"], "add", 128, rows=2)
    body, rest = without(kernel.body, left_out)
    assert rest == left_out - 2
    x = np.ones(256)
    with pytest.raises(InternalError, match=r"race in combine|undefined element"):
        run(replace(kernel, body=body), {"X": x, "Y": np.zeros(2)}, {})


def test_threads_that_are_not_all_of_the_launch_are_refused():
    kernel = combining(DTYPES["f32"], "add", 32)
    (launch,) = kernel.body
    stmt = Combine("Y", (Const(0),), "add", Const(1.0, DTYPES["f32"]), "x")
    changed = replace(launch, block=(64, 1, 1), body=(threads(32, stmt),))
    with pytest.raises(InternalError, match="not all of a launch's"):
        write_out(replace(kernel, body=(changed,)))


@needs_nvcc
@pytest.mark.parametrize("name", ["i8", "f16", "f32", "f64", "c128"])
def test_nvcc_compiles_shuffles_of_every_size(name):
    from polyker.codegen.cuda.build import cubin
    from polyker.codegen.llvm.jit.detect import target

    image, _ = cubin(cuda_source(combining(DTYPES[name], "add", 128), frozenset(), {}), target("cuda:sm_80"))
    assert image.startswith(b"\x7fELF")
