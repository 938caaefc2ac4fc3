"""Unfold overlapping windows of an operand into a copy (im2col).

Before: `O[f,h,w] += X[c,h+r,w+s] * K[f,c,r,s]`. After: `P[c,r,s,h,w] = X[c,h+r,w+s];  O[f,h,w] += P[c,r,s,h,w] * K[f,c,r,s]`,
in which h and w, and c, r and s walk dimensions together and are merged (polyker.rewrite.indexing.collapse_dims). It pays where
rows are so short that vectors along them would be half empty, and each copied element is used often.
"""

from __future__ import annotations

from math import ceil, prod

from polyker.cost.table import COPY_ALONE, WRITE
from polyker.ir.expr import IndexExpr, Literal, Read, reads_in
from polyker.ir.quasi_affine import coefficients, indices_of
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.machine.model import Target
from polyker.poly.boxes import corners
from polyker.poly.isl import read_set
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import replaced_after
from polyker.rewrite.materialise.pack_operand import Packed, PackedLayout, pack_elements

# How many times as long a step takes in place, where rows begin at any address and the loops over a window are short; and along
# an index that the windows do not move with (experience values).
IN_PLACE_FACTOR, FIXED_INDEX_FACTOR = 1.35, 1.1


def unfold_windows(program: TypedProgram, target: Target) -> TypedProgram:
    """Return the program with the windows of its reductions copied where that fills the vectors."""
    if program.sizes:
        return program
    fresh = Fresh(program)

    def change(before: TypedStatement | None, node: TypedStatement) -> list[TypedStatement] | None:
        read = _window(node, target)
        if read is None:
            return None
        packed = _unfolded(program, fresh, node, read)
        if before is None:
            return [packed.copy, packed.statement]
        # Not between a reduction and the statement that starts it.
        starts = before.target == node.target and isinstance(before.expr, Literal)
        return [packed.copy, before, packed.statement] if starts else [before, packed.copy, packed.statement]

    return fresh.finish(replaced_after(program.body, change))


def _window(statement: TypedStatement, target: Target) -> Read | None:
    """Return the read whose windows are worth a copy: through it rows are shorter than vectors, and together they are not."""
    if statement.op == "set" or not statement.reduced:
        return None
    reads = list(dict.fromkeys(reads_in(statement.expr)))
    windows = [r for r in reads if _is_window(statement, r)]
    names = [s.name if isinstance(s, IndexExpr) else None for s in statement.subscripts]
    if len(reads) < 2 or len(windows) != 1 or None in names or len(set(names)) != len(names):
        return None
    box = corners(read_set(statement.domain))
    inside = {i for s in windows[0].subscripts for i in indices_of(s)}
    rows = []  # the last dimensions of the result that the windows move along
    for name in reversed(names):
        if name not in inside or any(name in indices_of(s) for r in reads if r not in windows for s in r.subscripts):
            break
        rows.append(name)
    if box is None or len(rows) < 2:
        return None
    extents = {i: high - low + 1 for i, (low, high) in zip(statement.iterators, box, strict=True)}
    lanes = target.lanes(statement.acc.real.itemsize)
    steps = prod(extents.values()) / (lanes * target.fma_per_cycle)

    def filled(extent: int) -> float:
        """Return the cycles of the arithmetic by vectors along so many values."""
        return steps * ceil(extent / lanes) * lanes / extent

    in_place = IN_PLACE_FACTOR * filled(extents[rows[0] or ""])
    for name in names:
        if name is not None and name not in inside:
            # Vectors along an index that the windows do not move with: what moves with it is packed, and the result.
            others = [r for r in reads if any(name in indices_of(s) for s in r.subscripts)]
            copied = [prod(extents[i] for i in {i for s in r.subscripts for i in indices_of(s)}) for r in others]
            in_place = min(in_place, FIXED_INDEX_FACTOR * filled(extents[name]) + COPY_ALONE * sum(copied))
    elements = prod(extents[i] for i in inside)
    fits = elements * statement.acc.itemsize <= target.caches[-1].size // 4
    unfolded = filled(prod(extents[i or ""] for i in rows)) + 2 * WRITE * elements  # padded, and packed again by blocks
    return windows[0] if fits and unfolded < in_place else None


def _is_window(statement: TypedStatement, read: Read) -> bool:
    """Whether a subscript moves with an index of the result and with a term."""
    if any(coefficients(s) is None for s in read.subscripts) or read.tensor == statement.target:
        return False
    both = (indices_of(s) for s in read.subscripts)
    return any(b & set(statement.reduced) and b - set(statement.reduced) for b in both)


def _unfolded(program: TypedProgram, fresh: Fresh, statement: TypedStatement, read: Read) -> Packed:
    """Return the copy, and the reduction that reads it: terms first, then the result's indices, each in their order elsewhere."""
    inside = {i for s in read.subscripts for i in indices_of(s)}
    elsewhere = [r for r in reads_in(statement.expr) if r != read]
    order = [s.name for r in elsewhere for s in r.subscripts if isinstance(s, IndexExpr)]
    terms = [i for i in dict.fromkeys((*order, *statement.reduced)) if i in inside and i in statement.reduced]
    kept = [s.name for s in statement.subscripts if isinstance(s, IndexExpr) and s.name in inside]
    element = (*terms, *kept)

    return pack_elements(program, fresh, statement, read, PackedLayout.over("windows", element, read))
