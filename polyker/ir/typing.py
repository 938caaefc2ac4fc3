"""Typing of expressions: numpy's result types, conversions spelled out as `Cast`s.

f16 and bf16 are storage types: a value of theirs is computed in f32 and rounded where it is stored, while promotion
uses their own name. So a typed value carries both the node, whose dtype is the computed one, and its `ValueType`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from polyker.errors.base import DTypeError, Span, advised, failure
from polyker.errors.types import BITS_OF, LITERAL_RANGE, NEGATIVE_POWER, NO_LOOP, NOT_INTEGER, TOO_LARGE
from polyker.ir.bitwise import conversion, folded, meant
from polyker.ir.dtypes import DType, bf16, bool_, c128, f16, f32, f64, i8, i64, u8, u64
from polyker.ir.expr import (
    BITWISE,
    COMPARISONS,
    Call,
    Cast,
    Expr,
    IndexExpr,
    Literal,
    Pad,
    Range,
    Read,
    Reduce,
    SizeExpr,
    reads_in,
)
from polyker.ir.functions import TABLE, Function
from polyker.ir.functions.composition import composed, repeats
from polyker.ir.measure import SIZE, size_of
from polyker.ir.printing import SYMBOLS
from polyker.ir.promotion import UnknownType, ValueType, computed, fits, floating, promote
from polyker.ir.reductions import admitted, reduction
from polyker.structs import replace

TypedExpr: TypeAlias = tuple[Expr, ValueType]

_NOT_BOOL = "use `not`, or convert first: `i64(...)`"
_REAL_PART = "take the real part: `real(...)`"
_BOOL = ValueType(bool_)
_WEAK = {"i": ValueType(i64, True), "f": ValueType(f64, True), "c": ValueType(c128, True)}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


class Typer(Struct, frozen=True):
    """Types expressions over generated names.

    `types`: the tensors' types, None while unknown; `names`: the tensors' generated names; `acc`: the type to
    accumulate in, where the caller says; `domains`: the isl text of each inline reduction by its first index's name.
    """

    types: Mapping[str, ValueType | None]
    names: Mapping[str, str]
    domains: Mapping[str, str]
    acc: DType | None = None

    def type(self, expr: Expr) -> TypedExpr:
        """Return the typed expression and its type for promotion.

        Raises:
            DTypeError: where numpy has no such operation, or an integer literal does not fit.
            UnknownType: where a tensor is read whose type is not known yet.
        """
        match expr:
            case Literal(value=value):
                return literal(value, expr.span)
            case IndexExpr() | SizeExpr():
                return replace(expr, dtype=i64), _WEAK["i"]
            case Read():
                return self._read(expr)
            case Cast(to=to):
                node, found = self.type(expr.arg)
                stored = convert(node, found, ValueType(to), expr.span, explicit=True)
                return _reload(stored, to, expr.span), ValueType(to)
            case Reduce():
                return self._reduce(expr)
            case Call():
                return self._call(expr)
            case _:
                raise AssertionError(f"not an expression to type: {expr!r}")

    def condition(self, conditions: Sequence[Expr]) -> Expr | None:
        """Return the typed conjunction of conditions that read values, None of none."""
        if not conditions:
            return None
        return truth(*self.type(conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions))))

    def _read(self, expr: Read) -> TypedExpr:
        found = self.types[expr.tensor]
        if found is None:
            raise UnknownType(expr.tensor)
        subscripts = tuple(self.subscript(s) for s in expr.subscripts)
        pad = expr.pad
        if pad is not None and pad.value is not None:
            pad = Pad(pad.mode, pad_value(pad.value, found, expr.span))
        node: Expr = replace(expr, tensor=self.names[expr.tensor], subscripts=subscripts, pad=pad, dtype=found.dtype)
        return _reload(node, found.dtype, expr.span), found

    def subscript(self, expr: Expr) -> Expr:
        """Return a typed subscript: i64, a gathered integer converted to it."""
        match expr:
            case Read(tensor=tensor):
                node, found = self._read(expr)
                if not found.dtype.is_integer:
                    raise failure(NOT_INTEGER, span=expr.span, tensor=tensor, dtype=found)
                return node if found.dtype == i64 else Cast(i64, node, i64, expr.span)
            case Call(args=args):
                return replace(expr, args=tuple(self.subscript(a) for a in args), dtype=i64)
            case Literal() | IndexExpr() | SizeExpr():
                return replace(expr, dtype=i64)
            case _:
                node, found = self.type(expr)
                raise failure(NOT_INTEGER, span=expr.span, tensor="an expression", dtype=found)

    def _call(self, expr: Call) -> TypedExpr:
        op, span = expr.op, expr.span
        if op == "add":
            return self._sum(expr)
        args = self._operands(expr)
        if op in COMPARISONS:
            return compare(op, args[0], args[1], span), _BOOL
        if op in ("and", "or", "not"):
            return Call(op, tuple(truth(*a) for a in args), bool_, span), _BOOL
        if op in BITWISE:
            return _bitwise(expr, args)
        if op == "where":
            kind = promote(args[1][1], args[2][1])
            branches = (convert(*a, kind, span) for a in args[1:])
            return Call("where", (truth(*args[0]), *branches), computed(kind.dtype), span), kind
        if op == "pow":
            result = args[-1]
            for base in reversed(args[:-1]):
                result = _power(base, result, span)
            return result
        if op in ("mul", "div", "floordiv", "mod", "minimum", "maximum"):
            return _fold(op, args, span)
        return unary(op, args[0], span) if len(args) == 1 else several(op, args, span)

    def _operands(self, expr: Call) -> list[TypedExpr]:
        try:
            return [self.type(a) for a in expr.args]
        except DTypeError as error:
            hint = meant(expr) if error.code == BITS_OF else None
            if hint is None:
                raise
            raise advised(error, hint) from None

    def _sum(self, expr: Call) -> TypedExpr:
        """Type a sum; `a - b` is add(a, neg(b)), and is typed as a subtraction: b is converted before it is negated."""
        total = self.type(expr.args[0])
        for place, arg in enumerate(expr.args[1:]):
            match arg:
                case Call(op="neg", args=(inner,)):
                    node, found = self.type(inner)
                    kind = promote(total[1], found)
                    if kind == _BOOL:
                        advice = "use `!=` or `not`"
                        raise failure(NO_LOOP, span=expr.span, op="-", types="bool and bool", advice=advice)
                    negated = _negate(convert(node, found, kind, arg.span), arg.span)
                    total = _join("add", total, (negated, kind), kind, expr.span, place > 0)
                case _:
                    term = self.type(arg)
                    total = _join("add", total, term, promote(total[1], term[1]), expr.span, place > 0)
        return total

    def _reduce(self, expr: Reduce) -> TypedExpr:
        body, found = self.type(expr.body)
        result, acc = reduction(expr.op, found, self.acc, expr.span)
        if expr.op in ("any", "all"):
            body = truth(body, found)
        else:
            body = convert(body, found, ValueType(acc), expr.span)
        condition = self.condition(expr.conditions)
        kept = () if condition is None or expr.op not in ("mean", "argmax", "argmin") else (condition,)
        if not kept:
            body = admitted(expr.op, body, condition)
        ranges = tuple(Range(r.index, span=r.span) for r in expr.ranges)
        domain = self.domains[expr.ranges[0].index]
        dtype = computed(result.dtype)
        return replace(expr, ranges=ranges, body=body, conditions=kept, dtype=dtype, acc=acc, domain=domain), result


def literal(value: bool | int | float | complex, span: Span | None) -> TypedExpr:
    """Return a typed constant; weak but for bool."""
    if isinstance(value, bool):
        return Literal(value, bool_, span), _BOOL
    kind = _WEAK["i" if isinstance(value, int) else "f" if isinstance(value, float) else "c"]
    return Literal(value, kind.dtype, span), kind


def _reload(node: Expr, dtype: DType, span: Span | None) -> Expr:
    """Return a stored value as it is computed with."""
    return Cast(f32, node, f32, span) if dtype in (f16, bf16) else node


def convert(node: Expr, found: ValueType, to: ValueType, span: Span | None, explicit: bool = False) -> Expr:
    """Return a value converted to `to`, in the type it is computed in; to `to` itself with `explicit`."""
    goal = to.dtype if explicit else computed(to.dtype)
    cut = explicit and goal.is_integer and isinstance(getattr(node, "value", None), float)
    if isinstance(node, Literal) and found.weak and not cut:
        return replace(node, value=constant_value(node.value, goal, node.span or span), dtype=goal)
    if node.dtype == goal:
        return node
    if goal == bool_:
        return truth(node, found)
    if found.dtype.is_complex and not goal.is_complex:
        part = found.dtype.real
        node = Call("real", (node,), part, span)
        return node if part == goal else Cast(goal, node, goal, span)
    return Cast(goal, node, goal, span)


def constant_value(value: Any, dtype: DType, span: Span | None) -> Any:
    """Return a Python scalar as a value of `dtype`, rounded to it.

    Raises:
        DTypeError: for an integer that does not fit an integer type.
    """
    if dtype == bool_:
        return bool(value)
    if dtype.is_integer:
        whole = int(value.real)
        if not fits(whole, dtype):
            raise failure(LITERAL_RANGE, span=span, value=value, dtype=dtype)
        return whole
    with np.errstate(all="ignore"):
        if dtype.is_complex:
            return complex(dtype.numpy.type(value))
        real = value.real
        try:
            return float(dtype.numpy.type(real))
        except OverflowError:
            return float("inf") if real > 0 else float("-inf")


def pad_value(value: Literal, found: ValueType, span: Span | None) -> Literal:
    """Return the constant that a padded access reads outside, as a value of the tensor's type."""
    number, dtype = value.value, found.dtype
    kinds = {"b": 1, "i": 1, "u": 1, "f": 2, "c": 3}
    kind = literal(number, span)[1].dtype.kind
    if kinds[kind] > kinds[dtype.kind]:
        raise failure(LITERAL_RANGE, span=value.span or span, value=number, dtype=dtype)
    return Literal(constant_value(number, dtype, value.span or span), dtype, value.span)


