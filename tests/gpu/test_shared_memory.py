"""Shared memory beyond what a kernel has without asking: text, machine code and launch ask for it, up to what the GPU has."""

import re
import struct

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import Launch
from polyker.codegen.ir.walk import statements
from polyker.codegen.passes.gpu.launch import STATIC_SHARED_BYTES, shared_memory
from polyker.errors import CompileError, ScheduleError
from polyker.machine.known import gpus
from tests.artifacts import compiled_to, generated
from tests.gpu.sim_check import run_checked
from tests.gpu.support import needs_compiler, needs_nvcc, needs_sanitizer

TEXT = "f(X: f32[B,N]) -> O:\n    O[b,i] = X[b,i] + X[b,N-1-i] for b in 0:B, i in 0:N"


def held(elements, target="cuda-sim", dtype=pk.f32):
    """Return a schedule in which each block has a row of so many elements in shared memory, and the types it is for."""
    types = {"X": dtype[2, elements]}
    text = TEXT.replace("f32", dtype.name).replace("N", str(elements)).replace("B", "2")
    s = pk.op(text).schedule(**types, target=target, auto=False).map(b="block.x").tile(i=256)
    s = s.map({"i.point": "thread.x"})
    return pk.op(text), s.promote("X", at="b", memory="shared"), types


@needs_compiler
@pytest.mark.parametrize("elements", [STATIC_SHARED_BYTES // 4, STATIC_SHARED_BYTES // 4 + 1, 58112])
def test_a_row_larger_than_what_there_is_without_asking_is_asked_for(elements):
    op, s, types = held(elements)
    kernel = op.compile(**types, schedule=s)
    text = kernel.source("cuda").split("// t0:")[1]
    asked = -(-elements // 4) * 16
    assert (f"PK_LAUNCH_SHARED(kernel0, {asked}, " in text) is (asked > STATIC_SHARED_BYTES)
    assert (f", {elements}, 0);" in text) is (asked > STATIC_SHARED_BYTES)
    x = np.random.default_rng(0).normal(size=(2, elements)).astype("f4")
    np.testing.assert_array_equal(kernel(x), x + x[:, ::-1])


def test_no_block_has_more_than_its_gpu():
    with pytest.raises(ScheduleError, match="more than 232448"):
        held(60000)
    op, s, types = held(58112, "cuda:sm_80")
    with pytest.raises(
        CompileError, match="kernel0 takes 232448 bytes of shared memory, and a block has at most 166912 on cuda:sm_80"
    ) as caught:
        op.compile(**types, schedule=s)
    assert caught.value.code == "PK626"


@needs_nvcc
@pytest.mark.parametrize("target, elements", [("cuda:sm_80", 41728), ("cuda:sm_90a", 58112)])
def test_machine_code_takes_as_much_as_a_block_has(target, elements):
    op, s, types = held(elements, target)
    kernel = op.compile(**types, schedule=s)
    (used,) = kernel.resources().values()
    assert used.shared == 4 * elements == gpus()[target].gpu.shared


@needs_compiler
def test_a_launch_asks_the_driver_for_what_its_kernel_takes(device):
    op, s, types = held(20000, "cuda:sm_90a")
    kernel = op.compile(**types, schedule=s)
    x = np.random.default_rng(0).normal(size=(2, 20000)).astype("f4")
    np.testing.assert_array_equal(kernel(x), x + x[:, ::-1])
    assert device.shared == [80000]
    device.shared.clear()
    pk.op("B[i] = A[i]").compile(pk.f32[64], target="cuda:sm_90a")(np.zeros(64, "f4"))
    assert device.shared == [0]


@needs_compiler
@needs_nvcc
@pytest.mark.parametrize("target, reserved", [("cuda:sm_80", 0), ("cuda:sm_90a", 1 << 10)])
@pytest.mark.parametrize("asks", [False, True])
def test_what_cuda_keeps_of_shared_memory_is_not_the_kernel_s(target, reserved, asks):
    gpu = gpus()[target].gpu
    elements = gpu.shared // 4 if asks else 1000
    op, s, types = held(elements, target)
    kernel = op.compile(**types, schedule=s)
    # On sm_90 the memory of a kernel begins behind what CUDA keeps of each block, and its section in the machine code has that.
    declared = section_size(kernel.cubin(), b".nv.shared.kernel0")
    assert declared == reserved + (0 if asks else 4 * elements)
    # Limits are without it: a block that asks for all it may has the whole multiprocessor.
    assert not asks or kernel.resources()["kernel0"].shared == gpu.shared
    assert gpu.resident_blocks(256, 32, gpu.shared) == 1 and gpu.shared + gpu.reserved in (164 << 10, 228 << 10)


def section_size(image, name):
    """Return the size of a section of an ELF file of 64 bits."""
    start, size, count, names = struct.unpack_from("<Q", image, 40) + struct.unpack_from("<3H", image, 58)
    headers = [struct.unpack_from("<IIQQQQ", image, start + n * size) for n in range(count)]
    table = headers[names][4]
    found = [h[5] for h in headers if image[table + h[0] :].split(b"\0", 1)[0] == name]
    return found[0] if found else 0


@pytest.mark.parametrize("sanitizer", [pytest.param(s, marks=needs_sanitizer(s)) for s in ("address", "thread")])
def test_sanitizers_know_the_buffers_of_a_launch_that_asks(sanitizer):
    op, s, types = held(16000)
    text = op.compile(**types, schedule=s).source("cuda")
    arrays = [np.ones((2, 16000), "f4"), np.zeros((2, 16000), "f4")]
    assert run_checked(text, arrays, sanitizer=sanitizer).report == ""
    wrong = (
        text.replace("__syncthreads();", "") if sanitizer == "thread" else text.replace(", 16000, 0);", ", 15999, 0);")
    )
    assert wrong != text
    assert run_checked(wrong, arrays, sanitizer=sanitizer).report


def test_the_automatic_schedule_keeps_rows_on_chip_that_have_to_be_asked_for():
    text = "f(X) -> P:\n    E[i,j,k] = exp(X[i,j,k])\n    P[i,j,k] = E[i,j,k] / sum[a,b](E[i,a,b] where a <= b)"
    kernel = pk.op(text).compile(pk.f32[300, 2, 6900], target="cuda:sm_90a")
    (launch,) = (s for s in statements(compiled_to(kernel).kernel.body) if isinstance(s, Launch))
    assert (
        STATIC_SHARED_BYTES < 4 * 2 * 6900 < shared_memory(launch).size <= gpus()["cuda:sm_90a"].gpu.shared // 4
    )  # of 512 threads
    assert re.search(r"one launch, .*E.* on the chip", generated(kernel, "schedule"))
