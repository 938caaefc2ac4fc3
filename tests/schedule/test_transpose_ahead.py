"""Tiles transposed in registers ask for the lines of a later tile, each of its rows' and of its results', once."""

from __future__ import annotations

import re

import numpy as np
import pytest

from polyker.codegen.ir.kernel import For, KernelIR, LoopKind
from polyker.codegen.ir.printing import print_kernel
from polyker.codegen.ir.walk import statements
from polyker.codegen.llvm.jit.detect import target
from tests.codegen.support import run_native
from tests.passes import emit
from tests.schedule.support import SMALL, case, lowered


def kernel(text: str, **types: str) -> KernelIR:
    scop, schedule = case(text, **types).automatic(target(SMALL))
    return lowered(scop, schedule).kernel


def asked(text: str, **types: str) -> list[str]:
    """Return the tensors that are asked for, once a prefetch in the printed loops."""
    return re.findall(r"prefetch (\w+)\[.*into cache 2", print_kernel(kernel(text, **types)))


FAR, NEAR = "f64[700,900]", "f64[70,90]"


@pytest.mark.parametrize(
    ("text", "types", "found"),
    [
        ("O[j,i] = A[i,j]", {"A": FAR}, {"t0", "t1"}),
        ("O[j,i] = A[i,j]", {"A": NEAR}, set()),
        ("O[j,i] = A[j,i] + B[i,j]", {"A": "f64[900,700]", "B": FAR}, {"t0", "t1", "t2"}),
        ("O[j,i] = A[i,j] * b[i]", {"A": FAR, "b": "f64[700]"}, {"t0", "t2"}),  # b stays near
        ("O[j,i] = A[i,j] + T[x[j],i]", {"A": FAR, "T": FAR.replace("900", "700"), "x": "i64[900]"}, {"t0", "t3"}),
        ("O[j,i] = A[j,i]", {"A": FAR}, set()),
    ],
)
def test_what_lies_beyond_the_second_cache_is_asked_for(text: str, types: dict[str, str], found: set[str]) -> None:
    assert set(asked(text, **types)) == found


@pytest.mark.parametrize(
    ("text", "types", "step"),
    [
        # The next columns of a panel's rows; where a matrix has few tiles, those of the next one.
        ("O[j,i] = A[i,j]", {"A": "f32[700,900]"}, r"\+ 16\)|\+ 912\)"),
        ("O[n,j,i] = A[n,i,j]", {"A": "f32[600,56,80]"}, r"\(v0 \+ 1\)"),
    ],
)
def test_a_loop_that_is_long_enough_is_looked_ahead_in(text: str, types: dict[str, str], step: str) -> None:
    asks = [line for line in print_kernel(kernel(text, **types)).splitlines() if "prefetch t1" in line]
    assert asks
    assert all(re.search(step, line) for line in asks)


@pytest.mark.parametrize("kind", ["u8", "i16", "f32", "f64", "c64"])
@pytest.mark.parametrize("processor", ["cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4"])
def test_each_line_of_a_tile_is_asked_for_once(kind: str, processor: str) -> None:
    """A tile reads so many rows as a vector has lanes, and writes so many as it has columns."""
    machine = target(processor)
    scop, schedule = case("O[j,i] = A[i,j]", A=f"{kind}[2048,2048]").automatic(machine)
    found = lowered(scop, schedule).kernel
    tile = next(s for s in statements(found.body) if isinstance(s, For) and s.kind is LoopKind.TRANSPOSE)
    (vector,) = tile.body
    assert isinstance(vector, For)
    text = emit(found, machine)
    asks = text.count("call void @llvm.prefetch")
    # Results that pass the caches are not asked for: where they begin at a line, and where rows of tiles are joined to lines. Of
    # those, loops store what begins them, what ends them, and what ends the last, and ask for the next lines that they store to.
    rows, columns = vector.trip, tile.trip
    past, joined = "!nontemporal" in text, "permvar" in text
    assert asks == (rows + columns) + (rows if past else 0) + (rows + 3 if joined else 0)


@pytest.mark.parametrize("shape", [(700, 900), (701, 333), (64, 5000)])
def test_the_result_is_the_transposed_matrix(shape: tuple[int, int]) -> None:
    a = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    out = np.zeros(shape[::-1], "f4")
    assert run_native(kernel("O[j,i] = A[i,j]", A=f"f32{list(shape)}"), {"t0": a, "t1": out}, {}) == 0
    assert np.array_equal(out, a.T)
