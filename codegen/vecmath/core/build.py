"""A small language that emits straight-line LLVM IR: the same formula serves f32 and f64, a scalar and any vector."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from polyker.codegen.vecmath.core.tables import table

ELEMENTS = {"float": ("f32", 32), "double": ("f64", 64)}
_COMPARE_FLOAT = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_COMPARE_INT = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}


class FunctionDefinition(Struct, frozen=True):
    """The IR of one function.

    `symbol`: its name without `@`; `result` and `parameters`: its LLVM types; `text`: the `define`; `declares`: the intrinsics
    it calls, each as it is declared and its name; `needs`: definitions that it calls, to be emitted once each as well.
    """

    symbol: str
    result: str
    parameters: tuple[str, ...]
    text: str
    declares: frozenset[tuple[str, str]] = frozenset()
    needs: tuple[FunctionDefinition, ...] = ()


class Features(Struct, frozen=True):
    """What the formulas may count on: `fma`, a fused multiply-add in hardware; `avx512`, its registers of 64 bytes, from two
    of which an instruction takes any of 32 floats a lane, and by which another multiplies by powers of two."""

    fma: bool = True
    avx512: bool = False

    @property
    def suffix(self) -> str:
        """The end of the symbols."""
        return ("" if self.fma else ".nofma") + (".avx512" if self.avx512 else "")


class Format(Struct, frozen=True):
    """An IEEE format by its LLVM types: `name` in the notation, `element`, the `integer` of its size, and its fields."""

    name: str
    element: str
    integer: str
    mantissa: int
    bias: int

    @property
    def bits(self) -> int:
        """Width in bits."""
        return int(self.integer[1:])

    @property
    def shift(self) -> float:
        """What rounds to an integer where it is added; the integer then stands in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa


F32 = Format("f32", "float", "i32", 23, 127)
F64 = Format("f64", "double", "i64", 52, 1023)


class MathValue(Struct, frozen=True, eq=False):
    """An SSA value; `element` is its scalar LLVM type. Arithmetic on it emits an instruction."""

    builder: MathBuilder
    name: str
    element: str

    def __add__(self, other: MathOperand) -> MathValue:
        return self.builder.binary("add", self, other)

    def __radd__(self, other: MathOperand) -> MathValue:
        return self.builder.binary("add", other, self)

    def __sub__(self, other: MathOperand) -> MathValue:
        return self.builder.binary("sub", self, other)

    def __rsub__(self, other: MathOperand) -> MathValue:
        return self.builder.binary("sub", other, self)

    def __mul__(self, other: MathOperand) -> MathValue:
        return self.builder.binary("mul", self, other)

    def __rmul__(self, other: MathOperand) -> MathValue:
        return self.builder.binary("mul", other, self)

    def __truediv__(self, other: MathOperand) -> MathValue:
        return self.builder.binary("div", self, other)

    def __rtruediv__(self, other: MathOperand) -> MathValue:
        return self.builder.binary("div", other, self)

    def __neg__(self) -> MathValue:
        return self.builder.negate(self)

    def __and__(self, other: MathOperand) -> MathValue:
        return self.builder.binary("and", self, other)

    def __or__(self, other: MathOperand) -> MathValue:
        return self.builder.binary("or", self, other)

    def __xor__(self, other: MathOperand) -> MathValue:
        return self.builder.binary("xor", self, other)

    def __lshift__(self, other: MathOperand) -> MathValue:
        return self.builder.binary("shl", self, other)

    def shr(self, other: MathOperand) -> MathValue:
        """Logical shift to the right."""
        return self.builder.binary("lshr", self, other)

    def ashr(self, other: MathOperand) -> MathValue:
        """Arithmetic shift to the right."""
        return self.builder.binary("ashr", self, other)

    def __lt__(self, other: MathOperand) -> MathValue:
        return self.builder.compare("lt", self, other)

    def __le__(self, other: MathOperand) -> MathValue:
        return self.builder.compare("le", self, other)

    def __gt__(self, other: MathOperand) -> MathValue:
        return self.builder.compare("gt", self, other)

    def __ge__(self, other: MathOperand) -> MathValue:
        return self.builder.compare("ge", self, other)

    def eq(self, other: MathOperand) -> MathValue:
        """Equal (false for NaN)."""
        return self.builder.compare("eq", self, other)

    def ne(self, other: MathOperand) -> MathValue:
        """Not equal (true for NaN)."""
        return self.builder.compare("ne", self, other)


