"""Calls of kernels on the stub of the driver's library, whose kernels run in the simulator."""

import gc
import sys
import threading
from types import ModuleType

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ArgumentError, BackendUnavailable, GatherError, InternalError, PolykerError
from polyker.runtime.cuda.device import QueuedWork
from tests.gpu.device import OnDevice
from tests.gpu.test_shared_memory import held

DOUBLE = "Y[i] = X[i] * 2"
SUM = "s += X[i] * X[i]"  # two launches, with partial sums in memory between
GATHER = "E[b] = T[idx[b]] + 0.5"

# Functions whose failure is no call's: what they are asked for is looked for elsewhere. What cannot be freed is lost.
PASSED_OVER = (
    "cuCtxGetCurrent", "cuGetErrorString", "cuPointerGetAttribute", "cuThreadExchangeStreamCaptureMode", "cuMemFreeAsync",
)  # fmt: skip


@pytest.fixture
def primary(card):
    """The context of device 0 that torch and others would use, current as theirs is."""
    found = card.cuda.DevicePrimaryCtxRetain(0)
    card.cuda.CtxSetCurrent(found)
    return found


def ready(card, text, *types, **named):
    """Return a kernel that computes on the card."""
    kernel = pk.op(text).compile(*types, target="cuda", **named)
    card.run(kernel)
    return kernel


def test_arrays_of_the_host_are_copied_and_new_dense_results_only_back(card):
    kernel = ready(card, "C[i,j] += A[i,k] * B[k,j]", pk.f64[17, 9], pk.f64[9, 33])
    a, b = np.random.default_rng(0).normal(size=(17, 9)), np.random.default_rng(1).normal(size=(9, 33))
    np.testing.assert_allclose(kernel(a, b), a @ b)
    assert card.stub.count("cuMemcpyHtoDAsync_v2") == 2 and card.stub.count("cuMemcpyDtoHAsync_v2") == 1
    assert card.stub.count("cuMemAllocFromPoolAsync") == card.stub.count("cuMemFreeAsync") == 1
    whole = np.full((17, 66), 7.0)
    card.stub.on_launch(None)
    kernel(a, b, out=whole[:, ::2])
    assert (whole[:, 1::2] == 7).all() and card.stub.count("cuMemcpyHtoDAsync_v2") == 5  # what lies between comes back


def test_an_in_out_array_of_the_host_starts_from_its_argument(card):
    kernel = ready(card, "inc(A: f64[N]) -> A:\n    A[i] = A[i] + 1.5", pk.f64[7])
    np.testing.assert_array_equal(kernel(np.arange(7.0)), np.arange(7.0) + 1.5)


def test_the_callers_context_is_left_as_it_was(card):
    kernel = ready(card, DOUBLE, pk.f64[8])
    kernel(np.ones(8))
    assert not card.cuda.CtxGetCurrent()
    other = card.cuda.CtxCreate_v2(0, 0)
    assert card.cuda.CtxGetCurrent() == other
    kernel(np.ones(8))
    assert card.cuda.CtxGetCurrent() == other


def test_a_context_that_pycuda_made_is_used_with_arrays_that_lie_in_it(card):
    own = card.cuda.CtxCreate_v2(0, 0)
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    kernel = ready(card, DOUBLE, pk.f64[8])
    for _ in range(3):
        kernel(x, out=y)
    kernel.sync()
    np.testing.assert_array_equal(y.array, 2 * x.array)
    kernel(np.ones(8))  # while it is current, arrays of the host go there, too
    card.cuda.CtxPopCurrent_v2()
    primary = card.cuda.DevicePrimaryCtxRetain(0)
    x, y = card.array(np.arange(8.0), primary), card.array(np.zeros(8), primary)
    kernel(x, out=y)
    kernel.sync()
    np.testing.assert_array_equal(y.array, 2 * x.array)
    assert card.stub.count("cuModuleLoadData") == 2 and own != primary


