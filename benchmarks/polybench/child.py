"""One program, measured in a process of its own: `python -m benchmarks.polybench.child CASE SIZE ...`, started by run.py.

Prints a line before and after each contestant's first run, so that the parent can end what takes too long; then the outcome as
JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from benchmarks import process

OURS = "polyker"
PEERS = ("numba", "numpy")
# Seconds; a run that is shorter is done once more before it is timed.
SHORT = 0.3
WARM = 4  # calls of polyker's kernel before it is timed


def main(arguments: list[str] | None = None) -> int:
    """Measure one program; return the exit status."""
    found = argparse.ArgumentParser()
    found.add_argument("case")
    found.add_argument("size")
    found.add_argument("--peers", default=",".join(PEERS))
    found.add_argument("--rounds", type=int, default=5)
    found.add_argument("--seconds", type=float, default=10.0)
    found.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    found.add_argument("--core", type=int)
    options = found.parse_args(arguments)
    process.prepare(options.core)
    warnings.simplefilter("ignore", RuntimeWarning)  # gramschmidt divides by zero where columns depend on each other
    print(json.dumps(measure(options)), flush=True)
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the outcome: `seconds` of each contestant, `compile` of polyker in seconds, `fault` if a result is wrong."""
    from benchmarks.polybench.case import results
    from benchmarks.polybench.suite import select
    from benchmarks.timing import once

    (case,) = select(options.case)
    inputs = case.inputs(options.size)
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    calls: dict[str, Callable[[], Any]] = {}
    seconds: dict[str, list[float]] = {}
    first: dict[str, Any] = {}
    compiled = 0.0
    for name in (OURS, *filter(None, options.peers.split(","))):
        if name == OURS:
            began = time.perf_counter()
            calls[name] = ours(case, inputs)
            compiled = time.perf_counter() - began
        else:
            calls[name] = peer(name, case, inputs)
        print(f"begin {name}", flush=True)
        began = clock()
        first[name] = results(calls[name]())
        seconds[name] = [clock() - began]
        print(f"end {name}", flush=True)
    fault = ""
    if len(first) > 1:
        other = next(name for name in first if name != OURS)
        fault = case.check(inputs, first[OURS], first[other])
    first.clear()
    while len(seconds[OURS]) < WARM and sum(seconds[OURS]) < SHORT:  # the third call makes the way for those after it
        seconds[OURS].append(once(calls[OURS], 1, clock))
    seconds[OURS] = seconds[OURS][:1] if len(seconds[OURS]) < WARM else [min(seconds[OURS])]
    repeats = {name: max(1, round(2e-3 / max(taken[0], 1e-7))) for name, taken in seconds.items()}
    began = time.perf_counter()
    names = list(calls)
    for turn in range(options.rounds):
        if turn and time.perf_counter() - began > options.seconds:
            break
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            # A run of many seconds is not repeated: what the first one had to fetch is nothing beside it.
            if seconds[name][0] < options.seconds / 4:
                if seconds[name][0] < SHORT:
                    calls[name]()  # its arrays are where they were before the others ran
                seconds[name].append(once(calls[name], repeats[name], clock))
    middle = {name: sorted(taken[1:] or taken)[len(taken[1:] or taken) // 2] for name, taken in seconds.items()}
    return {"seconds": middle, "compile": compiled, "fault": fault}


def ours(case: Any, inputs: dict[str, Any]) -> Callable[[], Any]:
    """Return a call of polyker's kernel, compiled for the inputs, into arrays of its own."""
    import polyker

    kernel = polyker.op(case.text).compile(*inputs.values())
    values = tuple(inputs.values())
    found = kernel(*values)
    outs = tuple(found) if isinstance(found, tuple) else found
    return lambda: kernel(*values, out=outs)


def peer(name: str, case: Any, inputs: dict[str, Any]) -> Callable[[], Any]:
    """Return a call of a peer; what it overwrites is copied in each call, as polyker's kernel copies it."""
    import numpy as np

    function = case.numpy
    if name == "numba":
        import numba

        function = numba.njit(fastmath=True)(case.loops)
        function(*case.inputs("MINI").values())  # compiled here
    kept = {n for n in case.changed if isinstance(inputs[n], np.ndarray)}
    spare = {n: np.empty_like(inputs[n]) for n in kept}

    def call() -> Any:
        for n in kept:
            np.copyto(spare[n], inputs[n])
        return function(*(spare.get(n, v) for n, v in inputs.items()))

    return call


if __name__ == "__main__":
    sys.exit(main())
