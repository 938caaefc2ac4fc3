"""Runs exported WebAssembly modules: under node through their JavaScript, and under wasmtime by addresses."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Array = np.ndarray[Any, Any]
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
# The typed arrays of JavaScript by NumPy's names; of f16 and bf16 the bits, of complex numbers pairs.
ARRAYS = {
    "float32": "Float32Array", "float64": "Float64Array", "int8": "Int8Array", "int16": "Int16Array", "int32": "Int32Array",
    "int64": "BigInt64Array", "uint8": "Uint8Array", "uint16": "Uint16Array", "uint32": "Uint32Array",
    "uint64": "BigUint64Array", "bool": "Uint8Array", "float16": "Uint16Array", "complex64": "Float32Array",
    "complex128": "Float64Array",
}  # fmt: skip
_RUN = """
import { readFileSync, writeFileSync } from "node:fs";
const [folder, module, operator, given] = process.argv.slice(2);
const { load } = await import(module);
const loaded = await load(), argumentsOf = {};
for (const [name, [kind, value]] of Object.entries(JSON.parse(given))) {
  if (kind === "bigint") argumentsOf[name] = BigInt(value);
  else if (kind === "number") argumentsOf[name] = value;
  else argumentsOf[name] = new globalThis[kind](new Uint8Array(readFileSync(`${folder}/${name}.bin`)).buffer);
}
const found = loaded[operator](argumentsOf), results = ArrayBuffer.isView(found) ? { result: found } : found;
for (const [name, array] of Object.entries(results)) writeFileSync(`${folder}/${name}.out`, array);
"""


def node(text: str, folder: Path, *arguments: str) -> str:
    """Return what a JavaScript module prints."""
    file = folder / "run.mjs"
    file.write_text(text)
    done = subprocess.run(["node", str(file), *arguments], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def by_node(module: Path, operator: str, given: dict[str, Any]) -> dict[str, bytes]:
    """Return the bytes of the outputs, by name, where there is one alone `result`, of a call through a module's JavaScript."""
    told: dict[str, tuple[str, Any]] = {}
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            (module.parent / f"{name}.bin").write_bytes(np.ascontiguousarray(value).tobytes())
            told[name] = (ARRAYS[value.dtype.name], 0)
        else:
            whole = isinstance(value, np.int64)
            told[name] = ("bigint", str(value)) if whole else ("number", float(value))
    node(_RUN, module.parent, str(module.parent), module.with_suffix(".mjs").as_uri(), operator, json.dumps(told))
    return {f.stem: f.read_bytes() for f in module.parent.glob("*.out")}


class Machine:
    """An instance under wasmtime, and free memory in it."""

    def __init__(self, image: bytes) -> None:
        wasmtime = pytest.importorskip("wasmtime", reason="wasmtime is not installed")
        self.store = wasmtime.Store()
        self.module = wasmtime.Module(self.store.engine, image)
        self.exports = wasmtime.Instance(self.store, self.module, []).exports(self.store)
        self.free = int(self.exports["__heap_base"].value(self.store))

    def call(self, name: str, *values: Any) -> Any:
        """Call a function."""
        return self.exports[name](self.store, *values)

    def take(self, size: int) -> int:
        """Return the address of free memory."""
        at = self.free = -(-self.free // 64) * 64
        self.free += max(64, size)
        memory = self.exports["memory"]
        missing = self.free - memory.data_len(self.store)
        if missing > 0:
            memory.grow(self.store, -(-missing // 65536))
        return at

    def _place(self, at: int) -> int:
        return ctypes.addressof(self.exports["memory"].data_ptr(self.store).contents) + at

    def put(self, array: Array) -> int:
        """Copy an array into memory; return its address."""
        array = np.ascontiguousarray(array)
        at = self.take(array.nbytes)
        ctypes.memmove(self._place(at), array.ctypes.data, array.nbytes)
        return at

    def get(self, at: int, size: int) -> bytes:
        """Return bytes of memory."""
        return ctypes.string_at(self._place(at), size)


def by_wasmtime(module: Path, name: str, given: dict[str, Any], outputs: dict[str, Array]) -> list[bytes]:
    """Return the bytes of outputs like these, of a call by addresses in the order that the manifest has."""
    machine = Machine(module.read_bytes())
    (told,) = json.loads(module.with_suffix(".json").read_text())["operators"]
    sizes = [int(given[size]) for size in told["sizes"]]
    values, places = [], {}
    for parameter in (p["name"] for p in told["parameters"]):
        value = given.get(parameter)
        if parameter in outputs:
            places[parameter] = machine.put(np.zeros_like(outputs[parameter]) if value is None else value)
            values.append(places[parameter])
        elif isinstance(value, np.ndarray):
            values.append(machine.put(value))
        else:
            values.append(value.item())
    scratch = machine.take(machine.call(f"{name}_scratch", *sizes))
    assert machine.call(name, *values, *sizes, scratch) == 0
    return [machine.get(places[n], array.nbytes) for n, array in outputs.items()]