def test_results_of_pycudas_arrays_are_pycudas_and_its_errors_polykers(card, primary, monkeypatch):
    class GPUArray(OnDevice):
        __module__ = "pycuda.gpuarray"
        __cuda_array_interface__ = OnDevice.__cuda_array_interface__  # a class belongs where its protocol is from

    def empty(shape, dtype):
        if full:
            raise MemoryError("cuMemAlloc failed: out of memory")
        return GPUArray(card.array(np.empty(shape, dtype)).array)

    package, module, full = ModuleType("pycuda"), ModuleType("pycuda.gpuarray"), []
    package.gpuarray, module.empty = module, empty
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.gpuarray", module)
    kernel = ready(card, DOUBLE, pk.f64[8])
    x = GPUArray(card.array(np.arange(8.0)).array)
    for _ in range(3):
        found = kernel(x)
        kernel.sync()
        assert type(found) is GPUArray
        np.testing.assert_array_equal(found.array, 2 * x.array)
    full.append(True)
    for call in (kernel, pk.op("Y[i] = X[i] * 3")):
        with pytest.raises(PolykerError, match=r"pycuda.*out of memory"):
            call(x)


def test_what_can_be_asked_for_once_is_asked_for_when_the_kernel_is_loaded(card, primary):
    kernel = ready(card, DOUBLE, pk.f64[8])
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    for _ in range(3):
        kernel(x, out=y)
    card.stub.reset_counts()
    for _ in range(5):
        kernel(x, out=y)
    counts = {n: c for n, c in card.stub.counts().items() if n not in ("cuCtxGetCurrent", "cuPointerGetAttribute")}
    assert counts == {"cuLaunchKernel": 5}
    op, schedule, types = held(20_000, "cuda")
    kernel = op.compile(**types, schedule=schedule)
    x, y = (card.array(np.zeros((2, 20_000), "f4")) for _ in range(2))
    card.stub.on_launch(None)
    card.stub.reset_counts()
    for _ in range(5):
        kernel(x, out=y)
    kernel.sync()
    assert card.stub.count("cuFuncSetAttribute") == 1 and card.stub.launched().shared == 80_000


def test_a_prepared_call_is_nothing_but_its_launch(card, primary):
    kernel = ready(card, DOUBLE, pk.f64[8])
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    call = kernel.prepare(x, out=y)
    assert card.stub.count("cuLaunchKernel") == 0
    call()
    card.stub.reset_counts()
    for n in range(5):
        x.array[:] = n
        assert call() is y
        assert (y.array == 2 * n).all()
    assert {n: c for n, c in card.stub.counts().items() if n != "cuCtxGetCurrent"} == {"cuLaunchKernel": 5}
    with pytest.raises(PolykerError, match="`X`"):
        kernel.prepare(card.array(np.zeros(9)), out=y)
    made = kernel.prepare(x)
    assert made() is made()
    host, target = np.arange(8.0), np.zeros(8)
    again = kernel.prepare(host, out=target)
    host += 1
    assert again() is target and (target == 2 * host).all()


def test_temporaries_and_copies_of_misaligned_arrays_are_one_block_of_memory(card, primary):
    kernel = ready(card, SUM, pk.f32[100_003])
    values = np.random.default_rng(0).normal(size=100_003).astype("f4")
    s = card.array(np.zeros((), "f4"))
    for gap in (0, 4, 0):
        x = card.array(values, gap=gap)
        card.stub.reset_counts()
        kernel(x, out=s)
        kernel.sync()
        assert abs(float(s.array) - float((values.astype("f8") ** 2).sum())) < 1
        assert card.stub.count("cuMemAllocFromPoolAsync") == card.stub.count("cuMemFreeAsync") == 1
        assert card.stub.count("cuMemcpyDtoDAsync_v2") <= (gap > 0)
    aligned = ready(card, "Y[i] = X[i] + 1", pk.f32[1 << 14])
    x, y = card.array(np.arange(1 << 14, dtype="f4"), gap=4), card.array(np.zeros(1 << 14, "f4"), gap=8)
    aligned(x, out=y)
    aligned.sync()
    np.testing.assert_array_equal(y.array, x.array + 1)


def test_without_pools_memory_comes_from_the_device_itself(card):
    card.stub.attribute(115, 0)
    kernel = ready(card, SUM, pk.f32[100_003])
    x = np.ones(100_003, "f4")
    for _ in range(3):
        assert float(kernel(x)) == 100_003
    assert card.stub.count("cuMemPoolCreate") == 0 and card.stub.live("bytes") == 0


