"""Reduction of huge arguments by pi / 2, with integers: the slow path of sin, cos and tan.

x = M 2^e with an integer M; only a window of 192 bits of 2 / pi, chosen by e, matters for the fraction of x 2 / pi and for
its integer part modulo 4. Source: Payne and Hanek, "Radian reduction for trigonometric functions", SIGNUM 18, 1983.
"""

from __future__ import annotations

from functools import cache

from polyker.codegen.vecmath.core.build import COLD, Features, FunctionDefinition, MathBuilder, MathValue
from polyker.codegen.vecmath.core.double import fast_two_sum, two_product
from polyker.codegen.vecmath.core.tables import integers, table
from polyker.structs import replace

_WORDS = (0, *integers("TWO_OVER_PI"))  # a word of zeros, for windows that begin left of the point
_TABLE = "pk.two_over_pi"
_LOW = (1 << 32) - 1  # the low half of a word


def _word(b: MathBuilder, index: MathValue) -> MathValue:
    """Load a word of the table in each lane."""
    pointer = "ptr" if b.lanes == 1 else f"<{b.lanes} x ptr>"
    address = b.emit("", f"getelementptr i64, ptr @{_TABLE}, {b.type('i64')} {index.name}")
    if b.lanes == 1:
        return b.emit("i64", f"load i64, ptr {address.name}, align 8")
    kind, mask = b.type("i64"), b.type("i1")
    name = f"llvm.masked.gather.v{b.lanes}i64.v{b.lanes}p0"
    # One module may hold this intrinsic in one form only: that of polyker.codegen.llvm.access.memory.
    b.declare(kind, name, pointer, "i32 immarg", mask, kind)
    arguments = f"{pointer} {address.name}, i32 8, {mask} splat (i1 true), {kind} poison"
    return b.emit("i64", f"call {kind} @{name}({arguments})")


def _product(x: MathValue, y: MathValue) -> tuple[MathValue, MathValue]:
    """Return the high and low 64 bits of a product of unsigned integers."""
    xh, xl, yh, yl = x.shr(32), x & _LOW, y.shr(32), y & _LOW
    low, cross, other = xl * yl, xl * yh, xh * yl
    middle = low.shr(32) + (cross & _LOW) + (other & _LOW)
    high = xh * yh + cross.shr(32) + other.shr(32) + middle.shr(32)
    return high, (middle << 32) | (low & _LOW)


def _carry(b: MathBuilder, total: MathValue, part: MathValue) -> MathValue:
    """Return 1 where total = part + something wrapped around, else 0."""
    less = b.emit("i1", f"icmp ult {b.type('i64')} {total.name}, {part.name}")
    return b.convert("zext", less, "i64")


def _window(b: MathBuilder, exponent: MathValue) -> tuple[MathValue, MathValue, MathValue]:
    """Return the three words of 2 / pi from the bit on whose product with M 2^e can be below 4."""
    position = exponent + (64 - 2)
    position = b.select(position < 0, 0, position)
    index, shift = position.shr(6), position & 63
    words = [_word(b, index + k if k else index) for k in range(4)]
    # Shifted in two steps, as a shift by 64 has no defined result.
    left = [w << shift for w in words[:3]]
    right = [w.shr(1).shr(63 - shift) for w in words[1:]]
    return left[0] | right[0], left[1] | right[1], left[2] | right[2]


def _fraction(b: MathBuilder, x: MathValue) -> tuple[MathValue, MathValue, MathValue]:
    """Return (quadrant modulo 4, the first 64 and next 64 bits of the signed fraction, in [-1/2, 1/2)) of x 2 / pi."""
    bits = b.bits(x)
    mantissa = (bits & ((1 << 52) - 1)) | (1 << 52)
    first, second, third = _window(b, bits.shr(52) - (1023 + 52))
    carried, _ = _product(mantissa, third)
    high, low = _product(mantissa, second)
    middle = low + carried
    top = first * mantissa + high + _carry(b, middle, low)
    quadrant = (top + (1 << 61)).shr(62)
    # The lowest word is left out: it would only round the 126th bit of the fraction.
    return quadrant, (top << 2) | middle.shr(62), middle << 2


@cache
def reduction(lanes: int, features: Features) -> FunctionDefinition:
    """Return a function from |x| in f64 to (r high, r low, quadrant as i64): x = (4 i + quadrant) pi / 2 + r.

    NaN for inf. Lanes with |x| < 2^-27 or so get nonsense, which the caller does not use.
    """
    b = MathBuilder(lanes, features)
    x = MathValue(b, "%x", "double")
    quadrant, first, second = _fraction(b, x)
    sign = first.ashr(63)
    first, second = first ^ sign, second ^ sign
    # 31, 32 and 53 bits of the fraction: each is exact as a number.
    pieces = (first.shr(32), 2.0**-32), (first & _LOW, 2.0**-64), (second.shr(11), 2.0**-117)
    a, c, d = (b.convert("sitofp", p, "double") * weight for p, weight in pieces)
    high, low = fast_two_sum(b, a, c)
    high, low = fast_two_sum(b, high, low + d)
    product, error = two_product(b, high, b.constant(table("HALF_PI_F64")[0], "double"))
    error = error + b.fma(high, table("HALF_PI_F64")[1], low * table("HALF_PI_F64")[0])
    # inf * 0 is NaN, any other x * 0 nothing.
    high, low = fast_two_sum(b, b.fma(x, 0.0, product), error)
    minus = sign & (-1 << 63)
    high, low = b.from_bits(b.bits(high) ^ minus), b.from_bits(b.bits(low) ^ minus)
    suffix = "" if lanes == 1 else f".v{lanes}"
    symbol = f"pk.huge.f64{suffix}{features.suffix}"
    return replace(b.define(symbol, [x], [high, low, quadrant], COLD), needs=(_table(),))


@cache
def _table() -> FunctionDefinition:
    words = ", ".join(f"i64 {w - (1 << 64) if w >> 63 else w}" for w in _WORDS)
    text = f"@{_TABLE} = internal unnamed_addr constant [{len(_WORDS)} x i64] [{words}], align 64\n"
    return FunctionDefinition(_TABLE, "ptr", (), text)
