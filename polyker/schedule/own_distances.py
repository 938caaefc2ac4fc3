"""How the instances of one statement depend on each other."""

from __future__ import annotations

import islpy as isl

from polyker.ir.expr import Read, walk
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import int_val, read_map, read_set
from polyker.poly.scop import access_relation


def own_distances(program: TypedProgram, statement: TypedStatement) -> isl.Set | None:
    """Return the distances of the instances that touch the cell which one of them writes, in one iteration of the loops around
    the statement; None where they may be anywhere."""
    domain = read_set(statement.domain)
    target = read_map(access_relation(program, statement, statement.target, statement.subscripts))
    write = target.intersect_domain(domain)
    distances = write.apply_range(write.reverse()).deltas()
    for read in {e for e in walk(statement.expr) if isinstance(e, Read) and e.tensor == statement.target}:
        if read.pad is not None and read.pad.mode != "constant":
            return None
        other = read_map(access_relation(program, statement, read.tensor, read.subscripts)).intersect_domain(domain)
        distances = distances.union(write.apply_range(other.reverse()).deltas())
    for d in range(statement.outer):
        distances = distances.fix_val(isl.dim_type.set, d, int_val(0))
    return distances


def free_iterators(program: TypedProgram, statement: TypedStatement) -> tuple[str, ...]:
    """Return the inner iterators along which no instance of the statement depends on another.

    All of them where the instances do not depend on each other: two instances of `=` never write one cell.
    """
    inner = statement.iterators[statement.outer :]
    if statement.op == "set" and all(r.tensor != statement.target for r in statement.reads()):
        return inner
    distances = own_distances(program, statement)
    if distances is None:
        return ()
    free = []
    for d, iterator in enumerate(inner, statement.outer):
        if distances.subtract(distances.fix_val(isl.dim_type.set, d, int_val(0))).is_empty():
            free.append(iterator)
    return tuple(free)
