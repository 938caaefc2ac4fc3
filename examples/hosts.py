"""Runs an exported WebAssembly module on arrays: under node by its JavaScript, under wasmtime by addresses."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

RUN = """
import { readFileSync, writeFileSync } from "node:fs";
const [folder, module, name, sizes] = process.argv.slice(1);
const operator = (await (await import(module)).load())[name];
const X = new Float64Array(new Uint8Array(readFileSync(`${folder}/X.bin`)).buffer);
writeFileSync(`${folder}/result.bin`, operator({ X, ...JSON.parse(sizes) }));
"""


def by_node(
    module: Path, name: str, rows: np.ndarray[Any, Any], sizes: Mapping[str, int]
) -> np.ndarray[Any, Any] | None:
    """Return what an operator of X makes of f64 rows, or None where node is not installed."""
    if shutil.which("node") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "X.bin").write_bytes(rows.tobytes())
        code = module.with_suffix(".mjs").resolve().as_uri()
        subprocess.run(
            ["node", "--input-type=module", "-e", RUN, folder, code, name, json.dumps(dict(sizes))], check=True
        )
        return np.frombuffer((Path(folder) / "result.bin").read_bytes())


def by_wasmtime(
    module: Path, name: str, rows: np.ndarray[Any, Any], size: int, count: int
) -> np.ndarray[Any, Any] | None:
    """Return `count` f64 results of an operator of X and one size, or None where wasmtime is not installed."""
    if find_spec("wasmtime") is None:
        return None
    import wasmtime

    store = wasmtime.Store()
    found: Any = wasmtime.Instance(store, wasmtime.Module.from_file(store.engine, str(module)), []).exports(store)
    x = -(-found["__heap_base"].value(store) // 64) * 64  # free memory begins there
    result = x + -(-rows.nbytes // 64) * 64
    scratch = result + -(-8 * count // 64) * 64
    end = scratch + found[f"{name}_scratch"](store, size)
    memory = found["memory"]
    memory.grow(store, max(0, -(-end // 65536) - memory.size(store)))
    start = ctypes.addressof(memory.data_ptr(store).contents)
    ctypes.memmove(start + x, rows.tobytes(), rows.nbytes)
    number = found[name](store, x, result, size, scratch)
    if number:
        raise RuntimeError(f"{name} returned {number}")
    return np.frombuffer(ctypes.string_at(start + result, 8 * count))
