"""Choose the cache blocks of a reduction: packed operands, and the columns and reduction iterations of a block.

The operands that move with the vector are the columns' (a panel of them streams from the second cache), those that move
with the unrolled iterators the rows' (a tile's rows stay in the first). The sizes are those of Low et al., "Analytical
Modeling Is Enough for High-Performance BLIS" (2016): the rows of one tile fill half of the first cache, a block of columns
and terms half of the second.
"""

from __future__ import annotations

from math import gcd, isqrt, prod

from msgspec import Struct

from polyker.cost.measure import MeasuredStatement, MemoryAccess
from polyker.cost.operation_cost import arithmetic
from polyker.cost.plan import TilePlan, can_pack_block
from polyker.cost.prefetch import next_tile
from polyker.cost.table import COPY, COPY_ALONE, COPY_ROW, COPY_TRANSPOSED
from polyker.cost.tile_cost import MIN_BLOCK_TERMS
from polyker.ir.expr import Read
from polyker.ir.typed import PrefetchRead, TypedProgram
from polyker.machine.model import PAGE, Target
from polyker.record.sizes import MAX_EXACT_SIZE

# Greatest share of the arithmetic's cycles that copies may take (experience value).
MAX_COPY_SHARE = 0.12
# The same where the operand can be read in the order of its memory instead, by so many rows at a time: more of them by vectors of
# whole lines, which take a row's part of a tile at once, and sooner than results come and go; fewer where it lies in more pages
# than a core keeps addresses of. There prefetchers have to follow, which look at some 32 pages, a tile's rows among them. On
# an Ice Lake server products of few rows by a matrix of 4096 x 4096 in f32 took 19 ms by 64 rows, 6.9 by fewer.
MAX_COPY_SHARE_BESIDE_ROWS, ROWS_AT_ONCE, ROWS_OF_LINES, ROWS_OF_FAR_LINES = 0.05, 8, 48, 24
# Greatest share of the arithmetic's cycles that a copy may take wherever a panel comes from beyond the first cache: its vectors
# lie in a line each, and follow each other (experience value).
MAX_CHEAP_COPY_SHARE = 0.03
# Least bytes of a row for an operand to be read by rows (chosen).
MIN_ROW_BYTES = 1024
# Most terms of one page that end before prefetchers follow it (chosen).
MAX_UNFOLLOWED_TERMS = 4
# Values of an index of unknown extent in a block that is to hold others, too: it may be short (chosen).
UNKNOWN_BLOCK_EXTENT = 64
# Terms of a block where their number is unknown: fewer than are best for many, so that a block has more columns if they are few
# (chosen).
UNKNOWN_BLOCK_TERMS = 384
# Rows of a result with fewer bytes are written one after another where it is most of what is moved (experience value).
MIN_RESULT_ROW_BYTES = 1024
# A matrix of a batch that takes less than this part of the room for it (half of the second cache) is read where it is, unless all
# that is moved is more than that part of the last cache (chosen).
SMALL_MATRIX_DIVISOR, NEAR_TRAFFIC_DIVISOR = 8, 3
# Greatest ratio of a block to the planned one, so that no smaller one is begun for what is left (chosen).
MAX_BLOCK_GROWTH = 1.25


