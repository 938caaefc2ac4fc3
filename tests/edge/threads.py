"""Several Python threads call shared kernels and operators while rows, plans and kernels come and go.

Every result is compared with NumPy's. NumPy gives the interpreter's lock away while it copies and kernels do while they
run, so another thread may replace what a call is using at just these moments.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any

import numpy as np
from msgspec import Struct, field

import polyker as pk
from tests.artifacts import compiled_of
from tests.edge.operators import BY_NAME, QUICK, Arrays, Family, constant
from tests.edge.trial import Part, Trial, Wrong

SECONDS = 1.2
OPTIONS: tuple[dict[str, Any], ...] = (
    {"acc": "f64"}, {"threads": 1}, {"threads": 2}, {"threads": 3}, {"cache_size": 2}, {"specialize": "always"},
    {"specialize": "never"}, {"deterministic": True}, {"cache_size": 1, "specialize": "always"},
)  # fmt: skip


class Work(Struct):
    """The threads of a trial: each repeats a step until the time is over or one of them fails."""

    trial: Trial
    until: float
    errors: list[str] = field(default_factory=list)

    def run(self, steps: list[Callable[[], None]]) -> None:
        """Run each step again and again on a thread of its own; raises Wrong for the first error."""
        threads = [threading.Thread(target=self._repeat, args=(step,)) for step in steps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise Wrong(self.errors[0])

    def _repeat(self, step: Callable[[], None]) -> None:
        try:
            while not self.errors and time.monotonic() < self.until:
                step()
        except Wrong as wrong:
            self.errors.append(str(wrong))
        except BaseException:
            self.errors.append(traceback.format_exc())


class Shared:
    """A callable that threads share, and calls of it with the results that they have to give.

    `many`: so many shapes and strides that a table of calls has no row for each.
    """

    def __init__(self, random: Random, family: Family, kind: str, *, many: bool, large: bool = False) -> None:
        self.family, self.kind, self.constant = family, kind, constant(random)
        n = family.large if large and family.large else random.randrange(3, 40)
        self._types = family.types(None if kind == "symbolic" else n)
        self._sizes = dict(family.sizes)
        # An operator compiles for each shape, so it gets few of them; strides are many where calls are.
        shapes = {"fixed": 1, "operator": 3}.get(kind, 24 if many else 3)
        self.calls: list[tuple[Arrays, Arrays]] = []
        for k in range(40 if many else 4):
            args = family.arguments(random, n if large else n + k % shapes)
            wanted = family.results(args, self.constant)
            self.calls.append((tuple(laid_out(a, random, 1 if large else 30) for a in args), wanted))
        self.callable: Any = None
        self.renew()

    def renew(self) -> None:
        """Make the callable anew; nothing keeps the old one but calls under way."""
        made = pk.op(self.family.program(self.constant))
        self.callable = made if self.kind == "operator" else made.compile(*self._types, **self._sizes)

    def call(self, trial: Trial, random: Random) -> None:
        """Make one of the calls, in one of the ways to make it, and compare."""
        args, wanted = random.choice(self.calls)
        given = None
        if random.random() < 0.5:
            outs = tuple(outs_like(w, random) for w in wanted)
            if self.family.own is not None and random.random() < 0.3:
                outs[0][...] = args[self.family.own]  # the argument itself as out
                args = tuple(outs[0] if i == self.family.own else a for i, a in enumerate(args))
            given = outs if len(outs) > 1 else outs[0]
        result = self.callable(*args, out=given, **self._sizes)
        trial.check(
            self.family.agrees(result, wanted) and (given is None or self.family.agrees(given, wanted)),
            lambda: f"{self.kind} {self.family.name}, shapes {[a.shape for a in args]}, out given: {given is not None}",
        )

    def step(self, trial: Trial, random: Random, options: dict[str, Any] | None) -> Callable[[], None]:
        """Return a step that calls, in a block of options where given."""

        def step() -> None:
            with pk.options(**options) if options else nullcontext():
                for _ in range(10):
                    self.call(trial, random)

        return step


def laid_out(values: np.ndarray, random: Random, most: int) -> np.ndarray:
    """Return an array with these values, its rows or elements some way from each other."""
    if values.ndim == 0 or values.size == 0 or random.random() < 0.2:
        return values
    if values.ndim > 1 and random.random() < 0.3:
        return np.ascontiguousarray(values.T).T
    pad = random.randrange(1, most + 1)
    if values.ndim == 1:
        pad = 1 + pad % 6
        memory = np.full(values.size * pad, 7, values.dtype)
        view = memory[::pad]
    else:
        memory = np.full((*values.shape[:-1], values.shape[-1] + pad), 7, values.dtype)
        view = memory[..., : values.shape[-1]]
    view[...] = values
    return view


def outs_like(values: np.ndarray, random: Random) -> np.ndarray:
    """Return an array to write these values to, with others in it."""
    return laid_out(np.full(values.shape, -77.0), random, 3)


def disturbances(shared: list[Shared], random: Random) -> Callable[[], None]:
    """Return a step that takes away what calls may be using."""

    def forget_plans() -> None:
        made = random.choice(shared).callable
        if isinstance(made, pk.Kernel):
            compiled_of(made).plans.clear()

    def grow() -> None:
        for n in range(1, 30):  # other shapes and strides, so that rows are replaced
            memory = np.ones(400)
            made(memory[: 8 * n : n], memory[: 8 * n : n])

    made = pk.op("y[i] = x[i] + z[i]").compile(pk.f64["N"], pk.f64["N"])
    actions = [
        pk.clear_cache, forget_plans, gc.collect, lambda: random.choice(shared).renew(), grow,
        lambda: (random.choice(shared).renew(), gc.collect()),
    ]  # fmt: skip

    def step() -> None:
        random.choice(actions)()
        time.sleep(random.choice((0, 0, 0.0005, 0.003)))

    return step


@contextmanager
def switching(seconds: float | None) -> Iterator[None]:
    """Let the interpreter change threads so often."""
    before = sys.getswitchinterval()
    if seconds is not None:
        sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def mixed(trial: Trial) -> None:
    """Threads call kernels and operators of all kinds, one of them takes things away."""
    random = trial.random
    kinds = [random.choice(("fixed", "symbolic", "operator")) for _ in range(random.choice((1, 1, 2, 3)))]
    families = [random.choice(QUICK + (BY_NAME["scan"], BY_NAME["gather"])) for _ in kinds]
    large = random.random() < 0.2
    shared = [
        Shared(random, f, kind, many=not large and random.random() < 0.5, large=large)
        for f, kind in zip(families, kinds, strict=True)
    ]
    steps: list[Callable[[], None]] = []
    for _ in range(random.choice((2, 3, 4))):
        own, options = Random(random.random()), random.choice(OPTIONS) if random.random() < 0.4 else None
        steps.append(random.choice(shared).step(trial, own, options))
    if random.random() < 0.8:
        steps.append(disturbances(shared, Random(random.random())))
    Work(trial, time.monotonic() + SECONDS).run(steps)


def long_copies(trial: Trial) -> None:
    """One thread calls with in-out arguments that take long to copy, others use the rest of the table's rows."""
    random = trial.random
    c, count = constant(random), random.choice((30_000, 300_000, 3_000_000))
    text = f"f(A: f64[N], B: f64[N]) -> A:\n  A[i] = A[i] + {c} * B[i]"
    made: Any = pk.op(text)
    if random.random() < 0.7:
        made = made.compile()
    big = (np.arange(count) % 11).astype(np.float64)
    other = big if random.random() < 0.5 else big[::-1].copy()
    wanted = big + c * other
    out = np.zeros(count) if random.random() < 0.5 else None
    own, memory = Random(random.random()), np.arange(20_000.0)

    def long() -> None:
        if out is not None:
            out[:] = -1
        result = made(big, other, out=out)
        trial.check(np.array_equal(result, wanted), f"in-out argument of {count} elements")

    def short() -> None:
        for _ in range(60):
            n, step = own.randrange(1, 2000), own.randrange(1, 9)
            x = memory[: n * step : step]
            trial.check(np.array_equal(made(x, x), x + c * x), lambda: f"{n} elements, {step} apart")

    def clear() -> None:
        if isinstance(made, pk.Kernel):
            compiled_of(made).plans.clear()
        pk.clear_cache()
        time.sleep(0.001)

    steps = [long, *[short] * random.choice((1, 2, 3))]
    if random.random() < 0.5:
        steps.append(clear)
    Work(trial, time.monotonic() + SECONDS).run(steps)


