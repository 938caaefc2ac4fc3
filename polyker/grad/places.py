"""The elements that a read takes its value from, in cases: inside the tensor, and beyond each end by the rule of the padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from polyker.grad.values import call
from polyker.ir.expr import Call, Expr, IndexExpr, Literal, Range, Read, SizeExpr
from polyker.ir.quasi_affine import lit, print_affine
from polyker.poly.isl import read_set
from polyker.structs import replace

_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!="}
_OPPOSITES = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def places(
    read: Read, extents: Sequence[Expr], ranges: Sequence[Range], given: Sequence[Expr]
) -> Iterator[tuple[tuple[Expr, ...], tuple[Expr, ...]]]:
    """Yield the subscripts of an element, and the conditions under which it is the one that is read.

    `ranges`, and conditions that are `given`: what instances there are; cases that none of them is of are left out. Beyond the
    ends by more than an extent `wrap` and `reflect` go round again, which no case here does; such sizes are refused where the
    gradient is bound to them, as its subscripts leave the tensor there.
    """
    if read.pad is None:
        yield read.subscripts, ()
        return
    cases = [
        [
            (place, conditions)
            for place, conditions in _cases(read.pad.mode, s, n)
            if _can_hold(ranges, given, conditions)
        ]
        for s, n in zip(read.subscripts, extents, strict=True)
    ]
    for case in product(*cases):
        conditions = tuple(c for _, found in case for c in found)
        if _can_hold(ranges, given, conditions):
            yield tuple(place for place, _ in case), _needed(ranges, given, conditions)


def _cases(mode: str, place: Expr, extent: Expr) -> Iterator[tuple[Expr, tuple[Expr, ...]]]:
    last = call("add", extent, lit(-1))
    below, above = call("lt", place, lit(0)), call("ge", place, extent)
    yield place, (call("ge", place, lit(0)), call("lt", place, extent))
    match mode:
        case "edge":
            yield lit(0), (below,)
            yield last, (above,)
        case "wrap":
            yield call("add", place, extent), (below,)
            yield call("add", place, call("neg", extent)), (above,)
        case "reflect":
            yield call("neg", place), (below,)
            yield call("add", last, last, call("neg", place)), (above,)


def _can_hold(ranges: Iterable[Range], given: Iterable[Expr], conditions: Sequence[Expr]) -> bool:
    """Whether all conditions can hold somewhere in ranges where what is given does; sizes are 0 or more.

    What is no comparison of quasi-affine expressions counts as what can hold.
    """
    ranges = list(ranges)
    bounds = [Call("le", (r.lo, IndexExpr(r.index))) for r in ranges if r.lo is not None]
    bounds += [Call("lt", (IndexExpr(r.index), r.hi)) for r in ranges if r.hi is not None]
    known = [c for e in (*bounds, *given, *conditions) for c in _affine(e)]
    names: dict[str, Expr] = {}
    texts = [f"{_text(c.args[0], names)} {_SIGNS[c.op]} {_text(c.args[1], names)}" for c in known]
    sizes, indices = ([n for n, e in names.items() if isinstance(e, kind)] for kind in (SizeExpr, IndexExpr))
    texts += [f"{n} >= 0" for n in sizes]
    return not read_set(f"[{', '.join(sizes)}] -> {{ [{', '.join(indices)}] : {' and '.join(texts)} }}").is_empty()


def _needed(ranges: Iterable[Range], given: Iterable[Expr], conditions: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return those of some comparisons that do not hold anyway."""
    ranges, given = list(ranges), list(given)
    return tuple(
        c
        for c in conditions
        if not isinstance(c, Call) or _can_hold(ranges, given, [replace(c, op=_OPPOSITES.get(c.op, c.op))])
    )


def _affine(expr: Expr) -> Iterator[Call]:
    """Yield the comparisons of quasi-affine expressions that hold where a condition does."""
    if isinstance(expr, Call) and expr.op == "and":
        for part in expr.args:
            yield from _affine(part)
    elif isinstance(expr, Call) and expr.op in _SIGNS and all(map(_is_affine, expr.args)):
        yield expr


def _is_affine(expr: Expr) -> bool:
    match expr:
        case Literal(value=value):
            return isinstance(value, int)
        case IndexExpr() | SizeExpr():
            return True
        case Call(op="add" | "neg", args=args):
            return all(map(_is_affine, args))
        case Call(op="mul", args=args):
            return all(map(_is_affine, args)) and sum(not isinstance(a, Literal) for a in args) < 2
        case Call(op="floordiv" | "mod", args=(arg, Literal(value=int(by)))):
            return by > 0 and _is_affine(arg)
    return False


def _text(expr: Expr, names: dict[str, Expr]) -> str:
    """Return a text for isl, in which sizes and indices have names of no meaning to it; `names` gets what they stand for."""

    def change(e: Expr) -> Expr:
        if not isinstance(e, (IndexExpr, SizeExpr)):
            return replace(e, args=tuple(map(change, e.args))) if isinstance(e, Call) else e
        known = next((n for n, other in names.items() if other == e), f"x{len(names)}")
        names[known] = e
        return replace(e, name=known)

    return print_affine(change(expr))
