"""The operations of the Kernel IR on real types and bool, as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TypeAlias, TypeVar

import numpy as np
from msgspec import Struct

from polyker.codegen.llvm.convert import ElementValue, rounded
from polyker.codegen.llvm.fold import number
from polyker.codegen.llvm.text import LLVM_TYPES, IRBuilder, Reg, const
from polyker.ir.dtypes import DType, bool_
from polyker.ir.functions import TABLE, cost_of

T = TypeVar("T")

_FCMP = {"lt": "fcmp olt", "le": "fcmp ole", "gt": "fcmp ogt", "ge": "fcmp oge", "eq": "fcmp oeq", "ne": "fcmp une"}
_FLOAT_BITS = {"float": 32, "double": 64}
_BITS_OF = {"bit_and": "and", "bit_or": "or", "bit_xor": "xor"}
_BOOL = {"add": "or", "mul": "and", "and": "and", "or": "or", "maximum": "or", "minimum": "and"}


def compare(b: IRBuilder, op: str, x: Reg, y: Reg, dtype: DType) -> Reg:
    """Return the i1 result of a comparison of two reals of type `dtype`."""
    if dtype.kind == "f":
        return b.compare(_FCMP[op], x, y)
    if op in ("eq", "ne"):
        return b.compare(f"icmp {op}", x, y)
    return b.compare(f"icmp {'s' if dtype.kind == 'i' else 'u'}{op}", x, y)


def logical_not(b: IRBuilder, x: Reg) -> Reg:
    """Return the negation of an i1."""
    return b.binary("xor", x, const(True, "i1"))


def flop(b: IRBuilder, op: str, x: Reg, y: Reg, dtype: DType) -> Reg:
    """Return fadd, fsub, fmul or fdiv, rounded to `dtype`."""
    x, y = b.unify(x, y)
    text = f"{op} {b.fastmath}{x.typed}, {y.text}"
    return rounded(b, dtype, b.pure(text, x.elem, x.lanes, (x, y), costly=op == "fdiv"))


def multiply_add(b: IRBuilder, x: Reg, y: Reg, z: Reg) -> Reg:
    """Return x * y + z, rounded once where the target surely does so."""
    return b.intrinsic("fma" if b.fma == "fused" else "fmuladd", x, y, z, flags=True)


def _fills_register(b: IRBuilder, elem: str, lanes: int) -> bool:
    """Whether a vector is all of a register, or of the first half or quarter of one, whose instructions AVX-512 has, too."""
    return b.avx512 and lanes * _FLOAT_BITS[elem] in (128, 256, 512)


def fused(b: IRBuilder, op: str, x: Reg, y: Reg, dtype: DType) -> Reg:
    """Return x + y or x - y as a multiply-add by 1 or -1, which LLVM is not to know, where a vector fills a register."""
    lanes = max(x.lanes, y.lanes)
    if not _fills_register(b, x.elem, lanes):
        return arithmetic(b, op, x, y, dtype)
    first, second, factor = (x, y, 1.0) if op == "add" else (y, x, -1.0)
    known = Reg(f"splat ({const(factor, x.elem).typed})", x.elem, lanes, 0)
    hidden = b.pure(f'call {known.type} asm "", "=v,0"({known.typed})', x.elem, lanes, ())
    return multiply_add(b, first, hidden, second)


def copied(b: IRBuilder, x: Reg) -> Reg:
    """Return a copy that may be overwritten: without it LLVM reads the other operand of what does so on its own.

    A number keeps copies of one value apart, it is no part of the code. What fills no register is not copied.
    """
    if not _fills_register(b, x.elem, x.lanes):
        return x
    text = f'call {x.type} asm "", "=v,0,i"({x.typed}, i32 {b.number()}) memory(none)'
    return b.pure(text, x.elem, x.lanes, (x,))


def arithmetic(b: IRBuilder, op: str, x: Reg, y: Reg, dtype: DType) -> Reg:
    """Return add, sub or mul of two reals."""
    match dtype.kind:
        case "f":
            return flop(b, f"f{op}", x, y, dtype)
        case "b":
            return b.binary(_BOOL[op], x, y)
        case _:
            return b.binary(op, x, y)


def negate(b: IRBuilder, x: Reg, dtype: DType) -> Reg:
    """Return -x."""
    if dtype.kind == "f":
        return b.pure(f"fneg {b.fastmath}{x.typed}", x.elem, x.lanes, (x,))
    return b.binary("sub", const(0, x.elem), x)


def extremum(b: IRBuilder, op: str, x: Reg, y: Reg, dtype: DType) -> Reg:
    """Return minimum or maximum; a NaN in either argument gives NaN."""
    if dtype.kind == "b":
        return b.binary(_BOOL[op], x, y)
    if dtype.kind != "f":
        return integer_extremum(b, f"{'s' if dtype.kind == 'i' else 'u'}{op[:3]}", x, y)
    if b.native_maximum:
        return b.intrinsic(op, x, y)
    if _is_number(x) and not _is_number(y):
        x, y = y, x
    test = "fcmp ogt" if op == "maximum" else "fcmp olt"
    # x86's vmaxps is exactly `y > x ? y : x`, which is x where one is NaN; so only a NaN in y needs more. In a reduction x is
    # what was found so far. Where y is an extremum itself its operands are tested, and what it is where one is NaN is left open.
    known = b.extrema.get(y.text)
    value, first, second = known or (y, y, y)
    best = b.select(b.compare(test, value, x), value, x)
    if _is_number(y):
        return best
    nan = y if known is None else const(float("nan"), y.elem)
    result = b.select(b.compare("fcmp uno", first, second), nan, best)
    b.extrema[result.text] = best, x, y
    return result


def free_extremum(b: IRBuilder, op: str, x: Reg, y: Reg) -> Reg:
    """Return the larger or smaller of two floats, and x where one is NaN: one instruction of x86."""
    return b.select(b.compare("fcmp ogt" if op == "larger" else "fcmp olt", y, x), y, x)


def masked_extremum(b: IRBuilder, op: str, x: Reg, y: Reg) -> Reg:
    """Return the same by a comparison and a choice where a vector fills a register."""
    x, y = b.unify(x, y)
    if not _fills_register(b, x.elem, x.lanes):
        return free_extremum(b, op, x, y)
    size = x.lanes * _FLOAT_BITS[x.elem]
    name = f"llvm.x86.avx512.mask.cmp.p{x.elem[0].replace('f', 's')}.{size}"
    mask = f"<{x.lanes} x i1>"
    last, rounding = (", i32", ", i32 4") if size == 512 else ("", "")
    b.declare(name, f"declare {mask} @{name}({x.type}, {x.type}, i32, {mask}{last})")
    less, (first, second) = 1, (x, y) if op == "larger" else (y, x)
    text = f"call {mask} @{name}({first.typed}, {second.typed}, i32 {less}, {mask} splat (i1 true){rounding})"
    return b.select(b.pure(text, "i1", x.lanes, (x, y)), y, x)


def integer_extremum(b: IRBuilder, op: str, x: Reg, y: Reg) -> Reg:
    """Return smin, smax, umin or umax of integers."""
    p, q = number(x.text, x.elem), number(y.text, y.elem)
    if p is None or q is None or op[0] == "u":
        return b.intrinsic(op, x, y)
    return b.splat(const(min(p, q) if op == "smin" else max(p, q), x.elem), max(x.lanes, y.lanes))


def _is_number(x: Reg) -> bool:
    return x.is_constant and "0x7FF8" not in x.text


def floor_divide(b: IRBuilder, x: Reg, y: Reg, dtype: DType) -> tuple[Reg, Reg]:
    """Return floor division and remainder by Python's sign rules; integers: both 0 where y is 0."""
    return _float_divmod(b, x, y, dtype) if dtype.kind == "f" else _int_divmod(b, x, y, dtype)


