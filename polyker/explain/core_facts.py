"""Measure the facts of this machine's core: rates of caches and memory, pipes, and what prefetches gain.

Rates are in bytes a cycle of the core's clock, which is measured by a chain of additions. What a schedule has to know of patterns
(rows side by side, requests into one cache or the other) is measured by kernels that are compiled for the one and the other.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from polyker.codegen.llvm.jit.build import build
from polyker.codegen.llvm.jit.detect import host
from polyker.explain.rates import CHAINS, RateLoop, fma_seconds, reading
from polyker.machine.model import Target
from polyker.structs import replace

# Rounds in which the ways of one pattern take turns.
ROUNDS = 7
# Rates of the one and the other way by which a schedule takes either.
_CHOSEN, _OTHER = 2.0, 1.0
# A kernel for types and a target, as `pk.op(text).compile(...)` makes one.
Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Compile: TypeAlias = Callable[[str, Mapping[str, Array], Target], Callable[..., Any]]


class Pattern(Struct, frozen=True):
    """An operator that reads memory, the bytes that it moves, and the ways of which one is to be chosen."""

    fact: str
    text: str
    ways: tuple[int, ...]  # the caches that requests bring lines into, 0 for none

    def arguments(self, beyond: int) -> dict[str, Array]:
        """Return arrays of which the operands that count take so many bytes."""
        rng = np.random.default_rng(0)
        match self.fact:
            case "tiles":
                rows = beyond // 2048
                return {"A": rng.random((rows, 256)), "B": rng.random((256, 16))}
            case "gathered_rows":
                rows = beyond // 256
                return {"T": rng.random((rows, 64), "f4"), "idx": rng.integers(0, rows, rows // 4)}
            case _:
                return {"X": rng.random((beyond // 16384, 4096), "f4")}


PATTERNS = (
    Pattern("sums", "S[n] += X[n,c]", (0, 1, 2)),
    Pattern("next_rows", "V[n] += X[n,c]**2;  O[n,c] = X[n,c] * rsqrt(V[n] / 4096)", (0, 1)),
    Pattern("tiles", "C[i,j] += A[i,k] * B[k,j]", (0, 1)),
    Pattern("gathered_rows", "O[n,c] = T[idx[n],c]", (1, 2)),
)


def core_facts(compiled: Compile) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the facts of this core by table, as the files of `polyker/machine` have them; takes some seconds in all."""
    target, hertz = host(), clock()
    yield "vector", {"native_bytes": native_bytes(target)}
    yield "ports", {"add": add_pipes(target)}
    yield "caches", {"read": [_rounded(reading(c.size // 2) / hertz) for c in target.caches]}
    beyond = 4 * target.caches[-1].size
    rows = _rates_of_rows(compiled, target, beyond)
    line = _random_line(compiled, target, beyond) * hertz
    yield (
        "memory",
        {"read": _rounded(rows[0] / hertz), "side_by_side": _rounded(rows[1] / hertz), "random_line": _rounded(line)},
    )
    found = {p.fact: [_rounded(r / hertz) for r in rates_of(p, compiled, target, beyond)] for p in PATTERNS}
    yield "prefetch", found


def as_file(found: Mapping[str, Any], cpu: str) -> dict[str, Any]:
    """Return facts as the text of a file has them."""
    caches = [{"read": rate} for rate in found["caches"]["read"]]
    return {"cores": [cpu], **found, "caches": caches}


def rates_of(pattern: Pattern, compiled: Compile, target: Target, beyond: int) -> list[float]:
    """Return the bytes a second of a pattern without requests, with requests into the first cache, into the second."""
    arguments = pattern.arguments(beyond)
    machines = [_that_takes(target, pattern.fact, way) for way in pattern.ways]
    rates = [beyond / s for s in _seconds(compiled, pattern.text, arguments, machines)]
    return [min(rates), *rates] if pattern.ways == (1, 2) else rates


def _that_takes(target: Target, fact: str, way: int) -> Target:
    """Return a target whose facts say that a way is the best of a pattern."""
    rates: dict[str, Any] = {fact: tuple(_CHOSEN if level == way else _OTHER for level in range(3))}
    return replace(target, name=f"{target.name} {fact} {way}", prefetch=replace(target.prefetch, **rates))


def _rates_of_rows(compiled: Compile, target: Target, beyond: int) -> list[float]:
    """Return the bytes a second of one row of memory after another, and of several side by side."""
    x = np.random.default_rng(0).random(beyond // 4, "f4")
    memories = [replace(target.memory, read=_OTHER, side_by_side=rate) for rate in (_OTHER / 2, _CHOSEN)]
    machines = [replace(target, name=f"{target.name} {m}", memory=m) for m in memories]
    return [beyond / s for s in _seconds(compiled, "s += X[i]", {"X": x}, machines)]


def _random_line(compiled: Compile, target: Target, beyond: int) -> float:
    """Return the seconds that a line takes which is read at a place that nothing foresees, others being on their way."""
    rng = np.random.default_rng(0)
    table, places = rng.random(beyond // 4, "f4"), rng.integers(0, beyond // 4, 1 << 18)
    (seconds,) = _seconds(compiled, "O[i] = T[idx[i]]", {"T": table, "idx": places}, [target])
    return seconds / places.size


def _seconds(compiled: Compile, text: str, arguments: Mapping[str, Array], machines: Sequence[Target]) -> list[float]:
    """Return the median time of an operator as it is compiled for each of several machines; they take turns."""
    kernels = [compiled(text, arguments, machine) for machine in machines]
    times: list[list[float]] = [[] for _ in kernels]
    for turn in range(ROUNDS + 1):
        for kernel, kept in zip(kernels, times, strict=True):
            start = time.perf_counter()
            kernel(**arguments)
            if turn:  # the first one touches what is new
                kept.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def native_bytes(target: Target) -> int:
    """Return the width of the widest vectors that the core's multiply-adds take whole."""
    half = replace(target, vector_bytes=target.vector_bytes // 2)
    if half.vector_bytes < 16:
        return target.vector_bytes
    whole, halves = (min(fma_seconds("f32", t, 20_000) for _ in range(ROUNDS)) for t in (target, half))
    return half.vector_bytes if whole > 1.5 * halves else target.vector_bytes


def add_pipes(target: Target) -> int:
    """Return how many vector additions a core does in a cycle beside as many multiply-adds, 0 where these share their pipes."""
    if target.vector_registers < 2 * CHAINS + 2:
        return 0
    alone = min(fma_seconds("f32", target, 20_000) for _ in range(ROUNDS))
    both = min(fma_seconds("f32", target, 20_000, True) for _ in range(ROUNDS))
    return target.fma_per_cycle if both < 1.5 * alone else 0


@cache
def clock() -> float:
    """Return the core's cycles a second: of a chain of additions, one a cycle."""
    rounds, length = 200_000, 64
    steps = []
    for n in range(0, length, 2):
        last = "%x" if n == 0 else f"%b{n - 2}"
        steps += [f"  %a{n} = add i64 {last}, %k", f"  %b{n} = xor i64 %a{n}, %n"]
    text = f"""
define i64 @kernel(i64 %k, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x = phi i64 [ %k, %entry ], [ %b{length - 2}, %loop ]
{chr(10).join(steps)}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret i64 %x
}}
"""
    code = build(text, host())
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(code.address)
    loop = RateLoop(code, run)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        loop.run(3, rounds)
        best = min(best, time.perf_counter() - start)
    return rounds * length / best
