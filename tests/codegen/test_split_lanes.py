"""Vector loops of any number of lanes, as in a user's schedule: they become several of native vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk

PRODUCT = pk.op("C[i,j] += A[i,k] * B[k,j]")


def kernel(a: np.ndarray, b: np.ndarray, width: int, target: str = "cpu") -> pk.Kernel:
    """Return a product with tiles of 4 rows and of so many columns in registers, each row one vector."""
    s = PRODUCT.schedule(a, b, auto=False, threads=1, target=target)
    s = s["C"].tile(i=4, j=width).interchange("k", "i.point", "j.point")
    s = s["C"].vectorise({"j.point": width})["C"].unroll({"i.point": 4})
    s = s["C"].promote("C", at="j.tile", memory="registers")
    return PRODUCT.compile(schedule=s["C.start#2"].vectorise(j=width)["C.store"].vectorise(j=width))


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 70), st.integers(1, 3), st.integers(0, 5), st.sampled_from(["f4", "f8", "i4", "c8"]))
def test_values_are_those_of_numpy(width, tiles, more, dtype):
    rng = np.random.default_rng(width)
    a, b = (rng.integers(-9, 9, s).astype(dtype) for s in ((7, 5), (5, width * tiles + more)))
    np.testing.assert_array_equal(kernel(a, b, width)(a, b), a @ b)


@pytest.mark.parametrize("width", [24, 40, 48, 96])
def test_accumulators_stay_in_registers(width):
    """Vectors of 24 lanes went through the stack in each iteration: 9 times as slow as 32 lanes."""
    a = np.ones((480, 480), np.float32)
    asm = kernel(a, a, width, "cpu:x86-64-v4").source("asm")
    assert not re.findall(r"\(%rsp|\[rsp", asm)
