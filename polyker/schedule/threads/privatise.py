"""Privatise the partial sums of long reductions: their blocks run on several threads, and are combined afterwards.

Before (S: the sum of a block, C: adding it to the result):

    for block: with acc in [1]: S(block); C(block)

After:

    with acc in [blocks]:
      parallel block: S(block)
      for block: C(block)

The blocks are those of the plan for one thread, and their sums are added in the same order: the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct

from polyker.ir.expr import Expr
from polyker.ir.typed import TypedProgram
from polyker.schedule.tree.nodes import Band, Filter, Leaf, Promotion, Scope, Sequence, Tree, promoted_tensors
from polyker.structs import replace

# Budget of bytes of all partial sums of a result (experience value).
MAX_PARTIAL_SUM_BYTES = 16 << 20


class Apart(Struct, frozen=True):
    """A split tree: the one that computes the partial results, the one that combines them, and the buffers between them."""

    first: Tree
    last: Tree
    promotions: tuple[Promotion, ...]


def taken_apart(
    program: TypedProgram,
    tree: Tree,
    last: Collection[str],
    first: Collection[str],
    reach: Callable[[str, Expr], int | None],
) -> Apart | None:
    """Return the statements `first` of a tree and the statements `last`, each in loops of their own.

    `reach`: the number of elements that a statement's subscript reaches, counted from 0, None where that is no constant.
    Returns None where what goes from the ones to the others has no buffer of a constant, moderate size.
    """
    touched = {s.name: {s.target, *(r.tensor for r in s.reads())} for s in program.statements()}
    ours, theirs = (set().union(*(touched[s] for s in names)) for names in (first, last))
    crossing = ours & theirs & promoted_tensors(tree)
    promotions = []
    for tensor in sorted(crossing):
        sizes: list[int] = []
        for statement in program.statements():
            places = [r.subscripts for r in statement.reads() if r.tensor == tensor]
            places += [statement.subscripts] if statement.target == tensor else []
            for subscripts in places:
                elements = [reach(statement.name, s) for s in subscripts]
                if None in elements:
                    return None
                known = [c for c in elements if c is not None]
                sizes = known if not sizes else [max(a, b) for a, b in zip(sizes, known, strict=True)]
        promotions.append(Promotion(tensor, tuple(sizes)))
    if sum(p.elements() * program.tensor(p.tensor).dtype.itemsize for p in promotions) > MAX_PARTIAL_SUM_BYTES:
        return None

    def kept(names: Collection[str]) -> Tree:
        own = set().union(*(touched[s] for s in names)) - crossing
        return restricted(tree, names, own)

    return Apart(kept(first), kept(last), tuple(promotions))


def restricted(tree: Tree, statements: Collection[str], tensors: Collection[str]) -> Tree:
    """Return what a tree does with some of its statements, with buffers for some tensors alone."""
    match tree:
        case Band(members=members, child=child):
            own = tuple(replace(m, times=tuple((s, e) for s, e in m.times if s in statements)) for m in members)
            return Band(own, restricted(child, statements, tensors))
        case Sequence(children=children):
            parts: list[Filter] = []
            for f in children:
                names = tuple(s for s in f.statements if s in statements)
                if names:
                    conditions = tuple((s, c) for s, c in f.conditions if s in statements)
                    parts.append(Filter(names, restricted(f.child, names, tensors), conditions))
            return parts[0].child if len(parts) == 1 and not parts[0].conditions else Sequence(tuple(parts))
        case Scope(promotions=promotions, child=child):
            inner = restricted(child, statements, tensors)
            own_buffers = tuple(p for p in promotions if p.tensor in tensors)
            return Scope(own_buffers, inner) if own_buffers else inner
        case Leaf():
            return tree
