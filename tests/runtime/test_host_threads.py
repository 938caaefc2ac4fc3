"""A host's parallel_for that breaks its contract: a call raises, whatever the host ran and returned."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.loops.parallel import RegionContext
from polyker.errors import GatherError, HostError

PART = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
PARALLEL_FOR = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
Run = Callable[[Callable[[int], int], int, int], int]
THREADS = 4


@pytest.fixture(autouse=True)
def pool_again() -> Iterator[None]:
    with pk.options(threads=THREADS):
        yield
    pk.set_parallel_for(None)


def host(run: Run) -> None:
    """Let `run(part, begin, end)` be the host's parallel_for."""

    def called(function: int, context: int, begin: int, end: int, _user: int) -> int:
        part = PART(function)
        return run(lambda i: part(context, i), begin, end)

    pk.set_parallel_for(PARALLEL_FOR(called))


ROWS = "y[i] += x[i,j] * x[i,j]"
X = np.arange(640_000.0).reshape(800, 800) % 7
WANTED = (X * X).sum(1)


def stop(part: Callable[[int], int], begin: int, end: int) -> int:
    part(begin)
    raise KeyboardInterrupt


def fail(_part: Callable[[int], int], _begin: int, _end: int) -> int:
    raise ValueError("a bug of the host")


def run_all(part: Callable[[int], int], indices: object, status: int = 0) -> int:
    for i in indices:  # type: ignore[attr-defined]
        part(i)
    return status


BROKEN: dict[str, tuple[Run, str]] = {
    "none": (lambda part, begin, end: 0, "0 of 4"),
    "raises first": (fail, "0 of 4"),
    "raises later": (stop, "1 of 4"),
    "skips the last": (lambda part, begin, end: run_all(part, range(begin, end - 1)), "3 of 4"),
    "skips the first": (lambda part, begin, end: run_all(part, range(begin + 1, end)), "3 of 4"),
    "one twice": (lambda part, begin, end: run_all(part, [0, 1, 2, 3, 3]), "4 of 4 .*1 more"),
    "one for another": (lambda part, begin, end: run_all(part, [0, 1, 1, 3]), "3 of 4 .*1 more"),
    "all twice": (lambda part, begin, end: run_all(part, [*range(4)] * 2), "4 of 4 .*4 more"),
    "beyond the end": (lambda part, begin, end: run_all(part, range(6)), "4 of 4 .*2 more"),
    "below the begin": (lambda part, begin, end: run_all(part, range(-2, 4)), "4 of 4 .*2 more"),
    "far away": (lambda part, begin, end: run_all(part, [0, 1, 2, 3, 1 << 60]), "4 of 4 .*1 more"),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("case", BROKEN)
def test_a_host_that_does_not_run_each_index_once_makes_the_call_raise(case: str) -> None:
    run, text = BROKEN[case]
    squares, x = pk.op(ROWS), X
    kernel = squares.compile(x)
    assert np.array_equal(squares(x), WANTED)
    host(run)
    for call in (squares, kernel, squares, kernel):
        with pytest.raises(HostError, match=text) as caught:
            call(x)
        assert caught.value.code == "PK750"
    pk.set_parallel_for(None)
    assert np.array_equal(squares(x), WANTED)
    assert np.array_equal(kernel(x), WANTED)


@pytest.mark.parametrize("status", [1, 2, 7, -1, -(2**31), 2**31 - 1])
def test_a_status_of_the_host_s_own_raises_and_is_no_guard_s(status: int) -> None:
    host(lambda part, begin, end: run_all(part, range(begin, end), status))
    for text, args in ((ROWS, (X,)), ("y[i] += x[k[i], j]", (np.arange(800) % 800, X))):
        with pytest.raises(HostError, match=rf"returned {status}\b") as caught:
            named = dict(zip(("k", "x"), args, strict=True)) if len(args) == 2 else {"x": X}
            pk.op(text)(**named)
        assert caught.value.code == "PK751"


def test_what_a_guard_finds_is_told_before_a_status_of_the_host_s() -> None:
    host(lambda part, begin, end: run_all(part, range(begin, end), 5))
    with pytest.raises(GatherError):
        pk.op("y[i] += x[k[i], j]")(k=np.full(800, 800), x=X)


def test_a_host_may_run_the_indices_in_any_order_and_on_any_threads() -> None:
    def threads(part: Callable[[int], int], begin: int, end: int) -> int:
        made = [threading.Thread(target=part, args=(i,)) for i in range(begin, end)]
        for thread in made:
            thread.start()
        for thread in made:
            thread.join()
        return 0

    for run in (threads, lambda part, begin, end: run_all(part, reversed(range(begin, end)))):
        host(run)
        assert np.array_equal(pk.op(ROWS)(X), WANTED)


def test_a_host_that_returns_early_is_waited_for_and_refused() -> None:
    """What still runs writes to the results of the call, which must outlive it."""
    inside, ended = threading.Event(), []

    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    def slow_body(_context: int, _first: int, _last: int, _thread: int) -> int:
        inside.set()
        time.sleep(0.1)
        ended.append(time.monotonic())
        return 0

    def called(function: int, context: int, begin: int, _end: int, _user: int) -> int:
        ctypes.cast(context, ctypes.POINTER(ctypes.c_void_p))[RegionContext.BODY] = ctypes.cast(
            slow_body, ctypes.c_void_p
        )
        made.append(threading.Thread(target=PART(function), args=(context, begin)))
        made[-1].start()
        assert inside.wait(60)
        return 0

    made: list[threading.Thread] = []
    pk.set_parallel_for(PARALLEL_FOR(called))
    with pytest.raises(HostError, match="0 of 4"):
        pk.op(ROWS)(X)
    returned = time.monotonic()
    made[0].join()
    assert len(ended) == 16
    assert max(ended) <= returned
