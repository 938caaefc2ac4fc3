"""Objects need nothing from a C library, and the readers of their symbols find what others would need."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from polyker.codegen.llvm.jit import binding as llvm
from polyker.codegen.llvm.jit.build import object_code
from polyker.codegen.llvm.jit.detect import host, target
from polyker.errors import ArgumentError, InternalError
from polyker.export.closing.closed import closed_object
from polyker.export.closing.support import definitions
from polyker.export.closing.symbols import undefined
from polyker.machine.known import known
from tests.export.operators import CASES, FEW, kernel

# One of each format, and those with the fewest instructions; tests/export/test_cross.py looks at the symbols of the others.
NAMES = [
    "x86-64-v1", "armv7-linux-gnueabihf", "riscv64-linux-gnu", "wasm32-nosimd", "x86_64-windows-msvc", "x86_64-windows-gnu+v3",
    "x86_64-macos+v2", "aarch64-macos",
]  # fmt: skip
CALLS = """\
declare double @fmod(double, double)
define i64 @kernel(ptr %p, ptr %n) nounwind {
  %x = load double, ptr %p
  %r = call double @fmod(double %x, double 2.0)
  store double %r, ptr %p
  ret i64 0
}
define double @other(double %x) nounwind {
  %r = call double @fmod(double %x, double 3.0)
  ret double %r
}
"""


@pytest.mark.parametrize("name", NAMES)
def test_no_object_leaves_a_symbol_undefined(name: str, tmp_path: Path) -> None:
    for number, case in enumerate(
        FEW[NAMES.index(name) % 2 :: 2]
    ):  # every other one, those of the next target the others
        file = tmp_path / f"k{number}.o"
        kernel(CASES[case], name).export(file)
        assert undefined(file.read_bytes()) == frozenset(), case


@pytest.mark.parametrize("name", ["x86-64-v3", "armv7-linux-gnueabihf", "wasm32", "x86_64-windows-gnu", "x86_64-macos"])
def test_what_an_object_needs_is_found_in_each_format(name: str) -> None:
    assert undefined(object_code(target(name), CALLS)) == {"fmod"}
    assert undefined(closed_object(target(name), CALLS)) == frozenset()


def test_code_for_microsofts_library_says_that_it_uses_floats_unless_it_is_closed() -> None:
    image = object_code(target("x86_64-windows-msvc"), CALLS)
    assert undefined(image) == {"fmod", "_fltused"}
    assert undefined(closed_object(target("x86_64-windows-msvc"), CALLS)) == frozenset()


@pytest.mark.parametrize("name", ["x86_64-windows-msvc", "x86_64-windows-gnu"])
def test_large_frames_are_probed_on_windows(name: str) -> None:
    text = """\
