"""Operators on other processors: exported, linked to a program in C, run by an emulator, compared with this machine's results.

python -m tests.export.cross --target armv7-linux-gnueabihf [--all] [NAME ...]
python -m tests.export.cross --every
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

import polyker as pk
from polyker.codegen.llvm.jit.detect import host, target
from polyker.export.closing.symbols import undefined
from tests.export.operators import CASES, FEW, Array, Case, kernel

SECONDS = 120
# Relative errors that sums, functions and fused multiply-adds may differ by (docs/accuracy.md), by type.
BOUNDS = {"f2": 2e-3, "f4": 1e-5, "f8": 2e-14, "c8": 1e-5, "c16": 2e-14}


class Place(Struct, frozen=True):
    """Where code for a target runs: a C compiler and what runs its programs; neither: WebAssembly, in Python."""

    compiler: tuple[str, ...] = ()
    emulator: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)  # reasons by the names of cases

    @property
    def missing(self) -> str | None:
        """What is not installed that it needs."""
        if not self.compiler:
            modules = ("wasmtime", "polyker.export.wasm")
            return next((f"no module {m}" for m in modules if find_spec(m) is None), None)
        tools = (self.compiler[0], *self.emulator[:1])
        return next((f"no {t}" for t in tools if shutil.which(t) is None), None)


_QEMU = "qemu 7.2 ends by an assertion of its own (decode_save_opc), where a vector instruction names its rounding"
_ARM64 = ("aarch64-linux-gnu-gcc", "-static")
_RISCV = ("riscv64-linux-gnu-gcc", "-static")
PLACES = {
    "x86-64-v1": Place(("gcc",)),
    "x86-64-v2": Place(("gcc",)),
    "x86-64-v3": Place(("gcc",)),
    "x86-64-v4": Place(("gcc",)),
    "aarch64-linux-gnu": Place(_ARM64, ("qemu-aarch64-static",)),
    "aarch64-linux-gnu+sve": Place(_ARM64, ("qemu-aarch64-static", "-cpu", "max")),
    "armv7-linux-gnueabihf": Place(("arm-linux-gnueabihf-gcc", "-static"), ("qemu-arm-static",)),
    "riscv64-linux-gnu": Place(_RISCV, ("qemu-riscv64-static",)),
    "riscv64-linux-gnu+v": Place(
        _RISCV,
        ("qemu-riscv64-static", "-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0"),
        dict.fromkeys(("truncate", "power f4", "power f8", "functions f4 4", "functions f8 4"), _QEMU),
    ),
    "wasm32": Place(),
    "wasm32-nosimd": Place(),
    "wasm32-relaxed": Place(),
}


def missing(name: str) -> str | None:
    """Return what this machine lacks to run code for a target, None where it has all."""
    place, wanted = PLACES[name], target(name)
    if place.compiler == ("gcc",) and (
        not host().triple.startswith("x86_64") or wanted.vector_bytes > host().vector_bytes
    ):
        return "this machine has not its instructions"
    return place.missing


class Result(Struct, frozen=True):
    """What became of a case: `wrong` says what is, empty where all is right; `same`: no bit differs."""

    same: bool
    wrong: str
    symbols: frozenset[str]


@cache
def here(name: str) -> dict[str, Array]:
    """Return what this machine computes for a case, by the names of the outputs."""
    case = CASES[name]
    operator = pk.op(case.text)
    found = operator(**case.inputs, **{n: a.copy() for n, a in case.start.items()})
    values = found if isinstance(found, tuple) else (found,)
    return {str(n): np.asarray(v) for n, v in zip(operator.program.outputs, values, strict=True)}


def run(case: Case, name: str) -> Result:
    """Compile a case for a target, run it, and compare."""
    wanted = here(case.name)
    made = kernel(case, name)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernels.o"
        made.export(file, name="operator_of_test")
        image = file.read_bytes()
        symbols = undefined(image)
        if symbols:
            return Result(False, f"undefined: {', '.join(sorted(symbols))}", symbols)
        data = _arrays(case, wanted, file)
        sizes = case.sizes
        if PLACES[name].compiler:
            back = _by_program(PLACES[name], file, data, sizes)
        else:
            back = _by_wasm(image, file, data, sizes)
    wrong = [w for n, v in wanted.items() if (w := difference(case, back[n], v))]
    same = all(back[n].tobytes() == v.tobytes() for n, v in wanted.items())
    return Result(same, "; ".join(wrong), symbols)


def difference(case: Case, found: Array, wanted: Array) -> str:
    """Return how an array is wrong, empty where it is right."""
    if case.exact or wanted.dtype.kind not in "fc":
        return "" if (found == wanted).all() else f"{int((found != wanted).sum())} of {wanted.size} differ"
    left, right = (a.astype("c16" if a.dtype.kind == "c" else "f8") for a in (found, wanted))
    if not (np.isfinite(left) == np.isfinite(right)).all():
        return "not finite where the other is"
    finite = np.isfinite(right)
    left, right = left[finite], right[finite]
    if not right.size:
        return ""
    scale = np.abs(right) + 0.1 * np.abs(right).mean()
    error = float((np.abs(left - right) / np.where(scale > 0, scale, 1)).max())
    bound = BOUNDS[f"{wanted.dtype.kind}{wanted.dtype.itemsize}"]
    return "" if error <= bound else f"relative error {error:.1e}"


def _parameters(file: Path) -> tuple[list[str], bool, bool, list[str]]:
    """Return the arrays that a function takes, whether scratch and a run time follow, and its sizes."""
    operator = json.loads(file.with_suffix(".json").read_text())["operators"][0]
    header = file.with_suffix(".h").read_text()
    takes = next(line for line in header.splitlines() if line.startswith("int32_t operator_of_test("))
    names = [p["name"] for p in operator["parameters"]]
    return names, "void *scratch" in takes, "*runtime" in takes, operator["sizes"]


def _arrays(case: Case, wanted: Mapping[str, Array], file: Path) -> dict[str, Array]:
    given = {**{n: np.zeros_like(v) for n, v in wanted.items()}, **case.inputs, **case.start}
    return {n: np.ascontiguousarray(given[n]) for n in _parameters(file)[0]}


def _by_program(place: Place, file: Path, data: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    names, scratch, runtime, size_names = _parameters(file)
    folder = file.parent
    numbers = [str(sizes[n]) for n in size_names]
    arguments = [f"(void *)a{k}" for k in range(len(names))] + numbers + ["memory"] * scratch + ["0"] * runtime
    lines = [f"static _Alignas(64) unsigned char a{k}[{max(1, data[n].nbytes)}];" for k, n in enumerate(names)]
    reads = "".join(f"  fread(a{k}, 1, {data[n].nbytes}, in);\n" for k, n in enumerate(names))
    writes = "".join(f"  fwrite(a{k}, 1, {data[n].nbytes}, out);\n" for k, n in enumerate(names))
    (folder / "main.c").write_text(f"""\
