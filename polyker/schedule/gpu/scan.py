"""Map scans to the threads of a block, and to blocks.

    block.x b:
        with C, shared by the block: what stands before each run of 8 terms
            thread.x 0: C = before
            for chunks of 256 runs, with P, shared:
                P = terms, neighbours by neighbouring threads
                thread.x g: P = what the terms of run g come to, up to each
                thread.x g: C = C op the last of that: all threads, by shuffles
                T = C op P, neighbours by neighbouring threads

The blocks have a row each. Rows that are too few for the GPU are cut: what each run of terms comes to, a scan of that, and a scan
within each run (polyker.rewrite.reductions.split_scan).
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from polyker.cost.measure import MeasuredStatement
from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Expr, IndexExpr
from polyker.ir.quasi_affine import floordiv, lit, mod
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.machine.model import Gpu
from polyker.rewrite.core.accumulate import COMBINE
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.reductions.scan import Scan
from polyker.rewrite.reductions.split_scan import BlockScan, in_block
from polyker.schedule.gpu.across import MAX_LONE_BLOCK_TERMS, has_gathers
from polyker.schedule.gpu.map import BLOCK_THREADS, grid
from polyker.schedule.nests.nest import Nest, offset, shared
from polyker.schedule.tree.nodes import Band, Filter, Leaf, Member, MemberKind, Promotion, Scope, Sequence, Tree
from polyker.structs import replace

# Bytes of the terms of a thread's run, and their most (experience values). Threads on a row of shared memory have their elements
# in other banks (CUDA C++ Programming Guide).
RUN_BYTES, MAX_RUN_TERMS, SHARED_BANKS = 32, 8, 32
# Least terms of a row that is distributed over threads where rows are many; most that a block takes of a row (experience values).
MIN_SHARED_ROW_TERMS, MAX_BLOCK_ROW_TERMS = 64, 1 << 16
# Most rows of a block whose threads are one warp a row: 256 threads (experience value).
WARP_ROWS = 8


class ScanMapping(Struct, frozen=True):
    """`width` threads to a row, each with runs of `run` terms, `height` rows to a block; with `cut`, by runs of so many terms."""

    width: int
    run: int
    height: int
    cut: int = 0

    def __str__(self) -> str:
        rows = f", {self.height} rows to a block" if self.height > 1 else ""
        return f"{self.width} threads scan {self.run} terms each{rows}"


def as_item(scan: Scan) -> TypedStatement:
    """Return a statement that reads and writes what a scan does."""
    statement = scan.statement
    values = (*(expr for _, expr in scan.before), statement.expr)
    return replace(statement, expr=Call(COMBINE[scan.op], values, statement.expr.dtype))


def choose_scan(measured: MeasuredStatement, scan: Scan, gpu: Gpu) -> ScanMapping | None:
    """Return how a scan is distributed over threads; None where each of its rows had better be one thread's."""
    if has_gathers(measured) or scan.statement.expr.dtype is None:
        return None
    inner = [i for i in scan.kept if i not in scan.statement.iterators[: scan.statement.outer]]
    rows, terms = prod(measured.extent(i) for i in inner), measured.extent(scan.along)
    together = all(abs(a.stride(scan.along)) <= 1 for a in measured.accesses)
    many = rows >= gpu.processors * gpu.warp * 4
    if terms < (MIN_SHARED_ROW_TERMS if many else gpu.warp) or (many and not together):
        return None
    run = max(2, min(MAX_RUN_TERMS, RUN_BYTES // scan.statement.expr.dtype.itemsize))
    width = gpu.warp
    while width < BLOCK_THREADS and width * run < terms:
        width *= 2
    height = 1
    longest = max((measured.extent(i) for i in inner), default=1)
    while width == gpu.warp and height < WARP_ROWS and height * 2 <= longest:
        height *= 2
    cut = 0
    blocks = gpu.processors * gpu.resident // (BLOCK_THREADS * max(1, rows))
    if blocks > 1 and terms > MAX_LONE_BLOCK_TERMS and not scan.statement.outer:
        cut = MAX_LONE_BLOCK_TERMS // 4
        while cut < MAX_BLOCK_ROW_TERMS and cut * blocks < terms:
            cut *= 2
    return ScanMapping(width, run, height, cut)


def choose_column_runs(measured: MeasuredStatement, scan: Scan, gpu: Gpu) -> int | None:
    """Return how many terms a thread takes of a row whose neighbours' elements lie beside its own; None where they do not, or
    where rows are too few for a warp, or enough for the GPU."""
    inner = [i for i in scan.kept if i not in scan.statement.iterators[: scan.statement.outer]]
    rows, terms = prod(measured.extent(i) for i in inner), measured.extent(scan.along)
    largest = max(measured.accesses, key=lambda a: (measured.footprint(a), a.is_write))
    beside = any(abs(largest.stride(i)) == 1 and measured.extent(i) >= gpu.warp for i in inner)
    if not beside or scan.statement.outer or has_gathers(measured):
        return None
    runs, cut = gpu.processors * gpu.resident // (2 * max(1, rows)), MAX_RUN_TERMS
    while cut * runs < terms:
        cut *= 2
    return cut if runs > 1 and terms >= MIN_SHARED_ROW_TERMS and terms > cut else None


def scan_nest(
    program: TypedProgram, fresh: Fresh, scan: Scan, mapping: ScanMapping, measured: MeasuredStatement
) -> Nest:
    """Return the statements that stand for a scan, and their nest."""
    width, run = mapping.width, mapping.run
    least = {i: measured.lo(i) for i in scan.kept}
    parts = in_block(program, fresh, scan, width, run, least)
    statements = parts.statements()
    inner = [i for i in scan.kept if i not in scan.statement.iterators[: scan.statement.outer]]
    order = sorted(inner, key=lambda i: -measured.extent(i))
    blocks, rows = _rows(statements, order, least, mapping.height)

    def threads(own: TypedStatement, place: Expr, *loops: Member) -> Tree:
        within = (replace(m, times=((own.name, m.time(own.name)),)) for m in rows)
        return Band(
            (*within, Member(((own.name, place),), "lane.thread", MemberKind.THREAD, width, "x"), *loops), Leaf()
        )

    def each(own: TypedStatement) -> Tree:
        turn = mod(floordiv(places, width), run)
        return threads(own, mod(places, width), Member(((own.name, turn),), "turn", MemberKind.UNROLL, run))

    places, runs = IndexExpr(parts.place, i64), IndexExpr(parts.run, i64)
    along = Member(((parts.local.name, IndexExpr(parts.within, i64)),), "term", MemberKind.UNROLL, run - 1)
    steps = [
        *((s, each(s)) for s in parts.terms),
        (parts.local, threads(parts.local, mod(runs, width), along)),
        (parts.carry, threads(parts.carry, mod(runs, width))),
        (parts.store, each(parts.store)),
    ]
    chunk = [
        *((s.name, floordiv(places, width * run)) for s in (*parts.terms, parts.store)),
        *((s.name, floordiv(runs, width)) for s in (parts.local, parts.carry)),
    ]
    inside = Sequence(tuple(Filter((s.name,), tree) for s, tree in steps))
    held = _held(
        parts, [mapping.height if i == order[0] else 1 for i in scan.kept] if order else [1] * len(scan.kept), mapping
    )
    loop = Band((Member(tuple(chunk), "chunk"),), inside)
    first = [Filter((s.name,), threads(s, lit(0))) for s in parts.before]
    rest = Filter(tuple(s.name for s, _ in steps), loop)
    return Nest(statements, Band(tuple(blocks), Scope(held, Sequence((*first, rest)))))


def _rows(
    statements: tuple[TypedStatement, ...], order: list[str], least: dict[str, int], height: int
) -> tuple[list[Member], list[Member]]:
    """Return the loops over rows that blocks take, and that over the rows of a block; the longest lies along x."""
    blocks, within = [], []
    for n, i in enumerate(order):
        size = height if n == 0 else 1
        place = offset(i, least[i])
        blocks.append(shared(statements, floordiv(place, size), f"{i}.block"))
        if size > 1:
            within.append(shared(statements, mod(place, size), f"{i}.thread", MemberKind.THREAD, size, "y"))
    return grid(blocks, statements), within


def _held(parts: BlockScan, rows: list[int], mapping: ScanMapping) -> tuple[Promotion, Promotion]:
    """Return the buffers of a block: of the terms of a chunk, in rows of as many elements as there are banks, and of what stands
    before the runs of two chunks."""
    elements, last = mapping.width * mapping.run, len(rows)
    layout = (
        *((d, 1, n) for d, n in enumerate(rows)),
        (last, SHARED_BANKS, elements // SHARED_BANKS),
        (last, 1, SHARED_BANKS),
    )
    terms = Promotion(parts.values, (*rows, elements), layout, shared=True, pad=1)
    return terms, Promotion(parts.carried, (*rows, 2 * mapping.width), shared=True)
