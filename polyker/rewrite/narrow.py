"""Indices in values as i32 where all that is computed of them fits: a vector holds twice as many.

Before: `S[q,k] = where(k <= q, X[q,k], -inf)`, compared in i64. After: `where(i32(k) <= i32(q), X[q,k], -inf)`. The same for what
is converted, as in `f32(k - q)`. Subscripts stay as they are. The ranges are those of the domain, so sizes have to be known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from polyker.ir.dtypes import bool_, i32, i64
from polyker.ir.expr import COMPARISONS, Call, Cast, Expr, Index, Literal, Read, rebuild, walk
from polyker.ir.promotion import integer_range
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement, replaced
from polyker.poly.isl import Set, read_set

_LEAST, _MOST = integer_range(i32)


@dataclass(frozen=True, slots=True)
class _Narrow:
    """An expression in i32, and the least and the greatest value that it may have."""

    expr: Expr
    low: int
    high: int


def narrow_indices(program: TypedProgram) -> TypedProgram:
    """Return the program with what is computed of indices in i32 where that gives the same values."""

    def change(statement: TypedStatement) -> tuple[TypedNode, ...]:
        return (replace(statement, expr=_Ranges(statement).value(statement.expr)),)

    return replace(program, body=replaced(program.body, change))


@dataclass(slots=True)
class _Ranges:
    """The values that a statement's indices take; isl is asked for those that are met."""

    statement: TypedStatement
    known: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    domain: Set | None = None

    def value(self, expr: Expr) -> Expr:
        """Return a value with comparisons and conversions of indices in i32."""
        match expr:
            case Read():
                return expr
            case Cast(to=to, arg=arg) if arg.dtype == i64 and to != i64 and _has_index(arg):
                found = self.narrow(arg)
                if found is not None:
                    return found.expr if to == i32 else replace(expr, arg=found.expr)
            case Call(op=op, args=(a, b)) if op in COMPARISONS and a.dtype == b.dtype == i64 and _has_index(expr):
                left, right = self.narrow(a), self.narrow(b)
                if left is not None and right is not None:
                    return Call(op, (left.expr, right.expr), bool_, expr.span)
        return rebuild(expr, self.value)

    def narrow(self, expr: Expr) -> _Narrow | None:
        """Return an integer expression in i32, None where a part of it may not fit or is no arithmetic of indices."""
        match expr:
            case Literal(value=value):
                number = int(value.real)
                return _fitting(Literal(number, i32, expr.span), number, number)
            case Index(name=name):
                ends = self.range(name)
                return None if ends is None else _fitting(Cast(i32, expr, i32), *ends)
            case Call(op="neg", args=(arg,)):
                found = self.narrow(arg)
                return found and _fitting(Call("neg", (found.expr,), i32), -found.high, -found.low)
            case Call(op=("add" | "mul" | "minimum" | "maximum") as op, args=args):
                parts = [self.narrow(a) for a in args]
                known = [p for p in parts if p is not None]
                if len(known) < len(parts):
                    return None
                total = known[0]
                for part in known[1:]:
                    ends = _ends(op, total, part)
                    joined = _fitting(Call(op, (total.expr, part.expr), i32), *ends)
                    if joined is None:
                        return None
                    total = joined
                return total
            case Call(op=("floordiv" | "mod") as op, args=(arg, Literal(value=value))) if value.real > 0:
                found, divisor = self.narrow(arg), int(value.real)
                if found is None or divisor > _MOST:
                    return None
                made = Call(op, (found.expr, Literal(divisor, i32)), i32)
                if op == "mod":
                    return _fitting(made, 0, divisor - 1)
                return _fitting(made, found.low // divisor, found.high // divisor)
        return None

    def range(self, name: str) -> tuple[int, int] | None:
        """Return the least and the greatest value of an index, None where they are not known."""
        if name not in self.known:
            if self.domain is None:
                self.domain = read_set(self.statement.domain)
            self.known[name] = None
            if name in self.statement.iterators and not self.domain.is_empty():
                d = self.statement.iterators.index(name)
                low, high = self.domain.dim_min_val(d), self.domain.dim_max_val(d)
                if low.is_int() and high.is_int():
                    self.known[name] = low.get_num_si(), high.get_num_si()
        return self.known[name]


def _has_index(expr: Expr) -> bool:
    return any(isinstance(e, Index) for e in walk(expr))


def _fitting(expr: Expr, low: int, high: int) -> _Narrow | None:
    return _Narrow(expr, low, high) if low >= _LEAST and high <= _MOST else None


def _ends(op: str, a: _Narrow, b: _Narrow) -> tuple[int, int]:
    match op:
        case "add":
            return a.low + b.low, a.high + b.high
        case "minimum":
            return min(a.low, b.low), min(a.high, b.high)
        case "maximum":
            return max(a.low, b.low), max(a.high, b.high)
    products = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(products), max(products)
