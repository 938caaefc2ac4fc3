"""Processors known by name: plain values."""

from __future__ import annotations

from polyker.target.model import Cache, Target

_DESKTOP = (Cache(32 << 10), Cache(512 << 10), Cache(16 << 20, ways=16))
_LINUX = "x86_64-unknown-linux-gnu"

KNOWN: dict[str, Target] = {
    target.name: target
    for target in (
        Target("cpu:x86-64", _LINUX, "x86-64", "", 16, 16, False, 2, 4, _DESKTOP),
        Target("cpu:x86-64-v2", _LINUX, "x86-64-v2", "", 16, 16, False, 2, 4, _DESKTOP),
        Target("cpu:x86-64-v3", _LINUX, "x86-64-v3", "", 32, 16, False, 2, 4, _DESKTOP),
        Target("cpu:x86-64-v4", _LINUX, "x86-64-v4", "", 64, 32, True, 2, 4, _DESKTOP),
        Target("aarch64-linux-gnu", "aarch64-unknown-linux-gnu", "generic", "+neon", 16, 32, False, 2, 4, _DESKTOP),
        Target("wasm32", "wasm32-unknown-unknown", "generic", "+simd128", 16, 16, False, 1, 4, _DESKTOP),
    )
}
