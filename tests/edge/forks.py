"""Forks beside threads that compile and call: the parent does not wait, the child compiles and calls right.

A child has only the thread that forked; locks that other threads held at that moment nobody in it can give back.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import polyker as pk
from tests.edge.campaign import abort
from tests.edge.operators import BY_NAME, FAMILIES, LONG, QUICK, compile_and_call, constant
from tests.edge.trial import Part, Trial, Wrong, share_within

SOON = 1.0  # seconds that a fork may take in the parent,
SHARE = 0.95  # in this share of the forks,
MOST = 4.0  # and never longer than this
FORK = "fork in the parent"
CHILD = 30  # seconds that a child has


class Beside:
    """Threads that compile and call without pause, for a `with` block."""

    def __init__(self, random: Random, count: int, *, calls: bool) -> None:
        self._done = threading.Event()
        self._errors: list[str] = []
        step = self._calls if calls else self._compiles
        self._threads = [
            threading.Thread(target=self._repeat, args=(step, Random(random.random()))) for _ in range(count)
        ]

    def _repeat(self, step: Callable[[Random], str], random: Random) -> None:
        try:
            while not self._done.is_set() and not self._errors:
                problem = step(random)
                if problem:
                    self._errors.append(problem)
        except BaseException:
            self._errors.append(traceback.format_exc())

    @staticmethod
    def _compiles(random: Random) -> str:
        return compile_and_call(random, random.choice(random.choice((QUICK, LONG))))

    @staticmethod
    def _calls(random: Random) -> str:
        """Call a kernel that runs on threads."""
        made = Inherited(random, large=True)
        return next(filter(None, (made.call() for _ in range(200))), "")

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, kind: Any, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()
        if self._errors and kind is None:
            raise Wrong(f"beside the forks: {self._errors[0]}")


class Inherited:
    """A kernel that is made before a fork and called after it."""

    def __init__(self, random: Random, *, large: bool = False) -> None:
        family, c = random.choice((BY_NAME["matmul"], BY_NAME["pointwise"])), constant(random)
        self._family, self._args = family, family.arguments(random, family.large if large else 6)
        self._wanted = family.results(self._args, c)
        made = pk.op(family.program(c))
        self._callable: Any = made if random.random() < 0.3 else made.compile(*self._args)
        for _ in range(random.choice((0, 1, 5))):
            self._callable(*self._args)

    def call(self) -> str:
        """Call it; return what is wrong."""
        right = self._family.agrees(self._callable(*self._args), self._wanted)
        return "" if right else f"a call of {self._family.name} gives a wrong result"


def work_of_child(seed: int, inherited: Sequence[Inherited] = ()) -> str:
    """Call what the parent made, compile anew, here and on a thread; return what is wrong."""
    random, found = Random(seed), [""]
    problems = [made.call() for made in inherited]
    problems.append(compile_and_call(random, random.choice(random.choice((QUICK, FAMILIES)))))
    problems.append(Beside._calls(random) if random.random() < 0.3 else "")
    if random.random() < 0.5:
        thread = threading.Thread(target=lambda: found.append(compile_and_call(Random(seed + 1))))
        thread.start()
        thread.join()
        problems.append("" if len(found) == 2 else "a thread of the child raised")
    return next(filter(None, (*problems, *found)), "")


def forked(trial: Trial, work: Callable[[], str]) -> int:
    """Fork a child that does this and ends; return its number and note how long the parent was held up."""
    began = time.monotonic()
    child = os.fork()
    if child:
        took = time.monotonic() - began
        trial.note(FORK, took)
        return child
    code = 1
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        problem = work()
        code = 3 if problem else 0
        if problem:
            print(f"child {os.getpid()}: {problem}", file=sys.stderr, flush=True)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)
    return 0


def finish(trial: Trial, child: int) -> None:
    """Wait for a child and check that it ended well; its words are on stderr."""
    end = time.monotonic() + CHILD
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        if time.monotonic() > end:
            abort(child)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise Wrong(f"child {child} hangs")
        time.sleep(0.002)
    code = os.waitstatus_to_exitcode(status)
    trial.check(code == 0, f"a child ended with {code if code >= 0 else signal.Signals(-code).name}")


def check_forks(trial: Trial) -> None:
    """Check that no fork of this trial held its parent up for long."""
    worst = max(trial.notes.get(FORK, [0.0]))
    trial.check(worst < MOST, f"a fork took {worst:.1f} s in the parent")


def plain(trial: Trial) -> None:
    """Fork again and again beside threads."""
    random = trial.random
    inherited = [Inherited(random, large=random.random() < 0.3) for _ in range(2)]
    children = []
    with Beside(random, random.choice((1, 2, 3)), calls=random.random() < 0.3):
        for _ in range(4):
            time.sleep(random.uniform(0, 0.15))
            seed = random.getrandbits(30)
            children.append(forked(trial, lambda seed=seed: work_of_child(seed, inherited)))  # type: ignore[misc]
            if random.random() < 0.5:
                finish(trial, children.pop())
        for child in children:
            finish(trial, child)
        problem = compile_and_call(random)
    trial.check(not problem, problem)


def nested(trial: Trial) -> None:
    """A child has threads of its own that compile, and forks beside them."""
    random = trial.random
    seed = random.getrandbits(30)

    def child() -> str:
        own = Random(seed)
        inner = Trial(trial.part, trial.seed, trial.number)
        with Beside(own, own.choice((0, 1, 2)), calls=own.random() < 0.3):
            time.sleep(own.uniform(0, 0.1))
            grandchild = forked(inner, lambda: work_of_child(seed + 7))
            problem = work_of_child(seed)
            finish(inner, grandchild)
        check_forks(inner)
        return problem

    with Beside(random, random.choice((1, 2)), calls=random.random() < 0.3):
        time.sleep(random.uniform(0, 0.1))
        finish(trial, forked(trial, child))


def within_handler(trial: Trial) -> None:
    """Fork in a handler of a signal that arrives during a compile; both go on, the parent with its compile."""
    random = trial.random
    children: list[int] = []
    seed = random.getrandbits(30)

    def handler(number: int, frame: object) -> None:
        children.append(forked(trial, lambda: work_of_child(seed)))

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with Beside(random, random.choice((0, 0, 1)), calls=False):
            for _ in range(3):
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.06))
                problem = compile_and_call(random, random.choice(LONG))
                trial.check(not problem, f"a compile in which a handler forked: {problem}")
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for child in children:
        finish(trial, child)


def work_of_process(seed: int) -> str:
    """What a process of multiprocessing does, started in either way."""
    return work_of_child(seed)


def _checked_process(seed: int) -> None:
    problem = work_of_process(seed)
    if problem:
        raise AssertionError(problem)


def processes(trial: Trial) -> None:
    """Start processes by multiprocessing, forked and spawned, one by one and in a pool."""
    random = trial.random
    method = random.choice(("fork", "fork", "spawn", "forkserver"))
    context: Any = multiprocessing.get_context(method)
    seeds = [random.getrandbits(30) for _ in range(2)]
    with Beside(random, random.choice((1, 2)), calls=random.random() < 0.3):
        if random.random() < 0.5:
            children = [context.Process(target=_checked_process, args=(seed,)) for seed in seeds]
            for child in children:
                child.start()
            for child in children:
                child.join(CHILD + 20)
                if child.exitcode is None:
                    abort(child.pid)
                    child.kill()
                    raise Wrong(f"a process by {method} hangs")
                trial.check(child.exitcode == 0, f"a process by {method} ended with {child.exitcode}")
        else:
            with context.Pool(2) as pool:
                found = pool.map_async(work_of_process, seeds).get(CHILD + 20)
            trial.check(not any(found), f"a pool by {method}: {found}")


def programs(trial: Trial) -> None:
    """Start other programs beside compiles."""
    random = trial.random
    with Beside(random, random.choice((1, 2, 3)), calls=random.random() < 0.3):
        for _ in range(4):
            time.sleep(random.uniform(0, 0.05))
            began = time.monotonic()
            # With a function to run before it, Python forks as os.fork does.
            before = random.choice((None, os.getpid))
            ran = subprocess.run(["/bin/echo", "here"], capture_output=True, timeout=30, preexec_fn=before)
            trial.check(ran.stdout == b"here\n", "a program beside compiles")
            trial.note(FORK, time.monotonic() - began)


@contextmanager
def quiet_alarm() -> Iterator[None]:
    """Leave no timer behind."""
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


SCENARIOS = plain, nested, within_handler, processes, programs, plain, plain


def run(trial: Trial) -> None:
    """Fork in one of the ways."""
    problem = compile_and_call(trial.random)  # a child must not find a module half imported by a frame that it left
    trial.check(not problem, problem)
    scenario = trial.turn(SCENARIOS)
    with quiet_alarm():
        try:
            scenario(trial)
            check_forks(trial)
        except Wrong as wrong:
            raise Wrong(f"{scenario.__name__}: {wrong}") from None


def judge(notes: Mapping[str, Sequence[float]]) -> list[str]:
    """Return what is wrong with how long forks held their parents up."""
    values = notes.get(FORK, ())
    share = share_within(values, SOON)
    if len(values) >= 20 and share < SHARE:
        return [
            f"{100 * share:.1f}% of {len(values)} forks took less than {SOON} s in the parent, not {100 * SHARE:.0f}%"
        ]
    return []


PART = Part(run, limit=150.0, per_child=6, turns=len(SCENARIOS), judge=judge)
