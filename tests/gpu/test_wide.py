"""Accesses of 16 bytes: wherever strides, extents and offsets allow, never at an address that is no multiple of them."""

import re

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda.text import cuda_source
from polyker.codegen.ir.kernel import Const, Copy, Op, Var, VectorStore
from polyker.codegen.ir.verify import verify
from polyker.codegen.ir.walk import statements
from polyker.codegen.passes.gpu.vectors import agree, fall
from polyker.errors import InternalError
from polyker.ir.dtypes import bool_
from polyker.structs import replace
from tests.artifacts import compiled_to, generated
from tests.codegen.interpret import run
from tests.covering import few
from tests.gpu.device import OnDevice
from tests.gpu.sim_check import run_checked
from tests.gpu.support import needs_compiler, needs_nvcc

MATMUL = "C[i,j] += A[i,k] * B[k,j]"


def whole(shape, seed, dtype="f4"):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def widths(kernel):
    """Return how many elements the kernels' accesses of global memory take, reads and writes."""
    text = kernel.source("cuda").split("// t0:", 1)[1]
    reads = {int(n) for n in re.findall(r"(?:pk_get<|pk_copy_later<(?=[^1]))(\d+)>\(", text)}
    return reads, {int(n) for n in re.findall(r"pk_put\(&t2\[[^;]*?pk_vector<\w+, (\d+)>", text)}


@needs_nvcc
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_operands_and_results_of_a_product_move_by_16_bytes_and_nothing_else(target):
    kernel = pk.op(MATMUL).compile(pk.f32[1024, 1024], pk.f32[1024, 1024], target=target)
    text = kernel.source("ptx")
    assert 4 * text.count("st.global.v4.f32") == text.count("fma.rn.f32") // 4  # four terms stand in the loop
    assert "st.global.f32" not in text and not re.search(r"ld\.global", text)
    assert text.count("cp.async.cg.shared.global") in (1, 2)  # of 16 bytes; A is turned, by 4
    (used,) = kernel.resources().values()
    assert used.spilled == 0 and used.registers <= 128


@pytest.mark.parametrize(
    "dtype, shape, reads, writes",
    [
        (pk.f32, (4000, 32, 4000), {4}, {4}),
        (pk.f32, (64, 32, 64), {4}, {2}),  # two elements a thread
        (pk.f64, (64, 32, 64), {2}, {2}),
        (pk.f16, (4000, 32, 4000), {8}, {8}),
        (pk.c64, (64, 32, 64), {2}, {2}),
        (pk.f32, (3001, 36, 3004), {4}, {4}),  # tiles are cut, but not a run
        (pk.f32, (64, 34, 66), {2}, {2}),
        (pk.f32, (3000, 35, 3004), {4}, {4}),  # rows of A are odd
        (pk.f32, (64, 35, 45), set(), set()),
        (pk.f32, ("M", 32, 4000), {4}, {4}),
        (pk.f32, ("M", "K", "N"), set(), set()),
    ],
)
def test_how_wide_an_access_is_follows_from_extents(dtype, shape, reads, writes):
    m, k, n = shape
    kernel = pk.op(MATMUL).compile(dtype[m, k], dtype[k, n], target="cuda:sm_90a")
    assert "operands shared" in generated(kernel, "schedule")
    assert widths(kernel) == (reads, writes)


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "sizes"), few(["f4", "f8", "f2", "c8", "i4", "i1"], [(130, 44, 36), (66, 50, 34), (35, 64, 33)], 2)
)
def test_products_of_sizes_that_tiles_do_not_divide_are_right(dtype, sizes):
    m, n, k = sizes
    a, b = whole((m, k), 0, dtype), whole((k, n), 1, dtype)
    kernel = pk.op(MATMUL).compile(a, b, target="cuda-sim")
    np.testing.assert_array_equal(kernel(a, b), a @ b)


@needs_compiler
def test_padding_of_convolutions_is_read_as_it_is_written():
    x, k = whole((2, 3, 12, 24), 0), whole((17, 3, 3, 3), 1)
    for pad, value in (("pad=0", 0), ("pad=7", 7)):
        text = f"O[n,f,h,w] += X[n,c,h+r-1,w+s; {pad}] * K[f,c,r,s] for h in 0:12, w in 0:24"
        kernel = pk.op(text).compile(x, k, target="cuda-sim")
        assert widths(kernel)[1] == {2}
        wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 2)), constant_values=value)
        windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
        np.testing.assert_array_equal(kernel(x, k), np.einsum("nchwrs,fcrs->nfhw", windows, k))


