"""Reductions through an accumulator in registers: initialise, accumulate, store."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl
from msgspec import Struct, field

from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Read, converted, transform
from polyker.ir.quasi_affine import (
    add,
    floordiv,
    index,
    indices,
    indices_of,
    is_quasi_affine,
    lit,
    mod,
    print_affine,
    substitute,
)
from polyker.ir.typed import UNBOUNDED_EXTENT, TypedProgram, TypedStatement
from polyker.poly.boxes import across, corners, interval_along, is_box
from polyker.poly.isl import Set, int_val, read_map, read_set
from polyker.poly.scop import domain_text, elements_written, parameters, tensor_box, values_taken
from polyker.poly.tiling import Tiling, mates
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.structs import replace

COMBINE = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}


class AccumulatorBlock(Struct, frozen=True):
    """The reduction is cut where `iterator` crosses a multiple of `size`: each block has an accumulator."""

    iterator: str
    size: int


class Accumulated(Struct, frozen=True):
    """The statements that stand for one reduction, in order.

    `numbers`: the iterators of the blocks' numbers. `lanes`: the iterator of the partial sums, or None.
    `element`: the iterators that subscript the accumulators, in order (partial sums have `lanes` after them). `carries`: whether
    the store is that of the epilogue.
    """

    start: TypedStatement
    update: TypedStatement
    folds: tuple[TypedStatement, ...]
    store: tuple[TypedStatement, ...]
    numbers: tuple[str, ...]
    lanes: str | None
    accumulator: str
    folded: str | None
    element: tuple[str, ...]
    carries: bool = False

    def statements(self) -> tuple[TypedStatement, ...]:
        """Return all of them in program order."""
        return (self.start, self.update, *self.folds, *self.store)


class PartialSums(Struct, frozen=True):
    """Partial sums: `count` partial accumulators `A[p, v mod count]`, v being an iterator of the reduction, folded into one
    before the store; `side` neighbouring terms fall into one: `A[p, (v div side) mod count]`."""

    iterator: str
    count: int
    side: int = 1


class AccumulatorLayout(Struct, frozen=True):
    """The elements of an accumulator: one for each result, and for each of the `blocks` that long sums are summed by.

    `inner`: the iterator of the result that is to be the accumulator's last dimension. `origin`: the least values of the
    iterators; the accumulator's elements are counted from there, as the tiles are.
    """

    blocks: tuple[AccumulatorBlock, ...] = ()
    inner: str | None = None
    origin: Mapping[str, int] = field(default_factory=dict)


class Stored(Struct, frozen=True):
    """What of the accumulators is stored: of the values `results` of the kept iterators, where accumulators have others, too.

    `tiles`: of the kept iterators; the accumulators of a block are started and stored for whole tiles, those elements among
    them, too, that have terms in other blocks only. `epilogue`: a statement over the kept iterators that reads each result;
    where every element that it reads is stored here, its value is stored in place of the result, where the last block is.
    """

    results: Set | None = None
    tiles: Tiling = ()
    epilogue: TypedStatement | None = None


_PLAIN, _ALL = AccumulatorLayout(), Stored()


def accumulate(
    program: TypedProgram,
    fresh: Fresh,
    statement: TypedStatement,
    *,
    start: TypedStatement | None = None,
    lanes: PartialSums | None = None,
    layout: AccumulatorLayout = _PLAIN,
    stored: Stored = _ALL,
) -> Accumulated:
    """Rewrite a reduction `T[f(p)] op= e(p, r)` to use an accumulator `A[p]`.

    Before: `T[p] += e[p, r]`. After: `A[p] = 0;  A[p] += e[p, r];  T[p] = T[p] + A[p]`.
    With `start`, the statement that set T to the identity is dropped and the store is `T[p] = A[p]`. With `start` and blocks
    the first block is stored, for every element that `start` set, and the others are added.
    """
    blocks, inner, least = layout.blocks, layout.inner, layout.origin
    kept, acc, outer = statement.kept, statement.acc, statement.outer
    numbers = fresh.iterators(len(blocks))
    iterators = (*kept, *numbers)
    element = (*(i for i in iterators if i != inner), *((inner,) if inner and inner in kept else ()))
    here = tuple(add(index(i), lit(-least.get(i, 0))) for i in element)
    block_of = {n: floordiv(index(b.iterator), b.size) for n, b in zip(numbers, blocks, strict=True)}
    lane = fresh.iterators(1 if lanes else 0)
    accumulator = fresh.temporary("acc", acc, (lit(UNBOUNDED_EXTENT),) * len((*element, *lane)))
    points = _kept_domain(program, statement, start, blocks, more=stored.results is not None)
    if blocks and stored.tiles:
        points = _of_whole_tiles(program, points, iterators, len(blocks), stored.tiles)
    each, lane_of = points, tuple[Expr, ...]()
    if lanes:
        each = points.flat_product(read_set(f"{parameters(program)}{{ [{lane[0]}] : 0 <= {lane[0]} < {lanes.count} }}"))
        lane_of = (mod(floordiv(index(lanes.iterator), lanes.side), lanes.count),)
    one = identity(statement.op, acc)
    # In order, the terms go on from what the element holds.
    before = Read(statement.target, statement.subscripts, dtype=acc) if statement.in_order else one
    partial = Read(accumulator, (*here, *indices(lane)), dtype=acc)
    begin = fresh.sets(each, (*iterators, *lane), (accumulator, partial.subscripts), before, outer=outer)
    places = (*(substitute(s, block_of) for s in here), *lane_of)
    update = replace(statement, target=accumulator, subscripts=places)
    folds: tuple[TypedStatement, ...] = ()
    folded, result = None, partial
    if lanes:
        folded = fresh.temporary("sum", acc, (lit(UNBOUNDED_EXTENT),) * len(element))
        zero = fresh.sets(points, iterators, (folded, here), one, outer=outer)
        fold = fresh.sets(each, begin.iterators, (folded, here), partial, outer=outer)
        folds = (zero, replace(fold, op=statement.op, reduced=lane))
        result = Read(folded, here, dtype=acc)
    region = points if stored.results is None else _region_of(stored.results, points, len(blocks))
    stores = _Stores(program, fresh, statement, iterators, len(blocks), result)
    if start is None:
        store, carries = [stores.of(region, starts=statement.in_order)], False
    else:
        store, carries = stores.started(region, stored.epilogue)
    lane_iterator = lane[0] if lane else None
    return Accumulated(
        begin, update, folds, tuple(store), numbers, lane_iterator, accumulator, folded, element, carries
    )


def _of_whole_tiles(program: TypedProgram, places: Set, iterators: tuple[str, ...], blocks: int, tiles: Tiling) -> Set:
    """Return the elements of the tiles that have some of `places`, in each block."""
    if is_box(places) if program.sizes else corners(places) is not None:
        return places
    kept = len(iterators) - blocks
    elements = places.project_out(isl.dim_type.set, kept, blocks).insert_dims(isl.dim_type.set, kept, blocks)
    more = places.apply(mates(program, "", iterators, tiles)).intersect(elements)
    return places if more.is_subset(places) else more.coalesce()


def _region_of(results: Set, points: Set, blocks: int) -> Set:
    """Return the accumulators' elements that are stored: those of `results`, in each block."""
    count = points.dim(isl.dim_type.set)
    stored = results.insert_dims(isl.dim_type.set, count - blocks, blocks).reset_tuple_id()
    simple = stored
    for d in range(count - blocks, count):
        simple = simple.intersect(across(interval_along(points, d), d, count))
    return simple if simple.is_subset(points) else points.intersect(stored)