def test_a_full_device_gives_back_what_is_kept_before_a_call_fails(card):
    kernel = ready(card, DOUBLE, pk.f64[1000])
    kernel(np.ones(1000))
    card.stub.fail("cuMemAllocFromPoolAsync", 2)
    kernel(np.ones(1000))
    assert card.stub.count("cuMemPoolTrimTo") == 1
    card.stub.fail("cuMemAllocFromPoolAsync", 2, -1)
    with pytest.raises(InternalError, match=r"cuMemAllocFromPoolAsync\(16384 bytes\).*out of memory"):
        kernel(np.ones(1000))
    card.stub.fail("cuMemAllocFromPoolAsync", 0, -1)
    np.testing.assert_array_equal(kernel(np.ones(1000)), np.full(1000, 2.0))


def test_a_guard_is_seen_without_a_copy(card, primary):
    kernel = ready(card, GATHER, pk.f64[4], pk.i64[3])
    table, good, bad = (card.array(np.asarray(v)) for v in (np.arange(4.0), [3, 0, 1], [3, 4, 1]))
    out = card.array(np.zeros(3))
    kernel(table, bad, out=out)
    with pytest.raises(GatherError):
        kernel(table, good, out=out)
    kernel(table, good, out=out)
    np.testing.assert_array_equal(out.array, [3.5, 0.5, 1.5])
    kernel(table, bad, out=out)
    with pytest.raises(GatherError):
        kernel.sync()
    kernel.sync()
    assert not any(card.stub.count(f"cuMemcpy{way}Async_v2") for way in ("DtoH", "HtoD", "DtoD"))
    assert card.stub.count("cuMemsetD8Async") == 0


def test_each_kernel_runs_on_the_device_of_its_arrays(card):
    card.stub.configure(2)
    card.cuda.Init(0)
    card.driver = type(card.driver)(card.driver.library)
    contexts = [card.cuda.DevicePrimaryCtxRetain(n) for n in (0, 1)]
    kernel = ready(card, DOUBLE, pk.f64[8])
    for context in (*contexts, *contexts):
        x, y = card.array(np.arange(8.0), context), card.array(np.zeros(8), context)
        kernel(x, out=y)
        kernel.sync()
        np.testing.assert_array_equal(y.array, 2 * x.array)
    assert card.stub.count("cuModuleLoadData") == 2
    with pytest.raises(ArgumentError, match="device 0, other arrays of the call on device 1") as caught:
        kernel(x, out=card.array(np.zeros(8), contexts[0]))
    assert caught.value.code == "PK623"
    assert kernel.target == "cuda" and pk.op(DOUBLE).compile(x).target == "cuda:1"
    card.driver.primary.clear()
    pk.op("Y[i] = X[i] * 3").compile(pk.f64[8], target="cuda:1")(np.ones(8))  # arrays of the host go there, too
    assert list(card.driver.primary) == [1]
    with pytest.raises(BackendUnavailable, match="no CUDA device 2: this machine has 2"):
        pk.op(DOUBLE).compile(pk.f64[8], target="cuda:2")


def test_a_device_of_another_generation_gets_its_own_code(card):
    card.stub.configure(2, "90,80")
    card.cuda.Init(0)
    card.driver = type(card.driver)(card.driver.library)
    context = card.cuda.DevicePrimaryCtxRetain(1)
    x, y = card.array(np.arange(8.0), context), card.array(np.zeros(8), context)
    kernel = pk.op(DOUBLE).compile(pk.f64[8], target="cuda")
    with pytest.raises(BackendUnavailable, match="another GPU than CUDA device 1, which is sm_80") as caught:
        kernel(x, out=y)
    assert caught.value.code == "PK628"
    operator = pk.op(DOUBLE)
    operator(x, out=y)  # is compiled for it
    operator.sync()
    assert card.stub.launches() == 1


def test_after_an_error_that_stays_each_call_says_whose_it_was(card, primary):
    kernel = ready(card, DOUBLE, pk.f64[8])
    other = pk.op("Z[i] = X[i] + 1").compile(pk.f64[8], target="cuda")
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    kernel(x, out=y)
    kernel.sync()
    card.stub.launch_fails(700)
    kernel(x, out=y)
    for _ in range(2):
        with pytest.raises(
            InternalError, match=r"one of kernel0 of the kernel for Y, or of another library's"
        ) as caught:
            other(x, out=y)
        assert caught.value.code == "PK627"
    with pytest.raises(InternalError, match="kernel0 of the kernel for Y"):
        kernel.sync()


def test_an_error_of_another_librarys_work_is_told_as_such(card, primary):
    kernel = ready(card, DOUBLE, pk.f64[8])
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    kernel(x, out=y)
    kernel.sync()
    card.stub.poison(719)
    with pytest.raises(InternalError, match="another library's work: all kernels of polyker's are done"):
        kernel(x, out=y)


