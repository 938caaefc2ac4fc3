"""Rewrite prefix reductions to recurrences: of `S[t] += X[j] where j <= t`, S[0] = X[0]; S[t] = S[t-1] + X[t]."""

from __future__ import annotations

from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_set
from polyker.rewrite.core.accumulate import starts_fresh
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import replaced_after
from polyker.rewrite.reductions.scan import Scan, as_steps, covers, prefixes

# Least terms for a scan: of fewer, separate reductions are faster, which are vectorised over the elements (experience value).
MIN_PREFIX_TERMS = 32


def running_reductions(program: TypedProgram) -> TypedProgram:
    """Return the program with long reductions over all terms up to each element as recurrences; after `start_reductions`."""
    fresh = Fresh(program)

    def change(before: TypedStatement | None, node: TypedStatement) -> list[TypedStatement] | None:
        if before is None or node.op == "set" or not starts_fresh(program, before, node):
            return None
        scan = prefixes(program, node)
        steps = as_steps(program, fresh, scan) if scan is not None and _is_long(scan) else None
        if scan is None or steps is None:
            return None
        return steps if covers(program, scan, before) else [before, *steps]

    return fresh.finish(replaced_after(program.body, change))


def _is_long(scan: Scan) -> bool:
    most = read_set(scan.statement.domain).dim_max_val(scan.statement.iterators.index(scan.along))
    return not most.is_int() or most.get_num_si() - scan.lo >= MIN_PREFIX_TERMS
