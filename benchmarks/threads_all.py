"""`python -m benchmarks threads --all`: each case of the benchmark on one thread and on several, in turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from benchmarks.case import Case, arrays
from benchmarks.machine import bandwidth, rounded

# A case of less is not worth several threads; a speed-up of less is told apart, and what memory alone would take of the time
# of one thread where it is memory that forbids more.
LEAST, SLOW, MEMORY = 1e-3, 1.3, 0.5
# Seconds that the turns of one case take at most, and that a kernel is called for before it is timed.
MOST, AWAKE = 2.0, 0.015
# How often a slow case is measured again, and seconds before it: a virtual machine's cores may share one for a while.
AGAIN, PAUSE = 2, 1.0


class Row(Struct, frozen=True):
    """One case: seconds on one thread and on several; `memory`: the part of the former that moving its bytes takes on one core;
    `same`: whether both gave the same bits."""

    name: str
    family: str
    one: float
    several: float
    memory: float
    same: bool

    @property
    def ratio(self) -> float:
        """How much faster several threads are."""
        return self.one / self.several

    @property
    def is_slow(self) -> bool:
        """Whether it takes long enough, and gains little, for no reason that memory would be."""
        return self.one >= LEAST and self.ratio < SLOW and self.memory < MEMORY


def every_case(cases: Iterable[Case], threads: int, rounds: int) -> int:
    """Print a row a case, and the geometric mean of those of a millisecond or more; return 1 where bits differ."""
    rows = []
    for case in cases:
        row = measured(case, threads, rounds)
        for _ in range(AGAIN):
            if not row.is_slow:
                break
            time.sleep(PAUSE)
            row = max(row, measured(case, threads, rounds), key=lambda r: r.ratio)
        rows.append(row)
        note = "DIFFERENT BITS" if not row.same else "slow" if row.is_slow else ""
        print(
            f"{row.name:44} {1e3 * row.one:9.3f} ms, on {threads} {1e3 * row.several:9.3f} ms: {row.ratio:5.2f} x"
            f"  memory {100 * row.memory:3.0f} %  {note}",
            flush=True,
        )
    long = [r for r in rows if r.one >= LEAST]
    if long:
        mean = math.exp(statistics.fmean(math.log(r.ratio) for r in long))
        held = [r for r in long if r.memory < MEMORY]
        free = math.exp(statistics.fmean(math.log(r.ratio) for r in held)) if held else math.nan
        unbound = f"{len(held)} that memory does not bind: {free:.2f} x"
        print(f"{len(long)} cases of {1e3 * LEAST:g} ms or more: {mean:.2f} x; {unbound}")
        print(
            f"under {SLOW} x though memory does not bind them: {', '.join(r.name for r in rows if r.is_slow) or 'none'}"
        )
    return int(not all(r.same for r in rows))


def measured(case: Case, threads: int, rounds: int) -> Row:
    """Return the times of one case."""
    problem = case.problem()
    one, several, same = alternating(problem.text, problem.fixed, arrays(case.name, problem), threads, rounds)
    return Row(case.name, case.family, one, several, problem.bytes / bandwidth(rounded(problem.bytes)) / one, same)


def alternating(
    text: str, sizes: Mapping[str, int], inputs: Sequence[Any], threads: int, rounds: int
) -> tuple[float, float, bool]:
    """Return the median seconds of a program on one thread and on several, in turns, and whether they gave the same bits."""
    import numpy as np

    import polyker as pk

    kernels, results = [], []
    for count in (1, threads):
        with pk.options(threads=count, timeout=None):
            kernels.append(pk.op(text, **sizes).compile(*inputs))
        results.append(np.array(kernels[-1](*inputs)))
    given = {"out": np.empty_like(results[0])} if results[0].ndim else {}
    times: list[list[float]] = [[], []]
    began = time.perf_counter()
    for n in range(rounds):
        if n > 2 and time.perf_counter() - began > MOST:
            break
        for kernel, taken in zip(kernels, times, strict=True):
            # Nobody sleeps when the time is taken: woken, a thread takes some 40 microseconds to be there.
            awake = time.perf_counter() + AWAKE
            kernel(*inputs, **given)
            while time.perf_counter() < awake:
                kernel(*inputs, **given)
            start = time.perf_counter()
            kernel(*inputs, **given)
            taken.append(time.perf_counter() - start)
    one, several = map(statistics.median, times)
    return one, several, np.array_equal(*results, equal_nan=results[0].dtype.kind in "fc")
