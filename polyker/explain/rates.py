"""Measure the peak of one core of this machine: multiply-adds from registers, copies from each level of memory.

`polyker doctor --measure` stores the rates in the user's cache folder; `explain` turns cycles into seconds where they are there.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from polyker.codegen.llvm.jit.build import LoadedCode, build
from polyker.codegen.llvm.jit.detect import host
from polyker.machine.model import Target
from polyker.process.whole_file import whole_file

CHAINS = 12  # independent accumulators: more than latency times pipes, fewer than registers
UNROLLED = 4
LLVM = {"f32": ("float", 4), "f64": ("double", 8)}


class Rates(Struct, frozen=True):
    """FLOP/s of one core by element type; bytes a second of each level by its name, of a copy or of reading, the faster."""

    cpu: str
    flops: Mapping[str, float]
    bandwidth: Mapping[str, float]

    def peak(self, itemsize: int) -> float:
        """Return the FLOP/s for elements of so many bytes."""
        return self.flops["f64" if itemsize >= 8 else "f32"]


def path() -> Path:
    """Return where the rates of this machine are stored."""
    from platformdirs import user_cache_path

    return user_cache_path("polyker") / "rates.json"


@cache
def stored() -> Rates | None:
    """Return the rates that were stored for this processor, None where there are none."""
    try:
        found = json.loads(path().read_text())
        rates = Rates(str(found["cpu"]), dict(found["flops"]), dict(found["bandwidth"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    sound = all(isinstance(v, (int, float)) and v > 0 for v in (*rates.flops.values(), *rates.bandwidth.values()))
    same = rates.cpu == host().cpu and set(rates.flops) >= set(LLVM) and set(rates.bandwidth) >= set(names(host()))
    return rates if sound and same else None


def measured(*, store: bool = True) -> Rates:
    """Measure this core, for about a second; the rates are stored where the folder can be written."""
    target = host()
    flops = {dtype: peak(dtype, target) for dtype in LLVM}
    rates = Rates(target.cpu, flops, {name: max(bandwidth(n), reading(n)) for name, n in levels(target)})
    if store:
        with contextlib.suppress(OSError):
            path().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            text = json.dumps({"cpu": rates.cpu, "flops": rates.flops, "bandwidth": rates.bandwidth}, indent=1)
            with whole_file(path()) as part:
                part.write_text(text + "\n")
        stored.cache_clear()
    return rates


def names(target: Target) -> tuple[str, ...]:
    """Return the names of the levels of memory: L1, L2, …, memory."""
    return *(f"L{n}" for n in range(1, len(target.caches) + 1)), "memory"


def levels(target: Target) -> list[tuple[str, int]]:
    """Return sizes of copies that each level of memory holds, half full, and one beyond the last."""
    sizes = [c.size // 2 for c in target.caches]
    return list(zip(names(target), [*sizes, 4 * target.caches[-1].size], strict=True))


class RateLoop(Struct, frozen=True):
    """Machine code of one measuring loop; it lives as long as this."""

    code: LoadedCode
    run: Any


@cache
def fma_loop(dtype: str, target: Target, adds: bool = False) -> RateLoop:
    """Return `run(x, n)`: n rounds of fused multiply-adds on vectors that stay in registers; x: 3 vectors, read and written.

    `adds`: with as many additions, in chains of their own.
    """
    name, size = LLVM[dtype]
    lanes = target.lanes(size)
    vector = f"<{lanes} x {name}>"
    fma = f"llvm.fma.v{lanes}f{size * 8}"
    chains = 2 * CHAINS if adds else CHAINS
    body, last = [], {c: f"%a{c}" for c in range(chains)}
    for step in range(UNROLLED):
        for c in range(chains):
            new = f"%a{c}.{step}"
            fused = f"call {vector} @{fma}({vector} {last[c]}, {vector} %x, {vector} %y)"
            body.append(f"  {new} = {fused if c < CHAINS else f'fadd {vector} {last[c]}, %x'}")
            last[c] = new
    phis = [f"  %a{c} = phi {vector} [ %z, %entry ], [ {last[c]}, %loop ]" for c in range(chains)]
    total = ["  %s0 = fadd " + f"{vector} {last[0]}, {last[1]}"]
    total += [f"  %s{c - 1} = fadd {vector} %s{c - 2}, {last[c]}" for c in range(2, chains)]
    text = f"""
declare {vector} @{fma}({vector}, {vector}, {vector})
define void @kernel(ptr %p, i64 %n) {{
entry:
  %py = getelementptr {vector}, ptr %p, i64 1
  %pz = getelementptr {vector}, ptr %p, i64 2
  %x = load {vector}, ptr %p
  %y = load {vector}, ptr %py
  %z = load {vector}, ptr %pz
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{chr(10).join(phis)}
{chr(10).join(body)}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
{chr(10).join(total)}
  store {vector} %s{chains - 2}, ptr %pz
  ret void
}}
"""
    code = build(text, target)
    return RateLoop(code, ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address))


def peak(dtype: str, target: Target, seconds: float = 0.2) -> float:
    """Return the FLOP/s of the core with a target's vectors: the best of several short loops."""
    rounds = 20_000
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = min(best, fma_seconds(dtype, target, rounds))
    return 2 * rounds * CHAINS * UNROLLED * target.lanes(LLVM[dtype][1]) / best


def fma_seconds(dtype: str, target: Target, rounds: int, adds: bool = False) -> float:
    """Return the seconds that so many rounds of `fma_loop` take, once."""
    loop = fma_loop(dtype, target, adds)
    values = aligned(3 * target.lanes(LLVM[dtype][1]), dtype)
    start = time.perf_counter()
    loop.run(values.ctypes.data, rounds)
    return time.perf_counter() - start


