"""Recognise searches for the place of an extremum, as `argmax` and `argmin` expand to.

M[p] max= e(p,k);  A[p] min= where(e(p,k) == M[p] or e(p,k) != e(p,k), k, none)
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Read
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_set
from polyker.rewrite.core.fresh import identity
from polyker.rewrite.core.match import match


class Search(Struct, frozen=True):
    """`place` looks for the first or the last `term` that is the extremum, `best`, or a NaN, which `extremum` makes.

    Both run over the same points, and each value of `term` is the same in both; `hit` is what `place` asks of it.
    """

    extremum: TypedStatement
    place: TypedStatement
    best: Read
    term: Expr
    hit: Expr


def searches(program: TypedProgram) -> Iterator[Search]:
    """Yield the searches for places of extrema, in the order of the program."""
    statements = list(program.statements())
    order = {s.name: n for n, s in enumerate(statements)}
    for place in statements:
        found = _search(place, statements)
        if found is None or program.tensor(found.best.tensor).dtype != found.extremum.acc:
            continue
        read = {r.tensor for r in found.extremum.reads()}
        # The terms that are searched are those whose extremum was taken.
        last = max((order[s.name] for s in statements if s.target in read), default=-1)
        if last < order[found.extremum.name] < order[place.name]:
            yield found


def _search(place: TypedStatement, statements: list[TypedStatement]) -> Search | None:
    """Return what a statement searches for, if it does; `statements`: all those of the program."""
    if place.op not in ("max", "min"):
        return None
    match place.expr:
        case Call(op="where", args=(hit, Cast(arg=IndexExpr(name=k)), none)) if none == identity(place.op, place.acc):
            pass
        case Call(op="where", args=(hit, IndexExpr(name=k), none)) if none == identity(place.op, place.acc):
            pass
        case _:
            return None
    match hit:
        case Call(op="or", args=(Call(op="eq", args=(term, Read() as best)), Call(op="ne", args=(one, other)))):
            if not term == one == other:
                return None
        case Call(op="eq", args=(term, Read() as best)):
            if term.dtype is None or term.dtype.kind == "f":
                return None
        case _:
            return None
    match [s for s in statements if s.target == best.tensor]:
        case [TypedStatement(op="set") as start, TypedStatement(op="max" | "min") as extremum]:
            pass
        case _:
            return None
    elements = len(best.subscripts)
    names = dict(zip(extremum.iterators, place.iterators, strict=False))
    plain = (
        place.reduced == (k,)
        and start.expr == identity(extremum.op, extremum.acc)
        and all(_is_plain(s, elements) for s in (extremum, place))
        and best.subscripts == place.subscripts
        and extremum.acc == term.dtype
        and match(extremum.expr, term, names) == names
    )
    points = read_set(place.domain).reset_tuple_id()
    if not plain or not points.is_equal(read_set(extremum.domain).reset_tuple_id()):
        return None
    return Search(extremum, place, best, term, hit)


def _is_plain(statement: TypedStatement, elements: int) -> bool:
    """Whether a reduction is over its last iterator, into the elements that the others name."""
    unusual = statement.outer or statement.in_order or statement.reads_own or statement.defines
    at = tuple(IndexExpr(i, i64) for i in statement.iterators[:elements])
    return not unusual and statement.subscripts == at and statement.reduced == statement.iterators[elements:] != ()
