"""Hoist operators common to all terms out of a reduction, where that changes no rounding.

Before: `O[i] += 3 * X[i,k] * Y[k]` (integers). After: `T[i] = 0;  T[i] += X[i,k] * Y[k];  O[i] = 3 * T[i]`. What is exact:
- sums of integers: negation and factors that all terms share, modulo the type's range;
- sums of floats: negation, as 0 - sum, for a sum is never -0; factors of a power of two where the ranges of what is converted
  from narrower types prove that nothing over- or underflows (with the fast-math flag `reassoc`: any factor that all terms share);
- maxima and minima of floats: what is monotone as it rounds, such as a constant added or multiplied, and conversions; of results
  that have terms, also `relu`, `maximum`, and conversions of integers;
- any and all: `not`, and what all terms share.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property, reduce
from math import frexp, isfinite

from msgspec import Struct

from polyker.ir.decision import Decision
from polyker.ir.dtypes import DType
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read, converted, reads_in, transform
from polyker.ir.measure import DEPTH
from polyker.ir.quasi_affine import indices, indices_of, substitute
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_set
from polyker.poly.scop import image
from polyker.rewrite.core.accumulate import starts_fresh
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.rewrite.core.reindex import replaced_after
from polyker.structs import replace

# A reduction's operator and its terms, and what makes its result that of the original.
PeeledFactor = tuple[str, Expr, Callable[[Expr], Expr]]

_OTHER = {"max": "min", "min": "max", "any": "all", "all": "any"}
# The exponents of the least subnormal number, and of what is greater than all.
_RANGES = {"f32": (-149, 127), "f64": (-1074, 1023)}
# A sum has fewer terms than two to this power: extents are 64-bit integers.
_LOG2_MAX_TERMS = 63
# Of operators that are taken off: each is up to two of the result's, whose value may be as deep as any.
_MOST = (DEPTH - 10) // 2


def sink_operators(program: TypedProgram, *, reassociating: bool = False) -> tuple[TypedProgram, tuple[Decision, ...]]:
    """Return the program with such operators after its reductions, and what was done in words.

    `reassociating`: factors of sums of floats may change the rounding.
    """
    fresh = Fresh(program)
    notes: list[Decision] = []

    def change(start: TypedStatement | None, node: TypedStatement) -> list[TypedStatement] | None:
        if start is None or not _is_free(node):
            return None
        found = _Terms(program, start, node, reassociating).all_peeled()
        if found is None or not starts_fresh(program, start, node):
            return None
        notes.append(Decision(node.name, "operators that all terms share are applied to the result"))
        return _statements(program, fresh, start, node, found)

    body = replaced_after(program.body, change)
    return (fresh.finish(body) if notes else program), tuple(notes)


def _is_free(statement: TypedStatement) -> bool:
    """Whether terms are combined in any order, and do not depend on each other."""
    if statement.op == "set" or statement.in_order or not statement.reduced:
        return False
    return not statement.reads_own


class _Terms(Struct, frozen=True, dict=True):
    """The terms of a reduction, as operators are taken off them."""

    program: TypedProgram
    start: TypedStatement
    statement: TypedStatement
    reassociating: bool

    def all_peeled(self) -> PeeledFactor | None:
        """Return the reduction without any such operators, None where it has none."""
        op, expr = self.statement.op, transform(self.statement.expr, _constant)
        around: list[Callable[[Expr], Expr]] = []
        while len(around) < _MOST and (found := self.peeled(op, expr)) is not None:
            op, expr, outer = found
            around.append(outer)

        def whole(result: Expr) -> Expr:
            return reduce(lambda e, outer: outer(e), reversed(around), result)

        return (op, expr, whole) if around else None

    def peeled(self, op: str, expr: Expr) -> PeeledFactor | None:
        """Return the reduction without the outermost operator of its terms, None where that has to stay."""
        kind = expr.dtype.kind if expr.dtype is not None else ""
        if isinstance(expr, Literal | Read | IndexExpr):
            return None
        if op == "add" and kind in "iu":
            return _negated(op, expr) or self.without_factors(expr)
        if op == "add" and kind == "f":
            return self.scaled(expr)
        if op in ("any", "all") and kind == "b":
            return self.truth(op, expr)
        return self.monotone(op, expr, kind) if op in ("max", "min") and kind in "iuf" else None

    def without_factors(self, expr: Expr) -> PeeledFactor | None:
        """Return a sum of products without the factors that all terms share."""
        shared, own = self.split(expr, "mul")
        if not shared or not own or expr.dtype is None:
            return None
        dtype = expr.dtype
        return "add", _joined("mul", own, dtype), lambda e: Call("mul", (e, *shared), dtype)

    def truth(self, op: str, expr: Expr) -> PeeledFactor | None:
        """Return any or all without `not`, or what all its terms share."""
        if isinstance(expr, Call) and expr.op == "not":
            return _OTHER[op], expr.args[0], lambda e: replace(expr, args=(e,))
        joins = {"any": "and", "all": "or"}[op]
        shared, own = self.split(expr, joins)
        if not shared or not own or expr.dtype is None:
            return None
        dtype = expr.dtype
        return op, _joined(joins, own, dtype), lambda e: Call(joins, (e, *shared), dtype)

    def split(self, expr: Expr, times: str) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """Return the operands of a product that all terms share, and the others."""
        if not isinstance(expr, Call) or expr.op != times:
            return (), ()
        shared = tuple(a for a in expr.args if self.is_shared(a))
        return shared, tuple(a for a in expr.args if a not in shared)

    def is_shared(self, expr: Expr) -> bool:
        """Whether a value is the same for all terms of a result, and can be computed for each result."""
        alone = {s.name for s in self.statement.subscripts if isinstance(s, IndexExpr)}
        if not indices_of(expr) <= alone - set(self.statement.reduced):
            return False  # of an element `2*q + p` neither index is known
        return self.has_terms or not any(r.subscripts for r in reads_in(expr))

    @cached_property
    def has_terms(self) -> bool:
        """Whether each result has one term or more."""
        elements = tuple(s.name for s in self.statement.subscripts if isinstance(s, IndexExpr))
        if self.statement.kept != elements:
            return False  # the start's dimensions are in another order
        started = read_set(self.start.domain).intersect_params(read_set(self.program.context))
        return bool(started.reset_tuple_id().is_subset(image(self.program, self.statement, elements)))

    def scaled(self, expr: Expr) -> PeeledFactor | None:
        """Return a sum of floats without a sign, or a factor that changes no rounding."""
        negative = _negated("add", expr)
        if negative is not None:
            return negative
        match expr:
            case Call(op="mul", args=args):
                for n, factor in enumerate(args):
                    if self.may_leave(factor, expr):
                        rest = _joined("mul", (*args[:n], *args[n + 1 :]), _type(expr))
                        return "add", rest, lambda e, factor=factor: _signed(replace(expr, args=(factor, e)), factor)
            case Call(op="div", args=(value, divisor)):
                if self.may_leave(divisor, expr):
                    return "add", value, lambda e: _signed(replace(expr, args=(e, divisor)), divisor)
        return None

    def may_leave(self, factor: Expr, product: Expr) -> bool:
        """Whether a factor of all terms may multiply their sum instead."""
        if self.reassociating:
            return self.is_shared(factor)
        power = _power(factor)
        if power is None:
            return False
        ends, within = _RANGES.get(_type(product).name), _range(product)
        if power == 0 or ends is None or within is None:
            return power == 0
        # Of the terms and their sum, with the factor and without.
        return within[0] - abs(power) >= ends[0] and within[1] + _LOG2_MAX_TERMS + abs(power) <= ends[1]

    def monotone(self, op: str, expr: Expr, kind: str) -> PeeledFactor | None:
        """Return a maximum or minimum without an operator that keeps the order of its operands, or reverses it."""
        match expr:
            case Call(op="neg", args=(value,)) if kind == "f":
                return _OTHER[op], value, lambda e: replace(expr, args=(e,))
            case Call(op="add", args=(*values, Literal() as last)) if kind == "f" and _is_number(last):
                return op, _joined("add", tuple(values), _type(expr)), lambda e: replace(expr, args=(e, last))
            case Call(op="add", args=(Literal() as first, value)) if kind == "f" and _is_number(first):
                return op, value, lambda e: replace(expr, args=(first, e))
            case Call(op="mul", args=(*values, Literal() as last)) if kind == "f" and _is_number(last) and last.value:
                same = op if last.value.real > 0 else _OTHER[op]
                return same, _joined("mul", tuple(values), _type(expr)), lambda e: replace(expr, args=(e, last))
            case Call(op="mul", args=(Literal() as first, value)) if kind == "f" and _is_number(first) and first.value:
                same = op if first.value.real > 0 else _OTHER[op]
                return same, value, lambda e: replace(expr, args=(first, e))
            case Call(op="div", args=(value, Literal() as by)) if kind == "f" and _is_number(by) and by.value:
                same = op if by.value.real > 0 else _OTHER[op]
                return same, value, lambda e: replace(expr, args=(e, by))
            # These functions keep the order of their arguments.
            case Call(op=("floor" | "ceil" | "trunc" | "round"), args=(value,)) if kind == "f":
                return op, value, lambda e: replace(expr, args=(e,))
            case Call(op="relu", args=(value,)) if self.has_terms:
                return op, value, lambda e: replace(expr, args=(e,))
            case Call(op=("maximum" | "minimum"), args=(value, Literal() as by)) if _is_number(by) and self.has_terms:
                return op, value, lambda e: replace(expr, args=(e, by))
            case Cast(arg=value) if self.keeps_order(value, expr):
                return op, value, lambda e: replace(expr, arg=e)
            case _:
                return None

    def keeps_order(self, value: Expr, cast: Expr) -> bool:
        """Whether a conversion is monotone, and a maximum in the type before it takes no longer."""
        before, after = _type(value), _type(cast)
        if after.kind == "f" and before.name in _RANGES:
            return before.itemsize <= after.itemsize
        if before.kind not in "iu" or after.kind not in "iuf" or before.itemsize > after.itemsize:
            return False
        signed = (
            after.kind == "f" or before.kind == after.kind or (before.itemsize < after.itemsize and before.kind == "u")
        )
        return signed and self.has_terms


def _type(expr: Expr) -> DType:
    assert expr.dtype is not None
    return expr.dtype


def _joined(op: str, parts: tuple[Expr, ...], dtype: DType) -> Expr:
    return parts[0] if len(parts) == 1 else Call(op, parts, dtype)


def _constant(expr: Expr) -> Expr:
    """Return a float with its sign as one constant."""
    match expr:
        case Call(op="neg", args=(Literal(value=value) as literal,)) if _type(expr).kind == "f":
            return replace(literal, value=-value)
        case _:
            return expr


def _is_number(literal: Literal) -> bool:
    return isinstance(literal.value, int | float) and isfinite(literal.value)


def _negated(op: str, expr: Expr) -> PeeledFactor | None:
    """Return a sum without the sign of its terms."""
    dtype = _type(expr)

    def outer(e: Expr) -> Expr:
        negative = Call("neg", (e,), dtype)
        return negative if dtype.kind != "f" else Call("add", (Literal(0.0, dtype), negative), dtype)

    match expr:
        case Call(op="neg", args=(value,)):
            return op, value, outer
        case Call(op="mul", args=args):
            for n, factor in enumerate(args):
                if isinstance(factor, Call) and factor.op == "neg":
                    return op, replace(expr, args=(*args[:n], factor.args[0], *args[n + 1 :])), outer
    return None


def _signed(value: Expr, factor: Expr) -> Expr:
    """Return a product with a sum, in which a zero is positive as it is in sums."""
    positive = isinstance(factor, Literal) and factor.value.real > 0
    return value if positive else Call("add", (value, Literal(0.0, _type(value))), _type(value))


def _power(factor: Expr) -> int | None:
    """Return the exponent of a constant that is a power of two but for its sign, else None."""
    if not isinstance(factor, Literal) or not _is_number(factor):
        return None
    mantissa, exponent = frexp(abs(factor.value.real))
    return exponent - 1 if mantissa == 0.5 else None


def _range(expr: Expr) -> tuple[int, int] | None:
    """Return exponents (low, high): a value is a multiple of two to the power `low`, its size below that to `high`, or it is
    infinite or no number. None where nothing is known."""
    match expr:
        case Literal(value=value) if _is_number(expr):
            exact = Fraction(value)  # type: ignore[arg-type]
            twos = (exact.numerator & -exact.numerator).bit_length() - exact.denominator.bit_length() if exact else 0
            return twos, frexp(float(value.real))[1]
        case Cast(arg=arg, to=to) if to.name in _RANGES and arg.dtype is not None:
            known = {"f16": (-24, 16), "bf16": (-133, 128), "f32": (-149, 128), "bool": (0, 1)}.get(arg.dtype.name)
            return (0, 8 * arg.dtype.itemsize + 1) if known is None and arg.dtype.kind in "iu" else known
        case Call(op="neg", args=(arg,)):
            return _range(arg)
        case Call(op="div", args=(arg, divisor)) if (power := _power(divisor)) is not None:
            whole = _range(arg)
            return None if whole is None else (whole[0] - power, whole[1] - power)
        case Call(op=("mul" | "add") as op, args=args):
            parts = [_range(a) for a in args]
            known_parts = [p for p in parts if p is not None]
            ends = _RANGES.get(_type(expr).name)
            if len(known_parts) < len(parts) or ends is None:
                return None
            lows, highs = zip(*known_parts, strict=True)
            low = sum(lows) if op == "mul" else min(lows)
            high = (sum(highs) if op == "mul" else max(highs)) + len(parts)
            return (low, high) if ends[0] <= low and high <= ends[1] else None
        case _:
            return None


def _statements(
    program: TypedProgram, fresh: Fresh, start: TypedStatement, statement: TypedStatement, found: PeeledFactor
) -> list[TypedStatement]:
    """Return the reduction of the terms that are left, and what makes the result of it."""
    op, terms, around = found
    dtype, target = _type(terms), program.tensor(statement.target)
    name = fresh.temporary({"add": "sum", "mul": "prod"}.get(op, op), dtype, target.shape)
    iterators = fresh.iterators(len(start.iterators))
    element = indices(iterators)
    places = {s.name: c for s, c in zip(statement.subscripts, element, strict=True) if isinstance(s, IndexExpr)}
    value = converted(substitute(around(Read(name, element, dtype=dtype)), places), target.dtype)
    return [
        replace(start, target=name, expr=identity(op, dtype), acc=dtype),
        replace(statement, target=name, op=op, expr=terms, acc=dtype),
        fresh.sets(read_set(start.domain), iterators, (target.name, element), value, statement),
    ]
