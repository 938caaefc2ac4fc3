"""How the instances of one statement depend on each other."""

from __future__ import annotations

import islpy as isl

from polyker.ir.expr import IndexExpr, Read, walk
from polyker.ir.quasi_affine import lit
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import int_val, read_map, read_set
from polyker.poly.scop import access_relation, parameters, read_relation
from polyker.structs import replace


def own_distances(program: TypedProgram, statement: TypedStatement) -> isl.Set:
    """Return the distances of the instances that touch the element which one of them writes, in one iteration of the loops around
    the statement."""
    domain = read_set(statement.domain)
    target = read_map(access_relation(program, statement, statement.target, statement.subscripts))
    write = target.intersect_domain(domain)
    distances = write.apply_range(write.reverse()).deltas()
    for read in {e for e in walk(statement.expr) if isinstance(e, Read) and e.tensor == statement.target}:
        other = read_relation(program, statement, read, domain)
        distances = distances.union(write.apply_range(other.reverse()).deltas())
    for d in range(statement.outer):
        distances = distances.fix_val(isl.dim_type.set, d, int_val(0))
    return distances


def free_iterators(program: TypedProgram, statement: TypedStatement) -> tuple[str, ...]:
    """Return the inner iterators along which no instance of the statement depends on another.

    All of them where the instances do not depend on each other: two instances of `=` write one element only at gathered places.
    """
    inner = statement.iterators[statement.outer :]
    if statement.op == "set" and not statement.is_ordered:
        return inner
    return free_within(own_distances(program, statement), statement.iterators, statement.outer)


def free_within(distances: isl.Set, iterators: tuple[str, ...], outer: int) -> tuple[str, ...]:
    """Return those of the iterators after so many outer ones along which no distance goes, in one iteration of the outer ones."""
    for d in range(outer):
        distances = distances.fix_val(isl.dim_type.set, d, int_val(0))
    return tuple(
        iterator
        for d, iterator in enumerate(iterators[outer:], outer)
        if distances.subtract(distances.fix_val(isl.dim_type.set, d, int_val(0))).is_empty()
    )


def elements_apart(program: TypedProgram, statement: TypedStatement, kept: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the kept iterators along which no two results fall into one element."""
    names = [s.name for s in statement.subscripts if isinstance(s, IndexExpr)]
    if len(names) == len(statement.subscripts) and set(kept) <= set(names):
        return kept
    source = f"{statement.name}[{', '.join(statement.iterators)}]"
    own = statement.kept
    onto = read_map(f"{parameters(program)}{{ {source} -> {statement.name}[{', '.join(own)}] }}")
    results = str(read_set(statement.domain).apply(onto))
    free = free_iterators(program, replace(statement, iterators=own, domain=results, reduced=(), expr=lit(0)))
    return tuple(i for i in kept if i in free)
