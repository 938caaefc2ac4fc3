"""Expressions of the Kernel IR as CUDA C: plain arithmetic where C has it, else calls of `pk_cuda.h`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from math import prod

import numpy as np
from msgspec import Struct, field

from polyker.codegen.cuda.functions import COMPARE, EXTREMA, INFIX
from polyker.codegen.ir.kernel import Buffer, Const, Convert, KExpr, Load, Op, Space, Var
from polyker.codegen.ir.polynomial import expression, is_arithmetic, offset_of, polynomial
from polyker.codegen.ir.simplify_index import IndexRange, bounds, simplify_expression
from polyker.codegen.ir.swizzled import swizzled_offset
from polyker.errors.base import InternalError
from polyker.ir.dtypes import DType, bool_, f32, i64
from polyker.ir.expr import ARITHMETIC, COMPARISONS
from polyker.ir.functions import TABLE, Function
from polyker.ir.functions.composition import composed

I32_LIMIT = 1 << 31  # signed integers of 32 bits stay below it
_COMPLEX = frozenset({*ARITHMETIC, *COMPARISONS, "sub", "minimum", "maximum"} - {"floordiv", "mod"}) | {
    f.name for f in TABLE.values() if f.complex
}


def identifier(name: str) -> str:
    """Return a generated name as C has it."""
    return name.replace(".", "_")


class CudaExpressions(Struct):
    """Prints expressions; `buffers` are those alive, `ranges` what is known of the variables, `narrow` those of 32 bits.

    Indices never overflow: they are of 32 bits where all intermediate results are known to be, else of 64.
    """

    buffers: dict[str, Buffer] = field(default_factory=dict)
    ranges: dict[str, IndexRange] = field(default_factory=dict)
    narrow: set[str] = field(default_factory=set)
    _kind: str = "i64"  # of the index that is being printed

    def index(self, expr: KExpr) -> str:
        """Return an index, a bound or a size."""
        return self._whole_index(simplify_expression(expr, self.ranges))

    def _whole_index(self, expr: KExpr) -> str:
        outer, self._kind = self._kind, "i64" if magnitude(expr, self.ranges, self.narrow) is None else "i32"
        text = self._index(expr, 0)
        self._kind = outer
        return text

    def declare(self, name: str, *, step: int = 1, most: int | None = None) -> str:
        """Return the type of a loop's variable, whose range is known by now: 32 bits where it stays below 2^31.

        `step`: what is added to it at a time. `most`: a value that it may take where the loop's body is left out.
        """
        low, high = self.ranges[name]
        if low is None or high is None or max(-low, high + step, most or 0) >= I32_LIMIT:
            self.narrow.discard(name)
            return "i64"
        self.narrow.add(name)
        return "i32"

    def _index(self, expr: KExpr, level: int) -> str:
        """Return the text, in parentheses where it binds weaker than `level`: 0 anything, 1 a term, 2 a factor."""
        match expr:
            case Const(value=value):
                number = int(value.real)
                text = str(number) if self._kind == "i32" or abs(number) < 1 << 15 else _wide(number)
                return f"({text})" if number < 0 and level else text
            case Var(name=name):
                return f"i64({identifier(name)})" if self._kind == "i64" and name in self.narrow else identifier(name)
            case Op(op="add", args=args):
                # What is added first, then what is taken away.
                signed = sorted(((_negative(a), a) for a in args), key=lambda pair: pair[0] is not None)
                text = ""
                for without, arg in signed:
                    if without is None or not text:
                        text += (" + " if text else "") + self._index(arg, 1 if text else 0)
                    else:
                        text += f" - {self._index(without, 1)}"
                return f"({text})" if level else text
            case Op(op="sub", args=(a, b)):
                text = f"{self._index(a, 0)} - {self._index(b, 1)}"
                return f"({text})" if level else text
            case Op(op="neg", args=(a,)):
                return f"(-{self._index(a, 2)})"
            case Op(op="mul", args=args):
                text = " * ".join(self._index(a, 2) for a in args)
                return f"({text})" if level > 1 else text
            case Op(op="xor", args=(a, b)):
                return f"({self._index(a, 1)} ^ {self._index(b, 1)})"
            case Op(op="mod", args=(a, Const())) if self._kind == "i32" and self._is_wide(a):
                self._kind = "i64"
                text = f"i32({self._index(expr, 0)})"
                self._kind = "i32"
                return text
            case Op(op="floordiv" | "mod" as op, args=(a, Const(value=value) as b)) if (
                value.real > 0 and self._positive(a)
            ):
                text = f"{self._index(a, 2)} {'/' if op == 'floordiv' else '%'} {self._index(b, 2)}"
                return f"({text})"
            case Op(op="floordiv" | "mod" | "minimum" | "maximum" as op, args=args):
                name = EXTREMA.get(op, f"pk_{op}")
                text = f"{self._kind}({self._index(args[0], 0)})"
                for arg in args[1:]:
                    text = f"{name}({text}, {self._kind}({self._index(arg, 0)}))"
                return text
            case Op(op="where", args=(c, a, b)):
                return f"({self.condition(c)} ? {self._index(a, 2)} : {self._index(b, 2)})"
            case _:
                return self.value(expr)

    def _is_wide(self, expr: KExpr) -> bool:
        return magnitude(expr, self.ranges, self.narrow) is None

    def _positive(self, expr: KExpr) -> bool:
        low = bounds(polynomial(expr), self.ranges)[0]
        return low is not None and low >= 0

    def condition(self, expr: KExpr) -> str:
        """Return a condition; comparisons of indices are plain."""
        match expr:
            case Op(op=op, args=(a, b)) if op in COMPARE and a.dtype == i64 and is_arithmetic(a) and is_arithmetic(b):
                return f"{self.index(a)} {COMPARE[op]} {self.index(b)}"
            case Op(op="and" | "or" as op, args=args):
                joint = " && " if op == "and" else " || "
                return joint.join(self._part(a) for a in args)
            case Op(op="not", args=(a,)):
                return f"!({self.condition(a)})"
            case _:
                return self.value(expr)

    def _part(self, expr: KExpr) -> str:
        text = self.condition(expr)
        return f"({text})" if isinstance(expr, Op) and expr.op in ("and", "or") else text

    # Values

    def value(self, expr: KExpr) -> str:
        """Return a value, in parentheses where it is an operation."""
        match expr:
            case Const(value=value, dtype=dtype):
                return constant_text(value, dtype)
            case Var(name=name):
                return f"i64({identifier(name)})" if name in self.narrow else identifier(name)
            case Convert(arg=arg, dtype=dtype):
                return self._convert(arg, dtype)
            case Load():
                return self._load(expr)
            case Op():
                return self._operation(expr)

    def _load(self, load: Load) -> str:
        text = self.place(load.buffer, load.indices)
        if load.predicate is None:
            return text
        other = constant_text(0, load.dtype) if load.other is None else self.value(load.other)
        return f"({self.condition(load.predicate)} ? {text} : {other})"

    def place(self, name: str, indices: tuple[KExpr, ...]) -> str:
        """Return an element of a buffer."""
        buffer = self.buffers[name]
        if is_single(buffer):
            return identifier(name)
        here = [polynomial(simplify_expression(index, self.ranges)) for index in indices]
        if buffer.swizzle:
            offset = swizzled_offset(buffer, here, self.ranges)
        else:
            offset = offset_of(buffer, here)
        return f"{identifier(name)}[{self._whole_index(expression(offset))}]"

    def _operation(self, expr: Op) -> str:
        op, args, dtype = expr.op, expr.args, expr.args[-1].dtype
        if dtype.is_complex and op not in _COMPLEX:
            raise InternalError(f"no operation {op!r} on {dtype}")
        if op == "where":
            c, a, b = args
            return f"({self.condition(c)} ? {self.value(a)} : {self.value(b)})"
        if op in ("and", "or", "not"):
            return f"({self.condition(expr)})"
        texts = [self.value(a) for a in args]
        if op in COMPARE:
            return f"({texts[0]} {COMPARE[op]} {texts[1]})"
        if op in TABLE and dtype.kind in TABLE[op].itself:
            return texts[0]
        if op in ("real", "imag", "conj"):  # members of C's structure
            return _part(op, texts[0], dtype)
        if dtype.kind == "b":
            return self._of_bools(op, texts)
        if op in TABLE and TABLE[op].written and dtype.kind in "iu":
            return self._written(TABLE[op], args)
        if op == "pow" and isinstance(args[1], Const) and (text := _power(texts[0], args[1], dtype)) is not None:
            return text
        if op == "multiply_add":
            return f"pk_fma({', '.join(texts)})"
        if op in INFIX and dtype.kind in "fc":
            return "(" + f" {INFIX[op]} ".join(texts) + ")"
        if op == "neg":
            return f"(-{texts[0]})" if dtype.kind in "fc" else f"pk_neg({texts[0]})"
        name = EXTREMA.get(op, f"pk_{op}")
        text = texts[0] if len(texts) > 1 else f"{name}({texts[0]})"
        for other in texts[1:]:
            text = f"{name}({text}, {other})"
        return text

    def _written(self, known: Function, args: tuple[KExpr, ...]) -> str:
        """Return a composition, printed as its operations are."""
        dtype = args[0].dtype
        made = composed(
            known.written,
            args,
            lambda op, values: Op(op, values, bool_ if op in COMPARISONS else dtype),
            lambda number: Const(number, dtype),
        )
        return self.value(made)

    def _of_bools(self, op: str, texts: list[str]) -> str:
        match op:
            case "add" | "maximum":
                return "(" + " || ".join(texts) + ")"
            case "mul" | "minimum":
                return "(" + " && ".join(texts) + ")"
            case _ if op in TABLE and TABLE[op].of_bool is None:
                return texts[0]
            case _:
                raise InternalError(f"no operation {op!r} on bools")

    def _convert(self, arg: KExpr, dtype: DType) -> str:
        source, text = arg.dtype, self.value(arg)
        if source == dtype:
            return text
        if dtype.is_complex:
            if source.is_complex:
                return f"{dtype.name}({text})"
            part = _real(text, source, dtype.real)
            return f"{dtype.name}({part}, {constant_text(0, dtype.real)})"
        if source.is_complex:
            if dtype.kind == "b":
                return f"pk_truth({text})"
            return _real(f"{text}.re", source.real, dtype)
        return _real(text, source, dtype)


def _real(text: str, source: DType, dtype: DType) -> str:
    """Return a real value as another real type."""
    if source == dtype:
        return text
    halves = [d.itemsize == 2 and d.kind == "f" for d in (source, dtype)]
    if dtype.kind == "b":
        return f"({text} != {constant_text(0, source)})"
    if dtype.kind == "f":
        if halves[1] and source.name not in ("f32", "f64"):
            text = f"f32({text})"
        return f"{dtype.name}({text})"
    if source.kind == "f":
        return f"pk_int<{dtype.name}>({'f32(' + text + ')' if halves[0] else text})"
    return f"{dtype.name}({text})"


def _part(op: str, number: str, dtype: DType) -> str:
    """Return the real part, the imaginary part or the conjugate of a number."""
    if not dtype.is_complex:
        return constant_text(0, dtype) if op == "imag" else number
    return f"pk_conj({number})" if op == "conj" else f"{number}.{op[:2]}"


def _power(base: str, exponent: Const, dtype: DType) -> str | None:
    """Return a power by a small constant, as multiplications in the order of the CPU's code."""
    if dtype.kind != "f" or isinstance(exponent.value, complex):
        return None
    match float(exponent.value):
        case 1.0:
            return base
        case 2.0 | 3.0 | 4.0 as n:
            return f"pk_power{int(n)}({base})"
        case 0.5:
            return f"pk_sqrt({base})"
        case -1.0:
            return f"({constant_text(1, dtype)} / {base})"
        case _:
            return None


