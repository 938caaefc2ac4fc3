"""Hoist sums over earlier steps' results out of a blocked time loop's steps, a block at once.

Before, of a triangle's right-hand sides (each row needs those before it):

    for i: { s[i,j] = 0;  s[i,j] += L[i,k] * X[k,j]  for k < i;  X[i,j] = (B[i,j] - s[i,j]) / L[i,i] }

After, with blocks of 32 steps I:

    for I: { s[i,j] = 0  for i in I;  s[i,j] += L[i,k] * X[k,j]  for i in I, k before I
             for i in I: { s[i,j] += L[i,k] * X[k,j]  for k in I, k < i;  X[i,j] = (B[i,j] - s[i,j]) / L[i,i] } }

The early part is a product of matrices; row by row the operand was read from end to end for each step. An instance is early if no
step of its own block writes, before it, what it reads; isl says which are.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from polyker.ir.typed import Role, TypedLoop, TypedNode, TypedProgram, TypedStatement, replaced, statements_of
from polyker.poly.count import count
from polyker.poly.isl import Set, read_set, union_of
from polyker.poly.symbolic import expected
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.rewrite.core.reindex import replaced_loops
from polyker.rewrite.time.step_blocks import BlockLoop, blocks_of, in_block, least_in_block, of_block, steps_in

# Least share of a sum's instances that can be hoisted (experience value).
MIN_HOISTED_SHARE = 0.5


class _Early(Struct, frozen=True):
    """The sum `statement` of a temporary that `start` sets to nothing before it, the instances that are early, and the others.
    `first`: the first step of the loop; `steps`: those of a block."""

    start: TypedStatement
    statement: TypedStatement
    early: Set
    rest: Set
    first: int
    steps: int


def early_sums(program: TypedProgram) -> TypedProgram:
    """Return the program with the outermost time loops that have early sums run by blocks."""

    def change(fresh: Fresh, labels: dict[str, str], loop: TypedLoop) -> list[TypedNode] | None:
        found = list(_candidates(program, loop))
        return [_blocked(fresh, loop, found, labels)] if found else None

    return replaced_loops(program, change)


def _candidates(program: TypedProgram, loop: TypedLoop) -> Iterator[_Early]:
    for start, node in zip(loop.body, loop.body[1:], strict=False):
        if isinstance(start, TypedStatement) and isinstance(node, TypedStatement) and _starts(program, start, node):
            found = _early(program, loop, start, node)
            if found is not None:
                yield found


def _starts(program: TypedProgram, start: TypedStatement, statement: TypedStatement) -> bool:
    """Whether a statement sets the temporary that the next one sums up to nothing."""
    tensor = program.tensor(statement.target)
    return (
        statement.op != "set"
        and bool(statement.reduced)
        and len(statement.iterators) - len(statement.reduced) > 1  # one vector is read as fast row by row
        and not (statement.in_order or statement.reads_own)
        and statement.outer == start.outer == 1
        and tensor.role is Role.TEMPORARY
        and tensor.dtype == statement.acc
        and start.op == "set"
        and start.target == statement.target
        and start.expr == identity(statement.op, tensor.dtype)
    )


def _early(program: TypedProgram, loop: TypedLoop, start: TypedStatement, statement: TypedStatement) -> _Early | None:
    all_of = list(statements_of(loop.body))
    context = read_set(program.context)
    found = [steps_in(program, read_set(s.domain).intersect_params(context)) for s in all_of]
    ends = [e for e in found if e is not None]
    if len(ends) < len(found):
        return None
    first, last = min(low for low, _ in ends), max(high for _, high in ends)
    blocks = blocks_of(program, loop, first, last)
    if blocks is None:
        return None
    # The sum's elements are those of one step, and read after it: their start and early terms may come before the block's steps.
    place = {s.name: n for n, s in enumerate(all_of)}
    if sum(s.target == statement.target for s in all_of) != 2:
        return None
    if any(r and r.tensor == statement.target and place[s.name] < place[statement.name] for s, r in blocks.accesses):
        return None
    touching = [(s, r) for s, r in blocks.accesses if (s.target if r is None else r.tensor) == statement.target]
    uses = [blocks.elements(s, r).reverse().apply_range(blocks.step(s)) for s, r in touching]
    if not union_of(uses).coalesce().is_single_valued():
        return None
    if not blocks.elements(statement, None).range().is_subset(blocks.elements(start, None).range()):
        return None
    domain = read_set(statement.domain).intersect_params(context)
    early = domain
    for read in dict.fromkeys(statement.reads()):
        for s, pairs in blocks.writers(statement, read):
            before = blocks.compared(statement, s, "<")
            if place[s.name] < place[statement.name]:
                before = before.union(blocks.compared(statement, s, "="))
            early = early.subtract(pairs.intersect(before).domain())
    early = early.coalesce()
    some, whole = (count(expected(program, points)).number for points in (early, domain))
    if early.is_empty() or not some or not whole or some < MIN_HOISTED_SHARE * whole:
        return None
    return _Early(start, statement, early, domain.subtract(early).coalesce(), first, blocks.steps)


def _blocked(fresh: Fresh, loop: TypedLoop, found: list[_Early], labels: dict[str, str]) -> TypedLoop:
    number, (first, steps) = fresh.iterator(), (found[0].first, found[0].steps)
    around = BlockLoop(number, first, steps)
    labels[number] = f"{labels.get(loop.iterator, loop.iterator)}_block"
    starts, rests = {f.start.name for f in found}, {f.statement.name: f.rest for f in found}

    def inside(s: TypedStatement) -> list[TypedStatement]:
        points = rests.get(s.name, read_set(s.domain))
        left = s.name not in starts and not points.is_empty()
        return [in_block(fresh, s, points, s.name, around)] if left else []

    def together(s: TypedStatement, points: Set) -> TypedStatement:
        bounds = [least_in_block(points, s, d, first, steps) for d in range(1, len(s.iterators))]
        return of_block(fresh, s, points, around, bounds, labels)[0]

    head: list[TypedNode] = []
    for f in found:
        head += [together(f.start, read_set(f.start.domain)), together(f.statement, f.early)]
    inner = replaced(loop.body, inside)
    return TypedLoop(number, (*head, TypedLoop(loop.iterator, inner)) if inner else tuple(head))
