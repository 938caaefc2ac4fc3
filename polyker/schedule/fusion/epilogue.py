"""Fuse an elementwise epilogue into the store of a reduction's results, from registers.

Before: `T[n,o] += X[n,i] * W[o,i];  O[n,o] = relu(T[n,o] + b[o])`. After, where a tile of accumulators A is stored:
`O[n,o] = relu(A[n,o] + b[o])`; T is not stored. Where the reduction is cut into blocks T holds partial sums, and the last block
stores O.
"""

from __future__ import annotations

from collections.abc import Callable

from polyker.cost.choose import choose
from polyker.cost.measure import Layouts, accesses
from polyker.cost.plan import MAX_TILE_OPERATIONS, TilePlan, is_costly, unrolled, values
from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Expr, IndexExpr
from polyker.ir.quasi_affine import is_quasi_affine, substitute
from polyker.ir.typed import Role, TypedProgram, TypedStatement
from polyker.machine.model import Target
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import domain_text, parameters
from polyker.schedule.fusion.items import Item
from polyker.structs import replace


def with_epilogues(program: TypedProgram, items: list[Item], layout: Layouts, target: Target) -> list[Item]:
    """Return the items with what reads the results of a reduction, as the only one that does, made a part of the reduction."""

    def worth(item: Item, epilogue: TypedStatement) -> bool:
        plan = choose(item.measured, item.free, item.statement.reduced, target)
        return carries(program, epilogue, item.statement, plan, layout)

    return joined(program, items, worth)


def joined(program: TypedProgram, items: list[Item], worth: Callable[[Item, TypedStatement], bool]) -> list[Item]:
    """Return the items with what reads the results of a reduction alone made a part of it, where that is worth it."""
    found = list(items)
    for late in range(len(found) - 1, 0, -1):
        for early in range(late - 1, -1, -1):
            if found[early].conflicts(found[late]):
                epilogue = _epilogue(program, found[early], found[late])
                if epilogue is not None and worth(found[early], epilogue):
                    found[early] = replace(found[early], epilogue=epilogue)
                    del found[late]
                break
    return found


def carries(
    program: TypedProgram, epilogue: TypedStatement, statement: TypedStatement, plan: TilePlan, layout: Layouts
) -> bool:
    """Whether a reduction's tile had better store the epilogue's value than its results."""
    size = sum(1 for e in values(epilogue.expr) if isinstance(e, Call))
    if plan.packs_result:
        return True  # the copy of the results to their place computes it
    if plan.written is not None or plan.vector is None or unrolled(plan) * size > MAX_TILE_OPERATIONS:
        return False
    if plan.vector in statement.reduced:
        return not any(map(is_costly, values(epilogue.expr)))
    moved = [a for a in accesses(program, epilogue, layout) if a.tensor != statement.target]
    return all(abs(a.stride(plan.vector)) <= 1 for a in moved) and moved[0].stride(plan.vector) == 1


def stored_with(
    program: TypedProgram, epilogue: TypedStatement | None, statement: TypedStatement, plan: TilePlan, layout: Layouts
) -> TypedStatement | None:
    """Return the epilogue whose value a reduction's tiles store: all its elements are theirs, and it is cheap there."""
    return epilogue if epilogue is not None and carries(program, epilogue, statement, plan, layout) else None


def _epilogue(program: TypedProgram, item: Item, reader: Item) -> TypedStatement | None:
    """Return the reader over the iterators of the reduction's results, None where it is no epilogue of it."""
    statement, last = item.statement, reader.statement
    tensor = program.tensor(statement.target)
    fits = item.reduces and item.start is not None and item.epilogue is None and not reader.reduces
    if (
        not fits
        or statement.outer
        or statement.in_order
        or tensor.role is not Role.TEMPORARY
        or tensor.dtype != statement.acc
    ):
        return None
    if (
        last.op != "set"
        or last.scatters
        or last.target in item.tensors
        or any(r.tensor == last.target for r in last.reads())
    ):
        return None
    for other in program.statements():
        mine = other.name in (statement.name, last.name, item.start.name if item.start else "")
        if not mine and (other.target == tensor.name or any(r.tensor == tensor.name for r in other.reads())):
            return None
    reads = {r for r in last.reads() if r.tensor == tensor.name}
    if len(reads) != 1 or not all(is_quasi_affine(s) for r in last.reads() for s in r.subscripts):
        return None
    (read,) = reads
    own = [s.name for s in statement.subscripts if isinstance(s, IndexExpr)]
    there = [s.name for s in read.subscripts if isinstance(s, IndexExpr)]
    if (
        read.pad is not None
        or len(own) != len(there)
        or len(own) != len(read.subscripts)
        or sorted(there) != sorted(last.iterators)
    ):
        return None
    return _renamed(program, last, dict(zip(there, own, strict=True)), statement)


def _renamed(
    program: TypedProgram, last: TypedStatement, names: dict[str, str], statement: TypedStatement
) -> TypedStatement:
    """Return the reader over the reduction's iterators, in their order."""
    kept = statement.kept
    back = {own: theirs for theirs, own in names.items()}
    source, target = ", ".join(last.iterators), ", ".join(back[i] for i in kept)
    onto = read_map(f"{parameters(program)}{{ {last.name}[{source}] -> [{target}] }}")
    places: dict[str, Expr] = {theirs: IndexExpr(own, i64) for theirs, own in names.items()}
    return replace(
        last,
        iterators=kept,
        domain=domain_text(read_set(last.domain).apply(onto), last.name),
        subscripts=tuple(substitute(s, places) for s in last.subscripts),
        expr=substitute(last.expr, places),
    )
