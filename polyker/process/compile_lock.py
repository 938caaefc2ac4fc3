"""The compile lock: one thread at a time is inside isl or LLVM. Forks go first, and the end of the process keeps the lock.

isl and LLVM each hold a lock of the process while they work, so compiling in several threads at once gains no time. A child of
a fork could not release what another thread holds in them, and CPython ends daemon threads wherever they are, inside LLVM
too: so a fork and the end of the process wait until no thread is in there, and no thread enters while they wait.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable

# Seconds that a fork, and the end of the process, wait for the compile of another thread. Compiles take less; a process that
# does not end is worse than one that ends badly.
WAIT = 10.0
# Seconds between two looks at what else a waiting thread has to notice: that it is cancelled, or that a fork wants to pass.
LOOK, PASS = 0.05, 0.0005

_lock = threading.Lock()
_forks: list[int] = []  # threads that want to fork
_owners: dict[int, bool] = {}  # of these, whether they have the lock
_holder: list[int] = []  # the thread that has the lock, where it is a job's
_ending: list[int] = []  # the thread that ends the process
_at_end: list[Callable[[], None]] = []  # called when the process begins to end


def take(deadline: float, given_up: Callable[[], bool]) -> bool:
    """Take the lock; return False where that takes until `deadline` (of time.monotonic) or `given_up()` says so.

    May be called only where no signal handler runs: one that raises could leave the lock taken.
    """
    lock = _lock
    while not given_up():
        left = deadline - time.monotonic()
        if lock.acquire(timeout=min(LOOK, max(0.0, left))):
            if not _forks:
                _holder.append(threading.get_ident())
                return True
            lock.release()
            time.sleep(PASS)
        if left <= 0:
            return False
    return False


def give() -> None:
    """Release the lock."""
    _holder.clear()
    _lock.release()


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
    _owners.update(zip((me,), map(_lock.acquire, (True,), (WAIT,)), strict=False))


def _after_fork_in_parent() -> None:
    me = threading.get_ident()
    if me in _forks:
        _forks.remove(me)
    if _owners.pop(me, False):
        _lock.release()


def _after_fork_in_child() -> None:
    """The threads that held the lock or waited for it are not there."""
    global _lock
    _lock = threading.Lock()
    for noted in (_forks, _owners, _holder):
        noted.clear()


def _end() -> None:
    """Keep the lock: CPython ends daemon threads at any place where they wait for it, which isl and LLVM do not survive."""
    _ending.append(threading.get_ident())
    for work in _at_end:
        work()
    _lock.acquire(timeout=WAIT)


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
