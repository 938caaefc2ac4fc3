"""Split a scan into blocks: reduce each block, scan the blocks' results, and scan each block from its carry.

For runs of `count` terms of `T[p, t] = T[p, t-1] op e(p, t)`, t from lo on:

    R[p, q] op= e(p, lo + count q + r)        what each run comes to: a reduction
    C[p, q] = C[p, q-1] op R[p, q]            a scan of that, shorter
    T[p, lo + count q + r] = …                for each run a scan, which begins with C[p, q-1]

Within a block of a GPU, for chunks of `width` runs of `run` terms each (`in_block`): P are the terms, then what they come to
within their run; I what stands before each run. Chunks are whole: what lies beyond the last term is the operator's identity.

    I[p, 0] = before;  P[p, s] = e(p, lo + s), or the identity
    P[p, run g + v] = P[p, run g + v - 1] op P[p, run g + v]
    I[p, g + 1] = I[p, g] op P[p, run g + run - 1]
    T[p, lo + s] = I[p, s div run] op P[p, s]
"""

from __future__ import annotations

import islpy as isl
from msgspec import Struct

from polyker.ir.expr import Call, Expr, Read, converted
from polyker.ir.quasi_affine import add, floordiv, index, lit, scale, substitute
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_set
from polyker.poly.scop import image, parameters
from polyker.rewrite.core.accumulate import COMBINE
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.rewrite.core.reindex import reindexed
from polyker.rewrite.reductions.scan import Scan
from polyker.structs import replace

# Elements of a dimension of a buffer whose places count alone: more than a block has (chosen).
_MANY = 1 << 20


class ScanRuns(Struct, frozen=True):
    """A long scan: what its runs come to (a reduction, and what starts it), the scan of that, and the scan in each run."""

    start: TypedStatement
    totals: TypedStatement
    carried: Scan
    within: Scan


def split_scan(
    program: TypedProgram,
    fresh: Fresh,
    scan: Scan,
    count: int,
    shape: tuple[Expr, ...],
    runs: Expr,
    *,
    beside: bool = False,
) -> ScanRuns:
    """Return a scan in no loop of the text by runs of `count` terms, of which there are `runs`.

    `shape`: for each other iterator a number that its values are below; none is negative. `beside`: in memory the runs of one row
    lie apart, those of neighbouring rows side by side.
    """
    statement, kept, along = scan.statement, scan.kept, scan.along
    head, acc = parameters(program), statement.expr.dtype
    assert acc is not None
    q, r = fresh.iterator(), fresh.iterator()
    extents = (runs, *shape) if beside else (*shape, runs)
    whole, carry = fresh.temporary("runs", acc, extents), fresh.temporary("before", acc, extents)
    cut = f"{along} = {scan.lo} + {count} {q} + {r} and 0 <= {r} < {count}"
    parts = image(program, statement, (*kept, q, r), where=cut)
    places = parts.project_out(isl.dim_type.set, len(kept) + 1, 1)
    at = {along: add(lit(scan.lo), scale(count, index(q)), index(r))}

    def element_of(run: Expr) -> tuple[Expr, ...]:
        rows = tuple(map(index, kept))
        return (run, *rows) if beside else (*rows, run)

    element = element_of(index(q))
    term = substitute(statement.expr, at)
    totals = fresh.sets(parts, (*kept, q, r), (whole, element), term, statement)
    totals = replace(totals, op=scan.op, reduced=(r,))
    start = fresh.sets(places, (*kept, q), (whole, element), identity(scan.op, acc), statement)
    chain = fresh.sets(places, (*kept, q), (carry, element), Read(whole, element, dtype=acc), statement)
    carried = Scan(chain, q, 0, scan.op, scan.before)
    later = Read(carry, element_of(add(index(q), lit(-1))), dtype=acc)
    elements = ", ".join((*kept, q))
    first, rest = (str(read_set(f"{head}{{ [{elements}] : {q} {sign} 0 }}")) for sign in ("=", ">"))
    before: list[tuple[str | None, Expr]] = [(rest, later)]
    for domain, expr in scan.before:
        here = read_set(first)
        if domain is not None:
            here = here.intersect(read_set(domain).insert_dims(isl.dim_type.set, len(kept), 1))
        before.append((str(here), expr))
    within = reindexed(statement, (*kept, q, r), parts, at, fresh.statement())
    return ScanRuns(start, totals, carried, Scan(within, r, 0, scan.op, tuple(before)))


