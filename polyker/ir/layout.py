"""How an operand lies in memory, as far as a kernel is specialised on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """Dense row-major (strides follow from the extents), or strided (the kernel is given strides, in elements).

    For a strided layout `unit` is the dimension whose stride is known to be one element, or None.
    """

    dense: bool = True
    unit: int | None = None


DENSE = Layout()
