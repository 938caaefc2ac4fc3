"""`python -m benchmarks.gpu`: polyker on a CUDA device beside torch (cuBLAS, cuDNN), torch.compile (Triton) and CuPy (cuTENSOR).

Needs a GPU, torch with CUDA, and nvcc or NVRTC; says so where something is missing. With --smoke three minutes that show what is
right, how fast, and what is broken. Ends with 0, with 1 where something is wrong, with 2 where there is no device.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

from benchmarks.gpu import full, smoke
from benchmarks.gpu.pool import ended_by_signals


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    found.add_argument("--smoke", action="store_true", help="the run of three minutes")
    found.add_argument("--out", metavar="FILE", help="write a line of JSON for each row, as it comes")
    found.add_argument("--dry-run", action="store_true", help="tiny sizes on cuda-sim, to see that everything runs")
    found.add_argument(
        "--stub", action="store_true", help="whatever driver there is, without torch: results not compared"
    )
    found.add_argument(
        "--case",
        default="*",
        metavar="GLOBS",
        help="only cases (in a smoke run: items) whose name or group matches, by commas",
    )
    found.add_argument("--peers", help=f"which to measure beside polyker, by commas ({','.join(full.PEERS)})")
    found.add_argument("--rounds", type=int, help="runs of each, at most (24; in a smoke run 8)")
    found.add_argument("--limit", type=float, help="seconds of a case, at most (60; in a smoke run 15 or 30)")
    found.add_argument("--seconds", type=float, default=170.0, help="of a smoke run (%(default).0f)")
    found.add_argument("--jobs", type=int, help="processes that compile (one for each core)")
    found.add_argument("--json", metavar="FILE", help="write all figures of a full run at its end")
    # Functions `module:function` that return more cases, for tests of what bad ones do.
    found.add_argument("--add", action="append", default=[], help=argparse.SUPPRESS)
    return found


def main(argv: list[str] | None = None) -> int:
    """Measure and print; returns 2 where there is no device, 1 where something is wrong."""
    reader = parser()
    options = reader.parse_args(argv)
    unknown = set(options.peers.split(",") if options.peers else ()) - set(full.PEERS)
    if unknown:
        reader.error(f"no such peers: {', '.join(sorted(unknown))}")
    options.kind = "stub" if options.stub else "dry" if options.dry_run else "cuda"
    os.environ.setdefault("CUPY_ACCELERATORS", "cub,cutensor")
    # Processes that compile and those that measure have one cache.
    cache = os.path.join(tempfile.gettempdir(), f"polyker-inductor-{os.getuid() if hasattr(os, 'getuid') else 0}")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", cache)
    with ended_by_signals():
        return smoke.run(options) if options.smoke else full.run(options)


if __name__ == "__main__":
    sys.exit(main())
