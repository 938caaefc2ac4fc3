"""Reindex reductions over a narrow band by its diagonals.

Before: `A[j,i] += Z[k,i] * Y[j,k]  where i-8 <= k <= i+8`. After: `A[j,i] += Z[i+d,i] * Y[j,i+d]  for d in -8:9`. A tile of
several values of i has as many iterations then as one of them; before it had those of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from polyker.ir.quasi_affine import add, index, indices_of, is_quasi_affine, scale
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement, replaced
from polyker.poly.boxes import ends
from polyker.poly.isl import Set, dim, read_set
from polyker.poly.scop import image
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import reindexed

# Extent of a register tile along its vectors (four of 16 floats), and along its other index (experience values).
TILE_VECTOR_ELEMENTS, TILE_ROWS = 64, 14
# Least ratio of a tile's iterations before to those by diagonals, where neighbouring results shared an operand (experience
# value).
MIN_ITERATION_RATIO = 1.8


def number_diagonals(program: TypedProgram) -> TypedProgram:
    """Return the program with the reductions along narrow bands numbered by their diagonals."""
    fresh = Fresh(program)

    def change(statement: TypedStatement) -> Iterable[TypedNode]:
        if statement.reduced and not statement.is_ordered and not read_set(statement.domain).is_box():
            for iterator in statement.reduced:
                statement = _numbered(program, fresh, statement, iterator)
        return (statement,)

    return fresh.finish(replaced(program.body, change))


def _numbered(program: TypedProgram, fresh: Fresh, statement: TypedStatement, iterator: str) -> TypedStatement:
    """Return a statement with one reduction index counted from the diagonal of a narrow band that it lies in."""
    if iterator in statement.seldom or any(iterator in indices_of(s) for s in statement.subscripts):
        return statement
    if not all(is_quasi_affine(s) for r in statement.reads() for s in r.subscripts if iterator in indices_of(s)):
        return statement
    domain, place = read_set(statement.domain), statement.iterators.index(iterator)
    extent = ends(domain, place)
    rows = [indices_of(r.subscripts[-1]) for r in statement.reads() if r.subscripts]
    moved = {i for r in statement.reads() for s in r.subscripts for i in indices_of(s)}
    for other, slope in _slopes(statement, domain, place):
        diagonal = fresh.iterator()
        new = (*statement.iterators[:place], diagonal, *statement.iterators[place + 1 :])
        found = image(program, statement, new, where=f"{iterator} = {slope}*{other} + {diagonal}")
        band = ends(found, place)
        if band is None:
            continue
        width = band[1] - band[0] + 1
        shares = other in moved  # else it is a window: an operand is shared by diagonals, too
        tile = (
            TILE_VECTOR_ELEMENTS
            if not shares or any(other in row and iterator not in row for row in rows)
            else TILE_ROWS
        )
        together = width + abs(slope) * (tile - 1)
        if extent is not None:
            together = min(together, extent[1] - extent[0] + 1)
        if together < (MIN_ITERATION_RATIO if shares else 1) * width:
            continue
        value = {iterator: add(scale(slope, index(other)), index(diagonal))}
        reduced = tuple(diagonal if i == iterator else i for i in statement.reduced)
        return reindexed(statement, new, found, value, reduced=reduced)
    return statement


def _slopes(statement: TypedStatement, domain: Set, place: int) -> Iterator[tuple[str, int]]:
    """Yield the (other iterator, its factor) by which a constraint bounds an iterator, each once."""
    seen = set[tuple[str, int]]()
    for basic in domain.get_basic_sets():
        for constraint in basic.get_constraints():
            own = constraint.get_coefficient_val(dim.set, place).to_python()
            if abs(own) != 1:
                continue
            for d in range(statement.outer, len(statement.iterators)):
                name = statement.iterators[d]
                factor = constraint.get_coefficient_val(dim.set, d).to_python()
                if factor and name not in statement.reduced and (name, -own * factor) not in seen:
                    seen.add((name, -own * factor))
                    yield name, -own * factor
