"""Functions of complex numbers that are made of others: as numpy's, on every kind of target."""

import numpy as np
import pytest

import polyker as pk
from tests.gpu.support import needs_compiler

FUNCTIONS = {
    "round": np.round,
    "sign": np.sign,
    "exp2": np.exp2,
    "log2": np.log2,
    "log10": np.log10,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "silu": lambda z: z / (1 + np.exp(-z)),
}
Z = np.array(
    [
        1.5 + 2.5j,
        -0.5 - 1.2j,
        0,
        30 - 2j,
        -3 + 0j,
        1e-30 + 1e-30j,
        *np.random.default_rng(0).normal(size=(20, 2)) @ [1, 1j],
    ]
)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v2", pytest.param("cuda-sim", marks=needs_compiler)])
def test_values_are_those_of_numpy(target, name, dtype):
    z = Z.astype(dtype)
    if name.startswith("is"):
        z = np.append(z, np.array([complex(np.nan, 1), complex(1, np.inf), complex(np.nan, -np.inf)], dtype))
    found = pk.op(f"O[i] = {name}(z[i])").compile(z, target=target)(z)
    with np.errstate(all="ignore"):
        wanted = FUNCTIONS[name](z)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_the_size_of_single_precision_neither_overflows_nor_vanishes():
    z = np.array(
        [1e38 + 1e38j, 1e-44, 3 + 4j, complex(np.inf, np.nan), complex(np.nan, -np.inf), np.nan, 0, -2e-23j, 2.5e38],
        "c8",
    )
    np.testing.assert_allclose(pk.op("O[i] = abs(z[i])")(z), abs(z), rtol=2e-7)