def _int_divmod(b: IRBuilder, x: Reg, y: Reg, dtype: DType) -> tuple[Reg, Reg]:
    zero, one = const(0, x.elem), const(1, x.elem)
    by_zero = b.compare("icmp eq", y, zero)
    divisor = b.select(by_zero, one, y)
    if dtype.kind == "u":
        quotient = b.binary("udiv", x, divisor, costly=True)
        rest = b.binary("sub", x, b.binary("mul", quotient, divisor))
    else:
        constant = int(y.text) if y.is_constant and y.lanes == 1 else None
        if constant is None or constant == -1:
            # INT_MIN / -1 traps: x // -1 is -x, which wraps.
            minus = b.compare("icmp eq", y, const(-1, x.elem))
            quotient = b.binary("sdiv", x, b.select(minus, one, divisor), costly=True)
            quotient = b.select(minus, b.binary("sub", zero, x), quotient)
        elif constant > 0 and constant & (constant - 1) == 0:
            shift = b.binary("ashr", x, const(constant.bit_length() - 1, x.elem))
            return shift, b.binary("and", x, const(constant - 1, x.elem))
        else:
            quotient = b.binary("sdiv", x, divisor, costly=True)
        rest = b.binary("sub", x, b.binary("mul", quotient, divisor))
        opposite = b.compare("icmp slt", b.binary("xor", rest, divisor), zero)
        down = b.binary("and", b.compare("icmp ne", rest, zero), opposite)
        quotient = b.select(down, b.binary("sub", quotient, one), quotient)
        rest = b.select(down, b.binary("add", rest, divisor), rest)
    return b.select(by_zero, zero, quotient), b.select(by_zero, zero, rest)


