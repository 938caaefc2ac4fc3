"""Split the domains of a time loop's statements where few instances of a step write what the others read.

Before, shortest paths: row and column k are read by all of step k, and written by it, so that its loops keep their order.

    for k: D[i,j] = min(D[i,j], D[i,k] + D[k,j])

After, for i and j each the values below k, k itself, and those beyond, in the order of the text:

    for k: { D[i,j] = …  for i < k, j < k;   D[i,k] = …  for i < k;   D[i,j] = …  for i < k, j > k;   D[k,j] = …  for j < k;  … }

No instance of a part depends on another of it. isl finds which instances write what others read, and that no part comes before
one that it has to wait for.
"""

from __future__ import annotations

from itertools import product

import islpy as isl

from polyker.ir.expr import Expr, Read, walk
from polyker.ir.quasi_affine import is_quasi_affine, print_affine
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement, replaced
from polyker.poly.isl import Map, Set, dim, read_map, read_set, union_of
from polyker.poly.least import fixed_value
from polyker.poly.scop import access_relation, domain_text, parameters
from polyker.rewrite.core.fresh import Fresh
from polyker.structs import replace

# Most iterators by which a domain is split: each makes three parts of one (bounds the code).
MAX_SPLIT_ITERATORS = 2


def part_steps(program: TypedProgram) -> TypedProgram:
    """Return the program with statements of time loops in parts whose instances do not depend on each other."""
    fresh = Fresh(program)

    body: list[TypedNode] = []
    for node in program.body:
        loop = isinstance(node, TypedLoop)
        body += replaced((node,), lambda s: _parts(program, fresh, s)) if loop else (node,)
    return program if tuple(body) == program.body else fresh.finish(tuple(body))


def _parts(program: TypedProgram, fresh: Fresh, statement: TypedStatement) -> tuple[TypedStatement, ...]:
    """Return a statement in parts, itself where that does not free its instances of each other."""
    if statement.op != "set" or statement.scatters or len(statement.iterators) - statement.outer < 2:
        return (statement,)
    waits = _waits(program, statement)
    if waits is None or waits.is_empty():
        return (statement,)
    planes = _planes(program, statement, waits)
    if not planes or len(planes) > MAX_SPLIT_ITERATORS:
        return (statement,)
    head, names = parameters(program), f"{statement.name}[{', '.join(statement.iterators)}]"
    domain, found = read_set(statement.domain), list[Set]()
    for signs in product("<=>", repeat=len(planes)):
        where = " and ".join(f"{i} {sign} {print_affine(e)}" for sign, (i, e) in zip(signs, planes, strict=True))
        part = domain.intersect(read_set(f"{head}{{ {names} : {where} }}"))
        if not part.is_empty():
            found.append(part)
    if len(found) < 2 or not _in_order(waits, found):
        return (statement,)
    made = [statement.name, *(fresh.statement() for _ in found[1:])]
    return tuple(
        replace(statement, name=name, domain=domain_text(part, name)) for name, part in zip(made, found, strict=True)
    )


def _waits(program: TypedProgram, statement: TypedStatement) -> Map | None:
    """Return the pairs of instances of one step of which the second has to wait for the first; None where that is not known."""
    domain = read_set(statement.domain)

    def elements(subscripts: tuple[Expr, ...]) -> Map:
        return read_map(access_relation(program, statement, statement.target, subscripts)).intersect_domain(domain)

    write, pairs = elements(statement.subscripts), list[Map]()
    for read in {e for e in walk(statement.expr) if isinstance(e, Read) and e.tensor == statement.target}:
        if read.pad is not None or not all(map(is_quasi_affine, read.subscripts)):
            return None
        both = write.apply_range(elements(read.subscripts).reverse())
        pairs.append(both.union(both.reverse()))
    waits = union_of(pairs)
    if waits is None:
        return None
    for d in range(statement.outer):
        waits = waits.equate(dim.in_, d, dim.out, d)
    return waits.intersect(isl.Map.lex_lt(domain.get_space()).align_params(waits.get_space())).coalesce()


def _planes(program: TypedProgram, statement: TypedStatement, waits: Map) -> list[tuple[str, Expr]]:
    """Return iterators, each with a function of the loops around, so that of two instances one of which waits for the other
    either has one of the iterators at its function's value; none where there are no such."""
    found: list[tuple[str, Expr]] = []
    left = waits
    for basic in waits.domain().union(waits.range()).get_basic_sets():
        for d in range(statement.outer, len(statement.iterators)):
            value = fixed_value(isl.Set.from_basic_set(basic), statement.iterators, d, statement.outer)
            plane = None if value is None else (statement.iterators[d], value)
            if plane is not None and plane not in found:
                found.append(plane)
    head, names = parameters(program), f"{statement.name}[{', '.join(statement.iterators)}]"
    for i, e in found:
        here = read_set(f"{head}{{ {names} : {i} = {print_affine(e)} }}")
        left = left.subtract_domain(here).subtract_range(here)
    return sorted(found, key=lambda p: statement.iterators.index(p[0])) if left.is_empty() else []


def _in_order(waits: Map, parts: list[Set]) -> bool:
    """Whether no instance waits for one of a later part, or for one of its own."""
    for n, part in enumerate(parts):
        for later in parts[n:]:
            if not waits.intersect_domain(later).intersect_range(part).is_empty():
                return False
    return True
