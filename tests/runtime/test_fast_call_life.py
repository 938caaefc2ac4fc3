"""What calls through the emitted entry keep and let go: references, kernels, rows, memory, the interpreter's lock."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.api import compiling
from polyker.codegen.llvm.jit.call_table import ROWS, RowWord
from tests.artifacts import compiled_of, table_of
from tests.runtime.calls import MATMUL, NEEDS_ENTRY, both, f32, outcome
from tests.runtime.support import Guarded

pytestmark = NEEDS_ENTRY


def test_a_guard_s_error_is_raised_and_nothing_leaks() -> None:
    x = f32(9)
    kernel, slow = both("y[i] = x[idx[i]]", x, np.array([0, 1, 2]))
    for bad in ([0, 9, 2], [-1, 0, 0], [2**40, 0, 0]):
        assert outcome(kernel, lambda b=bad: ((x, np.array(b)), {})) == outcome(
            slow, lambda b=bad: ((x, np.array(b)), {})
        )
    bad = np.array([0, 9, 2])
    counts = sys.getrefcount(x), sys.getrefcount(bad), sys.getrefcount(x.dtype)
    blocks = []
    for _ in range(3):
        for _ in range(300):
            with pytest.raises(pk.PolykerError):
                kernel(x, bad)
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    assert (sys.getrefcount(x), sys.getrefcount(bad)) == counts[:2]
    assert abs(sys.getrefcount(x.dtype) - counts[2]) < 100
    assert blocks[2] - blocks[1] < 100


def test_references_are_given_back_on_every_way() -> None:
    kernel, _ = both(MATMUL, f32(4, 4), f32(4, 4), outs=(f32(4, 4),))
    a, b, out = f32(4, 4), f32(4, 4), f32(4, 4)
    watched: list[Any] = [a, b, out, a.dtype, kernel, kernel.func, None, "out", compiled_of(kernel)]
    watched += compiled_of(kernel).plans.values()

    def calls() -> None:
        for _ in range(1000):
            kernel(a, b)
            kernel(a, b, out=out)
            kernel(A=a, B=b, out=None)

    calls()
    gc.collect()
    before, blocks = [sys.getrefcount(v) for v in watched], sys.getallocatedblocks()
    calls()
    gc.collect()
    after = [sys.getrefcount(v) for v in watched]
    assert all(abs(x - y) <= 3 for x, y in zip(before, after))
    assert sys.getallocatedblocks() - blocks < 100
    result = kernel(a, b)
    assert sys.getrefcount(result) == 2
    del watched
    assert sys.getrefcount(kernel(a, b, out=out)) == 3


def test_a_dropped_kernel_is_freed_at_once_and_its_callable_lives_on_its_own() -> None:
    a, b = f32(4, 4), f32(4, 4, salt=3)
    kernel, _ = both(MATMUL + " * 17", a, b)
    plan = weakref.ref(next(iter(compiled_of(kernel).plans.values())))
    call, whole, made = kernel.func, weakref.ref(kernel), weakref.ref(compiled_of(kernel))
    compiling.kernels.clear()
    gc.disable()
    try:
        del kernel
        assert whole() is None
        del _
        np.testing.assert_array_equal(call(a, b), 17 * (a @ b))
        np.testing.assert_array_equal(call(a.T, b), 17 * (a.T @ b))
        assert made() is not None
        del call
        assert made() is None and plan() is None
    finally:
        gc.enable()


def test_an_operator_keeps_no_kernel_that_the_cache_let_go() -> None:
    operator, a = pk.op(MATMUL + " * 19"), f32(4, 4)
    for _ in range(5):
        operator(a, a)
    table = table_of(operator)
    assert [row.plan() is not None for row in table.rows] == [True]
    compiling.kernels.clear()
    gc.collect()
    assert [row.plan() is not None for row in table.rows] == [False]
    np.testing.assert_array_equal(operator(a, a), 19 * (a @ a))
    for _ in range(70):
        operator(a, a)
    assert [row.plan() is not None for row in table.rows] == [True]


def test_the_entry_marks_kernels_as_used_for_the_cache() -> None:
    kernel, _ = both(MATMUL, f32(4, 4), f32(4, 4))
    compiled_of(kernel).used = False
    kernel(f32(4, 4), f32(4, 4))
    assert compiled_of(kernel).used


def test_options_and_environment_are_looked_at_in_each_call_of_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    total, x = pk.op("s += x[i]"), np.array([2.0**24, 1, 1, 1, 1], np.float32)
    for _ in range(5):
        single = total(x)
    assert table_of(total) is not None
    with pk.options(acc="f64"):
        for _ in range(5):
            assert total(x) == np.float32(2**24 + 4)
    assert total(x) == single
    monkeypatch.setenv("POLYKER_TARGET", "cpu:no-such-thing")
    with pytest.raises(pk.PolykerError, match="no-such-thing"):
        total(x)
    monkeypatch.delenv("POLYKER_TARGET")
    assert total(x) == single
    monkeypatch.setenv("POLYKER_TARGET", "cpu:no-such-thing")
    monkeypatch.setenv("POLYKER_INTERPRET", "1")
    assert total(x) in (2**24, single)  # by the interpreter, which needs no target


def test_more_ways_of_calling_than_the_table_has_rows_still_work() -> None:
    operator = pk.op("y[i] = 3 * x[i]")
    shapes = range(1, 2 * ROWS)
    for _ in range(70):
        for n in shapes:
            x = f32(n)
            assert (operator(x) == 3 * x).all()
    assert len(table_of(operator).rows) == ROWS


def test_more_parameters_or_outputs_than_the_entry_knows_go_through_python() -> None:
    many = pk.op("y[i] = " + " + ".join(f"x{n}[i]" for n in range(20)))
    args = [f32(5, salt=n) for n in range(20)]
    for _ in range(5):
        np.testing.assert_array_equal(many(*args), sum(args))
    assert table_of(many) is None
    outputs = pk.op("; ".join(f"y{n}[i] = {n} * x[i]" for n in range(12)))
    for _ in range(5):
        assert all((y == n * args[0]).all() for n, y in enumerate(outputs(args[0])))
    assert table_of(outputs) is None


@pytest.mark.parametrize("at_end", [True, False])
def test_nothing_outside_the_arrays_is_touched(at_end: bool) -> None:
    kernel, _ = both(MATMUL, f32(5, 7), f32(7, 3), outs=(f32(5, 3),))
    guarded = [Guarded(v, at_end) for v in (f32(5, 7), f32(7, 3), np.zeros((5, 3), np.float32))]
    a, b, out = (g.array for g in guarded)
    try:
        kernel(a, b, out=out)
        np.testing.assert_array_equal(out, kernel(a, b))
    finally:
        del a, b, out
        for g in guarded:
            g.release()


def test_long_kernels_let_other_threads_run_and_short_ones_do_not() -> None:
    def unlocks(kernel: Any) -> list[int]:
        return [int(row.words[RowWord.UNLOCK]) for row in table_of(kernel).rows]

    short, _ = both(MATMUL, f32(4, 4), f32(4, 4))
    x = np.ones(600)
    long, _ = both("s max= x[i] + y[j] + z[k]", x, x, x[:300])
    assert unlocks(short) == [0] and unlocks(long) == [1]
    ticks: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0002)

    thread = threading.Thread(target=watch)
    thread.start()
    most = 0
    for _ in range(50):  # a busy machine may not run the other thread in each call
        start = time.perf_counter()
        long(x, x, x[:300])
        end = time.perf_counter()
        most = max(most, sum(start < t < end for t in ticks))
    done.set()
    thread.join()
    assert most >= 3


def test_threads_share_a_kernel_while_rows_come_and_go() -> None:
    kernel = pk.op("y[i] = sum[k](x[i,k] * x[i,k])").compile(pk.f32[300, 300])
    x = f32(300, 300)
    expected = kernel(x)
    wrong: list[Any] = []
    done = threading.Event()

    def caller() -> None:
        while not done.is_set():
            if not (kernel(x) == expected).all():
                wrong.append(1)

    threads = [threading.Thread(target=caller) for _ in range(3)]
    for thread in threads:
        thread.start()
    memory = np.zeros((300, 400), np.float32)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        for n in range(300, 300 + 2 * ROWS):
            view = np.lib.stride_tricks.as_strided(memory, (300, 300), (4 * n, 4))
            for _ in range(3):
                kernel(view)
        compiled_of(kernel).plans.clear()
    done.set()
    for thread in threads:
        thread.join(30)
    assert not wrong
