"""Reductions through an accumulator in registers: initialise, accumulate, store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import islpy as isl

from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read, transform
from polyker.ir.quasi_affine import add, floordiv, indices_of, is_quasi_affine, lit, mod, print_affine
from polyker.ir.typed import UNBOUNDED_EXTENT, TypedProgram, TypedStatement
from polyker.poly.boxes import across, corners, interval_along, is_box
from polyker.poly.isl import Set, int_val, read_map, read_set
from polyker.poly.scop import domain_text, elements_written, parameters, tensor_box, values_taken
from polyker.poly.tiling import Tiling, mates
from polyker.rewrite.core.fresh import Fresh, identity

COMBINE = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}


@dataclass(frozen=True, slots=True)
class AccumulatorBlock:
    """The reduction is cut where `iterator` crosses a multiple of `size`: each block has an accumulator."""

    iterator: str
    size: int


@dataclass(frozen=True, slots=True)
class Accumulated:
    """The statements that stand for one reduction, in order; `kept` are the iterators of the result, outermost first.

    `numbers`: the iterators of the blocks' numbers. `lanes`: the iterator of the partial sums, or None.
    `element`: the iterators that subscript the accumulators, in order (partial sums have `lanes` after them). `carries`: whether
    the store is that of the epilogue.
    """

    start: TypedStatement
    update: TypedStatement
    folds: tuple[TypedStatement, ...]
    store: tuple[TypedStatement, ...]
    kept: tuple[str, ...]
    numbers: tuple[str, ...]
    lanes: str | None
    accumulator: str
    folded: str | None
    element: tuple[str, ...]
    carries: bool = False

    def statements(self) -> tuple[TypedStatement, ...]:
        """Return all of them in program order."""
        return (self.start, self.update, *self.folds, *self.store)


@dataclass(frozen=True, slots=True)
class PartialSums:
    """Partial sums: `count` partial accumulators `A[p, v mod count]`, v being an iterator of the reduction, folded into one
    before the store; `side` neighbouring terms fall into one: `A[p, (v div side) mod count]`."""

    iterator: str
    count: int
    side: int = 1


@dataclass(frozen=True, slots=True)
class AccumulatorLayout:
    """The elements of an accumulator: one for each result, and for each of the `blocks` that long sums are summed by.

    `inner`: the iterator of the result that is to be the accumulator's last dimension. `origin`: the least values of the
    iterators; the accumulator's elements are counted from there, as the tiles are.
    """

    blocks: tuple[AccumulatorBlock, ...] = ()
    inner: str | None = None
    origin: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stored:
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
    results, tiles = stored.results, stored.tiles
    kept = tuple(i for i in statement.iterators if i not in statement.reduced)
    acc, op = statement.acc, statement.op
    numbers = tuple(fresh.iterator() for _ in blocks)
    others = tuple(i for i in kept if i != inner) + numbers
    element = others + ((inner,) if inner in kept and inner else ())
    block_element: tuple[Expr, ...] = tuple(add(_index(i), lit(-least.get(i, 0))) for i in element)
    block_of = {n: floordiv(_index(b.iterator), b.size) for n, b in zip(numbers, blocks, strict=True)}
    lane = fresh.iterator() if lanes else None
    accumulator = fresh.temporary(
        "acc", acc, tuple(lit(UNBOUNDED_EXTENT) for _ in range(len(block_element) + bool(lanes)))
    )
    places = _kept_domain(program, statement, start, kept, blocks, more=results is not None)
    if blocks and tiles:
        places = _of_whole_tiles(program, places, (*kept, *numbers), len(numbers), tiles)
    first = _Named((*kept, *numbers), places, domain_text(places, "X_"))
    one = identity(op, acc)
    lane_element = (_index(lane),) if lane else ()
    begin_iterators = (*first.iterators, *((lane,) if lane else ()))
    begin_name = fresh.statement()
    begin_domain = (
        _with_lane(program, first, begin_name, begin_iterators, lanes.count) if lanes else _rename(first, begin_name)
    )
    outer = statement.outer
    # In order, the terms go on from what the element holds.
    before = Read(statement.target, statement.subscripts, dtype=acc) if statement.in_order else one
    begin = TypedStatement(
        begin_name,
        begin_iterators,
        outer,
        begin_domain,
        accumulator,
        (*block_element, *lane_element),
        "set",
        before,
        acc,
    )
    lane_of = (mod(floordiv(_index(lanes.iterator), lanes.side), lanes.count),) if lanes else ()
    update = replace(statement, target=accumulator, subscripts=(*_blocked(block_element, block_of), *lane_of))
    folds: tuple[TypedStatement, ...] = ()
    folded = None
    source, source_element = accumulator, block_element
    if lanes and lane:
        folded = fresh.temporary("sum", acc, tuple(lit(UNBOUNDED_EXTENT) for _ in block_element))
        zero_name, fold_name = fresh.statement(), fresh.statement()
        zero = TypedStatement(
            zero_name, first.iterators, outer, _rename(first, zero_name), folded, block_element, "set", one, acc
        )
        fold_domain = _with_lane(program, first, fold_name, begin_iterators, lanes.count)
        partial = Read(accumulator, (*block_element, _index(lane)), dtype=acc)
        fold = TypedStatement(
            fold_name, begin_iterators, outer, fold_domain, folded, block_element, op, partial, acc, (lane,)
        )
        folds, source, source_element = (zero, fold), folded, block_element
    result = Read(source, source_element, dtype=acc)
    region = first if results is None else _region_of(results, first, len(numbers))
    ended = None
    if start is not None:
        ended = _ended(program, fresh, statement, region, len(blocks), result, stored.epilogue)
    if ended is not None:
        stores = ended
    elif start is not None and blocks:
        stores = _by_blocks(program, fresh, statement, region, numbers, result)
    else:
        stores = _stores(program, fresh, statement, region, result, start is not None or statement.in_order)
    return Accumulated(
        begin, update, folds, stores, kept, numbers, lane, accumulator, folded, element, ended is not None
    )


def _of_whole_tiles(program: TypedProgram, places: Set, iterators: tuple[str, ...], blocks: int, tiles: Tiling) -> Set:
    """Return the elements of the tiles that have some of `places`, in each block."""
    if is_box(places) if program.sizes else corners(places) is not None:
        return places
    kept = len(iterators) - blocks
    elements = places.project_out(isl.dim_type.set, kept, blocks).insert_dims(isl.dim_type.set, kept, blocks)
    more = places.apply(mates(program, "", iterators, tiles)).intersect(elements)
    return places if more.is_subset(places) else more.coalesce()


def _region_of(results: Set, first: _Named, blocks: int) -> _Named:
    """Return the accumulators' elements that are stored: those of `results`, in each block."""
    places, count = first.domain, len(first.iterators)
    stored = results.insert_dims(isl.dim_type.set, count - blocks, blocks).reset_tuple_id()
    simple = stored
    for d in range(count - blocks, count):
        simple = simple.intersect(across(interval_along(places, d), d, count))
    places = simple if simple.is_subset(places) else places.intersect(stored)
    return _Named(first.iterators, places, domain_text(places, "X_"))


