"""Conversions between element types, and between memory and registers, as LLVM IR.

In registers f16 and bf16 are `float`s that the small type represents exactly, and bool is i1; in memory f16 and bf16
are their 16 bits and bool is one byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from polyker.codegen.llvm.text import LLVM_TYPES, IRBuilder, Reg, const
from polyker.ir.dtypes import DType

MEMORY_TYPES = {**LLVM_TYPES, "bool": "i8", "f16": "i16", "bf16": "i16"}


class ElementValue(NamedTuple):
    """A value of an element type: one register, or real and imaginary part."""

    dtype: DType
    re: Reg
    im: Reg | None = None

    @property
    def lanes(self) -> int:
        """Number of lanes, 1 for a uniform value."""
        return max(part.lanes for part in self.parts)

    @property
    def parts(self) -> tuple[Reg, ...]:
        """Its registers."""
        return (self.re,) if self.im is None else (self.re, self.im)

    def each(self, change: Callable[[Reg], Reg]) -> ElementValue:
        """Return the value with `change` applied to each of its registers."""
        return ElementValue(self.dtype, *map(change, self.parts))


def from_memory(b: IRBuilder, dtype: DType, raw: Reg) -> Reg:
    """Return the register form of loaded memory bits."""
    match dtype.name:
        case "bool":
            return b.compare("icmp ne", raw, const(0, "i8"))
        case "bf16":
            wide = b.convert("zext", raw, "i32")
            return b.convert("bitcast", b.binary("shl", wide, const(16, "i32")), "float")
        case "f16":
            if b.native_half:
                return b.convert("fpext", b.convert("bitcast", raw, "half"), "float")
            return _half_to_float(b, raw)
        case _:
            return raw


def to_memory(b: IRBuilder, dtype: DType, value: Reg) -> Reg:
    """Return the bits to store; a `float` is rounded to f16 or bf16, to nearest even."""
    match dtype.name:
        case "bool":
            return b.convert("zext", value, "i8")
        case "bf16":
            return _float_to_bfloat(b, value)
        case "f16":
            if b.native_half:
                return b.convert("bitcast", b.convert("fptrunc", value, "half"), "i16")
            return _float_to_half(b, value)
        case _:
            return value


def rounded(b: IRBuilder, dtype: DType, value: Reg) -> Reg:
    """Return a computed `float` rounded to f16 or bf16; other types unchanged."""
    return from_memory(b, dtype, to_memory(b, dtype, value)) if dtype.name in ("f16", "bf16") else value


def _i32(value: int) -> Reg:
    return const(value, "i32")


def _float_to_bfloat(b: IRBuilder, value: Reg) -> Reg:
    bits = b.convert("bitcast", value, "i32")
    high = b.binary("lshr", bits, _i32(16))
    bias = b.binary("add", b.binary("and", high, _i32(1)), _i32(0x7FFF))
    nearest = b.binary("lshr", b.binary("add", bits, bias), _i32(16))
    quiet = b.binary("or", high, _i32(0x40))
    return b.convert("trunc", b.select(b.compare("fcmp uno", value, value), quiet, nearest), "i16")


def _half_to_float(b: IRBuilder, raw: Reg) -> Reg:
    bits = b.convert("zext", raw, "i32")
    sign = b.binary("shl", b.binary("and", bits, _i32(0x8000)), _i32(16))
    magnitude = b.binary("and", bits, _i32(0x7FFF))
    shifted = b.binary("shl", magnitude, _i32(13))
    normal = b.binary("add", shifted, _i32(112 << 23))
    special = b.binary("or", shifted, _i32(0x7F800000))
    # Subnormals are whole multiples of 2**-24.
    small = b.binary("fmul", b.convert("uitofp", magnitude, "float"), const(2.0**-24, "float"))
    finite = b.select(b.compare("icmp ult", magnitude, _i32(0x400)), b.convert("bitcast", small, "i32"), normal)
    result = b.select(b.compare("icmp uge", magnitude, _i32(0x7C00)), special, finite)
    return b.convert("bitcast", b.binary("or", result, sign), "float")


def _float_to_half(b: IRBuilder, value: Reg) -> Reg:
    bits = b.convert("bitcast", value, "i32")
    sign = b.binary("and", b.binary("lshr", bits, _i32(16)), _i32(0x8000))
    magnitude = b.binary("and", bits, _i32(0x7FFFFFFF))
    rebased = b.binary("sub", magnitude, _i32(112 << 23))
    odd = b.binary("and", b.binary("lshr", rebased, _i32(13)), _i32(1))
    normal = b.binary("lshr", b.binary("add", b.binary("add", rebased, _i32(0xFFF)), odd), _i32(13))
    # Adding 0.5 aligns the last place to 2**-24: the addition itself rounds a subnormal.
    lifted = b.binary("fadd", b.convert("bitcast", magnitude, "float"), const(0.5, "float"))
    small = b.binary("sub", b.convert("bitcast", lifted, "i32"), _i32(0x3F000000))
    finite = b.select(b.compare("icmp ult", magnitude, _i32(0x38800000)), small, normal)
    bounded = b.select(b.compare("icmp uge", magnitude, _i32(0x477FF000)), _i32(0x7C00), finite)
    payload = b.binary("and", b.binary("lshr", magnitude, _i32(13)), _i32(0x3FF))
    quiet = b.binary("or", payload, _i32(0x7E00))
    result = b.select(b.compare("icmp ugt", magnitude, _i32(0x7F800000)), quiet, bounded)
    return b.convert("trunc", b.binary("or", result, sign), "i16")


def _to_odd_float(b: IRBuilder, value: Reg) -> Reg:
    """Return a double as float, rounded to odd, so that a second rounding to f16 is as good as one."""
    nearest = b.convert("fptrunc", value, "float")
    back = b.convert("fpext", nearest, "double")
    bits = b.convert("bitcast", nearest, "i32")
    above = b.compare("fcmp ogt", b.intrinsic("fabs", back), b.intrinsic("fabs", value))
    truncated = b.binary("sub", bits, b.convert("zext", above, "i32"))
    odd = b.binary("or", truncated, _i32(1))
    chosen = b.select(b.compare("fcmp one", back, value), odd, bits)
    return b.convert("bitcast", chosen, "float")


def convert(b: IRBuilder, value: ElementValue, dtype: DType) -> ElementValue:
    """Return `value` as `dtype`, as numpy's astype; out of an integer's range comes some value, never undefined ones."""
    source = value.dtype
    if source == dtype:
        return value
    if dtype.is_complex:
        real = convert(b, ElementValue(source.real, value.re), dtype.real)
        if value.im is None:
            return ElementValue(dtype, real.re, const(0.0, LLVM_TYPES[dtype.real.name]))
        return ElementValue(dtype, real.re, convert(b, ElementValue(source.real, value.im), dtype.real).re)
    if source.is_complex and value.im is not None:
        if dtype.kind == "b":
            return ElementValue(
                dtype, b.binary("or", _truth(b, source.real, value.re), _truth(b, source.real, value.im))
            )
        return convert(b, ElementValue(source.real, value.re), dtype)
    return ElementValue(dtype, _convert_real(b, value.re, source, dtype))


def _truth(b: IRBuilder, dtype: DType, reg: Reg) -> Reg:
    if dtype.kind == "f":
        return b.compare("fcmp une", reg, const(0.0, reg.elem))  # NaN is true
    return reg if dtype.kind == "b" else b.compare("icmp ne", reg, const(0, reg.elem))


def _convert_real(b: IRBuilder, reg: Reg, source: DType, dtype: DType) -> Reg:
    target = LLVM_TYPES[dtype.name]
    match source.kind, dtype.kind:
        case _, "b":
            return _truth(b, source, reg)
        case "f", "f":
            if dtype.name == "f16" and reg.elem == "double":
                return rounded(b, dtype, _to_odd_float(b, reg))
            if reg.elem != target:
                reg = b.convert("fptrunc" if target == "float" else "fpext", reg, target)
            return rounded(b, dtype, reg)
        case (("i" | "u" | "b"), "f"):
            return rounded(b, dtype, b.convert("sitofp" if source.kind == "i" else "uitofp", reg, target))
        case "f", _:
            return _float_to_int(b, reg, dtype)
        case _:
            if source.itemsize > dtype.itemsize:
                return b.convert("trunc", reg, target)
            return b.convert("sext" if source.kind == "i" else "zext", reg, target)


def _float_to_int(b: IRBuilder, reg: Reg, dtype: DType) -> Reg:
    # Through a wider type, as C compilers do for numpy: -1.0 becomes 255 as u8. `freeze` makes out of range defined.
    through = "i64" if dtype.itemsize >= 4 and dtype.name != "i32" else "i32"
    op = "fptoui" if dtype.name == "u64" else "fptosi"
    kind = through if reg.lanes == 1 else f"<{reg.lanes} x {through}>"
    wide = b.pure(f"{op} {reg.typed} to {kind}", through, reg.lanes, (reg,))
    fixed = b.pure(f"freeze {wide.typed}", through, reg.lanes, (wide,))
    target = LLVM_TYPES[dtype.name]
    return fixed if target == through else b.convert("trunc", fixed, target)