def magnitude(expr: KExpr, ranges: Mapping[str, IndexRange], narrow: Set[str]) -> int | None:
    """Return a bound of an index, and of all that is computed on the way to it, by 32-bit variables; None from 2^31 on.

    A sum's bound is that of its terms' magnitudes, so the order in which they are added is free.
    """
    match expr:
        case Const(value=value):
            found = abs(int(value.real))
        case Var(name=name) if name in narrow:
            low, high = ranges[name]
            assert low is not None
            assert high is not None
            found = max(abs(low), abs(high))
        case Op(op="mod", args=(a, Const(value=value))) if value.real > 0:
            found = max(magnitude(a, ranges, narrow) or 0, int(value.real))  # what is divided may be of 64 bits
        case Op(op="add" | "sub" | "neg" | "mul" | "xor" | "minimum" | "maximum" | "floordiv" | "mod" as op, args=args):
            parts = [magnitude(a, ranges, narrow) for a in args]
            known = [p for p in parts if p is not None]
            if len(known) < len(parts) or (op in ("floordiv", "mod") and not isinstance(args[1], Const)):
                return None
            found = prod(known) if op == "mul" else sum(known) if op in ("add", "sub", "xor") else max(known)
        case _:
            return None
    return found if found < I32_LIMIT else None


