"""The table of functions. To add one, add its entry: docs/how_to/add_a_function.md shows how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from polyker.ir.dtypes import f16, i8
from polyker.ir.functions.composition import composed
from polyker.ir.functions.function import DIVIDER, ONE, POLYNOMIAL, Cost, Function
from polyker.ir.functions.special import complementary, digamma, error_function, inverse_error_function, log_gamma
from polyker.ir.functions.values import by_element, gelu, sigmoid, softplus
from polyker.structs import replace

# What operators cost that take more than one instruction.
OPERATORS = {
    "div": DIVIDER,
    "floordiv": Cost(4, 8, long_on_gpus=True),
    "mod": Cost(4, 8, long_on_gpus=True),
    "pow": replace(POLYNOMIAL, usual=58),
}


def _float(name: str, usual: int, numpy: Callable[..., Any], about: str, **more: Any) -> Function:
    """Return a function of floats that takes a polynomial, in C's library by its own name unless `c` says otherwise.

    `usual`: the instructions of its vector code for f32, which a test counts.
    """
    return Function(name, numpy=numpy, about=about, cost=replace(POLYNOMIAL, usual=usual), **{"c": name} | more)


def _rounding(name: str, numpy: Callable[..., Any], about: str, **more: Any) -> Function:
    """Return a function that rounds to an integer of its own type, of C's library and of LLVM by that name."""
    return Function(name, takes="number", itself="iub", numpy=numpy, about=about, **{"c": name, "llvm": name} | more)


def _class(name: str, numpy: Callable[..., Any], about: str, alias: str) -> Function:
    """Return a test of a number, which typing writes by comparisons of its size."""
    return Function(
        name, takes="number", complex=True, gives="bool", expanded="biufc", numpy=numpy, aliases=(alias,), about=about
    )


def _size(low: int, high: int) -> tuple[int, int]:
    return 0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high))


