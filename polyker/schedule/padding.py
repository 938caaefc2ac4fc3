"""Padded operands that are worth a copy with the padding in it."""

from __future__ import annotations

from math import prod

from polyker.ir.expr import Read
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.schedule.measure import Measured

# How often a padded cell is read, at least, for a copy of it to pay.
REUSE = 1.5


def reread_padding(measured: Measured) -> tuple[Read, ...]:
    """Return the padded reads that reach each cell several times: a copy with the padding in it costs less than the tests."""
    if measured.statement.outer:
        return ()
    total = prod(measured.extent(i) for i in measured.bounds)
    found = []
    for a in measured.accesses:
        if a.read is None or a.read.pad is None or not all(is_quasi_affine(s) for s in a.read.subscripts):
            continue
        if total >= REUSE * measured.footprint(a):
            found.append(a.read)
    return tuple(found)
