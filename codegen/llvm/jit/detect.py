"""Targets by name, and the one this process runs on."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

from polyker.errors.base import failure
from polyker.errors.spelling import suggestion
from polyker.ir.instructions import most_terms
from polyker.machine.known import facts_of, gpus, instruction_sets, known, with_facts
from polyker.machine.model import Cache, Target
from polyker.machine.saved import saved_facts

_ELSEWHERE = {"gpu": "cuda", "nvidia": "cuda", "host": "cpu", "native": "cpu", "llvm": "cpu"}
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def _size(text: str) -> int:
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * unit[text[-1]] if text[-1:] in unit else int(text)


def _cache(folder: Path) -> tuple[int, Cache] | None:
    """Return (level, cache) of one folder of sysfs; None where it holds instructions or cannot be read."""
    try:
        values = {
            name: (folder / name).read_text().strip()
            for name in ("level", "type", "size", "ways_of_associativity", "coherency_line_size")
        }
        if values["type"] == "Instruction":
            return None
        ways, line = int(values["ways_of_associativity"]), int(values["coherency_line_size"])
        return int(values["level"]), Cache(_size(values["size"]), line or 64, ways or 8)
    except (OSError, ValueError):
        return None


def _caches() -> tuple[Cache, ...]:
    """Return the data caches of the first core from the nearest outwards; usual sizes where the system does not say."""
    found = [c for folder in sorted(_CACHES.glob("index*")) if (c := _cache(folder)) is not None]
    return tuple(c for _, c in sorted(found, key=lambda pair: pair[0])) or known()["cpu:x86-64-v3"].caches


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


@cache
def host() -> Target:
    """Return this machine as a target: its processor's name and features, caches, cores and vector registers."""
    from polyker.codegen.llvm.jit import binding as llvm

    cpu, features = llvm.host_cpu(), llvm.host_features()
    have = set(features.split(","))
    arm = platform.machine() in ("aarch64", "arm64")
    if arm:
        width, registers = 16, 32
    elif {"+avx512f", "+avx512vl", "+avx512bw", "+avx512dq"} <= have:
        width, registers = 64, 32
    else:
        width, registers = (32 if "+avx2" in have else 16), 16
    masked = width == 64
    dot = most_terms(llvm.host_triple(), features)
    found = Target(
        "cpu", llvm.host_triple(), cpu, features, width, registers, masked, 2, 4, _caches(), _cores(), None, dot,
        fma="fused" if arm or "+fma" in have else "none", half=arm or "+f16c" in have, maximum=arm,
    )  # fmt: skip
    return with_facts(with_facts(found, facts_of(cpu)), saved_facts(cpu))


def target(name: str | Target = "cpu") -> Target:
    """Return the target of a name: `cpu` (this machine), `x86-64-v3`, `aarch64-linux-gnu+sve`, `cpu:znver4`, `wasm32`,
    `cuda:sm_80`, `cuda:sm_90a` and the like, `cuda-sim` (CUDA kernels run by this machine's processor).

    Raises CompileError for an unknown name, with those that are known.

    >>> target("cpu:x86-64-v3").vector_bytes
    32
    """
    if isinstance(name, Target):
        return name
    if name == "cpu":
        return host()
    if name in known():
        return known()[name]
    if name in gpus():
        return gpus()[name]
    from polyker.errors.codegen import NO_CUDA, UNKNOWN_TARGET

    if name == "cuda":
        raise failure(NO_CUDA, reason="it has to be asked what it is", known=", ".join(gpus()))
    meant = suggestion(name, ("cpu", "cuda", *known(), *gpus()), _ELSEWHERE)
    raise failure(UNKNOWN_TARGET, name=name, meant=meant, known=", ".join((*instruction_sets(), *gpus())))
