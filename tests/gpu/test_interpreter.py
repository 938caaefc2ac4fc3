"""The NumPy interpreter on launches: right values, and reports of races, missed barriers and accesses outside."""

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import (
    Buffer,
    Const,
    For,
    If,
    KernelIR,
    Launch,
    LoopKind,
    Op,
    Space,
    Store,
    Var,
)
from polyker.codegen.ir.verify import verify
from polyker.errors import InternalError
from polyker.ir.dtypes import bool_, f32
from polyker.structs import replace
from tests.artifacts import compiled_to
from tests.codegen.interpret import run
from tests.gpu.support import N, reversing


def interpreted(text, *arrays, **sizes):
    """Compile for a GPU and run the kernel in the interpreter; return the output and the status."""
    kernel = pk.op(text, **sizes).compile(*arrays, target="cuda:sm_80")
    artifact = compiled_to(kernel)
    buffers = dict(zip(artifact.arguments, arrays, strict=False))
    out = None
    for b in artifact.kernel.buffers:
        shape = tuple(s.value for s in b.shape)
        if b.name not in buffers:
            buffers[b.name] = np.zeros(shape, b.dtype.numpy)
            out = buffers[b.name] if b.space is Space.ARGUMENT else out
    return out, run(artifact.kernel, buffers, {})


@pytest.mark.parametrize("seed", range(3))
def test_a_product_of_partial_blocks_is_right(seed):
    m, k, n = np.random.default_rng(seed).integers(1, 12, 3)
    a, b = np.arange(m * k, dtype="f4").reshape(m, k) % 5, np.arange(k * n, dtype="f4").reshape(k, n) % 7
    found, status = interpreted("C[i,j] += A[i,k] * B[k,j]", a, b)
    np.testing.assert_array_equal(found, a @ b)
    assert status == 0


def test_a_gathered_index_outside_is_the_status():
    table, wrong = np.ones((4, 3)), np.array([0, 9, 1])
    assert interpreted("E[b,d] = T[idx[b], d]", table, wrong)[1] == 1
    assert interpreted("E[b,d] = T[idx[b], d]", table, np.array([0, 3, 1]))[1] == 0


def run_reversing(kernel):
    y = np.zeros(N, "f4")
    assert run(kernel, {"X": np.arange(N, dtype="f4"), "Y": y}, {}) == 0
    return y


def test_threads_exchange_values_through_shared_memory():
    kernel = reversing()
    verify(kernel)
    np.testing.assert_array_equal(run_reversing(kernel), np.arange(N)[::-1])


def test_a_missing_barrier_is_seen_by_name():
    with pytest.raises(InternalError, match=r"undefined element of 'S' at \[0\]"):
        run_reversing(reversing(barrier=False))


def test_a_race_is_named_whatever_the_order_of_the_threads():
    kernel = reversing()
    (launch,) = kernel.body
    (shared,) = launch.body
    again = replace(shared, body=(*shared.body, shared.body[0]))  # written once more, while others may still read
    with pytest.raises(InternalError, match=r"race in reverse on S\[\d\]: .* it, .* it, and no barrier lies"):
        run_reversing(replace(kernel, body=(replace(launch, body=(again,)),)))


def test_an_index_outside_shared_memory_is_named():
    with pytest.raises(InternalError, match="index 8 is outside axis 0 of 'S'"):
        run_reversing(reversing(last=N))


def test_a_barrier_that_some_threads_miss_is_found():
    kernel = reversing()
    (launch,) = kernel.body
    (shared,) = launch.body
    first, barrier, second = shared.body
    # Only half of the threads meet the second barrier.
    met = For(
        "t", Const(0), Const(N), (If(Op("lt", (Var("t"), Const(4)), bool_), (barrier,)),), kind=LoopKind.THREAD,
        lanes=N, trip=N, axis="x",
    )  # fmt: skip
    changed = replace(launch, body=(replace(shared, body=(first, barrier, second, met)),))
    with pytest.raises(InternalError, match="never reach a barrier"):
        run_reversing(replace(kernel, body=(changed,)))


def test_two_blocks_that_write_one_element_are_a_race():
    y = Buffer("Y", f32, (Const(2),), (Const(1),), Space.ARGUMENT)
    loop = For(
        "b", Const(0), Const(2), (Store("Y", (Const(0),), Const(1.0, f32)),), kind=LoopKind.BLOCK, trip=2, axis="x"
    )
    kernel = KernelIR("kernel", (y,), (), (Launch("both", (Const(2), Const(1), Const(1)), (1, 1, 1), (loop,)),))
    verify(kernel)
    with pytest.raises(InternalError, match=r"race in both on Y\[0\]"):
        run(kernel, {"Y": np.zeros(2, "f4")}, {})


def test_a_store_by_more_threads_than_a_loop_deals_out_is_refused():
    y = Buffer("Y", f32, (Const(2),), (Const(1),), Space.ARGUMENT)
    store = Store("Y", (Const(0),), Const(1.0, f32))
    launch = Launch("all", (Const(1), Const(1), Const(1)), (32, 1, 1), (store,))
    with pytest.raises(InternalError, match="more than one thread"):
        verify(KernelIR("kernel", (y,), (), (launch,)))
