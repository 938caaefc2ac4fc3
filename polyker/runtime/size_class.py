"""Classes of sizes: a symbolic program is right for all sizes, and scheduled anew for sizes of another class.

A tile that is best for extents of 1000 is cut in halves by extents of 20. So calls whose sizes are alike share a kernel, which
is chosen as if the sizes were the class's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyker.ir.typed import EXACT, TypedProgram

# Sizes up to EXACT are classes of their own; larger ones are rounded to 2^k or 3 * 2^k, and from this one on are one class.
LARGEST = 1024

Likely = tuple[tuple[str, int], ...]


def size_class(program: TypedProgram, values: Mapping[str, int]) -> Likely:
    """Return the class of a call's sizes: the value that stands for each of them, by generated name.

    >>> rounded(16), rounded(17), rounded(27), rounded(28), rounded(41), rounded(5000)
    (16, 16, 24, 32, 48, 1024)
    """
    return tuple((name, rounded(values[name])) for name, _ in program.sizes)


def rounded(size: int) -> int:
    """Return the size that stands for one in its class: the nearest by ratio."""
    if size <= EXACT:
        return max(1, size)
    steps = (1 << k | part for k in range(4, 11) for part in (0, 1 << (k - 1)))
    return min(LARGEST, min(steps, key=lambda s: max(s / size, size / s)))