def replaced_rows(trial: Trial) -> None:
    """Threads call with one layout of a kernel that gives the lock away, another with more layouts than there are rows."""
    random = trial.random
    c, n = constant(random), random.choice((40, 300))
    kernel = pk.op(f"y[i] = sum[k](x[i,k] * x[i,k]) + {c}").compile(pk.f64[n, n])
    x = (np.arange(n * n) % 7).astype(np.float64).reshape(n, n)
    wanted, memory = (x * x).sum(1) + c, np.ones((n, n + 90))
    own = Random(random.random())

    def same() -> None:
        out = None if own.random() < 0.5 else np.zeros(n)
        for _ in range(20):
            trial.check(np.array_equal(kernel(x, out=out), wanted), "the one layout")

    def others() -> None:
        for pad in own.sample(range(1, 90), 40):
            view = np.lib.stride_tricks.as_strided(memory, (n, n), (8 * (n + pad), 8))
            for _ in range(3):
                trial.check(np.array_equal(kernel(view), np.full(n, n + c)), "other layouts")
        if own.random() < 0.5:
            compiled_of(kernel).plans.clear()

    Work(trial, time.monotonic() + SECONDS).run([*[same] * random.choice((1, 2, 3)), others])


def dropped_kernels(trial: Trial) -> None:
    """Kernels are made, called and dropped on all threads, while others still call what they share."""
    random = trial.random
    slots: list[tuple[Any, int] | None] = [None] * 3
    family, n = random.choice(QUICK[:4]), random.randrange(2, 9)
    args = family.arguments(random, n)

    def turn(own: Random) -> Callable[[], None]:
        def step() -> None:
            k = own.randrange(len(slots))
            held = slots[k]
            if held is None or own.random() < 0.05:
                c = constant(own)
                held = slots[k] = pk.op(family.program(c)).compile(*args), c
            wanted = family.results(args, held[1])
            for _ in range(own.choice((1, 5, 80))):
                trial.check(family.agrees(held[0](*args), wanted), f"shared {family.name}")
            if own.random() < 0.1:
                slots[k] = None
                del held
                pk.clear_cache()
                if own.random() < 0.3:
                    gc.collect()

        return step

    Work(trial, time.monotonic() + SECONDS).run(
        [turn(Random(random.random())) for _ in range(random.choice((2, 3, 4)))]
    )


SCENARIOS = mixed, long_copies, replaced_rows, dropped_kernels, mixed, long_copies


def run(trial: Trial) -> None:
    """Run one of the ways to share kernels."""
    scenario = trial.turn(SCENARIOS)
    with switching(trial.random.choice((None, 1e-5, 1e-6))):
        try:
            scenario(trial)
        except Wrong as wrong:
            raise Wrong(f"{scenario.__name__}: {wrong}") from None
    pk.clear_cache()


PART = Part(run, limit=90.0, per_child=12, turns=len(SCENARIOS))
