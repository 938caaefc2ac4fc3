"""Combine a float extremum's operands in pairs, so that one NaN test serves two of them.

    for k in 0:K: unroll r: vector v: m[r, v] = maximum(m[r, v], f(k))
    ->
    for k in 0:K step 2: unroll r: vector v: m[r, v] = maximum(m[r, v], maximum(f(k), f(k+1)))
    for k in 2*floor(K/2):K: as before

x86's instructions keep a NaN in one argument alone, so each term is tested, and taken where it is none. Of two terms one
instruction tests both (`llvm_ops.extremum`): six instructions where there were eight. The terms of a declared reduction may be
combined in any grouping.
"""

from __future__ import annotations

from functools import partial

from polyker.codegen.ir.kernel import (
    Const,
    For,
    KernelIR,
    KExpr,
    Load,
    LoopKind,
    Op,
    Prefetch,
    Stmt,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.polynomial import same_element
from polyker.codegen.ir.walk import loads_in, substitute, uses, with_blocks, with_expressions
from polyker.codegen.passes.simplify import trip_count
from polyker.codegen.passes.unroll_terms import by_groups, tile_size
from polyker.machine.model import Target
from polyker.structs import replace

# Least results of a tile: with fewer the latency of the extremum bounds the loop (experience value).
MIN_TILE_RESULTS = 4


def paired_extrema(kernel: KernelIR, target: Target) -> KernelIR:
    """Return an equal kernel whose reduction loops of extrema in register tiles take two terms at a time."""
    return replace(kernel, body=_block(kernel.body)) if target.pairs_extrema else kernel


def _block(block: StmtBlock) -> StmtBlock:
    result: list[Stmt] = []
    for s in block:
        match s:
            case For(kind=LoopKind.SERIAL, step=1) if (pairs := _pairs(s)) is not None:
                result += pairs
            case _:
                result.append(with_blocks(s, _block))
    return tuple(result)


def _pairs(loop: For) -> list[Stmt] | None:
    """Return the loop over pairs of iterations, and the one over the rest; None where its body is no tile of extrema."""
    trip = trip_count(loop)
    if (trip is not None and trip < 4) or tile_size(loop.body)[0] < MIN_TILE_RESULTS:
        return None
    body = _paired(loop.body, loop.var)
    if body is None:
        return None
    return by_groups(loop, 2, body, loop.var)


def _paired(block: StmtBlock, var: str, lane: str = "") -> StmtBlock | None:
    """Return a tile of two terms; None where it holds anything but extrema of floats and prefetches.

    `lane`: the variable of the vector loop around. Where each lane has terms of its own alone they are read in the order of
    memory, which pairs would leave; a term that is an extremum has its NaNs looked for in its operands.
    """
    result: list[Stmt] = []
    later: dict[str, KExpr] = {var: Op("add", (Var(var), Const(1)))}
    for s in block:
        match s:
            case Prefetch(indices=indices):
                result.append(s)
                if any(uses(var, i) for i in indices[:-1]):  # the next term's line is another one
                    result.append(with_expressions(s, partial(substitute, values=later)))
            case For(kind=LoopKind.UNROLL | LoopKind.VECTOR, body=body) if not uses(var, s.lo, s.hi):
                inside = _paired(body, var, s.var if s.kind is LoopKind.VECTOR else lane)
                if inside is None:
                    return None
                result.append(replace(s, body=inside))
            case Store(value=Op(op="maximum" | "minimum" as op, args=(Load() as old, Op() as term), dtype=dtype)):
                if dtype is None or dtype.kind != "f" or not same_element(s, old):
                    return None
                loads = list(loads_in(term))
                if any(uses(var, i) for i in s.indices) or any(e.buffer == s.buffer for e in loads):
                    return None
                if all(uses(lane, *e.indices) for e in loads) or term.op in ("maximum", "minimum"):
                    return None
                both = Op(op, (term, substitute(term, later)), dtype)
                result.append(replace(s, value=Op(op, (old, both), dtype)))
            case _:
                return None
    return tuple(result)
