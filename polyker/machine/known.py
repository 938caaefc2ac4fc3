"""Processors known by name: plain values."""

from __future__ import annotations

from dataclasses import replace

from polyker.machine.model import Cache, Gpu, Target

_DESKTOP = (Cache(32 << 10), Cache(512 << 10), Cache(16 << 20, ways=16))
_LINUX = "x86_64-unknown-linux-gnu"

KNOWN: dict[str, Target] = {
    target.name: target
    for target in (
        Target("cpu:x86-64", _LINUX, "x86-64", "", 16, 16, False, 2, 4, _DESKTOP, dot=2),
        Target("cpu:x86-64-v2", _LINUX, "x86-64-v2", "", 16, 16, False, 2, 4, _DESKTOP, dot=2),
        Target("cpu:x86-64-v3", _LINUX, "x86-64-v3", "", 32, 16, False, 2, 4, _DESKTOP, dot=2),
        Target("cpu:x86-64-v4", _LINUX, "x86-64-v4", "", 64, 32, True, 2, 4, _DESKTOP, dot=2),
        Target("aarch64-linux-gnu", "aarch64-unknown-linux-gnu", "generic", "+neon", 16, 32, False, 2, 4, _DESKTOP),
        Target("wasm32", "wasm32-unknown-unknown", "generic", "+simd128", 16, 16, False, 1, 4, _DESKTOP),
    )
}

# Processors, as LLVM names them, on which rows that are asked for while others are computed come later, as was measured: softmax
# from memory takes up to a third longer. On znver5 it takes a fifth less.
UNASKED = frozenset({"znver4"})

# The cache in which sums along memory had better ask for what comes next, 0 for none: in the first they were slower by a sixth on
# znver3, by 3% on znver4; several rows asked for in the second (one had better not be) took 0.9 to 1.0 of the time on znver4.
FOLLOWED_STREAMS = {"znver3": 0, "znver4": 2}

# Processors whose prefetchers follow the rows of register tiles: without requests products of 1024^3 took 0.87 to 0.9 of the
# time, those with 32 columns 0.75, as was measured on icelake-server; its kin are taken to be alike.
FOLLOWS = frozenset(
    {"skylake-avx512", "cascadelake", "cooperlake", "icelake-client", "icelake-server", "tigerlake", "sapphirerapids"}
    | {"emeraldrapids", "graniterapids"}
)

# Processors whose third cache lies behind a mesh, and what bytes cost there that one statement passes on to another: measured on
# one core of icelake-server, which read 53 bytes a cycle from its second cache, 8 from its third and 3.5 from memory; its kin are
# taken to be alike. Tiles in registers hide most of it: with these figures for them convolutions took 1.1 to 1.6 times as long.
MESH = FOLLOWS - {"icelake-client", "tigerlake"}
MESH_PASSING = (0.0, 1 / 128, 1 / 8, 1 / 4)
# Pieces of memory that come sooner side by side there than one after another: eight rows by 13.8 GB/s, one by 11.
MESH_STREAMS = 8
# There, too, gathered rows of 2 to 16 lines from memory that are summed took 0.82 to 0.95 of the time when they were asked for in
# the first cache, single lines 1.25 times as long.

# Processors whose vectors of 64 bytes pass in two halves. What is read from memory comes sooner by vectors of 32 bytes: sums and
# scalar products took 0.88 to 0.99 of the time on znver4.
DOUBLE_PUMPED = frozenset({"znver4"})

# Processors whose additions and extrema take two pipes, and multiply-adds and comparisons two others, as was measured on znver4.
ADDS_APART = frozenset({"znver4"})

# Processors that read one row of memory after another sooner than eight side by side, as was measured on znver4. On znver5 eight
# come in half to two thirds of the time.
ONE_STREAM = frozenset({"znver3", "znver4"})

# Processors whose requests for a line in the second cache bring it into the first as well: measured on znver3, by the time of a
# load after one.
FIRST_ONLY = frozenset({"znver1", "znver2", "znver3"})