define i64 @kernel(ptr %p, ptr %n) {
  %memory = alloca [20000 x i8]
  store ptr %memory, ptr %p
  ret i64 0
}
"""
    assert undefined(object_code(target(name), text)) & {"__chkstk", "___chkstk_ms"}
    assert undefined(closed_object(target(name), text)) == frozenset()


def test_what_nothing_defines_is_refused() -> None:
    text = CALLS.replace("@fmod(double %x, double 2.0)", "@asinh(double %x)") + "declare double @asinh(double)\n"
    with pytest.raises(InternalError, match="asinh, which nothing defines"):
        closed_object(target("aarch64-linux-gnu"), text)


@pytest.mark.parametrize("name", sorted(known()))
def test_every_definition_is_right_in_llvms_eyes(name: str) -> None:
    for symbol, text in definitions(target(name)).items():
        assert symbol in text
        llvm.parse(text)


EDGES = np.array([
    0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, 1, -1, 3.7, -3.7, 4503599627370495.5, 4503599627370496.0,
    8388607.5, 1e300, -1e300, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-310, 1e-40, 3e38,
])  # fmt: skip


def _called(symbol: str, kind: str, arity: int, *arrays: np.ndarray) -> np.ndarray:
    """Return a function of the table, called for each element by this machine's code."""
    result = np.empty_like(arrays[0])
    loads = "".join(
        f"  %p{k} = getelementptr {kind}, ptr %a{k}, i64 %i\n  %x{k} = load {kind}, ptr %p{k}\n" for k in range(arity)
    )
    arguments = ", ".join(f"{kind} %x{k}" for k in range(arity))
    addresses = "".join(
        f"  %s{k} = getelementptr ptr, ptr %pointers, i64 {k}\n  %a{k} = load ptr, ptr %s{k}\n" for k in range(arity)
    )
    text = f"""\
declare {kind} @{symbol}({", ".join([kind] * arity)})
define i64 @kernel(ptr %pointers, ptr %integers) {{
entry:
{addresses}  %s = getelementptr ptr, ptr %pointers, i64 {arity}
  %o = load ptr, ptr %s
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
{loads}  %r = call {kind} @{symbol}({arguments})
  %q = getelementptr {kind}, ptr %o, i64 %i
  store {kind} %r, ptr %q
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, {len(result)}
  br i1 %more, label %next, label %done
done:
  ret i64 0
}}
"""
    code = llvm.LinkedCode(closed_object(host(), text), "kernel", frozenset())
    pointers = (ctypes.c_void_p * (arity + 1))(*(a.ctypes.data for a in (*arrays, result)))
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(code.address)(pointers, None)
    return result


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize(
    ("name", "numpy"),
    [("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("roundeven", np.rint), ("rint", np.rint)],
)
def test_rounding_is_exact(name: str, numpy: np.ufunc, kind: str) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 62, 20000, dtype="u8").view("f8")
    with np.errstate(all="ignore"):
        x = np.concatenate(
            (EDGES, rng.standard_normal(20000) * 10.0 ** rng.integers(-3, 20, 20000), bits, -bits)
        ).astype(kind)
        wanted = numpy(x)
    found = _called(name + ("f" if kind == "f4" else ""), "float" if kind == "f4" else "double", 1, x)
    assert np.array_equal(found, wanted, equal_nan=True)
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_remainders_are_exact(kind: str) -> None:
    rng = np.random.default_rng(1)
    integer = "u4" if kind == "f4" else "u8"
    any_bits = [rng.integers(0, np.iinfo(integer).max, 20000, dtype=integer).view(kind) for _ in range(2)]
    with np.errstate(all="ignore"):
        edges = EDGES.astype(kind)
        tiny = rng.integers(1, 1 << 20, (2, 2000), dtype=integer).view(kind)
        x = np.concatenate(
            (np.repeat(edges, len(edges)), any_bits[0], tiny[0], rng.standard_normal(20000).astype(kind) * 1000)
        )
        y = np.concatenate((np.tile(edges, len(edges)), any_bits[1], tiny[1], rng.standard_normal(20000).astype(kind)))
        wanted = np.fmod(x, y)
    found = _called("fmodf" if kind == "f4" else "fmod", "float" if kind == "f4" else "double", 2, x, y)
    assert np.array_equal(found, wanted, equal_nan=True)
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()


@pytest.mark.parametrize("name", ["fmod", "memset"])
def test_a_function_is_not_named_as_what_llvm_calls(name: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=name):
        kernel(CASES["gather"], "cpu").export(tmp_path / "k.o", name=name)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 100])
def test_memory_is_filled_copied_and_moved(count: int) -> None:
    text = """\
declare ptr @memset(ptr, i32, i64)
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memmove(ptr, ptr, i64)
define i64 @kernel(ptr %p, ptr %n) nounwind {
  %count = load i64, ptr %n
  %copy = getelementptr i8, ptr %p, i64 200
  %up = getelementptr i8, ptr %p, i64 5
  %low = getelementptr i8, ptr %p, i64 403
  %high = getelementptr i8, ptr %p, i64 410
  %filled = getelementptr i8, ptr %p, i64 600
  %a = call ptr @memcpy(ptr %copy, ptr %p, i64 %count)
  %b = call ptr @memmove(ptr %up, ptr %p, i64 %count)
  %c = call ptr @memmove(ptr %low, ptr %high, i64 %count)
  %d = call ptr @memset(ptr %filled, i32 263, i64 %count)
  ret i64 0
}
"""
    found = np.random.default_rng(count).integers(0, 256, 800, dtype="u1")
    wanted = found.copy()
    wanted[200 : 200 + count] = found[:count]
    wanted[5 : 5 + count] = found[:count]
    wanted[403 : 403 + count] = found[410 : 410 + count]
    wanted[600 : 600 + count] = 7
    code = llvm.LinkedCode(closed_object(host(), text), "kernel", frozenset())
    number = ctypes.c_int64(count)
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(code.address)
    run(found.ctypes.data, ctypes.addressof(number))
    assert (found == wanted).all()