class _Stores(Struct, frozen=True):
    """Makes what stores accumulators, each of which `result` reads; the last `blocks` of the iterators number blocks."""

    program: TypedProgram
    fresh: Fresh
    statement: TypedStatement
    iterators: tuple[str, ...]
    blocks: int
    result: Read

    def of(self, points: Set, *, starts: bool) -> TypedStatement:
        """Return the store at some points: an assignment where the result starts there, else an update of what is there."""
        statement = self.statement
        dtype = self.program.tensor(statement.target).dtype
        op, value = "set", converted(self.result, dtype)
        if not starts and dtype == statement.acc:
            op = statement.op
        elif not starts:
            # Combined in the accumulator's type, and rounded once.
            into = Cast(statement.acc, Read(statement.target, statement.subscripts, dtype=dtype), statement.acc)
            value = Cast(dtype, Call(COMBINE[statement.op], (into, self.result), statement.acc), dtype)
        place = statement.target, statement.subscripts
        return replace(self.fresh.sets(points, self.iterators, place, value, statement, statement.outer), op=op)

    def started(self, points: Set, epilogue: TypedStatement | None) -> tuple[list[TypedStatement], bool]:
        """Return the store of the first block, and that which adds those of the others, and whether the epilogue is in place
        of the last one's."""
        numbers = range(len(self.iterators) - self.blocks, len(self.iterators))
        first = points
        for d in numbers:
            first = first.fix_val(isl.dim_type.set, d, int_val(0))
        last = None if epilogue is None else self._last(points, epilogue, numbers)
        parts = [(first, True), (points.subtract(first), False)] if numbers else [(points, True)]
        if last is not None:
            parts = [(part.subtract(last), starts) for part, starts in parts]
        # Without blocks there is one store, of a result without elements, too.
        every = not numbers and last is None
        stores = [self.of(part, starts=starts) for part, starts in parts if every or not part.is_empty()]
        if epilogue is None or last is None:
            return stores, False
        own = self.statement
        before = Read(own.target, own.subscripts, dtype=own.acc)
        value = Call(COMBINE[own.op], (before, self.result), own.acc) if stores else self.result
        final = transform(epilogue.expr, lambda e: value if isinstance(e, Read) and e.tensor == own.target else e)
        place = epilogue.target, epilogue.subscripts
        return [*stores, self.fresh.sets(last, self.iterators, place, final, epilogue, own.outer)], True

    def _last(self, points: Set, epilogue: TypedStatement, numbers: range) -> Set | None:
        """Return the elements of the last block; None where the epilogue reads others, too."""
        box = corners(points) if numbers else ()
        if box is None or self.program.tensor(self.statement.target).dtype != self.statement.acc:
            return None
        last = points
        for d in numbers:
            last = last.fix_val(isl.dim_type.set, d, int_val(box[d][1]))
        reached = last.project_out(isl.dim_type.set, numbers.start, self.blocks)
        return last if reached.is_equal(read_set(epilogue.domain).reset_tuple_id()) else None


