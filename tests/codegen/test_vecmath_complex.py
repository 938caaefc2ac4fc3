"""The vector functions on complex numbers, against mpmath and numpy."""

from __future__ import annotations

from functools import cache

import mpmath
import numpy as np
import pytest
from mpmath import mp

from polyker.codegen.vecmath import functions as vecmath
from polyker.ir.dtypes import DType, c64, c128
from tests.codegen.vecmath_harness import Compiled, needs_avx512

FORMATS = [pytest.param(c64, 8, id="c64"), pytest.param(c128, 4, id="c128")]
EXACT = {
    "abs": abs, "exp": mp.exp, "expm1": lambda z: mp.exp(z) - 1, "log": mp.log, "log1p": lambda z: mp.log(1 + z),
    "sqrt": mp.sqrt, "rsqrt": lambda z: 1 / mp.sqrt(z), "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "tanh": mp.tanh,
    "sinh": mp.sinh, "cosh": mp.cosh, "exp2": lambda z: mp.exp(z * mp.ln(2)), "log2": lambda z: mp.log(z) / mp.ln(2),
    "log10": lambda z: mp.log(z) / mp.ln(10),
    "sigmoid": lambda z: 1 / (1 + mp.exp(-z)), "silu": lambda z: z / (1 + mp.exp(-z)), "div": lambda z, w: z / w,
    "pow": lambda z, w: mp.exp(w * mp.log(z)),
}  # fmt: skip


@cache
def compiled(op: str, dtype: DType, lanes: int, avx512: bool = False) -> Compiled:
    return Compiled(op, dtype, lanes, avx512=avx512)


def call(op: str, dtype: DType, lanes: int, *args: np.ndarray, avx512: bool = False) -> np.ndarray:
    """Call the compiled function on complex arrays."""
    function = compiled(op, dtype, lanes, avx512)
    parts = function(*(p.astype(function.element) for a in args for p in (a.real, a.imag)))
    if len(parts) == 1:
        return parts[0]
    result = np.empty(parts[0].size, np.complex64 if dtype == c64 else np.complex128)
    result.real, result.imag = parts
    return result


