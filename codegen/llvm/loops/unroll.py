"""UNROLL loops: the body, nests of vectors, once for each iteration."""

from __future__ import annotations

from polyker.codegen.ir.kernel import Const, For, If
from polyker.codegen.ir.polynomial import constant
from polyker.codegen.llvm.statements import Statements


def unroll_loop(code: Statements, loop: For) -> None:
    """Emit the copies of an UNROLL loop's body, nests of vectors (see `repeats`); those that prefetch one line do it once."""
    e, steps = code.e, code.e.offsets.steps
    prefetched = e.prefetched
    e.prefetched = set() if prefetched is None else prefetched
    for at, within in code.in_copies.copies(loop, code.at):
        assert isinstance(at, Const)
        code.at[loop.var] = at
        steps[loop.var] = int(at.value.real)
        e.affine[loop.var] = constant(steps[loop.var])
        if within is not None:
            code.statement(If(within, loop.body))
        else:
            for stmt in loop.body:
                code.statement(stmt)
    for known in (e.affine, steps, code.at):
        known.pop(loop.var, None)
    e.prefetched = prefetched