class Blocking(Struct, frozen=True):
    """Loops over blocks, outermost first: of kept iterators (whole tiles), of the reduction, of rows; then the tiles.

    `rows`, `columns`: their tile loops inside the blocks. `reduced`: the order of the reduction's. `packs_columns`, `packs_rows`:
    the reads that are copied, for a block of columns and for a block of rows. Where rows are copied the tiles of a block of
    rows are the inner loops: they lie in the second cache, and a block of columns in the last. `prefetches`: the rows' reads that
    are prefetched for the tile after.
    """

    blocks: tuple[tuple[str, int], ...]
    terms: tuple[tuple[str, int], ...]
    row_blocks: tuple[tuple[str, int], ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    reduced: tuple[str, ...]
    packs_columns: tuple[Read, ...]
    packs_rows: tuple[Read, ...]
    prefetches: tuple[Read, ...] = ()


class _Groups(Struct, frozen=True):
    """The operands and iterators of a reduction by what moves them."""

    column_reads: list[MemoryAccess]
    row_reads: list[MemoryAccess]
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    both: tuple[str, ...]
    reduced: tuple[str, ...]  # those with one value, then the `terms`
    terms: tuple[str, ...]
    outermost: str | None  # of the result, where its rows are written one after another

    @property
    def itemsize(self) -> int:
        """The largest element's bytes."""
        return max(a.itemsize for a in self.column_reads + self.row_reads)

    def of_one(self, measured: MeasuredStatement, access: MemoryAccess) -> int:
        """Return how many elements of an operand belong to one iteration of the loops over a batch."""
        return measured.footprint(access, dict.fromkeys(self.both, 1))

    def steps(self, access: MemoryAccess) -> dict[str, int]:
        """Return how many bytes lie between neighbouring terms of an operand, by the iterators that it moves with."""
        return {i: abs(access.stride(i)) * access.itemsize for i in self.terms if access.stride(i)}

    def step(self, access: MemoryAccess) -> int:
        """Return how many bytes lie between the terms of an operand that are nearest each other, 0 where it moves with none."""
        return min(self.steps(access).values(), default=0)


def blocking(
    measured: MeasuredStatement,
    plan: TilePlan,
    kept: tuple[str, ...],
    target: Target,
    refused: list[tuple[str, str]] | None = None,
) -> Blocking | None:
    """Return the blocks of a reduction, None where its operands had better be read where they are.

    `refused` gets the tensors that are not packed, and why.
    """
    groups = _groups(measured, plan, kept, target)
    if groups is None:
        return None
    item = groups.itemsize
    second, last = (target.cache(n).size // item for n in (2, 3))
    cycles = arithmetic(measured, target).cycles(prod(measured.extent(i) for i in measured.bounds) / plan.lanes)
    small = target.caches[0].size // 2 // item
    rows = [a for a in groups.row_reads if _packs_row(a, measured, plan, groups, small, MAX_COPY_SHARE * cycles)]
    deepest = small // prod(plan.size(i) for i in groups.rows)
    if rows:
        # Each block of rows passes over the columns' operand, each block of the reduction over the result, to read it and to
        # write it.
        deepest = min(deepest, isqrt(2 * (second // 4)))
    if any(measured.expected(i) is None for i in groups.reduced):
        deepest = min(deepest, UNKNOWN_BLOCK_TERMS)
    # A copy along a term is to find whole cache lines in a block.
    line = {
        i: target.caches[0].line // item for i in groups.reduced if any(a.stride(i) == 1 for a in groups.column_reads)
    }
    pieces = dict([plan.across]) if plan.across is not None else {}
    terms, depth = _cut(measured, groups.terms, pieces, max(MIN_BLOCK_TERMS, deepest), line)
    depth = max(1, depth)  # terms that have no values have no bounds either
    sizes = {i: plan.size(i) for i in (*groups.columns, *groups.rows)}
    blocks, _ = _cut(measured, groups.columns, sizes, max(1, (last // 4 if rows else second // 2) // depth))
    row_blocks = _cut(measured, groups.rows, sizes, max(1, second // 4 // depth))[0] if rows else ()
    if groups.outermost in groups.columns[:-1] and sum(map(measured.footprint, groups.row_reads)) <= second // 2:
        blocks = _by_tiles(groups.columns[0], blocks, sizes)
    if (
        rows
        and groups.outermost in groups.rows[:-1]
        and sum(map(measured.footprint, groups.column_reads)) <= second // 2
    ):
        row_blocks = _by_tiles(groups.rows[0], row_blocks, sizes)
    by_rows = [a for a in groups.column_reads if _reads_rows(a, measured, plan, groups, target)]
    packed: list[Read] = []
    left = [] if refused is None else refused
    for a in groups.column_reads:
        near = a.stride(plan.vector or "") == 1
        share = measured.footprint(a) * (COPY if near else COPY_TRANSPOSED) / max(1.0, cycles)
        far = _is_far(a, share, measured, plan, groups, depth, target)
        if a.read is None or a.joined > 1 or not can_pack_block(a.read):
            continue
        if a.read in plan.packed or (share < (MAX_COPY_SHARE_BESIDE_ROWS if a in by_rows else MAX_COPY_SHARE) and far):
            packed.append(a.read)
        else:
            left.append((a.tensor, "it stays in the second cache" if not far else _too_dear(share)))
    if not packed and not rows and by_rows:
        # A few rows at a time, from end to end; the results come and go in the second cache.
        terms, _ = _cut(measured, groups.terms, {}, _rows_at_once(by_rows, measured, target))
        blocks = ()
    elif not packed and not rows:
        stay = _terms_that_stay(measured, plan, groups, depth, target)
        if stay < depth:
            row = prod(measured.extent(i) for i in groups.columns)
            terms, depth = _cut(
                measured, groups.terms, pieces, max(MIN_BLOCK_TERMS, min(stay, second // 2 // row)), line
            )
            blocks, _ = _cut(measured, groups.columns, sizes, max(1, second // 2 // depth))
        terms = tuple((i, n) for i, n in terms if measured.most(i) > n)
        if not terms:
            return None
        if sum(groups.of_one(measured, a) for a in groups.column_reads) <= second // 2:
            blocks = ()  # the columns' operands stay in the second cache as they are
    prefetches = [
        a.read for a in groups.row_reads if a not in rows and measured.footprint(a) > second // 2 and a.read is not None
    ]
    return Blocking(
        tuple((i, plan.size(i)) for i in groups.both) + blocks,
        terms,
        row_blocks,
        _inside(groups.rows, row_blocks, plan),
        _inside(groups.columns, blocks, plan),
        groups.reduced,
        tuple(packed),
        tuple(a.read for a in rows if a.read is not None),
        tuple(prefetches),
    )


def _too_dear(share: float) -> str:
    return f"a copy would take {100 * share:.0f}% of the arithmetic's cycles, which is over {100 * MAX_COPY_SHARE:.0f}%"


def row_prefetches(
    program: TypedProgram, blocks: Blocking, plan: TilePlan, measured: MeasuredStatement, target: Target
) -> tuple[PrefetchRead, ...]:
    """Return the elements of the rows' operands that the next tile of rows reads."""
    row = (*(i for i, _ in blocks.row_blocks), *blocks.rows)[-1]
    reads = [a for a in measured.accesses if a.read in blocks.prefetches]
    return next_tile(program, measured, plan, reads, row, target)


def fetches_result(blocks: Blocking, plan: TilePlan, measured: MeasuredStatement, target: Target) -> bool:
    """Whether lines of the result are prefetched during the reduction, so that no store waits for them.

    Those come from memory of which a tile stores a part, and those that blocks of the reduction after the first one read. Of
    lines that are stored whole, and once, those of a result in memory.
    """
    write, vector = measured.write, plan.vector
    if vector is None:
        return False
    is_known = measured.bounds[vector][1] is not None or measured.extent(vector) <= MAX_EXACT_SIZE
    row = measured.extent(vector) * write.itemsize
    whole = is_known and abs(write.stride(vector)) == 1 and row % target.caches[0].line == 0
    if whole and measured.footprint(write) * write.itemsize > target.caches[-1].size // 2:
        return True
    return bool(blocks.terms) and (not whole or any(measured.extent(i) > n for i, n in blocks.terms))


def _by_tiles(first: str, blocks: tuple[tuple[str, int], ...], sizes: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """Return blocks that hold one tile of the outermost iterator."""
    return ((first, sizes[first]), *(b for b in blocks if b[0] != first))


def _inside(iterators: tuple[str, ...], blocks: tuple[tuple[str, int], ...], plan: TilePlan) -> tuple[str, ...]:
    """Return the iterators of which a block holds more than one tile."""
    return tuple(i for i in iterators if dict(blocks).get(i, plan.size(i) + 1) > plan.size(i))


def _groups(measured: MeasuredStatement, plan: TilePlan, kept: tuple[str, ...], target: Target) -> _Groups | None:
    """Return the groups of a reduction with reuse in both directions, None for another.

    The iterators are in the order of the operands' memory. Where the result is most of what is moved, the one that neighbours
    in it differ in is innermost all the same: else each pass of a loop around it writes parts of lines, and the next one
    fetches them. Short rows are written one after another: then all are in the order of the result's memory.
    """
    statement, vector = measured.statement, plan.vector
    reads = [a for a in measured.accesses if not a.is_write and a.strides]
    column_reads = [a for a in reads if vector is not None and a.stride(vector)]
    row_reads = [a for a in reads if a not in column_reads and any(a.stride(i) for i in kept)]
    with_columns = {i for i in kept if any(a.stride(i) for a in column_reads)}
    with_rows = {i for i in kept if any(a.stride(i) for a in row_reads)}
    columns, rows = with_columns - with_rows, with_rows - with_columns
    both = tuple(i for i in kept if (i in columns) == (i in rows))
    fits = vector in columns and rows and plan.others and not statement.outer
    counted = all((lo := measured.bounds[i][0]) is not None and lo >= 0 for i in statement.reduced)
    if not fits or not counted or any(plan.size(i) > 1 for i in both):
        return None

    def far(accesses: list[MemoryAccess], iterator: str) -> int:
        return max((abs(a.stride(iterator)) for a in accesses), default=0)

    write = measured.write
    result = measured.footprint(write) * write.itemsize
    unit = next((i for i in kept if abs(write.stride(i)) == 1), None)
    large = result > max(target.cache(2).size, sum(measured.footprint(a) * a.itemsize for a in reads))
    short = large and unit is not None and measured.extent(unit) * write.itemsize < MIN_RESULT_ROW_BYTES

    def place(accesses: list[MemoryAccess], iterator: str) -> int:
        if short:
            return abs(write.stride(iterator))
        return -1 if large and iterator == unit else far(accesses, iterator)

    own = sorted(columns, key=lambda i: (place(column_reads, i), i != vector, kept.index(i)), reverse=True)
    other = sorted(rows, key=lambda i: (place(row_reads, i), kept.index(i)), reverse=True)
    outermost = max(kept, key=lambda i: abs(write.stride(i))) if short else None
    # The rows' operand is contiguous along the last reduction iterator if it is along any: then it is read where it is.
    inner = plan.across[0] if plan.across is not None else None
    order = sorted(statement.reduced, key=lambda i: (i != inner, far(row_reads, i), far(column_reads, i)), reverse=True)
    terms = tuple(i for i in order if measured.expected(i) != 1)
    reduced = (*(i for i in order if i not in terms), *terms)
    return _Groups(column_reads, row_reads, tuple(own), tuple(other), both, reduced, terms, outermost)


def _cut(
    measured: MeasuredStatement,
    iterators: tuple[str, ...],
    tiles: dict[str, int],
    most: int,
    least: dict[str, int] | None = None,
) -> tuple[tuple[tuple[str, int], ...], int]:
    """Return the blocks that hold at most `most` values of the iterators, outermost first, and how many they hold.

    The inner iterators are in a block whole, one is cut evenly, the outer ones are in it by single tiles. Where that one would
    keep fewer than its `least` values, it keeps these and the inner ones are cut.
    """
    held = 1
    inside: tuple[tuple[str, int], ...] = ()
    for n, i in reversed(list(enumerate(iterators))):
        extent, tile = measured.expected(i), tiles.get(i, 1)
        outer = tuple((o, tiles.get(o, 1)) for o in iterators[:n])
        around = prod(size for _, size in outer)
        if extent is not None and held * extent * around <= most * MAX_BLOCK_GROWTH:
            whole = -(-extent // tile) * tile
            if measured.bounds[i][1] is None:
                inside = ((i, whole), *inside)  # it is whole if it is no longer than expected
            held *= whole
            continue
        most = max(1, most // around)
        wanted = (least or {}).get(i, 1)
        if most // held < wanted <= most:
            inner, held = _cut(measured, iterators[n + 1 :], tiles, most // wanted)
            return (*outer, (i, wanted), *inner), held * wanted
        count = max(1, most // held // tile)
        if extent is None and n and count * tile > UNKNOWN_BLOCK_EXTENT:
            # It may well be short: then a block holds several values of the next one.
            inside = ((i, -(-UNKNOWN_BLOCK_EXTENT // tile) * tile), *inside)
            held *= inside[0][1]
            most *= around
            continue
        if extent is not None:
            all_tiles = -(-extent // tile)
            count = -(-all_tiles // -(-all_tiles // count))
        return (*outer, (i, count * tile), *inside), held * count * tile
    return inside, held


def _is_far(
    access: MemoryAccess,
    share: float,
    measured: MeasuredStatement,
    plan: TilePlan,
    groups: _Groups,
    depth: int,
    target: Target,
) -> bool:
    """Whether the panels of an operand of the columns had better be copied than read where they lie.

    `share`: of the arithmetic's cycles, what the copy takes.
    """
    if share < _cheap(access, measured, plan, depth, target) or access.stride(plan.vector or "") != 1:
        return True
    room = target.cache(2).size // groups.itemsize // 2
    if _is_scattered(access, measured, groups, depth, room, target):
        return True
    if share >= MAX_COPY_SHARE_BESIDE_ROWS:
        return False
    return _is_by_pages(access, measured, groups, target) or _conflicts(access, measured, plan, groups, depth, target)


def _is_scattered(
    access: MemoryAccess, measured: MeasuredStatement, groups: _Groups, depth: int, room: int, target: Target
) -> bool:
    """Whether a panel of an operand, read where it is, would not stay in the second cache while all the rows pass."""
    if measured.footprint(access) > room and sum(measured.footprint(a) for a in groups.row_reads) > room:
        moved = sum(measured.footprint(a) * a.itemsize for a in measured.accesses)
        large = SMALL_MATRIX_DIVISOR * groups.of_one(measured, access) > room
        return large or NEAR_TRAFFIC_DIVISOR * moved > target.caches[-1].size
    return depth > _kept(access, groups, target)


def _terms_that_stay(measured: MeasuredStatement, plan: TilePlan, groups: _Groups, depth: int, target: Target) -> int:
    """Return for how many of `depth` iterations the second cache keeps what tiles of rows read one after another where it lies.

    What does not stay comes from beyond that cache again for each of these tiles.
    """
    if all(measured.extent(i) <= plan.size(i) for i in groups.rows):
        return depth
    if any(measured.expected(i) is None for i in (*groups.columns, *groups.terms)):
        return depth
    far = [a for a in groups.column_reads if measured.footprint(a) * a.itemsize > target.cache(2).size]
    return min([depth, *(_kept(a, groups, target) for a in far if groups.step(a))])


def _kept(access: MemoryAccess, groups: _Groups, target: Target) -> int:
    """Return for how many reduction iterations the second cache keeps an operand's panel, which may fall into few of its sets."""
    second, step = target.cache(2), groups.step(access)
    if step % second.line:
        return second.size // second.line
    sets = second.size // second.line // second.ways
    return second.ways * sets // gcd(step // second.line, sets)


def _cheap(access: MemoryAccess, measured: MeasuredStatement, plan: TilePlan, depth: int, target: Target) -> float:
    """Return the share of the arithmetic that copying an operand may take wherever it exceeds the first cache: the larger
    a part of that cache a panel takes where it lies, with rows that begin within a line, the less of it stays.

    Elements of windows are copied several times. Of extents that nothing is known of it may well be small.
    """
    first, row = target.caches[0], plan.size(plan.vector or "") * access.itemsize
    elements = measured.footprint(access)
    if any(measured.expected(i) is None for i in access.strides) or elements * access.itemsize <= first.size:
        return 0.0
    copies = prod(measured.extent(i) for i in access.strides) / elements
    return MAX_CHEAP_COPY_SHARE * min(1.0, 2 * depth * (row + first.line) / first.size) ** 2 / copies


def _is_by_pages(access: MemoryAccess, measured: MeasuredStatement, groups: _Groups, target: Target) -> bool:
    """Whether the terms of a panel of an operand from beyond the second cache lie in pages of their own, but for a few.

    No prefetcher follows then, and the sums wait for each line; a copy has many of them on their way.
    """
    steps = groups.steps(access)
    beside = prod(measured.extent(i) for i, step in steps.items() if step < PAGE)
    far = measured.footprint(access) * access.itemsize > target.cache(2).size
    return far and max(steps.values(), default=0) >= PAGE and beside <= MAX_UNFOLLOWED_TERMS


def _conflicts(
    access: MemoryAccess, measured: MeasuredStatement, plan: TilePlan, groups: _Groups, depth: int, target: Target
) -> bool:
    """Whether a panel that is no larger than half of the first cache does not stay there: its terms fall into too few sets.

    Of an operand that is no larger than that cache as a whole some of the panels stay; a copy is not worth it.
    """
    first = target.caches[0]
    if measured.footprint(access) * access.itemsize <= first.size:
        return False
    step = groups.step(access)
    panel = depth * plan.size(plan.vector or "") * access.itemsize
    return step >= first.line and 2 * panel <= first.size and not first.holds_rows(depth, step)


def _reads_rows(
    access: MemoryAccess, measured: MeasuredStatement, plan: TilePlan, groups: _Groups, target: Target
) -> bool:
    """Whether an operand of the columns can be read in the order of its memory: long rows of it, each of one term, which a
    panel of a tile's columns would cross one page after the other, with a part of a line or two in each.

    All the results are to stay in the second cache meanwhile.
    """
    vector = plan.vector or ""
    rows = abs(access.stride(vector)) == 1 and measured.extent(vector) * access.itemsize >= MIN_ROW_BYTES
    near = 2 * measured.footprint(measured.write) * measured.write.itemsize <= target.cache(2).size
    return rows and near and plan.across is None and _is_by_pages(access, measured, groups, target)


def _rows_at_once(accesses: list[MemoryAccess], measured: MeasuredStatement, target: Target) -> int:
    """Return of how many reduction iterations the rows of operands are read side by side."""
    if target.vector_bytes < target.caches[0].line:
        return ROWS_AT_ONCE
    largest = max(measured.footprint(a) * a.itemsize for a in accesses)
    return ROWS_OF_LINES if largest <= target.memory.pages * PAGE else ROWS_OF_FAR_LINES


def _packs_row(
    access: MemoryAccess, measured: MeasuredStatement, plan: TilePlan, groups: _Groups, small: int, most: float
) -> bool:
    """Whether blocks of rows are copied: where they lie, each reduction iteration of a tile's rows is in lines of its own."""
    if access.read is None or access.joined > 1 or not can_pack_block(access.read):
        return False
    if abs(access.stride(groups.reduced[-1])) <= 1:
        return False
    if measured.footprint(access) <= small:
        return False
    contiguous = any(access.stride(i) == 1 for i, s in plan.others if s > 1)
    return measured.footprint(access) * (COPY_ROW if contiguous else COPY_ALONE) < most