@cache
def copy_loop(target: Target, *, streaming: bool) -> RateLoop:
    """Return `run(destination, source, n, times)`: copies n blocks of 4 vectors; streaming: by non-temporal stores."""
    vector, size = f"<{target.vector_bytes} x i8>", target.vector_bytes
    hint = ", !nontemporal !0" if streaming else ""
    moves = []
    for k in range(4):
        moves += [
            f"  %o{k} = add i64 %offset, {k * size}",
            f"  %f{k} = getelementptr i8, ptr %from, i64 %o{k}",
            f"  %v{k} = load {vector}, ptr %f{k}, align {size}",
        ]
    for k in range(4):
        moves += [
            f"  %t{k} = getelementptr i8, ptr %to, i64 %o{k}",
            f"  store {vector} %v{k}, ptr %t{k}, align {size}{hint}",
        ]
    text = f"""
define void @kernel(ptr noalias %to, ptr noalias %from, i64 %n, i64 %times) {{
entry:
  br label %again
again:
  %turn = phi i64 [ 0, %entry ], [ %after, %last ]
  br label %loop
loop:
  %i = phi i64 [ 0, %again ], [ %next, %loop ]
  %offset = mul i64 %i, {4 * size}
{chr(10).join(moves)}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %last
last:
  %after = add i64 %turn, 1
  %repeat = icmp ult i64 %after, %times
  br i1 %repeat, label %again, label %done
done:
  ret void
}}
!0 = !{{i32 1}}
"""
    code = build(text, target)
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return RateLoop(code, ctypes.CFUNCTYPE(None, *kinds)(code.address))


@cache
def bandwidth(size: int, seconds: float = 0.1) -> float:
    """Return the bytes a second, read and written together, of the better copy of `size` bytes in all."""
    found = host()
    block = 4 * found.vector_bytes
    blocks = max(1, size // 2 // block)
    source, destination = aligned(blocks * block // 4, "f32"), aligned(blocks * block // 4, "f32")
    # Zeros are written faster, on some machines twice as fast.
    source[...] = np.random.default_rng(0).random(source.shape, "f4")
    repeats = max(1, (1 << 20) // (blocks * block))
    best = float("inf")
    for streaming in (False, True):
        loop = copy_loop(found, streaming=streaming)
        end, count = time.perf_counter() + seconds / 2, 0
        while count < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            loop.run(destination.ctypes.data, source.ctypes.data, blocks, repeats)
            best, count = min(best, (time.perf_counter() - start) / repeats), count + 1
    return 2 * blocks * block / best


@cache
def read_loop(target: Target) -> RateLoop:
    """Return `run(sink, source, n, times)`: reads n blocks of 8 vectors, and stores one vector that depends on all."""
    vector, size = f"<{target.vector_bytes // 8} x i64>", target.vector_bytes
    reads = []
    for k in range(8):
        reads += [
            f"  %o{k} = add i64 %offset, {k * size}",
            f"  %f{k} = getelementptr i8, ptr %from, i64 %o{k}",
            f"  %v{k} = load {vector}, ptr %f{k}, align {size}",
            f"  %n{k} = xor {vector} %a{k}, %v{k}",
        ]
    again = [f"  %b{k} = phi {vector} [ zeroinitializer, %entry ], [ %n{k}, %last ]" for k in range(8)]
    phis = [f"  %a{k} = phi {vector} [ %b{k}, %again ], [ %n{k}, %loop ]" for k in range(8)]
    total = ["  %s0 = xor " + f"{vector} %n0, %n1"]
    total += [f"  %s{k - 1} = xor {vector} %s{k - 2}, %n{k}" for k in range(2, 8)]
    text = f"""
define void @kernel(ptr noalias %to, ptr noalias %from, i64 %n, i64 %times) {{
entry:
  br label %again
again:
  %turn = phi i64 [ 0, %entry ], [ %after, %last ]
{chr(10).join(again)}
  br label %loop
loop:
  %i = phi i64 [ 0, %again ], [ %next, %loop ]
{chr(10).join(phis)}
  %offset = mul i64 %i, {8 * size}
{chr(10).join(reads)}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %last
last:
  %after = add i64 %turn, 1
  %repeat = icmp ult i64 %after, %times
  br i1 %repeat, label %again, label %done
done:
{chr(10).join(total)}
  store {vector} %s6, ptr %to, align {size}
  ret void
}}
"""
    code = build(text, target)
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return RateLoop(code, ctypes.CFUNCTYPE(None, *kinds)(code.address))


def reading(size: int, seconds: float = 0.05) -> float:
    """Return the bytes a second that are read of `size` bytes."""
    target = host()
    block = 8 * target.vector_bytes
    blocks = max(1, size // block)
    source, sink = aligned(blocks * block // 4, "f32"), aligned(target.vector_bytes // 4, "f32")
    repeats = max(1, (1 << 20) // (blocks * block))
    loop = read_loop(target)
    best, end, count = float("inf"), time.perf_counter() + seconds, 0
    while count < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        loop.run(sink.ctypes.data, source.ctypes.data, blocks, repeats)
        best, count = min(best, (time.perf_counter() - start) / repeats), count + 1
    return blocks * block / best


def aligned(count: int, dtype: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Return an array of zeros that begins at a multiple of 64 bytes, its pages there already."""
    size = LLVM[dtype][1]
    block = np.full(count * size + 64, 0, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + count * size].view(f"f{size}")
