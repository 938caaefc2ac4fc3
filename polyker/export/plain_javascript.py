"""Plain JavaScript of a program: the loops of its text, one statement after the other, printed from the Kernel IR.

Nothing of the schedule and of LLVM is in it, so that it checks a module, and shows what the same loops take in JavaScript.
Numbers are JavaScript's, rounded after each operation to their type; 64-bit integers are BigInt, but in indices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from polyker.codegen.argument_layout import argument_names
from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    Convert,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Prefetch,
    Space,
    Stmt,
    Store,
    Var,
)
from polyker.codegen.ir.polynomial import is_index
from polyker.errors.base import failure
from polyker.errors.export import NO_JAVASCRIPT
from polyker.export.javascript import array_type
from polyker.ir.dtypes import DType, bool_, f64, i64
from polyker.ir.expr import COMPARISONS
from polyker.ir.functions import TABLE
from polyker.ir.functions.composition import composed
from polyker.ir.layout import DENSE
from polyker.ir.typed import TypedProgram
from polyker.machine.model import Target
from polyker.options import Options
from polyker.pipeline import program as programs
from polyker.pipeline.schedules import in_text_order
from polyker.pipeline.single import started
from polyker.pipeline.threads import proven_kernel
from polyker.poly.isl import isl_job

# Functions of a number by their names in JavaScript, and those of glue code.
_MATH = {
    name: f"Math.{name}"
    for name in (
        "exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "hypot", "sin", "cos", "tan", "asin", "acos", "atan",
        "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "floor", "ceil", "trunc", "sign", "abs",
    )
} | {"pow": "Math.pow", "round": "roundEven", "exp2": "exp2", "erf": "erf", "erfc": "erfc", "copysign": "copysign"}  # fmt: skip
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARED = dict(zip(COMPARISONS, ("<", "<=", ">", ">=", "===", "!=="), strict=True))
_BITS = {"bit_and": "&", "bit_or": "|", "bit_xor": "^"}
# Functions of glue code on BigInt, given the bits of the type, too.
_WHOLE = {
    "shift_left": "shiftLeft",
    "shift_right": "shiftRight",
    "pow": "power",
    "fmod": "remainder",
    "popcount": "ones",
}
_OF_BOOL = {"add": "||", "or": "||", "maximum": "||", "mul": "&&", "and": "&&", "minimum": "&&"}
_INLINE = 2  # spaces


def plain_kernel(typed: TypedProgram, target: Target) -> tuple[KernelIR, tuple[str, ...]]:
    """Return the loops of a program's text, and the names of its arguments."""
    layouts = (DENSE,) * len(argument_names(typed))
    run = started(typed, layouts, target, Options(threads=1))
    with isl_job("schedule"):
        lowered = proven_kernel(in_text_order(run.passes(programs.TEXT, typed)), run)[2]
    return lowered.kernel, lowered.arguments


def plain_javascript(kernel: KernelIR, arguments: Sequence[str], name: str) -> str:
    """Return a function of typed arrays, in the order of the arguments; raises ArgumentError for what it does not print.

    It returns 0, or the number of what a guard found. `name`: of the operator, for messages.
    """
    printer = _Printer(name, {b.name: b for b in kernel.buffers})
    own = [b for b in kernel.buffers if b.space is Space.SCRATCH]
    lines = [*(printer.array(b) for b in own), *printer.block(kernel.body, 1)]
    given = ", ".join(map(_name, arguments))
    body = "\n".join(f"{' ' * _INLINE}{line}" for line in (*lines, "return 0;"))
    return f"({given}) => {{\n{body}\n}}"


def _name(name: str) -> str:
    return "$" + re.sub(r"[^A-Za-z0-9_]", "$", name)


