"""From LLVM IR text to machine code: what is refused, what other targets get, and what a compile leaves behind."""

import gc
import mmap
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from polyker.codegen.ir.kernel import Const, For, KernelIR, Load, LoopKind, Op, Store
from polyker.codegen.llvm.jit.build import assembly, build, object_code
from polyker.codegen.llvm.jit.detect import host, target
from polyker.errors import CompileError, InternalError
from polyker.ir.dtypes import DTYPES, f32, f64, u8
from polyker.machine.known import instruction_sets, known
from polyker.structs import replace
from tests.codegen.kernels import random_case
from tests.codegen.support import C, V, call, compiled, run_native, vector_buffer
from tests.codegen.test_llvm_ops import elementwise
from tests.passes import emit

RETURN = "define i64 @kernel(ptr %p, ptr %n) {\n  ret i64 0\n}\n"


def doubled(lanes=16):
    return elementwise(lambda x: Op("mul", (x, Const(2.0, f32)), f32), [f32], f32, lanes)


def test_text_that_is_no_module_is_our_bug():
    with pytest.raises(InternalError, match="wrong"):
        build("define i64 @kernel( {", host())


def test_a_use_before_its_definition_is_refused():
    text = "define i64 @kernel(ptr %p, ptr %n) {\n  %a = add i64 %b, 1\n  %b = add i64 1, 1\n  ret i64 %a\n}\n"
    with pytest.raises(InternalError, match="wrong"):
        build(text, host())


@pytest.mark.parametrize("name", ["system", "llvm.frobnicate", "puts"])
def test_only_functions_of_the_list_may_be_called(name):
    with pytest.raises(InternalError, match=name):
        build(
            f"declare i64 @{name}(ptr)\n" + RETURN.replace("ret i64 0", f"%r = call i64 @{name}(ptr %p)\n  ret i64 %r"),
            host(),
        )


@pytest.mark.parametrize("change", [{"cpu": "pentium9"}, {"features": "+warp-drive"}, {"cpu": "x\ny"}])
def test_a_processor_that_llvm_does_not_know_never_reaches_it(change):
    with pytest.raises(CompileError) as caught:
        assembly(RETURN, replace(host(), **change))
    assert caught.value.code == "PK603"


# How an object file begins.
MAGIC = {"wasm32": b"\0asm", "windows": b"\x64\x86", "apple": b"\xcf\xfa\xed\xfe"}


@pytest.mark.parametrize(
    "name", [*instruction_sets(), "x86_64-windows-msvc+v3", "aarch64-macos", "cpu:znver4", "cpu:neoverse-v1"]
)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "c128", "u8", "bool"])
def test_every_target_gets_assembly_and_an_object(name, dtype):
    d = DTYPES[dtype]
    op = "or" if dtype == "bool" else "mul"
    kernel = elementwise(lambda x, y: Op(op, (x, y), d), [d, d], d, 8)
    text = emit(kernel, target(name))
    assert "kernel" in assembly(text, target(name))
    magic = next((m for system, m in MAGIC.items() if system in target(name).triple), b"\x7fELF")
    assert object_code(target(name), text).startswith(magic)


@pytest.mark.parametrize("name", sorted(known()))
def test_llvm_knows_every_target(name):
    assert "kernel" in assembly(RETURN, target(name))


@pytest.mark.parametrize("name", ["aarch64-linux-gnu", "wasm32", "armv7-linux-gnueabihf", "riscv64-linux-gnu"])
def test_random_kernels_compile_for_other_processors(name):
    for seed in range(12):
        assert object_code(target(name), emit(random_case(seed).kernel, target(name)))


def test_code_for_another_processor_has_no_address():
    assert build(emit(doubled(), target("aarch64-linux-gnu")), target("aarch64-linux-gnu")).address == 0


def test_the_same_kernel_gives_the_same_bytes():
    text = emit(doubled(), host())
    assert text == emit(doubled(), host())
    assert object_code(host(), text) == object_code(host(), text)


