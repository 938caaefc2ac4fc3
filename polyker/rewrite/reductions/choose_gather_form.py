"""Choose gather form for scattered reductions where that is cheaper (polyker.rewrite.reductions.gather_form)."""

from __future__ import annotations

from polyker.cost.choose import choose
from polyker.cost.measure import Layouts, measure
from polyker.cost.own_distances import elements_apart
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.machine.model import Target
from polyker.rewrite.reductions.gather_form import gather_terms


def gather_where_cheaper(program: TypedProgram, target: Target, layout: Layouts) -> TypedProgram:
    """Return the program with scattered terms gathered where the model's register tiles cost less."""

    def cycles(found: TypedProgram, statement: TypedStatement) -> float:
        # For a term: both ways have the same ones, though the box around the gathered ones has more.
        measured = measure(found, statement, layout)
        kept = statement.kept
        return choose(measured, elements_apart(found, statement, kept), statement.reduced, target).cost

    return gather_terms(program, lambda found, before, after: cycles(found, after) < cycles(found, before))
