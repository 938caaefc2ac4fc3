"""The register tile of a matrix product: accumulators stay in registers, each element of A and B is loaded once."""

import re

import numpy as np
import pytest

from polyker.codegen.llvm.jit.build import assembly
from polyker.codegen.llvm.jit.detect import target
from polyker.codegen.passes.unroll_terms import (
    MAX_PASSING_VALUES,
    MAX_UNROLLED_OPERATIONS,
    MIN_FULL_TILE_SUMS,
    UNROLL_FACTOR,
)
from polyker.ir.dtypes import f32, f64
from tests.codegen.matrix import SIZES, matrix_product
from tests.codegen.support import call, check_same, compiled
from tests.passes import emit

TILES = [
    (12, 2, 16, f32, "cpu:x86-64-v4"),
    (14, 2, 16, f32, "cpu:x86-64-v4"),
    (12, 2, 8, f64, "cpu:x86-64-v4"),
    (8, 3, 16, f32, "cpu:x86-64-v4"),
    (6, 2, 8, f32, "cpu:x86-64-v3"),
    (8, 3, 4, f32, "aarch64-linux-gnu"),
]


def inner_loops(text: str) -> list[str]:
    """The bodies of the loops with the fused multiply-adds."""
    found = re.findall(r"^(\.LBB\d+_\d+):.*\n((?:(?!\.L).*\n)*?)\t(?:j\w+|b\.\w+)\t\1\n", text, re.M)
    return [body for _, body in found if re.search(r"\tv?fm(add|la)", body)]


@pytest.mark.parametrize(("rows", "vectors", "lanes", "dtype", "name"), TILES)
def test_the_tile_lives_in_registers(rows, vectors, lanes, dtype, name):
    bodies = inner_loops(assembly(emit(matrix_product(rows, vectors, lanes, dtype), target(name)), target(name)))
    operations = 2 * rows * vectors
    fits = rows <= MAX_PASSING_VALUES or rows * vectors <= MIN_FULL_TILE_SUMS
    several = [n for n in (UNROLL_FACTOR, UNROLL_FACTOR // 2) if fits and n * operations <= MAX_UNROLLED_OPERATIONS][:1]
    assert len(bodies) == 1 + len(several)
    for body, terms in zip(bodies, [*several, 1], strict=True):
        lines = [line.strip() for line in body.splitlines()]
        fused = [x for x in lines if re.match(r"v?fm(add|la)", x)]
        assert len(fused) == rows * vectors * terms
        stack = [x for x in lines if re.search(r"%[xyz]mm", x) and "%rsp" in x] + [
            x for x in lines if "[sp" in x and " q" in x
        ]
        assert not stack, stack
        if "x86" in name:
            loads = [x for x in lines if re.search(r"\(.*\), %[xyz]mm", x)]
            assert len(loads) == (rows + vectors) * terms, loads
            assert not any(re.match(r"vmov.*%[xyz]mm\d+, .*\(", x) for x in lines)


@pytest.mark.parametrize("name", ["cpu", "cpu:x86-64-v3"])
@pytest.mark.parametrize("masked", [False, True])
def test_the_product_is_right(name, masked):
    kernel = matrix_product(4, 2, 8, masked=masked)
    for n in (16, 32) if not masked else (1, 7, 8, 9, 16, 19, 31):
        rng = np.random.default_rng(n)
        a, b = (rng.integers(-9, 10, s).astype(np.float32) for s in ((8, 5), (5, n)))
        sizes = dict(zip(SIZES, (8, n, 5, 5, n, n), strict=True))
        check_same(kernel, {"A": a, "B": b, "C": np.zeros((8, n), np.float32)}, sizes, name)


def test_a_product_over_nothing_is_zero():
    c = np.full((12, 32), 5, np.float32)
    code = compiled(matrix_product(12, 2, 16))
    assert call(code, [np.zeros((12, 0), np.float32), np.zeros((0, 32), np.float32), c], [12, 32, 0, 1, 32, 32]) == 0
    assert not c.any()


def test_a_masked_tile_keeps_its_accumulators_in_registers():
    name = "cpu:x86-64-v4"
    (body,) = inner_loops(assembly(emit(matrix_product(12, 2, 16, masked=True), target(name)), target(name)))
    assert len(re.findall("vfmadd", body)) == 24
    assert not [x for x in body.splitlines() if re.search(r"%zmm", x) and "%rsp" in x]
    assert "cmov" not in body, "a uniform load of a tile that surely has a lane needs no test"
