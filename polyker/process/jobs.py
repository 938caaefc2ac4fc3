"""Run work that no signal handler may interrupt on a thread of its own, while the caller waits interruptibly.

Python runs signal handlers in the main thread, between any two bytecodes. One that raises (Ctrl-C, a time limit) inside a
function that isl calls leaves isl with nothing where it expects a result; inside an import it leaves half a library; between
a lock and its `try` it leaves the lock taken. On another thread none of this happens. The caller gets what the handler raises
at once; the job is cancelled, and ends at its next checkpoint.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import wraps
from importlib import import_module
from typing import Any, Generic, TypeVar

from polyker.process import compile_lock

T = TypeVar("T")

# Bytes of a job's stack, of address space: isl and LLVM recurse, and a program may have asked for small stacks.
JOB_STACK_BYTES = 16 << 20
# Seconds between two looks at whether a signal came in: the system may deliver it to a thread other than the waiting one.
SIGNAL_POLL_SECONDS = 0.05


class Cancelled(BaseException):
    """Raised in a job that nobody waits for any more."""


class _JobLocal(threading.local):
    job: Job[Any] | None = None


_local = _JobLocal()
_running: set[Job[Any]] = set()
_starting = _thread.allocate_lock()


class Job(Generic[T]):
    """Work and what came of it. `exclusive`: it holds the compile lock, which it has to get before `deadline`."""

    __slots__ = (
        "__weakref__", "_context", "_deadline", "_exclusive", "_late", "_work", "cancelled", "done", "error", "lost",
        "on_cancel", "result",
    )  # fmt: skip

    def __init__(
        self, work: Callable[[], T], exclusive: bool, deadline: float, late: Callable[[], BaseException]
    ) -> None:
        self._work, self._exclusive, self._deadline, self._late = work, exclusive, deadline, late
        self._context: Context = copy_context()
        self.done = _thread.allocate_lock()
        self.done.acquire()
        self.cancelled = self.lost = False
        self.on_cancel: list[Callable[[], object]] = []
        self.result: T | None = None
        self.error: BaseException | None = None

    @property
    def has_work(self) -> bool:
        """Whether the work is not done yet."""
        return self._work is not _nothing

    def again(self) -> Job[T]:
        """Return the same work as a new job."""
        return Job(self._work, self._exclusive, self._deadline, self._late)

    def cancel(self) -> None:
        """Have the job end at its next checkpoint; isl is told to give up its task."""
        self.cancelled = True
        for tell in self.on_cancel:
            tell()

    def run(self) -> None:
        """Do the work, on this thread."""
        before, _local.job = _local.job, self
        try:
            self.result = self._context.run(self._locked if self._exclusive else self._work)
        except BaseException as error:
            self.error = error
        finally:
            _local.job = before
            self.on_cancel.clear()
            self._work = _nothing  # what the caller drops is freed then, not when this thread has ended
            self.done.release()
            _running.discard(self)

    def _locked(self) -> T:
        return _locked(self._work, self._deadline, self._late, self)

    def outcome(self) -> T:
        """Return or raise what came of the work."""
        error, result = self.error, self.result
        self.error = self.result = None  # an error's traceback leads back here
        try:
            if error is not None:
                raise error
            return result  # type: ignore[return-value]
        finally:
            del error, result


def _locked(work: Callable[[], T], deadline: float, late: Callable[[], BaseException], job: Job[Any]) -> T:
    """Return what `work` returns, done while this thread, which runs `job`, holds the compile lock."""
    if not compile_lock.take(deadline, lambda: job.cancelled):
        raise Cancelled if job.cancelled else late()
    try:
        return work()
    finally:
        compile_lock.give()


def _nothing() -> Any:
    return None


def current_job() -> Job[Any] | None:
    """Return the job that this thread runs, None where it runs none."""
    return _local.job


def checkpoint() -> None:
    """Raise Cancelled where the job that this thread runs is not waited for any more."""
    job = _local.job
    if job is not None and job.cancelled:
        raise Cancelled


def uninterrupted(work: Callable[[], T]) -> T:
    """Return what `work` returns, run where no signal handler runs; raises what it raises, and what a handler raises here."""
    is_main = threading.get_ident() == threading.main_thread().ident
    if _local.job is not None or not is_main or compile_lock.ends_here():
        return work()
    return _waited(Job(work, False, float("inf"), TimeoutError))


def run_exclusively(
    work: Callable[[], T], deadline: float | None = None, late: Callable[[], BaseException] = TimeoutError
) -> T:
    """Return what `work` returns, run as a job that holds the compile lock; raises `late()` if it has to wait until `deadline`.

    In a job that holds it already the work is just done.
    """
    if compile_lock.held_here() or compile_lock.ends_here():
        return work()
    until = float("inf") if deadline is None else deadline
    if _local.job is not None:
        return _locked(work, until, late, _local.job)
    return _waited(Job(work, True, until, late))


def load(name: str) -> Any:
    """Return a module, imported as an exclusive job.

    A signal handler that raises would leave half a library, and a child of a fork could not finish what another thread was
    importing.
    """
    found = sys.modules.get(name)
    if found is not None and not getattr(getattr(found, "__spec__", None), "_initializing", False):
        return found
    return run_exclusively(lambda: import_module(name))


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function that returns what `make` returned at its first call, made by one thread, not interrupted."""
    made: list[T] = []

    def first() -> None:
        if not made:
            made.append(make())

    @wraps(make)
    def found() -> T:
        if not made:
            run_exclusively(first)
        return made[0]

    return found


def _waited(job: Job[T]) -> T:
    """Run a job on a thread and return its outcome."""
    while True:
        try:
            _running.add(job)
            _start(job)
            while not job.done.acquire(timeout=SIGNAL_POLL_SECONDS):
                pass
        except BaseException:
            job.cancel()
            raise
        if not job.lost:
            break
        job = job.again()
    if isinstance(job.error, Cancelled) and compile_lock.is_ending():
        while True:  # this is a daemon thread, which Python is about to end
            time.sleep(1.0)
    return job.outcome()


def _start(job: Job[Any]) -> None:
    """Run a job on a new thread; on this one where the process can have no more."""
    try:
        with _starting:  # the size of stacks is one setting for all threads
            size = threading.stack_size(JOB_STACK_BYTES)
            try:
                _thread.start_new_thread(_run, (job,))
            finally:
                threading.stack_size(size)
    except RuntimeError as error:
        if not str(error).startswith("can't"):  # raised by a signal handler
            raise
        job.run()


def _run(job: Job[Any]) -> None:
    trace, profile = threading.gettrace(), threading.getprofile()  # a debugger's or profiler's, as for any thread
    if trace is not None:
        sys.settrace(trace)
    if profile is not None:
        sys.setprofile(profile)
    job.run()


def _cancel_all() -> None:
    for job in list(_running):
        job.cancel()


def _after_fork() -> None:
    """In a child: jobs of the parent's threads will not be done. One is waited for where a signal handler forked."""
    global _starting
    _starting = _thread.allocate_lock()
    lost = list(_running)
    _running.clear()
    for job in lost:
        if job is not _local.job and job.done.locked():
            job.lost = job.has_work
            job.done.release()


compile_lock.at_end(_cancel_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
