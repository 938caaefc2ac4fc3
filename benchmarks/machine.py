"""What the core can do at best, measured: fused multiply-adds from registers, and copies from each level of memory."""

from __future__ import annotations

from dataclasses import dataclass

from polyker.explain import rates
from polyker.explain.rates import LLVM, bandwidth
from polyker.target.detect import target as find_target


def peak(dtype: str, target: str = "cpu", seconds: float = 0.2) -> float:
    """Return the FLOP/s of the core with a target's vectors: the best of several short loops."""
    return rates.peak(dtype, find_target(target), seconds)


def rounded(size: int) -> int:
    """Return a size with two significant bits: as many copies as that are worth measuring."""
    shift = max(0, size.bit_length() - 2)
    return max(4096, (size >> shift) << shift)


@dataclass(frozen=True, slots=True)
class Machine:
    """The measured machine: FLOP/s by dtype."""

    peaks: dict[str, float]

    def floor(self, flops: int | None, moved: int, dtype: str) -> float:
        """Return the seconds that the machine needs at least: the longer of arithmetic and memory."""
        work = 0.0 if flops is None else flops / self.peaks.get(dtype, self.peaks["f32"])
        return max(work, moved / bandwidth(rounded(moved)))


def measure() -> Machine:
    """Measure this core."""
    return Machine({dtype: peak(dtype) for dtype in LLVM})


def levels() -> list[tuple[str, int]]:
    """Return sizes of copies that each level of memory holds, half full, and one beyond the last."""
    return rates.levels(find_target("cpu"))
