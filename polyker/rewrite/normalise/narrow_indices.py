"""Narrow index values to i32 where all that is computed of them fits: twice the lanes.

Before: `S[q,k] = where(k <= q, X[q,k], -inf)`, compared in i64. After: `where(i32(k) <= i32(q), X[q,k], -inf)`. The same for what
is converted, as in `f32(k - q)`. Subscripts stay as they are. The ranges are those of the domain, so sizes have to be known.
"""

from __future__ import annotations

from msgspec import Struct, field

from polyker.ir.dtypes import bool_, i32, i64
from polyker.ir.expr import BITWISE, COMPARISONS, Call, Cast, Expr, IndexExpr, Literal, Read, replace_parts, walk
from polyker.ir.promotion import integer_range
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement, replaced
from polyker.poly.boxes import ends
from polyker.poly.isl import Set, read_set
from polyker.rewrite.core.value_range import ValueRange, value_range
from polyker.structs import replace

_LEAST, _MOST = integer_range(i32)
_ARITHMETIC = ("add", "neg", "mul", "minimum", "maximum", "floordiv", "mod", *BITWISE)


def narrow_indices(program: TypedProgram) -> TypedProgram:
    """Return the program with what is computed of indices in i32 where that gives the same values."""

    def change(statement: TypedStatement) -> tuple[TypedNode, ...]:
        return (replace(statement, expr=_Indices(statement).value(statement.expr)),)

    return replace(program, body=replaced(program.body, change))


class _Indices(Struct):
    """A statement's indices; isl is asked for the ranges of those that are met."""

    statement: TypedStatement
    known: dict[str, ValueRange | None] = field(default_factory=dict)
    domain: Set | None = None

    def value(self, expr: Expr) -> Expr:
        """Return a value with comparisons and conversions of indices in i32."""
        return replace_parts(expr, self._narrowed)

    def _narrowed(self, expr: Expr) -> Expr | None:
        """Return a comparison or a conversion of indices in i32; what is read as it is; None for what parts may be such."""
        match expr:
            case Read():
                return expr
            case Cast(to=to, arg=arg) if arg.dtype == i64 and to != i64 and _has_index(arg):
                found = self.narrow(arg)
                if found is not None:
                    return found if to == i32 else replace(expr, arg=found)
            case Call(op=op, args=(a, b)) if op in COMPARISONS and a.dtype == b.dtype == i64 and _has_index(expr):
                left, right = self.narrow(a), self.narrow(b)
                if left is not None and right is not None:
                    return Call(op, (left, right), bool_, expr.span)
        return None

    def narrow(self, expr: Expr) -> Expr | None:
        """Return arithmetic of indices and numbers in i32, None where it is something else or a part of it may not fit."""
        found = value_range(expr, self.range)
        if found is None or found[0] < _LEAST or found[1] > _MOST:
            return None
        match expr:
            case Literal(value=value):
                return Literal(int(value.real), i32, expr.span)
            case IndexExpr():
                return Cast(i32, expr, i32)
            case Call(op=op, args=args) if op in _ARITHMETIC:
                parts = [self.narrow(a) for a in args]
                known = tuple(p for p in parts if p is not None)
                return Call(op, known, i32, expr.span) if len(known) == len(parts) else None
        return None

    def range(self, name: str) -> ValueRange | None:
        """Return the least and the greatest value of an index, None where they are not known."""
        if name not in self.known:
            if self.domain is None:
                self.domain = read_set(self.statement.domain)
            names = self.statement.iterators
            self.known[name] = ends(self.domain, names.index(name)) if name in names else None
        return self.known[name]


def _has_index(expr: Expr) -> bool:
    return any(isinstance(e, IndexExpr) for e in walk(expr))
