"""Places of extrema are searched for in the blocks of terms that have them, where these are long.

Before: `M[p] max= e(p,k);  A[p] min= where(e(p,k) == M[p], k, none)`, as `argmax[k](e(p,k))` expands to. After:
    P[p,b] max= e(p, L*b + l);  M[p] max= P[p,b];  B[p] min= where(P[p,b] == M[p], b, none);
    A[p] min= where(b == B[p], where(e(p, L*b + l) == M[p], L*b + l, none), none)
and the terms behind the last whole block for themselves. A block's condition is outside of the loop over its terms
(polyker.codegen.unswitch), so nearly all terms are looked at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf, sqrt

from polyker.ir.dtypes import bool_, i64
from polyker.ir.expr import Call, Cast, Expr, Index, Read, walk
from polyker.ir.promotion import integer_range
from polyker.ir.quasi_affine import add, lit, scale, substitute
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement, replaced
from polyker.poly.boxes import free_range
from polyker.poly.isl import dim, read_map, read_set
from polyker.poly.scop import domain_text, parameters
from polyker.rewrite.fresh import Fresh, identity
from polyker.rewrite.match import match
from polyker.rewrite.split_sum import start_and_fold
from polyker.schedule.measure import Layouts, measure
from polyker.target.model import Target

# Vectors of a block, and blocks of a row, at least.
LEAST, BLOCKS = 8, 3
# Cycles to make one value of several vectors, which a block takes, and how often it is done beside; cycles to look for a place in
# a vector of terms, beyond what their extremum takes; the part of all these that blocks have to leave, at most.
FOLD, OTHERS, SEARCH, WORTH = 20, 6, 4, 0.8


def search_blocks(
    program: TypedProgram, target: Target, layout: Layouts, most: int | None = None
) -> tuple[TypedProgram, tuple[str, ...]]:
    """Return the program with long searches in blocks, and what was done in words; the same one where there is none.

    `most`: bytes that the blocks' extrema may take, if there is a limit.
    """
    found = _Searches(program, target, layout, most)
    body = found.body()
    return (found.fresh.finish(body), tuple(found.notes)) if found.notes else (program, ())


@dataclass(frozen=True, slots=True)
class _Search:
    """`place` looks for the term that is the extremum, `best`, which `extremum` makes; both run over `count` values of the last
    iterator, from 0, whatever the others are."""

    extremum: TypedStatement
    place: TypedStatement
    best: Read
    count: int


@dataclass
class _Searches:
    """Finds the pairs of statements, and makes others of them."""

    program: TypedProgram
    target: Target
    layout: Layouts
    most: int | None
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fresh = Fresh(self.program)

    def body(self) -> tuple[TypedNode, ...]:
        """Return the program's statements, long searches in blocks."""
        made: dict[str, list[TypedNode]] = {}
        for search in self.searches():
            length = self.length(search)
            if length is not None and search.extremum.name not in made:
                extremum, place = self.parted(search, length)
                made |= {search.extremum.name: extremum, search.place.name: place}
                self.notes.append(
                    f"{search.place.name}: searches the first block of {length} terms that has the extremum"
                )
        return replaced(self.program.body, lambda s: made.get(s.name, [s]))

    def searches(self) -> Iterator[_Search]:
        """Yield the searches for places of extrema, in the order of the program."""
        statements = list(self.program.statements())
        order = {s.name: n for n, s in enumerate(statements)}
        for place in statements:
            found = _search(place, statements)
            if found is None or self.program.tensor(found.best.tensor).dtype != found.extremum.acc:
                continue
            read = {r.tensor for r in found.extremum.reads()}
            # The terms that are searched are those whose extremum was taken.
            last = max((order[s.name] for s in statements if s.target in read), default=-1)
            if last < order[found.extremum.name] < order[place.name]:
                yield found

    def length(self, search: _Search) -> int | None:
        """Return the number of a block's terms; None where there are too few, or where they do not lie side by side."""
        measured = measure(self.program, search.extremum, self.layout)
        (terms,) = search.extremum.reduced
        moving = [a for a in measured.accesses if a.read is not None and a.stride(terms)]
        if not moving or any(abs(a.stride(terms)) != 1 for a in moving):
            return None
        lanes = self.target.lanes(search.extremum.acc.real.itemsize)
        step = max(1, round(LEAST * lanes))
        # Cycles for a vector of terms that are searched: places are as many vectors as they have more bytes.
        searched = SEARCH * max(1, search.place.acc.itemsize // search.extremum.acc.itemsize)
        ideal = sqrt(search.count * lanes * FOLD / searched)

        def cost(length: int) -> float:
            terms = length + search.count % length
            return (search.count // length + OTHERS) * FOLD + terms / lanes * searched

        rows = measured.footprint(measured.write) * search.extremum.acc.itemsize
        room = inf if self.most is None else self.most
        lengths = range(step, round(2 * ideal) + step, step)
        fit = [n for n in lengths if BLOCKS * n <= search.count and search.count // n * rows <= room]
        best = min(fit, key=cost, default=None)
        return best if best is not None and cost(best) < WORTH * search.count / lanes * searched else None

    def parted(self, search: _Search, length: int) -> tuple[list[TypedNode], list[TypedNode]]:
        """Return the statements that stand for the extremum, and for the place."""
        extremum, place, best = search.extremum, search.place, search.best
        blocks = search.count // length
        cells = len(best.subscripts)
        shape = (*self.program.tensor(best.tensor).shape, lit(blocks))
        part = self.fresh.temporary("part", extremum.acc, shape)
        b, inner = self.fresh.iterator(), self.fresh.iterator()
        kept = extremum.iterators[:cells]
        cell = tuple(Index(i, i64) for i in (*kept, b))
        partial = replace(
            self.cut(extremum, (b, inner), length, blocks), target=part, subscripts=cell, reduced=(inner,)
        )
        over = read_set(partial.domain).reset_tuple_id().project_out(dim.set, cells + 1, 1)
        begin, whole = start_and_fold(self.fresh, extremum, part, (*kept, b), over)
        found = self.fresh.temporary("block", place.acc, self.program.tensor(best.tensor).shape)
        points = over.project_out(dim.set, cells, 1)
        none, number = identity(place.op, place.acc), Cast(place.acc, Index(b, i64), place.acc)
        unset, look = self.fresh.statement(), self.fresh.statement()
        acc = extremum.acc
        block = Read(part, cell, dtype=acc)
        has: Expr = Call("eq", (block, Read(best.tensor, cell[:-1], dtype=acc)), bool_)
        if acc.kind == "f":
            has = Call("or", (has, Call("ne", (block, block), bool_)), bool_)
        nowhere = TypedStatement(unset, kept, 0, domain_text(points, unset), found, cell[:-1], "set", none, place.acc)
        first = replace(
            place,
            name=look,
            iterators=(*kept, b),
            domain=domain_text(over, look),
            target=found,
            subscripts=cell[:-1],
            expr=Call("where", (has, number, none), place.acc),
            reduced=(b,),
        )
        searched = self.cut(place, (b, inner), length, blocks)
        there = Call("eq", (number, Read(found, best.subscripts, dtype=place.acc)), bool_)
        value = Call("where", (there, searched.expr, none), place.acc)
        searched = replace(searched, expr=value, seldom=frozenset({*place.iterators[:cells], b}))
        rest = search.count - length * blocks
        behind = [self.behind(s, length * blocks) for s in (extremum, place)] if rest else []
        return [begin, partial, whole, *behind[:1]], [nowhere, first, searched, *behind[1:]]

    def cut(self, statement: TypedStatement, names: tuple[str, str], length: int, blocks: int) -> TypedStatement:
        """Return a reduction over the terms of whole blocks; `names`: the iterators over blocks and over the terms of one."""
        (b, inner), (*kept, k) = names, statement.iterators
        name = self.fresh.statement()
        head, source = parameters(self.program), ", ".join(statement.iterators)
        cut = read_map(
            f"{head}{{ {statement.name}[{source}] -> [{', '.join((*kept, b, inner))}] : "
            f"0 <= {b} < {blocks} and 0 <= {inner} < {length} and {k} = {length} {b} + {inner} }}"
        )
        return replace(
            statement,
            name=name,
            iterators=(*kept, b, inner),
            domain=domain_text(read_set(statement.domain).apply(cut), name),
            expr=substitute(statement.expr, {k: add(scale(length, Index(b, i64)), Index(inner, i64))}),
            reduced=(b, inner),
        )

    def behind(self, statement: TypedStatement, first: int) -> TypedStatement:
        """Return a reduction over the terms behind the whole blocks."""
        name, k = self.fresh.statement(), statement.iterators[-1]
        source = ", ".join(statement.iterators)
        terms = read_set(f"{parameters(self.program)}{{ {statement.name}[{source}] : {k} >= {first} }}")
        return replace(statement, name=name, domain=domain_text(read_set(statement.domain).intersect(terms), name))


def _search(place: TypedStatement, statements: list[TypedStatement]) -> _Search | None:
    """Return what a statement searches for, if it does; `statements`: all those of the program."""
    if place.op not in ("max", "min"):
        return None
    match place.expr:
        case Call(op="where", args=(hit, Cast(arg=Index(name=k)), none)) if none == identity(place.op, place.acc):
            pass
        case Call(op="where", args=(hit, Index(name=k), none)) if none == identity(place.op, place.acc):
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
    cells = len(best.subscripts)
    names = dict(zip(extremum.iterators, place.iterators, strict=False))
    plain = (
        place.reduced == (k,)
        and start.expr == identity(extremum.op, extremum.acc)
        and all(_is_plain(s, cells) for s in (extremum, place))
        and best.subscripts == place.subscripts
        and not any(isinstance(e, Read) and e.pad is not None for e in walk(term))
        and extremum.acc == term.dtype
        and match(extremum.expr, term, names) == names
    )
    points = read_set(place.domain).reset_tuple_id()
    if not plain or not points.is_equal(read_set(extremum.domain).reset_tuple_id()):
        return None
    ends = free_range(points, cells)
    # A place's type has room for it: a greater one is never wrapped to a smaller.
    if ends is None or ends[0] != 0 or place.acc.kind != "i" or ends[1] >= integer_range(place.acc)[1]:
        return None
    return _Search(extremum, place, best, ends[1] + 1)


def _is_plain(statement: TypedStatement, cells: int) -> bool:
    """Whether a reduction is over its last iterator, into the cells that the others name."""
    unusual = statement.outer or statement.in_order or statement.reads_own or statement.defines
    at = tuple(Index(i, i64) for i in statement.iterators[:cells])
    return not unusual and statement.subscripts == at and statement.reduced == statement.iterators[cells:] != ()
