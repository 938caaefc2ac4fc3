"""`python -m benchmarks.gpu`: polyker on a CUDA device beside torch (cuBLAS, cuDNN), torch.compile (Triton) and CuPy (cuTENSOR).

Needs a GPU, torch with CUDA, and nvcc or NVRTC; says so where something is missing. Every result is compared with torch's in f64
before anything is timed. Random data; buffers are rotated, and more than the L2 cache is written between two runs; times by CUDA
events. Shares are of the better of two roofs, both measured in the same run: the bytes that must move at the rate of a copy,
and the operations at the rate of multiply-adds between registers.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import polyker as pk
from benchmarks.gpu_cases import Case, cases
from benchmarks.gpu_machine import Cuda, DryRun
from polyker.compiling import target_named

PEERS = ("torch", "triton", "cupy")
# What is to be reached on an H200: (cases, figure, at least).
BARS = (
    ("matmul-nn-4096", "x torch", 0.80),
    ("reduction", "of roof", 0.85),
    ("row-wise", "of roof", 0.85),
    ("transpose", "of roof", 0.80),
    ("contraction", "geometric mean x torch", 1.1),
)
_TINY = 12


def peers(case: Case, machine: Cuda | DryRun, wanted: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Return what computes the case besides polyker, of the peers that are wanted and there."""
    torch = machine.torch
    found: dict[str, Callable[..., Any]] = {}
    if "torch" in wanted:
        found["torch"] = lambda *xs: case.torch(torch, *xs)
    if "triton" in wanted:
        found["triton"] = torch.compile(lambda *xs: case.torch(torch, *xs), dynamic=False)
    if "cupy" in wanted and case.einsum:
        import cupy

        found["cupy"] = lambda *xs: cupy.einsum(case.einsum, *map(cupy.from_dlpack, xs))
    return found


def inputs_of(case: Case, machine: Cuda | DryRun) -> list[Any]:
    """Return random inputs."""
    rows = case.shapes[0][0]
    return [
        machine.rows(s, rows) if i in case.indices else machine.random(s) for i, s in enumerate(case.shapes)
    ]  # fmt: skip


def checked(case: Case, machine: Cuda | DryRun, inputs: list[Any], found: Any) -> float:
    """Return the largest error by the largest sum of magnitudes; raises AssertionError where it is too large."""
    wide = [x if i in case.indices else x.double() for i, x in enumerate(inputs)]
    want = case.torch(machine.torch, *wide)
    sizes = case.torch(machine.torch, *(x.abs() for x in wide)).abs()
    scale = max(float(want.abs().max()), float(sizes.max()))
    error = float((found.double() - want).abs().max()) / (scale or 1.0)
    assert error <= (1e-5 if case.flop else 0.0), f"the largest error is {error:.2g} of the largest value"
    return error


