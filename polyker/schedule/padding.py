"""Padded operands that are worth a copy with the padding in it."""

from __future__ import annotations

from math import prod

from polyker.ir.expr import Read
from polyker.ir.quasi_affine import coefficients, is_quasi_affine
from polyker.schedule.measure import Measured

# How often a padded cell is read, at least, for a copy of it to pay; where neighbouring results read cells that lie apart, each
# lane of a vector would be tested and loaded by itself.
REUSE, REUSE_APART = 2, 1.5


def reread_padding(measured: Measured) -> tuple[Read, ...]:
    """Return the padded reads that reach each cell several times: a copy with the padding in it costs less than the tests.

    Of what runs with the statement, in common loops, and writes the tensor there is nothing to copy before.
    """
    total = prod(measured.extent(i) for i in measured.bounds)
    found = []
    for a in measured.accesses:
        if a.read is None or a.read.pad is None or not all(is_quasi_affine(s) for s in a.read.subscripts):
            continue
        if measured.statement.outer or not measured.may_copy(a):
            continue
        if total >= (REUSE_APART if _is_apart(a.read) else REUSE) * measured.footprint(a):
            found.append(a.read)
    return tuple(found)


def _is_apart(read: Read) -> bool:
    """Whether some index moves a read by several cells of a dimension at once."""
    found = (pair for s in read.subscripts for pair in (coefficients(s) or {}).items())
    return any(abs(n) > 1 for index, n in found if index)
