"""Compile the CUDA text of every operator and contraction by nvcc: `python -m tests.gpu.compile_all`."""

import sys

import polyker as pk
from polyker.codegen.cuda_build import cubin
from polyker.demo_cases import load
from polyker.ir.dtypes import DTYPES
from polyker.target.detect import target


def main() -> int:
    """Print what each kernel takes on sm_80 and sm_90a; return 1 where one does not compile or spills."""
    bad = 0
    for case in load():
        types = {name: DTYPES[dtype][shape] for name, dtype, shape in case.arrays}
        for name in ("cuda:sm_80", "cuda:sm_90a"):
            try:
                kernel = pk.op(case.text, **case.fixed).compile(**types, **case.arguments, target=name)
                used = cubin(kernel.source("cuda"), target(name))[1].values()
                most, spilled = max(r.registers for r in used), sum(r.spilled for r in used)
                bad += spilled > 0
                print(
                    f"{case.id:24} {name:12} {len(used):2} kernels, {most:3} registers, {spilled} bytes spilled",
                    flush=True,
                )
            except pk.PolykerError as error:
                bad += 1
                print(f"{case.id:24} {name:12} {type(error).__name__}: {error}", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
