"""The vector functions on real numbers: errors against mpmath, special values, thresholds, any number of lanes."""

from __future__ import annotations

import os
import re
from functools import cache

import numpy as np
import pytest
from mpmath import mp

import polyker as pk
from polyker.codegen.vecmath import functions as vecmath
from polyker.ir.dtypes import DType, f32, f64, i32
from tests.codegen.vecmath_harness import HAS_AVX512, Compiled, link, needs_avx512
from tests.codegen.vecmath_reference import BESIDE, EXTENDED, LIMIT, REAL_OPS, arguments, dense_worst, points, worst

FORMATS = [
    pytest.param(f32, 16, False, id="f32"),
    pytest.param(f64, 8, False, id="f64"),
    pytest.param(f32, 16, True, id="f32-avx512", marks=needs_avx512),
    pytest.param(f64, 8, True, id="f64-avx512", marks=needs_avx512),
]
WITH_AND_WITHOUT_FMA = [
    *(pytest.param(*f.values[:2], True, f.values[2], id=f.id, marks=f.marks) for f in FORMATS),
    pytest.param(f32, 16, False, False, id="f32-nofma"),
    pytest.param(f64, 8, False, False, id="f64-nofma"),
]
# Thousands of numbers of a sweep, of a dense one, and how far apart those of f32 are that are compared with f64's. More of them
# take minutes: POLYKER_ALL_TESTS=1 goes through these.
SWEEP, DENSE, APART = (20, 2000, 64) if os.environ.get("POLYKER_ALL_TESTS") else (2, 300, 1024)
NUMPY = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "tanh": np.tanh, "rsqrt": lambda x: 1 / np.sqrt(x), "exp2": np.exp2, "log2": np.log2, "log10": np.log10, "sinh": np.sinh,
    "cosh": np.cosh, "softplus": lambda x: np.logaddexp(x.dtype.type(0), x), "cbrt": np.cbrt, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
PAIRS = {"hypot": np.hypot, "atan2": np.arctan2}
LIBRARY = {
    name + end for name in ("fma", "exp", "log", "pow", "sin", "ldexp", "trunc", "copysign") for end in ("", "f")
}
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e-310, -1e-310)


@cache
def compiled(op: str, dtype: DType, lanes: int, fma: bool = True, cpu: str = "", avx512: bool = False) -> Compiled:
    return Compiled(op, dtype, lanes, cpu, fma=fma, avx512=avx512)


