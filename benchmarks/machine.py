"""What the core can do at best, measured: fused multiply-adds from registers, and copies from each level of memory."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from polyker.codegen.llvm.jit.detect import target as find_target
from polyker.explain import rates
from polyker.explain.rates import LLVM, bandwidth

ROUNDS = 10_000  # of the loop that tells the core's pace: some 0.06 ms


def peak(dtype: str, target: str = "cpu", seconds: float = 0.2) -> float:
    """Return the FLOP/s of the core with a target's vectors: the best of several short loops."""
    return rates.peak(dtype, find_target(target), seconds)


def rounded(size: int) -> int:
    """Return a size with two significant bits: as many copies as that are worth measuring."""
    shift = max(0, size.bit_length() - 2)
    return max(4096, (size >> shift) << shift)


class Machine(Struct, frozen=True):
    """The measured machine: FLOP/s by dtype."""

    peaks: dict[str, float]

    def floor(self, flops: int | None, moved: int, dtype: str) -> float:
        """Return the seconds that the machine needs at least: the longer of arithmetic and memory."""
        work = 0.0 if flops is None else flops / self.peaks.get(dtype, self.peaks["f32"])
        return max(work, moved / bandwidth(rounded(moved)))


class Pace(Struct):
    """Whether the core runs as fast as it has been seen to: virtual machines share theirs with others, unseen.

    Called, it takes some 0.1 ms of fused multiply-adds and touches no memory. `best`: the fewest seconds they took.
    """

    best: float = float("inf")
    slack: float = 1.12

    def __call__(self) -> bool:
        """Return whether the multiply-adds took nearly the least time so far."""
        seconds = min(rates.fma_seconds("f32", find_target("cpu"), ROUNDS) for _ in range(2))
        self.best = min(self.best, seconds)
        return seconds <= self.slack * self.best


def name() -> str:
    """Return what the system calls the processor, with LLVM's name of its kind."""
    kind = find_target("cpu").cpu
    with suppress(OSError):
        known = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return f"{known[1]} ({kind})" if known else kind
    return kind


def commit() -> str:
    """Return the commit that is measured, with `-dirty` where files differ from it; the version where there is no repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return metadata.version("polyker")


def measure() -> Machine:
    """Measure this core."""
    return Machine({dtype: peak(dtype) for dtype in LLVM})


def levels() -> list[tuple[str, int]]:
    """Return sizes of copies that each level of memory holds, half full, and one beyond the last."""
    return rates.levels(find_target("cpu"))