class _Printer:
    """Prints statements and expressions of fixed sizes."""

    def __init__(self, name: str, buffers: dict[str, Buffer]) -> None:
        self.name, self.buffers = name, buffers

    def refuse(self, what: str) -> Exception:
        return failure(NO_JAVASCRIPT, name=self.name, what=what)

    def array(self, buffer: Buffer) -> str:
        """Return the declaration of a buffer."""
        if buffer.dtype.is_complex:
            raise self.refuse("complex numbers")
        size = " * ".join(map(self.index, buffer.shape)) or "1"
        return f"const {_name(buffer.name)} = new {array_type(buffer.dtype)}({size});"

    # Statements

    def block(self, block: Sequence[Stmt], depth: int) -> Iterator[str]:
        for stmt in block:
            yield from self.statement(stmt, depth)

    def inner(self, head: str, block: Sequence[Stmt], depth: int) -> Iterator[str]:
        yield f"{head} {{"
        yield from (f"{' ' * _INLINE}{line}" for line in self.block(block, depth + 1))
        yield "}"

    def statement(self, stmt: Stmt, depth: int) -> Iterator[str]:
        match stmt:
            case Store(buffer=buffer, indices=indices, value=value):
                stored = self.stored(self.value(value), self.buffers[buffer].dtype)
                yield f"{self.place(buffer, indices)} = {stored};"
            case Let(name=name, value=value):
                yield f"const {_name(name)} = {self.index(value) if value.dtype == i64 else self.value(value)};"
            case Guard(condition=condition, code=code):
                yield f"if (!{self.value(condition)}) return {code};"
            case If(condition=condition, body=body, orelse=orelse):
                yield from self.inner(f"if ({self.value(condition)})", body, depth)
                if orelse:
                    yield from self.inner("else", orelse, depth)
            case For(var=var, lo=lo, hi=hi, step=step, body=body, kind=LoopKind.SERIAL):
                name, end = _name(var), f"end{depth}"
                head = (
                    f"for (let {name} = {self.index(lo)}, {end} = {self.index(hi)}; {name} < {end}; {name} += {step})"
                )
                yield from self.inner(head, body, depth)
            case Allocate(buffers=buffers, body=body):
                self.buffers |= {b.name: b for b in buffers}
                yield from map(self.array, buffers)
                yield from self.block(body, depth)
            case Prefetch():
                pass
            case _:
                raise self.refuse(type(stmt).__name__)

    def place(self, name: str, indices: Sequence[KExpr]) -> str:
        buffer = self.buffers[name]
        if buffer.dtype.is_complex:
            raise self.refuse("complex numbers")
        terms = [
            self.index(i) if s == Const(1) else f"{self.index(i)} * {self.index(s)}"
            for i, s in zip(indices, buffer.strides, strict=True)
        ]
        return f"{_name(name)}[{' + '.join(terms) or '0'}]"

    def stored(self, value: str, dtype: DType) -> str:
        return f"{dtype.name}Bits({value})" if dtype.name in ("f16", "bf16") else value

    # Integers that are places and bounds: JavaScript's numbers

    def index(self, expr: KExpr) -> str:
        """Return a 64-bit integer as a number."""
        match expr:
            case Const(value=value):
                return str(int(value.real)) if value.real >= 0 else f"({int(value.real)})"
            case Var(name=name):
                return _name(name)
            case Op(op="add" | "sub" | "mul" as op, args=args):
                return f"({f' {_SIGNS[op]} '.join(map(self.index, args))})"
            case Op(op="neg", args=(arg,)):
                return f"(-{self.index(arg)})"
            case Op(op="minimum" | "maximum" as op, args=args):
                return f"Math.{op[:3]}({', '.join(map(self.index, args))})"
            case Op(op="floordiv" | "mod" as op, args=(a, b)):
                return f"{op}({self.index(a)}, {self.index(b)})"
            case Op(op="where", args=(condition, a, b)):
                return f"({self.value(condition)} ? {self.index(a)} : {self.index(b)})"
            case Convert(arg=arg) if arg.dtype.kind in "iu" and arg.dtype.itemsize < 8:
                return self.value(arg)
        return f"Number({self.value(expr)})"

    # Values

    def value(self, expr: KExpr) -> str:
        """Return a value: a number, a boolean, or a BigInt for 64-bit integers."""
        if expr.dtype.is_complex:
            raise self.refuse("complex numbers")
        if expr.dtype == i64 and is_index(expr):
            return _literal(expr) if isinstance(expr, Const) else f"BigInt({self.index(expr)})"
        match expr:
            case Const():
                return _literal(expr)
            case Var(name=name):
                return _name(name)
            case Load():
                return self.load(expr)
            case Convert(arg=arg, dtype=dtype):
                return self.converted(arg, dtype)
        assert isinstance(expr, Op)
        return self.operation(expr.op, expr.args, expr.dtype)

    def load(self, load: Load) -> str:
        place, dtype = self.place(load.buffer, load.indices), load.dtype
        found = f"{dtype.name}Value({place})" if dtype.name in ("f16", "bf16") else place
        found = f"({found} !== 0)" if dtype == bool_ else found
        if load.predicate is None:
            return found
        other = self.value(load.other if load.other is not None else Const(0, dtype))
        return f"({self.value(load.predicate)} ? {found} : {other})"

    def converted(self, arg: KExpr, dtype: DType) -> str:
        source = arg.dtype
        if source == i64 and is_index(arg) and (dtype.is_float or (dtype.is_integer and not _is_big(dtype))):
            return self.rounded(self.index(arg), dtype)
        value = self.value(arg)
        if dtype == bool_:
            return value if source == bool_ else f"({value} !== {'0n' if _is_big(source) else '0'})"
        if source == bool_:
            value = f"Number({value})"
        if _is_big(dtype):
            if source.is_float:
                value = f"wholeOf({value})"
            return self.rounded(value if _is_big(source) else f"BigInt({value})", dtype)
        if _is_big(source):
            value = f"BigInt.asIntN({8 * dtype.itemsize}, {value})" if dtype.is_integer else value
            value = f"Number({value})"
        return self.rounded(value, dtype)

    def rounded(self, value: str, dtype: DType) -> str:
        """Return what an operation gives, in its type."""
        if dtype in (f64, bool_):
            return value
        if dtype.is_float:
            return f"Math.fround({value})" if dtype.name == "f32" else f"{dtype.name}Value({dtype.name}Bits({value}))"
        bits, signed = 8 * dtype.itemsize, dtype.kind == "i"
        if bits == 64:
            return f"BigInt.as{'Int' if signed else 'Uint'}N(64, {value})"
        if bits == 32:
            return f"(({value}) {'| 0' if signed else '>>> 0'})"
        return f"(({value}) << {32 - bits} >> {32 - bits})" if signed else f"(({value}) & {(1 << bits) - 1})"

    def operation(self, op: str, args: Sequence[KExpr], dtype: DType) -> str:
        if op in COMPARISONS:
            whole = all(a.dtype == i64 and is_index(a) for a in args)
            a, b = map(self.index if whole else self.value, args)
            return f"({a} {_COMPARED[op]} {b})"
        if op == "where":
            condition, a, b = map(self.value, args)
            return f"({condition} ? {a} : {b})"
        if op == "not":
            return f"(!{self.value(args[0])})"
        if op in _WHOLE and args[0].dtype.is_integer:
            return self.whole(op, args, dtype)
        values = [self.value(a) for a in args]
        if dtype == bool_ and op in _OF_BOOL:
            return f"({f' {_OF_BOOL[op]} '.join(values)})"
        return self.applied(op, values, dtype)

    def whole(self, op: str, args: Sequence[KExpr], dtype: DType) -> str:
        """Return the value of a function of integers that computes on BigInt."""
        big = [self.value(a) if _is_big(a.dtype) else f"BigInt({self.value(a)})" for a in args]
        found = f"{_WHOLE[op]}({', '.join(big)}, {8 * args[0].dtype.itemsize}n)"
        return (
            self.rounded(found, dtype) if _is_big(dtype) else self.rounded(f"Number(BigInt.asIntN(64, {found}))", dtype)
        )

    def applied(self, op: str, values: Sequence[str], dtype: DType) -> str:
        """Return the value of an operation on values of its own type."""
        if op in ("add", "sub", "mul", *_BITS):
            found = values[0]
            for v in values[1:]:
                found = self.rounded(_binary(op, found, v, dtype), dtype)
            return found
        if op in ("neg", "bit_not"):
            found = f"({'-' if op == 'neg' else '~'}{values[0]})"
            return found if dtype.is_float else self.rounded(found, dtype)
        if op in ("minimum", "maximum"):
            return _extremum(op, values, dtype)
        if op == "multiply_add":
            return self.applied("add", [self.applied("mul", values[:2], dtype), values[2]], dtype)
        if op in ("floordiv", "mod"):
            return self.rounded(f"{'big' if _is_big(dtype) else ''}{op}({', '.join(values)})", dtype)
        if dtype.is_float and op in ("div", "fmod"):
            return self.rounded(f"({values[0]} {'/' if op == 'div' else '%'} {values[1]})", dtype)
        return self.function(op, values, dtype)

    def function(self, op: str, values: Sequence[str], dtype: DType) -> str:
        known = TABLE.get(op)
        if known is not None and dtype.kind in known.itself:
            return values[0]
        if op == "abs" and dtype.is_integer:
            zero = "0n" if _is_big(dtype) else "0"
            return self.rounded(f"({values[0]} < {zero} ? -{values[0]} : {values[0]})", dtype)
        if op in _MATH and dtype.is_float:
            return self.rounded(f"{_MATH[op]}({', '.join(values)})", dtype)
        if known is not None and known.written and dtype.is_float:
            text = composed(known.written, values, lambda o, v: self.composed(o, v), repr)
            return self.rounded(text, dtype)
        raise self.refuse(f"{op} of {dtype}")

    def composed(self, op: str, values: Sequence[str]) -> str:
        """Return a part of a composition, in f64."""
        if op in _COMPARED:
            return f"({values[0]} {_COMPARED[op]} {values[1]})"
        if op == "where":
            return f"({values[0]} ? {values[1]} : {values[2]})"
        return self.applied(op, values, f64)


def _is_big(dtype: DType) -> bool:
    return dtype.is_integer and dtype.itemsize == 8


def _literal(const: Const) -> str:
    value, dtype = const.value, const.dtype
    if dtype == bool_:
        return "true" if value else "false"
    if dtype.is_integer:
        found = f"{int(value.real)}{'n' if _is_big(dtype) else ''}"
    else:
        found = repr(float(dtype.numpy.type(value.real)))
        found = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(found, found)
    return f"({found})" if found.startswith("-") else found


def _binary(op: str, a: str, b: str, dtype: DType) -> str:
    if op == "mul" and dtype.is_integer and not _is_big(dtype):
        return f"Math.imul({a}, {b})"
    return f"({a} {_SIGNS.get(op) or _BITS[op]} {b})"


def _extremum(op: str, values: Sequence[str], dtype: DType) -> str:
    if not _is_big(dtype):
        return f"Math.{op[:3]}({', '.join(values)})"
    found = values[0]
    for v in values[1:]:
        found = f"({found} {'<' if op == 'minimum' else '>'} {v} ? {found} : {v})"
    return found
