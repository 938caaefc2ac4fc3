"""The functions of the notation: one table of what each takes and gives.

What needs to know something of every function takes it from here: the parser, typing, the interpreter, costs, and CUDA's header.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the notation.

    `takes`: "float" where integers and bool become floats first, as for numpy's `exp`; "number" where they are taken as they
    are; "integer" where only integers and bool are taken. `complex`: whether it takes complex numbers. `transcendental`: whether
    it takes a dozen operations or more, as polynomials do. `c`: its name in C's library, and so CUDA's, where that computes it.
    """

    name: str
    arity: int = 1
    takes: str = "float"
    complex: bool = False
    transcendental: bool = False
    c: str = ""


def _float(name: str, *, arity: int = 1, complex: bool = False, c: str | None = None) -> Function:
    return Function(name, arity, "float", complex, True, name if c is None else c)


def _number(name: str, *, arity: int = 1, complex: bool = False, c: str = "") -> Function:
    return Function(name, arity, "number", complex, False, c)


_ALL = (
    _number("abs", complex=True, c="fabs"),
    _float("exp", complex=True),
    _float("exp2", complex=True),
    _float("expm1", complex=True),
    _float("log", complex=True),
    _float("log2", complex=True),
    _float("log10", complex=True),
    _float("log1p", complex=True),
    Function("sqrt", complex=True, c="sqrt"),
    _float("cbrt"),
    Function("rsqrt", complex=True),
    _float("hypot", arity=2),
    _float("sin", complex=True),
    _float("cos", complex=True),
    _float("tan", complex=True),
    _float("asin"),
    _float("acos"),
    _float("atan"),
    _float("atan2", arity=2),
    _float("sinh", complex=True),
    _float("cosh", complex=True),
    _float("tanh", complex=True),
    _float("asinh"),
    _float("acosh"),
    _float("atanh"),
    _float("erf"),
    _float("erfc"),
    _float("erfinv"),
    _float("lgamma"),
    _float("digamma", c=""),
    _float("sigmoid", complex=True, c=""),
    _number("relu"),
    _float("gelu", c=""),
    _float("silu", complex=True, c=""),
    _float("softplus", c=""),
    _number("floor", c="floor"),
    _number("ceil", c="ceil"),
    _number("trunc", c="trunc"),
    _number("round", complex=True, c="rint"),
    _number("sign", complex=True),
    Function("copysign", 2, c="copysign"),
    _number("fmod", arity=2, c="fmod"),
    _number("clip", arity=3),
    _number("minimum", arity=2),
    _number("maximum", arity=2),
    _number("isnan", complex=True),
    _number("isinf", complex=True),
    _number("isfinite", complex=True),
    Function("popcount", takes="integer"),
    _number("conj", complex=True),
    _number("real", complex=True),
    _number("imag", complex=True),
    _number("where", arity=3, complex=True),
)
TABLE = {f.name: f for f in _ALL}
