"""Jobs: work on a thread where no signal handler runs, and what the waiting caller gets."""

from __future__ import annotations

import _thread
import contextvars
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.errors import CompileTimeout
from polyker.process import compile_lock
from polyker.process.jobs import Cancelled, checkpoint, load, once, run_exclusively, uninterrupted

A = np.arange(12.0).reshape(3, 4)
B = np.arange(8.0).reshape(4, 2)
_count = iter(range(1 << 30))


class Alarm(Exception):
    """What a program's own time limit raises."""


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """Return a function that has Alarm raised in the main thread after so many seconds."""

    def ring(*_: Any) -> None:
        raise Alarm

    before, callbacks = signal.signal(signal.SIGALRM, ring), gc.callbacks[:]
    gc.callbacks.clear()  # an exception in one of hypothesis's callbacks would be lost
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    gc.callbacks[:] = callbacks


def compile_something() -> None:
    """Compile an operator that was never compiled before, for some tenths of a second."""
    k = next(_count)
    text = f"S[q,k] = sum[d](Q[q,d] * K[k,d]) / {k + 8}; P[q,k] = exp(S[q,k] - max[j](S[q,j])); "
    pk.op(text + "O[q,d] = sum[k](P[q,k] * V[k,d]) / sum[k](P[q,k])").compile(*[pk.f32[40, 24]] * 3)


def right() -> bool:
    """Whether a new operator compiles and computes, here and in another thread."""
    results: list[bool] = []

    def work() -> None:
        n = next(_count)
        results.append(bool((pk.op(f"C[i,j] += A[i,k] * B[k,j] * {n}")(A, B) == n * (A @ B)).all()))

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    return results == [True, True]


def test_a_job_s_result_and_error_are_the_caller_s() -> None:
    assert run_exclusively(lambda: 7) == 7
    assert uninterrupted(lambda: None) is None
    for run in (run_exclusively, uninterrupted):
        with pytest.raises(KeyError, match="here"):
            run(lambda: {}["here"])
        with pytest.raises(SystemExit):
            run(sys.exit)


def test_a_job_runs_on_a_thread_of_its_own_with_a_stack_and_the_caller_s_context() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    variable.set(3)
    before = threading.stack_size()
    found = run_exclusively(lambda: (threading.get_ident(), variable.get()))
    assert found[0] != threading.get_ident() and found[1] == 3
    assert threading.stack_size() == before


def test_work_in_a_job_is_done_at_once_and_alone() -> None:
    active, most = [], []

    def inner() -> int:
        active.append(1)
        most.append(len(active))
        time.sleep(0.002)
        active.pop()
        return threading.get_ident()

    def outer() -> bool:
        mine = run_exclusively(inner)
        return mine == uninterrupted(inner) == threading.get_ident() and compile_lock.held_here()

    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(run_exclusively(outer))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert results == [True] * 8 and max(most) == 1
    # A job that does not hold the lock takes it where it needs it, on its own thread.
    assert uninterrupted(lambda: run_exclusively(lambda: compile_lock.held_here()))
    assert not compile_lock.held_here()


def test_what_waits_too_long_for_the_lock_is_late() -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        leave.wait(30)

    holder = threading.Thread(target=lambda: run_exclusively(hold))
    holder.start()
    assert entered.wait(30)
    try:
        with pytest.raises(CompileTimeout):
            run_exclusively(lambda: None, time.monotonic() + 0.1, lambda: CompileTimeout("late"))
    finally:
        leave.set()
        holder.join(30)
    assert run_exclusively(lambda: 5, time.monotonic() + 30) == 5


def test_jobs_get_the_lock_in_the_order_in_which_they_wait_for_it() -> None:
    stop, waits = threading.Event(), []

    def repeat() -> None:
        while not stop.is_set():
            run_exclusively(lambda: time.sleep(0.01))

    threads = [threading.Thread(target=repeat) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        for _ in range(20):
            start = time.monotonic()
            run_exclusively(lambda: None)
            waits.append(time.monotonic() - start)
    finally:
        stop.set()
        for t in threads:
            t.join(30)
    assert sorted(waits)[10] < 0.3  # three others of 0.01 s, on a busy machine


def test_the_caller_gets_what_a_signal_handler_raises_at_once_and_the_job_is_cancelled(
    alarm: Callable[[float], None],
) -> None:
    ended: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                time.sleep(0.001)
                checkpoint()
        except BaseException as error:
            ended.append(error)
            raise

    start = time.monotonic()
    alarm(0.1)
    with pytest.raises(Alarm):
        run_exclusively(work)
    assert time.monotonic() - start < 5
    assert run_exclusively(lambda: 1) == 1  # once the cancelled one has left
    assert [type(e) for e in ended] == [Cancelled]


@pytest.mark.parametrize("delay", [0.0005, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2])
def test_a_compile_that_a_signal_interrupts_leaves_the_process_as_it_was(
    delay: float, alarm: Callable[[float], None]
) -> None:
    caught = 0
    alarm(delay)
    try:
        for _ in range(40):
            compile_something()
    except Alarm:
        caught += 1
    assert caught == 1
    assert right()


def test_an_interrupted_import_goes_on_and_is_whole(
    alarm: Callable[[float], None], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slowly_imported.py").write_text("import time\nfor _ in range(200): time.sleep(0.002)\nwhole = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    alarm(0.05)
    with pytest.raises(Alarm):
        load("slowly_imported")
    assert load("slowly_imported").whole
    assert load("slowly_imported") is sys.modules["slowly_imported"]


def test_a_value_made_once_is_made_by_one_thread() -> None:
    made: list[int] = []

    @once
    def value() -> object:
        made.append(1)
        time.sleep(0.01)
        return object()

    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(value())) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(made) == 1 and len(set(map(id, results))) == 1


def test_a_value_that_could_not_be_made_is_tried_again() -> None:
    problems = iter([ValueError("first"), None])

    @once
    def value() -> int:
        problem = next(problems)
        if problem is not None:
            raise problem
        return 4

    with pytest.raises(ValueError, match="first"):
        value()
    assert value() == 4


def test_where_no_thread_can_be_had_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    assert run_exclusively(threading.get_ident) == threading.get_ident()
    assert right()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_handler_that_forks_leaves_the_child_a_job_to_start_again(alarm: Callable[[float], None]) -> None:
    children: list[int] = []

    def fork(*_: Any) -> None:
        children.append(os.fork())

    signal.signal(signal.SIGALRM, fork)
    parent = os.getpid()
    alarm(0.05)
    while not children:
        compile_something()
    if os.getpid() != parent:  # the compile has come to its end here, too
        signal.alarm(60)
        os._exit(0 if right() else 3)
    _, status = os.waitpid(children[0], 0)
    assert status == 0
    assert right()
