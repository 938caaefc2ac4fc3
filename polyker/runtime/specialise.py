"""Decide whether a kernel is made for one shape or for symbolic sizes, and which dimensions share a symbol."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from polyker.ir.dtypes import TensorType
from polyker.ir.expr import Dots, Expr, IndexExpr, Literal, Read, Reduce, SizeExpr, children, walk
from polyker.ir.program import Loop, Node, Program, Statement

MAX_SHAPE_KERNELS = 3  # shapes that get a kernel of their own before the symbolic one is made (chosen)
Dimension = tuple[str, int]


@dataclass(slots=True)
class Family:
    """What an operator has met of operands that differ in their extents alone."""

    seen: set[Hashable] = field(default_factory=set)
    symbolic: bool = True

    def wants_symbolic(self, shape: Hashable, mode: str) -> bool:
        """Whether this call is for the symbolic kernel; notes the shape."""
        if mode == "never":
            return self.symbolic
        if mode == "always" or not self.symbolic or shape in self.seen:
            return False
        if len(self.seen) < MAX_SHAPE_KERNELS:
            self.seen.add(shape)
            return False
        return True


def symbolic_types(program: Program, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """Return the types with a symbol for each dimension; dimensions that must agree share one.

    Kept as they are: dimensions declared as constants, and where `...` may stand for a dimension those of extent 1,
    which broadcast.
    """
    joined = _Classes()
    for statement, bound in _scopes(program):
        _join(joined, statement, bound)
    declared = {}
    for name in program.inputs:
        found = program.declaration(name)
        for d, extent in enumerate(found.shape or () if found is not None else ()):
            declared[name, d] = extent
    symbols: dict[Dimension, int | str] = {}
    for dimension, extent in declared.items():
        if isinstance(extent, (SizeExpr, Literal)):
            shown = extent.name if isinstance(extent, SizeExpr) else int(extent.value.real)
            symbols.setdefault(joined.root(dimension), shown)
    taken = {*program.sizes, *program.inputs, *program.outputs, *program.temporaries}
    dotted = {e.tensor for e in _reads(program) if any(isinstance(s, Dots) for s in e.subscripts)}
    out = []
    for name, type_ in zip(program.inputs, types, strict=True):
        shape: list[int | str] = []
        for d, actual in enumerate(type_.shape):
            if actual == 1 and name in dotted:
                shape.append(1)
                continue
            root = joined.root((name, d))
            if root not in symbols:
                symbol = f"{root[0]}_{root[1]}"
                while symbol in taken:
                    symbol += "_"
                taken.add(symbol)
                symbols[root] = symbol
            shape.append(symbols[root])
        out.append(TensorType(type_.dtype, tuple(shape), type_.weak))
    return tuple(out)


def free_sizes(program: Program) -> tuple[str, ...]:
    """Return the sizes that no declared shape of an input gives, so that the caller has to."""
    declared = [program.declaration(name) for name in program.inputs]
    given = {e.name for d in declared if d is not None for e in d.shape or () if isinstance(e, SizeExpr)}
    return tuple(name for name in program.sizes if name not in given)


class _Classes:
    """Union-find over dimensions of tensors."""

    def __init__(self) -> None:
        self._parent: dict[Dimension, Dimension] = {}

    def root(self, d: Dimension) -> Dimension:
        while d in self._parent:
            d = self._parent[d]
        return d

    def join(self, a: Dimension, b: Dimension) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            first, second = sorted((a, b))
            self._parent[second] = first


def _scopes(program: Program) -> Iterator[tuple[Statement, frozenset[str]]]:
    """Yield the statements, each with the indices whose range a loop around it gives."""
    stack: list[tuple[Node, frozenset[str]]] = [(node, frozenset()) for node in program.body]
    while stack:
        node, outer = stack.pop()
        if isinstance(node, Loop):
            stack.extend((inner, outer | {node.range.index}) for inner in node.body)
        else:
            yield node, outer


def _join(classes: _Classes, statement: Statement, outer: frozenset[str]) -> None:
    """Join the dimensions of inputs that one index of the statement ranges over, where inference has them agree."""
    given = outer | {r.index for r in statement.ranges if r.lo is not None}
    _scope(classes, statement.expr, {}, given)


def _scope(classes: _Classes, expr: Expr, at: dict[str, Dimension], given: frozenset[str]) -> None:
    if isinstance(expr, Reduce):
        own = {r.index for r in expr.ranges}
        inner = {name: d for name, d in at.items() if name not in own}
        fixed = (given - own) | {r.index for r in expr.ranges if r.lo is not None}
        for child in children(expr):
            _scope(classes, child, inner, frozenset(fixed))
        at.update({name: d for name, d in inner.items() if name not in own})
        return
    if isinstance(expr, Read) and expr.pad is None:
        dots = any(isinstance(s, Dots) for s in expr.subscripts)
        for d, subscript in enumerate(expr.subscripts):
            if isinstance(subscript, IndexExpr) and subscript.name not in given and not dots:
                place = (expr.tensor, d)
                classes.join(at.setdefault(subscript.name, place), place)
    for child in children(expr):
        _scope(classes, child, at, given)


def _reads(program: Program) -> Iterator[Read]:
    for statement in program.statements():
        for expr in walk(statement.expr):
            if isinstance(expr, Read):
                yield expr
