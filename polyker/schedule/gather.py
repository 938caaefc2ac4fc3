"""Whether a reduction whose terms are scattered is better computed cell by cell (polyker.rewrite.gather_form)."""

from __future__ import annotations

from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.rewrite.gather_form import gather_terms
from polyker.schedule.choose import choose
from polyker.schedule.measure import Layouts, measure
from polyker.schedule.own_distances import cells_apart
from polyker.target.model import Target

# How many times as cheap it has to be: at both ends of a row cells have fewer terms, which the model of whole tiles leaves out.
SURE = 3


def gather_where_cheaper(program: TypedProgram, target: Target, layout: Layouts) -> TypedProgram:
    """Return the program with scattered terms gathered where the model's register tiles cost less."""

    def cycles(found: TypedProgram, statement: TypedStatement) -> float:
        measured = measure(found, statement, layout)
        kept = tuple(i for i in statement.iterators if i not in statement.reduced)
        plan = choose(measured, cells_apart(found, statement, kept), statement.reduced, target)
        return plan.cost * measured.points

    return gather_terms(program, lambda found, before, after: SURE * cycles(found, after) < cycles(found, before))
