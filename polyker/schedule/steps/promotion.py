"""Promote a temporary to a small buffer in each run of a part of the tree."""

from __future__ import annotations

from math import prod

from polyker.errors.base import failure
from polyker.errors.schedules import BIG_BUFFER, NEEDS_COPY, NO_TENSOR, PROMOTED, UNBOUNDED, UNUSED
from polyker.ir.typed import Role, TypedTensor
from polyker.poly.scop import Scop
from polyker.schedule.tree.nodes import Band, Promotion, ScheduleTree, Scope, Tree, promoted_tensors
from polyker.schedule.tree.places import at_loops, with_children
from polyker.schedule.tree.to_isl import Way, elements_of_runs, scope_ways
from polyker.structs import replace

# Most bytes of one buffer (chosen): what is larger would not stay in the first cache, and the stack has to hold it.
MAX_BUFFER_BYTES = 1 << 16

_ROLES = {Role.INPUT: "input", Role.OUTPUT: "output", Role.INOUT: "in-out argument"}


def promote(
    scop: Scop,
    schedule: ScheduleTree,
    tensor: str,
    statement: str | None = None,
    loop: str | None = None,
    *,
    limit: int = MAX_BUFFER_BYTES,
) -> ScheduleTree:
    """Hold a temporary in a buffer that each iteration of a loop has anew; without a loop there is one for the whole program.

    Before:

        for i: { for k: T[i, k] = ...;  for k: ... T[i, k] ... }

    After `promote(scop, schedule, "T", "S0", "i")`, where k has 8 values:

        for i: with T in [1, 8]: { for k: T[i % 1, k % 8] = ...;  for k: ... T[i % 1, k % 8] ... }

    A dimension of the buffer is as long as the largest distance of two elements in one run, plus one; `limit`: bytes that it may
    take. Raises ScheduleError.
    """
    found = _tensor(scop, tensor)
    if found.role is not Role.TEMPORARY:
        raise failure(NEEDS_COPY, tensor=found.label, role=_ROLES[found.role])
    if found.name in promoted_tensors(schedule.tree):
        raise failure(PROMOTED, tensor=found.label)
    planned = Promotion(found.name, ())

    def change(band: Band) -> Tree:
        at = next(n for n, m in enumerate(band.members) if m.label == loop) + 1
        inner: Tree = Band(band.members[at:], band.child) if band.members[at:] else band.child
        known = inner.promotions if isinstance(inner, Scope) else ()
        child = inner.child if isinstance(inner, Scope) else inner
        return Band(band.members[:at], Scope((*known, planned), child))

    if statement is None or loop is None:
        outer = schedule.tree
        known = outer.promotions if isinstance(outer, Scope) else ()
        tree: Tree = Scope((*known, planned), outer.child if isinstance(outer, Scope) else outer)
    else:
        tree = at_loops(schedule.tree, statement, (loop,), change)
    sizes = iter(
        [
            modulo_of(scop, found, here, limit)
            for scope, here in scope_ways(tree, scop.program)
            if planned in scope.promotions
        ]
    )
    used = False

    def measured(node: Tree) -> Tree:
        nonlocal used
        if isinstance(node, Scope) and planned in node.promotions:
            modulo = next(sizes)
            used = used or modulo is not None
            known = tuple(p for p in node.promotions if p != planned)
            kept = known if modulo is None else (*known, Promotion(found.name, modulo))
            node = Scope(kept, node.child) if kept else node.child
            return with_children(node, measured) if kept else measured(node)
        return with_children(node, measured)

    result = measured(tree)
    if not used:
        raise failure(UNUSED, loop=loop or "all", statement=statement or "the program", tensor=found.label)
    return replace(schedule, tree=result)


def _tensor(scop: Scop, name: str) -> TypedTensor:
    tensors = scop.program.tensors
    for found in (*(t for t in tensors if t.name == name), *(t for t in tensors if t.label == name)):
        return found
    known = ", ".join(f"{t.label} ({t.name})" for t in tensors if t.role is Role.TEMPORARY)
    raise failure(NO_TENSOR, tensor=name, known=known or "none")


def modulo_of(scop: Scop, tensor: TypedTensor, here: dict[str, Way], limit: int) -> tuple[int, ...] | None:
    """Return the extents of the buffer for one scope, None where nothing in it uses the tensor.

    Raises ScheduleError where no constant bounds them, or they take more than `limit` bytes.
    """
    touching = [a for a in scop.accesses if a.tensor == tensor.name and a.statement in here]
    elements = elements_of_runs(scop, touching, here)
    if elements is None or elements.is_empty():
        return None
    distances = elements.reverse().apply_range(elements).deltas()
    modulo = []
    for d in range(len(tensor.shape)):
        most = distances.dim_max_val(d)
        if not most.is_int():
            raise failure(UNBOUNDED, tensor=tensor.label, dimension=d)
        modulo.append(int(most.to_python()) + 1)
    size = prod(modulo) * tensor.dtype.itemsize
    if size > limit:
        raise failure(BIG_BUFFER, tensor=tensor.label, size=size, limit=limit)
    return tuple(modulo)
