"""Exported kernels called from C, C++ and Rust: right, checked, without Python, memory or symbols of their own."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyker as pk

PRODUCT = "C[i,j] += A[i,k] * B[k,j]"
SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def product(**options: Any) -> pk.Kernel:
    return pk.op(PRODUCT).compile(pk.f32["M", "K"], pk.f32["K", "N"], **options)


def run(*command: str | Path, **options: Any) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


MAIN = r"""
#include "mm.h"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 0, 1, 1, 1}, c[4] = {-1, -1, -1, -1};
  void *scratch = aligned_alloc(64, (size_t)mm_scratch(2, 3, 2) + 64);
  int32_t status = mm(a, b, c, 2, 3, 2, scratch);
  if (status) { printf("%d: %s\n", (int)status, mm_error(status)); return 1; }
  printf("%g %g %g %g\n", (double)c[0], (double)c[1], (double)c[2], (double)c[3]);
  c[0] = -1;
  status = mm(a, b, c, -2, 3, 2, scratch);
  printf("%d %g %s\n", (int)status, (double)c[0], mm_error(status));
  free(scratch);
  return 0;
}
"""


@needs_cc
@pytest.mark.parametrize("kind", [".o", ".a", ".so"])
def test_a_c_program_calls_it_with_all_warnings_on(kind: str, tmp_path: Path) -> None:
    library = tmp_path / f"{'lib' * (kind != '.o')}mm{kind}"
    product(threads=1).export(library)
    main = tmp_path / "main.c"
    main.write_text(MAIN)
    program = tmp_path / "main"
    run("cc", "-std=c11", *STRICT, main, library, "-o", program)
    first, second = run(program, env={"LD_LIBRARY_PATH": str(tmp_path)}).splitlines()
    assert first == "4 5 10 11"
    assert second.startswith("1001 -1 a size is negative")


@needs_cc
def test_a_c99_and_a_cpp_program_take_the_header(tmp_path: Path) -> None:
    for name, kernel in (
        ("mm", product(threads=1)),
        ("half", pk.op("y[i] = x[i] * a").compile(pk.f16["N"], pk.f16[()])),
        ("cplx", pk.op("y[i] = x[i] * x[i]").compile(pk.c64["N"])),
        ("bools", pk.op("y[i] = x[i] > 0").compile(pk.i8["N"])),
        ("threads", product(threads=4)),
    ):
        kernel.export(tmp_path / f"{name}.o", name=name)
        use = tmp_path / f"{name}.c"
        use.write_text(f'#include "{name}.h"\nextern const void *used;\nconst void *used = "{name}";\n')
        run("cc", "-std=c99", *STRICT, "-c", use, "-o", tmp_path / "use.o")
        run("c++", "-x", "c++", "-std=c++17", *STRICT, "-c", use, "-o", tmp_path / "use.o")


@pytest.mark.skipif(shutil.which("rustc") is None, reason="no Rust compiler")
def test_a_rust_program_calls_it_by_the_header_s_signature(tmp_path: Path) -> None:
    product(threads=1).export(tmp_path / "libmm.a")
    (tmp_path / "main.rs").write_text("""
extern "C" {
    fn mm(a: *const f32, b: *const f32, c: *mut f32, m: i64, k: i64, n: i64, scratch: *mut u8) -> i32;
    fn mm_scratch(m: i64, k: i64, n: i64) -> i64;
}
fn main() {
    let (a, b, mut c) = ([1f32, 2., 3., 4., 5., 6.], [1f32, 0., 0., 1., 1., 1.], [0f32; 4]);
    let size = unsafe { mm_scratch(2, 3, 2) } as usize;
    let layout = std::alloc::Layout::from_size_align(size.max(64), 64).unwrap();
    let scratch = unsafe { std::alloc::alloc(layout) };
    let status = unsafe { mm(a.as_ptr(), b.as_ptr(), c.as_mut_ptr(), 2, 3, 2, scratch) };
    unsafe { std::alloc::dealloc(scratch, layout) };
    println!("{} {:?}", status, c);
}
""")
    run("rustc", "-L", tmp_path, "-l", "static=mm", tmp_path / "main.rs", "-o", tmp_path / "main")
    assert run(tmp_path / "main").strip() == "0 [4.0, 5.0, 10.0, 11.0]"


def pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Called:
    """A kernel by its C entry: arrays, numbers and sizes in the header's order; scratch memory is made here."""

    def __init__(self, kernel: pk.Kernel, file: Path, **options: Any) -> None:
        name = options.setdefault("name", "f")
        self.files = kernel.export(file, **options)
        self.library = ctypes.CDLL(str(file))
        self.function, self.scratch, self.error = (
            getattr(self.library, name + end) for end in ("", "_scratch", "_error")
        )
        self.scratch.restype, self.error.restype = ctypes.c_int64, ctypes.c_char_p
        self.header = next(f for f in self.files if f.suffix == ".h").read_text()

    def __call__(self, *arguments: Any, sizes: tuple[int, ...] = (), runtime: Any = ()) -> int:
        given = [pointer(a) if isinstance(a, np.ndarray) else a for a in arguments] + list(map(ctypes.c_int64, sizes))
        if "void *scratch" in self.header:
            size = self.scratch(*map(ctypes.c_int64, sizes))
            block = np.zeros(size + 64, np.uint8)
            given.append(ctypes.c_void_p((block.ctypes.data + 63) & -64))
        return int(self.function(*given, *runtime))


