"""A process that compiles and calls, and ends in a way of its own: `python -m tests.edge.ending WAY SEED`.

The last line that it prints is the moment from which on it is to end.
"""

from __future__ import annotations

import atexit
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

chance = random.Random(0)
kept: list[Any] = []  # alive when the interpreter ends


def ending() -> None:
    """Say that the process ends now."""
    print(time.monotonic(), flush=True)


def work(seed: int) -> None:
    """Compile a new operator and call it; raises where the result is wrong."""
    from tests.edge.operators import FAMILIES, LONG, QUICK, compile_and_call

    own = random.Random(seed)
    problem = compile_and_call(own, own.choice(own.choice((QUICK, LONG, FAMILIES))))
    if problem:
        raise AssertionError(problem)


def long_work(seed: int) -> None:
    """Compile without calling, mostly what LLVM takes long for."""
    import polyker as pk
    from tests.edge.operators import BY_NAME, LONG, constant

    own = random.Random(seed)
    family, c = own.choice((BY_NAME["matmul"], *LONG)), constant(own)
    pk.op(family.program(c)).compile(*family.types(family.large), **dict(family.sizes))


def kernel(*, large: bool = False) -> tuple[Any, Any, Any]:
    """Return a kernel with arguments and the result that it has to give."""
    import polyker as pk
    from tests.edge.operators import BY_NAME, constant

    family, c = BY_NAME["matmul"], constant(chance)
    args = family.arguments(chance, 180 if large else 5)
    return pk.op(family.program(c)).compile(*args), args, family.results(args, c)[0]


def calls(count: int, *, large: bool = False) -> None:
    """Call a kernel again and again."""
    made, args, wanted = kernel(large=large)
    kept.append(made)
    for _ in range(count):
        if not (made(*args) == wanted).all():
            raise AssertionError("a call gives a wrong result")


def busy(daemon: bool, count: int, step: Callable[[int], None]) -> list[threading.Thread]:
    """Start threads that repeat a step without pause: daemons for ever, others for a second."""

    def repeat(number: int) -> None:
        end = time.monotonic() + 1
        while daemon or time.monotonic() < end:
            step(chance.getrandbits(30))

    threads = [threading.Thread(target=repeat, args=(k,), daemon=daemon) for k in range(count)]
    for thread in threads:
        thread.start()
    return threads


def pause(most: float) -> None:
    time.sleep(chance.uniform(0, most))


def some_work() -> None:
    work(chance.getrandbits(30))
    if chance.random() < 0.7:
        calls(chance.choice((1, 3, 100)), large=chance.random() < 0.5)


def normal() -> None:
    some_work()


def status() -> None:
    some_work()
    ending()
    sys.exit(3)


def exception() -> None:
    some_work()
    ending()
    raise ValueError("meant to be raised")


def handler_before() -> None:
    """The user's handler runs after those of modules that are imported later."""
    atexit.register(some_work)
    if chance.random() < 0.5:
        work(1)


def handler_after() -> None:
    some_work()
    atexit.register(some_work)


def finalizer() -> None:
    """Objects call kernels when they are taken down."""

    class Owner:
        pass

    class Caller:
        def __del__(self) -> None:
            made, args, wanted = self.held
            try:
                assert (made(*args) == wanted).all()
            except (TypeError, AttributeError, ImportError):
                pass  # modules may be gone, as in any finalizer this late

    made, args, _ = kernel(large=chance.random() < 0.5)
    owner, caller = Owner(), Caller()
    weakref.finalize(owner, made, *args)
    caller.held = kernel()  # type: ignore[attr-defined]
    caller.itself = caller  # type: ignore[attr-defined]
    kept.extend((owner, caller, made))
    sys.polyker_kept = kept  # type: ignore[attr-defined]


def daemons_compile() -> None:
    if chance.random() < 0.8:  # else they are still importing
        work(1)
    busy(True, chance.choice((1, 2, 4)), chance.choice((work, long_work)))
    pause(0.6)


def daemons_call() -> None:
    large = chance.random() < 0.7
    busy(True, chance.choice((1, 2, 4)), lambda seed: calls(1000, large=large))
    pause(1.0)


def daemons_and_status() -> None:
    work(1)
    busy(True, 2, chance.choice((work, long_work)))
    pause(0.5)
    if chance.random() < 0.5:
        some_work()
    ending()
    sys.exit(3)