def truth(node: Expr, found: ValueType) -> Expr:
    """Return a value as bool: whether it differs from 0 (NaN does), as numpy converts."""
    if node.dtype == bool_:
        return node
    if isinstance(node, Literal):
        return Literal(bool(node.value), bool_, node.span)
    assert node.dtype is not None
    zero = constant_value(0, node.dtype, node.span)
    return Call("ne", (node, Literal(zero, node.dtype)), bool_, node.span)


def _join(op: str, left: TypedExpr, right: TypedExpr, kind: ValueType, span: Span | None, chain: bool) -> TypedExpr:
    """Return `left op right` in the type `kind`; with `chain`, `left` was made by this chain and its call goes on."""
    dtype = computed(kind.dtype)
    a, b = convert(*left, kind, span), convert(*right, kind, span)
    name = {"add": "or", "mul": "and"}.get(op, op) if kind == _BOOL else op
    if op in ("floordiv", "mod", "minimum", "maximum") and kind.dtype.is_complex:
        raise failure(NO_LOOP, span=span, op=op, types=f"{left[1]} and {right[1]}", advice=_REAL_PART)
    if kind.weak and isinstance(a, Literal) and isinstance(b, Literal) and op in ("add", "mul"):
        # Exact, as Python's scalars: an integer is checked only against the type it meets in the end.
        value = left[0].value + right[0].value if op == "add" else left[0].value * right[0].value  # type: ignore[union-attr]
        return Literal(value, dtype, span), kind
    if chain and isinstance(a, Call) and a is left[0] and op in ("add", "mul", "minimum", "maximum"):
        return replace(a, args=(*a.args, b)), kind
    return Call(name, (a, b), dtype, span), kind


