"""`python -m benchmarks peak`: whether a process needs the memory that explain() says, for programs with large intermediates.

Each program runs in a process of its own. What it needs from before its arrays are made until the call returns is compared with
the bytes of arguments, results and temporaries by explain(); its intermediates, each stored, would take over 256 MiB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct

ALLOWED = 0.1  # share by which the two may differ
LARGE = 256 << 20


class Program(Struct, frozen=True):
    """A program and the shapes of its inputs, all f32."""

    text: str
    shapes: tuple[tuple[int, ...], ...]


PROGRAMS = {
    "chain": Program(
        "A[i] = 2 * X[i] + 1; B[i] = exp(A[i]) - A[i]; C[i] = B[i] * A[i]; D[i] = tanh(C[i]) + B[i];"
        "E[i] = D[i] * C[i] - A[i]; F[i] = sqrt(abs(E[i])) + D[i]; O[i] = F[i] * E[i]",
        ((64 << 20,),),
    ),
    "attention": Program(
        "S[h,q,k] += Q[h,q,d] * K[h,k,d];  P[h,q,k] = exp(0.125 * S[h,q,k] - max[x](0.125 * S[h,q,x]));"
        "O[h,q,d] = sum[k](P[h,q,k] * V[h,k,d]) / sum[k](P[h,q,k])",
        ((8, 8192, 64),) * 3,
    ),
    "blur": Program(
        "T[i,j] = 0.25 * X[i,j] + 0.5 * X[i,j+1] + 0.25 * X[i,j+2]  for j in 0:11998;"
        "O[i,j] = 0.25 * T[i,j] + 0.5 * T[i+1,j] + 0.25 * T[i+2,j]  for i in 0:11998",
        ((12000, 12000),),
    ),
}


def _status(name: str) -> int:
    """Return a line of the kernel's account of this process's memory in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in /proc/self/status")


def child(name: str) -> dict[str, Any]:
    """Run a program in this process; return what explain() says in bytes, and what was needed."""
    import numpy as np

    import polyker as pk

    program = PROGRAMS[name]
    kernel = pk.op(program.text).compile(*(pk.f32[shape] for shape in program.shapes))
    explained = kernel.explain()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    rng = np.random.default_rng(0)
    inputs = []
    for shape in program.shapes:
        inputs.append(np.empty(shape, "f4"))
        rng.random(shape, "f4", out=inputs[-1])
    out = kernel(*inputs)
    return {
        "arguments": sum(a.nbytes for a in (*inputs, out)),
        "temporaries": explained.peak_bytes,
        "stored_each": sum(t.whole for t in explained.intermediates if t.from_text),
        "needed": _status("VmHWM") - before,
        "process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main(options: argparse.Namespace) -> int:
    """Run the programs and print a line each; return the exit status: 1 if one differs from what explain() says."""
    well = True
    print(f"{'program':12}{'each stored':>14}{'explain()':>12}{'needed':>12}   (MiB; arguments and results in both)")
    for name in options.program or PROGRAMS:
        command = [sys.executable, "-m", "benchmarks.peak_memory", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name:12} failed: {done.stderr.strip().splitlines()[-1:]}")
            well = False
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        said = found["arguments"] + found["temporaries"]
        verdict = []
        if abs(found["needed"] - said) > ALLOWED * said:
            verdict.append("explain() is wrong")
        if found["temporaries"] > ALLOWED * found["stored_each"]:
            verdict.append("intermediates are stored")
        well = well and not verdict
        shown = "".join(f"{n / 2**20:12.0f}" for n in (said, found["needed"]))
        print(f"{name:12}{found['stored_each'] / 2**20:14.0f}{shown}   {', '.join(verdict) or 'well'}")
    return int(not well)


def add_parser(commands: Any) -> None:
    """Add the command."""
    found = commands.add_parser("peak", help="compare the memory that processes need with what explain() says")
    found.add_argument("program", nargs="*", choices=[*PROGRAMS, []], help="only these")


if __name__ == "__main__":
    print(json.dumps(child(sys.argv[1])))
