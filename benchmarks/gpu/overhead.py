"""What a child does for the last part of the smoke run: microseconds of the host a call, on small arrays."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import polyker as pk
from benchmarks.gpu.child import Say
from benchmarks.gpu.families import skip_unless
from benchmarks.gpu.machine import compile_now

_CALLS, _ROUNDS = 100, 7  # fewer calls than a stream holds before it makes the host wait
_N = 64
ADD, PRODUCT, TWO = "C[i,j] = A[i,j] + B[i,j]", "C[i,j] += A[i,k] * B[k,j]", "s += A[i] * B[i]"
_LONG = 200_003  # of which two launches make a sum
_TYPES = {ADD: (pk.f32[_N, _N],) * 2, PRODUCT: (pk.f32[_N, _N],) * 2, TWO: (pk.f32[_LONG],) * 2}
TEXTS = tuple(_TYPES)
# What is called: (text, or torch's function; how).
CALLS: dict[str, tuple[str, str]] = {
    "prepared, a sum": (ADD, "prepared"),
    "kernel(A, B, out=C), a sum": (ADD, "out"),
    "kernel(A, B), a sum": (ADD, "new"),
    "op(A, B), a sum": (ADD, "operator"),
    "torch.add(A, B, out=C)": (ADD, "torch out"),
    "torch.add(A, B)": (ADD, "torch"),
    "prepared, a product": (PRODUCT, "prepared"),
    "kernel(A, B, out=C), a product": (PRODUCT, "out"),
    "op(A, B), a product": (PRODUCT, "operator"),
    "torch.matmul(A, B, out=C)": (PRODUCT, "torch out"),
    "torch.matmul(A, B)": (PRODUCT, "torch"),
    "prepared, two launches": (TWO, "prepared"),
    "kernel(A, B, out=s), two launches": (TWO, "out"),
    "torch.dot(A, B)": (TWO, "torch"),
}


def compile_text(_: Any, say: Say, *, name: str, target: str) -> None:
    """Let the machine code of a text be made and kept on disk."""
    compile_now(pk.op(name).compile(*_TYPES[name], target=target), target)


def host_time(machine: Any, say: Say, *, name: str) -> dict[str, Any]:
    """Return the microseconds of one call, the median of some rounds of many."""
    text, how = CALLS[name]
    a, b = (machine.random(t.shape, "f32") for t in _TYPES[text])
    work: Callable[[], Any]
    if how.startswith("torch"):
        torch = machine.torch
        skip_unless(torch is not None, "torch is not used here")
        function = {ADD: torch.add, PRODUCT: torch.matmul, TWO: torch.dot}[text]
        if how == "torch":
            work = lambda: function(a, b)  # noqa: E731
        else:
            out = function(a, b)
            work = lambda: function(a, b, out=out)  # noqa: E731
    elif how == "operator":
        skip_unless(machine.kind != "dry", "an operator runs on the CPU where its arrays lie there")
        operator = pk.op(text)
        work = lambda: operator(a, b)  # noqa: E731
    else:
        kernel = pk.op(text).compile(*_TYPES[text], target=machine.target)
        out = kernel(a, b)
        ways = {
            "prepared": lambda: kernel.prepare(a, b, out=out),
            "out": lambda: lambda: kernel(a, b, out=out),
            "new": lambda: lambda: kernel(a, b),
        }
        work = ways[how]()
    calls = _CALLS if machine.kind != "dry" else 3
    for _ in range(calls):
        work()
    machine.sync()
    found = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        found.append((time.perf_counter() - start) / calls)
        machine.sync()
    return {"us": 1e6 * statistics.median(found)}