_NEITHER = "NaN in either stays"
_ITSELF = "what is real stays itself"
_COUNTS = ("bitwise_count", "bit_count", "population_count", "popcnt", "popc", "ctpop")
FUNCTIONS = (
    Function("abs", takes="number", complex=True, gives="real", itself="ub", numpy=abs, interval=_size, c="fabs",
             aliases=("absolute", "fabs"),
             about="of a complex number its size, infinite if a part is; the least integer stays itself"),
    _float("exp", 16, np.exp, "overflow and underflow at the right number", complex=True),
    _float("exp2", 17, np.exp2, "exact of whole numbers", complex=True),
    _float("expm1", 23, np.expm1, "keeps -0.0", complex=True),
    _float("log", 23, np.log, "-inf at 0, NaN below", complex=True, aliases=("ln",)),
    _float("log2", 26, np.log2, "exact of powers of 2; -inf at 0, NaN below", complex=True),
    _float("log10", 28, np.log10, "exact of powers of 10; -inf at 0, NaN below", complex=True),
    _float("log1p", 42, np.log1p, "-inf at -1, NaN below; keeps -0.0", complex=True),
    Function("sqrt", complex=True, numpy=np.sqrt, llvm="sqrt", c="sqrt", cost=DIVIDER,
             about="rounded correctly; NaN below 0; keeps -0.0"),
    _float("cbrt", 25, np.cbrt, "defined below 0; keeps -0.0"),
    Function("rsqrt", complex=True, written="1 / sqrt(x)", cost=Cost(4, 8), about="1 / sqrt(x): inf at 0, -inf at -0.0"),
    _float("hypot", 15, np.hypot, "neither overflows nor underflows on the way; inf if one is, even beside NaN", arity=2),
    _float("sin", 51, np.sin, "NaN at ±inf", complex=True),
    _float("cos", 53, np.cos, "NaN at ±inf", complex=True),
    _float("tan", 51, np.tan, "NaN at ±inf", complex=True),
    _float("asin", 27, np.arcsin, "NaN beyond ±1", aliases=("arcsin",)),
    _float("acos", 30, np.arccos, "NaN beyond ±1", aliases=("arccos",)),
    _float("atan", 25, np.arctan, "±pi/2 at ±inf", aliases=("arctan",)),
    _float("atan2", 56, np.arctan2, "atan2(y, x), the angle of (x, y); signed zeros as C", arity=2, aliases=("arctan2",)),
    _float("sinh", 33, np.sinh, "keeps -0.0", complex=True),
    _float("cosh", 30, np.cosh, "inf at ±inf", complex=True),
    _float("tanh", 20, np.tanh, "±1 at ±inf", complex=True),
    _float("asinh", 57, np.arcsinh, "keeps -0.0", aliases=("arcsinh",)),
    _float("acosh", 60, np.arccosh, "NaN below 1", aliases=("arccosh",)),
    _float("atanh", 57, np.arctanh, "±inf at ±1, NaN beyond", aliases=("arctanh",)),
    _float("erf", 23, by_element(error_function), "±1 at ±inf"),
    _float("erfc", 71, by_element(complementary), "1 - erf(x) without cancellation; 2 at -inf"),
    _float("erfinv", 61, by_element(inverse_error_function), "±inf at ±1, NaN beyond", aliases=("erf_inv",)),
    _float("lgamma", 80, by_element(log_gamma), "log of the size of gamma: inf at 0, -1, -2, …",
           aliases=("gammaln", "loggamma")),
    _float("digamma", 84, by_element(digamma), "the derivative of lgamma: NaN at -1, -2, …; -inf at 0, inf at -0.0", c="",
           aliases=("psi",)),
    _float("sigmoid", 22, sigmoid, "1 / (1 + exp(-x)): 0 at -inf", complex=True, c="", written="1 / (1 + exp(-x))",
           expanded="c", aliases=("logistic", "expit")),
    Function("relu", takes="number", of_bool=None, written="maximum(x, 0)", cost=ONE,
             about="the larger of x and 0; keeps NaN; no bool"),
    _float("gelu", 37, gelu, "x (1 + erf(x / sqrt(2))) / 2; NaN at -inf", c="",
           written="0.5 * x * erfc(x * -0.7071067811865475244)"),
    _float("silu", 27, lambda x: x * sigmoid(x), "x sigmoid(x); NaN at -inf", complex=True, c="",
           written="x / (1 + exp(-x))", expanded="c", aliases=("swish",)),
    _float("softplus", 53, softplus, "numpy.logaddexp(0, x), stable everywhere: 0 at -inf", c="",
           written="where(x > 0, x + log1p(exp(-x)), log1p(exp(x)))"),
    _rounding("floor", np.floor, "an integer stays itself"),
    _rounding("ceil", np.ceil, "an integer stays itself"),
    _rounding("trunc", np.trunc, "rounds to 0; an integer stays itself", aliases=("fix", "truncate")),
    _rounding("round", np.rint, "to even, as numpy.round; of bool f16", complex=True, of_bool=f16, c="rint",
              llvm="roundeven", aliases=("rint",)),
    Function("sign", takes="number", complex=True, of_bool=None, numpy=np.sign, aliases=("sgn",),
             about="NaN stays; z / |z| of complex z; no bool"),
    Function("copysign", 2, numpy=np.copysign, llvm="copysign", c="copysign", about="takes the sign of -0.0 and of NaN, too"),
    Function("fmod", 2, "number", of_bool=i8, numpy=np.fmod, c="fmod", cost=Cost(4, 8, True, True), aliases=("truncatemod",),
             about="the sign of what is divided; by 0 NaN, of integers 0"),
    Function("clip", 3, "number", written="minimum(maximum(x, y), z)", expanded="biufc", cost=ONE,
             aliases=("clamp", "clip_by_value"),
             about="clip(x, low, high) = minimum(maximum(x, low), high); NaN in any stays"),
    Function("minimum", 2, "number", numpy=np.minimum, aliases=("fmin",), about=_NEITHER),
    Function("maximum", 2, "number", numpy=np.maximum, aliases=("fmax",), about=_NEITHER),
    _class("isnan", np.isnan, "bool; False of integers", "is_nan"),
    _class("isinf", np.isinf, "bool; False of integers", "is_inf"),
    _class("isfinite", np.isfinite, "bool; True of integers", "is_finite"),
    Function("popcount", takes="integer", gives="u8", numpy=np.bitwise_count, interval=lambda low, high: (0, 64),
             llvm="ctpop", aliases=_COUNTS, about="numpy.bitwise_count: the ones of the magnitude, u8"),
    Function("conj", takes="number", complex=True, itself="iufb", numpy=np.conj, aliases=("conjugate",), about=_ITSELF),
    Function("real", takes="number", complex=True, gives="real", itself="iufb", numpy=np.real, about=_ITSELF),
    Function("imag", takes="number", complex=True, gives="real", numpy=np.imag, about="0 of what is real"),
    Function("where", 3, "number", complex=True, numpy=np.where,
             aliases=("select", "ifelse", "if_else", "cond", "iif"),
             about="where(condition, x, y); chooses a value and guards no access"),
)  # fmt: skip
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "minimum": np.minimum, "maximum": np.maximum, "where": np.where,
}  # fmt: skip
_NUMPY = dict(_OPERATIONS)  # and of each function, once it is in the table


def table_of(entries: Iterable[Function]) -> dict[str, Function]:
    """Return the entries by name, what they leave out filled in."""
    found: dict[str, Function] = {}
    for f in entries:
        if f.numpy is None and not f.written:
            raise ValueError(f"the function {f.name} has neither a value of NumPy's nor a composition")
        numpy = f.numpy or _composed_value(f.written)
        composed_cost = _composed_cost(f, found) if f.written else ONE
        _NUMPY.setdefault(f.name, numpy)
        found[f.name] = replace(f, numpy=numpy, cost=f.cost or composed_cost)
    return found


def _composed_value(text: str) -> Callable[..., Any]:
    return lambda *args: composed(text, args, lambda op, values: _NUMPY[op](*values), lambda number: number)


def _composed_cost(f: Function, known: dict[str, Function]) -> Cost:
    """Return the cost of a composition, the sum of that of its operations.

    Raises ValueError where it has an operation that is no operator and stands not above it in the table.
    """
    total = Cost(0, 0)

    def add(op: str, args: tuple[None, ...]) -> None:
        nonlocal total
        if op not in known and op not in _OPERATIONS:
            raise ValueError(f"the function {f.name} is written by {op!r}, which does not stand above it")
        if op in known and known[op].arity != len(args):
            raise ValueError(f"the function {f.name} gives {op!r} {len(args)} arguments, not {known[op].arity}")
        total += (known[op].cost if op in known else OPERATORS.get(op)) or ONE

    composed(f.written, (None,) * f.arity, add, lambda _: None)
    return total


TABLE = table_of(FUNCTIONS)


def cost_of(op: str) -> Cost:
    """Return what an operator or a function costs on a vector."""
    known = TABLE.get(op)
    return OPERATORS.get(op, ONE) if known is None or known.cost is None else known.cost