class BlockScan(Struct, frozen=True):
    """The statements of a scan within a block, in their order, with the iterators that count terms, runs, and terms of a run.

    `terms`: those that make the terms; `values`, `carried`: the temporaries P and I.
    """

    before: tuple[TypedStatement, ...]
    terms: tuple[TypedStatement, ...]
    local: TypedStatement
    carry: TypedStatement
    store: TypedStatement
    place: str
    run: str
    within: str
    values: str
    carried: str

    def statements(self) -> tuple[TypedStatement, ...]:
        """Return all of them in program order."""
        return (*self.before, *self.terms, self.local, self.carry, self.store)


def in_block(program: TypedProgram, fresh: Fresh, scan: Scan, width: int, run: int, least: dict[str, int]) -> BlockScan:
    """Return the statements of a scan by chunks of `width` runs of `run` terms; `least`: of the other iterators' values."""
    statement, kept = scan.statement, scan.kept
    acc = statement.expr.dtype
    assert acc is not None
    s, g, v = fresh.iterators(3)
    values = fresh.temporary("terms", acc, tuple(lit(_MANY) for _ in (*kept, s)))
    carried = fresh.temporary("before", acc, tuple(lit(_MANY) for _ in (*kept, g)))
    rows = tuple(add(index(i), lit(-least.get(i, 0))) for i in kept)
    here = f"{scan.along} - {scan.lo}"
    terms = image(program, statement, (*kept, here))
    chunks = f"floor(({here})/{width * run})"
    whole = image(program, statement, (*kept, s), where=f"floor({s}/{width * run}) = {chunks}")
    of_run = f"floor({g}/{width}) = {chunks}"
    runs = image(program, statement, (*kept, g), where=of_run)
    inner = image(program, statement, (*kept, g, v), where=f"{of_run} and 0 < {v} < {run}")
    places = read_set(statement.domain).project_out(isl.dim_type.set, statement.iterators.index(scan.along), 1)

    def made(
        elements: isl.Set, iterators: tuple[str, ...], target: str, subscripts: tuple[Expr, ...], expr: Expr
    ) -> TypedStatement:
        return fresh.sets(elements, (*kept, *iterators), (target, subscripts), expr, statement, statement.outer)

    def combined(a: Expr, b: Expr) -> Expr:
        return Call(COMBINE[scan.op], (a, b), acc)

    def value(place: Expr) -> Read:
        return Read(values, (*rows, place), dtype=acc)

    before = []
    for part, expr in scan.before:
        elements = places if part is None else places.intersect(read_set(part))
        if not elements.is_empty():
            before.append(made(elements, (), carried, (*rows, lit(0)), expr))
    outside = whole.subtract(terms)
    beyond = () if outside.is_empty() else (made(outside, (s,), values, (*rows, index(s)), identity(scan.op, acc)),)
    place = add(index(s), lit(scan.lo))
    term = made(terms, (s,), values, (*rows, index(s)), substitute(statement.expr, {scan.along: place}))
    last = add(scale(run, index(g)), index(v))
    local = made(inner, (g, v), values, (*rows, last), combined(value(add(last, lit(-1))), value(last)))
    earlier = Read(carried, (*rows, index(g)), dtype=acc)
    sums = combined(earlier, value(add(scale(run, index(g)), lit(run - 1))))
    carry = replace(made(runs, (g,), carried, (*rows, add(index(g), lit(1))), sums), regroups=True)
    result = combined(Read(carried, (*rows, floordiv(index(s), run)), dtype=acc), value(index(s)))
    stored = converted(result, program.tensor(statement.target).dtype)
    subscripts = tuple(substitute(e, {scan.along: place}) for e in statement.subscripts)
    store = made(terms, (s,), statement.target, subscripts, stored)
    return BlockScan(tuple(before), (*beyond, term), local, carry, store, s, g, v, values, carried)
