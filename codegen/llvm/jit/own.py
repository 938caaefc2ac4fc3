"""Code for this machine that is no kernel, and kernels from the disk cache: linked without the compiler."""

from __future__ import annotations

import os
from pathlib import Path

from polyker.codegen.llvm.jit import binding as llvm
from polyker.machine.saved import measured_here
from polyker.process.jobs import once, run_exclusively
from polyker.store.disk import kept
from polyker.store.keys import state_of, versions

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@once
def host_key() -> tuple[object, ...]:
    """Return all that `detect.host` is made of: the processor, its caches, the cores, and facts that were measured here."""
    caches = []
    for file in sorted(_CACHES.glob("index*/*")):
        if file.name in ("level", "type", "size", "ways_of_associativity", "coherency_line_size"):
            try:
                caches.append((file.parent.name, file.name, file.read_text()))
            except (OSError, ValueError):
                continue
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return _processor(), tuple(caches), cores, state_of(measured_here())


def _processor() -> tuple[str, str, str]:
    return llvm.host_triple(), llvm.host_cpu(), llvm.host_features()


def is_supported() -> bool:
    """Whether machine code is made and linked for the system of this process."""
    return "linux" in llvm.host_triple().split("-")


def linked(image: bytes, symbol: str, imports: tuple[str, ...]) -> llvm.LinkedCode:
    """Return the code of an object file, in memory; `imports`: the functions of the C library that it calls."""
    return run_exclusively(lambda: llvm.LinkedCode(image, symbol, frozenset(imports)))


def own_library(text: str, symbol: str, effort: int, imports: tuple[str, ...] = ()) -> llvm.LinkedCode:
    """Return the machine code of a module of polyker's own, which is no kernel; `effort` as of `llvm.machine`.

    Its object file is kept in the disk cache.
    """

    def compiled() -> tuple[bytes, str]:
        module = llvm.parse(text)
        llvm.optimize(module, *_processor())
        return llvm.emit_object(module, *_processor(), effort), ""

    def made() -> llvm.LinkedCode:
        parts = (text, effort, _processor(), versions()[2:])
        image, _ = kept("library", symbol, parts, compiled)
        return llvm.LinkedCode(image, symbol, frozenset(imports))

    return run_exclusively(made)


def free_dropped() -> None:
    """Free the machine code that nobody holds any more; else the next compile does."""
    run_exclusively(llvm.free_dropped)


def host_triple() -> str:
    """Return the triple of this process."""
    return llvm.host_triple()
