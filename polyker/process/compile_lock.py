"""The compile lock: one thread at a time is inside isl or LLVM. Forks go first, and the end of the process keeps the lock.

isl and LLVM each hold a lock of the process while they work, so compiling in several threads at once gains no time. A child of
a fork could not release what another thread holds in them, and CPython ends daemon threads wherever they are, inside LLVM
too: so a fork and the end of the process wait until no thread is in there, and no thread enters while they wait.
"""

from __future__ import annotations

import atexit
import logging  # noqa: F401  (registers its hooks before ours)
import os
import threading
import time
from collections import deque
from collections.abc import Callable

# Seconds that a fork, and the end of the process, wait for the compile of another thread. Compiles take less; a process that
# does not end is worse than one that ends badly.
WAIT_SECONDS = 10.0
# Seconds between two looks at what else a waiting thread has to notice: that it is cancelled, or that a fork wants to pass.
LOOK, PASS = 0.05, 0.0005

_lock = threading.Lock()
_queue: deque[object] = deque()  # the places of those that wait; the first has the lock, or is the next to have it
_changed = threading.Condition(threading.Lock())
_forks: list[int] = []  # threads that want to fork
_owners: dict[int, bool] = {}  # of these, whether they have the lock
_holder: list[int] = []  # the thread that has the lock, where it is a job's
_ending: list[int] = []  # the thread that ends the process
_at_end: list[Callable[[], None]] = []  # called when the process begins to end


def take(deadline: float, given_up: Callable[[], bool]) -> bool:
    """Take the lock, in the order of the calls; return False where that lasts until `deadline` (of time.monotonic) or
    `given_up()` says so.

    May be called only where no signal handler runs: one that raises could leave the lock taken.
    """
    place, queue, changed = object(), _queue, _changed
    with changed:
        queue.append(place)
    taken = False
    try:
        while not taken and not given_up() and (left := deadline - time.monotonic()) > 0:
            with changed:
                if queue[0] is not place:
                    changed.wait(min(LOOK, left))
                    continue
            taken = _take_first(min(LOOK, left))
    finally:
        if not taken:
            with changed:
                queue.remove(place)
                changed.notify_all()
    return taken


def _take_first(seconds: float) -> bool:
    """Take the lock as the first that waits, but after forks and the end of the process; return whether it was free."""
    lock = _lock
    if _forks or _ending or not lock.acquire(timeout=seconds):
        time.sleep(PASS)
        return False
    if _forks or _ending:
        lock.release()
        return False
    _holder.append(threading.get_ident())
    return True


def give() -> None:
    """Release the lock; a child that was forked in a job has it no more."""
    if not held_here():
        return
    _holder.clear()
    _lock.release()
    with _changed:
        _queue.popleft()
        _changed.notify_all()


def held_here() -> bool:
    """Whether this thread has the lock."""
    return threading.get_ident() in _holder


def is_ending() -> bool:
    """Whether the process ends, and the lock is kept."""
    return bool(_ending)


def ends_here() -> bool:
    """Whether the process ends and this is the thread that ends it: nobody else will compile again."""
    return bool(_ending) and _ending[0] == threading.get_ident()


def at_end(work: Callable[[], None]) -> None:
    """Have `work` called when the process begins to end, before it waits for the lock."""
    _at_end.append(work)


def _before_fork() -> None:
    me = threading.get_ident()
    _owners.pop(me, None)
    if ends_here() or held_here():
        return
    _forks.append(me)
    # One call, so that a signal handler that raises finds the lock either taken and noted or not taken.
    _owners.update(zip((me,), map(_lock.acquire, (True,), (WAIT_SECONDS,)), strict=False))


def _after_fork_in_parent() -> None:
    me = threading.get_ident()
    if me in _forks:
        _forks.remove(me)
    if _owners.pop(me, False):
        _lock.release()


def _after_fork_in_child() -> None:
    """The threads that held the lock or waited for it are not there."""
    global _lock, _changed
    _lock, _changed = threading.Lock(), threading.Condition(threading.Lock())
    for noted in (_forks, _owners, _holder, _queue):
        noted.clear()


def _end() -> None:
    """Keep the lock: CPython ends daemon threads at any place where they wait for it, which isl and LLVM do not survive."""
    _ending.append(threading.get_ident())
    for work in _at_end:
        work()
    _lock.acquire(timeout=WAIT_SECONDS)


atexit.register(_end)
# What is registered last comes first before a fork. The hooks of logging hold a lock that compiles take: they come after
# ours, or each would wait for the other.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
