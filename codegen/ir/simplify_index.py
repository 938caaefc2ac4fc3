"""Simplification of expressions: canonical index polynomials, and what the ranges of the loop variables decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from polyker.codegen.ir.kernel import Const, Convert, KExpr, Op, Var
from polyker.codegen.ir.polynomial import Poly, as_constant, constant, expression, minus, plus, polynomial, scaled
from polyker.codegen.ir.walk import loads_in, rebuild
from polyker.ir.dtypes import bool_, i64

IndexRange: TypeAlias = tuple[int | None, int | None]  # least and greatest value, None where unknown
IndexRanges: TypeAlias = Mapping[str, IndexRange]

TRUE, FALSE = Const(True, bool_), Const(False, bool_)
_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


def has_load(expr: KExpr) -> bool:
    """Return whether an expression reads memory."""
    return any(loads_in(expr))


def bounds(poly: Poly, ranges: IndexRanges) -> IndexRange:
    """Return least and greatest value of a polynomial for variables in `ranges`, None where unbounded or not known."""
    low: int | None = 0
    high: int | None = 0
    for monomial, factor in poly.items():
        a, b = (1, 1) if not monomial else _atom_bounds(monomial[0], ranges) if len(monomial) == 1 else (None, None)
        if factor < 0:
            a, b = b, a
        low = None if low is None or a is None else low + factor * a
        high = None if high is None or b is None else high + factor * b
    return low, high


def _atom_bounds(atom: KExpr, ranges: IndexRanges) -> IndexRange:
    match atom:
        case Var(name=name):
            return ranges.get(name, (None, None))
        case Op(op="mod", args=(_, Const(value=int() as divisor))) if divisor > 0:
            return 0, divisor - 1
        case Op(op="minimum" | "maximum" as op, args=args):
            parts = [bounds(polynomial(a), ranges) for a in args]
            lows, highs = [p[0] for p in parts], [p[1] for p in parts]
            if op == "minimum":
                return _all(lows, min), _any(highs, min)
            return _any(lows, max), _all(highs, max)
        case Op(op="floordiv", args=(x, Const(value=int() as divisor))) if divisor > 0:
            low, high = bounds(polynomial(x), ranges)
            return None if low is None else low // divisor, None if high is None else high // divisor
        case _:
            return None, None


def _all(values: list[int | None], pick: Callable[[list[int]], int]) -> int | None:
    known = [v for v in values if v is not None]
    return pick(known) if len(known) == len(values) else None


def _any(values: list[int | None], pick: Callable[[list[int]], int]) -> int | None:
    known = [v for v in values if v is not None]
    return pick(known) if known else None


def simplify_expression(expr: KExpr, ranges: IndexRanges) -> KExpr:
    """Return an equal expression in canonical form. Index arithmetic is taken not to overflow."""
    expr = rebuild(expr, partial(simplify_expression, ranges=ranges))
    match expr:
        case Convert(arg=arg, dtype=dtype) if arg.dtype == dtype:
            return arg
        case Op(op="where", args=(Const(value=value), x, y)):
            return x if value else y
        case Op(dtype=dtype) if dtype == i64 and not has_load(expr):
            return _index(expr, ranges)
        case Op(op="lt" | "le" | "gt" | "ge" | "eq" | "ne" as op, args=(x, y)) if x.dtype == i64:
            return expr if has_load(expr) else _comparison(op, x, y, ranges)
        case Op(op="and" | "or" | "not"):
            return _logical(expr)
        case _:
            return expr


def _index(expr: Op, ranges: IndexRanges) -> KExpr:
    match expr:
        case Op(op="add" | "sub" | "mul" | "neg"):
            return expression(polynomial(expr))
        case Op(op="floordiv" | "mod" as op, args=(x, Const(value=int() as divisor))):
            return _division(op, polynomial(x), divisor, ranges)
        case Op(op="minimum" | "maximum" as op, args=args):
            return _extremum(op, args, ranges)
        case Op(op="abs", args=(x,)):  # of what is not negative: itself
            low, high = bounds(polynomial(x), ranges)
            if low is not None and low >= 0:
                return x
            return expression(scaled(polynomial(x), -1)) if high is not None and high <= 0 else expr
        case _:
            return expr


def _division(op: str, poly: Poly, divisor: int, ranges: IndexRanges) -> KExpr:
    """(d*q + r) // d = q + r // d and (d*q + r) % d = r % d; r alone where it is known to lie in 0..d-1."""
    if divisor <= 0:
        value = as_constant(poly)
        if divisor == 0:
            return Const(0)
        if value is None:
            return Op(op, (expression(poly), Const(divisor)))
        return Const(value // divisor if op == "floordiv" else value % divisor)
    quotient = {m: c // divisor for m, c in poly.items() if c // divisor and (not m or c % divisor == 0)}
    rest = plus(poly, scaled(quotient, -divisor))
    low, high = bounds(rest, ranges)
    if low is not None and high is not None and low // divisor == high // divisor:
        shift = constant(low // divisor)
        if op == "floordiv":
            return expression(plus(quotient, shift))
        return expression(plus(rest, scaled(shift, -divisor)))
    for unit in sorted({c for c in rest.values() if 1 < c < divisor and divisor % c == 0}, reverse=True):
        # (u*q + r) // (u*d) = q // d and (u*q + r) % (u*d) = u*(q % d) + r where r lies in 0..u-1: a vector in a row.
        whole = {m: c for m, c in rest.items() if c % unit == 0}
        within = {m: c for m, c in rest.items() if c % unit}
        least, most = bounds(within, ranges)
        if least is not None and most is not None and least >= 0 and most < unit:
            part = _division(op, {m: c // unit for m, c in whole.items()}, divisor // unit, ranges)
            if op == "mod":
                return expression(plus(scaled(polynomial(part), unit), within))
            return expression(plus(quotient, polynomial(part)))
    if op == "mod":
        return Op("mod", (expression(rest), Const(divisor)))
    divided: KExpr = Op("floordiv", (expression(rest), Const(divisor)))
    return expression(plus(quotient, {(divided,): 1}))


def _extremum(op: str, args: tuple[KExpr, ...], ranges: IndexRanges) -> KExpr:
    """Drop the arguments that another one bounds."""
    flat: list[KExpr] = []
    for arg in args:
        flat.extend(arg.args if isinstance(arg, Op) and arg.op == op else (arg,))
    kept: list[Poly] = []
    for arg in flat:
        new = polynomial(arg)
        if any(_dominates(op, old, new, ranges) for old in kept):
            continue
        kept = [old for old in kept if not _dominates(op, new, old, ranges)]
        kept.append(new)
    terms = tuple(expression(p) for p in kept)
    return terms[0] if len(terms) == 1 else Op(op, terms)


def _dominates(op: str, x: Poly, y: Poly, ranges: IndexRanges) -> bool:
    """Return whether y never matters beside x."""
    low, high = bounds(minus(x, y), ranges)
    return (high is not None and high <= 0) if op == "minimum" else (low is not None and low >= 0)


def _comparison(op: str, x: KExpr, y: KExpr, ranges: IndexRanges) -> KExpr:
    """Decide a comparison by the range of the difference; else keep it as `difference op constant`'s original."""
    low, high = bounds(minus(polynomial(x), polynomial(y)), ranges)
    below = high is not None and high < 0
    above = low is not None and low > 0
    equal = low == high == 0
    match op:
        case "lt" | "ge":
            known = True if below else False if low is not None and low >= 0 else None
        case "le" | "gt":
            known = True if high is not None and high <= 0 else False if above else None
        case _:
            known = True if equal else False if below or above else None
    if known is None:
        return Op(op, (x, y), bool_)
    return TRUE if known == (op in ("lt", "le", "eq")) else FALSE


def _logical(expr: Op) -> KExpr:
    if expr.op == "not":
        match expr.args[0]:
            case Const(value=value):
                return FALSE if value else TRUE
            case Op(op="not", args=(x,)):
                return x
            case Op(op="lt" | "le" | "gt" | "ge" | "eq" | "ne" as op, args=args) if args[0].dtype.is_integer:
                return Op(_NEGATED[op], args, bool_)
            case _:
                return expr
    neutral, absorbing = (TRUE, FALSE) if expr.op == "and" else (FALSE, TRUE)
    kept: list[KExpr] = []
    for arg in expr.args:
        for part in arg.args if isinstance(arg, Op) and arg.op == expr.op else (arg,):
            if part == absorbing:
                return absorbing
            if part != neutral and part not in kept:
                kept.append(part)
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else Op(expr.op, tuple(kept), bool_)
