"""Relations between the instances of branches of a launch, for the proofs of what its threads do."""

from __future__ import annotations

from functools import reduce

import islpy as isl

from polyker.ir.expr import Expr, IndexExpr
from polyker.ir.quasi_affine import print_affine, substitute
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import Scop, ScopAccess, parameters
from polyker.schedule.tree.block_threads import Branch, BranchLoop
from polyker.schedule.tree.nodes import Promotion


def accesses_of(scop: Scop, branch: Branch) -> list[ScopAccess]:
    """Return the accesses of a branch's statement."""
    return [a for a in scop.accesses if a.statement == branch.statement]


def instances_of(scop: Scop, branch: Branch) -> isl.Set:
    """Return the instances that go a branch's way."""
    return reduce(isl.Set.intersect, map(read_set, branch.conditions), scop.domains[branch.statement])


def tuple_of(scop: Scop, branch: Branch, mark: str = "") -> str:
    """Return isl's text of a branch's instances, its iterators marked."""
    return f"{branch.statement}[{', '.join(i + mark for i in scop.statement(branch.statement).iterators)}]"


def primed(scop: Scop, branch: Branch, time: Expr) -> str:
    """Return the text of a time over a branch's marked iterators."""
    iterators = scop.statement(branch.statement).iterators
    return print_affine(substitute(time, {i: IndexExpr(f"{i}_") for i in iterators}))


def compared(scop: Scop, first: Branch, second: Branch, one: Expr, sign: str, other: Expr) -> isl.Map:
    """Return {first -> second} where a time of the first stands so to one of the second."""
    source, sink = tuple_of(scop, first), tuple_of(scop, second, "_")
    condition = f"{print_affine(one)} {sign} {primed(scop, second, other)}"
    return read_map(f"{parameters(scop.program)}{{ {source} -> {sink} : {condition} }}")


def at_one_place(
    scop: Scop, first: Branch, second: Branch, a: ScopAccess, b: ScopAccess, held: Promotion | None
) -> isl.Map:
    """Return {first -> second} of the instances of one block that come to one place, in the buffer `held` or in memory."""
    here = a.relation.intersect_domain(instances_of(scop, first))
    there = b.relation.intersect_domain(instances_of(scop, second))
    if held is not None:
        elements = [f"c{d}" for d in range(len(held.modulo))]
        places = ", ".join(f"{c} mod {m}" for c, m in zip(elements, held.modulo, strict=True))
        place = read_map(f"{parameters(scop.program)}{{ {a.tensor}[{', '.join(elements)}] -> P[{places}] }}")
        here, there = here.apply_range(place), there.apply_range(place)
    found = here.apply_range(there.reverse())
    for one, other in zip(first.steps[: first.outside], second.steps[: second.outside], strict=True):
        if isinstance(one, BranchLoop) and isinstance(other, BranchLoop):
            found = found.intersect(compared(scop, first, second, one.time, "=", other.time))
    return found
