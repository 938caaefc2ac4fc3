"""Derivatives of random programs: `python -m tests.fuzz.gradients --programs 2000 --seed 1`.

Forward mode has to give what dual numbers give, element by element; reverse mode has to be its transpose: for random changes v of
the inputs and weights w of the outputs `<w, J v> = <J^T w, v>`; of every second program it reads residuals. Errors are relative
to the sum of the absolute values of what a derivative is the sum of.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np

import polyker as pk
from polyker.errors import DTypeError, InternalError, PolykerError
from polyker.ir.dtypes import DTYPES
from tests.dual.interpreter import dual
from tests.fuzz.case import Case
from tests.fuzz.generate import generate
from tests.fuzz.judging import main
from tests.fuzz.sequences import sequence

# Relative errors that are allowed, by the narrowest type that a program computes in.
ALLOWED = {"f64": 1e-6, "f32": 1e-3, "half": 0.2}


def judged(case: Case) -> str:
    """Return what came of a program: "checked", what it was refused for, or "WRONG" with the difference."""
    text = case.text if case.number % 4 == 0 else _of_floats(case)
    x = _arguments(case, integers=False)
    sizes = {} if case.early else dict(case.sizes)
    try:
        op = pk.op(text, **(dict(case.sizes) if case.early else {}))
        try:
            results = _called(op, {**x, **sizes})
        except DTypeError:
            op, x = pk.op(case.text, **op.fixed), _arguments(case, integers=True)
            results = _called(op, {**x, **sizes})
    except InternalError:
        raise
    except PolykerError as error:
        return f"no program {error.code}"
    try:
        # An argument of integers is none that changes, though the program takes floats in its place.
        moving = [n.removeprefix("d") for n in op.jvp().signature.inputs if n not in x]
        wrt = [n for n in moving if x[n].dtype.kind == "f"]
        if not wrt:
            return "of integers"
        passes = op.vjp_with_residuals(wrt) if case.number % 2 else (None, op.vjp(wrt))
        reverse, forward = passes[1], op.jvp(wrt)
    except InternalError:
        raise
    except PolykerError as error:
        return f"refused {error.code}: {error.message}"
    of = [n for n in results if f"d{n}" in reverse.signature.inputs]
    rng = np.random.default_rng(case.number)
    changes = {n: rng.standard_normal(x[n].shape) for n in wrt}
    weights = {n: rng.standard_normal(results[n].shape) for n in of}
    with np.errstate(all="ignore"):
        try:
            moved = list(_called(forward, {**x, **{f"d{n}": v for n, v in changes.items()}, **sizes}).values())
            kept = _called(passes[0], {**x, **sizes}) if passes[0] is not None else {}
            given = {**kept, **x, **{f"d{n}": v for n, v in weights.items()}, **sizes}
            found = list(_called(reverse, given).values())
        except InternalError:
            raise
        except PolykerError as error:
            return f"derivative refused {error.code}"
        known = dual(op.program, x, changes, {**sizes, **op.fixed})
        wanted = {n: known[n][1] for n in of}
        allowed = ALLOWED[_narrowest(op, x)]
        for n, m in zip(of, moved, strict=True):
            value, size = np.asarray(wanted[n].value), np.asarray(wanted[n].size)
            finite = np.isfinite(value) & np.isfinite(size) & np.isfinite(np.asarray(known[n][0], float))
            wrong = finite & ~(abs(m - value) <= allowed * size)
            if wrong.any():
                return f"WRONG: {n} moves by {value[wrong][0]} (size {size[wrong][0]}), forward mode says {m[wrong][0]}"
        along = sum(float(np.sum(wanted[n].value * weights[n])) for n in of)
        back = sum(float(np.sum(g * changes[n])) for g, n in zip(found, wrt, strict=True))
        size = sum(float(np.sum(abs(wanted[n].size * weights[n]))) for n in of)
        if not np.isfinite(size):
            return "not finite"
        if not abs(along - back) <= allowed * size:
            return f"WRONG: along {along} (size {size}), reverse mode says {back}"
    return "checked" if size else "checked, but nothing moves"


def _narrowest(op: pk.Operator, x: dict[str, Any]) -> str:
    text = str(op.program)
    if re.search(r"\bb?f16\b", text) or any(a.dtype.itemsize == 2 and a.dtype.kind == "f" for a in x.values()):
        return "half"
    narrow = re.search(r"\b(f32|i8|u8|i16|u16|bool)\b", text) or any(a.dtype == np.float32 for a in x.values())
    return "f32" if narrow else "f64"


def _of_floats(case: Case) -> str:
    """Return the text of a case with f64 declared for all inputs but those that hold indices."""
    text = case.text
    for i in case.inputs:
        if not i.limit:
            text = re.sub(rf"\b{i.name}: {i.dtype}\b", f"{i.name}: f64", text)
    return text


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


def made(seed: int, number: int) -> Case:
    """Return a case: every third is a program of statements in order, most of them smooth."""
    return sequence(seed, number) if number % 3 == 2 else generate(seed, number)


if __name__ == "__main__":
    sys.exit(main(__doc__, [judged], made))