@pytest.mark.parametrize("resident", [False, True])
def test_whatever_function_fails_is_told_nothing_is_lost_and_the_next_call_works(card, primary, resident):
    values = np.random.default_rng(0).normal(size=100_003).astype("f4")
    x, s = (card.array(v) if resident else v for v in (values, np.zeros((), "f4")))
    live = ("bytes", "modules", "events", "queued")

    def call():
        pk.clear_cache()
        kernel = pk.op(SUM).compile(pk.f32[100_003], target="cuda")
        kernel(x, out=s)
        kernel.sync()

    call()
    pk.clear_cache()
    before = {what: card.stub.live(what) for what in live}
    card.stub.reset_counts()
    call()
    called = card.stub.counts()
    tested = 0
    for function, count in called.items():
        if function in PASSED_OVER:
            continue
        for number in {count - 1} if resident else {0, count - 1}:
            card.stub.fail(function, 1, number)
            try:
                call()
            except PolykerError as error:
                named = "PushCurrent" in function or function.removesuffix("_v2") in str(error) or error.code == "PK620"
                assert named, f"{function}: {error}"
                tested += 1
            finally:
                card.stub.fail(function, 0, -1)
            gc.collect()
            call()
            pk.clear_cache()
            assert {what: card.stub.live(what) for what in live} == before, function
    assert tested >= 3


def test_kernels_that_are_dropped_are_unloaded(card):
    for n in range(8):
        kernel = pk.op(f"Y[i] = X[i] * {n}").compile(pk.f64[8], target="cuda")
        kernel(np.ones(8))
        del kernel
        pk.clear_cache()
        gc.collect()
    pk.clear_cache()
    assert card.stub.live("modules") == 0 and card.stub.live("bytes") == 0


def test_many_loads_leave_nothing_behind(card):
    device = card.driver.device(0)
    image = b"PKSTUB arch=90\nkernel kernel0 params=8,8 shared=0 maxthreads=256 regs=32\n"
    pinned = 0
    for n in range(10_000):
        module, flag = device.load(image, {"kernel0": 0}, "a test"), device.flag()
        device.drop(module, flag, QueuedWork())
        pinned = pinned or card.stub.live("pinned")
    device.release()
    assert card.stub.live("modules") == 0 and card.stub.live("pinned") == pinned


def test_threads_that_call_one_kernel_at_once_each_get_their_own_results(card, primary):
    kernel = ready(card, DOUBLE, pk.f64[64])
    wrong = []

    def work(number):
        with card.within(primary):
            x, y = card.array(np.full(64, float(number))), card.array(np.zeros(64))
            call = kernel.prepare(x, out=y)
            for n in range(200):
                call() if n % 2 else kernel(x, out=y)
                kernel.sync()  # another thread may be running what this one queued
                if not (y.array == 2 * number).all():
                    wrong.append((number, n))
                y.array[:] = 0

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_time_loop_launches_equal_steps_from_one_description(card, primary):
    text = """heat(A: f64[N], steps) -> A:
    for t in 0:steps:
        B[i] = A[i-1] + 2*A[i+1] for i in 1:N-1
        A[i] = B[i] for i in 1:N-1"""
    a, want = np.arange(9.0), np.arange(9.0)
    for _ in range(4):
        want[1:-1] = want[:-2] + 2 * want[2:]
    kernel = ready(card, text, pk.f64[9])
    np.testing.assert_array_equal(kernel(a, 4), want)
    kernel(a, 5000)  # more than are kept
    assert card.stub.count("cuLaunchKernel") == 2 * 5004


def test_a_stream_that_is_gone_can_be_waited_for(card, primary):
    kernel = ready(card, DOUBLE, pk.f64[8])
    x, y, stream = card.array(np.arange(8.0)), card.array(np.zeros(8)), card.cuda.StreamCreate(1)
    kernel(x, out=y, stream=stream)
    card.cuda.StreamDestroy_v2(stream)
    kernel.sync()
    np.testing.assert_array_equal(y.array, 2 * x.array)


def test_arrays_without_elements_need_no_memory(card, primary):
    kernel = pk.op(DOUBLE).compile(pk.f64["N"], target="cuda")
    assert kernel(np.zeros(0)).shape == (0,)
    empty = OnDevice(np.zeros(0))
    assert kernel(empty, out=OnDevice(np.zeros(0))) is not None
