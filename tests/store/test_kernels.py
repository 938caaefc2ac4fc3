"""Kernels from the disk: the same bits, the same errors, no compiler; and a miss where anything that they depend on differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.api.compiling import kernels
from polyker.record.codec import decode, encode
from polyker.record.records import CallRecord, KernelRecord, Signature
from polyker.store import disk
from polyker.store.entries import unpack
from tests.artifacts import compiled_of
from tests.store.pickles import problems

COMPILERS = ("lark", "islpy", "sympy", "polyker.pipeline", "polyker.schedule", "polyker.rewrite", "polyker.poly")
WARM = """
import sys, numpy as np, polyker as pk
a = np.arange(64 * 48, dtype=np.float32).reshape(64, 48) % 7
op = pk.op("C[i,j] += A[i,k] * B[k,j]")
for _ in range(70):
    c = op(a, a.T)
assert (c == a @ a.T).all()
print(sorted({m for m in sys.modules for c in COMPILERS if m == c or m.startswith(c + ".")}))
"""


def python(program: str, **environment: str) -> str:
    """Return what a fresh process prints."""
    command = [sys.executable, "-c", f"COMPILERS = {COMPILERS}\n{program}"]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_warm_process_loads_nothing_that_compiles(folder: Path) -> None:
    assert "islpy" in python(WARM)
    assert python(WARM) == "[]"
    assert python(WARM, POLYKER_NUM_THREADS="3") != "[]"  # another kernel
    assert "islpy" in python(WARM, POLYKER_CACHE="off")


def forgotten() -> None:
    """Make this process forget its kernels, as a new one knows none."""
    kernels.clear()


def f32(*shape: int) -> Any:
    return (np.arange(np.prod(shape, dtype=int), dtype=np.float32) % 11 - 5).reshape(shape)


SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
# What is called, with which arrays and sizes.
CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "product": ("C[i,j] += A[i,k] * B[k,j]", (f32(33, 40), f32(40, 35)), {}),
    "columns": ("C[i,j] += A[i,k] * B[k,j]", (f32(40, 33).T, f32(35, 40).T), {}),
    "softmax": (SOFTMAX, (f32(20, 100),), {}),
    "several outputs": ("M[i] max= X[i,j]\nS[i] += X[i,j] * M[i]", (f32(9, 31),), {}),
    "in and out": ("h(A: f32[N], B: f32[N]) -> A:\n    A[i] = A[i] + B[i]", (f32(100), f32(100)), {}),
    "free size": ("y[i] += x[i+r] for i in 0:N, r in 0:3", (f32(50),), {"N": 20}),
    "gather": ("y[i] = x[idx[i]]", (f32(9), np.array([3, 0, 8])), {}),
    "time": (
        "U[0,i] = A[i] for i in 0:N\nfor t in 1:T:\n    U[t,i] = U[t-1,i] * A[i] for i in 0:N",
        (f32(20),),
        {"T": 9, "N": 20},
    ),
    "number": ("y[i] = x[i] * a", (f32(7), 2.5), {}),
    "scratch": ("B[i,j] = A[i,j] * 2; C[i,j] += B[k,i] * B[k,j]", (f32(300, 200),), {}),
    "empty": ("C[i,j] += A[i,k] * B[k,j]", (f32(3, 0), f32(0, 4)), {}),
    "integers": ("y[i] = x[i] // 3 + x[i] % 4", (np.arange(-20, 20),), {}),
    "complex": ("y[i] = x[i] * x[i]", (f32(9) + 1j * f32(9),), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_from_the_disk_gives_the_same_bits(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, arrays, sizes = CASES[name]
    found = []
    for mode in ("off", "rw", "rw", "ro"):
        monkeypatch.setenv("POLYKER_CACHE", mode)
        forgotten()
        hits = dict(disk.counts.hits)
        result = pk.op(text)(*(a.copy(order="K") if isinstance(a, np.ndarray) else a for a in arrays), **sizes)
        found.append([np.asarray(r).tobytes() for r in (result if isinstance(result, tuple) else (result,))])
    assert found[0] == found[1] == found[2] == found[3]
    assert disk.counts.hits.get("kernel", 0) > hits.get("kernel", 0)


def test_symbolic_kernels_of_several_classes_come_from_the_disk(folder: Path) -> None:
    def results() -> list[Any]:
        forgotten()
        kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32["M", "K"], pk.f32["K", "N"])
        found = [kernel(f32(m, k), f32(k, n)) for m, k, n in ((3, 4, 5), (40, 50, 60), (300, 20, 1), (0, 2, 3))]
        made = compiled_of(kernel).executables.values()
        assert all(e.from_disk for e in made) or not any(e.from_disk for e in made)
        return [*found, all(e.from_disk for e in made)]

    *first, cold = results()
    *second, warm = results()
    assert not cold and warm
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("y[i] = x[idx[i]]", lambda op: op(f32(4), np.array([1, 9]))),
        ("D[i] = X[i+1] - X[i-1] for i in 1:N", lambda op: op(f32(5), N=9)),
        ("C[i,j] += A[i,k] * B[k,j]", lambda op: op.compile(pk.f32["M", "K"], pk.f32["K", "N"])(f32(2, 3), f32(4, 5))),
        ("C[i,j] += A[i,k] * B[k,j]", lambda op: op(f32(2, 3), f32(4, 5))),
        ("O[i] = X[2*i] + Y[i]", lambda op: op.compile(pk.f32["N"], pk.f32["M"])(f32(3))),
    ],
)
def test_errors_of_a_kernel_from_the_disk_are_the_same(text: str, call: Callable[[Any], Any], folder: Path) -> None:
    told = []
    for _ in range(2):
        forgotten()
        with pytest.raises(pk.PolykerError) as caught:
            call(pk.op(text))
        told.append((type(caught.value), str(caught.value), caught.value.hint))
    assert told[0] == told[1]


def test_a_schedule_of_the_user_s_is_part_of_the_key(folder: Path) -> None:
    op, types = pk.op("C[i,j] += A[i,k] * B[k,j]"), (pk.f32[64, 64], pk.f32[64, 64])
    by_hand = op.schedule(*types, auto=False).tile(i=8, j=16)
    a = f32(64, 64)
    for _ in range(2):
        forgotten()
        for schedule in (None, by_hand):
            np.testing.assert_array_equal(op.compile(*types, schedule=schedule)(a, a), a @ a)
    assert ".tile" in op.compile(*types, schedule=by_hand).source("schedule")


def test_what_explains_a_kernel_from_the_disk_is_made_on_demand(folder: Path) -> None:
    op, types = pk.op(SOFTMAX), (pk.f32[30, 40],)
    stages = ("program", "isl", "schedule", "loops", "llvm", "asm", "passes")

    def told() -> dict[str, str]:
        forgotten()
        kernel = op.compile(*types)
        made = {name: kernel.source(name) for name in stages if name != "passes"}
        return made | {"repr": repr(kernel), "schedule": str(kernel.schedule), "floor": str(kernel.explain().floor)}

    assert told() == told()
    (entry,) = (k.file for k in disk.files() if unpack(k.file.read_bytes()).kind == "kernel")
    assert unpack(entry.read_bytes()).image.startswith(b"\x7fELF")


def types_of(*shapes: tuple[int, ...], dtype: Any = pk.f32) -> tuple[Any, ...]:
    return tuple(dtype[s] for s in shapes)


CHANGES: Mapping[str, Callable[[], object]] = {
    "another text": lambda: pk.op("C[i,j] += A[i,k] * B[k,j] ").compile(*types_of((8, 8), (8, 8))),
    "fixed size": lambda: pk.op("C[i,j] += A[i,k] * B[k,j] for i in 0:N", N=8).compile(*types_of((8, 8), (8, 8))),
    "shapes": lambda: pk.op("C[i,j] += A[i,k] * B[k,j]").compile(*types_of((8, 9), (9, 8))),
    "symbols": lambda: pk.op("C[i,j] += A[i,k] * B[k,j]").compile(
        pk.f32["N", "N"], pk.f32["N", "N"], specialize="never"
    ),
    "element type": lambda: pk.op("C[i,j] += A[i,k] * B[k,j]").compile(*types_of((8, 8), (8, 8), dtype=pk.f64)),
    "layout": lambda: pk.op("C[i,j] += A[i,k] * B[k,j]")(f32(8, 8).T, f32(8, 8)),
    "accumulator": lambda: pk.op("C[i,j] += A[i,k] * B[k,j]").compile(*types_of((8, 8), (8, 8)), acc="f64"),
    "fastmath": lambda: pk.op("C[i,j] += A[i,k] * B[k,j]").compile(*types_of((8, 8), (8, 8)), fastmath="reassoc"),
    "threads": lambda: pk.op("C[i,j] += A[i,k] * B[k,j]").compile(*types_of((8, 8), (8, 8)), threads=7),
    "deterministic": lambda: pk.op("C[i,j] += A[i,k] * B[k,j]").compile(*types_of((8, 8), (8, 8)), deterministic=True),
    "target": lambda: pk.op("C[i,j] += A[i,k] * B[k,j]").compile(*types_of((8, 8), (8, 8)), target="cpu:x86-64-v3"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_part_of_the_key_is_told_from_another(change: str, folder: Path) -> None:
    pk.op("C[i,j] += A[i,k] * B[k,j]").compile(*types_of((8, 8), (8, 8)))
    forgotten()
    hits = disk.counts.hits.get("kernel", 0)
    CHANGES[change]()
    assert disk.counts.hits.get("kernel", 0) == hits
    forgotten()
    CHANGES[change]()
    assert disk.counts.hits.get("kernel", 0) == hits + 1


@pytest.mark.parametrize("what", ["revision", "llvmlite", "islpy", "processor", "caches", "facts"])
def test_another_compiler_or_machine_is_told_from_this_one(
    what: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from polyker.codegen.llvm.jit import own
    from polyker.store import keys

    def compiled() -> int:
        for known in (keys.revision, keys.versions):
            known.cache_clear()
        before = disk.counts.hits.get("kernel", 0)
        forgotten()
        pk.op("y[i] = x[i] * 2").compile(pk.f32[8])
        return disk.counts.hits.get("kernel", 0) - before

    assert compiled() == 0 and compiled() == 1
    if what == "revision":
        monkeypatch.setattr(keys, "_files", lambda _: iter([("new.py", 1, 2)]))
    elif what in ("llvmlite", "islpy"):
        installed = keys._installed
        monkeypatch.setattr(keys, "_installed", lambda name: "new" if name == what else installed(name))
    else:
        told = own.host_key()
        place = {"processor": 0, "caches": 1, "facts": 3}[what]
        other = (*told[:place], ("other",), *told[place + 1 :])
        monkeypatch.setattr(own, "host_key", lambda: other)
    assert compiled() == 0
    monkeypatch.undo()
    monkeypatch.setenv("POLYKER_CACHE", "rw")
    monkeypatch.setenv("POLYKER_CACHE_DIR", str(folder))
    assert compiled() == 1


@pytest.mark.parametrize("name", CASES)
def test_records_say_in_json_what_they_are(name: str, folder: Path) -> None:
    text, arrays, sizes = CASES[name]
    forgotten()
    pk.op(text)(*(a.copy(order="K") if isinstance(a, np.ndarray) else a for a in arrays), **sizes)
    classes = {"signature": Signature, "call": CallRecord, "kernel": KernelRecord}
    seen = set()
    for k in disk.files():
        entry = unpack(k.file.read_bytes())
        if entry.kind in classes:
            record = decode(classes[entry.kind], entry.record, text)
            assert json.loads(encode(record, text)) == json.loads(entry.record)
            assert decode(classes[entry.kind], encode(record, text), text) == record
            seen.add(entry.kind)
    assert seen == set(classes)


@pytest.mark.parametrize("bad", ['{"is":"Signature"}', "[]", "{}", "nothing", '{"is":"Target"}', "[" * 100_000])
def test_what_is_no_record_is_told(bad: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(KernelRecord, bad)


def test_a_record_that_another_format_wrote_is_missed(folder: Path) -> None:
    a = f32(8)
    pk.op("y[i] = x[i] * 3")(a)
    for k in disk.files():
        entry = unpack(k.file.read_bytes())
        disk.write(type(entry)(entry.kind, entry.key, entry.about, '{"is":"Other"}', entry.image))
    forgotten()
    np.testing.assert_array_equal(pk.op("y[i] = x[i] * 3")(a), a * 3)


def test_no_cache_is_used_where_passes_are_watched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pk.op("y[i] = x[i] * 5").compile(pk.f32[8])
    monkeypatch.setenv("POLYKER_VERIFY", "1")
    hits = disk.counts.hits.get("kernel", 0)
    forgotten()
    pk.op("y[i] = x[i] * 5").compile(pk.f32[8])
    assert disk.counts.hits.get("kernel", 0) == hits


def test_benchmark_operators_and_their_kernels_go_through_pickle(folder: Path) -> None:
    assert list(problems(every=67)) == []
