"""Targets by name, this machine's GPUs included, and what of them runs here."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from polyker.errors.base import failure
from polyker.errors.calls import NO_TARGET
from polyker.process.jobs import load, once

if TYPE_CHECKING:  # the compiler's own data
    from polyker.machine.model import Target

# What compiles, and what calls use then: a signal handler must not leave half of it.
_COMPILER = (
    "polyker.pipeline.compile", "polyker.pipeline.record", "polyker.poly.binding.bind",
    "polyker.poly.checks", "polyker.runtime.entry.tables",
    "polyker.codegen.llvm.jit.build", "polyker.codegen.llvm.jit.detect", "polyker.runtime.foreign", "polyker.runtime.cuda.arrays",
)  # fmt: skip


@once
def load_compiler() -> None:
    """Import what compiles programs."""
    for name in _COMPILER:
        import_module(name)


@cache
def target_named(name: str | Target) -> Target:
    """Return the description of a target, which may be one itself; raises CompileError or BackendUnavailable where there is none.

    `cuda:1` and so on are this machine's GPUs, `cuda` the first of them.
    """
    if isinstance(name, str) and (found := _gpu_named(name)) is not None:
        return found
    load_compiler()
    from polyker.codegen.llvm.jit.detect import target

    return target(name)


def _gpu_named(name: str) -> Target | None:
    """Return a GPU by its name or its number on this machine, None where it is neither; loads nothing that compiles."""
    family, _, number = name.partition(":")
    if family != "cuda":
        return None
    if name == "cuda" or (number.isdecimal() and len(number) < 4):
        return _gpu(int(number or "0"))
    load("polyker.machine.known")
    from polyker.machine.known import gpus

    return gpus().get(name)


def _gpu(number: int) -> Target:
    """Return a GPU of this machine as a target; raises BackendUnavailable where there is none or it is not known."""
    load("polyker.machine.device")
    load("polyker.runtime.cuda.driver")
    from polyker.errors.codegen import NO_CUDA
    from polyker.machine.device import name_of, with_device
    from polyker.machine.known import gpus
    from polyker.runtime.cuda.driver import driver

    device = driver().device(number)
    arch = device.arch()
    found = name_of(arch)
    if found is None:
        raise failure(NO_CUDA, reason=f"it is {arch}", known=", ".join(gpus()))
    return with_device(gpus()[found], device.attributes())


def why_elsewhere(target: Target) -> Exception | None:
    """Return the error of calling code for a target here, or None if this machine runs it."""
    from polyker.codegen.llvm.jit.build import is_host
    from polyker.codegen.llvm.jit.detect import host

    if target.gpu is not None:
        load("polyker.runtime.cuda.driver")
        from polyker.runtime.cuda.driver import why_not

        reason = "" if target.gpu.simulated else why_not()
        return failure(NO_TARGET, target=target.name, reason=f"no CUDA device ({reason})") if reason else None
    if not is_host(target):
        return failure(NO_TARGET, target=target.name, reason="it is another machine's code")
    if target.vector_bytes > host().vector_bytes:
        return failure(NO_TARGET, target=target.name, reason="this machine has not its vector instructions")
    return None
