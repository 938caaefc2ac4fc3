"""Expressions of a program: one small union, the same for what is read, computed, subscripted and compared.

In an untyped program (`polyker.ir.program`) every `dtype` is None. Binding to argument types gives typed programs
(`polyker.ir.typed`): there every node has its `dtype`, conversions are explicit `Cast`s, and the arguments of an arithmetic
`Call` have one and the same type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import Struct

from polyker.errors.base import Span
from polyker.ir.dtypes import DType
from polyker.ir.functions import TABLE
from polyker.ir.instructions import MEANINGS
from polyker.structs import PartlyCompared, replace

# Operators, as `Call.op`. Chains of one left-associative operator are one n-ary Call, folded from the left; `a - b` is
# add(a, neg(b)); `pow` folds from the right.
ARITHMETIC = ("add", "mul", "div", "floordiv", "mod", "pow", "neg")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")  # two arguments; `a < b < c` is and(lt(a, b), lt(b, c))
LOGICAL = ("and", "or", "not")
# On integers; on bool, typing makes them LOGICAL ones. What is shifted by less than 0 or by its width or more has no bits left:
# it is 0, or -1 where it was negative and is shifted to the right.
BITWISE = ("bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right")
FUNCTIONS = tuple(TABLE)
# What rewrites make of what the text says: multiply_add(x, y, z) is x * y + z, rounded once where the processor can;
# join(a, b) and join(a, b, c, d) are the bits of narrow integers side by side in 32, the first lowest; dot2(x, y) the sum of the
# products of the two i16 in x and in y, dot4(x, y) of the four u8 in x and the four i8 in y, modulo 2^32, and so on, as
# polyker.ir.instructions has them; below(x) of a float
# (f32 or f64) is the greatest number, -inf included, that is less than x, inf where x is NaN, and NaN where x is -inf; above(x)
# is -below(-x).
DOTS = tuple(MEANINGS)
INTERNAL = ("multiply_add", "join", "below", "above", *DOTS)
TRANSCENDENTAL = tuple(f.name for f in TABLE.values() if f.transcendental)
REDUCTIONS = ("sum", "prod", "max", "min", "mean", "logsumexp", "argmax", "argmin", "any", "all")


class Literal(PartlyCompared, frozen=True):
    """A constant: bool, int, float (inf, nan too) or complex. Weakly typed (NEP 50) until it has a dtype."""

    value: bool | int | float | complex
    dtype: DType | None = None
    span: Span | None = None


class IndexExpr(PartlyCompared, frozen=True):
    """The value of an index (an iterator of the statement or of a reduction around it); i64 once typed."""

    name: str
    dtype: DType | None = None
    span: Span | None = None


class SizeExpr(PartlyCompared, frozen=True):
    """The value of a size (a symbol that the shapes or the caller give); i64 once typed."""

    name: str
    dtype: DType | None = None
    span: Span | None = None


class Dots(PartlyCompared, frozen=True):
    """`...` in a subscript list: leading batch dimensions; gone once the program is bound to shapes."""

    dtype: DType | None = None
    span: Span | None = None


class Pad(Struct, frozen=True):
    """What a padded access reads outside the tensor: `mode` is constant (then `value`), edge, wrap or reflect."""

    mode: str
    value: Literal | None = None


class Read(PartlyCompared, frozen=True):
    """`T[i, 2*j+r; pad=0]`: the tensor's name and one index expression a dimension; a 0-d tensor has no subscripts.

    A subscript may itself hold a Read of an integer tensor: a gather.
    """

    tensor: str
    subscripts: tuple[Expr, ...]
    pad: Pad | None = None
    dtype: DType | None = None
    span: Span | None = None


class Call(PartlyCompared, frozen=True):
    """An operator or function applied to arguments; `op` is one of the names listed above."""

    op: str
    args: tuple[Expr, ...]
    dtype: DType | None = None
    span: Span | None = None


class Cast(PartlyCompared, frozen=True):
    """`f32(x)`, or a conversion that typing made; the type converted to is `to` (and, once typed, `dtype` too)."""

    to: DType
    arg: Expr
    dtype: DType | None = None
    span: Span | None = None


class Range(PartlyCompared, frozen=True):
    """`index in lo:hi`, half open; `lo` and `hi` are None where the range is to be inferred."""

    index: str
    lo: Expr | None = None
    hi: Expr | None = None
    span: Span | None = None


class Reduce(PartlyCompared, frozen=True):
    """`sum[k, l in 0:n](body where conditions)`: an inline reduction, a scope of its own.

    In a typed program `domain` is the isl text of the exact set of [outer iterators used ..., own iterators ...] points
    it runs over (see polyker.ir.typed), and `conditions` is a truth value that admits a term, only of mean, argmax and argmin:
    of others the body is the identity where it is false. In an untyped one `domain` is None.
    """

    op: str
    ranges: tuple[Range, ...]
    body: Expr
    conditions: tuple[Expr, ...] = ()
    dtype: DType | None = None
    acc: DType | None = None
    domain: str | None = None
    span: Span | None = None


Expr: TypeAlias = Literal | IndexExpr | SizeExpr | Dots | Read | Call | Cast | Reduce


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct sub-expressions, in the order of the text."""
    match expr:
        case Read(subscripts=subscripts):
            return subscripts
        case Call(args=args):
            return args
        case Cast(arg=arg):
            return (arg,)
        case Reduce(ranges=ranges, body=body, conditions=conditions):
            bounds = tuple(b for r in ranges for b in (r.lo, r.hi) if b is not None)
            return (*bounds, body, *conditions)
        case _:
            return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield the expression and all below it, parents first, left to right."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def reads_in(*exprs: Expr) -> Iterator[Read]:
    """Yield every read in expressions, those in subscripts of reads too; equal ones again and again."""
    return (e for expr in exprs for e in walk(expr) if isinstance(e, Read))