def measured(
    case: Case, machine: Cuda | DryRun, rounds: int, roofs: tuple[float, float], wanted: Sequence[str]
) -> dict[str, Any]:
    """Return the figures of one case, times in seconds; raises AssertionError where the result is wrong."""
    copies = min(8, max(1, -(-2 * machine.l2 // case.read)))
    inputs = [inputs_of(case, machine) for _ in range(copies)]
    types = [(pk.i64 if i in case.indices else pk.f32)[s] for i, s in enumerate(case.shapes)]
    kernel = pk.op(case.text).compile(*types, target=machine.target)
    result = case.torch(machine.torch, *inputs[0])
    outs = [machine.empty(tuple(result.shape)) for _ in range(copies)]
    kernel(*inputs[0], out=outs[0])
    kernel.sync()
    figures: dict[str, Any] = {"case": case.name, "group": case.group}
    figures["error"] = checked(case, machine, inputs[0], outs[0])
    ours = machine.timed(lambda n: kernel(*inputs[n % copies], out=outs[n % copies]), rounds)
    figures |= {"polyker": ours.device, "host": ours.host}
    moved = case.read + 4 * result.numel()
    figures["roof"] = max(moved / roofs[0], case.flop / roofs[1])
    for name, work in peers(case, machine, wanted).items():
        try:
            figures[name] = machine.timed(lambda n, work=work: work(*inputs[n % copies]), rounds).device
        except Exception as error:  # whatever goes wrong there is not polyker's
            figures[name] = None
            print(f"{case.name:20} {name}: {type(error).__name__}: {str(error).splitlines()[0]}")
    return figures


def available(machine: Cuda | DryRun, wanted: Sequence[str]) -> list[str]:
    """Return the peers that are wanted and can be imported; says which cannot."""
    needs = {"torch": "torch", "triton": "triton", "cupy": "cupy"}
    found = []
    for name in wanted:
        try:
            __import__(needs[name])
            found.append(name)
        except ImportError as error:
            print(f"without {name}: {error}")
    return [name for name in found if name == "torch"] if isinstance(machine, DryRun) else found


def line(figures: dict[str, Any], names: Sequence[str]) -> str:
    """Return a row of the table."""
    ours = figures["polyker"]
    share = f"{figures['roof'] / ours:.1%}" if figures["roof"] else "-"
    row = f"{figures['case']:20} {1e3 * ours:10.3f} {share:>8} {1e6 * figures['host']:8.0f}"
    for name in names:
        time = figures.get(name)
        row += f" {'-':>10} {'-':>6}" if time is None else f" {1e3 * time:10.3f} {time / ours:6.2f}"
    return row


def summary(figures: Sequence[dict[str, Any]]) -> list[str]:
    """Return the least shares and ratios of each group, and how they stand to the bars."""
    lines = []
    for group in dict.fromkeys(f["group"] for f in figures):
        members = [f for f in figures if f["group"] == group]
        least = min(members, key=lambda f: f["roof"] / f["polyker"])
        ratios = [f["torch"] / f["polyker"] for f in members if f.get("torch")]
        mean = f", {statistics.geometric_mean(ratios):.2f} x torch" if ratios else ""
        share = least["roof"] / least["polyker"]
        lines.append(f"{group}: {len(members)} cases{mean}; least {share:.1%} of its roof ({least['case']})")
    for name, what, bar in BARS:
        members = [f for f in figures if name in (f["case"], f["group"])]
        if what == "of roof":
            values = [f["roof"] / f["polyker"] for f in members]
        else:
            values = [f["torch"] / f["polyker"] for f in members if f.get("torch")]
        if values:
            value = statistics.geometric_mean(values) if what.startswith("geo") else min(values)
            lines.append(f"bar: {name} {value:.2f} {what}, {'reached' if value >= bar else 'NOT reached'} ({bar:.2f})")
    return lines


def _machine(*, dry: bool) -> Cuda | DryRun:
    """Return what is measured; raises ImportError or BackendUnavailable where that cannot be."""
    import torch

    if dry:
        return DryRun(torch)
    if not torch.cuda.is_available():
        raise ImportError("torch finds no CUDA device")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return Cuda(torch, target_named("cuda"))


def main(argv: list[str] | None = None) -> int:
    """Measure and print; returns 2 where there is no device, 1 where a result is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument(
        "--case", default="*", metavar="GLOBS", help="only cases whose name or group matches, by commas"
    )
    parser.add_argument("--peers", default=",".join(PEERS), help="which to measure beside polyker (%(default)s)")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--json", metavar="FILE", help="write all figures")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on cuda-sim, to see that everything runs")
    options = parser.parse_args(argv)
    os.environ.setdefault("CUPY_ACCELERATORS", "cub,cutensor")
    try:
        machine = _machine(dry=options.dry_run)
    except (ImportError, pk.PolykerError) as error:
        print(f"nothing is measured: {error}")
        return 2
    roofs = machine.copy_rate(options.rounds), machine.fma_rate(options.rounds)
    print(f"{machine.name}, {machine.target}; roofs: {roofs[0] / 1e12:.2f} TB/s, {roofs[1] / 1e12:.1f} TFLOP/s")
    names = available(machine, options.peers.split(","))
    heads = "".join(f" {name + ' ms':>10} {'ratio':>6}" for name in names)
    print(f"{'case':20} {'polyker ms':>10} {'of roof':>8} {'host us':>8}{heads}")
    figures, wrong = [], 0
    for case in cases():
        if not any(fnmatch.fnmatch(n, g) for g in options.case.split(",") for n in (case.name, case.group)):
            continue
        try:
            small = case.small(_TINY) if options.dry_run else case
            figures.append(measured(small, machine, options.rounds, roofs, names))
        except (AssertionError, pk.PolykerError) as error:
            print(f"{case.name:20} WRONG: {type(error).__name__}: {error}", flush=True)
            wrong += 1
            continue
        print(line(figures[-1], names), flush=True)
    if not options.dry_run:
        print("\n".join(summary(figures)))
    if options.json:
        about = {"machine": machine.name, "target": machine.target, "copy": roofs[0], "fma": roofs[1]}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**about, "figures": figures}, file, indent=1)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
