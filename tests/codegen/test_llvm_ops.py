"""Every operation on every element type: machine code against NumPy, scalar and vector, extremes included."""

from collections.abc import Callable

import numpy as np
import pytest
from msgspec import Struct

from polyker.codegen.ir.kernel import Const, Convert, For, KernelIR, KExpr, Load, LoopKind, Op, Store
from polyker.codegen.ir.verify import verify
from polyker.errors import InternalError
from polyker.ir.dtypes import DTYPES, DType, bool_, c64, f16, f32, f64, i32, i64
from tests.codegen.support import C, V, bits, check_same, index, run_native, vector_buffer

INTEGERS = [d for d in DTYPES.values() if d.is_integer]
FLOATS = [d for d in DTYPES.values() if d.is_float]
COMPLEX = [d for d in DTYPES.values() if d.is_complex]
TARGETS = ["cpu", "cpu:x86-64-v3", "cpu:x86-64-v2"]


def samples(dtype: DType, count: int = 75, seed: int = 0) -> np.ndarray:
    """Values with extremes and special cases first."""
    rng = np.random.default_rng(seed)
    kind = dtype.numpy
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.is_integer:
        info = np.iinfo(kind)
        special = [0, 1, info.max, info.min, info.max - 1, 2, 3]
        special += [-1, -2, info.min + 1] if dtype.kind == "i" else []
        rest = rng.integers(info.min, info.max, count, dtype=kind, endpoint=True)
        rest[::2] %= 19
        return np.concatenate([np.array(special, kind), rest])[:count]
    if dtype.is_complex:
        real = dtype.real
        re, im = samples(real, count, seed), samples(real, count, seed + 1)
        return (re + 1j * np.roll(im, 3)).astype(kind)
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-40, -1e-40]
    rest = rng.normal(0, 8, count)
    rest[::3] = np.round(rest[::3])
    with np.errstate(over="ignore"):
        return np.concatenate([special, rest])[:count].astype(kind)


class Made(Struct):
    """Elements that `make` computes from those of inputs."""

    make: Callable[..., KExpr]
    inputs: list[DType]
    result: DType
    data: list[np.ndarray] = []


def elementwise(make, inputs: list[DType], result: DType, lanes: int) -> KernelIR:
    """`R[i] = make(A0[i], A1[i], ...)` in vectors of `lanes`, the last one masked; one lane: a scalar loop."""
    return together({"": Made(make, inputs, result)}, lanes)


def together(made: dict[str, Made], lanes: int) -> KernelIR:
    """Several of these in one loop; a name stands at the end of those of its buffers."""
    at = (V("j") if lanes > 1 else V("i"),)
    buffers, body = [], ()
    for end, one in made.items():
        names = [f"A{k}{end}" for k in range(len(one.inputs))]
        buffers += [vector_buffer(n, d, writable=False) for n, d in zip(names, one.inputs, strict=True)]
        buffers.append(vector_buffer(f"R{end}", one.result))
        value = one.make(*[Load(n, at, d) for n, d in zip(names, one.inputs, strict=True)])
        body += (Store(f"R{end}", at, value),)
    if lanes > 1:
        hi = index("minimum", "N", index("add", "i", lanes))
        body = (For("j", V("i"), hi, body, kind=LoopKind.VECTOR, lanes=lanes),)
    return KernelIR("k", tuple(buffers), ("N",), (For("i", C(0), V("N"), body, step=lanes),))


def check(make, inputs: list[DType], result: DType, data: list[np.ndarray], lanes=(1, 8), targets=TARGETS) -> None:
    check_all([Made(make, inputs, result, data)], lanes, targets)


def check_all(made: list[Made], lanes=(1, 8), targets=TARGETS) -> None:
    """Check several in one kernel: most of the time goes into its compilation."""
    named = {f"_{n}": one for n, one in enumerate(made)}
    size = len(made[0].data[0])
    arrays = {f"A{k}{end}": d for end, one in named.items() for k, d in enumerate(one.data)}
    arrays |= {f"R{end}": np.zeros(size, one.result.numpy) for end, one in named.items()}
    for count in lanes:
        kernel = together(named, count)
        for name in targets:
            check_same(kernel, arrays, {"N": size}, name)


def pairs(dtype: DType) -> list[np.ndarray]:
    """All pairs of a few samples."""
    x = samples(dtype, 15)
    return [np.repeat(x, len(x)), np.tile(x, len(x))]


