"""A kernel from Kernel IR to running machine code."""

import ctypes

import numpy as np

from polyker.codegen.ir.kernel import Buffer, Const, For, KernelIR, Load, LoopKind, Op, Space, Store, Var
from polyker.codegen.llvm.jit.build import build
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.dtypes import f32
from tests.codegen.support import entry
from tests.passes import emit


def test_a_masked_vector_loop_computes_each_element_once_and_nothing_beyond():
    n, i, j = Var("N"), Var("i"), Var("j")
    a = Buffer("A", f32, (n,), (Const(1),), Space.ARGUMENT, writable=False)
    b = Buffer("B", f32, (n,), (Const(1),), Space.ARGUMENT)
    load = Load("A", (j,), f32)
    store = Store("B", (j,), Op("add", (load, Op("mul", (load, Const(2.0, f32)), f32)), f32))
    upper = Op("minimum", (n, Op("add", (i, Const(16)))))
    inner = For("j", i, upper, (store,), kind=LoopKind.VECTOR, lanes=16)
    kernel = KernelIR("k", (a, b), ("N",), (For("i", Const(0), n, (inner,), step=16),))
    code = build(emit(kernel, target("cpu")), target("cpu"))
    run = entry(code.address)
    for size in range(40):
        x, y = np.arange(size, dtype=np.float32), np.full(size + 1, -1, np.float32)
        pointers = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data)
        assert run(pointers, (ctypes.c_int64 * 1)(size)) == 0
        np.testing.assert_array_equal(y, [*(3 * x), -1])
