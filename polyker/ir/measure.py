"""How deep and how large expressions are, found without recursion, and the bounds that keep recursion over them short.

Everything after the front end may recurse over an expression: what is checked here is at most DEPTH levels deep. Equality and
`repr` of the nodes take the most of Python's frames, four a level: 600 of the 1000 that Python allows. The rest is left to the
compiler's own calls and loops, and to a caller that is 200 frames deep itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from polyker.ir.expr import Call, Expr, children

DEPTH = 150  # operators along a path
SIZE = 100_000  # nodes of one expression; one that stands in two places counts twice

# A chain of these is one call of many arguments; as an index it becomes one quotient in another.
_CHAINED = ("floordiv", "mod")


def measured(expr: Expr) -> Iterator[tuple[Expr, int, int]]:
    """Yield each node after those below it, with its depth and its size; one that stands in several places once."""
    measures: dict[int, tuple[int, int]] = {}
    stack = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if id(node) in measures:
            continue
        below = children(node)
        if not ready and below:
            stack.append((node, True))
            stack += [(child, False) for child in below]
            continue
        levels = max(1, len(below) - 1) if isinstance(node, Call) and node.op in _CHAINED else 1
        depth = levels + max((measures[id(c)][0] for c in below), default=0)
        size = 1 + sum(measures[id(c)][1] for c in below)
        measures[id(node)] = depth, size
        yield node, depth, size


def depth_of(expr: Expr) -> int:
    """Return the number of operators along the longest path, the operand at its end counted."""
    return max(depth for _, depth, _ in measured(expr))


def level_of(expr: Expr, parts: Collection[Expr]) -> int:
    """Return the number of operators above the deepest of some parts; 0 where none stands in the expression."""
    deepest = 0
    stack = [(expr, 0)]
    while stack:
        node, level = stack.pop()
        if level > deepest and node in parts:
            deepest = level
        stack += [(child, level + 1) for child in children(node)]
    return deepest


def size_of(expr: Expr) -> int:
    """Return the number of nodes."""
    return max(size for _, _, size in measured(expr))
