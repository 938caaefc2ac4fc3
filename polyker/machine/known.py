"""Processors known by name: what the files of this folder say, one a processor.

A file with `target` describes one that code can be compiled for by that name: a level of an instruction set, or a GPU. A file
with `cores` has what sets cores of these names (LLVM's) apart from others, as was measured; see Habits.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from polyker.ir.instructions import most_terms
from polyker.machine.model import CYCLES, Cache, Gpu, Target


@dataclass(frozen=True, slots=True)
class Habits:
    """What sets a core apart from others of its instruction set.

    `native_bytes`: width of the vectors that pass through it whole; None for all. `separate_adders`: additions and extrema have
    other pipes than multiply-adds. `next_rows`: requests for the next rows come to more than its own prefetchers bring.
    `second_fills_first`: a request for a line in the second cache brings it into the first, too. `sums`: the cache that sums
    along memory prefetch into, 0 for none. `follows_tiles`: its prefetchers follow the rows of a register tile. `rows_near`:
    gathered rows of several lines are prefetched into the first cache. `streams`: pieces of memory walked side by side;
    `one_stream`: one piece after another comes sooner. `passing`: cycles a byte, by level, of what one statement passes on to
    another.
    """

    native_bytes: int | None = None
    separate_adders: bool = False
    next_rows: bool = True
    second_fills_first: bool = False
    sums: int = 1
    follows_tiles: bool = False
    rows_near: bool = False
    streams: int = 1
    one_stream: bool = False
    passing: tuple[float, ...] = CYCLES


@cache
def _described() -> tuple[Mapping[str, Any], ...]:
    """Return what the files say."""
    found = sorted((f for f in files(__package__).iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return tuple(tomllib.loads(f.read_text(encoding="utf-8")) for f in found)


def habits_of(cpu: str) -> Habits:
    """Return what sets a core apart, by LLVM's name; nothing of one that no file names."""
    for found in _described():
        if cpu in found.get("cores", ()):
            said: dict[str, Any] = {}
            for part in ("vector", "ports", "prefetch", "memory"):
                said |= {k: tuple(v) if isinstance(v, list) else v for k, v in found.get(part, {}).items()}
            return Habits(**said)
    return Habits()


def with_habits(target: Target, habits: Habits) -> Target:
    """Return a target that is scheduled for a core with such habits."""
    halves = target.masked and habits.native_bytes is not None and habits.native_bytes < target.vector_bytes
    return replace(
        target,
        asks=habits.next_rows,
        asks_second=not habits.second_fills_first,
        asks_streams=habits.sums,
        follows_rows=habits.follows_tiles,
        one_stream=habits.one_stream,
        double_pumped=halves,
        adds_apart=target.masked and habits.separate_adders,
        streams=habits.streams,
        rows_near=habits.rows_near,
        passing=habits.passing,
    )


def _processor(found: Mapping[str, Any]) -> Target:
    vector, ports = found["vector"], found["ports"]
    caches = tuple(Cache(c["size"], c.get("line", 64), c["ways"]) for c in found["caches"])
    return Target(
        found["target"], found["triple"], found["cpu"], found["features"], vector["bytes"], vector["registers"],
        vector["masked"], ports["fma"], ports["fma_latency"], caches, dot=most_terms(found["triple"], found["features"]),
    )  # fmt: skip


def _gpu(found: Mapping[str, Any]) -> Target:
    said = {k: v for k, v in found.items() if k not in ("target", "matrix")}
    gpu = Gpu(**said, matrix=tuple(found["matrix"].items()))
    return gpu_target(found["target"], "nvptx64-nvidia-cuda", gpu)


def gpu_target(name: str, triple: str, gpu: Gpu) -> Target:
    """Return a GPU as a target: a multiprocessor as a core whose vector is a warp."""
    caches = (Cache(gpu.shared, 128), Cache(gpu.l2, 128, 16))
    return Target(
        name, triple, gpu.arch, "", 4 * gpu.warp, 64, True, gpu.lanes // gpu.warp, 4, caches, gpu.processors, gpu
    )


def _by_name(targets: list[Target]) -> dict[str, Target]:
    return {t.name: t for t in targets}


KNOWN = _by_name([_processor(f) for f in _described() if "triple" in f])
GPUS = _by_name(
    sorted((_gpu(f) for f in _described() if "arch" in f), key=lambda t: (len(t.cpu.strip("a")), t.cpu, t.name))
)
_H100 = GPUS["cuda:sm_90a"].gpu
assert _H100 is not None
# Of one multiprocessor, so that small programs are mapped as large ones are on a GPU.
GPUS["cuda-sim"] = gpu_target("cuda-sim", "", replace(_H100, processors=1, simulated=True))