def binary(op: str, dtype: DType, result: DType | None = None):
    return lambda x, y: Op(op, (x, y), result or dtype)


def unary(op: str, dtype: DType, result: DType | None = None):
    return lambda x: Op(op, (x,), result or dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_operations_are_numpys(dtype):
    made = []
    for op in ("add", "sub", "mul", "floordiv", "mod", "fmod", "minimum", "maximum", "lt", "le", "eq", "ne", "pow"):
        result = bool_ if op in ("lt", "le", "eq", "ne") else dtype
        made.append(Made(binary(op, dtype, result), [dtype, dtype], result, pairs(dtype)))
    check_all(made, targets=["cpu"])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_functions_are_numpys(dtype):
    ops = ("neg", "abs", "sign", "floor", "trunc", "relu", "popcount")
    check_all([Made(unary(op, dtype), [dtype], dtype, [samples(dtype)]) for op in ops], targets=["cpu"])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_division_by_a_constant_floors(dtype):
    divisors = [1, 2, 3, 7, 8, 64, 0] if dtype.kind == "u" else [1, 2, 3, 7, 8, 64, -1, -2, -5, 0]
    made = [
        Made(lambda x, op=op, by=by: Op(op, (x, Const(by, dtype)), dtype), [dtype], dtype, [samples(dtype)])
        for by in divisors
        for op in ("floordiv", "mod")
    ]
    check_all(made, targets=["cpu"])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_operations_are_numpys(dtype):
    made = {}
    for op in "add sub mul div floordiv mod minimum maximum lt le gt ge eq ne".split():
        if dtype.name == "bf16" and op in ("floordiv", "mod"):
            continue  # ml_dtypes' own rule differs in the sign of zero
        result = bool_ if op in ("lt", "le", "gt", "ge", "eq", "ne") else dtype
        data = pairs(dtype)
        if op in ("minimum", "maximum"):  # which zero comes out is not defined
            data = [np.where(d == 0, np.zeros((), d.dtype), d) for d in data]
        made[op] = Made(binary(op, dtype, result), [dtype, dtype], result, data)
    check_all([one for op, one in made.items() if op != "mod"], targets=TARGETS[1:])
    check_all([*made.values()], targets=TARGETS[:1])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_functions_are_numpys(dtype):
    made = []
    for op in ("neg", "abs", "sign", "floor", "ceil", "trunc", "round", "relu", "sqrt"):
        data = samples(dtype)
        if op in ("relu", "sign"):  # which zero comes out is not defined
            data = np.where(data == 0, np.zeros((), data.dtype), data)
        made.append(Made(unary(op, dtype), [dtype], dtype, [data]))
    check_all(made)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["copysign", "fmod"])
def test_signs_and_truncated_remainders_are_numpys(op, dtype):
    check(binary(op, dtype), [dtype, dtype], dtype, pairs(dtype), targets=["cpu"] if op == "fmod" else TARGETS)


@pytest.mark.parametrize("op", ["minimum", "maximum"])
@pytest.mark.parametrize("value", [0.5, -np.inf])
def test_an_extremum_with_a_constant_propagates_nan(op, value):
    for flip in (False, True):
        make = lambda x, f=flip: Op(op, (Const(value, f32), x) if f else (x, Const(value, f32)), f32)  # noqa: E731
        check(make, [f32], f32, [samples(f32)], lanes=(1, 16))


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "eq", "ne"])
def test_complex_operations_are_numpys(op, dtype):
    result = bool_ if op in ("eq", "ne") else dtype
    finite = [np.where(np.isfinite(d), d, 3 - 2j).astype(dtype.numpy) for d in pairs(dtype)]
    if op == "mul":  # numpy's vector code fuses the products: whole numbers are exact either way
        finite = [np.round(d) for d in finite]
    check(binary(op, dtype, result), [dtype, dtype], result, finite, lanes=(1, 4))


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("op", ["minimum", "maximum", "lt", "le", "gt", "ge"])
def test_complex_order_is_numpys(op, dtype):
    result = dtype if op in ("minimum", "maximum") else bool_
    grid = np.array([complex(a, b) for a in (0, 1, np.nan, -2) for b in (0, 1, np.nan, 5)], dtype.numpy)
    data = [np.repeat(grid, 16), np.tile(grid, 16)]
    check(binary(op, dtype, result), [dtype, dtype], result, data, lanes=(1, 4), targets=["cpu"])


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("op", ["neg", "conj", "real", "imag"])
def test_complex_parts_are_numpys(op, dtype):
    result = dtype.real if op in ("real", "imag") else dtype
    check(unary(op, dtype, result), [dtype], result, [samples(dtype)], lanes=(1, 4))


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_the_magnitude_of_a_complex_number_neither_overflows_nor_underflows(dtype):
    data = samples(dtype)
    data[-3:] = [3e38 + 1e38j, 1e-38 + 1e-38j, np.inf + 1j * np.nan]
    kernel = elementwise(unary("abs", dtype, dtype.real), [dtype], dtype.real, 4)
    found = np.zeros(len(data), dtype.real.numpy)
    assert run_native(kernel, {"A0": data, "R": found}, {"N": len(data)}) == 0
    np.testing.assert_allclose(found, np.abs(data), rtol=4 * np.finfo(found.dtype).eps)


