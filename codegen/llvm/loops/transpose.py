"""TRANSPOSE loops: a tile whose columns are read and written by rows, transposed in registers."""

from __future__ import annotations

from polyker.codegen.ir.kernel import For
from polyker.codegen.ir.polynomial import constant, plus
from polyker.codegen.llvm.access import memory
from polyker.codegen.llvm.access.transpose import TransposeLoop
from polyker.codegen.llvm.access.transpose_rows import TransposedRows, transposed
from polyker.codegen.llvm.statements import Statements


def transpose_loop(code: Statements, loop: For) -> None:
    """Repeat the body; its loads share the blocks that they read by rows."""
    e, lo = code.e, code.e.poly(loop.lo)
    assert loop.trip is not None
    columns = e.columns = TransposeLoop(loop, lo, loop.trip, e.columns)
    for columns.step in range(loop.trip):
        code.bound_block(loop.var, plus(lo, constant(columns.step)), loop.body)
    for rows in columns.rows.values():
        _write_rows(code, rows)
    e.columns = columns.outer


def _write_rows(code: Statements, rows: TransposedRows) -> None:
    """Store the rows of a tile, by streaming stores where it is known when it runs that they are whole lines."""
    e = code.e
    pointers, found, mask = transposed(e, rows)

    def store(streamed: str) -> None:
        for pointer, row in zip(pointers, found, strict=False):
            memory.store_raw(e.b, rows.place, pointer, row, mask, streamed)

    if e.lines_past is None or mask is not None:
        store("")
    else:
        code.either(e.lines_past, lambda: store(code.streamed), lambda: store(""))
