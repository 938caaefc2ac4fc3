"""What a case's result has to be: by the plain interpreter, and by the tracked evaluation with its error bounds."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct

from polyker.einsum_frontend import parse
from polyker.errors import PolykerError
from polyker.ir.dtypes import DTYPES
from polyker.ir.expr import TRANSCENDENTAL, Call, Cast, Literal, Reduce, walk
from polyker.ir.program import Program
from polyker.reference import interpret
from tests.fuzz.case import Case
from tests.fuzz.data import arrays_of
from tests.fuzz.tracked import Evaluator, Uncertain

ROUNDED = (*TRANSCENDENTAL, "sqrt", "rsqrt", "div", "pow", "mean", "logsumexp")


@lru_cache(256)
def parsed(text: str) -> Program:
    """Return the program of a text; warnings of the front end are not the fuzzer's business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse(text)


@lru_cache(4)
def reference(case: Case) -> tuple[Any, ...] | PolykerError:
    """Return the plain interpreter's outputs, or the error that it raises."""
    try:
        acc = DTYPES[case.acc] if case.acc else None
        return interpret(parsed(case.text), arrays_of(case), dict(case.sizes), acc)
    except PolykerError as error:
        return error


@lru_cache(4)
def tracked(case: Case) -> tuple[Any, ...] | None:
    """Return the (value, error bound) of each output, None where a decision hangs on rounding."""
    acc = DTYPES[case.acc] if case.acc else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tuple(Evaluator(parsed(case.text), arrays_of(case), dict(case.sizes), acc).run())
    except Uncertain:
        return None


class Verdict(Struct, frozen=True):
    """Whether a result is right: `problem` says what is wrong; `exact` whether it was compared for equal bits."""

    problem: str = ""
    exact: bool = False
    ulps: float = 0.0
    unsure: bool = False


def judge(case: Case, got: tuple[Any, ...]) -> Verdict:
    """Compare outputs with the oracles."""
    program = parsed(case.text)
    big = "big" in case.features
    wanted = None if big else reference(case)
    if isinstance(wanted, PolykerError):
        return Verdict(f"the interpreter raises {type(wanted).__name__}: {wanted}")
    bounds = tracked(case)
    exact, worst = True, 0.0
    if bounds is None and (wanted is None or not got):
        return Verdict(unsure=True)
    for k, name in enumerate(program.outputs):
        a = np.asarray(got[k])
        if wanted is not None:
            w = wanted[k]
            if a.shape != w.shape or a.dtype != w.dtype:
                return Verdict(f"{name}: got {a.dtype}{list(a.shape)}, wanted {w.dtype}{list(w.shape)}")
            if a.dtype.kind in "biu":
                if not np.array_equal(a, w) and (bounds is not None or _whole_program(case, program)):
                    return Verdict(f"{name}: {_first(a, w, a != w)}")
                continue
        if bounds is None:
            return Verdict(unsure=True)
        b = bounds[k]
        if a.shape != b.val.shape or a.dtype != b.tag.numpy:
            return Verdict(f"{name}: got {a.dtype}{list(a.shape)}, wanted {b.tag}{list(b.val.shape)}")
        if a.dtype.kind in "biu":
            if not np.array_equal(a, b.val):
                return Verdict(f"{name}: {_first(a, b.val, a != b.val)}")
            continue
        bad, off = compare(a, b.val, b.err)
        if bad.any():
            return Verdict(f"{name}: {_first(a, b.val, bad, b.err)}")
        exact &= bool((b.err == 0).all())
        worst = max(worst, off)
    return Verdict("", exact, worst)


def _whole_program(case: Case, program: Program) -> bool:
    """Whether nothing in a case is rounded: integers come in, and no function or literal makes other numbers of them."""
    if not all(DTYPES[i.dtype].kind in "biu" for i in case.inputs):
        return False
    if any(s.op == "logsumexp" for s in program.statements()):
        return False
    nodes = [n for s in program.statements() for e in (s.expr, *s.conditions) for n in walk(e)]
    if any(isinstance(n, (Call, Reduce)) and n.op in ROUNDED for n in nodes):
        return False
    return all(isinstance(n.value, int) for n in nodes if isinstance(n, Literal)) and all(
        n.to.kind in "biu" for n in nodes if isinstance(n, Cast)
    )


def compare(a: Any, val: Any, err: Any) -> tuple[Any, float]:
    """Return which values of `a` lie outside the bound, and the largest error as a share of it."""
    wide = a.astype(val.dtype)
    nan = np.isnan(val)
    with np.errstate(all="ignore"):
        off = np.abs(wide - val)
        finite = np.isfinite(val) & np.isfinite(err)
        bad = finite & ~(off <= err)
        certain = ~np.isfinite(val) & (err == 0)
        same = np.where(nan, np.isnan(wide), wide == val) if not np.iscomplexobj(val) else ~np.isfinite(wide)
        bad |= certain & ~same
        share = off[finite & (err > 0)] / err[finite & (err > 0)]
    return bad, float(share.max()) if share.size else 0.0


def _first(a: Any, w: Any, bad: Any, err: Any = None) -> str:
    elements = np.argwhere(bad)
    c = tuple(map(int, elements[0])) if len(elements) else ()
    text = f"{len(elements)} of {a.size} elements differ; at {list(c)} got {a[c]!r}, wanted {w[c]!r}"
    return text + (f" +- {err[c]:.3g}" if err is not None else "")