def test_bool_operations_are_numpys():
    ops = ("add", "mul", "minimum", "maximum", "and", "or", "eq", "ne", "lt", "ge")
    data = [samples(bool_, 40), samples(bool_, 40, 1)]
    check_all([Made(binary(op, bool_), [bool_, bool_], bool_, data) for op in ops], lanes=(1, 8, 16))


def test_where_selects_lane_by_lane():
    make = lambda c, x, y: Op("where", (c, x, y), f64)  # noqa: E731
    check(make, [bool_, f64, f64], f64, [samples(bool_, 40), samples(f64, 40), samples(f64, 40, 1)])


def in_range(data: np.ndarray, to: DType) -> np.ndarray:
    """Floats an integer type holds; what is outside is not defined."""
    info = np.iinfo(to.numpy)
    plain = np.nan_to_num(data.real.astype(np.float64), nan=1.0, posinf=7.0, neginf=3.0)
    return np.clip(plain, max(info.min, -(2.0**50)), min(info.max, 2.0**50)).astype(data.dtype)


@pytest.mark.parametrize("source", list(DTYPES.values()), ids=str)
def test_conversions_are_numpys_astype(source):
    made = []
    for to in DTYPES.values():
        data = samples(source)
        if source.kind in "fc" and to.is_integer:
            data = in_range(data, to)
            if source.name in ("f16", "bf16") and to.itemsize <= 2:
                data = np.clip(data, -100 if to.kind == "i" else 0, 100).astype(data.dtype)
        made.append(Made(lambda x, to=to: Convert(x, to), [source], to, [data]))
    check_all(made, targets=["cpu", "cpu:x86-64-v2"])


def test_every_half_and_every_bfloat_converts_to_float_and_back():
    for name, target in [("f16", "cpu"), ("f16", "cpu:x86-64-v2"), ("bf16", "cpu")]:
        dtype = DTYPES[name]
        data = np.arange(65536, dtype=np.uint16).view(dtype.numpy)
        for make, inputs, result, values in [
            (lambda x: Convert(x, f32), [dtype], f32, data),
            (lambda x, d=dtype: Convert(x, d), [f32], dtype, data.astype(np.float32)),
        ]:
            kernel = elementwise(make, inputs, result, 8)
            found = np.zeros(len(values), result.numpy)
            assert run_native(kernel, {"A0": values, "R": found}, {"N": len(values)}, target) == 0
            with np.errstate(invalid="ignore"):
                assert np.array_equal(bits(found), bits(values.astype(result.numpy)))


