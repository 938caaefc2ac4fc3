"""Processors known by name: plain values."""

from __future__ import annotations

from dataclasses import replace

from polyker.target.model import Cache, Gpu, Target

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
ASKED_STREAMS = {"znver3": 0, "znver4": 2}

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
HALVES = frozenset({"znver4"})

# Processors whose additions and extrema take two pipes, and multiply-adds and comparisons two others, as was measured on znver4.
ADDS_APART = frozenset({"znver4"})

# Processors that read one row of memory after another sooner than eight side by side, as was measured on znver4. On znver5 eight
# come in half to two thirds of the time.
ONE_STREAM = frozenset({"znver3", "znver4"})

# Processors whose requests for a line in the second cache bring it into the first as well: measured on znver3, by the time of a
# load after one.
FIRST_ONLY = frozenset({"znver1", "znver2", "znver3"})

# A100 (SXM, 80 GB) and H200 by their data sheets.
_AMPERE = Gpu("sm_80", 32, 1024, 65536, 163 << 10, 2048, 108, 19.5e12, 2.0e12, 40 << 20)
_HOPPER = Gpu("sm_90a", 32, 1024, 65536, 227 << 10, 2048, 132, 66.9e12, 4.8e12, 50 << 20)


def _cuda(name: str, triple: str, gpu: Gpu) -> Target:
    """Return a GPU as a target: a multiprocessor as a core whose vector is a warp."""
    caches = (Cache(gpu.shared, 128), Cache(gpu.l2, 128, 16))
    return Target(name, triple, gpu.arch, "", 4 * gpu.warp, 64, True, 4, 4, caches, gpu.processors, gpu)


GPUS: dict[str, Target] = {
    target.name: target
    for target in (
        _cuda("cuda:sm_80", "nvptx64-nvidia-cuda", _AMPERE),
        _cuda("cuda:sm_90a", "nvptx64-nvidia-cuda", _HOPPER),
        # Of one multiprocessor, so that small programs are mapped as large ones are on a GPU.
        _cuda("cuda-sim", "", replace(_HOPPER, processors=1, simulated=True)),
    )
}
