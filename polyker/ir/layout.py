"""How an operand lies in memory, as far as a kernel is specialised on it."""

from __future__ import annotations

from msgspec import Struct


class Layout(Struct, frozen=True):
    """Dense (strides follow from the extents), or strided (the kernel is given strides, in elements).

    For a strided layout `unit` is the dimension whose stride is known to be one element, or None. For a dense one `order` has its
    dimensions from the outermost to the innermost where that is not their own order: (1, 0) is a matrix by columns.
    """

    dense: bool = True
    unit: int | None = None
    order: tuple[int, ...] = ()


DENSE = Layout()