def reads_values(condition: Expr) -> bool:
    """Whether a condition depends on more than indices and sizes: then it admits terms, and restricts no domain."""
    return any(isinstance(e, (Read, Reduce)) for e in walk(condition))


def rebuild(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return `expr` with `change` applied to each direct sub-expression."""
    match expr:
        case Read(subscripts=subscripts) if subscripts:
            return replace(expr, subscripts=tuple(map(change, subscripts)))
        case Call(args=args):
            return replace(expr, args=tuple(map(change, args)))
        case Cast(arg=arg):
            return replace(expr, arg=change(arg))
        case Reduce(ranges=ranges, body=body, conditions=conditions):
            fresh = tuple(
                replace(r, lo=None if r.lo is None else change(r.lo), hi=None if r.hi is None else change(r.hi))
                for r in ranges
            )
            return replace(expr, ranges=fresh, body=change(body), conditions=tuple(map(change, conditions)))
        case _:
            return expr


def converted(value: Expr, dtype: DType | None) -> Expr:
    """Return a value in another type; itself where it has that type, or where that is None."""
    return value if dtype is None or value.dtype == dtype else Cast(dtype, value, dtype)


def transform(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Rebuild from the leaves up: `change` sees each node after its children were changed."""
    return replace_parts(expr, _descend, change)


def _descend(expr: Expr) -> None:
    return None


def _same(expr: Expr) -> Expr:
    return expr


def replace_parts(expr: Expr, found: Callable[[Expr], Expr | None], change: Callable[[Expr], Expr] = _same) -> Expr:
    """Return `expr` with what `found` gives for a node in place of it; where that is None its children are looked at.

    `change` sees each node whose children were looked at, after them. An explicit stack stands for recursion: that would take
    four of Python's frames a level.
    """
    stack = [(expr, False)]
    done: list[Expr] = []
    while stack:
        node, ready = stack.pop()
        if ready:
            count = len(children(node))
            fresh = iter(done[-count:])
            del done[-count:]
            done.append(change(rebuild(node, lambda _, fresh=fresh: next(fresh))))  # type: ignore[misc]
            continue
        new = found(node)
        if new is not None:
            done.append(new)
        elif below := children(node):
            stack.append((node, True))
            stack += [(child, False) for child in reversed(below)]
        else:
            done.append(change(node))
    return done[0]
