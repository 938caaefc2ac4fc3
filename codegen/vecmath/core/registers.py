"""Instructions on whole registers of AVX-512, for any number of lanes: tables in registers, powers of two, and the like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyker.codegen.vecmath.core.build import F32, MathBuilder, MathValue, literal


def lookup(b: MathBuilder, table: Sequence[float], index: MathValue) -> MathValue:
    """Emit the entry of a table of 32 floats that the low five bits of `index` (i32) tell."""
    entries = [f"float {literal(v, 'float')}" for v in table]
    low, high = (f"<16 x float> <{', '.join(half)}>" for half in (entries[:16], entries[16:]))
    name = "llvm.x86.avx512.vpermi2var.ps.512"
    b.declare("<16 x float>", name, "<16 x float>", "<16 x i32>", "<16 x float>")
    return _by_registers(b, "float", 16, f"call <16 x float> @{name}({low}, <16 x i32> {{0}}, {high})", index)


def scaled(b: MathBuilder, x: MathValue, exponent: MathValue) -> MathValue:
    """Emit x * 2^floor(exponent), rounded once."""
    name, kind, lanes = _of_whole(b, x, "scalef")
    b.declare(kind, name, kind, kind, kind, f"i{lanes}", "i32")
    call = f"call {kind} @{name}({kind} {{0}}, {kind} {{1}}, {kind} poison, i{lanes} -1, i32 4)"
    return _by_registers(b, x.element, lanes, call, x, exponent)


def exponent(b: MathBuilder, x: MathValue) -> MathValue:
    """Emit floor(log2 |x|), of subnormal numbers, too."""
    name, kind, lanes = _of_whole(b, x, "getexp")
    b.declare(kind, name, kind, kind, f"i{lanes}", "i32")
    call = f"call {kind} @{name}({kind} {{0}}, {kind} poison, i{lanes} -1, i32 4)"
    return _by_registers(b, x.element, lanes, call, x)


def significand(b: MathBuilder, x: MathValue) -> MathValue:
    """Emit |x| 2^-exponent, from 1 on and below 2."""
    name, kind, lanes = _of_whole(b, x, "getmant")
    b.declare(kind, name, kind, "i32", kind, f"i{lanes}", "i32")
    without_sign = 0b0100
    call = f"call {kind} @{name}({kind} {{0}}, i32 {without_sign}, {kind} poison, i{lanes} -1, i32 4)"
    return _by_registers(b, x.element, lanes, call, x)


def reciprocal_root(b: MathBuilder, x: MathValue) -> MathValue:
    """Emit 1 / sqrt(x) to 14 bits, of subnormal numbers, too; that of zeros and of infinity is exact."""
    form = b.format(x)
    lanes = 512 // form.bits
    name, kind = f"llvm.x86.avx512.rsqrt14.{'ps' if form is F32 else 'pd'}.512", f"<{lanes} x {form.element}>"
    b.declare(kind, name, kind, kind, f"i{lanes}")
    return _by_registers(b, x.element, lanes, f"call {kind} @{name}({kind} {{0}}, {kind} poison, i{lanes} -1)", x)


def _of_whole(b: MathBuilder, x: MathValue, instruction: str) -> tuple[str, str, int]:
    """Return an intrinsic on whole registers of a value's type, that type, and its lanes."""
    form = b.format(x)
    lanes = 512 // form.bits
    return (
        f"llvm.x86.avx512.mask.{instruction}.{'ps' if form is F32 else 'pd'}.512",
        f"<{lanes} x {form.element}>",
        lanes,
    )


def least_magnitude(b: MathBuilder, x: MathValue, bound: float) -> MathValue:
    """Emit the smaller of |x| and a positive bound of f32, which is also what a NaN gives."""
    name, kind = "llvm.x86.avx512.mask.range.ps.512", "<16 x float>"
    b.declare(kind, name, kind, kind, "i32", kind, "i16", "i32")
    smaller_magnitude_without_sign = 0b1010
    most = f"{kind} splat (float {literal(bound, 'float')})"
    operands = f"{kind} {{0}}, {most}, i32 {smaller_magnitude_without_sign}, {kind} poison, i16 -1, i32 4"
    return _by_registers(b, "float", 16, f"call {kind} @{name}({operands})", x)


# What `repaired` tells apart, and what it puts there, in the order of their numbers.
_TOKENS = ("quiet", "signaling", "zero", "one", "-inf", "inf", "negative", "positive")
_RESPONSES = ("usual", "operand", "quiet", "nan", "-inf", "inf")


def repaired(b: MathBuilder, usual: MathValue, x: MathValue, classes: Mapping[str, str]) -> MathValue:
    """Emit `usual` but for the classes of x (of `_TOKENS`) that another value (of `_RESPONSES`) is given for."""
    name, kind, lanes = _of_whole(b, x, "fixupimm")
    width = b.format(x).bits
    table = sum(_RESPONSES.index(value) << 4 * _TOKENS.index(token) for token, value in classes.items())
    integers = f"<{lanes} x i{width}>"
    b.declare(kind, name, kind, kind, integers, "i32", f"i{lanes}", "i32")
    signed = table - (1 << width) if table >= 1 << (width - 1) else table
    operands = f"{kind} {{0}}, {kind} {{1}}, {integers} splat (i{width} {signed}), i32 0, i{lanes} -1, i32 4"
    return _by_registers(b, x.element, lanes, f"call {kind} @{name}({operands})", usual, x)


def _by_registers(b: MathBuilder, element: str, width: int, call: str, *args: MathValue) -> MathValue:
    """Emit a call on registers of `width` elements until all lanes have passed; `{0}`, `{1}` in it stand for the operands."""
    parts = []
    for start in range(0, b.lanes, width):
        names = [_lanes(b, a.name, a.element, b.lanes, range(start, start + width)) for a in args]
        parts.append(b.emit("", call.format(*names)).name)
    while len(parts) > 1:
        kind, places = f"<{width} x {element}>", ", ".join(f"i32 {k}" for k in range(2 * width))
        pairs = zip(parts[::2], [*parts[1::2], "poison"], strict=False)
        parts = [
            b.emit("", f"shufflevector {kind} {x}, {kind} {y}, <{2 * width} x i32> <{places}>").name for x, y in pairs
        ]
        width *= 2
    return MathValue(b, _lanes(b, parts[0], element, width, range(b.lanes)), element)


def _lanes(b: MathBuilder, name: str, element: str, count: int, wanted: range) -> str:
    """Return these lanes of a vector of `count`, poison beyond its end; one lane alone is a scalar."""
    if count == len(wanted):
        return name
    if count == 1:
        return b.emit("", f"insertelement <{len(wanted)} x {element}> poison, {element} {name}, i32 0").name
    if len(wanted) == 1:
        return b.emit("", f"extractelement <{count} x {element}> {name}, i32 0").name
    kind, places = f"<{count} x {element}>", ", ".join(f"i32 {k if k < count else 'poison'}" for k in wanted)
    return b.emit("", f"shufflevector {kind} {name}, {kind} poison, <{len(wanted)} x i32> <{places}>").name