def _by_blocks(
    program: TypedProgram,
    fresh: Fresh,
    statement: TypedStatement,
    region: _Named,
    numbers: tuple[str, ...],
    result: Expr,
) -> tuple[TypedStatement, ...]:
    """Return the store of the first block's accumulators, and that which adds those of the others."""
    head = f"{parameters(program)}{{ [{', '.join(region.iterators)}] : "
    zero = read_set(f"{head}{' and '.join(f'{n} = 0' for n in numbers)} }}")
    stores: list[TypedStatement] = []
    for part, starts in ((region.domain.intersect(zero), True), (region.domain.subtract(zero), False)):
        if not part.is_empty():
            own = _Named(region.iterators, part, domain_text(part, "X_"))
            stores += _stores(program, fresh, statement, own, result, starts)
    return tuple(stores)


def _ended(
    program: TypedProgram,
    fresh: Fresh,
    statement: TypedStatement,
    stored: _Named,
    blocks: int,
    result: Expr,
    epilogue: TypedStatement | None,
) -> tuple[TypedStatement, ...] | None:
    """Return the stores of all blocks but the last, and the epilogue in place of that; None where it reads other elements,
    too."""
    if epilogue is None or program.tensor(statement.target).dtype != statement.acc:
        return None
    kept = len(stored.iterators) - blocks
    places = stored.domain.reset_tuple_id()
    box = corners(places) if blocks else ()
    if box is None:
        return None
    numbers = list(range(kept, kept + blocks))
    last = places.copy()
    for d in numbers:
        last = last.fix_val(isl.dim_type.set, d, int_val(box[d][1]))
    if not last.project_out(isl.dim_type.set, kept, blocks).is_equal(read_set(epilogue.domain).reset_tuple_id()):
        return None
    first = places.copy()
    for d in numbers:
        first = first.fix_val(isl.dim_type.set, d, int_val(0))
    stores: list[TypedStatement] = []
    for part, starts in ((first.subtract(last), True), (places.subtract(first).subtract(last), False)):
        if not part.is_empty():
            stores += _stores(
                program, fresh, statement, _Named(stored.iterators, part, domain_text(part, "X_")), result, starts
            )
    before = Read(statement.target, statement.subscripts, dtype=statement.acc)
    value = Call(COMBINE[statement.op], (before, result), statement.acc) if stores else result
    name = fresh.statement()
    final = transform(epilogue.expr, lambda e: value if isinstance(e, Read) and e.tensor == statement.target else e)
    stores.append(
        TypedStatement(
            name, stored.iterators, statement.outer, domain_text(last, name), epilogue.target, epilogue.subscripts, "set",
            final, epilogue.acc, (), epilogue.span,
        )
    )  # fmt: skip
    return tuple(stores)


