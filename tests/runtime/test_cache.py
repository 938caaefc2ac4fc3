"""The cache: one compile a key, however many threads ask; bounded, and eviction harms no kernel in use."""

from __future__ import annotations

import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import polyker as pk
from polyker.api import compiling
from polyker.runtime.cache import KernelCache
from tests.artifacts import compiled_of
from tests.runtime.support import coded


class Value:
    def __init__(self, name: object) -> None:
        self.name, self.used = name, False


def test_many_threads_make_a_value_once() -> None:
    cache: KernelCache[Value] = KernelCache()
    made: list[int] = []
    barrier = threading.Barrier(16)

    def make(key: int) -> Value:
        made.append(key)
        time.sleep(0.01)
        return Value(key)

    def work() -> list[Value]:
        barrier.wait()
        return [cache.get(k, lambda k=k: make(k), 100) for k in range(5)]

    with ThreadPoolExecutor(16) as pool:
        results = [f.result() for f in [pool.submit(work) for _ in range(16)]]
    assert sorted(made) == list(range(5))
    assert all(r[k] is results[0][k] for r in results for k in range(5))


def test_a_failure_is_raised_and_not_kept() -> None:
    cache: KernelCache[Value] = KernelCache()
    failures = iter([ValueError("first"), ValueError("second"), None])

    def make() -> Value:
        problem = next(failures)
        if problem is not None:
            raise problem
        return Value(1)

    for word in ("first", "second"):
        with pytest.raises(ValueError, match=word):
            cache.get("k", make, 10)
        assert len(cache) == 0
    assert cache.get("k", make, 10).name == 1


def test_threads_that_wait_on_a_failing_key_each_get_an_answer() -> None:
    cache: KernelCache[Value] = KernelCache()
    count = iter(range(1000))

    def make() -> Value:
        time.sleep(0.002)
        if next(count) < 5:
            raise ValueError
        return Value(1)

    def work() -> object:
        try:
            return cache.get("k", make, 10)
        except ValueError:
            return None

    with ThreadPoolExecutor(12) as pool:
        results = [f.result(timeout=10) for f in [pool.submit(work) for _ in range(12)]]
    assert sum(r is None for r in results) == 5
    assert len({id(r) for r in results if r is not None}) == 1


def test_the_bound_holds_and_what_was_used_of_late_stays() -> None:
    cache: KernelCache[Value] = KernelCache()
    hot = cache.get("hot", lambda: Value("hot"), 8)
    for k in range(100):
        hot.used = True
        cache.get(k, lambda k=k: Value(k), 8)
        assert len(cache) <= 8
    assert cache.get("hot", lambda: Value("again"), 8) is hot


def test_evicted_kernels_go_on_working_and_are_freed_when_nobody_holds_them() -> None:
    mm = pk.op("C[i,j] += A[i,k] * B[k,j] + 2 * A[i,k]")
    a = coded((4, 4))
    expected = mm(a, a)
    kernel = mm.compile(a, a)
    old = weakref.ref(compiled_of(kernel))
    with pk.options(cache_size=2, specialize="always"):
        for n in range(5, 10):
            mm(coded((n, n)), coded((n, n)))
            np.testing.assert_array_equal(kernel(a, a), expected)
            np.testing.assert_array_equal(mm(a, a), expected)
        assert len(compiling.kernels) <= 2
    del kernel
    compiling.kernels.clear()
    assert old() is None  # no cycle keeps the code alive until the collector runs
    np.testing.assert_array_equal(mm(a, a), expected)


def test_sixteen_threads_compile_and_call_without_an_error() -> None:
    operators = [pk.op(f"C[i,j] += A[i,k] * B[k,j] * {n + 1}") for n in range(4)]
    shared = operators[0].compile(coded((6, 7)), coded((7, 5)))
    problems: list[BaseException] = []
    barrier = threading.Barrier(16)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        barrier.wait()
        try:
            for step in range(60):
                which, n = int(rng.integers(4)), int(rng.integers(1, 5))
                a, b = coded((n, 7), salt=seed), coded((7, 5), salt=step)
                np.testing.assert_array_equal(operators[which](a, b), (a @ b) * (which + 1))
                out = np.empty((6, 5), np.float32)
                c = coded((6, 7), salt=step)
                np.testing.assert_array_equal(shared(c, b, out=out), c @ b)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not problems, problems[0]
    assert not any(t.is_alive() for t in threads)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_while_a_thread_compiles_can_compile_and_call() -> None:
    stop = threading.Event()
    # Python's own locks of modules that are being imported are not for polyker to release in a child.
    pk.op("C[i,j] += A[i,k] * B[k,j]")(coded((3, 3)), coded((3, 3)))

    def keep_compiling() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            pk.op(f"C[i,j] += A[i,k] * B[k,j] * {n}")(coded((3, 3)), coded((3, 3)))

    thread = threading.Thread(target=keep_compiling)
    thread.start()
    try:
        for _ in range(5):
            time.sleep(0.02)
            child = os.fork()
            if child == 0:
                a = coded((4, 4))
                right = (pk.op("C[i,j] += A[i,k] * B[k,j] * 77")(a, a) == 77 * (a @ a)).all()
                os._exit(0 if right else 1)
            deadline = time.monotonic() + 30
            while True:
                pid, status = os.waitpid(child, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() > deadline:
                    os.kill(child, 9)
                    os.waitpid(child, 0)
                    pytest.fail("the child hangs")
                time.sleep(0.005)
            assert status == 0
    finally:
        stop.set()
        thread.join(30)


def test_compiled_and_dropped_kernels_leave_little_behind() -> None:
    pytest.importorskip("psutil")
    from tests.runtime.growth import grown

    assert grown(150, warm=50) < 5 << 20


def test_many_calls_grow_nothing() -> None:
    psutil = pytest.importorskip("psutil")
    process = psutil.Process()
    mm = pk.op("C[i,j] += A[i,k] * B[k,j]")
    a, out = coded((4, 4)), np.empty((4, 4), np.float32)
    for _ in range(2000):
        mm(a, a, out=out)
    before = process.memory_info().rss
    for _ in range(50_000):
        mm(a, a)
        mm(a, a, out=out)
    assert process.memory_info().rss - before < 2 << 20


def test_a_kernel_runs_with_the_interpreter_lock_released() -> None:
    total = pk.op("s max= x[i] + y[j] + z[k]")
    x = np.ones(600)
    kernel = total.compile(x, x, x[:300])
    kernel(x[:600], x, x[:300])
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    kernel(x, x, x[:300])
    spent = time.perf_counter() - start
    done.set()
    thread.join()
    assert ticks > spent / 0.02