def _float_divmod(b: IRBuilder, x: Reg, y: Reg, dtype: DType) -> tuple[Reg, Reg]:
    """As numpy's divmod of floats, which follows CPython's float_divmod."""
    zero, one = const(0.0, x.elem), const(1.0, x.elem)
    x, y = b.unify(x, y)
    by_zero = b.compare("fcmp oeq", y, zero)
    first = b.pure(f"frem {x.typed}, {y.text}", x.elem, x.lanes, (x, y), costly=True)
    quotient = flop(b, "fdiv", flop(b, "fsub", x, first, dtype), y, dtype)
    nonzero = b.compare("fcmp une", first, zero)
    other_sign = b.binary("xor", b.compare("fcmp olt", y, zero), b.compare("fcmp olt", first, zero))
    down = b.binary("and", nonzero, other_sign)
    rest = b.select(down, flop(b, "fadd", first, y, dtype), first)
    rest = b.select(nonzero, rest, b.intrinsic("copysign", zero, y))
    rest = b.select(by_zero, first, rest)
    quotient = b.select(down, flop(b, "fsub", quotient, one, dtype), quotient)
    floor = b.intrinsic("floor", quotient)
    above = b.compare("fcmp ogt", flop(b, "fsub", quotient, floor, dtype), const(0.5, x.elem))
    floor = b.select(above, flop(b, "fadd", floor, one, dtype), floor)
    exact = flop(b, "fdiv", x, y, dtype)
    floor = b.select(b.compare("fcmp une", quotient, zero), floor, b.intrinsic("copysign", zero, exact))
    return b.select(by_zero, exact, floor), rest


def truncated_remainder(b: IRBuilder, x: Reg, y: Reg, dtype: DType) -> Reg:
    """Return the remainder of a division that rounds to 0; of integers 0 where y is 0."""
    if dtype.kind == "f":
        x, y = b.unify(x, y)
        return b.pure(f"frem {x.typed}, {y.text}", x.elem, x.lanes, (x, y), costly=True)
    one = const(1, x.elem)
    # x fmod 1 is 0, and so is x fmod -1, where the least integer would trap.
    trivial = b.compare("icmp eq", y, const(0, x.elem))
    if dtype.kind == "i":
        trivial = b.binary("or", trivial, b.compare("icmp eq", y, const(-1, x.elem)))
    return b.binary("srem" if dtype.kind == "i" else "urem", x, b.select(trivial, one, y), costly=True)


def integer_power(b: IRBuilder, x: Reg, y: Reg, dtype: DType) -> Reg:
    """Return x**y by squaring, wrapping; a negative y gives 1, -1 or 0 for x = 1, -1 and all else (0 too)."""
    if y.is_constant and y.lanes == 1 and 0 <= int(y.text) <= 64:
        return by_squaring(x, int(y.text), const(1, x.elem), lambda p, q: b.binary("mul", p, q))
    symbol = f"power_{dtype.kind}{8 * dtype.itemsize}"
    if symbol not in b.definitions:
        b.definitions[symbol] = _power_function(symbol, x.elem, signed=dtype.kind == "i")
    x, y = b.unify(x, y)
    if x.lanes == 1:
        return b.pure(f"call {x.elem} @{symbol}({x.typed}, {y.typed})", x.elem, 1, (x, y), costly=True)
    result = Reg("poison", x.elem, x.lanes, 0)
    for lane in range(x.lanes):
        one = integer_power(b, b.extract(x, lane), b.extract(y, lane), dtype)
        result = b.insert(result, one, lane)
    return result


def by_squaring(x: T, exponent: int, one: T, multiply: Callable[[T, T], T]) -> T:
    """Return a power by a whole number that is not negative."""
    result: T | None = None
    while exponent:
        if exponent & 1:
            result = x if result is None else multiply(result, x)
        exponent >>= 1
        if exponent:
            x = multiply(x, x)
    return one if result is None else result


