"""Classes of sizes: a symbolic program is right for all sizes, and scheduled anew for sizes of another class.

A tile that is best for extents of 1000 is cut in halves by extents of 20. So calls whose sizes are alike share a kernel, which
is chosen as if the sizes were the class's own. Those that are the same in all calls of a class are constants of its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyker.record.records import CallRecord
from polyker.record.sizes import MAX_EXACT_SIZE, MIN_LARGE_SIZE

# Sizes up to MAX_EXACT_SIZE are classes of their own. Larger ones are rounded up, so that a tile which fits the class fits them:
# to the next of 2^k, 1.25, 1.5 and 1.75 * 2^k that is a multiple of CLASS_STEP. From MIN_LARGE_SIZE on
# tiles are the same; what counts then is which cache operands come from, and a class is what is nearest of MIN_LARGE_SIZE * 4^k,
# up to MAX_CLASS_SIZE (chosen: memory, whatever is larger).
CLASS_STEP, MAX_CLASS_SIZE = 8, 1 << 22

Likely = tuple[tuple[str, int], ...]


def size_class(call: CallRecord, values: Mapping[str, int]) -> Likely:
    """Return the class of a call's sizes: the value that stands for each of them, by generated name.

    >>> rounded(16), rounded(17), rounded(33), rounded(65), rounded(100), rounded(1000), rounded(5000)
    (16, 17, 40, 80, 112, 1024, 4096)
    """
    return tuple((name, rounded(values[name])) for name, _ in call.sizes)


def rounded(size: int) -> int:
    """Return the size that stands for one in its class."""
    if size <= MAX_EXACT_SIZE:
        return size
    if size <= MIN_LARGE_SIZE:
        step = max(CLASS_STEP, 1 << (size - 1).bit_length() - 3)
        return -(-size // step) * step
    steps = range(MIN_LARGE_SIZE.bit_length() - 1, MAX_CLASS_SIZE.bit_length(), 2)
    return min((1 << k for k in steps), key=lambda s: max(s / size, size / s))


def least(value: int) -> int:
    """Return the least of the sizes that a value stands for.

    >>> least(16), least(40), least(512), least(1024), least(4096)
    (16, 33, 449, 897, 2049)
    """
    if value <= MAX_EXACT_SIZE:
        return value
    if value > MIN_LARGE_SIZE:
        return value // 2 + 1
    return max(MAX_EXACT_SIZE, value - max(CLASS_STEP, 1 << (value - 1).bit_length() - 3)) + 1
