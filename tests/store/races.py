"""Many processes on one cold cache, and processes that are killed: `python -m tests.store.races --processes 16 --kernels 200`.

Each process calls the same kernels in an order of its own, and checks the results. All together compile each kernel once.
With `--kills N` processes are killed at random moments, N of them, and what they left is checked.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from polyker.store import disk

PROGRAM = """
import random, sys, numpy as np, polyker as pk
from polyker.store import disk
count, seed = int(sys.argv[1]), int(sys.argv[2])
numbers = list(range(count))
random.Random(seed).shuffle(numbers)
x = np.arange(16.0)
for n in numbers:
    found = pk.op(f"y[i] = x[i] * {n} + {n % 7}")(x)
    assert (found == x * n + n % 7).all(), n
print(disk.counts.hits.get("kernel", 0), disk.counts.made.get("kernel", 0))
"""


def started(folder: Path, kernels: int, seed: int) -> subprocess.Popen[str]:
    """Start a process that calls so many kernels."""
    environment = os.environ | {"POLYKER_CACHE": "rw", "POLYKER_CACHE_DIR": str(folder), "POLYKER_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(kernels), str(seed)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def together(folder: Path, processes: int, kernels: int) -> tuple[int, int]:
    """Return how many kernels processes found on disk and how many they compiled; raises where one failed."""
    running = [started(folder, kernels, seed) for seed in range(processes)]
    hits = made = 0
    for process in running:
        out, errors = process.communicate()
        if process.returncode or "WARNING" in errors or "not used" in errors:
            raise AssertionError(errors)
        found, own = map(int, out.split())
        hits, made = hits + found, made + own
    return hits, made


def killed(folder: Path, kills: int, kernels: int, seed: int = 0) -> int:
    """Kill processes at random moments; return how many were killed before they ended. Raises where one left what is wrong."""
    choice, count = random.Random(seed), 0
    for n in range(kills):
        process = started(folder, kernels, n)
        time.sleep(choice.random() * 1.2)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        if process.returncode not in (0, -signal.SIGKILL):
            raise AssertionError(errors)
        count += process.returncode != 0
        if n % 8 == 7:
            disk.clear()
    return count


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both, print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--kills", type=int, default=0)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "cache"
        os.environ |= {"POLYKER_CACHE": "rw", "POLYKER_CACHE_DIR": str(folder)}
        hits, made = together(folder, chosen.processes, chosen.kernels)
        print(f"{chosen.processes} processes x {chosen.kernels} kernels: {made} compiled, {hits} found on disk")
        print(f"left half-written: {len(disk.files(suffix=disk.PART))}, damaged: {len(disk.verify())}")
        if chosen.kills:
            disk.clear()
            count = killed(folder, chosen.kills, chosen.kernels)
            print(f"{count} of {chosen.kills} processes killed; damaged entries: {len(disk.verify())}")
            together(folder, 2, chosen.kernels)


if __name__ == "__main__":
    main()
