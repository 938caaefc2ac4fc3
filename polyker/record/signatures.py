"""From a parsed program to its signature: which dimensions of the inputs have to agree, which may broadcast."""

from __future__ import annotations

from collections.abc import Iterator

from polyker.ir.expr import Dots, Expr, IndexExpr, Literal, Read, Reduce, SizeExpr, children, walk
from polyker.ir.program import Loop, Node, Program, Statement
from polyker.record.forms import SizeForm
from polyker.record.records import DeclaredShape, Signature

Dimension = tuple[str, int]


def signature_of(program: Program) -> Signature:
    """Return the signature of a program."""
    joined = _Classes()
    for statement, bound in _scopes(program):
        _join(joined, statement, bound)
    declared = (program.declaration(name) for name in program.inputs)
    reads = (e for s in program.statements() for e in walk(s.expr) if isinstance(e, Read))
    return Signature(
        inputs=program.inputs,
        outputs=program.outputs,
        temporaries=program.temporaries,
        parameters=program.parameters,
        sizes=program.sizes,
        declared=tuple(DeclaredShape(d.name, d.dtype, _shape(d.shape)) for d in declared if d is not None),
        agreeing=joined.groups,
        broadcast=tuple(dict.fromkeys(e.tensor for e in reads if any(isinstance(s, Dots) for s in e.subscripts))),
    )


def _shape(shape: tuple[Expr, ...] | None) -> tuple[SizeForm, ...] | None:
    return None if shape is None else tuple(map(_extent, shape))


def _extent(extent: Expr) -> SizeForm:
    """Return a declared extent: a constant, a size's name, or for anything else no form that has a value."""
    match extent:
        case Literal(value=value):
            return int(value.real)
        case SizeExpr(name=name):
            return name
        case _:
            return ("computed",)


class _Classes:
    """Union-find over dimensions of tensors."""

    def __init__(self) -> None:
        self._parent: dict[Dimension, Dimension] = {}

    @property
    def groups(self) -> tuple[tuple[Dimension, ...], ...]:
        """The classes of more than one dimension, the least of each first."""
        found: dict[Dimension, set[Dimension]] = {}
        for d in self._parent:
            found.setdefault(self.root(d), {self.root(d)}).add(d)
        return tuple(tuple(sorted(found[root])) for root in sorted(found))

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
