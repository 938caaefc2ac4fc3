"""Processors known by name: what the files of this folder say, one a processor.

A file with `target` describes one that code can be compiled for by that name: a level of an instruction set, or a GPU. Its
`systems` are those whose objects are made of the same code. A file with `cores` has the facts that were measured of cores of
these names (LLVM's); what it does not say is as in any core, and the instructions are those of the target that it is `like`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from polyker.ir.instructions import most_terms
from polyker.machine.facts import check
from polyker.machine.model import Cache, Gpu, Memory, Target
from polyker.structs import replace

# Bytes a cycle of a multiprocessor's shared memory: 32 banks of 4 bytes (CUDA C++ Programming Guide). How many times as fast as
# memory the second cache is read (microbenchmarks of A100 and H100 say 2 to 3).
SHARED_READ, L2_READ = 128.0, 2.0
# The triples of systems, by the names that targets have of them.
_TRIPLES = {
    "linux-gnu": "{}-unknown-linux-gnu",
    "windows-msvc": "{}-pc-windows-msvc",
    "windows-gnu": "{}-w64-windows-gnu",
    "macos": "{}-apple-macosx11.0",
}


@cache
def _texts() -> tuple[str, ...]:
    """Return the files."""
    found = sorted((f for f in files(__package__).iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return tuple(f.read_text(encoding="utf-8") for f in found)


@cache
def _described(naming: str = "") -> tuple[Mapping[str, Any], ...]:
    """Return what the files say that have a text in them: to read all of them takes as long as a small compile."""
    return tuple(tomllib.loads(text) for text in _texts() if naming in text)


def facts_of(cpu: str) -> Mapping[str, Any]:
    """Return what a file says of a core, by LLVM's name; nothing of one that no file names.

    Raises ValueError where a file says what is no fact, or two files name the core.
    """
    found = [f for f in _described(f'"{cpu}"') if cpu in f.get("cores", ())]
    if len(found) > 1:
        raise ValueError(f"{len(found)} files of polyker/machine name the core {cpu}")
    for facts in found:
        check(facts)
    return found[0] if found else {}


def with_facts(target: Target, facts: Mapping[str, Any]) -> Target:
    """Return a target with what a file says: its tables `vector`, `ports`, `caches`, `memory` and `prefetch`.

    Rates of caches are taken by their level; their sizes are the target's own.
    """
    vector, ports = facts.get("vector", {}), facts.get("ports", {})
    rates = [c.get("read") for c in facts.get("caches", ())]
    near = tuple(replace(c, read=rate or c.read) for c, rate in zip(target.caches, rates, strict=False))
    prefetch: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in facts.get("prefetch", {}).items()}
    return replace(
        target,
        native_bytes=vector.get("native_bytes", target.native_bytes),
        fma_per_cycle=ports.get("fma", target.fma_per_cycle),
        fma_latency=ports.get("fma_latency", target.fma_latency),
        add_pipes=ports.get("add", target.add_pipes),
        caches=near + target.caches[len(near) :],
        memory=replace(target.memory, **facts.get("memory", {})),
        prefetch=replace(target.prefetch, **prefetch),
    )


def _processor(found: Mapping[str, Any]) -> Target:
    vector, ports = found["vector"], found["ports"]
    caches = tuple(Cache(c["size"], c.get("line", 64), c["ways"]) for c in found["caches"])
    plain = Target(
        found["target"], found["triple"], found["cpu"], found["features"], vector["bytes"], vector["registers"],
        vector["masked"], ports["fma"], ports["fma_latency"], caches, dot=most_terms(found["triple"], found["features"]),
        fma=vector["multiply_add"], half=vector.get("half", False), maximum=vector.get("maximum", False),
        widest=vector.get("widest", 8),
    )  # fmt: skip
    return with_facts(plain, found)


def _named(found: Mapping[str, Any]) -> Iterator[Target]:
    """Yield the targets of one file: by the name of its own, by others, and on other systems."""
    own = _processor(found)
    yield own
    for name in found.get("names", ()):
        yield replace(own, name=name)
    machine = own.triple.split("-")[0]
    for system in found.get("systems", ()):
        name = f"{machine}-{system}" + (f"+{found['level']}" if "level" in found else "")
        if name != own.name:
            yield replace(
                own, name=name, triple=_TRIPLES[system].format(machine).replace("aarch64-apple", "arm64-apple")
            )


def _cores(found: Mapping[str, Any], levels: Mapping[str, Target]) -> Iterator[Target]:
    """Yield the processors of a file, by LLVM's names."""
    for cpu in found["cores"]:
        level = levels[found["like"]]
        features = ",".join(filter(None, (level.features, found.get("extra", {}).get(cpu))))
        dot = most_terms(level.triple, features)
        yield with_facts(replace(level, name=f"cpu:{cpu}", cpu=cpu, features=features, dot=dot), found)


def _gpu(found: Mapping[str, Any]) -> Target:
    said = {k: v for k, v in found.items() if k not in ("target", "matrix")}
    gpu = Gpu(**said, matrix=tuple(found["matrix"].items()))
    return gpu_target(found["target"], "nvptx64-nvidia-cuda", gpu)


def gpu_target(name: str, triple: str, gpu: Gpu) -> Target:
    """Return a GPU as a target: a multiprocessor as a core whose vector is a warp, and its part of the bandwidths."""
    memory = gpu.bandwidth / (gpu.clock * gpu.processors)
    caches = (Cache(gpu.shared, 128, read=SHARED_READ), Cache(gpu.l2, 128, 16, read=L2_READ * memory))
    return Target(
        name, triple, gpu.arch, "", 4 * gpu.warp, 64, True, gpu.lanes // gpu.warp, 4, caches, gpu.processors, gpu,
        memory=Memory(read=memory),
    )  # fmt: skip


def _by_name(targets: list[Target]) -> dict[str, Target]:
    return {t.name: t for t in targets}


@cache
def _levels() -> dict[str, Target]:
    return _by_name([t for f in _described() if "triple" in f for t in _named(f)])


@cache
def instruction_sets() -> tuple[str, ...]:
    """Return a name for each instruction set, of those that targets have."""
    return tuple(f["target"] for f in _described() if "triple" in f)


@cache
def known() -> Mapping[str, Target]:
    """Return the processors that code can be compiled for, by name."""
    return _levels() | _by_name([t for f in _described() if "like" in f for t in _cores(f, _levels())])


@cache
def gpus() -> Mapping[str, Target]:
    """Return the GPUs, by name, and the simulator of one."""
    found = _by_name(
        sorted((_gpu(f) for f in _described() if "arch" in f), key=lambda t: (len(t.cpu.strip("a")), t.cpu, t.name))
    )
    h100 = found["cuda:sm_90a"].gpu
    assert h100 is not None
    # Of one multiprocessor, so that small programs are mapped as large ones are on a GPU.
    return found | {"cuda-sim": gpu_target("cuda-sim", "", replace(h100, processors=1, simulated=True))}
