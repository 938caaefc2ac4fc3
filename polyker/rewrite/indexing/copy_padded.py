"""Materialise padded operands that are read often enough to pay for the copy."""

from __future__ import annotations

from math import prod

from polyker.cost.measure import Layouts, MeasuredStatement, measure
from polyker.ir.expr import Read, reads_in
from polyker.ir.quasi_affine import coefficients, is_quasi_affine
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import replaced_after
from polyker.rewrite.indexing.affine_parts import parts_of
from polyker.rewrite.materialise.pack_operand import apart_from_border, pack_padded

# Least reads of a padded element that pay for a copy, in all and (experience values) where neighbouring results read elements
# that are not adjacent, each lane of a vector would be tested and loaded by itself.
MIN_READS, MIN_STRIDED_READS = 2, 1.5


def pad_computed(program: TypedProgram, layout: Layouts) -> TypedProgram:
    """Return the program with what it computes, and reads again with padding several times, copied with the padding.

    The copy is a statement like others: where the value is cheap, or is the result of a sum, it is computed right there, and the
    statements that read it may share loops with it. What is not computed is copied when the reader's nest is made.
    """
    fresh, made = Fresh(program), set[str]()

    def change(before: TypedStatement | None, node: TypedStatement) -> list[TypedStatement] | None:
        statement, reads = node, [r for r in reads_in(node.expr) if r.pad is not None and r.tensor in made]
        made.add(node.target)
        if not reads or not statement.reduced or statement.in_order or statement.is_ordered:
            return None
        copies: list[TypedStatement] = []
        for read in reread_padding(measure(program, statement, layout)):
            if read in reads:
                packed = pack_padded(program, fresh, statement, read)
                parts = apart_from_border(program, fresh, packed.copy)
                copies += [p for c in parts for p in parts_of(program, fresh, c)]
                statement = packed.statement
        # Not between a reduction and the statement that starts it.
        first = [] if before is None else [before]
        starts = before is not None and before.target == node.target
        return [*copies, *first, statement] if starts else [*first, *copies, statement]

    body = replaced_after(program.body, change)
    return fresh.finish(body) if body != program.body else program


def reread_padding(measured: MeasuredStatement) -> tuple[Read, ...]:
    """Return the padded reads that reach each element several times: a copy with the padding in it costs less than the tests.

    Of what runs with the statement, in common loops, and writes the tensor there is nothing to copy before.
    """
    total = prod(measured.extent(i) for i in measured.bounds)
    found = []
    for a in measured.accesses:
        if a.read is None or a.read.pad is None or not all(is_quasi_affine(s) for s in a.read.subscripts):
            continue
        # Common loops are the statement's own: the copy runs before them. Those of the text may change what is read.
        if (measured.statement.outer and measured.invariant is None) or not measured.may_copy(a):
            continue
        if total >= (MIN_STRIDED_READS if _is_apart(a.read) else MIN_READS) * measured.footprint(a):
            found.append(a.read)
    return tuple(found)


def _is_apart(read: Read) -> bool:
    """Whether some index moves a read by several elements of a dimension at once."""
    found = (pair for s in read.subscripts for pair in (coefficients(s) or {}).items())
    return any(abs(n) > 1 for index, n in found if index)