@needs_cc
def test_what_it_computes_is_what_the_kernel_computes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(33, 70)).astype("f4")
    kernel = pk.op(SOFTMAX).compile(pk.f32["M", "N"], threads=1, specialize="never")
    called, out = Called(kernel, tmp_path / "softmax.so"), np.empty_like(x)
    assert called(x, out, sizes=x.shape) == 0
    np.testing.assert_array_equal(out, kernel(x))
    gram = pk.op("B[i,j] = A[i,j] * 2 + 1; C[i,j] += B[k,i] * B[k,j]")
    a = rng.normal(size=(300, 200))
    for kernel, sizes in (
        (gram.compile(pk.f64[300, 200], threads=1), ()),
        (gram.compile(pk.f64["K", "I"], threads=1, specialize="never"), a.shape),
    ):
        called, out = Called(kernel, tmp_path / f"gram{len(sizes)}.so"), np.zeros((200, 200))
        assert called(a, out, sizes=sizes) == 0
        np.testing.assert_array_equal(out, kernel(a))


@needs_cc
def test_errors_come_as_their_numbers_and_nothing_is_written(tmp_path: Path) -> None:
    kernel = pk.op("y[i] = x[idx[i]] * a for i in 0:N").compile(pk.f32["M"], pk.i64["K"], pk.f32[()], threads=1)
    called = Called(kernel, tmp_path / "gather.so")
    x, idx, y = np.arange(9, dtype="f4"), np.array([3, 0, 8]), np.full(3, -7, "f4")
    a = ctypes.c_float(2.5)
    assert called(x, idx, a, y, sizes=(9, 3, 3)) == 0 and y.tolist() == [7.5, 0, 20]
    y[:] = -7
    meant = {
        (9, 3, 4): "`idx[i]` leaves idx",
        (9, -3, 3): "a size is negative",
        (9, 1 << 61, 3): "so large",
        (-1, 3, 3): "a size is negative",
        ((1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 1): "so large",
        (9, 3, -1): "is negative",
    }
    for sizes, words in meant.items():
        number = called(x, idx, a, y, sizes=sizes)
        assert number > 1000 and words in called.error(number).decode(), sizes
        assert f"{number}: " in called.header and (y == -7).all()
    idx[1] = 99
    number = called(x, idx, a, y, sizes=(9, 3, 3))
    assert 0 < number < 1000 and "out of range" in called.error(number).decode()
    assert called.error(0) == b"no error" and called.error(-5) == called.error(77777) == b"unknown number"


@needs_cc
def test_scratch_memory_is_asked_for_checked_and_may_be_the_library_s(tmp_path: Path) -> None:
    kernel = pk.op("B[i,j] = A[i,j] * 2; C[i,j] += B[k,i] * B[k,j]").compile(pk.f32[90, 80], threads=1)
    called, a, c = Called(kernel, tmp_path / "a.so"), np.ones((90, 80), "f4"), np.zeros((80, 80), "f4")
    for bad in (ctypes.c_void_p(0), ctypes.c_void_p(a.ctypes.data | 1)):
        number = called.function(pointer(a), pointer(c), bad)
        assert "scratch" in called.error(number).decode() and not c.any()
    assert called(a, c) == 0 and (c == 360).all()
    own = Called(kernel, tmp_path / "b.so", name="own", static_scratch=True)
    assert own.scratch() == 0 and own(a, c * 0) == 0
    symbolic = pk.op("B[i,j] = A[i,j] * 2; C[i,j] += B[k,i] * B[k,j]").compile(pk.f32["K", "I"], threads=1)
    with pytest.raises(pk.ArgumentError, match="no fixed amount"):
        symbolic.export(tmp_path / "c.so", static_scratch=True)


@needs_cc
def test_threads_are_the_caller_s_the_pool_s_or_none(tmp_path: Path) -> None:
    n = 300
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f64[n, n], pk.f64[n, n], threads=4)
    called = Called(kernel, tmp_path / "mm.so")
    assert "const struct polyker_runtime *runtime" in called.header and "polyker_pool(void)" in called.header
    a = np.arange(n * n, dtype="f8").reshape(n, n) % 7
    seen: list[int] = []
    body = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
    loop = ctypes.CFUNCTYPE(ctypes.c_int, body, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)

    def own(function: Any, context: Any, begin: int, end: int, user: Any) -> int:
        seen.append(end - begin)
        return 0 if user == 5 and all(function(context, i) == 0 for i in range(begin, end)) else 9

    callback = loop(own)
    struct = (ctypes.c_void_p * 5)(None, None, None, ctypes.cast(callback, ctypes.c_void_p), 5)
    pool = called.library.polyker_pool
    pool.restype = ctypes.c_void_p
    for runtime in (ctypes.c_void_p(None), ctypes.byref(struct), ctypes.c_void_p(pool())):
        c = np.zeros((n, n))
        assert called(a, a, c, runtime=(runtime,)) == 0
        np.testing.assert_array_equal(c, a @ a)
    assert seen and max(seen) > 1
    struct[4] = 6  # which this parallel_for answers with 9
    number = called(a, a, np.zeros((n, n)), runtime=(ctypes.byref(struct),))
    assert "parallel_for" in called.error(number).decode()


