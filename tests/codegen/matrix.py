"""The register-tiled matrix product as the schedule makes it, by hand."""

from __future__ import annotations

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    KernelIR,
    Load,
    LoopKind,
    Op,
    Space,
    StmtBlock,
    Store,
)
from polyker.ir.dtypes import DType, f32
from tests.codegen.support import C, V, index

SIZES = ("M", "N", "K", "sa", "sb", "sc")


def matrix_product(rows: int, vectors: int, lanes: int, dtype: DType = f32, *, masked: bool = False) -> KernelIR:
    """C = A B with tiles of rows x (vectors * lanes) in registers; `masked`: N need not be a multiple of the tile's width."""
    width = vectors * lanes

    def matrix(name: str, m: str, n: str, stride: str, *, writable: bool = False) -> Buffer:
        return Buffer(name, dtype, (V(m), V(n)), (V(stride), C(1)), Space.ARGUMENT, writable)

    def tile(statement: Store) -> StmtBlock:
        left = index("minimum", lanes, index("sub", index("sub", "N", "j0"), index("mul", lanes, "jv")))
        hi, trip = (left, None) if masked else (C(lanes), lanes)
        vector = For("jl", C(0), hi, (statement,), kind=LoopKind.VECTOR, lanes=lanes, trip=trip)
        across = For("jv", C(0), C(vectors), (vector,), kind=LoopKind.UNROLL, lanes=vectors, trip=vectors)
        return (For("ii", C(0), C(rows), (across,), kind=LoopKind.UNROLL, lanes=rows, trip=rows),)

    column = index("add", index("mul", lanes, "jv"), "jl")
    row, right = index("add", "i0", "ii"), index("add", "j0", column)
    place = (V("ii"), column)
    product = Op("mul", (Load("A", (row, V("k")), dtype), Load("B", (V("k"), right), dtype)), dtype)
    body = (
        *tile(Store("acc", place, Const(0.0, dtype))),
        For("k", C(0), V("K"), tile(Store("acc", place, Op("add", (Load("acc", place, dtype), product), dtype)))),
        *tile(Store("C", (row, right), Load("acc", place, dtype))),
    )
    acc = Buffer("acc", dtype, (C(rows), C(width)), (C(width), C(1)), Space.STACK)
    loops = For("j0", C(0), V("N"), (Allocate((acc,), body),), step=width)
    buffers = (matrix("A", "M", "K", "sa"), matrix("B", "K", "N", "sb"), matrix("C", "M", "N", "sc", writable=True))
    return KernelIR("mm", buffers, SIZES, (For("i0", C(0), V("M"), (loops,), step=rows),))
