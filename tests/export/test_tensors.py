"""Entries by tensors of DLPack and of tvm-ffi: right, and what is no such tensor is refused with its number."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyker as pk

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class DLTensor(ctypes.Structure):
    """The struct of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def tensor(array: Any, **changes: Any) -> DLTensor:
    """Return an array as a DLTensor, with some fields changed."""
    shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
    strides = (ctypes.c_int64 * max(1, array.ndim))(*(s // array.itemsize for s in array.strides))
    kind, bits = KINDS[array.dtype.kind], 8 * array.itemsize
    made = DLTensor(array.ctypes.data, 1, 0, array.ndim, kind, bits, 1, shape, strides, 0)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


class Entry:
    """The entry by DLPack of a kernel: arrays or DLTensors, inputs then outputs."""

    def __init__(self, kernel: pk.Kernel, file: Path) -> None:
        kernel.export(file, abi="dlpack", name="f")
        library = ctypes.CDLL(str(file))
        self.function, self.error = library.f_dlpack, library.f_error
        self.error.restype = ctypes.c_char_p
        self.outputs = len(kernel.program.outputs)

    def __call__(self, *arrays: Any, sizes: tuple[int, ...] = ()) -> int:
        given = [a if isinstance(a, DLTensor) else tensor(a) for a in arrays]
        pointers = [ctypes.pointer(t) for t in given]
        ins, outs = pointers[: len(pointers) - self.outputs], pointers[len(pointers) - self.outputs :]
        kind = ctypes.POINTER(DLTensor)
        scratch = np.zeros((1 << 20) + 64, np.uint8)
        place = ctypes.c_void_p((scratch.ctypes.data + 63) & -64)
        more = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
        return int(self.function((kind * max(1, len(ins)))(*ins), (kind * len(outs))(*outs), more, place))


def test_tensors_give_sizes_and_are_checked(tmp_path: Path) -> None:
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32["M", "K"], pk.f32["K", "N"], threads=1)
    entry = Entry(kernel, tmp_path / "mm.so")
    a, b = np.arange(12, dtype="f4").reshape(3, 4), np.arange(20, dtype="f4").reshape(4, 5)
    c = np.zeros((3, 5), "f4")
    assert entry(a, b, c) == 0
    np.testing.assert_array_equal(c, a @ b)
    offset = tensor(np.concatenate([a[:1] * 0, a]).reshape(4, 4)[:3], byte_offset=16)
    c[:] = 0
    assert entry(offset, b, c) == 0
    np.testing.assert_array_equal(c, a @ b)
    assert entry(tensor(a, strides=None), b, c) == 0
    c[:] = -7
    bad = {
        "device": (tensor(a, device_type=2), b, c, 2001),
        "rank": (tensor(a, ndim=1), b, c, 2001),
        "type": (a.view("i4"), b, c, 2001),
        "bits": (tensor(a, bits=64), b, c, 2001),
        "lanes": (tensor(a, lanes=2), b, c, 2001),
        "strided": (a.T.copy().T, b, c, 2001),
        "shape": (a, b[:3].copy(), c, 2002),
        "output": (a, b, c[:2], 2003),
        "output's strides": (a, b, np.zeros((3, 10), "f4")[:, ::2], 2003),
    }
    for name, (*arrays, number) in bad.items():
        assert entry(*arrays) == number, name
        assert "has to be f32[" in entry.error(number).decode()
    assert (c == -7).all()


def test_numbers_free_sizes_and_empty_tensors(tmp_path: Path) -> None:
    kernel = pk.op("y[i] = x[i] * a for i in 0:N").compile(pk.f64["K"], pk.f64[()], threads=1)
    entry = Entry(kernel, tmp_path / "f.so")
    x, a, y = np.arange(6.0), np.array(2.5), np.zeros(4)
    free = kernel.export(tmp_path / "g.o", abi="dlpack")[1].read_text()
    sizes = () if "sizes: null" in free else (4,)
    assert entry(x, a, y, sizes=sizes) == 0
    np.testing.assert_array_equal(y, x[:4] * 2.5)
    sums = Entry(pk.op("s[i] += x[i,j]").compile(pk.i64["I", "J"], threads=1), tmp_path / "s.so")
    for shape in ((0, 3), (3, 0), (1, 1)):
        out = np.full(shape[0], 9)
        assert sums(np.ones(shape, "i8"), out) == 0
        np.testing.assert_array_equal(out, np.full(shape[0], shape[1]))


def test_tvm_ffi_calls_it(tmp_path: Path) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32["M", "K"], pk.f32["K", "N"], threads=1)
    kernel.export(tmp_path / "mm.so", abi="tvm-ffi")
    function = tvm_ffi.load_module(str(tmp_path / "mm.so")).mm
    a, b = np.arange(12, dtype="f4").reshape(3, 4), np.arange(20, dtype="f4").reshape(4, 5)
    c, scratch = np.zeros((3, 5), "f4"), np.zeros(1 << 20, "u1")
    block = scratch[-scratch.ctypes.data % 64 :]
    given = [tvm_ffi.from_dlpack(v) for v in (a, b, c, block)]
    function(*given)
    np.testing.assert_array_equal(c, a @ b)
    with pytest.raises(ValueError, match=r"takes 3 tensors"):
        function(*given[:2])
    with pytest.raises(ValueError, match=r"`C` has to be f32\[M, N\]"):
        function(given[0], given[1], given[0], given[3])


def test_names_that_would_meet_another_s_entry_are_refused(tmp_path: Path) -> None:
    kernel = pk.op("y[i] = x[i]").compile(pk.f32[3], threads=1)
    with pytest.raises(pk.ArgumentError, match="two operators are exported as"):
        pk.export_library(tmp_path / "f.o", {"f": kernel, "f_dlpack": kernel}, abi="dlpack")


def test_other_interfaces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(pk.ArgumentError, match="c, dlpack, tvm-ffi"):
        pk.op("y[i] = x[i]").compile(pk.f32[3]).export(tmp_path / "f.o", abi="java")