def _fold(op: str, args: list[TypedExpr], span: Span | None) -> TypedExpr:
    total = args[0]
    for place, arg in enumerate(args[1:]):
        kind = promote(total[1], arg[1])
        if op == "div" and kind.dtype.kind in "biu":
            kind = _WEAK["f"] if kind.weak else ValueType(f64)
        if op in ("floordiv", "mod") and kind == _BOOL:
            kind = ValueType(i8)
        total = _join(op, total, arg, kind, span, place > 0)
    return total


def _bitwise(expr: Call, args: list[TypedExpr]) -> TypedExpr:
    """Type a bitwise operation, as numpy's: of bool it is a logical one, and shifts are of i8 at least."""
    op, span = expr.op, expr.span
    if op == "bit_not":
        node, found = args[0]
        if found.dtype.kind not in "biu":
            raise failure(BITS_OF, span=span, op="~", types=found, advice=conversion(op, expr.args, (found,)))
        if isinstance(node, Literal) and found.weak:
            return replace(node, value=-int(node.value.real) - 1, span=span), found
        return Call("not" if found == _BOOL else op, (node,), node.dtype, span), found
    total = args[0]
    for place, arg in enumerate(args[1:]):
        kind = promote(total[1], arg[1])
        if kind.dtype.kind not in "biu":
            types = (total[1], arg[1])
            advice = conversion(op, expr.args[place : place + 2] if place == 0 else (expr, expr.args[place + 1]), types)
            raise failure(BITS_OF, span=span, op=SYMBOLS[op], types=f"{types[0]} and {types[1]}", advice=advice)
        if kind == _BOOL and op in ("shift_left", "shift_right"):
            kind = ValueType(i8)
        total = _join_bits(op, total, arg, kind, span, place > 0), kind
    return total


