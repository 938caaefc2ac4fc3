"""Derivatives of random programs: `python -m tests.fuzz.gradients --programs 2000 --seed 1`.

Reverse mode and forward mode have to agree on every program, and forward mode with differences of the results wherever these
are smooth: where two steps of different lengths say the same.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from typing import Any

import numpy as np

import polyker as pk
from polyker.errors import DTypeError, InternalError, PolykerError
from polyker.ir.dtypes import DTYPES
from tests.fuzz.case import Case
from tests.fuzz.generate import generate

STEPS = (1e-5, 4e-6)


def judged(case: Case) -> str:
    """Return what came of a program: "checked", what it was refused for, or "WRONG" with the difference."""
    op = pk.op(case.text, **(dict(case.sizes) if case.early else {}))
    x = _arguments(case, integers=False)
    sizes = {} if case.early else dict(case.sizes)
    try:
        try:
            results = _called(op, {**x, **sizes})
        except DTypeError:
            x = _arguments(case, integers=True)
            results = _called(op, {**x, **sizes})
        reverse, forward = op.vjp(), op.jvp()
    except InternalError:
        raise
    except PolykerError as error:
        return f"refused {error.code}"
    wrt = [n.removeprefix("d") for n in forward.signature.inputs if n not in x]
    wrt = [n for n in wrt if n in x]
    of = [n for n in results if f"d{n}" in reverse.signature.inputs]
    rng = np.random.default_rng(case.number)
    changes = {n: rng.standard_normal(x[n].shape) for n in wrt}
    weights = {n: rng.standard_normal(results[n].shape) for n in of}
    with np.errstate(all="ignore"):
        try:
            moved = list(_called(forward, {**x, **{f"d{n}": v for n, v in changes.items()}, **sizes}).values())
            found = list(_called(reverse, {**x, **{f"d{n}": v for n, v in weights.items()}, **sizes}).values())
        except InternalError:
            raise
        except PolykerError as error:
            return f"derivative refused {error.code}"
        along = sum(float(np.sum(m * weights[n])) for m, n in zip(moved, of, strict=True))
        back = sum(float(np.sum(g * changes[n])) for g, n in zip(found, wrt, strict=True))
        size = sum(float(np.sum(abs(m * weights[n]))) for m, n in zip(moved, of, strict=True))
        if not np.isfinite(size) or not np.isfinite(back):
            return "not finite"
        if abs(along - back) > 1e-8 * (1 + size):
            return f"WRONG: forward {along}, back {back}"
        return _against_differences(op, x, sizes, changes, dict(zip(of, moved, strict=True)))


def _against_differences(
    op: pk.Operator, x: dict[str, Any], sizes: dict[str, int], changes: dict[str, Any], moved: dict[str, Any]
) -> str:
    """Return "checked", "rough" where no element is smooth, or what differs."""
    if any(a.dtype != np.float64 for n, a in x.items() if n in changes):
        return "rounded"
    if re.search(r"\b(f32|f16|bf16)\(", str(op.program)):
        return "rounded"  # in steps that are longer than those here
    slopes = []
    for step in STEPS:
        above, below = (
            _called(op, {**x, **{n: x[n] + s * v for n, v in changes.items()}, **sizes}) for s in (step, -step)
        )
        slopes.append({n: (above[n] - below[n]) / (2 * step) for n in moved})
    checked = 0
    for n, m in moved.items():
        one, other = (np.asarray(s[n], float) for s in slopes)
        size = 1 + np.maximum(abs(one), abs(other))
        smooth = np.isfinite(one) & np.isfinite(other) & (abs(one - other) < 1e-6 * size)
        wrong = smooth & ~(abs(m - one) < 1e-4 * size)
        if wrong.any():
            return f"WRONG: {n} moves by {one[wrong][0]}, forward mode says {np.asarray(m)[wrong][0]}"
        checked += int(smooth.sum())
    return "checked" if checked else "rough"


def _arguments(case: Case, *, integers: bool) -> dict[str, Any]:
    """Return arrays for a case: of floats what may be floats, unless `integers` are what the program takes."""
    rng = np.random.default_rng(case.number + 1)
    return {
        i.name: rng.integers(0, max(1, i.limit or 2), i.shape).astype(DTYPES[i.dtype].numpy)
        if i.limit or (integers and i.dtype[0] in "iub")
        else rng.standard_normal(i.shape)
        for i in case.inputs
    }


def _called(op: pk.Operator, given: dict[str, Any]) -> dict[str, Any]:
    taken = {*op.signature.parameters, *op.signature.sizes} - {*op.fixed}
    found = op(**{n: v for n, v in given.items() if n in taken})
    outputs = op.signature.outputs
    return {n: np.asarray(v) for n, v in zip(outputs, found if len(outputs) > 1 else (found,), strict=True)}


def campaign(seed: int, first: int, count: int) -> tuple[Counter[str], list[str]]:
    """Return how many programs came to what, and those that are wrong."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(first, first + count):
        case = generate(seed, number)
        if case.invalid:
            continue
        try:
            said = judged(case)
        except Exception as error:
            said = f"WRONG: {type(error).__name__} {str(error)[:300]}"
        counts[said.partition(":")[0]] += 1
        if said.startswith("WRONG"):
            wrong.append(f"program {seed}/{number}: {said}\n{case.text}")
    return counts, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    counts, wrong = campaign(given.seed, given.first, given.programs)
    print(*wrong, sep="\n\n")
    print(", ".join(f"{n} {what}" for what, n in counts.most_common()))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