#include <stdio.h>
#include <stdlib.h>
#include "kernels.h"
{chr(10).join(lines)}
int main(void) {{
  FILE *in = fopen("in", "rb"), *out = fopen("out", "wb");
{reads}  char *memory = malloc((size_t)operator_of_test_scratch({", ".join(numbers)}) + 64);
  memory += 64 - (size_t)memory % 64;
  int status = operator_of_test({", ".join(arguments)});
{writes}  fclose(out);
  if (status) puts(operator_of_test_error(status));
  return status != 0;
}}
""")
    (folder / "in").write_bytes(b"".join(data[n].tobytes() for n in names))
    command = [*place.compiler, "-O1", "-w", "main.c", "kernels.o", "-o", "program"]
    _checked(command, folder)
    _checked([*place.emulator, "./program"], folder)
    return _split((folder / "out").read_bytes(), names, data)


def _checked(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    if done.returncode:
        told = " ".join((done.stderr + done.stdout).split())[-300:]
        raise RuntimeError(f"{command[0]} returned {done.returncode}: {told}")


def _split(raw: bytes, names: Sequence[str], data: Mapping[str, Array]) -> dict[str, Array]:
    found, at = {}, 0
    for n in names:
        found[n] = np.frombuffer(raw[at : at + data[n].nbytes], data[n].dtype).reshape(data[n].shape)
        at += data[n].nbytes
    return found


def _by_wasm(image: bytes, file: Path, data: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    import wasmtime

    from polyker.export.wasm import linked

    names, scratch, runtime, size_names = _parameters(file)
    config = wasmtime.Config()
    config.wasm_relaxed_simd = True
    store = wasmtime.Store(wasmtime.Engine(config))
    module = wasmtime.Module(store.engine, linked(image, ["operator_of_test", "operator_of_test_scratch"]))
    exports: Any = wasmtime.Instance(store, module, []).exports(store)
    numbers = [sizes[n] for n in size_names]
    at = (exports["__heap_base"].value(store) + 63) & -64
    places = []
    for n in names:
        places.append(at)
        at = (at + data[n].nbytes + 127) & -64
    whole = at + exports["operator_of_test_scratch"](store, *numbers) + 64
    memory = exports["memory"]
    memory.grow(store, max(0, -(-whole // 65536) - memory.size(store)))
    start = ctypes.addressof(memory.data_ptr(store).contents)
    for n, place in zip(names, places, strict=True):
        ctypes.memmove(start + place, data[n].tobytes(), data[n].nbytes)
    status = exports["operator_of_test"](store, *places, *numbers, *[at] * scratch, *[0] * runtime)
    if status:
        raise RuntimeError(f"it returned {status}")
    start = ctypes.addressof(memory.data_ptr(store).contents)
    raw = b"".join(ctypes.string_at(start + p, data[n].nbytes) for n, p in zip(names, places, strict=True))
    return _split(raw, names, data)


def report(name: str, cases: Sequence[str]) -> bool:
    """Print what became of the cases on a target; return whether all that ran is right."""
    reason = missing(name)
    if reason:
        print(f"{name}: not run: {reason}")
        return True
    right = same = wrong = 0
    for one in cases:
        if (why := PLACES[name].skipped.get(one)) is not None:
            print(f"  {one}: skipped: {why}", flush=True)
            continue
        try:
            result = run(CASES[one], name)
            told = result.wrong
        except Exception as error:
            result, told = None, f"{type(error).__name__}: {str(error)[:300]}"
        if told:
            wrong += 1
            print(f"  {one}: {told}", flush=True)
        else:
            right += 1
            same += result is not None and result.same
    print(f"{name}: {right} of {right + wrong} right, {same} of them with the same bits", flush=True)
    return not wrong


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=PLACES, action="append")
    parser.add_argument("--every", action="store_true", help="take all targets")
    parser.add_argument("--all", action="store_true", help="take all operators")
    parser.add_argument("names", nargs="*", help="of operators", metavar="NAME")
    given = parser.parse_args()
    names = list(PLACES) if given.every else given.target or ["aarch64-linux-gnu"]
    cases = given.names or (list(CASES) if given.all else list(FEW))
    results = [report(n, cases) for n in names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
