"""Functions of the Kernel IR (exp, tanh, pow, ...): vector code, compositions, else C's library lane by lane."""

from __future__ import annotations

from collections.abc import Sequence

from polyker.codegen.llvm.convert import ElementValue, rounded
from polyker.codegen.llvm.operations import flop, integer_power, real_operation
from polyker.codegen.llvm.text import IRBuilder, Reg, const
from polyker.codegen.vecmath import functions as vecmath
from polyker.errors.base import InternalError
from polyker.ir.dtypes import DType, f32
from polyker.ir.functions import TABLE, Function
from polyker.ir.functions.composition import composed

# What generated code may call outside itself: C's mathematics, and what LLVM makes of memory copies.
_LIBM = {*(f.c for f in TABLE.values() if f.c), "pow", "roundeven", "fma"}
EXTERNALS = frozenset({*(f"{n}{s}" for n in _LIBM for s in ("", "f")), "memset", "memcpy", "memmove"})


def define(b: IRBuilder, op: str, dtype: DType, lanes: int) -> vecmath.FunctionDefinition:
    """Return vecmath's definition, its text and declarations noted in the module."""
    definition = vecmath.function(op, dtype, lanes, fma=b.fma == "fused", avx512=b.avx512)
    stack = [definition]
    while stack:
        d = stack.pop()
        if d.symbol not in b.definitions:
            b.definitions[d.symbol] = d.text
            b.declarations |= {name: text for text, name in sorted(d.declares)}
            stack.extend(d.needs)
    return definition


def _library(b: IRBuilder, op: str, args: tuple[Reg, ...]) -> Reg:
    """Call libm for each lane."""
    symbol = op + ("f" if args[0].elem == "float" else "")
    args = b.unify(*args)
    if args[0].lanes == 1:
        return b.call(symbol, args[0].elem, 1, args, costly=True)
    result = Reg("poison", args[0].elem, args[0].lanes, 0)
    for lane in range(args[0].lanes):
        result = b.insert(result, _library(b, op, tuple(b.extract(a, lane) for a in args)), lane)
    return result


def _vector_code(b: IRBuilder, op: str, dtype: DType, args: tuple[Reg, ...]) -> Reg:
    """Call vecmath's function of f32 or f64 values."""
    args = b.unify(*args)
    definition = define(b, op, dtype, args[0].lanes)
    text = f"call {args[0].type} @{definition.symbol}({', '.join(a.typed for a in args)})"
    return b.pure(text, args[0].elem, args[0].lanes, args, costly=True)


def _written(b: IRBuilder, known: Function, args: Sequence[Reg], dtype: DType) -> Reg:
    """Return the value of a composition, each of its operations in `dtype`."""

    def apply(op: str, values: tuple[Reg, ...]) -> Reg:
        if op == "where":
            return b.select(*values)
        found = real_operation(b, op, list(values), dtype, dtype)
        return (found or real_function(b, op, list(values), dtype)).re

    return composed(known.written, args, apply, lambda number: const(number, args[0].elem))


def real_function(b: IRBuilder, op: str, args: list[Reg], dtype: DType) -> ElementValue:
    """Return a function of real arguments: by vector code, by its composition, else by C's library.

    f16 and bf16 are computed in f32 and rounded once.
    """
    wide = f32 if dtype.kind == "f" and dtype.itemsize == 2 else dtype
    known = TABLE.get(op)
    if vecmath.supported(op, wide) and (b.avx512 or op not in vecmath.FOR_AVX512):
        result = _vector_code(b, op, wide, tuple(args))
    elif known is not None and known.written:
        result = _written(b, known, args, wide)
    elif known is not None and known.c:
        result = _library(b, known.c, tuple(args))
    else:
        raise InternalError(f"no function {op} for {dtype}")
    return ElementValue(dtype, rounded(b, dtype, result))


def complex_function(b: IRBuilder, op: str, args: list[ElementValue], dtype: DType) -> ElementValue:
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
        return ElementValue(dtype, b.pure(call, x.elem, x.lanes, tuple(parts), costly=True))
    pair = b.pure(call, definition.result, 1, tuple(parts), costly=True)
    re, im = (b.pure(f"extractvalue {pair.typed}, {k}", x.elem, x.lanes, (pair,)) for k in (0, 1))
    return ElementValue(dtype, re, im)


def power(b: IRBuilder, x: Reg, y: Reg, exponent: float | None, dtype: DType) -> ElementValue:
    """Return x**y; a constant `exponent` of 2, 3, 4 multiplies, as other whole ones do with a pair of numbers (vecmath.pow),
    0.5 is the square root, -1 the reciprocal."""
    if dtype.kind != "f":
        return ElementValue(dtype, integer_power(b, x, y, dtype))
    wide = f32 if dtype.itemsize == 2 else dtype
    if exponent is None or exponent not in (0, 1, 2, 3, 4, 0.5, -1):
        whole = vecmath.whole_power(exponent)
        return real_function(b, whole, [x], dtype) if whole else real_function(b, "pow", [x, y], dtype)
    if exponent == 0:
        return ElementValue(dtype, const(1.0, x.elem))
    if exponent == 0.5:
        result = b.intrinsic("sqrt", x, costly=True, flags=True)
    elif exponent == -1:
        result = flop(b, "fdiv", const(1.0, x.elem), x, wide)
    else:
        square = flop(b, "fmul", x, x, wide) if exponent > 1 else x
        result = square if exponent <= 2 else flop(b, "fmul", square, x if exponent == 3 else square, wide)
    return ElementValue(dtype, rounded(b, dtype, result))