@needs_cc
def test_it_runs_on_a_stack_of_128_kib_and_is_loaded_a_thousand_times(tmp_path: Path) -> None:
    pk.op(SOFTMAX).compile(pk.f32[64, 64], threads=1).export(tmp_path / "softmax.so")
    (tmp_path / "main.c").write_text("""
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static float in[64 * 64], out[64 * 64];
static _Alignas(64) char scratch[1 << 20];
static long pages(void) {
  long all = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%ld %ld", &all, &resident) != 2) return -1;
  fclose(file);
  return resident;
}
static void *run(void *path) {
  long before = 0;
  for (int n = 0; n < 1000; n++) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return "dlopen";
    int32_t (*f)(const float *, float *, void *);
    *(void **)&f = dlsym(library, "softmax");
    if (f == NULL || f(in, out, scratch)) return "call";
    dlclose(library);
    if (n == 100) before = pages();
  }
  return pages() - before > 100 ? "grew" : NULL;
}
int main(int count, char **arguments) {
  pthread_attr_t attributes;
  pthread_t thread;
  void *failed = "thread";
  (void)count;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 128 << 10);
  if (pthread_create(&thread, &attributes, run, arguments[1])) return 2;
  pthread_join(thread, &failed);
  if (failed) puts(failed);
  return failed != NULL || out[0] < 0.015f || out[0] > 0.016f;
}
""")
    run("cc", "-std=gnu11", "-pthread", tmp_path / "main.c", "-ldl", "-o", tmp_path / "main")
    run(tmp_path / "main", tmp_path / "softmax.so")


@needs_cc
def test_two_libraries_of_one_operator_and_one_of_several_live_together(tmp_path: Path) -> None:
    a, wanted = np.ones((8, 8), "f4"), np.full((8, 8), 8, "f4")
    kernel = pk.op(PRODUCT).compile(pk.f32[8, 8], pk.f32[8, 8], threads=1)
    for file in ("one.so", "two.so"):
        called, c = Called(kernel, tmp_path / file, name="same"), np.zeros((8, 8), "f4")
        assert called(a, a, c) == 0
        np.testing.assert_array_equal(c, wanted)
    others = {"mm": kernel, "soft": pk.op(SOFTMAX).compile(pk.f32[8, 8], threads=1)}
    pk.export_library(tmp_path / "libboth.so", others)
    library, out = ctypes.CDLL(str(tmp_path / "libboth.so")), np.zeros((8, 8), "f4")
    assert library.mm(pointer(a), pointer(a), pointer(out)) == 0 and (out == 8).all()
    manifest = json.loads((tmp_path / "both.json").read_text())
    assert [o["name"] for o in manifest["operators"]] == ["mm", "soft"] and manifest["operators"][0]["text"] == PRODUCT
    assert (
        list(manifest["files"]) == ["libboth.so"] and manifest["target"]["triple"] and manifest["versions"]["polyker"]
    )


