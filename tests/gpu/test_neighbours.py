"""Programs without sums, whose threads take neighbouring elements by accesses of up to 16 bytes."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.cuda.build import cubin
from polyker.codegen.llvm.jit.detect import target
from tests.artifacts import generated
from tests.gpu.support import needs_compiler, needs_nvcc

pytestmark = needs_compiler

ROWS, COLUMNS = 1024, 4608  # enough for all threads of any GPU
TYPES = ["f2", "f4", "f8", "i1", "u2", "i8", "c8", "c16", "?"]


def coded(shape, dtype):
    """Return small numbers that code their position."""
    place = np.arange(np.prod(shape)).reshape(shape)
    return (place % 7 == 2 if dtype == "?" else (place * 5 + 1) % 11).astype(dtype)


def text_of(op, *arrays, **options):
    kernel = pk.op(op).compile(*arrays, target="cuda-sim", **options)
    text = kernel.source("cuda")
    return kernel, text[text.index('extern "C"') :]


def widths(text):
    """Return the numbers of elements of the kernel's wide reads, and of its wide stores and copies."""
    return set(re.findall(r"pk_get<(\d+)>", text)), set(re.findall(r"pk_vector<\w+, (\d+)>", text))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_thread_takes_16_bytes(dtype):
    x = coded((ROWS, COLUMNS), dtype)
    expr = "not X[i,j]" if dtype == "?" else "X[i,j] + X[i,j]"
    kernel, text = text_of(f"Y[i,j] = {expr}", x)
    side = str(16 // x.dtype.itemsize)
    assert widths(text) == (({side}, {side}) if side != "1" else (set(), set()))
    np.testing.assert_array_equal(kernel(x), ~x if dtype == "?" else x + x)


def test_the_widest_type_says_how_many():
    x, y = coded((ROWS, COLUMNS), "f2"), coded((COLUMNS,), "f8")
    kernel, text = text_of("Z[i,j] = X[i,j] * Y[j] * 2.0", x, y)
    assert widths(text)[0] == {"2"}
    np.testing.assert_array_equal(kernel(x, y), x * y * 2.0)


def test_temporaries_of_a_chain_stay_in_registers():
    x, b = coded((ROWS, COLUMNS), "f4"), coded((COLUMNS,), "f4")
    kernel, text = text_of("f(X, B) -> Y:\n    T[i,j] = X[i,j] + B[j]\n    Y[i,j] = T[i,j] * T[i,j] + X[i,j]", x, b)
    assert text.count("__global__") == 1 and widths(text)[0] == {"4"}
    np.testing.assert_array_equal(kernel(x, b), (x + b) ** 2 + x)


def test_what_is_gathered_goes_one_by_one_and_its_index_by_16_bytes():
    table, at = coded((100,), "f4"), coded((ROWS, COLUMNS), "i4") * 9
    kernel, text = text_of("Y[i,j] = T[P[i,j]]", table, at)
    assert widths(text)[0] in ({"4"}, set())
    np.testing.assert_array_equal(kernel(table, at), table[at])


@pytest.mark.parametrize(
    "op, shape",
    [
        ("Y[i,j] = X[i,j+1] for j in 0:4604", (ROWS, COLUMNS)),  # would not be aligned
        ("Y[i,j] = 2 * X[j,i]", (ROWS, COLUMNS)),  # neighbours of the one are none of the other
        ("f(X) -> X:\n    X[i,j] = 2 * X[i,j] where j <= i", (2048, 2048)),  # rows end anywhere
        ("Y[i,j] = 2 * X[i,j]", (24, 24)),  # too few for the GPU's threads
    ],
)
def test_others_go_one_by_one(op, shape):
    x = coded(shape, "f4")
    kernel, _ = text_of(op, x)
    assert "registers" not in "".join(generated(kernel, "schedule").splitlines()[-1:])
    want = x[:, 1:4605] if "j+1" in op else 2 * x.T if "X[j,i]" in op else x + (np.tril(x) if "where" in op else x)
    np.testing.assert_array_equal(kernel(x), want)


@settings(max_examples=6, deadline=None)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1 << 17, 1 << 18),
    multiple=st.sampled_from([1, 2, 4, 16]),
    dtype=st.sampled_from(["f2", "f4", "f8", "u1"]),
    reverse=st.booleans(),
    slack=st.integers(0, 3),
)
def test_any_shape_and_layout_is_right(rows, columns, multiple, dtype, reverse, slack):
    x = coded((rows, columns // multiple * multiple + slack), dtype)[:, slack:]
    x = x[::-1, ::-1] if reverse else x
    y = coded((x.shape[1],), "f4")
    found = pk.op("Z[i,j] = X[i,j] * Y[j] + 1").compile(x, y, target="cuda-sim")(x, y)
    np.testing.assert_array_equal(found, (x * y + 1).astype(found.dtype))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1"])
def test_vectors_of_unknown_lengths_end_one_by_one(dtype):
    kind = {"f2": pk.f16, "f4": pk.f32, "f8": pk.f64, "u1": pk.u8}[dtype]
    kernel = pk.op("Z[i] = 2 * X[i] + Y[i]").compile(kind["n"], kind["n"], target="cuda-sim")
    assert str(16 // np.dtype(dtype).itemsize) in widths(kernel.source("cuda").partition('extern "C"')[2])[0]
    for n in (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 1000, 4095, 20003):
        x, y = coded((n,), dtype), coded((n + 1,), dtype)[1:]
        out = np.full(n + 32, 9, dtype)
        np.testing.assert_array_equal(kernel(x, y, out=out[16:-16]), 2 * x + y)
        assert (out[:16] == 9).all() and (out[-16:] == 9).all()


def test_rows_of_unknown_lengths_are_not_aligned():
    kernel = pk.op("Z[i,j] = 2 * X[i,j] + Y[j]").compile(pk.f32["m", "n"], pk.f32["n"], target="cuda-sim")
    assert widths(kernel.source("cuda").partition('extern "C"')[2]) == (set(), set())
    x, y = coded((33, 57), "f4"), coded((57,), "f4")
    np.testing.assert_array_equal(kernel(x, y), 2 * x + y)


def test_an_array_is_changed_in_place():
    x = coded((ROWS, COLUMNS), "f4")
    want = x * 2 + 1
    kernel, text = text_of("f(X) -> X:\n    X[i,j] = X[i,j] * 2 + 1", x)
    kernel(x, out=x)
    assert widths(text)[0] == {"4"}
    np.testing.assert_array_equal(x, want)


def test_a_persons_vectors_are_wide_accesses():
    x = coded((64, 256), "f4")
    s = pk.op("Y[i,j] = 2 * X[i,j]").schedule(x, target="cuda-sim", auto=False).tile(i=8, j=128)
    s = s.map({"i.tile": "block.y", "j.tile": "block.x", "i.point": "thread.y"}).split({"j.point": 4})
    s = s.map({"j.point.tile": "thread.x(32)"}).vectorise({"j.point.point": 4})
    kernel = pk.op("Y[i,j] = 2 * X[i,j]").compile(x, schedule=s)
    assert widths(kernel.source("cuda").partition('extern "C"')[2])[0] == {"4"}
    np.testing.assert_array_equal(kernel(x), 2 * x)


@needs_nvcc
@pytest.mark.parametrize("arch", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("dtype", ["f16", "f32", "bool_"])
def test_nvcc_compiles_wide_accesses(arch, dtype):
    expr = "not X[i,j]" if dtype == "bool_" else "exp(X[i,j]) + B[j]"
    types = {"X": getattr(pk, dtype)[ROWS, COLUMNS]} | ({} if dtype == "bool_" else {"B": getattr(pk, dtype)[COLUMNS]})
    kernel = pk.op(f"Y[i,j] = {expr}").compile(**types, target=arch)
    _, used = cubin(kernel.source("cuda"), target(arch))
    assert all(r.spilled == 0 and r.registers <= 64 for r in used.values()), used
