"""Split loops over time in blocks of steps, of which the gradient keeps the values that they begin with (checkpoints).

Before: `for t in 0:T: A[i] = f(A[i])`. After, in blocks of 32 steps: `for t_block in 0:(T + 31) // 32: for t in 0:32:
A[i] = f(A[i]) where 32*t_block + t < T`. What is computed inside a block is computed again where the gradient needs it, so that
the values of T steps take the memory of T/32 and 32 steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt

from polyker.grad.bound import PlainLoop, PlainProgram, plain_statements, rebound
from polyker.ir.expr import Expr, Literal
from polyker.ir.quasi_affine import add, index, print_affine, scale
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement, replaced
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import parameters
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import reindexed, replaced_loops
from polyker.structs import replace


def with_blocks(program: PlainProgram, changing: frozenset[str], memory: int | None) -> PlainProgram:
    """Return the program with loops that change tensors in blocks, where all their steps may take more memory.

    `memory`: how many steps' values of a loop may be kept at once, None for any number.
    """
    if memory is None:
        return program
    lengths: dict[str, tuple[Expr, int]] = {}
    for node in program.nodes:
        if isinstance(node, PlainLoop) and any(s.target in changing for s in plain_statements((node,))):
            iterator, low, high = node.own
            if (steps := _steps_of_block(low, high, memory)) is not None:
                lengths[iterator] = low, steps
    return rebound(program, *_split(program.typed, lengths)) if lengths else program


def _steps_of_block(low: Expr, high: Expr, memory: int) -> int | None:
    """Return how many steps a block has, None where all steps of a loop are few enough.

    There are as many blocks as steps in one, at most; of both there is one value more, that before the first.
    """
    if isinstance(low, Literal) and isinstance(high, Literal):
        count = int(high.value.real) - int(low.value.real)
        return None if count + 1 <= memory else isqrt(count - 1) + 1
    return max((memory - 2) // 2, 1)


def _split(program: TypedProgram, lengths: Mapping[str, tuple[Expr, int]]) -> tuple[TypedProgram, frozenset[str]]:
    """Return the program with outermost loops in blocks, and the iterators of these; `lengths`: first steps, steps of a block."""
    blocks: set[str] = set()

    def change(fresh: Fresh, labels: dict[str, str], loop: TypedLoop) -> list[TypedNode] | None:
        if loop.iterator not in lengths:
            return None
        low, steps = lengths[loop.iterator]
        block, step = fresh.iterators(2)
        labels[step] = labels.get(loop.iterator, loop.iterator)
        labels[block] = f"{labels[step]}_block"
        blocks.add(block)

        def inside(s: TypedStatement) -> list[TypedNode]:
            rest = s.iterators[1:]
            time = add(low, scale(steps, index(block)), index(step))
            source, target = (", ".join(i) for i in (s.iterators, (block, step, *rest)))
            onto = (
                f"{s.name}[{source}] -> [{target}] : 0 <= {step} < {steps} and {loop.iterator} = {print_affine(time)}"
            )
            points = read_set(s.domain).apply(read_map(f"{parameters(program)}{{ {onto} }}"))
            made = reindexed(s, (block, step, *rest), points, {loop.iterator: time})
            return [replace(made, outer=s.outer + 1)]

        return [TypedLoop(block, (TypedLoop(step, replaced(loop.body, inside)),))]

    return replaced_loops(program, change), frozenset(blocks)
