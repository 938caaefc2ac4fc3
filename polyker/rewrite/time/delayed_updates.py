"""Delay updates that a blocked time loop does not read soon, and do a block's updates at once.

Before, in LU:

    for k: { A[i,k] = A[i,k] / A[k,k];  A[i,j] = A[i,j] - A[i,k] * A[k,j]  for i, j > k }

After, with blocks of 64 steps K, and a panel of 64 rows and columns that the block's own steps read:

    for K: for k in K: { A[i,k] = A[i,k] / A[k,k];  A[i,j] = A[i,j] - A[i,k] * A[k,j]  where i or j is in the panel }
           A[i,j] -= A[i,k] * A[k,j]  for k in K, i, j beyond the panel, in the order of k

The late part is a product of matrices, whose tiles stay in registers for a block of steps; each element still takes its terms one
by one in the order of the text. An element is late if nothing else in its block of steps reads or writes it; isl says which are.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl
from msgspec import Struct

from polyker.ir.expr import Call, Expr, Read, reads_in
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement, replaced, statements_of
from polyker.poly.isl import Set, read_set, union_of
from polyker.poly.symbolic import expected
from polyker.rewrite.core.accumulate import COMBINE
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import replaced_loops
from polyker.rewrite.time.step_blocks import BlockLoop, Blocks, blocks_of, in_block, least_in_block, of_block, steps_in
from polyker.structs import replace

# The reductions that an update may be, by what combines an element with a term.
_COMBINE = {COMBINE[op]: op for op in ("add", "max", "min")}


def late_updates(program: TypedProgram) -> TypedProgram:
    """Return the program with the outermost time loops that have late updates run by blocks."""

    def change(fresh: Fresh, labels: dict[str, str], loop: TypedLoop) -> list[TypedNode] | None:
        found = next(_candidates(program, loop), None)
        return None if found is None else [_blocked(fresh, found, labels)]

    return replaced_loops(program, change)


class _Late(Struct, frozen=True):
    """A loop, its update `statement` with what is combined into the element by `op`, the instances that are late, and the others
    in disjoint pieces. `first`: the first step; `steps`: those of a block. `bounds`: of each inner iterator, (slope, offset) of
    the least late value in a block."""

    loop: TypedLoop
    statement: TypedStatement
    op: str
    term: Expr
    late: Set
    early: tuple[Set, ...]
    first: int
    steps: int
    bounds: tuple[tuple[int, int], ...]


def _candidates(program: TypedProgram, loop: TypedLoop) -> Iterator[_Late]:
    for node in loop.body:
        if isinstance(node, TypedStatement) and node.op == "set" and node.outer == 1 and len(node.iterators) >= 3:
            parts = None if node.scatters else _parts(node)
            found = None if parts is None else _late(program, loop, node, *parts)
            if found is not None:
                yield found


def _parts(statement: TypedStatement) -> tuple[str, Expr] | None:
    """Return the operation that combines an element's own value with a term, and the term, which must not hang on that value."""
    value = statement.expr
    if not isinstance(value, Call) or value.op not in _COMBINE or len(value.args) != 2:
        return None
    mine = [
        isinstance(a, Read) and a.tensor == statement.target and a.subscripts == statement.subscripts
        for a in value.args
    ]
    if sum(mine) != 1 or value.dtype != statement.acc:
        return None
    term = value.args[mine.index(False)]
    if any(r.tensor == statement.target and r.subscripts == statement.subscripts for r in reads_in(term)):
        return None
    return _COMBINE[value.op], term


def _late(program: TypedProgram, loop: TypedLoop, statement: TypedStatement, op: str, term: Expr) -> _Late | None:
    domain = read_set(statement.domain).intersect_params(read_set(program.context))
    found = steps_in(program, domain)
    if found is None:
        return None
    first, last = found
    own = Read(statement.target, statement.subscripts, dtype=statement.acc)
    if program.tensor(statement.target).dtype != statement.acc:
        return None
    blocks = blocks_of(program, loop, first, last)
    whole = None if blocks is None else blocks.whole(statement, domain)  # what is no whole block is not worth it
    if blocks is None or whole is None:
        return None
    touched = _touched(blocks, statement, own)
    if touched is None:
        return None
    where = blocks.block(statement).range_product(blocks.elements(statement, None))
    late = domain.intersect(whole).subtract(where.intersect_range(touched).domain()).coalesce()
    if late.is_empty() or not _wide(expected(program, late), expected(program, domain)):
        return None
    operands = [r for s, r in blocks.accesses if s is statement and r is not None and r != own]
    if any(_changes_later(blocks, loop, statement, r, late) for r in operands):
        return None
    steps, dimensions = blocks.steps, range(1, len(statement.iterators))
    bounds = tuple(least_in_block(late, statement, d, first, steps) for d in dimensions)
    numbered = f"floor(({loop.iterator} - {first})/{steps})"
    early = tuple(_disjoint_pieces(statement, domain.subtract(late), numbered, bounds))
    return _Late(loop, statement, op, term, late, early, first, steps, bounds)


