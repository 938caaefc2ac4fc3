"""Choose the sums of products of narrow integers that dot-product instructions compute faster.

The cost of both ways, in cycles: arithmetic by the lanes, and what it takes to lay the terms side by side. The rewrite is
polyker.rewrite.reductions.dot_products.
"""

from __future__ import annotations

from math import inf, prod

from polyker.cost.measure import Layouts, MeasuredStatement, measure
from polyker.cost.table import COPY_TRANSPOSED, GAIN, WRITE, folded
from polyker.ir.decision import Decision
from polyker.ir.dtypes import DType, i64
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read, walk
from polyker.ir.instructions import DotProduct
from polyker.ir.quasi_affine import indices_of
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.machine.model import Target
from polyker.rewrite.core.accumulate import starts_fresh
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import replaced_after
from polyker.rewrite.core.terms import elements_of, places_of
from polyker.rewrite.core.value_range import type_range, value_range
from polyker.rewrite.reductions.dot_products import Factor, Groups, in_groups
from polyker.structs import replace

# Instructions of a vector of products that are widened, multiplied and added one by one; cycles to read an element of the terms
# once more where its sums are taken off a result (experience value).
WIDENED_INSTRUCTIONS, REREAD_CYCLES = 3.0, 0.1
# How many times as long sums take whose vectors run along the reduction; cycles to add what no whole group has to a result
# (experience values).
ALONG_FACTOR, REST_CYCLES = 1.3, 1.0
# Lanes whose folding counts where vectors run along the reduction: fewer than a vector has, as sums of single products fold
# theirs, too, or are transposed, which is not counted (experience value; with all 16 rows of 64 bytes have no dot products).
FOLDED_LANES = 4


def sum_by_dots(
    program: TypedProgram, target: Target, layout: Layouts, budget: int | None = None
) -> tuple[TypedProgram, tuple[Decision, ...]]:
    """Return the program with sums of products of narrow integers taken several terms at a time where that pays, and notes.

    `budget`: bytes that temporaries may take.
    """
    if not target.dot_products:
        return program, ()
    fresh = Fresh(program)
    notes: list[Decision] = []

    def change(before: TypedStatement | None, node: TypedStatement) -> list[TypedStatement] | None:
        found = _choice(program, node, target, layout, budget)
        if found is None:
            return None
        start = before if starts_fresh(program, before, node) else None
        made = in_groups(program, fresh, node, start, found)
        if made is None:
            return None
        chosen = f"{found.instruction.terms} terms of {found.term} at a time, side by side in 32 bits"
        notes.append(Decision(node.name, chosen))
        return made if start is not None or before is None else [before, *made]

    body = replaced_after(program.body, change)
    return (fresh.finish(body), tuple(notes)) if notes else (program, ())


def _choice(
    program: TypedProgram, statement: TypedStatement, target: Target, layout: Layouts, budget: int | None
) -> Groups | None:
    """Return the best way to take a statement's terms together, None where none pays."""
    pair = _product(statement)
    if pair is None:
        return None
    ways = [(r, factors) for r in target.dot_products for factors in _factors(pair, statement.acc, r)]
    if not ways:
        return None
    measured = measure(program, statement, layout)
    total = measured.points
    if total == 0:
        return None
    speed = target.lanes(4) * target.fma_per_cycle
    plain = total * WIDENED_INSTRUCTIONS / (target.lanes(statement.acc.itemsize) * target.fma_per_cycle)
    choices = []
    for term in statement.reduced:
        for r, some in ways:
            if not _is_exact(some, statement.acc, measured):
                continue
            groups = total // measured.extent(term) * -(-measured.extent(term) // r.terms)
            steps = groups * r.cost / speed
            for placed in _placed(statement, some, measured, term, r.terms):
                more = _more(statement, placed, measured, term, r.terms, budget)
                if more is not None:
                    along = ALONG_FACTOR if _is_along(statement, placed) else 1.0
                    choices.append((along * steps + more, Groups(r, term, placed)))
    cycles, best = min(choices, key=lambda c: c[0], default=(inf, None))
    return best if cycles < (1 - GAIN) * plain else None


def _product(statement: TypedStatement) -> tuple[Expr, Expr] | None:
    """Return the factors of a sum of products of two integers."""
    if statement.op != "add" or not statement.reduced or statement.outer or statement.in_order:
        return None
    if not statement.acc.is_integer or statement.reads_own:
        return None
    match statement.expr:
        case Call(op="mul", args=(x, y)):
            return x, y
        case Call(op="pow", args=(x, Literal(value=2))):
            return x, x
        case _:
            return None