def test_compiling_again_and_again_keeps_no_memory():
    text = emit(doubled(), host())

    def resident():
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def growth():
        before = resident()
        for _ in range(100):
            build(text, host())
        return (resident() - before) / 100

    for _ in range(50):
        build(text, host())
    # What is kept grows each time; what the heap of a long process takes at once, for something else, does not.
    assert min(growth() for _ in range(4)) * 10_000 < 64 << 20


def test_threads_compile_and_call_side_by_side():
    wrong = []

    def work(number):
        kernel = elementwise(lambda x: Op("add", (x, Const(float(number), f64)), f64), [f64], f64, 8)
        code = build(emit(kernel, host()), host())
        for size in (3, 100):
            x, y = np.arange(size, dtype=np.float64), np.zeros(size)
            if call(code, [x, y], [size]) != 0 or not np.array_equal(y, x + number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_forked_child_compiles_while_its_parent_does():
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            build(emit(doubled(), host()), host())

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                build(emit(doubled(8), host()), host())
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()


@pytest.mark.skipif(sys.platform != "linux", reason="reserves address space as Linux does")
def test_code_and_constants_lie_side_by_side_where_room_is_far_apart():
    child = subprocess.run(
        [sys.executable, "-m", "tests.codegen.far_apart"], capture_output=True, text=True, check=False
    )
    assert (child.returncode, child.stdout) == (0, "30\n"), child.stderr[-500:]


REPEATED = """
import polyker as pk
pairs = "z[n,c,h,w] = x[n,c,2*h,2*w] + x[n,c,2*h,2*w+1] for h in 0:8, w in 0:8"
functions = "z[i,j] = exp(x[i,j]) + erf(x[i,j])"
for text, shape in ((pairs, (4, 8, 16, 16)), (functions, (8, 40))):
    print(pk.op(text).compile(x=pk.f32[shape], threads=1).source("llvm"))
"""


def test_the_text_does_not_depend_on_how_names_are_hashed():
    texts = set()
    for seed in range(4):
        here = {**os.environ, "PYTHONHASHSEED": str(seed)}
        child = subprocess.run([sys.executable, "-c", REPEATED], capture_output=True, text=True, check=True, env=here)
        texts.add(child.stdout)
    assert len(texts) == 1


def test_machine_code_lives_as_long_as_its_owner():
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    code = build(emit(doubled(), host()), host())
    gc.collect()
    assert call(code, [x, y], [5]) == 0
    assert y.tolist() == [0, 2, 4, 6, 8]


def test_index_arithmetic_is_64_bits_wide():
    for seed in range(60):
        text = emit(random_case(seed, "f32 f64").kernel, host())
        narrow = set(re.findall(r"(%v\d+) = (?:mul|add|sub) (?:<\d+ x )?i(?:8|16|32)\b", text))
        for line in text.splitlines():
            if "getelementptr" in line:
                assert not any(n in line for n in narrow)
                assert re.search(r"i64>? \S+$", line), line


def test_elements_beyond_two_to_the_31_are_reached():
    stride = (1 << 31) + 7
    a, b = vector_buffer("A", u8, 3, stride="s", writable=False), vector_buffer("B", u8, 3)
    body = For("v", C(0), C(3), (Store("B", (V("v"),), Load("A", (V("v"),), u8)),), kind=LoopKind.VECTOR, lanes=4)
    kernel = KernelIR("k", (a, b), ("s",), (body,))
    # Pages of an anonymous mapping take no memory before they are written.
    memory = mmap.mmap(-1, 2 * stride + 1, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    x = np.frombuffer(memory, np.uint8)
    x[[0, stride, 2 * stride]] = 5, 6, 7
    y = np.zeros(3, np.uint8)
    assert call(compiled(kernel), [x, y], [stride]) == 0
    assert y.tolist() == [5, 6, 7]


def test_floating_point_control_is_left_alone():
    kernel = elementwise(lambda x: Op("mul", (x, Const(1.0, f64)), f64), [f64], f64, 8)
    x, y = np.array([5e-324, 1e-310]), np.zeros(2)
    assert run_native(kernel, {"A0": x, "R": y}, {"N": 2}) == 0
    assert y.tolist() == x.tolist()
    assert np.array([5e-324]) * 1.0 == 5e-324
