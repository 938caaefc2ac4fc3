"""Sums over memory by pieces that lie apart: what numpy gives, whatever the length, and only where pieces come sooner."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.machine.model import Cache
from polyker.structs import replace
from tests.covering import few
from tests.machines import ONE_ROW, SIDE_BY_SIDE

TINY = replace(target("cpu"), memory=SIDE_BY_SIDE, caches=(Cache(4 << 10), Cache(8 << 10), Cache(32 << 10)))
NOTE = "read side by side"


def kernel(text: str, machine: object = TINY, **arrays: np.ndarray) -> pk.Kernel:
    return pk.op(text).compile(**arrays, target=machine, threads=1)


@pytest.mark.parametrize(
    ("n", "kind"), few([32768, 32769, 40000, 65535, 65536 + 17, 100003], ["i4", "i8", "f4", "f8", "c8"], 2)
)
def test_sums_of_any_length_are_numpys(n: int, kind: str) -> None:
    rng = np.random.default_rng(n)
    x, y = (rng.integers(-9, 10, n).astype(kind) for _ in range(2))
    total = kernel("s += X[i]", X=x)
    assert NOTE in str(total.source("schedule"))
    assert total(x) == x.sum()
    product = kernel("s += X[i] * Y[i]", X=x, Y=y)
    assert NOTE in str(product.source("schedule"))
    assert product(x, y) == (x * y).sum()


@pytest.mark.parametrize(
    ("text", "numpy"),
    [
        ("s max= X[i]", lambda x: x.max()),
        ("s min= X[i] * X[i]", lambda x: (x * x).min()),
        ("s += abs(X[i]);  t = s * 2", lambda x: 2 * np.abs(x).sum()),
        ("s any= X[i] > 8", lambda x: (x > 8).any()),
    ],
)
def test_any_reduction_may_be_taken_so(text: str, numpy: object) -> None:
    x = np.random.default_rng(1).integers(-9, 9, 50021).astype("f8")
    found = kernel(text, X=x)
    assert NOTE in str(found.source("schedule"))
    assert found(x) == numpy(x)


def test_an_operand_of_one_element_is_none_that_is_walked() -> None:
    x, a = np.arange(50021, dtype="i8"), np.int64(3)
    found = kernel("s += a * X[i]", X=x, a=a)
    assert NOTE in str(found.source("schedule"))
    assert found(X=x, a=a) == 3 * x.sum()


def test_a_long_sum_of_floats_loses_nothing() -> None:
    x = np.random.default_rng(2).random(3_000_001, dtype="f4")
    got, exact = kernel("s += X[i]", X=x)(x), x.astype("f8").sum()
    assert abs(got - exact) <= 4e-7 * exact


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("s += X[i]", replace(TINY, name="cpu:one", memory=ONE_ROW)),
        ("s += X[i]", replace(TINY, name="cpu:large", caches=(Cache(4 << 10), Cache(8 << 10), Cache(64 << 20)))),
        ("s += X[2*i]", TINY),
        (
            "s[j] = j for j in 0:1001;  s[j] += X[i] for j in 1000:1001",
            TINY,
        ),  # partial results would have as many places
        ("s[j] += X[8*i+j] for j in 0:8, i in 0:6000", TINY),
    ],
)
def test_other_sums_are_taken_as_they_are(text: str, machine: object) -> None:
    x = np.arange(50000, dtype="f4")
    assert NOTE not in str(kernel(text, machine, X=x).source("schedule"))
