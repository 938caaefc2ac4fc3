"""Functions that few programs have: how they are written over operands, and what they are with bounds on their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from polyker.codegen.vecmath import functions as vecmath
from polyker.ir import dtypes as dt
from polyker.ir.functions.special import complementary, digamma, inverse_error_function, log_gamma
from polyker.reference.functions import binary, several, unary
from polyker.reference.tags import settle
from tests.fuzz.bounds import FUNCTION_ULPS, Uncertain, V, convert, rounded

if TYPE_CHECKING:
    from tests.fuzz.generate import Maker


def _each(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda a: np.array([f(np.longdouble(x)) for x in np.ravel(a)], np.longdouble).reshape(np.shape(a))


# Of one float: its value in extended precision, and an argument in its domain.
VALUES = {
    "exp2": np.exp2, "log2": np.log2, "log10": np.log10, "sinh": np.sinh, "cosh": np.cosh,
    "softplus": lambda x: np.logaddexp(x.dtype.type(0), x), "cbrt": np.cbrt, "atan": np.arctan, "asinh": np.arcsinh,
    "asin": np.arcsin, "acos": np.arccos, "acosh": np.arccosh, "atanh": np.arctanh, "erfc": _each(complementary),
    "erfinv": _each(inverse_error_function), "lgamma": _each(log_gamma), "digamma": _each(digamma),
}  # fmt: skip
DOMAIN = {
    **dict.fromkeys(("exp2", "sinh", "cosh", "erfc"), "0.125 * ({0})"),
    **dict.fromkeys(("log2", "log10", "acosh"), "abs({0}) + 1"),
    **dict.fromkeys(("lgamma", "digamma"), "abs({0}) + 2"),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), "0.75 * sin({0})"),
}  # fmt: skip
FLOATING = [name for name in VALUES if vecmath.supported(name, dt.f32)]
COMPLEX = ["exp2", "sinh", "cosh"]
CLASSES = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


def one(m: Maker, text: str, kind: str) -> tuple[str, str] | None:
    """Return a function of an operand and its kind, None where there is none for this kind."""
    r = m.rng
    if kind == "w":
        return None
    names = {"b": ["popcount"], "i": ["popcount", "trunc"], "f": [*FLOATING, *FLOATING, "trunc"], "c": COMPLEX}[kind]
    name = r.choice([*names, *CLASSES] if r.random() < 0.3 else names)
    m.features.add(f"function:{name}")
    written = f"{name}({DOMAIN.get(name, '{0}').format(text)})"
    return written, "b" if name in CLASSES else "i" if name == "popcount" else kind


def two(m: Maker, x: str, y: str, kind: str) -> tuple[str, str] | None:
    """Return a function of two operands and its kind, None where there is none for this kind."""
    if kind not in "if":
        return None
    r = m.rng
    name = r.choice(["fmod", "clip"] if kind == "i" else ["hypot", "atan2", "copysign", "fmod", "clip"])
    m.features.add(f"function:{name}")
    if name == "clip":
        low, high = sorted((r.randint(0, 9), r.randint(0, 9)))
        return r.choice([f"clip({x}, {low}, {high})", f"clip({x}, {low}, {y})", f"clip({x}, {y}, {high})"]), kind
    if name == "copysign":  # the sign of a sum that is 0 is left to the order of its terms
        return f"copysign({x}, {y} + 0.25)", kind
    if name == "atan2":  # away from the origin and the cut
        return f"atan2({x}, abs({y}) + 0.5)", kind
    return f"{name}({x}, {y})", kind


def value(op: str, args: list[V]) -> V | None:
    """Return the value of such a function, None where it is another one.

    Raises:
        Uncertain: where it hangs on a value that is not known well enough.
    """
    if op == "clip":
        tag, function = several("clip", [a.tag for a in args], False)
        args = [convert(a, tag) for a in args]
        return V(tag, function(*(a.val for a in args)), np.max([a.err for a in args], axis=0, initial=0))
    if op in CLASSES or op == "popcount":
        takes, gives, _ = unary(op, args[0].tag, False)
        v = convert(args[0], takes)
        if not np.all(np.isfinite(v.err)):
            raise Uncertain
        return V(gives, (np.bitwise_count if op == "popcount" else CLASSES[op])(v.val), np.zeros(np.shape(v.val)))
    if op not in ("hypot", "atan2", "copysign", "fmod"):
        return None
    takes, gives, function = binary(op, args[0].tag, args[1].tag, False)
    x, y = (convert(a, takes) for a in args)
    if op == "hypot":
        return rounded(gives, np.hypot(x.val, y.val), x.err + y.err, ulps=FUNCTION_ULPS)
    if op == "atan2":
        if not np.all(y.val - y.err >= 0.25):
            raise Uncertain
        return rounded(gives, np.arctan2(x.val, y.val), (x.err + y.err) * 4, ulps=FUNCTION_ULPS)
    if op == "copysign":
        if np.any(~(np.abs(y.val) > y.err)):
            raise Uncertain
        return V(gives, np.copysign(x.val, y.val), x.err)
    if settle(takes).kind == "f" and np.any((x.err > 0) | (y.err > 0)):
        raise Uncertain
    return V(gives, np.fmod(x.val, y.val), np.zeros(np.shape(x.val)))
