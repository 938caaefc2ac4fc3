"""The functions that CUDA's library computes, as a list for the header of printed kernels (`pk_cuda.h`)."""

from __future__ import annotations

from polyker.ir.functions import TABLE

# Where the list goes in the header.
PLACE = "// @functions of C's library\n"


def listed() -> str:
    """Return the macros that apply X(T, S, name, c) to each function of one argument, and of two: its name here and in C."""
    lines = []
    for arity in (1, 2):
        calls = [f"X(T, S, {f.name}, {f.c})" for f in TABLE.values() if f.c and f.arity == arity]
        lines.append(f"#define PK_C{arity}(X, T, S) {' '.join(calls)}\n")
    return "".join(lines)