def _blocked(element: tuple[Expr, ...], block_of: Mapping[str, Expr]) -> tuple[Expr, ...]:
    """Return the accumulator's subscripts with the blocks' numbers computed from the reduction's iterators."""
    return tuple(block_of.get(s.name, s) if isinstance(s, IndexExpr) else s for s in element)


def _index(name: str) -> IndexExpr:
    return IndexExpr(name, i64)


@dataclass(frozen=True)
class _Named:
    iterators: tuple[str, ...]
    domain: isl.Set
    text: str  # of the domain, its tuple called X_


def _rename(first: _Named, name: str) -> str:
    return first.text.replace("X_[", f"{name}[")


def _with_lane(program: TypedProgram, first: _Named, name: str, iterators: tuple[str, ...], count: int) -> str:
    lanes = read_set(f"{parameters(program)}{{ [{iterators[-1]}] : 0 <= {iterators[-1]} < {count} }}")
    return domain_text(first.domain.flat_product(lanes), name)


def _kept_domain(
    program: TypedProgram,
    statement: TypedStatement,
    start: TypedStatement | None,
    kept: tuple[str, ...],
    blocks: tuple[AccumulatorBlock, ...],
    *,
    more: bool = False,
) -> isl.Set:
    """Return the elements of the accumulator: where the result is started anew, every element of the result; `more`: and
    others."""
    started: isl.Set | None = None
    if start is not None:
        started = started_elements(program, start, statement, len(blocks)).intersect_params(read_set(program.context))
        if not blocks and not more:
            return started
    terms = values_taken(program, statement, (*kept, *(f"floor({b.iterator}/{b.size})" for b in blocks)))
    return (terms if started is None or started.is_subset(terms) else terms.union(started)).coalesce()


def started_elements(
    program: TypedProgram, start: TypedStatement, statement: TypedStatement, blocks: int = 0
) -> isl.Set:
    """Return the values of a reduction's kept iterators whose elements `start` sets, followed by so many zeros."""
    columns = (*(i for i in statement.iterators if i not in statement.reduced), *("0" for _ in range(blocks)))
    if not all(isinstance(s, IndexExpr) for s in statement.subscripts):
        # It reaches all of them (see `starts_fresh`); outside its domain other values may be the same elements.
        return values_taken(program, statement, columns)
    # The start's iterators are the element's subscripts, maybe in another order.
    reached = dict(zip(start.subscripts, statement.subscripts, strict=True))
    target = ", ".join(print_affine(reached[_index(i)]) for i in start.iterators)
    onto = read_map(f"{parameters(program)}{{ {start.name}[{target}] -> [{', '.join(columns)}] }}")
    return read_set(start.domain).apply(onto)


