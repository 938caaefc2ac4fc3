"""Functions of the Kernel IR (exp, tanh, pow, ...): from the own vector mathematics, else from libm lane by lane."""

from __future__ import annotations

import math
import re

from polyker.codegen.llvm.convert import Value, rounded
from polyker.codegen.llvm.operations import flop, integer_power
from polyker.codegen.llvm.text import Builder, Reg, const
from polyker.codegen.vecmath import functions as vecmath
from polyker.errors.base import InternalError
from polyker.ir.dtypes import DType, f32

# What generated code may call outside itself: C's mathematics, and what LLVM makes of memory copies.
_LIBM = (
    "exp",
    "expm1",
    "log",
    "log1p",
    "sin",
    "cos",
    "tan",
    "tanh",
    "erf",
    "pow",
    "fmod",
    "floor",
    "ceil",
    "trunc",
    "roundeven",
    "fma",
)
EXTERNALS = frozenset({*(f"{n}{s}" for n in _LIBM for s in ("", "f")), "memset", "memcpy", "memmove"})


def define(b: Builder, op: str, dtype: DType, lanes: int) -> vecmath.Definition:
    """Return vecmath's definition, its text and declarations noted in the module."""
    definition = vecmath.function(op, dtype, lanes, fma=b.native_fma, avx512=b.avx512)
    stack = [definition]
    while stack:
        d = stack.pop()
        if d.symbol not in b.definitions:
            b.definitions[d.symbol] = d.text
            for text in sorted(d.declares):
                found = re.search(r"@([^(]+)\(", text)
                if found:
                    b.declarations[found.group(1)] = text
            stack.extend(d.needs)
    return definition


def _library(b: Builder, op: str, args: tuple[Reg, ...]) -> Reg:
    """Call libm for each lane."""
    symbol = op + ("f" if args[0].elem == "float" else "")
    args = b.unify(*args)
    if args[0].lanes == 1:
        return b.call(symbol, args[0].elem, 1, args, costly=True)
    result = Reg("poison", args[0].elem, args[0].lanes, 0)
    for lane in range(args[0].lanes):
        result = b.insert(result, _library(b, op, tuple(b.extract(a, lane) for a in args)), lane)
    return result


def _call(b: Builder, op: str, dtype: DType, *args: Reg) -> Reg:
    """Call a function of f32 or f64 values."""
    args = b.unify(*args)
    if vecmath.supported(op, dtype):
        definition = define(b, op, dtype, args[0].lanes)
        text = f"call {args[0].type} @{definition.symbol}({', '.join(a.typed for a in args)})"
        return b.pure(text, args[0].elem, args[0].lanes, args, costly=True)
    one, half = const(1.0, args[0].elem), const(0.5, args[0].elem)
    x = args[0]
    match op:
        case "sigmoid":
            e = _call(b, "exp", dtype, b.pure(f"fneg {x.typed}", x.elem, x.lanes, (x,)))
            return flop(b, "fdiv", one, flop(b, "fadd", one, e, dtype), dtype)
        case "silu":
            e = _call(b, "exp", dtype, b.pure(f"fneg {x.typed}", x.elem, x.lanes, (x,)))
            return flop(b, "fdiv", x, flop(b, "fadd", one, e, dtype), dtype)
        case "gelu":
            e = _call(b, "erf", dtype, flop(b, "fmul", x, const(math.sqrt(0.5), x.elem), dtype))
            return flop(b, "fmul", flop(b, "fmul", half, x, dtype), flop(b, "fadd", one, e, dtype), dtype)
        case _ if op in _LIBM:
            return _library(b, op, args)
        case _:
            raise InternalError(f"no function {op} for {dtype}")


def real_function(b: Builder, op: str, args: list[Reg], dtype: DType) -> Value:
    """Return a function of real floating-point arguments; f16 and bf16 are computed in f32 and rounded once."""
    wide = f32 if dtype.itemsize == 2 else dtype
    x = args[0]
    match op:
        case "sqrt":
            result = b.intrinsic("sqrt", x, costly=True, flags=True)
        case "rsqrt" if not b.avx512:
            result = flop(b, "fdiv", const(1.0, x.elem), b.intrinsic("sqrt", x, costly=True, flags=True), wide)
        case _:
            result = _call(b, op, wide, *args)
    return Value(dtype, rounded(b, dtype, result))


def complex_function(b: Builder, op: str, args: list[Value], dtype: DType) -> Value:
    """Return a function of complex arguments; of real type for `abs`."""
    source = args[0].dtype
    if not vecmath.supported(op, source):
        raise InternalError(f"no function {op} for {source}")
    parts = [p for a in args for p in (a.re, a.im if a.im is not None else const(0.0, a.re.elem))]
    parts = list(b.unify(*parts))
    x = parts[0]
    definition = define(b, op, source, x.lanes)
    call = f"call {definition.result} @{definition.symbol}({', '.join(p.typed for p in parts)})"
    if not dtype.is_complex:
        return Value(dtype, b.pure(call, x.elem, x.lanes, tuple(parts), costly=True))
    pair = b.pure(call, definition.result, 1, tuple(parts), costly=True)
    re, im = (b.pure(f"extractvalue {pair.typed}, {k}", x.elem, x.lanes, (pair,)) for k in (0, 1))
    return Value(dtype, re, im)


def power(b: Builder, x: Reg, y: Reg, exponent: float | None, dtype: DType) -> Value:
    """Return x**y; a constant `exponent` of 2, 3, 4 multiplies, as other whole ones do with a pair of numbers (vecmath_pow),
    0.5 is the square root, -1 the reciprocal."""
    if dtype.kind != "f":
        return Value(dtype, integer_power(b, x, y, dtype))
    wide = f32 if dtype.itemsize == 2 else dtype
    if exponent is None or exponent not in (0, 1, 2, 3, 4, 0.5, -1):
        whole = vecmath.whole_power(exponent)
        return real_function(b, whole, [x], dtype) if whole else real_function(b, "pow", [x, y], dtype)
    if exponent == 0:
        return Value(dtype, const(1.0, x.elem))
    if exponent == 0.5:
        result = b.intrinsic("sqrt", x, costly=True, flags=True)
    elif exponent == -1:
        result = flop(b, "fdiv", const(1.0, x.elem), x, wide)
    else:
        square = flop(b, "fmul", x, x, wide) if exponent > 1 else x
        result = square if exponent <= 2 else flop(b, "fmul", square, x if exponent == 3 else square, wide)
    return Value(dtype, rounded(b, dtype, result))