def numbers(kind: type, count: int, seed: int = 1) -> np.ndarray:
    """Return numbers of all sizes, near the unit circle, and in a square."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(-np.pi, np.pi, count)
    size = np.exp(rng.uniform(-12, 4, count))
    size[: count // 3] = 1 + rng.uniform(-1, 1, count // 3) * 10.0 ** -rng.integers(1, 12, count // 3)
    z = size * np.exp(1j * angle)
    z[-(count // 4) :] = rng.uniform(-30, 30, count // 4) + 1j * rng.uniform(-30, 30, count // 4)
    return z.astype(kind)


@cache
def exact_values(op: str, kind: type) -> tuple[list[np.ndarray], list[mpmath.mpc]]:
    """Return arguments of a function, and its exact values."""
    args = [numbers(kind, 800)]
    if op in ("pow", "div"):
        rng = np.random.default_rng(5)
        args.append((rng.uniform(-3, 3, 800) + 1j * rng.uniform(-3, 3, 800)).astype(kind))
    with mp.workprec(140):
        return args, [EXACT[op](*(mpmath.mpc(complex(v)) for v in row)) for row in zip(*args, strict=True)]


@pytest.mark.parametrize("avx512", [False, pytest.param(True, marks=needs_avx512)])
@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize(("dtype", "lanes"), FORMATS)
def test_the_error_is_a_few_ulp_of_the_size(op: str, dtype: DType, lanes: int, avx512: bool) -> None:
    kind = np.complex64 if dtype == c64 else np.complex128
    args, exact = exact_values(op, kind)
    got = call(op, dtype, lanes, *args, avx512=avx512)
    unit = mp.mpf(2) ** (-23 if dtype == c64 else -52)
    with mp.workprec(140):
        errors = [abs(mpmath.mpc(complex(g)) - e) / abs(e) / unit for g, e in zip(got, exact, strict=True)]
    # A power's error grows with the size of w log z, as numpy's does.
    assert max(errors) < (1 if dtype == c64 else 40 if op == "pow" else 4), args[0][int(np.argmax(errors))]


@pytest.mark.parametrize(("dtype", "lanes"), FORMATS)
def test_sizes_neither_overflow_nor_underflow_on_the_way(dtype: DType, lanes: int) -> None:
    large = float(np.finfo(np.float32 if dtype == c64 else np.float64).max) / 2
    tiny = float(np.finfo(np.float32 if dtype == c64 else np.float64).tiny)
    z = np.array([large * (0.6 + 0.8j), tiny * (3 + 4j), complex(np.inf, np.nan), complex(np.nan, -np.inf)])
    expected = [large, tiny * 5, np.inf, np.inf]
    assert np.allclose(call("abs", dtype, lanes, z), expected, rtol=3e-7, atol=0)


@pytest.mark.parametrize(
    ("op", "values"),
    [
        ("exp", [0j, complex(-np.inf, 2), complex(np.inf, 0), 710 + 0.5j, -745 + 1j]),
        ("log", [0j, complex(-0.0, 0.0), -1 + 0j, complex(-1, -0.0), complex(np.inf, 1), 1e300 + 1e300j, 1e-310 + 0j]),
        (
            "sqrt",
            [0j, -4 + 0j, complex(-4, -0.0), complex(np.inf, 1), complex(-np.inf, 1), 1e300 + 1e300j, 3e-320 + 0j],
        ),
        ("tanh", [800 + 1j, -800 + 1j, complex(np.inf, 0), 0j]),
        ("sin", [0j, 1 + 705j, 2 - 705j]),
        ("cos", [0j, 1 + 705j, 2 - 705j]),
        ("tan", [1 + 800j, 0j]),
        ("exp2", [0j, complex(-np.inf, 2), complex(np.inf, 0), -1074 + 1j, 3 + 0j, complex(5, -0.0)]),
        ("log2", [0j, complex(-0.0, 0.0), -1 + 0j, complex(np.inf, 1), 1e300 + 1e300j]),
        ("log10", [0j, -100 + 0j, complex(-1, -0.0)]),
        ("sinh", [0j, complex(-0.0, 0.0), 705 + 1j, -705 + 2j, complex(0.0, -0.0)]),
        ("cosh", [0j, 705 + 1j, -705 + 2j]),
    ],
)
def test_critical_values_are_numpys(op: str, values: list[complex]) -> None:
    z = np.array(values)
    with np.errstate(all="ignore"):
        expected = getattr(np, op)(z)
    got = call(op, c128, 4, z)
    for a, b in ((got.real, expected.real), (got.imag, expected.imag)):
        assert np.allclose(a, b, rtol=1e-14, atol=0, equal_nan=True), [*zip(z, got, expected, strict=True)]


def test_powers_of_two_near_overflow_are_in_range_where_their_parts_are() -> None:
    z = np.array([1023.9 + 2.2j, 1024.5 + 2.26j, -1020 + 3e9j])
    with mp.workprec(140):
        exact = [complex(mp.exp(mpmath.mpc(complex(v)) * mp.ln(2))) for v in z]
    got = call("exp2", c128, 4, z)
    assert np.all(np.isfinite(got[0].imag) & np.isfinite(got[1].real))
    assert np.allclose(got.real, np.real(exact), rtol=1e-14, atol=0)
    assert np.allclose(got.imag, np.imag(exact), rtol=1e-14, atol=0)


def test_powers_of_zero_and_to_zero() -> None:
    z = np.array([0j, 0j, 2 + 3j, 2 + 3j, 0j])
    w = np.array([0j, 2 + 0j, 0j, 1 + 0j, -1 + 0j])
    got = call("pow", c128, 4, z, w)
    assert got[:4].tolist() == [1, 0, 1, 2 + 3j]
    assert np.isnan(got[4])


def test_complex_definitions_take_the_parts_one_after_the_other() -> None:
    definition = vecmath.function("pow", c64, 4)
    assert definition.parameters == ("<4 x float>",) * 4
    assert definition.result == "{ <4 x float>, <4 x float> }"
    assert vecmath.function("abs", c128, 1).result == "double"
    assert not vecmath.supported("erf", c128)