@pytest.mark.parametrize("source", [f32, f64], ids=str)
@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_floats_round_to_small_floats_to_nearest_even(source, to):
    rng = np.random.default_rng(3)
    small = rng.uniform(-26, 18, 4000)
    data = (np.exp2(small) * rng.choice([-1, 1], 4000)).astype(source.numpy)
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    halves = np.sort(halves[np.isfinite(halves)]).astype(source.numpy)
    ties = (halves[1:] + halves[:-1]) / 2
    near = np.nextafter(ties, np.array(np.inf, source.numpy))
    data = np.concatenate([data, ties[::7], near[::7], np.array([65519, 65520, 65504, 1e-8, 2.0**-25], source.numpy)])
    for target in ("cpu", "cpu:x86-64-v2"):
        kernel = elementwise(lambda x: Convert(x, DTYPES[to]), [source], DTYPES[to], 8)
        found = np.zeros(len(data), DTYPES[to].numpy)
        assert run_native(kernel, {"A0": data, "R": found}, {"N": len(data)}, target) == 0
        with np.errstate(over="ignore"):
            assert np.array_equal(bits(found), bits(data.astype(DTYPES[to].numpy)))


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e30])
def test_floats_out_of_an_integers_range_do_no_harm(dtype, value):
    kernel = elementwise(lambda x: Convert(x, i64), [dtype], i64, 8)
    found = np.zeros(9, np.int64)
    assert run_native(kernel, {"A0": np.full(9, value, dtype.numpy), "R": found}, {"N": 9}) == 0
    assert len(set(found.tolist())) == 1


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 0.5, -1, 2.5, -3.0, 6, 7, -12, 64, 65, float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_powers_are_numpys(exponent, dtype):
    data = np.abs(samples(dtype)) + np.array(0.25, dtype.numpy)
    kernel = elementwise(lambda x: Op("pow", (x, Const(exponent, dtype)), dtype), [dtype], dtype, 8)
    found = np.zeros(len(data), dtype.numpy)
    assert run_native(kernel, {"A0": data, "R": found}, {"N": len(data)}) == 0
    with np.errstate(over="ignore", under="ignore"):
        expected = np.power(data, np.array(exponent, dtype.numpy))
    np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(data.dtype).eps)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "op",
    "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh erf sigmoid gelu silu softplus rsqrt".split(),
)
def test_functions_are_close_to_numpys(op, dtype):
    from tests.codegen.interpret_operations import apply

    x = (
        np.abs(samples(dtype).astype(np.float64))
        if op in ("log", "log2", "log10", "log1p", "rsqrt")
        else samples(dtype).astype(np.float64)
    )
    # gelu's form 1 + erf(x) cancels below: NumPy's value is no reference there.
    x = np.clip(x, -1 if op == "gelu" else -10, 10).astype(dtype.numpy)
    for lanes in (1, 8):
        kernel = elementwise(unary(op, dtype), [dtype], dtype, lanes)
        found = np.zeros(len(x), dtype.numpy)
        assert run_native(kernel, {"A0": x, "R": found}, {"N": len(x)}) == 0
        with np.errstate(all="ignore"):
            wanted = apply(op, [x.astype(np.float64)], f64)
        eps = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}[dtype.name]
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=8 * eps, atol=eps * 1e-3)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("op", ["exp", "log", "sqrt", "sin", "cos", "sinh", "cosh", "tanh"])
def test_complex_functions_are_close_to_numpys(op, dtype):
    data = np.clip(samples(dtype.real, 40).astype(np.float64), -3, 3)
    x = np.where(np.isnan(data) | (data == 0), 0.5, data)
    x = (x + 1j * np.roll(x, 7)).astype(dtype.numpy)
    for lanes in (1, 4):
        kernel = elementwise(unary(op, dtype), [dtype], dtype, lanes)
        found = np.zeros(len(x), dtype.numpy)
        assert run_native(kernel, {"A0": x, "R": found}, {"N": len(x)}) == 0
        wanted = getattr(np, op)(x.astype(np.complex128))
        eps = np.finfo(dtype.real.numpy).eps
        assert (np.abs(found - wanted) <= 8 * eps * np.abs(wanted)).all()


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize(("op", "end"), [("below", -np.inf), ("above", np.inf)])
def test_below_and_above_are_the_numbers_next_to_one(op, end, dtype):
    kind = dtype.numpy
    info = np.finfo(kind)
    edges = [info.tiny, info.smallest_subnormal, info.max, 2.0, 1 + info.eps]
    x = np.concatenate([samples(dtype), np.array(edges, kind), -np.array(edges, kind)])
    check(unary(op, dtype), [dtype], dtype, [x], lanes=(1, 8, 16))
    result = np.zeros_like(x)
    run_native(elementwise(unary(op, dtype), [dtype], dtype, 8), {"A0": x, "R": result}, {"N": len(x)})
    whole = ~np.isnan(x) & (x != end)
    np.testing.assert_array_equal(result[whole], np.nextafter(x, kind.type(end))[whole])
    np.testing.assert_array_equal(result[np.isnan(x)], -kind.type(end))
    assert np.isnan(result[x == end]).all()


@pytest.mark.parametrize("op", ["below", "above"])
@pytest.mark.parametrize("dtype", [f16, i32, c64], ids=str)
def test_below_and_above_are_of_wide_floats(op, dtype):
    with pytest.raises(InternalError, match=f"{op} takes f32 or f64"):
        verify(elementwise(unary(op, dtype), [dtype], dtype, 1))