def _join_bits(op: str, left: TypedExpr, right: TypedExpr, kind: ValueType, span: Span | None, chain: bool) -> Expr:
    a, b = left[0], right[0]
    if kind.weak and isinstance(a, Literal) and isinstance(b, Literal):
        value = folded(op, int(a.value.real), int(b.value.real))
        if value is not None:
            return Literal(value, kind.dtype, span)
    a, b = convert(*left, kind, span), convert(*right, kind, span)
    if kind == _BOOL:
        return Call({"bit_and": "and", "bit_or": "or", "bit_xor": "ne"}[op], (a, b), bool_, span)
    if chain and isinstance(a, Call) and a is left[0] and op in ("bit_and", "bit_or", "bit_xor"):
        return replace(a, args=(*a.args, b))
    return Call(op, (a, b), kind.dtype, span)


def _power(base: TypedExpr, exponent: TypedExpr, span: Span | None) -> TypedExpr:
    kind = promote(base[1], exponent[1])
    if kind == _BOOL:
        kind = ValueType(i8)
    if kind.dtype.is_integer and isinstance(exponent[0], Literal) and exponent[0].value.real < 0:
        raise failure(NEGATIVE_POWER, span=span, value=exponent[0].value)
    args = convert(*base, kind, span), convert(*exponent, kind, span)
    return Call("pow", args, computed(kind.dtype), span), kind


def _negate(node: Expr, span: Span | None) -> Expr:
    if isinstance(node, Literal) and node.dtype is not None and node.dtype.kind != "u":
        return replace(node, value=-node.value, span=span)
    return Call("neg", (node,), node.dtype, span)