# What processors of a GPU's generation have: limits by the CUDA C++ Programming Guide (Technical Specifications per Compute
# Capability), rates by data sheets, at the boost clock and without sparsity. `polyker.machine.device` replaces them by what a
# device says of itself.
# A100 (SXM, 80 GB), NVIDIA A100 data sheet: 108 multiprocessors of 64 lanes, 2039 GB/s.
_A100 = Gpu(
    "sm_80", 32, 1024, 65536, 163 << 10, 2048, 108, 19.5e12, 2.039e12, 40 << 20, lanes=64,
    matrix=(("f16", 312e12), ("bf16", 312e12), ("tf32", 156e12), ("i8", 624e12), ("f64", 19.5e12)),
)  # fmt: skip
# A10, NVIDIA A10 data sheet; RTX 30 has the same multiprocessors.
_A10 = Gpu(
    "sm_86", 32, 1024, 65536, 99 << 10, 1536, 72, 31.2e12, 600e9, 6 << 20, blocks=16,
    matrix=(("f16", 125e12), ("bf16", 125e12), ("tf32", 62.5e12), ("i8", 250e12)),
)  # fmt: skip
# L4, NVIDIA L4 data sheet (whose rates of matrices are with sparsity: half of them); RTX 40 has the same multiprocessors.
_L4 = Gpu(
    "sm_89", 32, 1024, 65536, 99 << 10, 1536, 58, 30.3e12, 300e9, 48 << 20, blocks=24,
    matrix=(("f16", 121e12), ("bf16", 121e12), ("tf32", 60e12), ("i8", 242e12)),
)  # fmt: skip
# H100 SXM, NVIDIA H100 data sheet. H200 differs by its memory alone, 4.8e12 bytes a second, which a device says of itself.
_H100 = Gpu(
    "sm_90a", 32, 1024, 65536, 227 << 10, 2048, 132, 66.9e12, 3.35e12, 50 << 20,
    matrix=(("f16", 989e12), ("bf16", 989e12), ("tf32", 494e12), ("i8", 1979e12), ("f64", 67e12)),
)  # fmt: skip
# B200, NVIDIA HGX B200 data sheet: an eighth of a board of eight.
_B200 = Gpu(
    "sm_100", 32, 1024, 65536, 227 << 10, 2048, 148, 75e12, 7.7e12, 126 << 20,
    matrix=(("f16", 2250e12), ("bf16", 2250e12), ("tf32", 1125e12), ("i8", 4500e12), ("f64", 37e12)),
)  # fmt: skip
# GeForce RTX 5090, NVIDIA RTX Blackwell GPU Architecture, appendix A; matrices with sums of f32.
_RTX5090 = Gpu(
    "sm_120", 32, 1024, 65536, 99 << 10, 1536, 170, 104.8e12, 1.792e12, 96 << 20, blocks=24,
    matrix=(("f16", 209.5e12), ("bf16", 209.5e12), ("tf32", 104.8e12), ("i8", 838e12)),
)  # fmt: skip


def gpu_target(name: str, triple: str, gpu: Gpu) -> Target:
    """Return a GPU as a target: a multiprocessor as a core whose vector is a warp."""
    caches = (Cache(gpu.shared, 128), Cache(gpu.l2, 128, 16))
    return Target(
        name, triple, gpu.arch, "", 4 * gpu.warp, 64, True, gpu.lanes // gpu.warp, 4, caches, gpu.processors, gpu
    )


GPUS: dict[str, Target] = {
    target.name: target
    for target in (
        *(gpu_target(f"cuda:{g.arch}", "nvptx64-nvidia-cuda", g) for g in (_A100, _A10, _L4, _H100, _B200, _RTX5090)),
        # Of one multiprocessor, so that small programs are mapped as large ones are on a GPU.
        gpu_target("cuda-sim", "", replace(_H100, processors=1, simulated=True)),
    )
}
