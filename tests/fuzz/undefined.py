"""Whether a scheduled program could hand on a temporary's cell that nothing has set: for all sizes at once, by isl.

A run shows such a cell only where sizes and what memory happened to hold agree; sets show it without one. Order is left out:
a cell counts as set if any statement sets it.
"""

from __future__ import annotations

import islpy as isl

from polyker.errors import CompileError
from polyker.ir.typed import Role, TypedProgram
from polyker.poly.isl import isl_job, read_set
from polyker.poly.scop import Access, Scop, build_scop

ROUNDS = 12  # of statements that hand on what they read
QUOTA = 2_000_000  # isl's operations; programs that take more are left alone


def undefined(program: TypedProgram) -> str:
    """Return an output and its cells that come of cells that nothing sets, "" where there are none."""
    try:
        with isl_job("undefined cells", QUOTA):
            return _undefined(program)
    except CompileError:
        return ""


def _undefined(program: TypedProgram) -> str:
    scop = build_scop(program)
    roles = {t.name: t.role for t in program.tensors}
    made: dict[str, isl.Set] = {}
    for a in scop.accesses:
        if a.is_write and not a.is_update:
            made[a.tensor] = _joined(made.get(a.tensor), _cells(scop, a))
    bad: dict[str, isl.Set] = {}
    for a in scop.accesses:
        if roles[a.tensor] is Role.TEMPORARY and (a.is_update or not a.is_write):
            left = _cells(scop, a)
            left = left.subtract(made[a.tensor]) if a.tensor in made else left
            bad[a.tensor] = _joined(bad.get(a.tensor), left)
    for _ in range(ROUNDS):
        more: dict[str, isl.Set] = {}
        for read in scop.accesses:
            if read.is_write and not read.is_update:
                continue
            if read.tensor not in bad or bad[read.tensor].is_empty():
                continue
            instances = read.relation.intersect_range(bad[read.tensor]).domain()
            for write in scop.accesses:
                if write.is_write and write.statement == read.statement:
                    reached = instances.apply(write.relation).intersect_params(scop.context)
                    more[write.tensor] = _joined(more.get(write.tensor), reached)
        if all(c.is_subset(bad[t]) if t in bad else c.is_empty() for t, c in more.items()):
            break
        for t, c in more.items():
            bad[t] = _joined(bad.get(t), c)
    for t, c in bad.items():
        for check in program.checks:  # other sizes never come here
            c = c.intersect_params(read_set(check.condition))
        if roles[t] is not Role.TEMPORARY and not c.is_empty():
            return f"{t}: {str(c)[:300]}"
    return ""


def _cells(scop: Scop, access: Access) -> isl.Set:
    inside = access.relation.intersect_domain(scop.domains[access.statement])
    return inside.range().intersect_params(scop.context)


def _joined(one: isl.Set | None, other: isl.Set) -> isl.Set:
    return other if one is None else one.union(other).coalesce()