def unary(op: str, arg: TypedExpr, span: Span | None) -> TypedExpr:
    """Type a negation or a function of one argument, as numpy's."""
    node, found = arg
    dtype = found.dtype
    if op == "neg":
        if dtype == bool_:
            raise failure(NO_LOOP, span=span, op="-", types="bool", advice=_NOT_BOOL)
        if isinstance(node, Literal) and found.weak:
            return replace(node, value=-node.value, span=span), found
        return _negate(node, span), found
    known = TABLE[op]
    if dtype.is_complex and not known.complex:
        raise failure(NO_LOOP, span=span, op=op, types=found, advice=_REAL_PART)
    if known.takes == "integer":
        return _counted(op, node, found, span)
    if known.takes == "float":
        return _called(known, [arg], floating(found), span)
    if dtype == bool_ and known.of_bool is None:
        raise failure(NO_LOOP, span=span, op=op, types="bool", advice=_NOT_BOOL)
    if known.gives == "bool":
        return _classified(op, node, found, span), _BOOL
    if dtype == bool_ and known.of_bool not in (None, bool_):
        kind = ValueType(known.of_bool)
        return convert(node, found, kind, span), kind
    if dtype.kind in known.itself:
        return node, found
    if known.gives == "real" and dtype.is_complex:
        part = ValueType(dtype.real, found.weak)
        return Call(op, (node,), part.dtype, span), part
    if op == "imag":  # of what is real: 0, whatever that is
        where = computed(dtype)
        return _beside(node, Literal(constant_value(0, where, span), where, span)), found
    return _called(known, [arg], found, span)


def _called(known: Function, given: Sequence[TypedExpr], kind: ValueType, span: Span | None) -> TypedExpr:
    """Return the call of a function of arguments of one type, or what it is written by where no later part is to meet it."""
    where = computed(kind.dtype)
    args = [node if found == kind else convert(node, found, kind, span) for node, found in given]
    if kind.dtype.kind not in known.expanded:
        return Call(known.name, tuple(args), where, span), kind
    for arg, times in zip(args, repeats(known.written), strict=False):
        if times > 1:
            _check_repeated(arg, known.name, str(kind), span)

    def apply(op: str, values: tuple[Expr, ...]) -> Expr:
        if op in ("neg", "sub"):
            last = _negate(values[-1], span)
            return last if op == "neg" else Call("add", (values[0], last), where, span)
        name = {"minimum": "and", "maximum": "or"}.get(op, op) if kind == _BOOL else op
        return Call(name, values, bool_ if op in COMPARISONS else where, span)

    return composed(known.written, args, apply, lambda n: Literal(constant_value(n, where, span), where, span)), kind


def _counted(op: str, node: Expr, found: ValueType, span: Span | None) -> TypedExpr:
    """Type a function of the bits of a magnitude, u8 as numpy's; a Call keeps the type of its argument."""
    if found.dtype.kind not in "biu":
        raise failure(NO_LOOP, span=span, op=op, types=found, advice="convert it first: `i64(...)`")
    count = node
    if found.dtype != bool_:
        size, _ = unary("abs", (node, found), span)
        count = Call(op, (size,), node.dtype, span)
    return count if count.dtype == u8 else Cast(u8, count, u8, span), ValueType(u8)


def _classified(op: str, node: Expr, found: ValueType, span: Span | None) -> Expr:
    """Return whether a value is NaN, infinite or finite, by one comparison of its magnitude, which no composition says."""
    if found.dtype.is_complex:
        _check_repeated(node, op, str(found), span)
        part = ValueType(found.dtype.real, found.weak)
        parts = [_classified(op, Call(p, (node,), part.dtype, span), part, span) for p in ("real", "imag")]
        return Call("and" if op == "isfinite" else "or", tuple(parts), bool_, span)
    if found.dtype.kind != "f":
        return _beside(node, Literal(op == "isfinite", bool_, span))
    size = Call("abs", (node,), node.dtype, span)
    order = {"isnan": "le", "isinf": "eq", "isfinite": "lt"}[op]
    told = Call(order, (size, Literal(math.inf, node.dtype, span)), bool_, span)
    return Call("not", (told,), bool_, span) if op == "isnan" else told