MathOperand: TypeAlias = MathValue | float
Formula: TypeAlias = Callable[..., MathValue]
PURE = "nosync nounwind willreturn memory(none)"
COLD = f"cold noinline {PURE}"


def literal(value: float, element: str) -> str:
    """Return the spelling of a scalar constant; floating-point ones in hexadecimal, so that no bit is lost.

    >>> literal(0.1, "float")
    '0x3FB99999A0000000'
    """
    if element == "i1":
        return "true" if value else "false"
    if element.startswith("i"):
        bits = int(element[1:])
        return str((int(value) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)))
    with np.errstate(over="ignore"):
        number = float(np.float32(value)) if element == "float" else float(value)
    bits = 0x7FF8 << 48 if number != number else struct.unpack("<Q", struct.pack("<d", number))[0]
    return f"0x{bits:016X}"


class MathBuilder:
    """Collects the instructions of one function whose values are scalars (`lanes` 1) or vectors of `lanes` elements."""

    def __init__(self, lanes: int, features: Features) -> None:
        self.lanes = lanes
        self.features = features
        self.lines: list[str] = []
        self.declares: set[tuple[str, str]] = set()
        self.needs: list[FunctionDefinition] = []
        self.block = "entry"
        self._count = 0

    def type(self, element: str) -> str:
        """Return the LLVM type of a value of this scalar type."""
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def fresh(self) -> str:
        """Return an unused register or label name, without its sigil."""
        self._count += 1
        return f"v{self._count}"

    def emit(self, element: str, instruction: str) -> MathValue:
        """Append an instruction and return its value."""
        name = f"%{self.fresh()}"
        self.lines.append(f"  {name} = {instruction}")
        return MathValue(self, name, element)

    def constant(self, value: float, element: str) -> MathValue:
        """Return a constant, the same in all lanes."""
        text = literal(value, element)
        return MathValue(self, text if self.lanes == 1 else f"splat ({element} {text})", element)

    def value(self, operand: MathOperand, element: str) -> MathValue:
        """Return an operand as a value; Python numbers become constants of the scalar type `element`."""
        return operand if isinstance(operand, MathValue) else self.constant(operand, element)

    def binary(self, op: str, left: MathOperand, right: MathOperand) -> MathValue:
        """Emit an arithmetic or bitwise operation; the type of the operand that is a value decides which."""
        element = left.element if isinstance(left, MathValue) else right.element  # type: ignore[union-attr]
        a, b = self.value(left, element), self.value(right, element)
        prefix = "f" if element in ELEMENTS else ""
        return self.emit(element, f"{prefix}{op} {self.type(element)} {a.name}, {b.name}")

    def compare(self, op: str, left: MathValue, right: MathOperand) -> MathValue:
        """Emit a comparison, signed for integers; only `ne` is true for NaN."""
        a, b = left, self.value(right, left.element)
        if a.element in ELEMENTS:
            return self.emit("i1", f"fcmp {_COMPARE_FLOAT[op]} {self.type(a.element)} {a.name}, {b.name}")
        return self.emit("i1", f"icmp {_COMPARE_INT[op]} {self.type(a.element)} {a.name}, {b.name}")

    def unsigned_ge(self, left: MathValue, right: int) -> MathValue:
        """Emit a comparison of integers without sign."""
        limit = self.constant(right, left.element)
        return self.emit("i1", f"icmp uge {self.type(left.element)} {left.name}, {limit.name}")

    def negate(self, x: MathValue) -> MathValue:
        """Emit -x."""
        if x.element in ELEMENTS:
            return self.emit(x.element, f"fneg {self.type(x.element)} {x.name}")
        return self.binary("sub", 0, x)

    def negation(self, condition: MathValue) -> MathValue:
        """Emit the opposite of a condition."""
        return self.binary("xor", condition, True)

    def select(self, condition: MathValue, yes: MathOperand, no: MathOperand) -> MathValue:
        """Emit `yes` where the condition holds, else `no`; one of the two is a value."""
        element = yes.element if isinstance(yes, MathValue) else no.element  # type: ignore[union-attr]
        return self.choose(condition, self.value(yes, element), self.value(no, element))

    def choose(self, condition: MathValue, yes: MathValue, no: MathValue) -> MathValue:
        """Emit a select between two values of one type."""
        kind = self.type(yes.element)
        return self.emit(yes.element, f"select {self.type('i1')} {condition.name}, {kind} {yes.name}, {kind} {no.name}")

    def convert(self, op: str, x: MathValue, element: str) -> MathValue:
        """Emit a conversion: bitcast, fpext, fptrunc, sitofp, fptosi, zext, sext, trunc."""
        return self.emit(element, f"{op} {self.type(x.element)} {x.name} to {self.type(element)}")

    def declare(self, result: str, name: str, *parameters: str) -> None:
        """Note an intrinsic that is called."""
        self.declares.add((f"declare {result} @{name}({', '.join(parameters)})", name))

    def intrinsic(self, name: str, *args: MathValue) -> MathValue:
        """Emit a call of `llvm.name`, overloaded on the type of its arguments, which is that of its result too."""
        kind, element = self.type(args[0].element), args[0].element
        short = f"{'f' if element in ELEMENTS else 'i'}{element[1:] if element[0] == 'i' else ELEMENTS[element][1]}"
        suffix = short if self.lanes == 1 else f"v{self.lanes}{short}"
        symbol = f"llvm.{name}.{suffix}"
        self.declare(kind, symbol, *[kind] * len(args))
        return self.emit(element, f"call {kind} @{symbol}({', '.join(f'{kind} {a.name}' for a in args)})")

    def fma(self, a: MathOperand, b: MathOperand, c: MathOperand) -> MathValue:
        """Emit a * b + c: rounded once where the target fuses, else twice."""
        element = next(v.element for v in (a, b, c) if isinstance(v, MathValue))
        x, y, z = (self.value(v, element) for v in (a, b, c))
        return self.intrinsic("fma", x, y, z) if self.features.fma else x * y + z

    def horner(self, x: MathValue, coefficients: Sequence[float]) -> MathValue:
        """Emit the polynomial with these coefficients, the constant one first."""
        result = self.constant(coefficients[-1], x.element)
        for c in reversed(coefficients[:-1]):
            result = self.fma(result, x, c)
        return result

    def horner2(self, x: MathValue, square: MathValue, coefficients: Sequence[float]) -> MathValue:
        """Emit the same polynomial from its even and odd parts: half the latency, and no more work where x^2 is at hand."""
        return self.fma(self.horner(square, coefficients[1::2]), x, self.horner(square, coefficients[::2]))

    def abs(self, x: MathValue) -> MathValue:
        """Emit |x| of a floating-point value."""
        return self.intrinsic("fabs", x)

    def copysign(self, x: MathValue, sign: MathValue) -> MathValue:
        """Emit x with the sign of `sign`."""
        return self.intrinsic("copysign", x, sign)

    def sqrt(self, x: MathValue) -> MathValue:
        """Emit the square root, correctly rounded."""
        return self.intrinsic("sqrt", x)

    def at_least(self, x: MathValue, bound: float) -> MathValue:
        """Emit the larger of x and a bound; NaN stays."""
        return self.select(x < bound, bound, x)

    def at_most(self, x: MathValue, bound: float) -> MathValue:
        """Emit the smaller of x and a bound; NaN stays."""
        return self.select(x > bound, bound, x)

    def any(self, condition: MathValue) -> MathValue:
        """Emit one i1 that says whether the condition holds in any lane."""
        if self.lanes == 1:
            return condition
        mask = self.emit("i1", f"bitcast {self.type('i1')} {condition.name} to i{self.lanes}")
        return self.emit("i1", f"icmp ne i{self.lanes} {mask.name}, 0")

    def format(self, x: MathValue) -> Format:
        """Return the floating-point format of a value."""
        return F32 if x.element == "float" else F64

    def table(self, name: str, x: MathValue) -> tuple[float, ...]:
        """Return the table of that name for the format of a value."""
        return table(f"{name}_{self.format(x).name.upper()}")

    def bits(self, x: MathValue) -> MathValue:
        """Emit the bits of a floating-point value as integers."""
        return self.convert("bitcast", x, self.format(x).integer)

    def from_bits(self, x: MathValue) -> MathValue:
        """Emit the floating-point value that has these bits."""
        return self.convert("bitcast", x, "float" if x.element == "i32" else "double")

    def rare(
        self, condition: MathValue, usual: Sequence[MathValue], repair: Callable[[], Sequence[MathValue]]
    ) -> list[MathValue]:
        """Emit a branch: `usual` where the condition holds in no lane, else what `repair` emits, for all lanes."""
        # A lane that is not in use may hold poison, on which no branch may depend.
        flag, before = self.emit("i1", f"freeze i1 {self.any(condition).name}"), self.block
        slow, join = self.fresh(), self.fresh()
        self.lines += [f"  br i1 {flag.name}, label %{slow}, label %{join}", f"{slow}:"]
        self.block = slow
        repaired = repair()
        self.lines += [f"  br label %{join}", f"{join}:"]
        after, self.block = self.block, join
        return [
            self.emit(u.element, f"phi {self.type(u.element)} [ {u.name}, %{before} ], [ {r.name}, %{after} ]")
            for u, r in zip(usual, repaired, strict=True)
        ]

    def call(self, definition: FunctionDefinition, elements: Sequence[str], *args: MathValue) -> list[MathValue]:
        """Emit a call of another definition, whose results have these scalar types."""
        if definition not in self.needs:
            self.needs.append(definition)
        passed = ", ".join(f"{self.type(a.element)} {a.name}" for a in args)
        if len(elements) == 1:
            return [self.emit(elements[0], f"call {definition.result} @{definition.symbol}({passed})")]
        whole = self.emit("", f"call {definition.result} @{definition.symbol}({passed})")
        return [self.emit(e, f"extractvalue {definition.result} {whole.name}, {k}") for k, e in enumerate(elements)]

    def outlined(self, name: str, formula: Formula, *args: MathValue) -> MathValue:
        """Emit a call of a function of its own for a rarely needed formula; `name` tells it from all others."""
        inner = MathBuilder(self.lanes, self.features)
        parameters = [MathValue(inner, f"%x{k}", a.element) for k, a in enumerate(args)]
        suffix = "" if self.lanes == 1 else f".v{self.lanes}"
        symbol = f"pk.{name}.{self.format(args[0]).name}{suffix}{self.features.suffix}"
        definition = inner.define(symbol, parameters, [formula(inner, *parameters)], COLD)
        return self.call(definition, (args[0].element,), *args)[0]

    def rarely(
        self, condition: MathValue, usual: MathValue, name: str, formula: Formula, *args: MathValue
    ) -> MathValue:
        """Emit `usual` but where the condition holds the value of a formula, which has a function of its own."""

        def repaired() -> list[MathValue]:
            return [self.choose(condition, self.outlined(name, formula, *args), usual)]

        return self.rare(condition, [usual], repaired)[0]

    def define(
        self, symbol: str, parameters: Sequence[MathValue], results: Sequence[MathValue], attributes: str
    ) -> FunctionDefinition:
        """Return the function made of what was emitted so far; several results are returned as a struct."""
        kinds = [self.type(r.element) for r in results]
        result = kinds[0] if len(kinds) == 1 else f"{{ {', '.join(kinds)} }}"
        last = results[0].name
        if len(kinds) > 1:
            last = "poison"
            for k, value in enumerate(results):
                last = self.emit("", f"insertvalue {result} {last}, {kinds[k]} {value.name}, {k}").name
        taken = tuple(self.type(p.element) for p in parameters)
        head = ", ".join(f"{k} {p.name}" for k, p in zip(taken, parameters, strict=True))
        lines = [f"define internal {result} @{symbol}({head}) {attributes} {{", "entry:", *self.lines]
        text = "\n".join([*lines, f"  ret {result} {last}", "}", ""])
        return FunctionDefinition(symbol, result, taken, text, frozenset(self.declares), tuple(self.needs))
