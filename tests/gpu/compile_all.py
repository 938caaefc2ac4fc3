"""Compile the CUDA text of examples, operators, contractions and benchmarks: `python -m tests.gpu.compile_all`."""

from __future__ import annotations

import argparse
import fnmatch
import inspect
import itertools
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from msgspec import Struct

import polyker as pk
from benchmarks.gpu.cases import cases
from polyker.cli.demo_cases import load
from polyker.ir.dtypes import DTYPES
from polyker.machine.known import gpus

TARGETS = ("cuda:sm_80", "cuda:sm_90a")
# What is compiled for the other GPUs, too: a program of each kind of mapping.
EVERYWHERE = (
    "matmul-nn-4096",
    "softmax-16384x4096",
    "prefix-rows",
    "transpose-16384",
    "embedding",
    "column-sums-16384x4096",
)


class Program(Struct, frozen=True):
    """A text, what it is compiled for (types and sizes, by position and name), and whether its registers may not spill."""

    name: str
    text: str
    types: tuple[Any, ...]
    named: dict[str, Any]
    fixed: dict[str, int]
    tight: bool


class _Seen(Exception):
    """An example has shown what it calls."""


def examples() -> Iterator[Program]:
    """Yield the calls of the tests of the notation's examples."""
    import tests.test_notation_examples as module

    seen: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def call(text: str, *arrays: Any, **sizes: int) -> None:
        seen.append((text, arrays, sizes))
        raise _Seen

    for name, test in vars(module).items():
        if not name.startswith("test_") or "call" not in inspect.signature(test).parameters:
            continue
        marks = [m for m in getattr(test, "pytestmark", ()) if m.name == "parametrize"]
        for values in itertools.product(*(_arguments(m) for m in marks)):
            try:
                test(call, **{k: v for found in values for k, v in found.items()})
            except _Seen:
                text, arrays, sizes = seen.pop()
                yield Program(name.removeprefix("test_"), text, arrays, sizes, {}, False)


def _arguments(mark: Any) -> list[dict[str, Any]]:
    names, values = mark.args
    names = names.split(",") if isinstance(names, str) else list(names)
    return [dict(zip(names, v if len(names) > 1 else (v,), strict=True)) for v in values]


def programs() -> list[Program]:
    """Return all programs: examples, then operators and contractions at the demo's sizes, then what is measured besides."""
    found = list(examples())
    for case in load():
        types = {name: DTYPES[dtype][shape] for name, dtype, shape in case.arrays}
        tight = bool(case.einsum) or "conv" in case.id or "mm" in case.id
        found.append(Program(case.id, case.text, (), {**types, **case.arguments}, case.fixed, tight))
    for case in cases():
        if case.group != "contraction":
            found.append(Program(case.name, case.text, case.types, {}, {}, case.group in ("product", "convolution")))
    return found


def compiled(program: Program) -> tuple[list[str], int]:
    """Return what is to be said of a program on each target, and how often it failed."""
    lines, bad = [], 0
    everywhere = [name for name, target in gpus().items() if target.gpu is not None and not target.gpu.simulated]
    for target in everywhere if program.name in EVERYWHERE else TARGETS:
        start = time.perf_counter()
        try:
            kernel = pk.op(program.text, **program.fixed).compile(*program.types, **program.named, target=target)
            used = kernel.resources().values()
            most, spilled = max((r.registers for r in used), default=0), sum(r.spilled for r in used)
            shared = max((r.shared for r in used), default=0)
            text = f"{len(used):2} kernels, {most:3} registers, {shared:5} bytes shared, {spilled} bytes spilled"
            bad += program.tight and spilled > 0
        except pk.PolykerError as error:
            text, bad = f"{type(error).__name__}: {error.message}", bad + 1
        lines.append(f"{program.name[:44]:44} {target:12} {text}, {time.perf_counter() - start:.1f} s")
    return lines, bad


def main() -> int:
    """Print what each kernel takes, some on all GPUs; return 1 where one does not compile, or a product spills."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.compile_all", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--case", default="*", metavar="GLOB", help="only programs whose name matches")
    options = parser.parse_args()
    chosen, bad, start = [p for p in programs() if fnmatch.fnmatch(p.name, options.case)], 0, time.perf_counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        for lines, failures in pool.map(compiled, chosen):
            bad += failures
            print("\n".join(lines), flush=True)
    print(
        f"{len(chosen)} programs on {len(TARGETS)} targets or more in {time.perf_counter() - start:.0f} s, {bad} failures"
    )
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