def same(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return where two arrays hold the same value: NaN as NaN, zeros with the same sign, numbers to 2 ulp."""
    with np.errstate(all="ignore"):
        close = np.abs(got - expected) <= 2 * np.spacing(np.abs(expected))
    return np.where(
        np.isfinite(expected),
        np.where(expected == 0, (got == 0) & (np.signbit(got) == np.signbit(expected)), close),
        (got == expected) | (np.isnan(got) & np.isnan(expected)),
    )


@pytest.mark.parametrize(("dtype", "lanes", "avx512"), FORMATS)
@pytest.mark.parametrize("op", REAL_OPS)
def test_the_error_is_at_most_two_ulp_or_four(op: str, dtype: DType, lanes: int, avx512: bool) -> None:
    function = compiled(op, dtype, lanes, avx512=avx512)
    args = arguments(op, function.element, 1000 * SWEEP)
    error, where = worst(op, function(*args)[0], args, function.element)
    assert error <= LIMIT[op], f"{error} ulp at {where}"


@pytest.mark.parametrize(("dtype", "lanes", "avx512"), FORMATS)
@pytest.mark.parametrize("op", EXTENDED)
def test_the_error_stays_in_bounds_over_a_dense_sweep(op: str, dtype: DType, lanes: int, avx512: bool) -> None:
    function = compiled(op, dtype, lanes, avx512=avx512)
    error, where = dense_worst(op, function, function.element, 1000 * DENSE, seed=7)
    assert error <= LIMIT[op], f"{error} ulp at {where}"


@pytest.mark.parametrize("op", [op for op in REAL_OPS if vecmath.arity(op) == 1])
def test_numbers_of_all_f32_agree_with_f64(op: str) -> None:
    single, double = compiled(op, f32, 16, avx512=HAS_AVX512), compiled(op, f64, 8)
    for start in range(0, 1 << 32, 1 << 28):
        x = np.arange(start, start + (1 << 28), APART, dtype=np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            exact = double(x.astype(np.float64))[0]
            rounded = exact.astype(np.float32)
            got = single(x)[0]
            error = np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(rounded)).astype(np.float64)
        finite = np.isfinite(rounded)
        if op in BESIDE:  # what cancels on the left
            finite &= x > (-2 if op == "lgamma" else 0)
        assert np.all(error[finite] <= LIMIT[op]), x[finite][np.argmax(error[finite])]
        others = ~np.isfinite(rounded)
        assert np.array_equal(got[others], rounded[others], equal_nan=True)


@pytest.mark.parametrize("op", REAL_OPS)
@pytest.mark.parametrize(("dtype", "lanes"), [(f32, 4), (f64, 2)])
def test_without_a_fused_multiply_add_the_error_is_at_most_four_ulp(op: str, dtype: DType, lanes: int) -> None:
    function = compiled(op, dtype, lanes, fma=False)
    args = arguments(op, function.element, 1_500, seed=3)
    error, where = worst(op, function(*args)[0], args, function.element)
    assert error <= 4.0, f"{error} ulp at {where}"


@pytest.mark.parametrize("op", NUMPY)
@pytest.mark.parametrize(("dtype", "lanes", "fma", "avx512"), WITH_AND_WITHOUT_FMA)
def test_special_values_are_numpys(op: str, dtype: DType, lanes: int, fma: bool, avx512: bool) -> None:
    function = compiled(op, dtype, lanes, fma, avx512=avx512)
    x = np.array(SPECIAL).astype(function.element)
    with np.errstate(all="ignore"):
        expected = NUMPY[op](x)
    got = function(x)[0]
    assert np.all(same(got, expected)), [*zip(x, got, expected, strict=True)]


@pytest.mark.parametrize("op", PAIRS)
@pytest.mark.parametrize(("dtype", "lanes", "fma", "avx512"), WITH_AND_WITHOUT_FMA)
def test_special_values_of_two_arguments_are_numpys(op: str, dtype: DType, lanes: int, fma: bool, avx512: bool) -> None:
    function = compiled(op, dtype, lanes, fma, avx512=avx512)
    least = np.finfo(function.element).smallest_subnormal
    large = np.finfo(function.element).max
    values = np.array([*SPECIAL, least, 3 * least, large, large / 2]).astype(function.element)
    x, y = (m.ravel() for m in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = PAIRS[op](x, y)
    got = function(x, y)[0]
    wrong = ~same(got, expected)
    assert not wrong.any(), [*zip(x[wrong], y[wrong], got[wrong], expected[wrong], strict=True)]


@pytest.mark.parametrize(("dtype", "lanes", "fma", "avx512"), WITH_AND_WITHOUT_FMA)
def test_powers_of_two_and_ten_and_their_logarithms_are_exact(
    dtype: DType, lanes: int, fma: bool, avx512: bool
) -> None:
    double = dtype == f64
    whole = np.arange(-1074, 1024) if double else np.arange(-149, 128)
    powers = np.ldexp(1.0, whole).astype(compiled("exp2", dtype, lanes).element)
    exp2, log2, log10 = (compiled(op, dtype, lanes, fma, avx512=avx512) for op in ("exp2", "log2", "log10"))
    assert np.array_equal(exp2(whole.astype(exp2.element))[0], powers)
    assert np.array_equal(log2(powers)[0], whole)
    tens = np.arange(23 if double else 11)
    assert np.array_equal(log10(np.array([10.0**k for k in tens]))[0], tens)


@pytest.mark.parametrize(("dtype", "lanes", "fma", "avx512"), WITH_AND_WITHOUT_FMA)
def test_roots_of_powers_of_four_are_exact(dtype: DType, lanes: int, fma: bool, avx512: bool) -> None:
    function = compiled("rsqrt", dtype, lanes, fma, avx512=avx512)
    half = 510 if dtype == f64 else 62
    halves = np.arange(-half, half + 1 + -(2 * half + 1) % 64).clip(-half, half)
    got = function(np.ldexp(1.0, 2 * halves).astype(function.element))[0]
    assert got.tolist() == np.ldexp(1.0, -halves).tolist()


@pytest.mark.parametrize("dtype", [f32, f64])
def test_avx512_takes_roots_without_dividing(dtype: DType) -> None:
    def text(avx512: bool) -> str:
        return link([vecmath.function("rsqrt", dtype, 32, avx512=avx512)])

    assert "fdiv" in text(False)
    assert "rsqrt14" not in text(False)
    assert "fdiv" not in text(True)
    assert text(True).count("rsqrt14") > 32 * dtype.itemsize // 64
    kernel = pk.op("Y[i] = rsqrt(X[i])").compile(X=dtype[(1000,)], target="cpu:x86-64-v4", threads=1)
    assert "vrsqrt14p" in kernel.source("asm")


@cache
def vanishing(op: str, wide: bool) -> tuple[float, np.ndarray, list[mp.mpf]]:
    """Return where results of a function round to nothing, arguments around that, and their exact values."""
    last = -38.5 if wide else -14.4
    last = last if op == "gelu" else -745.13 if wide else -103.97
    x = np.linspace(last * 1.1, last * 0.99, 4096).astype(np.float64 if wide else np.float32)
    value = {
        "exp": mp.exp, "sigmoid": lambda v: 1 / (1 + mp.exp(-v)), "silu": lambda v: v / (1 + mp.exp(-v)),
        "gelu": lambda v: v * mp.erfc(-v / mp.sqrt(2)) / 2,
    }[op]  # fmt: skip
    with mp.workprec(120):
        return last, x, [value(mp.mpf(float(v))) for v in x]


@pytest.mark.parametrize("op", ["exp", "sigmoid", "silu", "gelu"])
@pytest.mark.parametrize(("dtype", "lanes", "fma", "avx512"), WITH_AND_WITHOUT_FMA)
def test_results_end_where_they_round_to_nothing(op: str, dtype: DType, lanes: int, fma: bool, avx512: bool) -> None:
    function, wide = compiled(op, dtype, lanes, fma, avx512=avx512), dtype == f64
    last, x, exact = vanishing(op, wide)
    got = function(np.concatenate([x, [last * 1e6, -1e30, np.inf, np.nan]]).astype(function.element))[0]
    with mp.workprec(120):
        least = mp.mpf(2) ** (-1074 if wide else -149)
        errors = [abs(mp.mpf(float(g)) - v) / least for g, v in zip(got[:-4], exact, strict=True)]
    assert max(errors) <= (
        1.5 if op == "gelu" else 0.5 + 2.0**-20
    )  # gelu's tail is rounded before it is scaled by a root
    assert got[-4:-2].tolist() == [0, 0]
    assert got[-2] == (1 if op == "sigmoid" else np.inf)
    assert np.isnan(got[-1])


@pytest.mark.parametrize("op", ["sin", "cos", "tan"])
@pytest.mark.parametrize(("lanes", "fma", "avx512"), [(16, True, False), (16, False, False), (4, True, False)])
def test_large_angles_lose_nothing(op: str, lanes: int, fma: bool, avx512: bool) -> None:
    function = compiled(op, f32, lanes, fma, avx512=avx512)
    rng = np.random.default_rng(8)
    x = np.exp2(rng.uniform(10, 20, 200_000)).astype("f4") * rng.choice([-1, 1], 200_000).astype("f4")
    exact = NUMPY[op](x.astype("f8"))
    assert np.max(np.abs(function(x)[0] - exact) / np.spacing(np.abs(exact).astype("f4"))) <= (2 if fma else 4)


@cache
def powers(exponent: int, wide: bool) -> tuple[np.ndarray, list[mp.mpf]]:
    """Return arguments and their exact powers: as far as these are no infinities, and near 1."""
    rng = np.random.default_rng(exponent + 100)
    ends = 2.0 ** (np.array([-1074, 1024] if wide else [-149, 128]) / exponent)
    span = np.exp(rng.uniform(np.log(ends.min()), np.log(ends.max()), 1_500))
    x = np.concatenate([span * rng.choice([-1, 1], 1_500), rng.uniform(0.5, 2, 1_500)])
    x = x.astype(np.float64 if wide else np.float32)
    with mp.workprec(200):
        return x, [mp.mpf(value) ** exponent for value in x.tolist()]


@pytest.mark.parametrize("exponent", [2, 5, 6, 11, 64, -2, -3, -12])
@pytest.mark.parametrize(("dtype", "lanes", "fma", "avx512"), WITH_AND_WITHOUT_FMA)
def test_powers_by_whole_numbers_err_by_an_ulp_and_overflow_as_numpys(
    exponent: int, dtype: DType, lanes: int, fma: bool, avx512: bool
) -> None:
    function = compiled(f"pow.{exponent}", dtype, lanes, fma, avx512=avx512)
    x, values = powers(exponent, dtype == f64)
    got = function(x)[0]
    with mp.workprec(200):
        errors = []
        for exact, found in zip(values, got.tolist(), strict=True):
            size = np.spacing(np.abs(np.asarray(float(exact), function.element)))
            # What rounding loses of the least numbers is no number.
            inside = np.finfo(function.element).smallest_normal * 2.0**53 <= abs(found) < np.inf
            errors.append(float(abs(exact - found) / mp.mpf(float(size))) * (1 if inside else 0.5 * np.isfinite(found)))
    assert max(errors) <= (1.0 if fma else 1.5), x[int(np.argmax(errors))]
    special = np.array([*SPECIAL, *x[:50] * 8, *x[:50] / 8], function.element)
    with np.errstate(all="ignore"):
        expected = np.power(special, np.array(exponent, special.dtype))
    assert np.all(same(function(special)[0], expected))


@pytest.mark.parametrize(("dtype", "lanes", "avx512"), FORMATS)
def test_special_values_of_powers_are_numpys(dtype: DType, lanes: int, avx512: bool) -> None:
    function = compiled("pow", dtype, lanes, avx512=avx512)
    values = np.array([*SPECIAL, 2.0**23 + 1, -(2.0**24) - 1, 2.0**53, 1e30, 0.1], function.element)
    x, y = (m.ravel() for m in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    got = function(x, y)[0]
    wrong = ~same(got, expected)
    assert not wrong.any(), [*zip(x[wrong], y[wrong], got[wrong], expected[wrong], strict=True)]


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        ("erf", [0.0, -0.0, np.inf, -np.inf, np.nan], [0.0, -0.0, 1.0, -1.0, np.nan]),
        ("sigmoid", [0.0, np.inf, -np.inf, np.nan], [0.5, 1.0, 0.0, np.nan]),
        ("silu", [0.0, -0.0, np.inf, -np.inf, np.nan], [0.0, -0.0, np.inf, np.nan, np.nan]),
        ("gelu", [0.0, -0.0, np.inf, -np.inf, np.nan], [0.0, -0.0, np.inf, np.nan, np.nan]),
        ("erfc", [0.0, -0.0, np.inf, -np.inf, np.nan, 28.0, -28.0], [1.0, 1.0, 0.0, 2.0, np.nan, 0.0, 2.0]),
        ("erfinv", [0.0, -0.0, 1.0, -1.0, 1.5, -np.inf, np.nan], [0.0, -0.0, np.inf, -np.inf, np.nan, np.nan, np.nan]),
        ("lgamma", [0.0, -0.0, 1.0, 2.0, -1.0, -3.0, -1e30], [np.inf, np.inf, 0.0, 0.0, np.inf, np.inf, np.inf]),
        ("lgamma", [np.inf, -np.inf, np.nan, 3.0], [np.inf, np.inf, np.nan, np.log(2)]),
        ("digamma", [0.0, -0.0, -1.0, -7.0, np.inf, -np.inf], [-np.inf, np.inf, np.nan, np.nan, np.inf, np.nan]),
        ("digamma", [np.nan, -1e30, 1e-320, -1e-320], [np.nan, np.nan, -np.inf, np.inf]),
    ],
)
@pytest.mark.parametrize(("dtype", "lanes", "avx512"), FORMATS)
def test_special_values_of_the_functions_that_numpy_lacks(
    op: str, x: list[float], expected: list[float], dtype: DType, lanes: int, avx512: bool
) -> None:
    function = compiled(op, dtype, lanes, avx512=avx512)
    got = function(np.array(x, function.element))[0]
    assert np.all(same(got, np.array(expected, function.element))), got


@pytest.mark.parametrize(
    ("op", "dtype", "last", "first"),
    [
        ("exp", f64, 709.782712893384, 709.7827128933841),
        ("exp", f32, 88.72283, 88.72284),
        ("expm1", f64, 709.782712893384, 709.7827128933841),
        ("expm1", f32, 88.72283, 88.72284),
        ("exp2", f64, 1023.9999999999999, 1024.0),
        ("exp2", f32, 127.99999, 128.0),
        ("sinh", f64, 710.4758600739439, 710.475860073944),
        ("cosh", f64, 710.4758600739439, 710.475860073944),
        ("sinh", f32, 89.415985, 89.416),
        ("cosh", f32, 89.415985, 89.416),
    ],
)
def test_overflow_begins_at_the_right_number(op: str, dtype: DType, last: float, first: float) -> None:
    function = compiled(op, dtype, 16 if dtype == f32 else 8)
    got = function(np.array([last, first], function.element))[0]
    assert np.isfinite(got[0])
    assert np.isposinf(got[1])


@pytest.mark.parametrize(
    ("dtype", "last", "first"), [(f64, -745.1332191019411, -745.1332191019412), (f32, -103.972076, -103.972085)]
)
def test_exp_underflows_gradually_to_zero(dtype: DType, last: float, first: float) -> None:
    function = compiled("exp", dtype, 16 if dtype == f32 else 8)
    got = function(np.array([last, first], function.element))[0]
    assert got[0] == np.finfo(function.element).smallest_subnormal
    assert got[1] == 0


@pytest.mark.parametrize("op", REAL_OPS)
@pytest.mark.parametrize("lanes", [1, 3, 8])
def test_a_lane_has_the_same_bits_whatever_stands_beside_it(op: str, lanes: int) -> None:
    wide, narrow = compiled(op, f64, 16), compiled(op, f64, lanes)
    # Special values and huge ones beside ordinary ones: some vectors take a rare branch for one of their lanes.
    x = np.where(np.arange(480) % 7 == 3, np.resize(np.array(SPECIAL + (1e22,)), 480), points(np.float64, 640, 5)[:480])
    args = (x, np.resize([2.5, -1.5, 3.0], 480)) if vecmath.arity(op) == 2 else (x,)
    assert np.array_equal(
        wide(*args)[0].view(np.uint64) << np.uint64(1), narrow(*args)[0].view(np.uint64) << np.uint64(1)
    )


@needs_avx512
@pytest.mark.parametrize("op", ["tanh", "erf", "gelu", "exp"])
@pytest.mark.parametrize("lanes", [1, 3, 8, 20, 64])
def test_tables_in_registers_serve_any_number_of_lanes(op: str, lanes: int) -> None:
    wide, other = compiled(op, f32, 16, avx512=True), compiled(op, f32, lanes, avx512=True)
    x = np.where(np.arange(960) % 7 == 3, np.resize(np.array(SPECIAL), 960), points(np.float32, 960, 5)[:960])
    x = x.astype(np.float32)
    got, expected = other(x)[0], wide(x)[0]
    # The payload of a NaN is nobody's business.
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    assert np.array_equal(got[~np.isnan(got)].view(np.uint32), expected[~np.isnan(got)].view(np.uint32))


@needs_avx512
def test_scaling_by_an_instruction_changes_no_bit() -> None:
    for dtype, lanes in ((f32, 16), (f64, 8)):
        plain, scaled = compiled("exp", dtype, lanes), compiled("exp", dtype, lanes, avx512=True)
        assert "vscalef" in scaled.assembly and "vscalef" not in plain.assembly
        x = points(plain.element, 50_000, 3)
        assert np.array_equal(plain(x)[0], scaled(x)[0], equal_nan=True)


@pytest.mark.parametrize("op", ["sin", "cos", "tanh", "erf"])
@pytest.mark.parametrize(("dtype", "lanes", "avx512"), FORMATS)
def test_what_lies_between_one_and_minus_one_never_leaves_it(op: str, dtype: DType, lanes: int, avx512: bool) -> None:
    function = compiled(op, dtype, lanes, avx512=avx512)
    assert np.abs(function(points(function.element, 200_000, 11))[0]).max() <= 1


@pytest.mark.parametrize("op", REAL_OPS)
@pytest.mark.parametrize("dtype", [f32, f64])
def test_older_processors_get_no_call_of_a_library(op: str, dtype: DType) -> None:
    assembly = compiled(op, dtype, 4, False, "x86-64-v2").assembly
    outside = {name for name in re.findall(r"[$@\s]([A-Za-z_][\w.]*)(?=,|@PLT|$)", assembly, re.M) if name in LIBRARY}
    assert not outside


def test_a_library_call_would_be_seen() -> None:
    assert "$fmaf," in compiled("exp", f32, 4, True, "x86-64-v2").assembly


def test_a_definition_is_named_for_operation_type_lanes_and_features() -> None:
    assert vecmath.function("exp", f32, 16).symbol == "pk.exp.f32.v16"
    assert vecmath.function("exp", f64, 1).symbol == "pk.exp.f64"
    assert vecmath.function("exp", f64, 4, fma=False).symbol == "pk.exp.f64.v4.nofma"
    assert vecmath.function("pow", f32, 8).parameters == ("<8 x float>", "<8 x float>")
    assert vecmath.function("exp", f64, 1).result == "double"


def test_linking_gives_each_definition_and_declaration_once() -> None:
    text = link([vecmath.function(op, f32, 8) for op in ("sin", "cos", "sin")])
    defined = [line.split("@")[1].split("(")[0] for line in text.splitlines() if line.startswith("define")]
    assert sorted(defined) == ["pk.cos.f32.v8", "pk.huge.f64.v8", "pk.sin.f32.v8"]
    declared = [line for line in text.splitlines() if line.startswith("declare")]
    assert len(declared) == len(set(declared))
    assert text.count("@pk.two_over_pi = ") == 1


def test_what_is_not_supported_is_refused() -> None:
    assert not vecmath.supported("gammainc", f32)
    assert not vecmath.supported("exp", i32)
    with pytest.raises(KeyError, match="gammainc"):
        vecmath.function("gammainc", f32, 8)
