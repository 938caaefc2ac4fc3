"""Which reads can be packed: copied into a layout of their own."""

from __future__ import annotations

from polyker.ir.expr import Read
from polyker.ir.quasi_affine import coefficients, indices_of


def can_pack(read: Read, vector: str) -> bool:
    """Whether a read's subscripts are affine and move with the vector iterator."""
    parts = [coefficients(s) for s in read.subscripts]
    return all(p is not None for p in parts) and any(p is not None and p.get(vector) for p in parts)


def can_pack_block(read: Read) -> bool:
    """Whether each subscript of a read is affine in an iterator of its own, and none is padded."""
    if read.pad is not None:
        return False
    parts = [coefficients(s) for s in read.subscripts]
    used = [i for s in read.subscripts for i in indices_of(s)]
    return all(p is not None for p in parts) and len(used) == len(set(used))
