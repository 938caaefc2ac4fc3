"""What the model of common loops charges: bytes passed on, values held for one iteration, copies by blocks that are lost."""

from __future__ import annotations

import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.machine.model import Cache, Memory, Target
from polyker.schedule.fusion import cost as fuse_cost
from polyker.structs import replace

# A server's core: its third cache and memory are far.
SERVER = replace(
    target("cpu:x86-64-v4"),
    memory=Memory(read=3.8),
    caches=(Cache(48 << 10, ways=12), Cache(1280 << 10, ways=20), Cache(48 << 20, ways=12, read=7.1)),
)


def joined(text: str, machine: Target, **types: object) -> list[str]:
    """Return the notes of what runs together."""
    kernel = pk.op(text).compile(**types, target=machine, threads=1)
    return [line for line in kernel.source("schedule").splitlines() if "run together" in line]


def test_a_loop_of_one_iteration_holds_no_values_nearer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_cost, "UNBLOCKED_LOSS", 0.0)
    # The padded copy of X that the terms read is as large in the one iteration of n as in all.
    convolution = "O[n,f,h,w] += X[n,c,h+r-2,w+s-2; pad=0] * K[f,c,r,s] for h in 0:27, w in 0:27"
    weights = pk.f32[192, 64, 5, 5]
    assert joined(convolution, replace(SERVER, name="cpu:one"), X=pk.f32[1, 64, 27, 27], K=weights) == []


def test_a_product_keeps_its_copies_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    form = "T[b,j] += A[b,i] * B[i,j];  C[b] += T[b,j] * D[b,j]"
    types = {"A": pk.f32[512, 256], "B": pk.f32[256, 256], "D": pk.f32[512, 256]}
    assert joined(form, SERVER, **types) == []
    monkeypatch.setattr(fuse_cost, "UNBLOCKED_LOSS", 0.0)
    near = replace(SERVER, name="cpu:near")  # kernels are kept by their target's values
    assert joined(form, near, **types) != []


def test_statements_share_rows_that_cost_much_to_pass_on() -> None:
    text = "V[n] += X[n,c]**2;  O[n,c] = X[n,c] * rsqrt(V[n] / 1024) * W[c]"
    types = {"X": pk.f32[12000, 1024], "W": pk.f32[1024]}
    (far,) = joined(text, SERVER, **types)
    desk = replace(SERVER, memory=Memory(), caches=tuple(replace(c, read=None) for c in SERVER.caches))
    (near,) = joined(text, desk, **types)
    won = [int(line.split("wins ")[1].split("%")[0]) for line in (far, near)]
    assert won[0] > won[1] + 10
