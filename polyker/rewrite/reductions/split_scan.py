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

from dataclasses import dataclass, replace

import islpy as isl

from polyker.ir.dtypes import DType, i64
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Read
from polyker.ir.quasi_affine import add, floordiv, lit, scale, substitute
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import domain_text, parameters
from polyker.rewrite.core.accumulate import COMBINE
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.rewrite.reductions.scan import Scan

# Elements of a dimension of a buffer whose places count alone: more than a block has (chosen).
_MANY = 1 << 20


def _index(name: str) -> Expr:
    return IndexExpr(name, i64)


@dataclass(frozen=True)
class ScanRuns:
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
    source, elements = ", ".join(statement.iterators), ", ".join((*kept, q))
    cut = f"{along} = {scan.lo} + {count} {q} + {r} and 0 <= {r} < {count}"
    parts = read_set(statement.domain).apply(
        read_map(f"{head}{{ {statement.name}[{source}] -> [{elements}, {r}] : {cut} }}")
    )
    places = parts.project_out(isl.dim_type.set, len(kept) + 1, 1)
    term = substitute(statement.expr, {along: add(lit(scan.lo), scale(count, _index(q)), _index(r))})

    def element_of(run: Expr) -> tuple[Expr, ...]:
        rows = tuple(map(_index, kept))
        return (run, *rows) if beside else (*rows, run)

    element = element_of(_index(q))
    total, begin, chain = fresh.statement(), fresh.statement(), fresh.statement()

    def made(
        name: str, domain: isl.Set, target: str, op: str, expr: Expr, reduced: tuple[str, ...] = ()
    ) -> TypedStatement:
        return TypedStatement(
            name,
            (*kept, q, *reduced),
            0,
            domain_text(domain, name),
            target,
            element,
            op,
            expr,
            acc,
            reduced,
            statement.span,
        )

    start = made(begin, places, whole, "set", identity(scan.op, acc))
    totals = made(total, parts, whole, scan.op, term, (r,))
    carried = Scan(made(chain, places, carry, "set", Read(whole, element, dtype=acc)), q, 0, scan.op, scan.before)
    later = Read(carry, element_of(add(_index(q), lit(-1))), dtype=acc)
    first, rest = (str(read_set(f"{head}{{ [{elements}] : {q} {sign} 0 }}")) for sign in ("=", ">"))
    before: list[tuple[str | None, Expr]] = [(rest, later)]
    for domain, expr in scan.before:
        here = read_set(first)
        if domain is not None:
            here = here.intersect(read_set(domain).insert_dims(isl.dim_type.set, len(kept), 1))
        before.append((str(here), expr))
    inside = fresh.statement()
    within = replace(
        statement,
        name=inside,
        iterators=(*kept, q, r),
        domain=domain_text(parts, inside),
        subscripts=tuple(
            substitute(s, {along: add(lit(scan.lo), scale(count, _index(q)), _index(r))}) for s in statement.subscripts
        ),
        expr=term,
    )
    return ScanRuns(start, totals, carried, Scan(within, r, 0, scan.op, tuple(before)))


@dataclass(frozen=True)
class BlockScan:
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
    head, acc = parameters(program), statement.expr.dtype
    assert acc is not None
    s, g, v = fresh.iterator(), fresh.iterator(), fresh.iterator()
    values = fresh.temporary("terms", acc, tuple(lit(_MANY) for _ in (*kept, s)))
    carried = fresh.temporary("before", acc, tuple(lit(_MANY) for _ in (*kept, g)))
    rows = tuple(add(_index(i), lit(-least.get(i, 0))) for i in kept)
    source = f"{statement.name}[{', '.join(statement.iterators)}]"

    def onto(columns: str, condition: str = "") -> isl.Map:
        found = ", ".join((*kept, columns)) if columns else ", ".join(kept)
        return read_map(f"{head}{{ {source} -> [{found}]{condition and ' : ' + condition} }}")

    domain, here = read_set(statement.domain), f"{scan.along} - {scan.lo}"
    terms = domain.apply(onto(here))
    chunks = f"floor(({here})/{width * run})"
    whole = domain.apply(onto(s, f"floor({s}/{width * run}) = {chunks}"))
    runs = domain.apply(onto(g, f"floor({g}/{width}) = {chunks}"))
    inner = domain.apply(onto(f"{g}, {v}", f"floor({g}/{width}) = {chunks} and 0 < {v} < {run}"))
    places = domain.project_out(isl.dim_type.set, statement.iterators.index(scan.along), 1)

    def made(
        elements: isl.Set, iterators: tuple[str, ...], target: str, subscripts: tuple[Expr, ...], expr: Expr
    ) -> TypedStatement:
        name = fresh.statement()
        return TypedStatement(
            name, (*kept, *iterators), statement.outer, domain_text(elements, name), target, subscripts, "set", expr, acc, (),
            statement.span,
        )  # fmt: skip

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
    beyond = () if outside.is_empty() else (made(outside, (s,), values, (*rows, _index(s)), identity(scan.op, acc)),)
    place = add(_index(s), lit(scan.lo))
    term = made(terms, (s,), values, (*rows, _index(s)), substitute(statement.expr, {scan.along: place}))
    last = add(scale(run, _index(g)), _index(v))
    local = made(inner, (g, v), values, (*rows, last), combined(value(add(last, lit(-1))), value(last)))
    earlier = Read(carried, (*rows, _index(g)), dtype=acc)
    sums = combined(earlier, value(add(scale(run, _index(g)), lit(run - 1))))
    carry = replace(made(runs, (g,), carried, (*rows, add(_index(g), lit(1))), sums), regroups=True)
    result = combined(Read(carried, (*rows, floordiv(_index(s), run)), dtype=acc), value(_index(s)))
    stored = _stored(program, statement, acc, result)
    subscripts = tuple(substitute(e, {scan.along: place}) for e in statement.subscripts)
    store = made(terms, (s,), statement.target, subscripts, stored)
    if stored.dtype != acc:
        store = replace(store, acc=program.tensor(statement.target).dtype)
    return BlockScan(tuple(before), (*beyond, term), local, carry, store, s, g, v, values, carried)


def _stored(program: TypedProgram, statement: TypedStatement, acc: DType, value: Expr) -> Expr:
    dtype = program.tensor(statement.target).dtype
    return value if dtype == acc else Cast(dtype, value, dtype)
