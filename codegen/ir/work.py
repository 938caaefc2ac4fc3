"""Estimate how much a kernel does: whether it runs for so long that other threads should run meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

from polyker.codegen.ir.kernel import (
    Allocate,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    PartCall,
    StmtBlock,
    Store,
)
from polyker.codegen.ir.polynomial import form_of
from polyker.codegen.ir.walk import operands
from polyker.ir.functions import cost_of
from polyker.record import work
from polyker.record.forms import SizeForm
from polyker.record.work import Work, WorkItem


def exceeds(block: StmtBlock, sizes: Mapping[str, int], limit: int) -> bool:
    """Return whether a kernel's body does about `limit` operations or more; `sizes`: the kernel's integers."""
    return work.exceeds(work_of(block), sizes, limit)


def kernel_work(kernel: KernelIR) -> Work:
    """Return the operations of a kernel; those of its parts with what their integers are."""
    calls = [s for s in kernel.body if isinstance(s, PartCall)]
    found: list[WorkItem] = []
    for call in calls:
        part = kernel.parts[call.part]
        # Names that no other part has: an integer of one is given in terms of this kernel's.
        names = {name: f"{name}.{call.part}" for name in part.integers}
        forms = [(names[n], form_of(value)) for n, value in zip(part.integers, call.integers, strict=True)]
        found += [("let", name, form) for name, form in forms if form is not None]
        found += work.renamed(kernel_work(part), names)
    return (*found, *work_of(tuple(s for s in kernel.body if not isinstance(s, PartCall))))


def work_of(block: StmtBlock) -> Work:
    """Return the operations of a block, with the loops and branches around those that depend on them."""
    found: list[WorkItem] = []
    for stmt in block:
        match stmt:
            case For(var=var, lo=lo, hi=hi, step=step, body=body, kind=kind):
                first, end = form_of(lo), form_of(hi)
                if kind is LoopKind.VECTOR and first is not None and end is not None:
                    end = ("minimum", end, ("add", first, step))  # all lanes count as one iteration
                found.append(_loop(var, first, end, step, int(kind is not LoopKind.UNROLL), work_of(body)))
            case If(condition=condition, body=body, orelse=orelse):
                found += [cost(condition), ("if", form_of(condition), work_of(body), work_of(orelse))]
            case Allocate(body=body):
                found += work_of(body)
            case Let(name=name, value=value):
                found.append(cost(value))
                form = form_of(value)
                if form is not None:
                    found.append(("let", name, form))
            case Guard(condition=condition):
                found.append(cost(condition))
            case Store(value=value):
                found.append(1 + cost(value))
            case _:
                found.append(1)
    sure = sum(item for item in found if isinstance(item, int))
    return (*([sure] if sure else []), *(item for item in found if not isinstance(item, int)))


def _loop(var: str, first: SizeForm | None, end: SizeForm | None, step: int, each: int, body: Work) -> WorkItem:
    """Return a loop, or its operations where its bounds and its body are constants."""
    if isinstance(first, int) and isinstance(end, int) and all(isinstance(item, int) for item in body):
        return max(0, -(-(end - first) // step)) * (each + sum(item for item in body if isinstance(item, int)))
    return ("for", var, first, end, step, each, body)


def cost(expr: KExpr) -> int:
    """Return the operations of an expression but for the arithmetic of indices, most of which the loops share."""
    total, stack = 0, [expr]
    while stack:
        node = stack.pop()
        match node:
            case Load(predicate=predicate, other=other):
                total += 1
                stack.extend(e for e in (predicate, other) if e is not None)
            case Op(op=op):
                total += cost_of(op).usual
                stack.extend(operands(node))
            case _:
                stack.extend(operands(node))
    return total
