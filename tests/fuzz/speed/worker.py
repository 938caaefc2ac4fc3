"""A child that times programs, so that a crash of one is counted and not the end."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import traceback
from typing import Any

import polyker as pk
from tests.fuzz.speed.generate import generate
from tests.fuzz.speed.judge import Excess, confirmed, excesses, timed
from tests.fuzz.speed.program import Program
from tests.fuzz.speed.variants import KINDS, Ways, ways

SHRINKING = 10.0  # seconds of the processor


def report(program: Program, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return what is found of a program: times in microseconds, excesses, what took long to compile, what differs."""
    found = ways(program, kinds)
    # Elements gathered one by one lie further apart in one layout than in the other.
    without = ("layout",) if any(t.limit for t in program.tensors.values()) else ()
    times, slow = confirmed(found.calls, without=without)
    listed = [_listed(e, found) for e in slow]
    return {
        "times": {n: round(t * 1e6, 1) for n, t in times.items()}, "excesses": listed, "differs": found.differs,
        "compiled": {n: round(t, 2) for n, t in found.compiled.items()}, "refused": found.refused,
    }  # fmt: skip


def _listed(excess: Excess, found: Ways) -> dict[str, Any]:
    said: dict[str, Any] = {
        "kind": excess.kind, "slow": excess.slow, "quick": excess.quick, "ratio": round(excess.ratio, 2),
        "us": [round(excess.seconds * 1e6, 1), round(excess.least * 1e6, 1)],
    }  # fmt: skip
    small = shrunk(excess, found)
    if small is not None:
        said["smaller"] = small.known
    return said


def shrunk(excess: Excess, found: Ways) -> Program | None:
    """Return the fewest statements in a row of a program that are too slow in the same way, None for all of them."""
    program = found.program
    if program is None:
        return None
    kinds = tuple(k for k, names in KINDS.items() if {excess.slow, excess.quick} <= {*names})
    until, count = time.process_time() + SHRINKING, len(program.units)
    for length in range(1, count):
        for first in range(count - length + 1):
            if time.process_time() > until:
                return None
            part = program.part(first, first + length)
            if excess.kind == "fused" and length == 1 and not part.units[0].steps:
                continue
            try:
                again = ways(part, kinds, {n: found.between[n] for n in part.inputs})
            except pk.PolykerError:
                continue
            if any((e.kind, e.slow) == (excess.kind, excess.slow) for e in excesses(timed(again.calls, 3, 0.2))):
                return part
    return None


def main(argv: list[str]) -> None:
    """Time programs of a seed, by their numbers, and write one line of JSON before and after each."""
    seed, kinds, numbers = int(argv[0]), tuple(argv[1].split(",")), [int(n) for n in argv[2].split(",")]
    assert set(kinds) <= set(KINDS), kinds
    faulthandler.enable(sys.stderr)
    say = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for number in numbers:
        program = generate(seed, number)
        known = {"number": number, **program.known}
        _tell(say, begin=number, **known)
        began = time.monotonic()
        try:
            with pk.options(threads=1, timeout=30.0):
                found = report(program, kinds)
        except Exception as error:
            where = "" if isinstance(error, pk.PolykerError) else traceback.format_exc()[-2000:]
            found = {"error": f"{type(error).__name__}: {error}\n{where}"}
        _tell(say, **known, **found, took=round(time.monotonic() - began, 1))


def _tell(stream: Any, **values: Any) -> None:
    stream.write(json.dumps(values) + "\n")
    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