def _touched(blocks: Blocks, statement: TypedStatement, own: Read) -> Set | None:
    """Return the elements that each block of steps touches, but for the update's own ones; None where there are no others."""
    others = [(s, r) for s, r in blocks.accesses if s is not statement or (r is not None and r != own)]
    same = [(s, r) for s, r in others if (s.target if r is None else r.tensor) == statement.target]
    return union_of(blocks.block(s).range_product(blocks.elements(s, r)).range() for s, r in same)


def _changes_later(blocks: Blocks, loop: TypedLoop, statement: TypedStatement, read: Read, late: Set) -> bool:
    """Whether what late instances read is written again in their block after their own step, or by the update in it."""
    position = {s.name: n for n, s in enumerate(statements_of(loop.body))}
    for s, pairs in blocks.writers(statement, read):
        same = blocks.compared(statement, s, "=")
        if s is statement and not pairs.intersect(same).is_empty():
            return True
        after = blocks.compared(statement, s, ">")
        if position[s.name] > position[statement.name]:
            after = after.union(same)
        if not pairs.intersect_domain(late).intersect(after).is_empty():
            return True
    return False


def _disjoint_pieces(
    statement: TypedStatement, early: Set, number: str, bounds: tuple[tuple[int, int], ...]
) -> Iterator[Set]:
    """Yield the instances that are not late in disjoint pieces: those below the least late value of each inner iterator in the
    block of their `number`, and what is left."""
    for iterator, (slope, offset) in zip(statement.iterators[1:], bounds, strict=True):
        before = f"{iterator} < {slope} * {number} + {offset}"
        part = early.intersect(
            read_set(f"{{ {statement.name}[{', '.join(statement.iterators)}] : {before} }}")
        ).coalesce()
        if not part.is_empty():
            yield part
            early = early.subtract(part)
    if not early.is_empty():
        yield early.coalesce()


def _wide(late: Set, domain: Set) -> bool:
    """Whether what is late is most of an update: along each iterator, most of its values.

    A border that nobody reads is late, too; but steps of a stencil are better run by tiles of time than without it.
    """

    def extent(points: Set, d: int) -> int:
        low, high = points.dim_min_val(d), points.dim_max_val(d)
        return high.get_num_si() - low.get_num_si() + 1 if low.is_int() and high.is_int() else 0

    return all(2 * extent(late, d) > extent(domain, d) for d in range(1, domain.dim(isl.dim_type.set)))


def _blocked(fresh: Fresh, found: _Late, labels: dict[str, str]) -> TypedLoop:
    clock, number = found.loop.iterator, fresh.iterator()
    labels[number] = f"{labels.get(clock, clock)}_block"
    around = BlockLoop(number, found.first, found.steps)

    def inside(s: TypedStatement) -> list[TypedStatement]:
        parts = found.early if s is found.statement else (read_set(s.domain),)
        names = [s.name, *(fresh.statement() for _ in parts[1:])]
        return [in_block(fresh, s, part, name, around) for part, name in zip(parts, names, strict=False)]

    steps = replaced(found.loop.body, inside)
    loop = (TypedLoop(clock, steps),) if steps else ()
    return TypedLoop(number, (*loop, _together(fresh, found, around, labels)))


def _together(fresh: Fresh, found: _Late, around: BlockLoop, labels: dict[str, str]) -> TypedStatement:
    """Return the late update of one block: a reduction over its steps."""
    term = replace(found.statement, op=found.op, expr=found.term)
    made, clock = of_block(fresh, term, found.late, around, found.bounds, labels)
    return replace(made, reduced=(clock,), in_order=True)
