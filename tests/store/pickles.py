"""Pickle every benchmark operator and its kernel, and take them up again: `python -m tests.store.pickles [--every N]`.

The operator has to be the same text, and its kernel the same machine code, of which nothing is compiled again.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice

import polyker as pk
from benchmarks.cases import select
from polyker.api.compiling import kernels
from polyker.ir.dtypes import DTYPES
from tests.artifacts import compiled_of


def problems(every: int) -> Iterator[str]:
    """Yield what is wrong with one benchmark case in `every`, and nothing where all is well."""
    for case in islice(select(), 0, None, every):
        problem = case.problem()
        types = [DTYPES[o.dtype][o.shape] for o in problem.inputs]
        op = pk.op(problem.text, **problem.fixed)
        kernel = op.compile(*types, threads=1)
        first = compiled_of(kernel).executable()
        told = pickle.dumps((op, kernel))
        kernels.clear()
        other, again = pickle.loads(told)
        if other.identity != op.identity or str(other) != str(op):
            yield f"{case.name}: another operator"
        found = list(compiled_of(again).executables.values())
        if (
            len(found) != 1
            or not found[0].from_disk
            or found[0].image != first.image
            or found[0].record != first.record
        ):
            yield f"{case.name}: another kernel"
        kernels.clear()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take one case in N")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"POLYKER_CACHE": "rw", "POLYKER_CACHE_DIR": folder}
        began, found = time.monotonic(), list(problems(given.every))
    print("\n".join([*found, f"{len(found)} problems, {time.monotonic() - began:.0f} s"]))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