def _power_function(symbol: str, t: str, *, signed: bool) -> str:
    negative = (
        f"  %neg = icmp slt {t} %y, 0\n  br i1 %neg, label %below, label %loop\n" if signed else "  br label %loop\n"
    )
    below = f"""below:
  %odd = and {t} %y, 1
  %isodd = icmp ne {t} %odd, 0
  %isone = icmp eq {t} %x, 1
  %isminus = icmp eq {t} %x, -1
  %flip = select i1 %isodd, {t} -1, {t} 1
  %minus = select i1 %isminus, {t} %flip, {t} 0
  %small = select i1 %isone, {t} 1, {t} %minus
  ret {t} %small
"""
    return f"""define internal {t} @{symbol}({t} %x, {t} %y) nounwind readnone {{
entry:
{negative}{below if signed else ""}loop:
  %e = phi {t} [ %y, %entry ], [ %rest, %loop ]
  %s = phi {t} [ %x, %entry ], [ %square, %loop ]
  %r = phi {t} [ 1, %entry ], [ %next, %loop ]
  %bit = and {t} %e, 1
  %set = icmp ne {t} %bit, 0
  %factor = select i1 %set, {t} %s, {t} 1
  %next = mul {t} %r, %factor
  %square = mul {t} %s, %s
  %rest = lshr {t} %e, 1
  %more = icmp ne {t} %rest, 0
  br i1 %more, label %loop, label %done
done:
  ret {t} %next
}}
"""


def sign(b: IRBuilder, x: Reg, dtype: DType) -> Reg:
    """Return -1, 0 or 1; NaN for NaN."""
    zero, one = const(0, x.elem), const(1, x.elem)
    if dtype.kind == "b":
        return x
    positive = compare(b, "gt", x, zero, dtype)
    if dtype.kind == "u":
        return b.convert("zext", positive, x.elem)
    rest = b.select(compare(b, "lt", x, zero, dtype), const(-1, x.elem), zero)
    if dtype.kind == "f":
        rest = b.select(b.compare("fcmp uno", x, x), x, rest)
    return b.select(positive, one, rest)


def absolute(b: IRBuilder, x: Reg, dtype: DType) -> Reg:
    """Return |x|; the least integer stays itself."""
    if dtype.kind == "f":
        return b.intrinsic("fabs", x)
    if dtype.kind != "i":
        return x
    return b.select(b.compare("icmp slt", x, const(0, x.elem)), b.binary("sub", const(0, x.elem), x), x)


def next_number(b: IRBuilder, op: str, x: Reg, dtype: DType) -> Reg:
    """Return below or above of a f32 or f64 (polyker.ir.expr.INTERNAL).

    Where the thread takes what is below the normal numbers for 0 (DAZ) it differs from x all the same.
    """
    bits, info = 8 * dtype.itemsize, np.finfo(dtype.numpy)
    kind = f"i{bits}"
    sign, one = const(-(1 << (bits - 1)), kind), const(1, kind)
    # Signs change as bits: fastmath may not assume that none of these is NaN.
    flip = sign if op == "above" else const(0, kind)
    raw = b.binary("xor", b.convert("bitcast", x, kind), flip)
    x = b.convert("bitcast", raw, x.elem)
    # Magnitudes of numbers above 0 decrease, those of others, 0 as -0, increase: of -inf to a NaN.
    down = b.binary("add", b.binary("or", raw, sign), one)
    moved = b.select(b.compare("fcmp ogt", x, const(0, x.elem)), b.binary("sub", raw, one), down)
    found = b.convert("bitcast", moved, x.elem)
    found = b.select(b.compare("fcmp ult", found, x), found, const(-float(info.tiny), x.elem))
    found = b.select(b.compare("fcmp uno", x, x), const(inf, x.elem), found)
    return b.convert("bitcast", b.binary("xor", b.convert("bitcast", found, kind), flip), x.elem)


def shift(b: IRBuilder, op: str, x: Reg, y: Reg, dtype: DType) -> Reg:
    """Return x << y or x >> y; where y is negative or no less than the width no bits are left (polyker.ir.expr.BITWISE)."""
    bits = 8 * dtype.itemsize
    known = number(y.text, y.elem)
    if known is not None and 0 <= known < bits:
        return b.binary({"shift_left": "shl", "shift_right": "ashr" if dtype.kind == "i" else "lshr"}[op], x, y)
    if op == "shift_right" and dtype.kind == "i":
        return b.binary("ashr", x, b.intrinsic("umin", y, const(bits - 1, y.elem)))
    some = b.compare("icmp ult", y, const(bits, y.elem))
    return b.select(some, b.binary("shl" if op == "shift_left" else "lshr", x, y), const(0, x.elem))


