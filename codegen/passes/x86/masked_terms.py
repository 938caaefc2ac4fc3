"""Predicate conditional integer extrema instead of selecting the identity.

    m = minimum(m, where(c, t, inf))   ->   m = where(c, minimum(m, t), m)

AVX-512 has the second as one instruction under a mask; of the first LLVM makes a choice and a minimum. Floats are left: their
extrema are several instructions, which other passes know by their form. So is an element that the lanes of a vector share: they
are combined by the form of their statement.
"""

from __future__ import annotations

from polyker.codegen.ir.kernel import For, KernelIR, LoopKind, Op, Stmt, StmtBlock, Store
from polyker.codegen.ir.walk import uses, with_blocks
from polyker.codegen.passes.unswitch import guarded
from polyker.machine.model import Target
from polyker.structs import replace


def masked_terms(kernel: KernelIR, target: Target) -> KernelIR:
    """Return an equal kernel; the same one for targets whose instructions have no masks."""
    return replace(kernel, body=_block(kernel.body, None)) if target.masks else kernel


def _block(block: StmtBlock, lane: str | None) -> StmtBlock:
    """Return a block in the vector loop over `lane`, if there is one."""
    return tuple([_statement(s, lane) for s in block])


def _statement(stmt: Stmt, lane: str | None) -> Stmt:
    if not isinstance(stmt, Store):
        inside = stmt.var if isinstance(stmt, For) and stmt.kind is LoopKind.VECTOR else lane
        return with_blocks(stmt, lambda block: _block(block, inside))
    found = guarded(stmt)
    shared = lane is not None and not uses(lane, *stmt.indices)
    if found is None or shared or stmt.value.dtype.kind not in "iu" or not isinstance(stmt.value, Op):
        return stmt
    condition, term = found
    old = stmt.value.args[0]
    taken = replace(stmt.value, args=(old, term))
    return replace(stmt, value=Op("where", (condition, taken, old), taken.dtype))