def _kept_domain(
    program: TypedProgram,
    statement: TypedStatement,
    start: TypedStatement | None,
    blocks: tuple[AccumulatorBlock, ...],
    *,
    more: bool,
) -> isl.Set:
    """Return the elements of the accumulator: where the result is started anew, every element of the result; `more`: and
    others."""
    started: isl.Set | None = None
    if start is not None:
        started = started_elements(program, start, statement, len(blocks)).intersect_params(read_set(program.context))
        if not blocks and not more:
            return started
    terms = values_taken(program, statement, (*statement.kept, *(f"floor({b.iterator}/{b.size})" for b in blocks)))
    return (terms if started is None or started.is_subset(terms) else terms.union(started)).coalesce()


def started_elements(
    program: TypedProgram, start: TypedStatement, statement: TypedStatement, blocks: int = 0
) -> isl.Set:
    """Return the values of a reduction's kept iterators whose elements `start` sets, followed by so many zeros."""
    columns = (*statement.kept, *("0" for _ in range(blocks)))
    if not all(isinstance(s, IndexExpr) for s in statement.subscripts):
        # It reaches all of them (see `starts_fresh`); outside its domain other values may be the same elements.
        return values_taken(program, statement, columns)
    onto = read_map(f"{parameters(program)}{{ {_as_start(start, statement)} -> [{', '.join(columns)}] }}")
    return read_set(start.domain).apply(onto)


def _as_start(start: TypedStatement, statement: TypedStatement) -> str:
    """Return the instance of `start` that sets a statement's element; its iterators may be in another order."""
    reached = dict(zip(start.subscripts, statement.subscripts, strict=True))
    return f"{start.name}[{', '.join(print_affine(reached[index(i)]) for i in start.iterators)}]"


def started_apart(
    program: TypedProgram, fresh: Fresh, start: TypedStatement, statement: TypedStatement, results: Set
) -> tuple[TypedStatement, TypedStatement | None]:
    """Return the start of those elements that a reduction stores, and that of the others, None where there are none.

    `results`: the values of the reduction's kept iterators that have terms.
    """
    kept = ", ".join(statement.kept)
    onto = read_map(f"{parameters(program)}{{ [{kept}] -> {_as_start(start, statement)} }}")
    here = read_set(start.domain).intersect(results.apply(onto)).coalesce()
    rest = read_set(start.domain).subtract(here).coalesce()
    own = replace(start, domain=domain_text(here, start.name))
    if rest.is_empty():
        return own, None
    name = fresh.statement()
    return own, replace(start, name=name, domain=domain_text(rest, name))


def starts_fresh(program: TypedProgram, start: TypedStatement | None, statement: TypedStatement) -> bool:
    """Whether `start` set the elements that the statement reaches to the identity; the kept iterators are its elements, one to
    one.

    Where terms read the target itself, what other elements hold meanwhile matters.
    """
    if statement.reads_own or start is None or start.op != "set" or start.target != statement.target:
        return False
    if start.outer or statement.outer or start.expr != identity(statement.op, program.tensor(statement.target).dtype):
        return False
    if start.subscripts != indices(start.iterators):
        return False
    box = read_set(tensor_box(program, start.target)).set_tuple_name(start.name)
    box = box.intersect_params(read_set(program.context)) if program.sizes else box
    if not box.is_subset(read_set(start.domain)):
        reached = elements_written(program, statement).set_tuple_name(start.name)
        if not reached.is_subset(read_set(start.domain)):
            return False
    names = [s.name for s in statement.subscripts if isinstance(s, IndexExpr)]
    if len(names) == len(statement.subscripts) and sorted(names) == sorted(statement.kept):
        return True
    if not all(map(is_quasi_affine, statement.subscripts)):
        return False
    if not any(len(indices_of(s)) > 1 for s in statement.subscripts):
        return False
    reached = elements_written(program, statement).set_tuple_name(start.name)
    started = read_set(start.domain).intersect_params(read_set(program.context))
    return _one_to_one(program, statement) and started.is_subset(reached)


def _one_to_one(program: TypedProgram, statement: TypedStatement) -> bool:
    """Whether no two values of the kept iterators are one element, as in O[2*q+p] for p in 0:2."""
    elements = read_map(
        f"{parameters(program)}{{ [{', '.join(statement.kept)}] -> [{', '.join(map(print_affine, statement.subscripts))}] }}"
    )
    return bool(elements.intersect_domain(values_taken(program, statement, statement.kept)).is_injective())