def _factors(pair: tuple[Expr, Expr], acc: DType, row: DotProduct) -> list[tuple[Factor, Factor]]:
    """Return the ways to take factors as the integers of an instruction.

    Where it multiplies unsigned by signed ones the values of one of two factors of one sign are shifted.
    """
    left, right, half = row.left, row.right, 1 << (8 * row.left.itemsize - 1)
    orders = (pair,) if left == right else (pair, pair[::-1])
    plain = [(Factor(a, left), Factor(b, right)) for a, b in orders if _fits(a, left, acc) and _fits(b, right, acc)]
    if plain or left.kind == right.kind:
        return plain
    one, other = (half, 0) if left.kind == "u" else (-half, 0), (0, -half) if right.kind == "i" else (0, half)
    for kind, (first, second) in ((right, one), (left, other)):
        if all(_fits(a, kind, acc) for a in pair):
            return [(Factor(a, left, first), Factor(b, right, second)) for a, b in orders]
    return []


def _fits(expr: Expr, part: DType, acc: DType) -> bool:
    """Whether a type holds all values of an expression; sums that are no wider are right whatever the sign is."""
    if acc.itemsize <= part.itemsize:
        return expr.dtype is not None and expr.dtype.is_integer
    found = value_range(expr)
    least, greatest = type_range(part)
    return found is not None and least <= found[0] and found[1] <= greatest


def _is_exact(factors: tuple[Factor, Factor], acc: DType, measured: MeasuredStatement) -> bool:
    """Whether sums modulo 2^32 say all: they are no wider, or no sum reaches 2^31."""
    if acc.itemsize <= 4:
        return True
    reduced = measured.statement.reduced
    if any(measured.bounds[i][1] is None for i in reduced):
        return False
    ranges = [value_range(f.expr) for f in factors]
    largest = prod(max(abs(r[0]), abs(r[1])) for r in ranges if r is not None)
    return largest * prod(map(measured.extent, reduced)) < 2**31


def _placed(
    statement: TypedStatement, factors: tuple[Factor, Factor], measured: MeasuredStatement, term: str, count: int
) -> list[tuple[Factor, Factor]]:
    """Return the ways to store factors or to join their terms where they are used: these have to be neighbours in memory.

    What is changed on the way is joined vector by vector alone: for single elements that costs more than to store them.
    """
    lies = [_bytes_together(f, measured, term, count) for f in factors]
    found = [factors]
    for here in ((True, False), (False, True), (True, True)):
        placed = (replace(factors[0], in_place=here[0]), replace(factors[1], in_place=here[1]))
        wide = _is_along(statement, placed)
        if all(
            size is not None and (wide or (size == f.part.itemsize and not f.shift))
            for f, size in zip(placed, lies, strict=True)
            if f.in_place
        ):
            found.append(placed)
    return found


def _bytes_together(factor: Factor, measured: MeasuredStatement, term: str, count: int) -> int | None:
    """Return the bytes of each term of a factor that lie side by side in memory, whole groups at least, else None."""
    read = factor.expr
    while isinstance(read, Cast):
        read = read.arg
    if not isinstance(read, Read) or read.pad is not None or read.dtype is None or not read.dtype.is_integer:
        return None
    access = next(a for a in measured.accesses if a.read == read)
    alone = [s for s in read.subscripts if term in indices_of(s)] == [IndexExpr(term, i64)] == [read.subscripts[-1]]
    enough = measured.extent(term) >= count and measured.bounds[term][0] is not None
    fits = alone and access.stride(term) == 1 and read.dtype.itemsize <= factor.part.itemsize and enough
    return read.dtype.itemsize if fits else None


def _is_along(statement: TypedStatement, factors: tuple[Factor, Factor]) -> bool:
    """Whether vectors can but run along the reduction: what moves with a result is read where it lies."""
    kept = set(statement.kept)
    return all(f.in_place or not kept & {e.name for e in walk(f.expr) if isinstance(e, IndexExpr)} for f in factors)


def _more(
    statement: TypedStatement,
    factors: tuple[Factor, Factor],
    measured: MeasuredStatement,
    term: str,
    count: int,
    budget: int | None,
) -> float | None:
    """Return the cycles of what is done besides the sums: elements stored, sums that a shift takes off, results added up or
    to."""
    cycles, stored = 0.0, 0
    for factor, other in (factors, factors[::-1]):
        places = places_of(statement, factor.expr, term)
        if places is None:
            return None
        elements = elements_of(places, term, measured.extent, count)
        stored += 0 if factor.in_place else elements
        cycles += elements * ((0 if factor.in_place else WRITE) + (REREAD_CYCLES if other.shift else 0))
    if budget is not None and 4 * stored > budget:
        return None
    results = prod(measured.extent(i) for i in statement.kept)
    if _is_along(statement, factors):
        cycles += folded(FOLDED_LANES) * results
    elif any(f.in_place for f in factors):
        write = measured.write
        beside = {e.name for f in factors if not f.in_place for e in walk(f.expr) if isinstance(e, IndexExpr)}
        cycles += 0 if any(abs(write.stride(i)) == 1 for i in beside) else COPY_TRANSPOSED * results
    exact = measured.bounds[term][1]
    if any(f.in_place for f in factors) and (exact is None or exact % count):
        cycles += REST_CYCLES * results
    return cycles
