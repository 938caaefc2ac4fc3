"""WebAssembly in node beside machine code of the same vectors: `python -m benchmarks.wasm [--core 1] [--size 512]`.

A product of f32 matrices on one core, in turns: SSE2 (`cpu:x86-64`) and SSE4.2 (`cpu:x86-64-v2`) here, wasm32 in node.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from pathlib import Path

from benchmarks import process

ROUNDS = 15
# A line of input, one run: its milliseconds.
NODE = """
import { createInterface } from "node:readline";
const [module, text] = process.argv.slice(1), size = Number(text), { mm, alloc } = await (await import(module)).load();
const [A, B, C] = [0, 1, 2].map(() => alloc(Float32Array, size * size));
for (const x of [A, B]) x.array.set(Float32Array.from({ length: size * size }, (_, n) => (n % 17) - 8));
const run = () => mm({ A, B, C, M: size, K: size, N: size });
for (let n = 0; n < 20; n++) run(); // until V8 has its best code
for await (const line of createInterface({ input: process.stdin })) {
  const start = performance.now();
  run();
  console.log(performance.now() - start);
}
"""


def main() -> None:
    """Print GFLOP/s of each, medians of rounds taken in turns."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.wasm", description=__doc__)
    found.add_argument("--core", type=int, help="the core to run on; default: the last")
    found.add_argument("--size", type=int, default=512, help="rows and columns; default: %(default)s")
    options = found.parse_args()
    process.prepare(options.core)  # node inherits the core

    import numpy as np

    import polyker as pk
    from benchmarks.timing import once

    size, operator = options.size, pk.op("C[i,j] += A[i,k] * B[k,j]")
    shapes = (pk.f32["M", "K"], pk.f32["K", "N"])
    A = B = (np.arange(size * size, dtype=np.float32) % 17 - 8).reshape(size, size)
    C = np.empty_like(A)
    native = {f"cpu:{level}": operator.compile(*shapes, target=f"cpu:{level}") for level in ("x86-64", "x86-64-v2")}
    times: dict[str, list[float]] = {name: [] for name in (*native, "wasm32 in node")}
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder) / "mm.wasm"
        operator.compile(*shapes, target="wasm32").export(module)
        command = ["node", "--input-type=module", "-e", NODE, module.with_suffix(".mjs").as_uri(), str(size)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
            assert node.stdin is not None
            assert node.stdout is not None
            for _ in range(ROUNDS):
                for name, kernel in native.items():
                    times[name].append(once(lambda kernel=kernel: kernel(A, B, out=C), 1))  # type: ignore[misc]
                node.stdin.write("\n")
                node.stdin.flush()
                times["wasm32 in node"].append(float(node.stdout.readline()) / 1000)
            node.stdin.close()
    for name, seconds in times.items():
        print(f"{name:<16}{2 * size**3 / statistics.median(seconds) / 1e9:8.1f} GFLOP/s")


if __name__ == "__main__":
    main()
