"""Recognise statements that the threads of a block run as one reduction, or as a scan (thread_scans)."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from polyker.errors import LegalityError, failure, register
from polyker.ir.quasi_affine import indices_of, is_quasi_affine, lit, print_affine
from polyker.ir.typed import TypedStatement
from polyker.poly.dependences import Dependence
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import Scop, parameters
from polyker.schedule.tree.nodes import Member, MemberKind, Tree, loops
from polyker.schedule.tree.thread_scans import is_scan
from polyker.structs import replace

FOLD = register(
    "PK513",
    LegalityError,
    "the {extent} threads of `{loop}` combine what {statement} adds to one element, and not each has one wherever one has",
    "let one iterator of the reduction, of as many values as there are threads, be the loop's time, and fold nothing else in it",
)


def is_fold(statement: TypedStatement, member: Member) -> bool:
    """Return whether the terms of one element lie on different threads of a THREAD loop along x.

    Then the threads combine them, and the one of the loop's first iteration updates the element:
    polyker.codegen.passes.gpu.combine.
    """
    if member.kind is not MemberKind.THREAD or member.axis != "x" or member.extent < 2 or statement.op == "set":
        return False
    dealt = indices_of(member.time(statement.name))
    own = {i for s in statement.subscripts for i in (indices_of(s) if is_quasi_affine(s) else statement.iterators)}
    return bool(dealt & set(statement.reduced)) and not dealt & own


def run_together(scop: Scop, tree: Tree) -> dict[str, str]:
    """Return the statements of a tree that threads run together so, or scan, with the axis of the loop."""

    def together(statement: TypedStatement, member: Member) -> bool:
        return is_fold(statement, member) or is_scan(statement, member)

    return {s: m.axis for m in loops(tree) for s, _ in m.times if together(scop.statement(s), m)}


def check_terms(scop: Scop, member: Member, here: Mapping[str, isl.Set], around: tuple[Member, ...]) -> None:
    """Raise LegalityError unless all threads of a loop in which threads combine or scan have a term each wherever one has.

    `here`: the instances that come to the loop; `around`: the loops outside it.
    """
    for name, instances in here.items():
        statement = scop.statement(name)
        if not (is_fold(statement, member) or is_scan(statement, member)):
            continue
        head, iterators = parameters(scop.program), ", ".join(statement.iterators)

        def times(
            *members: Member, head: str = f"{head}{{ {name}[{iterators}] -> ", name: str = name, to: isl.Set = instances
        ) -> isl.Map:
            text = f"{head}[{', '.join(print_affine(m.time(name)) for m in members)}] }}"
            return read_map(text).intersect_domain(to)

        outer, place = times(*around).range(), times(*around, member)
        threads = read_set(f"{head}{{ [t] : 0 <= t < {member.extent} }}")
        if not (place.is_injective() and outer.flat_product(threads).is_subset(place.range())):
            raise failure(FOLD, loop=member.label, statement=name, extent=member.extent)


def as_run_together(scop: Scop, member: Member, dependence: Dependence) -> Member:
    """Return a loop as a dependence sees it: what threads combine into an element is used and made by the first of them, and what
    they scan is handed on from each thread to the next."""
    ends = [scop.statement(s) for s in {dependence.source, dependence.sink}]
    folds = {s.name for s in ends if s.target == dependence.tensor and is_fold(s, member)}
    scans = {s.name for s in ends if s.target == dependence.tensor and is_scan(s, member)}
    if dependence.source == dependence.sink and scans:
        return replace(member, kind=MemberKind.SERIAL)
    if not folds:
        return member
    return replace(member, times=tuple((s, lit(0) if s in folds else e) for s, e in member.times))
