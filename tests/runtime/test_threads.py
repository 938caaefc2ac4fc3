"""The pool of threads: forks, many callers, sleep, floating-point environment, a host's own threads.

`python -m tests.runtime.test_threads` forks 200 times.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from polyker.codegen.ir.kernel import For, KernelIR, Load, LoopKind, Op, Store
from polyker.errors import ArgumentError
from polyker.ir.dtypes import f64
from polyker.runtime.threads import pool, set_parallel_for
from tests.codegen.support import C, V, run_native, vector_buffer

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
PARALLEL_FOR = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


def kernel(threads: int) -> KernelIR:
    """R times in a row, y[i] += x[i] in a region."""
    total = Op("add", (Load("y", (V("i"),), f64), Load("x", (V("i"),), f64)), f64)
    loop = For("i", C(0), V("N"), (Store("y", (V("i"),), total),), kind=LoopKind.PARALLEL, lanes=threads)
    buffers = (vector_buffer("x", f64, writable=False), vector_buffer("y", f64))
    return KernelIR("kernel", buffers, ("N", "R"), (For("r", C(0), V("R"), (loop,)),))


def regions(threads: int, count: int, size: int = 100) -> None:
    """Run regions and check that each did what it should."""
    x, y = np.arange(float(size)), np.zeros(size)
    assert run_native(kernel(threads), {"x": x, "y": y}, {"N": size, "R": count}) == 0
    assert np.array_equal(y, count * x)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [0, 1, 2, 101])
def test_regions_one_after_another(threads: int, size: int) -> None:
    regions(threads, 300, size)


def test_more_threads_are_made_when_they_are_wanted() -> None:
    regions(2, 1)
    before = pool().workers
    regions(before + 4, 1)
    assert pool().workers == before + 3


def test_a_call_to_the_pool_runs_each_index_once() -> None:
    seen: list[int] = []
    function = FUNCTION(lambda _, index: seen.append(index) or 0)
    run = PARALLEL_FOR(pool().parallel_for)
    for begin, end in ((3, 9), (0, 0), (5, 6), (-2, 2), (0, 300)):
        seen.clear()
        assert run(ctypes.cast(function, ctypes.c_void_p), None, begin, end, None) == 0
        assert sorted(seen) == list(range(begin, end))


def test_a_status_comes_back_from_any_thread() -> None:
    run = PARALLEL_FOR(pool().parallel_for)
    for bad in range(4):
        function = FUNCTION(lambda _, index, bad=bad: 7 if index == bad else 0)
        assert run(ctypes.cast(function, ctypes.c_void_p), None, 0, 4, None) == 7


def test_a_region_in_a_region_runs_alone() -> None:
    def inside(_: int, index: int) -> int:
        regions(3, 2)
        return 0

    function = FUNCTION(inside)
    assert PARALLEL_FOR(pool().parallel_for)(ctypes.cast(function, ctypes.c_void_p), None, 0, 4, None) == 0


def in_child(work: Callable[[], None], seconds: float = 20.0) -> None:
    """Run `work` in a forked child; fail where it fails, or hangs."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(int(seconds))
            work()
            status = 0
        finally:
            os._exit(status)
    _, found = os.waitpid(child, 0)
    assert found == 0


def both() -> None:
    regions(3, 20)
    assert len(seen_by_threads(3, os.getpid)) == 3


def forks(count: int) -> None:
    for n in range(count):
        regions(3, 5)
        in_child(both if n % 4 == 0 else lambda n=n: regions(2 + n % 3, 20))
        regions(2, 5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_children_of_forks_have_threads_of_their_own() -> None:
    forks(20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_a_region_runs_leaves_a_child_that_can_run_its_own() -> None:
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            regions(3, 2000)

    other = threading.Thread(target=busy)
    other.start()
    try:
        for _ in range(5):
            in_child(lambda: regions(2, 50))
    finally:
        stop.set()
        other.join()


def test_sixteen_threads_call_at_a_time() -> None:
    failures: list[BaseException] = []

    def call() -> None:
        try:
            for _ in range(50):
                regions(3, 3)
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=call) for _ in range(16)]
    for c in callers:
        c.start()
    for c in callers:
        c.join(60)
        assert not c.is_alive()
    assert not failures


def affinities() -> list[set[int]]:
    """Return the cores that each other thread of this process may run on."""
    others = (int(t) for t in os.listdir("/proc/self/task") if int(t) != threading.get_native_id())
    return [os.sched_getaffinity(t) for t in others]


def kept_off(cores: list[int]) -> None:
    """Move the caller from core to core: the workers are elsewhere each time, and may use the other cores."""
    regions(2, 1)
    for core in cores:
        os.sched_setaffinity(0, {core})
        time.sleep(0.005)
        regions(2, 5)
        assert set(cores) - {core} in affinities()


def alone(core: int) -> None:
    """Make workers that have one core, the caller's: they keep it."""
    os.sched_setaffinity(0, {core})
    regions(3, 5)
    assert {core} in affinities()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be chosen here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_keep_off_the_callers_core() -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        in_child(lambda: kept_off(cores))
    in_child(lambda: alone(cores[0]))


