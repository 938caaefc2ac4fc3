"""Permute the dimensions of arguments to their order in memory.

Before, A by columns: `O[i,j] = A[i,j] + 1`. After, A row-major: `O[i,j] = A[j,i] + 1`. Whatever comes after sees arrays of which
the last dimension is the one whose elements are neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from polyker.ir.expr import Expr, Read, reads_in, transform
from polyker.ir.layout import DENSE, Layout
from polyker.ir.quasi_affine import indices_of, is_quasi_affine
from polyker.ir.typed import Role, TypedProgram, TypedStatement, replaced
from polyker.structs import replace


def orders_of(program: TypedProgram, names: Sequence[str], layouts: Sequence[Layout]) -> tuple[Layout, ...]:
    """Return the layouts of tensors, as strided ones those in an order that `in_own_order` cannot put the dimensions into.

    A tensor that is gathered from or scattered to keeps its own, for errors name a dimension.
    """
    kept = _by_places(program)
    return tuple(strided(at) if name in kept else at for name, at in zip(names, layouts, strict=True))


def dense_orders(layouts: Sequence[Layout]) -> tuple[Layout, ...]:
    """Return how tensors lie once their dimensions are in the order of memory."""
    return tuple(DENSE if at.order else at for at in layouts)


def in_own_order(program: TypedProgram, names: Sequence[str], layouts: Sequence[Layout]) -> TypedProgram:
    """Return the program with the dimensions of tensors in the order in which they lie."""
    moved = {name: at.order for name, at in zip(names, layouts, strict=True) if at.order}
    if not moved:
        return program
    fixed = {
        name: at.order or tuple(range(len(program.tensor(name).shape))) for name, at in zip(names, layouts, strict=True)
    }
    moved |= _temporaries(program, fixed)

    tensors = tuple(replace(t, shape=_ordered(moved, t.name, t.shape)) for t in program.tensors)
    return replace(program, tensors=tensors, body=replaced(program.body, lambda s: [permuted(s, moved)]))


def permuted(
    statement: TypedStatement, orders: Mapping[str, tuple[int, ...]], names: Mapping[str, str] | None = None
) -> TypedStatement:
    """Return a statement of tensors with their dimensions permuted; `names`: those that they have then, if others."""
    new = names or {}

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Read) and expr.tensor in orders:
            subscripts = _ordered(orders, expr.tensor, expr.subscripts)
            return replace(expr, tensor=new.get(expr.tensor, expr.tensor), subscripts=subscripts)
        return expr

    made = statement.rewritten(lambda e: transform(e, change))
    target = new.get(statement.target, statement.target)
    return replace(made, target=target, subscripts=_ordered(orders, statement.target, made.subscripts))


def _ordered(orders: Mapping[str, tuple[int, ...]], tensor: str, parts: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return what a tensor has for each dimension in the order of its dimensions."""
    return tuple(parts[d] for d in orders[tensor]) if tensor in orders else parts


def _temporaries(program: TypedProgram, fixed: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the orders of temporaries: those of most tensors that statements use together with them.

    `fixed`: the orders of the arguments.
    """
    kept, known = _by_places(program), dict(fixed)
    free = {t.name for t in program.tensors if t.role is Role.TEMPORARY and len(t.shape) > 1} - kept
    uses = [[(s.target, s.subscripts), *((r.tensor, r.subscripts) for r in s.reads())] for s in program.statements()]
    while True:
        votes: dict[str, Counter[tuple[int, ...]]] = {}
        for together in uses:
            for tensor, subscripts in together:
                if tensor not in free or tensor in known:
                    continue
                for other, places in together:
                    if other in known and (order := _alike(subscripts, places, known[other])):
                        votes.setdefault(tensor, Counter())[order] += 1
        if not votes:
            return {t: order for t, order in known.items() if t not in fixed and order != tuple(range(len(order)))}
        known |= {tensor: counts.most_common(1)[0][0] for tensor, counts in votes.items()}


def _alike(subscripts: tuple[Expr, ...], others: tuple[Expr, ...], order: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the order of a tensor's dimensions in which its indices come as in another tensor; None where they are others."""
    found: list[int] = []
    for d in order:
        here = [e for e, s in enumerate(subscripts) if e not in found and indices_of(s) & indices_of(others[d])]
        found += here[:1]
    return tuple(found) if len(found) == len(subscripts) else None


def strided(layout: Layout) -> Layout:
    """Return a layout in an order of its own as any strided one."""
    return Layout(dense=False, unit=layout.order[-1]) if layout.order else layout


def _by_places(program: TypedProgram) -> set[str]:
    """Return the tensors of which a statement looks up elements by values, or whose elements it has by other texts."""
    found: set[str] = set()
    for s in program.statements():
        uses = [(s.target, s.subscripts), *((r.tensor, r.subscripts) for r in reads_in(s.expr, *s.subscripts))]
        found |= {tensor for tensor, subscripts in uses if not all(map(is_quasi_affine, subscripts))}
        found |= {s.target} if s.defines is not None else set()
        found |= {a.read.tensor for a in s.prefetch}
    return found
