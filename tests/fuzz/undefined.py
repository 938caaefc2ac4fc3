"""Whether a scheduled program could hand on a temporary's element that nothing has set: for all sizes at once, by isl.

A run shows such an element only where sizes and what memory happened to hold agree; sets show it without one. Statements are
taken in the order of the text, each as a whole.
"""

from __future__ import annotations

import islpy as isl

from polyker.errors import CompileError
from polyker.ir.typed import Role, TypedLoop, TypedProgram
from polyker.poly.isl import isl_job, read_set
from polyker.poly.scop import Scop, ScopAccess, build_scop

QUOTA = 2_000_000  # isl's operations; programs that take more are left alone


def undefined(program: TypedProgram) -> str:
    """Return an output and its elements that come of elements that nothing sets, "" where there are none."""
    try:
        with isl_job("undefined elements", QUOTA):
            return _undefined(program)
    except CompileError:
        return ""


def _undefined(program: TypedProgram) -> str:
    if any(isinstance(n, TypedLoop) for n in program.body):
        return ""  # what an earlier step of a time loop set is not known here
    scop = build_scop(program)
    roles = {t.name: t.role for t in program.tensors}
    bad: dict[str, isl.Set] = {}  # elements that nothing has set, or that come of such
    for a in scop.accesses:
        if roles[a.tensor] is Role.TEMPORARY:
            bad[a.tensor] = isl.Set.universe(a.relation.range().get_space())
    for s in program.statements():
        mine = [a for a in scop.accesses if a.statement == s.name]
        instances: isl.Set | None = None
        for a in mine:
            own = a.tensor == s.target and s.op == "set"  # a recurrence reads what it has set itself
            if a.tensor in bad and not own and (a.is_update or not a.is_write):
                inside = a.relation.intersect_domain(scop.domains[s.name])
                instances = _joined(instances, inside.intersect_range(bad[a.tensor]).domain())
        for a in mine:
            if a.is_write and not a.is_update and a.tensor in bad:
                bad[a.tensor] = bad[a.tensor].subtract(_elements(scop, a))
            if a.is_write and instances is not None and not instances.is_empty():
                bad[a.tensor] = _joined(bad.get(a.tensor), instances.apply(a.relation))
    for t, c in bad.items():
        c = c.intersect_params(scop.context)
        for check in program.checks:  # other sizes never come here
            c = c.intersect_params(read_set(check.condition))
        if roles[t] is not Role.TEMPORARY and not c.is_empty():
            return f"{t}: {str(c)[:300]}"
    return ""


def _elements(scop: Scop, access: ScopAccess) -> isl.Set:
    inside = access.relation.intersect_domain(scop.domains[access.statement])
    return inside.range().intersect_params(scop.context)


def _joined(one: isl.Set | None, other: isl.Set) -> isl.Set:
    return other if one is None else one.union(other).coalesce()
