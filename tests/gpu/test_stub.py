"""The stub of the driver's library: contexts, memory, modules, launches, failures, counts; and polyker on it in a child."""

import ctypes
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from ctypes import byref, c_int, c_uint, c_uint64

import pytest

from polyker.api.targets import target_named
from polyker.codegen.cuda import nvrtc
from polyker.codegen.cuda.build import cubin
from polyker.errors import InternalError
from polyker.runtime.cuda.driver import LibCuda
from tests.gpu.stub.build import build_stub, needs_stub
from tests.gpu.stub.calls import IMAGE, Cuda, bytes_at
from tests.gpu.stub.control import Stub

HAS_CUBINS = bool(shutil.which("nvcc")) or nvrtc.library() is not None
needs_cubins = pytest.mark.skipif(not HAS_CUBINS, reason="neither nvcc nor NVRTC is installed")
N = c_int(7)


@pytest.fixture
def cuda(stub):
    """The functions, in the primary context of device 0; what a test did wrong it has to clear."""
    yield Cuda(stub)
    assert not stub.violations()


def refused(cuda, status, name, *arguments):
    assert cuda.status(name, *arguments) == status, name


def test_nothing_works_before_cuinit_and_without_devices(stub):
    cuda = Cuda(stub, start=False)
    refused(cuda, 3, "DeviceGetCount", byref(c_int()))
    assert cuda.DriverGetVersion() == 13000
    stub.configure(0)
    refused(cuda, 100, "Init", 0)


def test_devices_are_those_that_were_asked_for(stub):
    stub.configure(3, "90,80")
    stub.attribute(16, 7, device=2)
    cuda = Cuda(stub)
    assert cuda.DeviceGetCount() == 3
    assert [cuda.DeviceGetAttribute(75, n) for n in range(3)] == [9, 8, 8]
    assert [cuda.DeviceGetAttribute(16, n) for n in range(3)] == [132, 108, 7]
    assert cuda.DeviceGetAttribute(97, 0) == 232448
    refused(cuda, 101, "DeviceGet", byref(c_int()), 3)


def test_every_function_can_be_counted_and_made_to_fail(stub):
    cuda = Cuda(stub)
    assert len(stub.functions()) == 74
    stub.reset_counts()
    for name in stub.functions():
        stub.fail(name, 46)
        assert getattr(stub.cuda, name)(*[c_uint64(0)] * 11) == 46, name
        assert stub.count(name) == 1
    stub.fail("cuMemAlloc_v2", 2, after=1)
    address = c_uint64()
    statuses = [cuda.status("MemAlloc_v2", byref(address), 8) for _ in range(3)]
    assert statuses == [0, 2, 0]
    stub.fail("cuMemAlloc_v2", 2, after=-1)
    assert [cuda.status("MemAlloc_v2", byref(address), 8) for _ in range(2)] == [2, 2]


def test_contexts_are_a_stack_of_each_thread(stub):
    stub.configure(2)
    cuda = Cuda(stub, start=False)
    cuda.Init(0)
    refused(cuda, 201, "CtxGetDevice", byref(c_int()))
    refused(cuda, 201, "MemAlloc_v2", byref(c_uint64()), 8)
    first, second = cuda.DevicePrimaryCtxRetain(0), cuda.DevicePrimaryCtxRetain(1)
    cuda.CtxPushCurrent_v2(first)
    cuda.CtxPushCurrent_v2(second)
    assert cuda.CtxGetDevice() == 1 and cuda.CtxPopCurrent_v2() == second and cuda.CtxGetDevice() == 0
    found = []
    thread = threading.Thread(target=lambda: found.append(cuda.CtxGetCurrent()))
    thread.start()
    thread.join()
    assert found == [0]
    cuda.DevicePrimaryCtxRelease_v2(0)
    refused(cuda, 709, "CtxGetDevice", byref(c_int()))
    refused(cuda, 201, "CtxSetCurrent", first)
    assert stub.live("contexts") == 1
    assert cuda.DevicePrimaryCtxRetain(0) == first and cuda.CtxGetDevice() == 0
    own = cuda.CtxCreate_v2(0, 1)
    assert cuda.CtxGetCurrent() == own
    cuda.CtxDestroy_v2(own)
    assert cuda.CtxGetCurrent() == first
    refused(cuda, 201, "CtxDestroy_v2", own)