def several(op: str, args: list[TypedExpr], span: Span | None) -> TypedExpr:
    """Type a function of several arguments, which are converted to one type, as numpy's."""
    kinds = [found for _, found in args]
    known = TABLE[op]
    if known.takes == "float" and not any(kind.weak for kind in kinds):
        kinds = list(map(floating, kinds))
    kind = reduce(promote, kinds)
    if known.takes == "float":
        kind = floating(kind)
    if kind.dtype.is_complex and not known.complex:
        types = " and ".join(str(found) for _, found in args)
        raise failure(NO_LOOP, span=span, op=op, types=types, advice=_REAL_PART)
    if kind == _BOOL and known.of_bool not in (None, bool_):
        kind = ValueType(known.of_bool)
    return _called(known, args, kind, span)


def compare(op: str, left: TypedExpr, right: TypedExpr, span: Span | None) -> Expr:
    """Type a comparison; integers compare exactly whatever their types, as numpy's."""
    (a, x), (b, y) = left, right
    if op not in ("eq", "ne") and (x.dtype.is_complex or y.dtype.is_complex):
        types, advice = f"{x} and {y}", "compare `abs(...)` or `real(...)`"
        raise failure(NO_LOOP, span=span, op=SYMBOLS[op], types=types, advice=advice)
    whole = x.dtype.kind in "biu" and y.dtype.kind in "biu"
    if whole and isinstance(b, Literal) and y.weak and not x.weak:
        return _compare_literal(op, left, b, span)
    if whole and isinstance(a, Literal) and x.weak and not y.weak:
        return _compare_literal(_MIRRORED[op], right, a, span)
    if whole:
        x, y = (ValueType(v.dtype) for v in (x, y))
        if u64 in (x.dtype, y.dtype) and "i" in (x.dtype.kind, y.dtype.kind):
            signed_left = x.dtype.kind == "i"
            return _compare_mixed(op if signed_left else _MIRRORED[op], *((a, b) if signed_left else (b, a)), span)
    kind = promote(x, y)
    args = convert(a, x, kind, span), convert(b, y, kind, span)
    return Call(op, args, bool_, span)


def _compare_literal(op: str, value: TypedExpr, other: Literal, span: Span | None) -> Expr:
    """Compare an integer with a constant that may lie outside its type: then the answer is known."""
    number = int(other.value.real)
    dtype = value[1].dtype
    if dtype != bool_ and not fits(number, dtype):
        known = op == "ne" or op in (("lt", "le") if number > 0 else ("gt", "ge"))
        return _beside(value[0], Literal(known, bool_, span))
    goal = i64 if dtype == bool_ else dtype
    return Call(op, (convert(*value, ValueType(goal), span), Literal(number, goal, other.span)), bool_, span)


def _beside(node: Expr, answer: Literal) -> Expr:
    """Return a constant answer; a gather in `node`, which it does not depend on, still has to be in bounds."""
    if not any(reads_in(*(s for r in reads_in(node) for s in r.subscripts))):
        return answer
    assert node.dtype is not None
    return Call("where", (truth(node, ValueType(node.dtype)), answer, answer), answer.dtype, answer.span)


def _compare_mixed(op: str, signed: Expr, unsigned: Expr, span: Span | None) -> Expr:
    """Compare a signed integer with a u64: a negative one is below all of them, others convert exactly."""
    _check_repeated(signed, op, f"{signed.dtype} and u64", span)
    same = Call(op, (signed if signed.dtype == u64 else Cast(u64, signed, u64, span), unsigned), bool_, span)
    below = Literal(0, signed.dtype)
    if op in ("lt", "le", "ne"):
        return Call("or", (Call("lt", (signed, below), bool_, span), same), bool_, span)
    return Call("and", (Call("ge", (signed, below), bool_, span), same), bool_, span)


def _check_repeated(node: Expr, op: str, types: str, span: Span | None) -> None:
    """Raise DTypeError where a value that is to stand in two places is too large: such operators one in another double it."""
    if size_of(node) > SIZE // 2:
        raise failure(TOO_LARGE, span=span, op=op, types=types, limit=SIZE // 2)
