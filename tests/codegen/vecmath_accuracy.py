"""Measure the largest error of each vector function against mpmath:
`python -m tests.codegen.vecmath_accuracy [points [function ...]]`.

Prints the rows of the table in docs/accuracy.md. Two million points a function and format take some minutes.
"""

from __future__ import annotations

import sys

from polyker.ir.dtypes import f32, f64
from tests.codegen.vecmath_harness import HAS_AVX512, Compiled
from tests.codegen.vecmath_reference import REAL_OPS, dense_worst


def row(op: str, count: int) -> str:
    """Return one row: with a fused multiply-add in f32 and f64, on this processor, and without."""
    elements, places = [], []
    for fma in (True, False):
        for dtype, lanes in ((f32, 16), (f64, 8)):
            function = Compiled(op, dtype, lanes, fma=fma, avx512=fma and HAS_AVX512)
            error, where = dense_worst(op, function, function.element, count, seed=23)
            elements.append(f"{error:.2f}")
            places.append(", ".join(f"{w:.9g}" for w in where))
    return f"| {op} | {elements[0]} | {places[0]} | {elements[1]} | {places[1]} | {elements[2]} | {elements[3]} |"


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    for name in sys.argv[2:] or REAL_OPS:
        print(row(name, size), flush=True)