def test_what_lies_in_another_context_is_refused(stub):
    stub.configure(2)
    cuda = Cuda(stub)
    function, memory, event = cuda.function(), cuda.MemAlloc_v2(8), cuda.EventCreate(0)
    cuda.CtxSetCurrent(cuda.DevicePrimaryCtxRetain(1))
    other, host = cuda.StreamCreate(1), ctypes.create_string_buffer(8)
    assert cuda.launch_status(function, memory, memory, N) == 400
    refused(cuda, 400, "EventRecord", event, other)
    refused(cuda, 1, "MemcpyHtoDAsync_v2", memory, host, 8, other)
    refused(cuda, 1, "MemFree_v2", memory)
    cuda.CtxSetCurrent(cuda.context)
    assert cuda.launch_status(function, memory, memory, N, stream=other) == 400
    cuda.EventRecord(event, 0)
    cuda.StreamWaitEvent(other, event, 0)  # across devices is allowed


def test_memory_is_filled_and_copies_move_bytes(cuda, stub):
    a, b = cuda.MemAlloc_v2(100), cuda.MemAlloc_v2(100)
    assert bytes_at(a, 100) == b"\xff" * 100 and abs(a - b) > 100
    host = ctypes.create_string_buffer(bytes(range(100)), 100)
    cuda.MemcpyHtoD_v2(a, host, 100)
    cuda.MemcpyDtoDAsync_v2(b + 10, a + 20, 50, 0)
    cuda.MemsetD8Async(b, 0, 10, 0)
    back = ctypes.create_string_buffer(60)
    cuda.MemcpyDtoHAsync_v2(back, b, 60, 0)
    assert back.raw == bytes(10) + bytes(range(20, 70))
    for at, size in ((a, 101), (a + 1, 100), (a - 1, 1), (b + 100, 1)):
        refused(cuda, 1, "MemsetD8Async", at, 0, size, 0)
    assert stub.live("bytes") == 200 and stub.live("allocations") == 2
    cuda.MemFree_v2(a)
    refused(cuda, 1, "MemFree_v2", a)
    refused(cuda, 1, "MemFree_v2", b + 1)
    refused(cuda, 1, "MemsetD8Async", a, 0, 1, 0)
    assert stub.live("bytes") == 100


def test_memory_runs_out(cuda, stub):
    stub.total_memory(1 << 20)
    memory = cuda.MemAlloc_v2(1 << 19)
    refused(cuda, 2, "MemAlloc_v2", byref(c_uint64()), (1 << 19) + 1)
    cuda.MemFree_v2(memory)
    cuda.MemAlloc_v2((1 << 19) + 1)
    refused(cuda, 2, "MemAllocAsync", byref(c_uint64()), 1 << 19, 0)
    free, total = c_uint64(), c_uint64()
    cuda.MemGetInfo_v2(byref(free), byref(total))
    assert (free.value, total.value) == ((1 << 19) - 1, 1 << 20)


def test_pinned_memory_is_known_by_address(cuda, stub):
    stub.fill(False)
    pinned = cuda.MemHostAlloc(64, 3)
    assert cuda.MemHostGetDevicePointer_v2(pinned, 0) == pinned and stub.live("pinned") == 64
    kind = c_uint()
    cuda.PointerGetAttribute(byref(kind), 2, pinned + 3)
    assert kind.value == 1
    memory = cuda.MemAlloc_v2(8)
    cuda.PointerGetAttribute(byref(kind), 2, memory)
    assert kind.value == 2
    refused(cuda, 1, "PointerGetAttribute", byref(kind), 2, ctypes.addressof(kind))
    refused(cuda, 1, "MemcpyDtoHAsync_v2", pinned + 60, memory, 8, 0)
    cuda.MemFreeHost(pinned)
    refused(cuda, 1, "MemFreeHost", pinned)


