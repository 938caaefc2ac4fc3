"""Search for the place of an extremum only in the block of a long reduction that has it.

Before: `M[p] max= e(p,k);  A[p] min= where(e(p,k) == M[p], k, none)`, as `argmax[k](e(p,k))` expands to. After:
    P[p,b] max= e(p, L*b + l);  M[p] max= P[p,b];  B[p] min= where(P[p,b] == M[p], b, none);
    A[p] min= where(b == B[p], where(e(p, L*b + l) == M[p], L*b + l, none), none)
and the terms behind the last whole block for themselves. A block's condition is outside of the reduction loop
(polyker.codegen.passes.unswitch), so nearly all terms are looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, sqrt

from msgspec import Struct, field

from polyker.cost.measure import Layouts, measure
from polyker.cost.table import GAIN, folded
from polyker.ir.decision import Decision
from polyker.ir.dtypes import bool_, i64
from polyker.ir.expr import Call, Cast, IndexExpr, Read, transform, walk
from polyker.ir.promotion import integer_range
from polyker.ir.quasi_affine import add, index, indices, lit, renaming, scale, substitute
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement, replaced
from polyker.machine.model import Target
from polyker.poly.boxes import free_range
from polyker.poly.isl import dim, read_set
from polyker.poly.scop import domain_text, image, parameters
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.rewrite.core.reindex import reindexed
from polyker.rewrite.reductions.split_sum import start_and_fold
from polyker.rewrite.searches.match_searches import Search
from polyker.structs import replace

# Least vectors of a block, and least blocks of a row (experience values).
MIN_BLOCK_VECTORS, MIN_ROW_BLOCKS = 8, 3
# How often a block's lanes are folded, and by how many blocks more beside; cycles to look for a place in a vector of terms,
# beyond what their extremum takes: four operations (experience values).
BLOCK_FOLDS, EXTRA_BLOCKS, SEARCH_CYCLES = 3, 6, 4


def search_blocks(
    program: TypedProgram, searches: Iterable[Search], target: Target, layout: Layouts, budget: int | None = None
) -> tuple[TypedProgram, tuple[Decision, ...]]:
    """Return the program with long ones of its searches in blocks, and what was done in words; the same one where there is none.

    `budget`: bytes that the blocks' extrema may take, if there is a limit.
    """
    found = _SearchBlocks(program, target, layout, budget)
    body = found.body(searches)
    return (found.fresh.finish(body), tuple(found.notes)) if found.notes else (program, ())


class _SearchBlocks(Struct, dict=True):
    """Makes other statements of those of searches."""

    program: TypedProgram
    target: Target
    layout: Layouts
    budget: int | None
    notes: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fresh = Fresh(self.program)

    def body(self, searches: Iterable[Search]) -> tuple[TypedNode, ...]:
        """Return the program's statements, long searches in blocks."""
        made: dict[str, list[TypedNode]] = {}
        for search in searches:
            count = _count(search)
            if count is None or search.extremum.name in made:
                continue
            length = self.length(search, count)
            if length is None:
                continue
            extremum, place = self.split_in_parts(search, count, length)
            made |= {search.extremum.name: extremum, search.place.name: place}
            self.notes.append(
                Decision(search.place.name, f"searches the first block of {length} terms that has the extremum")
            )
        return replaced(self.program.body, lambda s: made.get(s.name, [s]))

    def length(self, search: Search, count: int) -> int | None:
        """Return the number of a block's terms; None where there are too few, or where they do not lie side by side."""
        measured = measure(self.program, search.extremum, self.layout)
        (terms,) = search.extremum.reduced
        moving = [a for a in measured.accesses if a.read is not None and a.stride(terms)]
        if not moving or any(abs(a.stride(terms)) != 1 for a in moving):
            return None
        lanes = self.target.lanes(search.extremum.acc.real.itemsize)
        step = max(1, round(MIN_BLOCK_VECTORS * lanes))
        # Cycles for a vector of terms that are searched: places are as many vectors as they have more bytes.
        searched = SEARCH_CYCLES * max(1, search.place.acc.itemsize // search.extremum.acc.itemsize)
        fold = BLOCK_FOLDS * folded(lanes)
        ideal = sqrt(count * lanes * fold / searched)

        def cost(length: int) -> float:
            terms = length + count % length
            return (count // length + EXTRA_BLOCKS) * fold + terms / lanes * searched

        rows = measured.footprint(measured.write) * search.extremum.acc.itemsize
        room = inf if self.budget is None else self.budget
        lengths = range(step, round(2 * ideal) + step, step)
        fit = [n for n in lengths if MIN_ROW_BLOCKS * n <= count and count // n * rows <= room]
        best = min(fit, key=cost, default=None)
        return best if best is not None and cost(best) < (1 - GAIN) * count / lanes * searched else None

    def split_in_parts(self, search: Search, count: int, length: int) -> tuple[list[TypedNode], list[TypedNode]]:
        """Return the statements that stand for the extremum, and for the place."""
        extremum, place, best = search.extremum, search.place, search.best
        blocks = count // length
        elements = len(best.subscripts)
        shape = (*self.program.tensor(best.tensor).shape, lit(blocks))
        part = self.fresh.temporary("part", extremum.acc, shape)
        b, inner = self.fresh.iterator(), self.fresh.iterator()
        kept = extremum.iterators[:elements]
        element = indices((*kept, b))
        partial = replace(
            self.cut(extremum, (b, inner), length, blocks), target=part, subscripts=element, reduced=(inner,)
        )
        over = read_set(partial.domain).reset_tuple_id().project_out(dim.set, elements + 1, 1)
        begin, whole = start_and_fold(self.fresh, extremum, part, (*kept, b), over)
        found = self.fresh.temporary("block", place.acc, self.program.tensor(best.tensor).shape)
        points = over.project_out(dim.set, elements, 1)
        none, number = identity(place.op, place.acc), Cast(place.acc, IndexExpr(b, i64), place.acc)
        block = Read(part, element, dtype=extremum.acc)
        names = renaming(dict(zip(place.iterators, kept, strict=False)))
        term = substitute(search.term, names)
        has = transform(substitute(search.hit, names), lambda e: block if e == term else e)
        nowhere = self.fresh.sets(points, kept, (found, element[:-1]), none)
        chosen = Call("where", (has, number, none), place.acc)
        first = replace(place, target=found, subscripts=element[:-1], expr=chosen)
        first = reindexed(first, (*kept, b), over, {}, self.fresh.statement(), (b,))
        searched = self.cut(place, (b, inner), length, blocks)
        there = Call("eq", (number, Read(found, best.subscripts, dtype=place.acc)), bool_)
        value = Call("where", (there, searched.expr, none), place.acc)
        searched = replace(searched, expr=value, seldom=frozenset({*place.iterators[:elements], b}))
        rest = count - length * blocks
        behind = [self.behind(s, length * blocks) for s in (extremum, place)] if rest else []
        return [begin, partial, whole, *behind[:1]], [nowhere, first, searched, *behind[1:]]

    def cut(self, statement: TypedStatement, names: tuple[str, str], length: int, blocks: int) -> TypedStatement:
        """Return a reduction restricted to whole blocks; `names`: the iterators over blocks and over the terms of one."""
        (b, inner), (*kept, k) = names, statement.iterators
        iterators = (*kept, b, inner)
        cut = f"0 <= {b} < {blocks} and 0 <= {inner} < {length} and {k} = {length} {b} + {inner}"
        points, at = image(self.program, statement, iterators, where=cut), add(scale(length, index(b)), index(inner))
        return reindexed(statement, iterators, points, {k: at}, self.fresh.statement(), (b, inner))

    def behind(self, statement: TypedStatement, first: int) -> TypedStatement:
        """Return a reduction restricted to the terms after the whole blocks."""
        name, k = self.fresh.statement(), statement.iterators[-1]
        source = ", ".join(statement.iterators)
        terms = read_set(f"{parameters(self.program)}{{ {statement.name}[{source}] : {k} >= {first} }}")
        return replace(statement, name=name, domain=domain_text(read_set(statement.domain).intersect(terms), name))


def _count(search: Search) -> int | None:
    """Return how many values the last iterator takes, from 0, whatever the others are; None where it takes others.

    None, too, where terms are padded, whose blocks would be, too.
    """
    place = search.place
    if any(isinstance(e, Read) and e.pad is not None for e in walk(search.term)):
        return None
    ends = free_range(read_set(place.domain).reset_tuple_id(), len(search.best.subscripts))
    # A place's type has room for the count: a greater one is never wrapped to a smaller.
    if ends is None or ends[0] != 0 or place.acc.kind != "i" or ends[1] >= integer_range(place.acc)[1]:
        return None
    return ends[1] + 1
