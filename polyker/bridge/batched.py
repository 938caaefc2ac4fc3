"""Batch a program: one more index in each tensor that depends on a batched input.

Before: `C[i,j] += A[i,k] * B[k,j]` with a batch of A, in front. After: `C[batch,i,j] += A[batch,i,k] * B[k,j]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from polyker.grad.names import symbolic_types
from polyker.ir.dtypes import DTYPES
from polyker.ir.expr import (
    FUNCTIONS,
    REDUCTIONS,
    Dots,
    Expr,
    IndexExpr,
    Literal,
    Range,
    Read,
    Reduce,
    SizeExpr,
    transform,
    walk,
)
from polyker.ir.program import Declared, Loop, Node, Program, Statement
from polyker.structs import replace


class Batched(Struct, frozen=True):
    """The text of a batched program, and the tensors that have the batch: inputs among them that are in-out, and outputs."""

    text: str
    tensors: frozenset[str]


def batched(program: Program, axes: Mapping[str, int]) -> Batched | None:
    """Return a program over a batch of some inputs, None where `...` leaves their dimensions open.

    `axes`: the dimension of the batch in each of these. Other tensors that depend on them have it in front, in-out ones always.
    """
    if any(isinstance(e, Dots) for s in program.statements() for e in _expressions(s)):
        return None
    tensors = _depending(program, frozenset(axes))
    made = _Batch(tensors, {n: a for n, a in axes.items() if n not in program.outputs}, *_names(program))
    header = replace(
        program,
        name=f"{program.name or 'op'}_batch",
        declared=True,
        body=tuple(map(made.node, program.body)),
        types=tuple(made.declared(program)),
        source=None,
    )
    return Batched(str(header), tensors)


def _expressions(s: Statement) -> Iterator[Expr]:
    """Yield all expressions of a statement, and what is below them."""
    ends = (e for r in s.ranges for e in (r.lo, r.hi) if e is not None)
    for expr in (s.expr, *s.subscripts, *s.conditions, *ends):
        yield from walk(expr)


def _depending(program: Program, found: frozenset[str]) -> frozenset[str]:
    """Return tensors with all that are computed from them."""
    known, reached = -1, set(found)
    while known != len(reached):
        known = len(reached)
        reached |= {s.target for s in program.statements() if any(r.tensor in reached for r in s.reads())}
    return frozenset(reached)


def _names(program: Program) -> tuple[str, str]:
    """Return names of the batch's index and size that nothing has."""
    taken = {*FUNCTIONS, *REDUCTIONS, *DTYPES, *program.inputs, *program.outputs, *program.temporaries}
    taken |= {*program.sizes, *program.parameters}
    for s in program.statements():
        for e in _expressions(s):
            match e:
                case IndexExpr(name=name):
                    taken.add(name)
                case Reduce(ranges=ranges):
                    taken |= {r.index for r in ranges}
        taken |= {r.index for r in s.ranges}
    number, chosen = 0, ("batch", "Batch")
    while taken & {*chosen}:
        number += 1
        chosen = f"batch_{number}", f"Batch_{number}"
    return chosen


class _Batch(Struct, frozen=True):
    """A batch: the tensors that have it, the dimension of it in inputs, and the names of its index and its size."""

    tensors: frozenset[str]
    axes: Mapping[str, int]
    index: str
    size: str

    def node(self, node: Node) -> Node:
        """Return a statement or a loop with the batch."""
        if isinstance(node, Loop):
            return replace(node, body=tuple(map(self.node, node.body)))
        if node.target not in self.tensors:
            return node
        return replace(
            node,
            subscripts=self._with(node.target, tuple(transform(e, self._read) for e in node.subscripts)),
            expr=transform(node.expr, self._read),
            ranges=(Range(self.index, Literal(0), SizeExpr(self.size)), *node.ranges),
            conditions=tuple(transform(e, self._read) for e in node.conditions),
        )

    def _read(self, expr: Expr) -> Expr:
        if isinstance(expr, Read) and expr.tensor in self.tensors:
            return replace(expr, subscripts=self._with(expr.tensor, expr.subscripts))
        return expr

    def _with(self, tensor: str, subscripts: tuple[Expr, ...], more: Expr | None = None) -> tuple[Expr, ...]:
        at = self.axes.get(tensor, 0)
        return (*subscripts[:at], more or IndexExpr(self.index), *subscripts[at:])

    def declared(self, program: Program) -> Iterator[Declared]:
        """Yield the types of the tensors; all dimensions of inputs have sizes, so that the batch's is known by its place."""
        shapes = {
            name: tuple(Literal(n) if isinstance(n, int) else SizeExpr(n) for n in found.shape)
            for name, found in symbolic_types(program).items()
        }
        tensors = dict.fromkeys((*program.inputs, *program.outputs, *program.temporaries))
        others = [d for d in program.types if d.name not in tensors]
        for name in tensors:
            given = program.declaration(name) or Declared(name)
            shape = given.shape if given.shape is not None else shapes.get(name)
            if shape is not None and name in self.tensors:
                shape = self._with(name, shape, SizeExpr(self.size))
            if shape is not None or given.dtype is not None:
                yield Declared(name, given.dtype, shape)
        yield from others
