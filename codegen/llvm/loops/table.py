"""The loops by kind: what emits them, and what they keep from iteration to iteration of the serial loops around them."""

from __future__ import annotations

from polyker.codegen.ir.kernel import LoopKind
from polyker.codegen.llvm.loops.columns import columns_loop
from polyker.codegen.llvm.loops.parallel import parallel_loop
from polyker.codegen.llvm.loops.scan import scan_loop
from polyker.codegen.llvm.loops.stream import StreamLoops
from polyker.codegen.llvm.loops.tiles import TransposeLoops
from polyker.codegen.llvm.loops.unroll import unroll_loop
from polyker.codegen.llvm.loops.vector import vector_loop
from polyker.codegen.llvm.statements import Loops


def loops() -> Loops:
    """Return what emits the loops of one kernel."""
    streams, tiles = StreamLoops(), TransposeLoops()
    return Loops(
        {
            LoopKind.SERIAL: columns_loop,
            LoopKind.UNROLL: unroll_loop,
            LoopKind.VECTOR: vector_loop,
            LoopKind.TRANSPOSE: tiles.loop,
            LoopKind.STREAM: streams.loop,
            LoopKind.SCAN: scan_loop,
            LoopKind.PARALLEL: parallel_loop,
        },
        (streams.around, tiles.around),
    )
