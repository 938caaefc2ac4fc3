"""Accumulators of symbolic programs live in the tiles that set them, and are carried from none to the next."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import Allocate, Buffer, Const, For, KernelIR, LoopKind, Op, Space, Store, Var
from polyker.codegen.ir.kernel import Load as Read
from polyker.codegen.ir.walk import allocated, statements
from polyker.codegen.llvm.jit import build as llvm_build
from polyker.codegen.llvm.jit.detect import target
from polyker.codegen.passes.own_buffers import narrow
from polyker.ir.dtypes import f64
from polyker.pipeline import kernel as kernels
from polyker.pipeline.driver import Run
from polyker.pipeline.passes import At
from tests.artifacts import compiled_to

TEXT = "C[f,e,d,c] += A[c,g,e] * B[d,g,f]"
V4 = "cpu:x86-64-v4"


def compiled(text: str = TEXT) -> pk.Kernel:
    types = pk.f64["C", "G", "E"], pk.f64["D", "G", "F"]
    return pk.op(text).compile(*types, target=V4, threads=1, specialize="never")


def test_scopes_of_accumulators_stand_in_the_loops_over_tiles() -> None:
    kernel, own = narrow(Run(At(target(V4))).passes([kernels.UNSWITCH], compiled_to(compiled()).loops))
    loops = [s for s in statements(kernel.body) if isinstance(s, For) and s.kind is LoopKind.SERIAL]
    inside = {b.name for loop in loops for b in allocated(loop.body)}
    names = [b.name for b in allocated(kernel.body)]
    assert own
    assert own <= inside
    assert len(names) == len(set(names))


def test_a_buffer_of_several_blocks_has_a_name_for_each() -> None:
    def tile(place: int) -> tuple[For, ...]:
        def loop(var: str, body: tuple[Store, ...]) -> For:
            return For(var, Const(0), Const(4), body, kind=LoopKind.UNROLL)

        element = Op("add", (Var("a"), Const(place)))
        first = loop("a", (Store("s", (Var("a"),), Read("x", (element,), f64)),))
        return first, loop("a", (Store("y", (element,), Read("s", (Var("a"),), f64)),))

    held = Buffer("s", f64, (Const(4),), (Const(1),), Space.STACK)
    x, y = (Buffer(n, f64, (Const(8),), (Const(1),), Space.ARGUMENT, writable=n == "y") for n in "xy")
    blocks = tuple(For(v, Const(0), Const(1), tile(n)) for v, n in (("i", 0), ("j", 4)))
    kernel, own = narrow(KernelIR("k", (x, y), (), (Allocate((held,), blocks),)))
    assert own == {"s", "s_1"}
    assert all(isinstance(loop, For) and isinstance(loop.body[0], Allocate) for loop in kernel.body)
    used = [{s.buffer for s in statements((loop,)) if isinstance(s, Store)} - {"y"} for loop in kernel.body]
    assert used == [{"s"}, {"s_1"}]


def vector_phis(kernel: pk.Kernel) -> int:
    """Return how many vectors blocks of the optimized code take from the blocks before them."""
    return len(re.findall(r" = phi <", str(llvm_build.optimized(target(V4), str(kernel.source("llvm"))))))


def test_no_tile_carries_accumulators_of_another() -> None:
    # Around the loops of each tile, with scopes around the kernel: over a thousand.
    assert vector_phis(compiled()) < 400


@pytest.mark.parametrize("sizes", [(5, 3, 4, 2, 9), (16, 8, 16, 7, 24), (1, 1, 1, 1, 1), (17, 9, 8, 0, 33)])
def test_values_are_numpys(sizes: tuple[int, ...]) -> None:
    c, g, e, d, f = sizes
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (c, g, e)).astype("f8"), rng.integers(-4, 5, (d, g, f)).astype("f8")
    kernel = pk.op(TEXT).compile(pk.f64["C", "G", "E"], pk.f64["D", "G", "F"], threads=1, specialize="never")
    np.testing.assert_array_equal(kernel(a, b), np.einsum("cge,dgf->fedc", a, b))