def test_pools_keep_memory_up_to_their_threshold(cuda, stub):
    pool, value = cuda.DeviceGetDefaultMemPool(0), c_uint64(100)

    def attribute(number):
        found = c_uint64()
        cuda.MemPoolGetAttribute(pool, number, byref(found))
        return found.value

    a, b = cuda.MemAllocAsync(100, 0), cuda.MemAllocFromPoolAsync(200, pool, 0)
    assert stub.live("pool_bytes") == 300 and attribute(5) == 300
    cuda.MemPoolSetAttribute(pool, 4, byref(value))
    cuda.MemFreeAsync(a, 0)
    cuda.MemFreeAsync(b, 0)
    assert (attribute(7), attribute(5), attribute(8)) == (0, 300, 300)
    cuda.StreamSynchronize(0)
    assert attribute(5) == 100
    cuda.MemPoolTrimTo(pool, 0)
    assert attribute(5) == 0
    refused(cuda, 1, "MemFreeAsync", a, 0)
    refused(cuda, 1, "MemFreeAsync", cuda.MemAlloc_v2(8), 0)


def test_an_own_pool_is_made_for_a_device(cuda, stub):
    props, pool = (c_uint * 22)(1, 0, 1, 0), c_uint64()
    cuda.MemPoolCreate(byref(pool), props)
    memory = cuda.MemAllocFromPoolAsync(64, pool, 0)
    cuda.MemPoolSetAccess(pool, (c_uint * 3)(1, 0, 3), 1)
    cuda.MemPoolDestroy(pool)
    refused(cuda, 1, "MemPoolTrimTo", pool, 0)
    cuda.MemFreeAsync(memory, 0)
    assert stub.live("allocations") == 0
    refused(cuda, 1, "MemPoolCreate", byref(pool), (c_uint * 22)(1, 0, 1, 5))


def test_the_use_of_freed_memory_is_a_violation(stub):
    cuda = Cuda(stub)
    function, memory = cuda.function(), cuda.MemAllocAsync(64, 0)
    cuda.launch(function, memory + 63, memory, N)
    assert not stub.violations()
    cuda.MemFreeAsync(memory, 0)
    cuda.MemsetD8Async(memory, 0, 8, 0)
    cuda.launch(function, memory, memory + 4096 * 99, N)
    assert [line.rpartition(": ")[2] for line in stub.violations()] == ["freed", "freed", "outside all memory"]
    stub.clear_violations()
    stub.sticky_violations()
    cuda.launch(function, memory, 0, N)
    refused(cuda, 700, "CtxSynchronize")


def test_what_is_written_past_an_end_is_a_violation(stub):
    cuda = Cuda(stub)
    memory = cuda.MemAlloc_v2(10)
    ctypes.memset(memory, 0, 11)
    cuda.MemFree_v2(memory)
    assert "past its end" in stub.violations()[0]


def test_launches_are_checked_and_told(cuda, stub):
    function, memory = cuda.function(), cuda.MemAlloc_v2(64)
    cuda.launch(function, memory, memory + 8, N, grid=(3, 2, 1), block=(64, 4, 1), shared=512)
    told = stub.launched()
    assert (told.name, told.grid, told.block, told.shared, told.parameters) == ("add", (3, 2, 1), (64, 4, 1), 512, 3)
    assert told.data == bytes(c_uint64(memory)) + bytes(c_uint64(memory + 8)) + bytes(N)
    for status, how in (
        (1, {"grid": (0, 1, 1)}), (1, {"grid": (1, 65536, 1)}), (1, {"block": (0, 1, 1)}), (1, {"block": (1, 1, 65)}),
        (1, {"block": (257, 1, 1)}), (1, {"shared": 49153}), (400, {"stream": 12345}),
    ):  # fmt: skip
        assert cuda.launch_status(function, memory, memory, N, **how) == status, how
    wide = cuda.function("wide")
    assert cuda.launch_status(wide, *[c_uint64()] * 3, block=(1024, 1, 1)) == 701  # by its registers
    assert stub.parameters(wide) == [(1, 0), (16, 8), (8, 24)]
    refused(cuda, 1, "LaunchKernel", function, *[1] * 6, 0, 0, None, None)
    assert stub.launches() == 1


