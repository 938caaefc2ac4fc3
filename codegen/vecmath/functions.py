"""Vector mathematics as LLVM IR text: every function of the notation, for a scalar or any number of lanes.

A caller asks `function(op, dtype, lanes)`, emits `call` of its symbol, and puts the texts that `link` gives into the module.
The definitions are internal and `alwaysinline`: run LLVM's always-inline pass (or let them be called: correct, but slower).
Values of f16 and bf16 are to be converted to f32 by the caller. No fast-math flag is used, or may be added to these bodies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from polyker.codegen.vecmath import asin as _asin
from polyker.codegen.vecmath import asinh as _asinh
from polyker.codegen.vecmath import atan as _atan
from polyker.codegen.vecmath import cbrt as _cbrt
from polyker.codegen.vecmath import erf as _erf
from polyker.codegen.vecmath import erfinv as _erfinv
from polyker.codegen.vecmath import exp as _exp
from polyker.codegen.vecmath import gamma as _gamma
from polyker.codegen.vecmath import log as _log
from polyker.codegen.vecmath import pow as _pow
from polyker.codegen.vecmath import trig as _trig
from polyker.codegen.vecmath.complex import COMPLEX, absolute, narrowed
from polyker.codegen.vecmath.core import piecewise as _pieces
from polyker.codegen.vecmath.core.build import F32, F64, PURE, Features, FunctionDefinition, MathBuilder, MathValue
from polyker.ir.dtypes import DType
from polyker.ir.functions import TABLE

__all__ = ["Features", "FunctionDefinition", "function", "supported"]

_REAL: dict[str, Callable[..., MathValue]] = {
    "exp": _exp.exp, "expm1": _exp.expm1, "tanh": _exp.tanh, "sigmoid": _exp.sigmoid, "silu": _exp.silu,
    "exp2": _exp.exp2, "softplus": _exp.softplus, "sinh": _exp.sinh, "cosh": _exp.cosh, "log2": _log.log2, "log10": _log.log10,
    "hypot": absolute, "log": _log.log, "log1p": _log.log1p, "sin": _trig.sin, "cos": _trig.cos, "tan": _trig.tan,
    "erf": _erf.erf, "gelu": _erf.gelu, "pow": _pow.power, "rsqrt": _pow.rsqrt,
    "cbrt": _cbrt.cbrt, "asin": _asin.asin, "acos": _asin.acos, "atan": _atan.atan, "atan2": _atan.atan2,
    "asinh": _asinh.asinh, "acosh": _asinh.acosh, "atanh": _asinh.atanh, "erfc": _erf.erfc, "erfinv": _erfinv.erfinv,
    "lgamma": _gamma.lgamma, "digamma": _gamma.digamma,
}  # fmt: skip
# Where their vector code pays; their composition is faster on other processors.
FOR_AVX512 = frozenset({"rsqrt"})
# Powers by whole numbers are functions of their own: `pow.6`, `pow.-2`.
MOST_EXPONENT = 64


def whole_power(exponent: float | None) -> str | None:
    """Return the name of a power by a whole number, where there is a function of its own, not too long, for it."""
    if exponent is not None and exponent.is_integer() and 1 <= abs(exponent) <= MOST_EXPONENT:
        return f"pow.{int(exponent)}"
    return None


# f32 with AVX-512's registers.
_PIECEWISE: dict[str, Callable[..., MathValue]] = {"tanh": _pieces.tanh, "erf": _pieces.erf, "gelu": _pieces.gelu}


def _formula(op: str) -> Callable[..., MathValue] | None:
    name, _, exponent = op.partition(".")
    return partial(_pow.whole_power, exponent=int(exponent)) if exponent and name == "pow" else _REAL.get(op)


_ARITY = {"pow": 2, "div": 2} | {f.name: f.arity for f in TABLE.values()}


def arity(op: str) -> int:
    """Return the number of arguments of an operation."""
    return _ARITY.get(op, 1)


def supported(op: str, dtype: DType) -> bool:
    """Return whether `function` knows this operation for this element type."""
    if dtype.is_complex:
        return op == "abs" or op in COMPLEX
    return _formula(op) is not None and dtype.name in ("f32", "f64")


@cache
def function(op: str, dtype: DType, lanes: int, *, fma: bool = True, avx512: bool = False) -> FunctionDefinition:
    """Return the definition of `op` on `lanes` elements of `dtype` (1: the scalar type).

    Real: takes one value, or as many as `arity` says, and returns one. Complex: takes re, im of each operand in turn (`pow` and
    `div` have two operands) and returns a struct {re, im}, `abs` one value. `fma`: the target fuses multiply-add in hardware;
    without it the bodies use separate multiplications and additions, at most 4 ulp. `avx512`: it has the registers and
    instructions of AVX-512. Raises KeyError where not `supported`.
    """
    if not supported(op, dtype):
        raise KeyError(f"no vector function {op} for {dtype.name}")
    features = Features(fma, avx512)
    builder = MathBuilder(lanes, features)
    form = F32 if dtype.real.name == "f32" else F64
    count = arity(op) * (2 if dtype.is_complex else 1)
    parameters = [MathValue(builder, f"%x{i}", form.element) for i in range(count)]
    formula: Any = _formula(op) if not dtype.is_complex else absolute if op == "abs" else COMPLEX[op]
    if avx512 and dtype.name == "f32":
        formula = _PIECEWISE.get(op, formula)
    if dtype.name == "c64" and op != "abs":
        formula = narrowed(formula)
    result = formula(builder, *parameters)
    symbol = f"pk.{op}.{dtype.name}{'' if lanes == 1 else f'.v{lanes}'}{features.suffix}"
    results = [result] if isinstance(result, MathValue) else list(result)
    return builder.define(symbol, parameters, results, f"{'' if dtype.is_complex else 'alwaysinline '}{PURE}")
