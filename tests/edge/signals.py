"""Signals at any moment of a compile, a call, an import or an edit raise in the caller what their handler raises.

Afterwards the process goes on as if nothing had been: the same work gives the right result, and so does another thread's.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import polyker as pk
from tests.edge.interrupts import (
    LATENCY,
    Late,
    Signals,
    Stop,
    check_outcome,
    check_process,
    interrupted,
    judge,
    seconds_of,
)
from tests.edge.operators import BY_NAME, FAMILIES, QUICK, Family, constant
from tests.edge.trial import Part, Skipped, Trial

Verify = Callable[[Any], bool]
# Returns work that is to be interrupted, with a constant of its own, and whether its result is right.
Maker = Callable[[Trial, Family, int], tuple[Callable[[], Any], Verify]]


def _compiling(n: int | None) -> Maker:
    def maker(trial: Trial, family: Family, c: int) -> tuple[Callable[[], Any], Verify]:
        size = family.large or 60 if n == 0 else n
        args = family.arguments(trial.random, size or 5)
        wanted, sizes = family.results(args, c), dict(family.sizes)
        made = pk.op(family.program(c))
        return (
            lambda: made.compile(*family.types(size), **(sizes if size else {})),
            lambda kernel: family.agrees(kernel(*args, **sizes), wanted),
        )

    return maker


def _first_call(trial: Trial, family: Family, c: int) -> tuple[Callable[[], Any], Verify]:
    args, made = family.arguments(trial.random, trial.random.randrange(2, 20)), pk.op(family.program(c))
    wanted = family.results(args, c)
    return lambda: made(*args, **dict(family.sizes)), lambda got: family.agrees(got, wanted)


def _defined_and_called(trial: Trial, family: Family, c: int) -> tuple[Callable[[], Any], Verify]:
    args = family.arguments(trial.random, 7)
    wanted = family.results(args, c)
    return lambda: pk.op(family.program(c))(*args, **dict(family.sizes)), lambda got: family.agrees(got, wanted)


def _new_shapes(trial: Trial, family: Family, c: int) -> tuple[Callable[[], Any], Verify]:
    """Work in which an operator goes over from kernels for shapes to one for all."""
    made, calls = pk.op(family.program(c)), [family.arguments(trial.random, n) for n in range(3, 8)]
    return (
        lambda: [made(*args, **dict(family.sizes)) for args in calls],
        lambda got: all(family.agrees(g, family.results(a, c)) for g, a in zip(got, calls, strict=True)),
    )


def _repeated_calls(large: bool) -> Maker:
    def maker(trial: Trial, family: Family, c: int) -> tuple[Callable[[], Any], Verify]:
        size = family.large if large and family.large else 6
        args, sizes = family.arguments(trial.random, size), dict(family.sizes)
        wanted = family.results(args, c)
        kernel: Any = pk.op(family.program(c))
        if trial.random.random() < 0.7:
            kernel = kernel.compile(*args, **sizes)
        out = tuple(np.zeros_like(w) for w in wanted) if trial.random.random() < 0.5 else None
        given = out[0] if out and len(out) == 1 else out

        def work() -> Any:
            for _ in range(60 if large else 20_000):
                result = kernel(*args, out=given, **sizes)
            return result

        return work, lambda got: family.agrees(got, wanted)

    return maker


def _einsum(trial: Trial, family: Family, c: int) -> tuple[Callable[[], Any], Verify]:
    n, m, k, b = (trial.random.randrange(2, 15) for _ in range(4))
    x, y = np.arange(float(b * n * k)).reshape(b, n, k) % 9, np.arange(float(b * k * m)).reshape(b, k, m) % 7
    labels = trial.random.sample("abcdefghijklmnop", 4)
    text = "{0}{1}{2},{0}{2}{3}->{0}{1}{3}".format(*labels)
    return lambda: pk.einsum(text, x, y), lambda got: np.array_equal(got, x @ y)


def _check(trial: Trial, family: Family, c: int) -> tuple[Callable[[], Any], Verify]:
    args, made = family.arguments(trial.random, 4), pk.op(family.program(c))
    return lambda: made.check(*args, **dict(family.sizes)), bool


def _edits(trial: Trial, family: Family, c: int) -> tuple[Callable[[], Any], Verify]:
    made, n = pk.op(f"C[i,j] += {c} * A[i,k] * B[k,j]"), 40
    args = BY_NAME["matmul"].arguments(trial.random, n)

    def work() -> Any:
        s = made.schedule(*args, auto=False)
        s = s["C"].tile(i=4, j=8).interchange("k", "i.point", "j.point")
        s = s["C"].vectorise({"j.point": 8})["C"].unroll({"i.point": 4})
        return made.compile(schedule=s["C"].promote("C", at="j.tile", memory="registers"))

    return work, lambda kernel: np.array_equal(kernel(*args), c * (args[0] @ args[1]))


def _explained(trial: Trial, family: Family, c: int) -> tuple[Callable[[], Any], Verify]:
    kernel = pk.op(family.program(c)).compile(*family.types(9), **dict(family.sizes))
    return lambda: str(kernel.explain()) + kernel.source("asm") + str(kernel.schedule), lambda text: len(text) > 100


ALL, SHORT = FAMILIES, QUICK
ACTIONS: tuple[tuple[str, Maker, tuple[Family, ...]], ...] = (
    ("compile", _compiling(9), ALL),
    ("compile with symbols", _compiling(None), ALL),
    ("compile for threads", _compiling(0), ALL),
    ("first call", _first_call, ALL),
    ("definition and call", _defined_and_called, ALL),
    ("calls of new shapes", _new_shapes, SHORT),
    ("repeated calls", _repeated_calls(False), SHORT),
    ("repeated calls on threads", _repeated_calls(True), SHORT),
    ("einsum", _einsum, SHORT[:1]),
    ("check", _check, SHORT),
    ("schedule edits", _edits, SHORT[:1]),
    ("explain", _explained, SHORT),
)


def signals_within(trial: Trial, length: float) -> Signals:
    """Return signals at a random moment of work that takes so long."""
    random = trial.random
    delay = random.uniform(0, 1.05 * length)
    gap = random.choice((0.0, 0.0002, 0.002, 0.02))
    return random.choice((
        Signals("process", signal.SIGINT, delay, None),
        Signals("process", signal.SIGINT, delay, None),
        Signals("thread", signal.SIGINT, delay, None),
        Signals("timer", signal.SIGALRM, delay, Late),
        Signals("timer", signal.SIGALRM, delay, Stop),
        Signals("process", signal.SIGUSR1, delay, MemoryError),
        Signals("process", signal.SIGINT, delay, KeyboardInterrupt, random.randrange(2, 6), gap),
        Signals("thread", signal.SIGALRM, delay, Late, random.randrange(2, 6), gap),
    ))  # fmt: skip


def here(trial: Trial) -> None:
    """Interrupt something in this process, do it again, and compile on another thread."""
    random = trial.random
    name, maker, families = random.choice(ACTIONS)
    family = random.choice(families)
    length = seconds_of((name, family.name), lambda: maker(trial, family, constant(random))[0]())
    work, right = maker(trial, family, constant(random))
    signals, options = signals_within(trial, length), pk.options.current
    what = f"{name} of {family.name}"
    outcome = interrupted(work, signals)
    check_process(trial)
    trial.check(pk.options.current == options, f"{what}: the options have changed")
    trial.check(right(work()), f"{what}, {signals}: the same again gives a wrong result")
    if outcome.finished:
        trial.check(right(outcome.result), f"{what}, {signals}: wrong result")
    check_outcome(trial, signals, outcome, what)


_lengths: dict[str, float] = {}


def fresh(trial: Trial) -> None:
    """Interrupt the first import, the first definition, compile or einsum of a process."""
    stage = trial.random.choice(("import", "op", "compile", "einsum", "all"))
    if stage not in _lengths:
        _lengths[stage] = _fresh(stage, "none", 0.0)["took"]
    delay, way = trial.random.uniform(0, 1.05 * _lengths[stage]), trial.random.choice(("SIGINT", "SIGALRM"))
    said = _fresh(stage, way, delay)
    where = (
        f"{stage} of a new process, {way} after {delay:.4f} s (python -m tests.edge.fresh {stage} {way} {delay:.6f})"
    )
    trial.check("problem" not in said, lambda: f"{where}: {said['problem']}")
    if not said["caught"]:
        trial.check(said["early"], f"{where}: the exception was lost")
        raise Skipped
    trial.note(LATENCY, said["latency"])


def _fresh(stage: str, way: str, delay: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.edge.fresh", stage, way, f"{delay:.6f}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=80)
    lines = ran.stdout.splitlines()
    if ran.returncode or len(lines) != 1:
        return {"problem": f"exit status {ran.returncode}\n{ran.stdout[-1000:]}\n{ran.stderr[-4000:]}"}
    said: dict[str, Any] = json.loads(lines[0])
    return said


def run(trial: Trial) -> None:
    """Interrupt something, mostly in this process: a new one costs a second."""
    (fresh if trial.random.random() < 0.25 else here)(trial)


PART = Part(run, limit=100.0, per_child=30, judge=judge)