def test_workers_sleep_soon_after_a_region() -> None:
    regions(4, 100)
    time.sleep(0.01)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.003


def seen_by_threads(count: int, look: Callable[[], int]) -> dict[int, int]:
    """Return what `look` returns on each of the threads of a region, by thread: each is given time to come."""
    seen: dict[int, int] = {}

    def part(_: int, index: int) -> int:
        seen[threading.get_ident()] = look()
        deadline = time.monotonic() + 5
        while len(seen) < count and time.monotonic() < deadline:
            time.sleep(0.001)
        return 0

    function = FUNCTION(part)
    assert PARALLEL_FOR(pool().parallel_for)(ctypes.cast(function, ctypes.c_void_p), None, 0, count, None) == 0
    return seen


def test_workers_take_the_callers_rounding_each_time() -> None:
    library = ctypes.CDLL("libm.so.6")
    upward = {"x86_64": 0x800, "aarch64": 0x400000}.get(os.uname().machine, 0)
    one, small = 1.0, 2.0**-60
    try:
        for mode in (0, upward, 0):
            library.fesetround(mode)
            # Python's sums are rounded as the processor's vector unit is told.
            assert list(seen_by_threads(3, lambda: int(one + small > one)).values()) == [int(mode != 0)] * 3
    finally:
        library.fesetround(0)


def test_sums_in_a_region_are_rounded_as_the_caller_rounds() -> None:
    library = ctypes.CDLL("libm.so.6")
    x, y = np.full(1000, 2.0**-60), np.ones(1000)
    try:
        library.fesetround({"x86_64": 0x800, "aarch64": 0x400000}.get(os.uname().machine, 0))
        run_native(kernel(4), {"x": x, "y": y}, {"N": 1000, "R": 1})
    finally:
        library.fesetround(0)
    assert (y > 1).all()


def test_denormal_numbers_survive() -> None:
    x, y = np.full(1000, 5e-324), np.zeros(1000)
    run_native(kernel(3), {"x": x, "y": y}, {"N": 1000, "R": 1})
    assert (y == 5e-324).all()


@pytest.fixture
def hosts() -> Iterator[list[int]]:
    """Let a host's own parallel_for run kernels; the list gets the number of parts of each region."""
    called: list[int] = []

    def run(function: int, context: int, begin: int, end: int, user: int) -> int:
        called.append(end - begin)
        assert user == 42
        part = FUNCTION(function)
        return max([part(context, i) for i in reversed(range(begin, end))], default=0)

    own = PARALLEL_FOR(run)
    set_parallel_for(own, 42)
    yield called
    set_parallel_for(None)


def test_a_host_may_run_regions_on_its_own_threads(hosts: list[int]) -> None:
    regions(3, 4)
    assert hosts == [3, 3, 3, 3]
    set_parallel_for(None)
    regions(3, 4)
    assert len(hosts) == 4


class Wrong:
    def __index__(self) -> int:
        raise ZeroDivisionError

    __repr__ = __index__  # type: ignore[assignment]


NO_ADDRESS = ["no function", True, np.True_, 1.5, float("nan"), -1, 1 << 64, 1 << 99999, np.int64(-1), [], {}, Wrong()]


NO_FUNCTION = [*NO_ADDRESS, 0, np.int64(0), np.array(0), ctypes.c_void_p(), PARALLEL_FOR(), len]


@pytest.mark.parametrize("wrong", NO_FUNCTION, ids=range(len(NO_FUNCTION)))
def test_what_is_no_function_is_refused(wrong: object) -> None:
    with pytest.raises(ArgumentError) as caught:
        set_parallel_for(wrong)
    assert caught.value.code == "PK748"
    regions(3, 2)


@pytest.mark.parametrize("wrong", NO_ADDRESS, ids=range(len(NO_ADDRESS)))
def test_what_is_no_address_is_refused_as_the_data_of_a_host(hosts: list[int], wrong: object) -> None:
    with pytest.raises(ArgumentError) as caught:
        set_parallel_for(PARALLEL_FOR(lambda *_: 0), wrong)
    assert caught.value.code == "PK752"
    regions(3, 2)
    assert hosts == [3, 3]


def test_addresses_may_be_integers_of_numpy(hosts: list[int]) -> None:
    seen: list[int] = []

    def run(function: int, context: int, begin: int, end: int, user: int) -> int:
        seen.append(user)
        return max(FUNCTION(function)(context, i) for i in range(begin, end))

    own = PARALLEL_FOR(run)
    address = ctypes.cast(own, ctypes.c_void_p)
    for given in (own, address, address.value, np.uint64(address.value or 0), np.array(address.value)):
        for user in (7, np.int64(7), np.array(7), ctypes.c_void_p(7)):
            set_parallel_for(given, user)
            regions(2, 1)
    assert seen == [7] * 20


def test_torch_and_its_threads_are_no_trouble() -> None:
    torch = pytest.importorskip("torch")
    a = torch.ones(300, 300)
    for _ in range(20):
        regions(3, 5)
        assert float((a @ a)[0, 0]) == 300.0
        regions(3, 5)


if __name__ == "__main__":
    forks(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
    print("all children ran their regions")
