"""Random programs on several threads: the bits of one thread, or its error. `python -m tests.fuzz.threads --cases 200`."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

import polyker as pk
from polyker.codegen.passes import parallel_profitability as regions
from polyker.errors import PolykerError
from tests.fuzz.case import Case
from tests.fuzz.data import arrays_of
from tests.fuzz.generate import generate

THREADS = (1, 2, 3, 8)


@contextmanager
def whatever_it_wins() -> Iterator[None]:
    """Run all loops on threads that may run so, however little they do."""
    from polyker.pipeline import threads as lowering
    from polyker.schedule.threads import parallel

    with (
        patch.object(lowering, "MIN_PARALLEL_OPERATIONS", 1),
        patch.object(parallel, "REGION_OPERATIONS", 1e-6),
        patch.object(regions.settle, "__defaults__", (1,)),
    ):
        yield


def result(case: Case, threads: int, rounded: dict[str, Any]) -> tuple[object, bool]:
    """Return the bytes of a case's results, or the error's code; and whether regions are in its kernel."""
    sizes = dict(case.sizes)
    with pk.options(threads=threads, deterministic=True, specialize="always"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operator = pk.op(case.text)
        try:
            kernel = operator.compile(**rounded, **sizes)
            found = kernel(**{k: v.copy() if isinstance(v, np.ndarray) else v for k, v in rounded.items()})
        except PolykerError as error:
            return error.code, False
    arrays = found if isinstance(found, tuple) else (found,)
    return [np.asarray(a).tobytes() for a in arrays], "parallel(" in kernel.source("schedule")


def inputs_of(case: Case) -> dict[str, Any]:
    """Return inputs whose sums are rounded, so that their order shows."""
    rng = np.random.default_rng(case.number)
    found = arrays_of(case)
    for name, value in found.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            found[name] = rng.standard_normal(value.shape).astype(value.dtype)
    return found


def differs(case: Case) -> tuple[str, bool]:
    """Return what is wrong with a case, "" for nothing, and whether some loop ran on threads."""
    rounded = inputs_of(case)
    wanted, _ = result(case, 1, rounded)
    regions_seen = False
    for threads in THREADS[1:]:
        got, inside = result(case, threads, rounded)
        regions_seen |= inside
        if got != wanted:
            return f"{threads} threads give something else than one:\n{case.text}\n{case}", regions_seen
    return "", regions_seen


def run(count: int, seed: int, start: int = 0) -> tuple[list[str], int]:
    """Return what is wrong with random cases, and how many ran loops on threads."""
    wrong, parallel = [], 0
    with whatever_it_wins():
        number = start
        done = 0
        while done < count:
            case = generate(seed, number)
            number += 1
            if "big" in case.features or case.invalid:
                continue
            done += 1
            problem, inside = differs(case)
            parallel += inside
            wrong += [problem] if problem else []
    return wrong, parallel


def main() -> int:
    """Run a campaign; return 1 if a case differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.threads", description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.monotonic()
    wrong, parallel = run(options.cases, options.seed)
    print(*wrong, sep="\n")
    print(
        f"{options.cases} cases, {parallel} of them with loops on threads, {len(wrong)} differ; {time.monotonic() - began:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