def is_single(buffer: Buffer) -> bool:
    """Return whether a buffer on the stack is one element: a variable."""
    return buffer.space is Space.STACK and all(s == Const(1) for s in buffer.shape)


def _negative(term: KExpr) -> KExpr | None:
    """Return the term without its minus sign, None where it has none."""
    match term:
        case Const(value=value) if -(1 << 62) < value.real < 0:
            return Const(-int(value.real))
        case Op(op="mul", args=(Const(value=value) as factor, *rest)) if value.real < 0:
            plain = _negative(factor)
            if plain is None:
                return None
            if plain == Const(1):
                return rest[0] if len(rest) == 1 else Op("mul", tuple(rest))
            return Op("mul", (plain, *rest))
        case _:
            return None


def _wide(number: int) -> str:
    return f"(-{-number - 1}LL - 1)" if number == -(1 << 63) else f"{number}LL"


def constant_text(value: bool | int | float | complex, dtype: DType) -> str:
    """Return a constant of a type."""
    if dtype.is_complex:
        number = complex(value)
        return f"{dtype.name}({constant_text(number.real, dtype.real)}, {constant_text(number.imag, dtype.real)})"
    if isinstance(value, complex):
        raise InternalError(f"complex constant of type {dtype}")
    match dtype.kind:
        case "b":
            return "true" if value else "false"
        case "i" | "u":
            number = int(value)
            if dtype.kind == "u":
                return f"{dtype.name}({number}{'ULL' if number >> 31 else ''})"
            return f"{dtype.name}({_wide(number)})"
        case _:
            if dtype.itemsize == 2:
                return f"{dtype.name}({constant_text(float(dtype.numpy.type(value)), f32)})"
            bits, suffix = (32, "f") if dtype.name == "f32" else (64, "")
            real = float(np.float32(value)) if bits == 32 else float(value)
            if math.isnan(real):
                return f"pk_nan{bits}()"
            if math.isinf(real):
                return f"{'-' if real < 0 else ''}pk_inf{bits}()"
            text = str(np.float32(real)) if bits == 32 else repr(real)
            text = text if any(c in text for c in ".en") else text + ".0"
            return f"({text}{suffix})" if text.startswith("-") else text + suffix