def fold(b: IRBuilder, op: str, args: list[Reg], dtype: DType) -> Reg:
    """Return an n-ary add, mul, minimum, maximum, and, or, bit_and, bit_or, bit_xor: folded from the left."""
    total = args[0]
    for arg in args[1:]:
        total = combine(b, op, total, arg, dtype)
    return total


def combine(b: IRBuilder, op: str, x: Reg, y: Reg, dtype: DType) -> Reg:
    """Return one step of a reduction by add, mul, minimum, maximum, and, or; or of a bitwise operation."""
    if op in ("minimum", "maximum"):
        return extremum(b, op, x, y, dtype)
    if op in ("and", "or"):
        return b.binary(op, x, y)
    if op in _BITS_OF:
        return b.binary(_BITS_OF[op], x, y)
    return arithmetic(b, op, x, y, dtype)


class _Applied(Struct, frozen=True):
    """An operation as it is emitted: on registers of type `dtype`."""

    b: IRBuilder
    op: str
    args: list[Reg]
    dtype: DType

    @property
    def x(self) -> Reg:
        """The first register."""
        return self.args[0]

    @property
    def y(self) -> Reg:
        """The second register."""
        return self.args[1]


_Emitter: TypeAlias = Callable[[_Applied], Reg]


# What gives a bool of any type.
_PREDICATES: dict[str, _Emitter] = {
    **dict.fromkeys(_FCMP, lambda a: compare(a.b, a.op, a.x, a.y, a.dtype)),
    "not": lambda a: logical_not(a.b, a.x),
}
_OPERATIONS: dict[str, _Emitter] = {
    **dict.fromkeys((*_BOOL, *_BITS_OF), lambda a: fold(a.b, a.op, a.args, a.dtype)),
    **dict.fromkeys(
        ("larger_masked", "smaller_masked"), lambda a: masked_extremum(a.b, a.op.removesuffix("_masked"), a.x, a.y)
    ),
    **dict.fromkeys(("larger", "smaller"), lambda a: free_extremum(a.b, a.op, a.x, a.y)),
    **dict.fromkeys(("fused_add", "fused_sub"), lambda a: fused(a.b, a.op.removeprefix("fused_"), a.x, a.y, a.dtype)),
    **dict.fromkeys(("shift_left", "shift_right"), lambda a: shift(a.b, a.op, a.x, a.y, a.dtype)),
    **dict.fromkeys(("below", "above"), lambda a: next_number(a.b, a.op, a.x, a.dtype)),
    # Code of functions of the notation that no intrinsic gives.
    "imag": lambda a: const(0, LLVM_TYPES[a.dtype.name]),
    "copied": lambda a: copied(a.b, a.x),
    "sub": lambda a: arithmetic(a.b, "sub", a.x, a.y, a.dtype),
    "neg": lambda a: negate(a.b, a.x, a.dtype),
    "bit_not": lambda a: a.b.binary("xor", a.x, const(-1, a.x.elem)),
    "div": lambda a: flop(a.b, "fdiv", a.x, a.y, a.dtype),
    "floordiv": lambda a: floor_divide(a.b, a.x, a.y, a.dtype)[0],
    "mod": lambda a: floor_divide(a.b, a.x, a.y, a.dtype)[1],
    "abs": lambda a: absolute(a.b, a.x, a.dtype),
    "sign": lambda a: sign(a.b, a.x, a.dtype),
    "fmod": lambda a: truncated_remainder(a.b, a.x, a.y, a.dtype),
}


def real_operation(b: IRBuilder, op: str, args: list[Reg], dtype: DType, result: DType) -> ElementValue | None:
    """Return the value of `op` on registers of type `dtype`, or None where `op` is a function of another module."""
    applied = _Applied(b, op, args, dtype)
    if op in _PREDICATES:
        return ElementValue(bool_, _PREDICATES[op](applied))
    emitter, known = _OPERATIONS.get(op), TABLE.get(op)
    if emitter is not None:
        return ElementValue(result, emitter(applied))
    if known is not None and dtype.kind in known.itself:
        return ElementValue(result, args[0])
    if known is None or not known.llvm:
        return None
    heavy = cost_of(op).heavy
    found = b.intrinsic(known.llvm, *args, costly=heavy, flags=heavy)
    return ElementValue(result, rounded(b, dtype, found) if heavy else found)
