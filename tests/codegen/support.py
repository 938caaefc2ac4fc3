"""Running a kernel by the interpreter and as machine code, on guarded memory."""

from __future__ import annotations

import ctypes
import mmap
from functools import cache

import numpy as np

from polyker.codegen.ir.kernel import Buffer, Const, KernelIR, Op, Space, Var
from polyker.codegen.ir.verify import verify
from polyker.codegen.ir.walk import is_parallel
from polyker.codegen.llvm.jit.build import LoadedCode, build
from polyker.codegen.llvm.jit.detect import target
from polyker.errors import InternalError
from polyker.ir.dtypes import DType, i64
from polyker.runtime.threads import runtime
from tests.codegen.interpret import run as interpret
from tests.passes import emit

C, V = Const, Var
PAGE = mmap.PAGESIZE
CANARY = 0xA5
# A kernel: `status = f(pointers, integers)`, arrays of void* and of i64 that stay alive for the call.
entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_mprotect = ctypes.CDLL(None, use_errno=True).mprotect


def index(op: str, *args: object) -> Op:
    """Return an i64 operation; ints become constants, strings variables."""
    wrapped = tuple(C(a) if isinstance(a, int) else V(a) if isinstance(a, str) else a for a in args)
    return Op(op, wrapped, i64)


def vector_buffer(name: str, dtype: DType, size: object = "N", *, stride: object = 1, writable: bool = True) -> Buffer:
    """Return a 1-d ARGUMENT buffer."""
    shape = V(size) if isinstance(size, str) else C(size)
    step = V(stride) if isinstance(stride, str) else C(stride)
    return Buffer(name, dtype, (shape,), (step,), Space.ARGUMENT, writable)


class Guarded:
    """Bytes that end (or begin) at a page which must not be touched."""

    def __init__(self, size: int, *, at_end: bool = True) -> None:
        pages = -(-max(size, 1) // PAGE)
        self.map = mmap.mmap(-1, (pages + 2) * PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        for page in (0, pages + 1):
            assert _mprotect(ctypes.c_void_p(self.start + page * PAGE), PAGE, 0) == 0
        self.address = self.start + PAGE + (pages * PAGE - size if at_end else 0)
        self.size = size

    def array(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Return a C-contiguous array over the bytes."""
        raw = (ctypes.c_char * self.size).from_address(self.address)
        return np.frombuffer(raw, np.uint8).view(dtype).reshape(shape)


def guarded_copy(
    array: np.ndarray, *, at_end: bool = True, strides: tuple[int, ...] | None = None
) -> tuple[Guarded, np.ndarray]:
    """Return a copy of an array (strides in elements) next to a forbidden page, and its memory."""
    if strides is None:
        strides = tuple(int(np.prod(array.shape[k + 1 :])) for k in range(array.ndim))
    reach = [(n - 1) * s for n, s in zip(array.shape, strides, strict=True)] if array.size else []
    low, high = sum(min(0, r) for r in reach), sum(max(0, r) for r in reach)
    size = (high - low + 1) * array.itemsize if array.size else 0
    memory = Guarded(size, at_end=at_end)
    flat = memory.array(array.dtype, (size // array.itemsize,))
    flat.view(np.uint8)[...] = CANARY
    base = flat[-low:] if array.size else flat
    copy = np.lib.stride_tricks.as_strided(base, array.shape, [s * array.itemsize for s in strides])
    copy[...] = array
    return memory, copy


def gaps_untouched(memory: Guarded, view: np.ndarray) -> bool:
    """Return whether the bytes between the elements of `view` still hold the canary."""
    flat = memory.array(np.dtype(np.uint8), (memory.size,)).copy()
    copy = np.frombuffer(flat, np.uint8)
    start = view.ctypes.data - memory.address
    element = np.lib.stride_tricks.as_strided(copy[start:], (*view.shape, view.itemsize), (*view.strides, 1))
    if view.size:
        element[...] = CANARY
    return bool((flat == CANARY).all())


@cache
def compiled(kernel: KernelIR, name: str = "cpu") -> LoadedCode:
    verify(kernel)
    return build(emit(kernel, target(name)), target(name))


# It releases the GIL while it runs.
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


def call(code: LoadedCode, arrays: list[np.ndarray], integers: list[int]) -> int:
    """Call machine code on arrays in the order of the kernel's buffers."""
    pointers = (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])
    numbers = (ctypes.c_int64 * max(1, len(integers)))(*integers)
    return int(_ENTRY(code.address)(pointers, numbers))


def run_native(kernel: KernelIR, buffers: dict[str, np.ndarray], integers: dict[str, int], name: str = "cpu") -> int:
    """Run machine code in place."""
    code = compiled(kernel, name)
    numbers = [integers[n] for n in kernel.integers]
    if is_parallel(kernel):
        numbers.append(runtime())
    return call(code, [buffers[b.name] for b in kernel.buffers], numbers)


def bits(array: np.ndarray) -> np.ndarray:
    """Return an array's bytes with every NaN made the same."""
    if array.dtype.kind in "fcV" or array.dtype.name == "bfloat16":
        parts = array.reshape(-1)
        if array.dtype.kind == "c":
            parts = parts.view(np.float32 if array.dtype.itemsize == 8 else np.float64)
        parts = parts.copy()
        parts[np.isnan(parts)] = np.array(np.nan, parts.dtype)
        return parts.view(np.uint8)
    return np.ascontiguousarray(array).view(np.uint8)


def check_same(
    kernel: KernelIR,
    buffers: dict[str, np.ndarray],
    integers: dict[str, int],
    name: str = "cpu",
    strides: dict[str, tuple[int, ...]] | None = None,
) -> int:
    """Assert that the interpreter and the machine code give the same status and the same bits; return the status."""
    expected = {k: v.copy() for k, v in buffers.items()}
    try:
        status = interpret(kernel, expected, integers)
    except InternalError as error:
        if "two lanes" not in str(error):
            raise
        return -1  # an illegal vectorisation, whose result is not defined
    for at_end in (True, False):
        owners = {k: guarded_copy(v, at_end=at_end, strides=(strides or {}).get(k)) for k, v in buffers.items()}
        found = {k: v[1] for k, v in owners.items()}
        assert run_native(kernel, found, integers, name) == status
        for key, value in expected.items() if status == 0 else ():
            assert np.array_equal(bits(found[key].copy()), bits(value)), (key, found[key], value)
        for key, (memory, view) in owners.items():
            assert gaps_untouched(memory, view), key
    return status
