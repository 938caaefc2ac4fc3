"""Peel the first elements of a recurrence that read padding, so that the others read without tests.

Before: `Y[n,t] = X[n,t] - a * Y[n,t-2; pad=0]  for t in 0:T`. After: the same for t in 0:2, and
`Y[n,t] = X[n,t] - a * Y[n,t-2]  for t in 2:T`.
"""

from __future__ import annotations

from collections.abc import Iterable

from polyker.ir.expr import Expr, Read, reads_in
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement, replaced
from polyker.poly.isl import Map, Set, read_map, read_set
from polyker.poly.scop import access_relation, domain_text, instances_within, tensor_box
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.indexing.affine_parts import without_padding
from polyker.structs import replace


def part_first_elements(program: TypedProgram) -> TypedProgram:
    """Return the program with each recurrence apart from its first elements, where its own padded reads leave the tensor."""
    fresh = Fresh(program)

    def change(statement: TypedStatement) -> Iterable[TypedNode]:
        return _parts(program, fresh, statement)

    return fresh.finish(replaced(program.body, change))


def _parts(program: TypedProgram, fresh: Fresh, statement: TypedStatement) -> list[TypedStatement]:
    own = [r for r in reads_in(statement.expr) if r.tensor == statement.target and r.pad is not None]
    if not own or statement.scatters or statement.op != "set" or statement.outer or not all(map(_is_plain, own)):
        return [statement]
    domain = read_set(statement.domain)
    inside = domain
    for read in own:
        inside = inside.intersect(instances_within(program, statement, read.tensor, read.subscripts))
    first, rest = domain.subtract(inside).coalesce(), inside.coalesce()
    if first.is_empty() or rest.is_empty():
        return [statement]
    if _come_later(program, statement, first, rest):
        return [statement]
    name = fresh.statement()
    plain = without_padding(program, statement, statement.expr, rest.reset_tuple_id())
    return [
        replace(statement, domain=domain_text(first, statement.name)),
        replace(statement, name=name, domain=domain_text(rest, name), expr=plain),
    ]


def _come_later(program: TypedProgram, statement: TypedStatement, first: Set, rest: Set) -> bool:
    """Whether one of the instances `first` has to come after one of the others, `rest`, as it does in the text."""

    def elements(subscripts: tuple[Expr, ...], instances: Set) -> Map:
        found = read_map(access_relation(program, statement, statement.target, subscripts))
        return found.intersect_domain(instances).intersect_range(read_set(tensor_box(program, statement.target)))

    later = Map.lex_lt(first.get_space()).intersect_domain(rest).intersect_range(first)
    writes = [elements(statement.subscripts, points) for points in (rest, first)]
    reads = [r for r in reads_in(statement.expr) if r.tensor == statement.target]
    if not all(is_quasi_affine(s) for r in reads for s in r.subscripts) or any(
        r.pad and r.pad.value is None for r in reads
    ):
        return True
    before, after = (
        [w, *(elements(r.subscripts, p) for r in reads)] for w, p in zip(writes, (rest, first), strict=True)
    )
    pairs = [(writes[0], used) for used in after] + [(used, writes[1]) for used in before]
    return any(not a.apply_range(b.reverse()).intersect(later).is_empty() for a, b in pairs)


def _is_plain(read: Read) -> bool:
    return read.pad is not None and read.pad.mode == "constant" and all(map(is_quasi_affine, read.subscripts))