def shifted(shape, by, seed=None, dtype="f4"):
    """Return a dense array that begins `by` times 4 bytes behind a multiple of 64 bytes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    block = np.zeros(size + 128, "u1")
    start = -block.ctypes.data % 64 + 4 * by
    array = block[start : start + size].view(dtype).reshape(shape)
    if seed is not None:
        array[:] = whole(shape, seed)
    return array


@needs_compiler
def test_arrays_that_begin_elsewhere_are_copied_to_where_a_kernel_wants_them():
    kernel = pk.op(MATMUL).compile(pk.f32[64, 32], pk.f32[32, 48], target="cuda-sim")
    for by in ((0, 0, 0), (1, 0, 0), (0, 2, 0), (0, 0, 3), (1, 1, 1)):
        a, b, out = shifted((64, 32), by[0], 0), shifted((32, 48), by[1], 1), shifted((64, 48), by[2])
        for _ in range(3):  # the third time takes the quick way, if it may
            out[:] = 9
            kernel(a, b, out=out)
            np.testing.assert_array_equal(out, a @ b)


@needs_compiler
def test_arrays_on_the_device_that_begin_elsewhere_are_copied_there(device):
    kernel = pk.op(MATMUL).compile(pk.f32[64, 32], pk.f32[32, 48], target="cuda:sm_90a")
    a, b, out = (OnDevice(shifted(s, 1, n)) for n, s in enumerate(((64, 32), (32, 48), (64, 48))))
    for _ in range(2):
        kernel(a, b, out=out)
        kernel.sync()
        np.testing.assert_array_equal(out.array, a.array @ b.array)


@needs_compiler
@pytest.mark.parametrize("dtype, by", [("c16", 2), ("c8", 1)])
def test_complex_numbers_that_are_aligned_as_their_parts_are_copied_one_by_one(dtype, by):
    a, b = (shifted(s, by, n, dtype) for n, s in enumerate(((40, 99), (99, 44))))
    assert a.flags.aligned and a.ctypes.data % a.itemsize
    kernel = pk.op(MATMUL).compile(a, b, target="cuda-sim")
    assert "pk_copy_later<1>" in kernel.source("cuda")
    for _ in range(3):
        np.testing.assert_array_equal(kernel(a, b, out=shifted((40, 44), by, None, dtype)), a @ b)
    wide = shifted((40, 2 * 99), by, None, dtype)[:, ::2]  # what has gaps is not moved: each part is read where it lies
    wide[:] = a
    np.testing.assert_array_equal(kernel(wide, b), a @ b)


@needs_compiler
def test_only_dense_arrays_are_asked_to_be_aligned():
    text, base = "O[i,j] = X[4*i,j] for i in 0:10", whole((40, 65), 0)
    x = base[::-1, :64]
    assert x.ctypes.data % 16
    s = pk.op(text).schedule(x, target="cuda-sim", auto=False).unroll(j=4)
    kernel = pk.op(text).compile(x, schedule=s)
    assert "pk_get<4>" in kernel.source("cuda")  # of a dense one
    np.testing.assert_array_equal(kernel(x), x[::4])
    np.testing.assert_array_equal(kernel(np.ascontiguousarray(x)), x[::4])


@needs_compiler
def test_the_simulator_ends_where_an_access_is_not_aligned():
    kernel = pk.op(MATMUL).compile(pk.f32[64, 32], pk.f32[32, 48], target="cuda-sim")
    text = kernel.source("cuda").replace("(const f32 *)pointers[1]", "(const f32 *)pointers[1] + 1")
    arrays = [whole(s, 0) for s in ((64, 32), (34, 48), (64, 48))]
    assert "an access of 16 bytes at" in run_checked(text, arrays, sanitizer="none").report


def conditions(form, *numbers):
    return [Op("lt", (Op("add", (form, Const(n))), Const(m)), bool_) for n, m in numbers]


def test_conditions_of_neighbours_are_one_where_multiples_of_their_number_are_compared():
    x = Op("mul", (Const(4), Var("x")))
    row = [(n, 44) for n in range(4)]
    assert agree(conditions(x, *row))
    assert not agree(conditions(x, *((n, 45) for n in range(4))))
    assert not agree(conditions(Op("mul", (Const(2), Var("x"))), *row))
    assert not agree(conditions(x, (0, 44), (1, 44), (3, 44), (2, 44)))
    falling = [Op("le", (Const(3 - n), x), bool_) for n in range(4)]  # 3 - n <= 4 x holds for n = 3 alone where x = 0
    assert not agree(falling)
    assert not agree([Op("ge", (Op("add", (x, Const(n))), Const(3)), bool_) for n in range(4)])
    assert agree([Op("ge", (Op("add", (x, Const(n))), Const(4)), bool_) for n in range(4)])


def test_a_wide_access_of_the_kernel_is_aligned_or_refused():
    artifact = compiled_to(pk.op(MATMUL).compile(pk.f32[32, 32], pk.f32[32, 32], target="cuda:sm_90a"))
    kernel = artifact.kernel
    verify(kernel)
    with pytest.raises(InternalError, match="not aligned"):
        verify(replace(kernel, buffers=tuple(replace(b, alignment=8) for b in kernel.buffers)))
    kinds = {type(s) for s in statements(kernel.body)}
    assert {Copy, VectorStore} <= kinds
    a, b = whole((32, 32), 0), whole((32, 32), 1)
    given = dict(zip((x.name for x in kernel.buffers), (a, b, np.zeros((32, 32), "f4")), strict=True))
    assert run(kernel, given, {}) == 0
    np.testing.assert_array_equal(given[kernel.buffers[2].name], a @ b)
    assert cuda_source(kernel, frozenset(), {}).count("at a multiple of 16 bytes") == 1


def test_conditions_that_hold_where_the_next_one_does_fall():
    x, n = Op("mul", (Const(4), Var("x"))), Var("n")
    below = [Op("lt", (Op("add", (x, Const(k))), n), bool_) for k in range(4)]
    assert fall(below) and not agree(below)
    assert not fall(below[::-1])
    assert not fall([below[0], below[2], below[3]])
    other = Op("lt", (Var("y"), n), bool_)
    assert fall([Op("and", (b, other), bool_) for b in below])
    assert not fall([Op("and", (b, Op("lt", (Var("y"), Const(k)), bool_)), bool_) for k, b in enumerate(below)])
    assert not fall([*below[:3], Op("eq", (x, n), bool_)])