def test_the_same_input_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    program = (
        "import sys, polyker as pk\n"
        f"kernels = {{'mm': pk.op({PRODUCT!r}).compile(pk.f32['M', 'K'], pk.f32['K', 'N'], target='cpu:x86-64-v3', threads=1),\n"
        f"  'soft': pk.op({SOFTMAX!r}).compile(pk.f32[30, 40], target='cpu:x86-64-v3', threads=1)}}\n"
        "for kind in ('o', 'a', 'll'): pk.export_library(f'{sys.argv[1]}/both.{kind}', kernels)"
    )
    found = []
    for seed in ("0", "1", "77"):
        folder = tmp_path / seed
        folder.mkdir()
        run(sys.executable, "-c", program, folder, env={**os.environ, "PYTHONHASHSEED": seed})
        found.append({f.name: f.read_bytes() for f in folder.iterdir()})
    assert found[0] == found[1] == found[2] and len(found[0]) == 7


@needs_cc
def test_constants_are_part_of_the_library(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    w, b = rng.normal(size=(6, 3)).astype("f4"), rng.normal(size=3).astype("f4")
    layer = pk.op("Y[n,o] = relu(sum[i](X[n,i] * W[i,o]) + b[o])").compile(
        X=pk.f32["N", 6], W=pk.f32[6, 3], b=pk.f32[3]
    )
    called = Called(layer, tmp_path / "layer.so", constants={"W": w, "b": b})
    x, y = rng.normal(size=(5, 6)).astype("f4"), np.zeros((5, 3), "f4")
    assert called(x, y, sizes=(5,)) == 0
    np.testing.assert_array_equal(y, layer(x, w, b))
    with pytest.raises(pk.ShapeError, match=r"has shape \(6, 2\)"):
        layer.export(tmp_path / "l.so", constants={"W": w[:, :2]})
    with pytest.raises(pk.ArgumentError, match="no input that may be constant"):
        layer.export(tmp_path / "l.so", constants={"V": w})


@pytest.mark.parametrize("name", ["int", "3x", "a-b", "", "x" * 300, "scratch", "f;", "été", "__x"])
def test_names_that_c_does_not_take_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(pk.ArgumentError, match="no name for an exported function"):
        product().export(tmp_path / "f.o", name=name or "?")


@needs_cc
def test_names_and_texts_of_the_user_s_cannot_end_a_comment_or_be_words_of_c(tmp_path: Path) -> None:
    text = "int[i] = float[i] * 2 + errno[i]"
    kernel = pk.op(text).compile(pk.f32["double"], pk.f32["double"])
    kernel.export(tmp_path / "words.o")
    (tmp_path / "use.c").write_text(
        '#include <errno.h>\n#include "words.h"\nint main(void) { return words_error(0) == 0; }\n'
    )
    run("cc", "-std=c99", *STRICT, tmp_path / "use.c", tmp_path / "words.o", "-o", tmp_path / "use")
    run(tmp_path / "use")


@pytest.mark.parametrize(
    ("file", "words"),
    [("f.exe", "no kind of file"), ("f", "no kind of file"), ("f.dll", "take a .so"), ("f.cu", "CUDA target")],
)
def test_files_of_other_kinds_or_systems_are_refused(file: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(pk.ArgumentError, match=words):
        product(threads=1).export(tmp_path / file)
    assert not list(tmp_path.iterdir())


def test_a_missing_linker_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pk.BackendUnavailable, match=r"no linker makes f\.so"):
        product(threads=1, target="aarch64-linux-gnu").export(tmp_path / "f.so")


def test_cuda_text_is_written_for_cuda_targets(tmp_path: Path) -> None:
    (file,) = product(target="cuda:sm_80").export(tmp_path / "mm.cu")
    assert "__global__" in file.read_text()


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake")
@pytest.mark.parametrize(("name", "words"), [("c", "sum 1.0000"), ("cpp", "right, ")])
def test_the_examples_build_with_cmake_and_run(name: str, words: str, tmp_path: Path) -> None:
    program = tmp_path / "polyker"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m polyker "$@"\n')
    program.chmod(0o755)
    run("cmake", "-S", EXAMPLES / name, "-B", tmp_path / "build", f"-DPOLYKER={program}")
    run("cmake", "--build", tmp_path / "build")
    assert words in run(tmp_path / "build" / "main")