def test_parameters_may_lie_in_a_buffer(cuda, stub):
    function, size = cuda.function(), c_uint64(20)
    buffer = (c_int * 5)(0, 0, 0, 0, 9)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
    cuda.LaunchKernel(function, *[1] * 6, 0, 0, None, extra)
    assert stub.launched().data == bytes(buffer)
    size.value = 19
    refused(cuda, 1, "LaunchKernel", function, *[1] * 6, 0, 0, None, extra)


def test_more_shared_memory_has_to_be_asked_for(cuda):
    function = cuda.function("none")
    assert cuda.FuncGetAttribute(1, function) == 1024 and cuda.FuncGetAttribute(8, function) == 48128
    assert cuda.launch_status(function, shared=48129) == 1
    refused(cuda, 1, "FuncSetAttribute", function, 8, 232448 - 1023)
    cuda.FuncSetAttribute(function, 8, 232448 - 1024)
    cuda.launch(function, shared=232448 - 1024)


def test_an_unloaded_modules_functions_are_refused(cuda, stub):
    module = cuda.ModuleLoadData(IMAGE)
    function = cuda.ModuleGetFunction(module, b"none")
    refused(cuda, 500, "ModuleGetFunction", byref(c_uint64()), module, b"other")
    cuda.ModuleUnload(module)
    assert cuda.launch_status(function) == 400 and stub.live("modules") == stub.live("functions") == 0
    refused(cuda, 400, "ModuleUnload", module)
    refused(cuda, 200, "ModuleLoadData", byref(c_uint64()), b"\x7fEL")
    refused(cuda, 200, "ModuleLoadData", byref(c_uint64()), b"")
    refused(cuda, 209, "ModuleLoadData", byref(c_uint64()), b"PKSTUB arch=80\n")


CODE = """
struct Big { char bytes[5000]; };
extern "C" __global__ void __launch_bounds__(192) k(float *x, int n, char c, const float *y) {
  __shared__ float t[100];
  t[threadIdx.x % 100] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = t[99 - threadIdx.x % 100] + n + c + y[0];
}
extern "C" __global__ void large(const Big b, float *x) { x[threadIdx.x] = b.bytes[threadIdx.x]; }
"""


@needs_cubins
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_cubins_say_what_their_kernels_take(stub, arch):
    image = cubin(CODE, target_named(f"cuda:{arch}"))[0]
    stub.configure(1, arch[3:5])
    cuda = Cuda(stub)
    function = cuda.function("k", image)
    assert stub.parameters(function) == [(8, 0), (4, 8), (1, 12), (8, 16)]
    assert cuda.FuncGetAttribute(0, function) == 192 and cuda.FuncGetAttribute(1, function) == 400
    assert 8 <= cuda.FuncGetAttribute(4, function) <= 40
    large = cuda.function("large", image)
    assert stub.parameters(large) == [(5000, 0), (8, 5000)]
    stub.configure(1, "86")
    other = Cuda(stub)
    if arch == "sm_80":
        other.ModuleLoadData(image)
    else:
        refused(other, 209, "ModuleLoadData", byref(c_uint64()), image)


def test_the_hook_computes_on_the_memory(cuda, stub):
    def add(name, grid, block, shared, places, stream):
        target, source = (c_uint64.from_address(places[n]).value for n in range(2))
        c_int.from_address(target).value = c_int.from_address(source).value + c_int.from_address(places[2]).value

    stub.on_launch(add)
    memory, host = cuda.MemAlloc_v2(8), (c_int * 2)(0, 35)
    cuda.MemcpyHtoD_v2(memory, host, 8)
    cuda.launch(cuda.function(), memory, memory + 4, N)
    cuda.MemcpyDtoH_v2(host, memory, 8)
    assert list(host) == [42, 35]


def test_a_kernel_that_fails_is_told_by_later_calls(stub):
    cuda = Cuda(stub)
    function = cuda.function("none")
    stub.launch_fails(719, after=1)
    cuda.launch(function)
    cuda.launch(function)
    for name in ("CtxSynchronize", "StreamSynchronize", "CtxSynchronize"):
        refused(cuda, 719, name, 0)
    cuda.DevicePrimaryCtxRelease_v2(0)
    cuda.DevicePrimaryCtxRetain(0)
    cuda.CtxSynchronize()
    stub.launch_fails(1)
    cuda.launch(cuda.function("none"))
    refused(cuda, 1, "CtxSynchronize")
    cuda.CtxSynchronize()
    stub.poison(700)
    refused(cuda, 700, "MemAlloc_v2", byref(c_uint64()), 8)