def daemons_and_exception() -> None:
    work(1)
    busy(True, 2, chance.choice((work, long_work)))
    pause(0.5)
    ending()
    raise ValueError("meant to be raised")


def daemons_and_handler() -> None:
    """Threads that are stopped where they are must not keep a lock that the handler waits for."""
    work(1)
    busy(True, 2, chance.choice((work, long_work)))
    pause(0.5)
    atexit.register(some_work)


def threads_go_on() -> None:
    busy(False, chance.choice((1, 3)), work)
    pause(0.5)


def executor() -> None:
    pool = ThreadPoolExecutor(3)
    kept.append(pool)
    futures = [pool.submit(work, n) for n in range(12)]
    if chance.random() < 0.3:
        pool.shutdown(wait=False, cancel_futures=chance.random() < 0.5)
    elif chance.random() < 0.5:
        for future in futures:
            future.result()


def _interrupted() -> None:
    """Interrupt a compile by SIGINT; what is not caught ends the process."""

    def alarm(number: int, frame: Any) -> None:
        signal.default_int_handler(signal.SIGINT, frame)

    work(1)
    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.001, 0.1))
    while True:
        work(chance.getrandbits(30))


def interrupt_caught() -> None:
    try:
        _interrupted()
    except KeyboardInterrupt:
        pass
    if chance.random() < 0.5:
        some_work()
    gc.collect()


def interrupt_not_caught() -> None:
    if chance.random() < 0.5:
        busy(True, 1, work)
    _interrupted()


def interrupted_while_ending() -> None:
    some_work()
    if chance.random() < 0.5:
        busy(chance.random() < 0.5, 1, work)
    command = f"sleep {chance.uniform(0, 0.08):.4f}; kill -INT {os.getpid()}"
    subprocess.Popen(["/bin/sh", "-c", command], stderr=subprocess.DEVNULL)
    if chance.random() < 0.5:
        atexit.register(some_work)


def terminated() -> None:
    """SIGTERM ends the process wherever it is."""
    busy(True, 1, work)
    command = f"sleep {chance.uniform(0.3, 1.0):.4f}; kill -TERM {os.getpid()}"
    subprocess.Popen(["/bin/sh", "-c", command])
    while True:
        work(chance.getrandbits(30))


def child_ends() -> None:
    """A child of a fork ends as a process does, not by os._exit."""
    some_work()
    if chance.random() < 0.5:
        busy(True, 1, work)
    child = os.fork()
    if child == 0:
        some_work()
        kept.clear()
        sys.exit(0)
    _, found = os.waitpid(child, 0)
    if found:
        raise AssertionError(f"the child ended with {found}")


def replaced() -> None:
    """Another program takes the process over while threads compile."""
    work(1)
    busy(True, 2, chance.choice((work, long_work)))
    pause(0.5)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-c", "import time; print(time.monotonic())"])


# The exit statuses that are right.
WAYS: dict[str, tuple[Callable[[], None], tuple[int, ...]]] = {
    "normal": (normal, (0,)),
    "status": (status, (3,)),
    "exception": (exception, (1,)),
    "handler_before": (handler_before, (0,)),
    "handler_after": (handler_after, (0,)),
    "finalizer": (finalizer, (0,)),
    "daemons_compile": (daemons_compile, (0,)),
    "daemons_call": (daemons_call, (0,)),
    "daemons_and_status": (daemons_and_status, (3,)),
    "daemons_and_exception": (daemons_and_exception, (1,)),
    "daemons_and_handler": (daemons_and_handler, (0,)),
    "threads_go_on": (threads_go_on, (0,)),
    "executor": (executor, (0,)),
    "interrupt_caught": (interrupt_caught, (0,)),
    "interrupt_not_caught": (interrupt_not_caught, (-signal.SIGINT,)),
    # Wherever in the interpreter's own end the signal arrives.
    "interrupted_while_ending": (interrupted_while_ending, (0, 1, 120, 130, -signal.SIGINT)),
    "terminated": (terminated, (-signal.SIGTERM,)),
    "child_ends": (child_ends, (0,)),
    "replaced": (replaced, (0,)),
}


if __name__ == "__main__":
    chance.seed(sys.argv[2])
    WAYS[sys.argv[1]][0]()
    ending()