def started_apart(
    program: TypedProgram, fresh: Fresh, start: TypedStatement, statement: TypedStatement, results: Set
) -> tuple[TypedStatement, TypedStatement | None]:
    """Return the start of those elements that a reduction stores, and that of the others, None where there are none.

    `results`: the values of the reduction's kept iterators that have terms.
    """
    kept = tuple(i for i in statement.iterators if i not in statement.reduced)
    reached = dict(zip(start.subscripts, statement.subscripts, strict=True))
    target = ", ".join(print_affine(reached[_index(i)]) for i in start.iterators)
    onto = read_map(f"{parameters(program)}{{ [{', '.join(kept)}] -> {start.name}[{target}] }}")
    here = read_set(start.domain).intersect(results.apply(onto)).coalesce()
    rest = read_set(start.domain).subtract(here).coalesce()
    own = replace(start, domain=domain_text(here, start.name))
    if rest.is_empty():
        return own, None
    name = fresh.statement()
    return own, replace(start, name=name, domain=domain_text(rest, name))


def _stores(
    program: TypedProgram, fresh: Fresh, statement: TypedStatement, first: _Named, result: Expr, starts: bool
) -> tuple[TypedStatement, ...]:
    """Return the store of the accumulator: an assignment where the result starts here, else an update of what is there."""
    dtype = program.tensor(statement.target).dtype
    op, value = "set", result if dtype == statement.acc else Cast(dtype, result, dtype)
    if not starts and dtype == statement.acc:
        op = statement.op
    elif not starts:
        # Combined in the accumulator's type, and rounded once.
        into = Cast(statement.acc, Read(statement.target, statement.subscripts, dtype=dtype), statement.acc)
        value = Cast(dtype, Call(COMBINE[statement.op], (into, result), statement.acc), dtype)
    name = fresh.statement()
    domain = _rename(first, name)
    return (
        TypedStatement(
            name, first.iterators, statement.outer, domain, statement.target, statement.subscripts, op, value, dtype, (),
            statement.span,
        ),
    )  # fmt: skip


def starts_fresh(program: TypedProgram, start: TypedStatement | None, statement: TypedStatement) -> bool:
    """Whether `start` set the elements that the statement reaches to the identity; the kept iterators are its elements, one to
    one.

    Where terms read the target itself, what other elements hold meanwhile matters.
    """
    if (
        statement.reads_own
        or start is None
        or start.op != "set"
        or start.target != statement.target
        or start.outer
        or statement.outer
    ):
        return False
    if start.expr != identity(statement.op, program.tensor(statement.target).dtype) or not isinstance(
        start.expr, Literal
    ):
        return False
    kept = [i for i in statement.iterators if i not in statement.reduced]
    names = [s.name for s in statement.subscripts if isinstance(s, IndexExpr)]
    own = [s.name for s in start.subscripts if isinstance(s, IndexExpr)]
    whole = own == list(start.iterators) and len(own) == len(start.subscripts)
    box = read_set(tensor_box(program, start.target)).set_tuple_name(start.name)
    box = box.intersect_params(read_set(program.context)) if program.sizes else box
    if not box.is_subset(read_set(start.domain)):
        reached = elements_written(program, statement).set_tuple_name(start.name)
        if not whole or not reached.is_subset(read_set(start.domain)):
            return False
    if not whole:
        return False
    if len(names) == len(statement.subscripts) and sorted(names) == sorted(kept):
        return True
    if not all(map(is_quasi_affine, statement.subscripts)):
        return False
    if not any(len(indices_of(s)) > 1 for s in statement.subscripts):
        return False
    reached = elements_written(program, statement).set_tuple_name(start.name)
    started = read_set(start.domain).intersect_params(read_set(program.context))
    return _one_to_one(program, statement, kept) and started.is_subset(reached)


def _one_to_one(program: TypedProgram, statement: TypedStatement, kept: list[str]) -> bool:
    """Whether no two values of the kept iterators are one element, as in O[2*q+p] for p in 0:2."""
    elements = read_map(
        f"{parameters(program)}{{ [{', '.join(kept)}] -> [{', '.join(map(print_affine, statement.subscripts))}] }}"
    )
    return bool(elements.intersect_domain(values_taken(program, statement, tuple(kept))).is_injective())
