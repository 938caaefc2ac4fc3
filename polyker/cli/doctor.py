"""What `polyker doctor` looks at: versions, the processor as polyker sees it, extras, and a kernel that has to work."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from msgspec import Struct

VARIABLES = {
    "POLYKER_INTERPRET": "1: run operators in the plain interpreter instead of compiling them (slow, for debugging)",
    "POLYKER_TARGET": "the target compiled for where a call names none, such as cpu:x86-64-v3",
    "POLYKER_MACHINE": "a file with facts of the processor, instead of what `polyker doctor --measure --save` saved; empty: none",
    "POLYKER_NUM_THREADS": "threads that a kernel runs on, where the option `threads` says nothing",
    "POLYKER_SIM_SEED": "the order of the threads on the target cuda-sim: 0 as they are numbered, else shuffled by it",
    "POLYKER_COMPILE_TIMEOUT": "seconds a compile may take",
    "POLYKER_VERIFY": "1: verify what every pass of a compile made, not once a level (slow, for debugging)",
    "POLYKER_TRACEBACK": "full: tracebacks of errors show the frames inside of polyker, too, which they leave out else",
    "POLYKER_DUMP": "a folder in which each compile writes what its passes made, one file a pass that changed something",
    "POLYKER_CACHE": "rw: keep kernels on disk between processes (the default); ro: only read them; off: neither",
    "POLYKER_CACHE_DIR": "the folder in which kernels are kept, instead of the user's cache folder",
}
CORE = (
    "numpy",
    "islpy",
    "llvmlite",
    "sympy",
    "lark",
    "opt_einsum",
    "platformdirs",
    "filelock",
    "tomli_w",
    "click",
    "rich",
)
ARITHMETIC = ("avx", "fma", "f16c", "amx", "neon", "sve", "fullfp16", "bf16", "dotprod", "i8mm")
EXTRAS = {
    "ml_dtypes": "the element type bf16 in numpy arrays",
    "torch": "torch tensors as arguments",
    "jax": "jax arrays as arguments",
    "pycuda": "its contexts, streams and arrays on NVIDIA GPUs",
    "nvidia-cuda-nvrtc": "machine code for NVIDIA GPUs without a CUDA toolkit",
}


class Finding(Struct, frozen=True):
    """One line of the report, and whether what it tells is in order."""

    text: str
    healthy: bool = True


def examine(*, measure: bool = False, save: bool = False) -> Iterator[Finding]:
    """Yield the report line by line; `measure`: with rates and facts of this core; `save`: for schedules and `explain`."""
    yield Finding(f"polyker {_version('polyker')}, Python {platform.python_version()} on {platform.platform()}")
    width = 2 + max(map(len, (*CORE, *EXTRAS)))
    for name in CORE:
        version = _version(name)
        yield Finding(f"  {name:<{width}}{version or 'MISSING: pip install polyker'}", version is not None)
    yield from _processor()
    yield from _rates(measure=measure, save=save)
    if measure:
        yield from _facts(save=save)
    yield Finding("extras:")
    for name, use in EXTRAS.items():
        version = _version(name)
        yield Finding(f"  {name:<{width}}{version or f'not installed: it would give {use}'}")
    yield _gpu()
    yield _calls()
    yield from _try_kernel()
    yield _cache()


def _cache() -> Finding:
    from polyker.cli.cache import summary
    from polyker.store import disk

    found = {name: sum(table.values()) for name, table in (("found", disk.counts.hits), ("missed", disk.counts.misses))}
    told = ", ".join(f"{count} {name}" for name, count in found.items())
    return Finding(f"disk cache: {summary(disk.files())}; by this command {told}")


def _calls() -> Finding:
    from polyker.runtime.entry.native import Unavailable, native

    found = native()
    if isinstance(found, Unavailable):
        return Finding(f"calls: through Python, some microseconds each, because {found.reason}")
    return Finding("calls: numpy arrays go straight to machine code")


def _gpu() -> Finding:
    import shutil

    from polyker.codegen.cuda import nvrtc
    from polyker.runtime.cuda.driver import driver, why_not

    reason = why_not()
    device = f"none ({reason})" if reason else ", ".join(driver().device(n).arch() for n in range(driver().count()))
    found = nvrtc.version() if nvrtc.library() is not None else "nvcc" if shutil.which("nvcc") else "nothing"
    simulated = any(map(shutil.which, ("g++", "clang++", "c++")))
    return Finding(
        f"GPU: {device}; kernels for one are compiled by {found}; {'with' if simulated else 'no'} C++ compiler for cuda-sim"
    )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> Iterator[Finding]:
    from polyker.codegen.llvm.jit.detect import host
    from polyker.machine import saved
    from polyker.machine.known import facts_of

    target = host()
    yield Finding(f"processor: {target.cpu} ({target.triple}), {target.cores} cores to use")
    yield Finding(
        f"  vectors       {8 * target.vector_bytes} bits ({target.lanes(4)} f32, {target.lanes(8)} f64), "
        f"{target.vector_registers} registers, {'with' if target.masked else 'without'} masks"
    )
    sizes = ", ".join(f"L{n} {cache.size // 1024} KiB" for n, cache in enumerate(target.caches, 1))
    yield Finding(f"  caches        {sizes or 'unknown'} (as one core sees them)")
    sources = ["polyker's file of this core"] if facts_of(target.cpu) else []
    sources += [os.environ.get(saved.VARIABLE) or str(saved.path())] if saved.saved_facts(target.cpu) else []
    yield Finding(
        f"  facts         {' and '.join(sources) or 'of any core; `polyker doctor --measure --save` measures it'}"
    )
    enabled = [feature[1:] for feature in target.features.split(",") if feature.startswith("+")]
    shown = [feature for feature in enabled if feature.startswith(ARITHMETIC)]
    yield Finding(f"  features      {' '.join(shown)} and {len(enabled) - len(shown)} more")


def _facts(*, save: bool) -> Iterator[Finding]:
    """Measure the core as the machine files describe one."""
    import polyker as pk
    from polyker.codegen.llvm.jit.detect import host
    from polyker.explain.core_facts import as_file, core_facts
    from polyker.machine import saved

    def compiled(text: str, arguments: Mapping[str, Any], target: Any) -> Any:
        return pk.op(text).compile(**arguments, target=target, threads=1)

    yield Finding("measured of one core, rates in bytes a cycle (see the machine files in the documentation):")
    found = {}
    for table, facts in core_facts(compiled):
        found[table] = facts
        yield Finding(f"  {table:<14}{', '.join(f'{name} {value}' for name, value in facts.items())}")
    if save:
        try:
            yield Finding(f"  saved as {saved.save(as_file(found, host().cpu))}; schedules of new processes read it")
        except OSError as error:
            yield Finding(f"  NOT saved: {error}", healthy=False)


def _rates(*, measure: bool, save: bool) -> Iterator[Finding]:
    from polyker.explain import rates

    found = rates.measured(store=save) if measure else rates.stored()
    if found is None:
        yield Finding(
            "  rates         not measured: `polyker doctor --measure --save` does, and `explain` then says seconds"
        )
        return
    peaks = ", ".join(f"{dtype} {rate / 1e9:.0f} GFLOP/s" for dtype, rate in found.flops.items())
    copies = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in found.bandwidth.items())
    yield Finding(f"  rates         {peaks}; copies {copies} GB/s (one core)")


def _try_kernel() -> Iterator[Finding]:
    import numpy as np

    import polyker as pk

    a = np.arange(17 * 5, dtype=np.float32).reshape(17, 5) % 7
    b = np.arange(5 * 33, dtype=np.float32).reshape(5, 33) % 11
    start = time.perf_counter()
    try:
        right = np.array_equal(pk.op("C[i,j] += A[i,k] * B[k,j]")(a, b), a @ b)
    except Exception as error:
        yield Finding(f"kernel: FAILED with {type(error).__name__}: {error}", healthy=False)
        return
    taken = f"compiled and run in {time.perf_counter() - start:.2f} s"
    yield Finding(f"kernel: {'right' if right else 'WRONG RESULT'}, {taken}", healthy=right)


def machine() -> dict[str, Any]:
    """Return what measured figures depend on: versions, processor, cores."""
    from polyker.codegen.llvm.jit.detect import host

    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cpu": host().cpu,
        "cores": os.cpu_count(),
        "versions": {name: _version(name) for name in ("polyker", *CORE)},
    }