def test_errors_have_names_and_texts(stub):
    cuda, text = Cuda(stub), ctypes.c_char_p()
    cuda.GetErrorString(700, byref(text))
    assert text.value == b"an illegal memory access was encountered"
    cuda.GetErrorName(209, byref(text))
    assert text.value == b"CUDA_ERROR_NO_BINARY_FOR_GPU"
    refused(cuda, 1, "GetErrorName", 12345, byref(text))


@needs_stub
def test_a_forked_child_cannot_use_what_its_parent_began():
    text = """
        import ctypes, os
        cuda = ctypes.CDLL("libcuda.so.1")
        assert cuda.cuInit(0) == 0
        child = os.fork()
        if not child:
            os._exit(cuda.cuInit(0))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    """
    in_child(text)


@needs_stub
def test_the_environment_says_what_devices_a_child_has():
    text = """
        import ctypes
        from ctypes import byref
        cuda, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
        assert cuda.cuInit(0) == cuda.cuDeviceGetCount(byref(number)) == 0
        print(number.value)
        for device in range(number.value):
            assert cuda.cuDeviceGetAttribute(byref(number), 75, device) == 0
            print(number.value)
    """
    assert in_child(text, PK_STUB_DEVICES="3", PK_STUB_ARCH="100,80").split() == ["3", "10", "8", "8"]


def in_child(text, **variables):
    environment = Stub(build_stub()).environment(**variables)
    command = [sys.executable, "-c", textwrap.dedent(text)]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=300)
    assert not done.returncode, done.stderr
    return done.stdout


@needs_stub
@needs_cubins
def test_polyker_runs_on_it_in_a_child_process(tmp_path):
    text = """
        import numpy as np
        import polyker as pk
        kernel = pk.op("Y[i] = X[i] * 2").compile(pk.f32[100], target="cuda")
        assert kernel(np.arange(100, dtype="f4")).shape == (100,)
    """
    report = tmp_path / "report"
    in_child(text, PK_STUB_REPORT=str(report))
    counts = dict(line.split(" ", 1) for line in report.read_text().splitlines())
    assert {"cuModuleLoadData", "cuLaunchKernel", "cuMemcpyHtoDAsync_v2"} <= counts.keys()
    assert all(re.fullmatch(r"cu\w+", name) for name in counts), counts  # no violation


def test_the_run_times_driver_shares_its_state(stub):
    device = LibCuda(ctypes.CDLL(str(stub.path))).device(0)
    assert device.arch() == "sm_90" and stub.live("contexts") == 1
    function = device.load(IMAGE, {"none": 0}, "a test").functions["none"]
    assert device.enter() and not device.enter()
    memory, host = device.allocate(8, 0), ctypes.create_string_buffer(b"\xff" * 8)
    device.write(memory, bytes(8), 0)
    device.copy_out(ctypes.addressof(host), memory, 8, 0)
    device.launch(function, (5, 1, 1), (32, 1, 1), (ctypes.c_void_p * 1)(), 0)
    device.synchronize(0)
    assert host.raw[:8] == bytes(8) and stub.launched().grid == (5, 1, 1)
    device.free(memory, 0)
    stub.fail("cuMemAllocFromPoolAsync", 2, -1)
    with pytest.raises(InternalError, match="out of memory"):
        device.allocate(8, 0)
    device.leave()
    assert stub.live("bytes") == 0 and not stub.violations()


def test_a_call_costs_little(cuda, stub):
    function, memory = cuda.function(), cuda.MemAlloc_v2(64)
    held = [c_uint64(memory), c_uint64(memory), N]
    places = (ctypes.c_void_p * 3)(*map(ctypes.addressof, held))
    launch, arguments = (
        stub.cuda.cuLaunchKernel,
        [c_uint64(function), *[c_uint(1)] * 6, c_uint(0), c_uint64(0), places, None],
    )
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(1000):
            launch(*arguments)
        best = min(best, time.perf_counter() - start)
    assert best < 0.02  # most of it is ctypes'
