"""The untyped program: what a text or the builder says, names and ranks checked, not yet bound to types or shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from polyker.errors.base import Source, Span
from polyker.ir.dtypes import DType
from polyker.ir.expr import Expr, Range, Read, Size, reads_in


@dataclass(frozen=True, slots=True)
class Statement:
    """`target[subscripts] OP expr for ranges where conditions`.

    `op`: "set" for `=`, or the reduction: "add", "mul", "max", "min", "any", "all", "logsumexp".
    """

    target: str
    subscripts: tuple[Expr, ...]
    op: str
    expr: Expr
    ranges: tuple[Range, ...] = ()
    conditions: tuple[Expr, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)
    target_span: Span | None = field(default=None, compare=False, repr=False)

    def reads(self) -> Iterator[Read]:
        """Yield what is read, for the value, subscripts (gathers' too) and conditions; equal reads again and again."""
        return reads_in(self.expr, *self.subscripts, *self.conditions)


@dataclass(frozen=True, slots=True)
class Loop:
    """`for index in lo:hi:` with an indented body that runs once for each value, in order."""

    range: Range
    body: tuple[Node, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Node: TypeAlias = Statement | Loop


@dataclass(frozen=True, slots=True)
class Declared:
    """A tensor's declared type: `dtype` and `shape` are None where not declared; a dimension is an index-free expression.

    `X: f32[N,C,3,3]` has shape (Size N, Size C, Literal 3, Literal 3).
    """

    name: str
    dtype: DType | None = None
    shape: tuple[Expr, ...] | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the notation.

    `inputs` are the tensors that the caller gives, in calling order; `parameters` all parameters in calling order (the
    inputs, and the sizes that a declaration lists among its parameters); `outputs` in order. A tensor in both `inputs`
    and `outputs` is in-out. `sizes` are all sizes, in the order of the declared shapes, the parameters, then the text.
    """

    name: str | None
    declared: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    temporaries: tuple[str, ...]
    parameters: tuple[str, ...]
    sizes: tuple[str, ...]
    body: tuple[Node, ...]
    types: tuple[Declared, ...] = ()
    source: Source | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        from polyker.ir.printing import print_program

        return print_program(self)

    @property
    def keywords(self) -> tuple[str, ...]:
        """The sizes that no parameter and no declared shape of an input gives alone: the caller gives them by keyword."""
        shapes = (d.shape or () for d in self.types if d.name in self.inputs)
        given = {e.name for shape in shapes for e in shape if isinstance(e, Size)} | set(self.parameters)
        return tuple(name for name in self.sizes if name not in given)

    def statements(self) -> Iterator[Statement]:
        """Yield the statements in the order of the text, those inside loops too."""
        stack: list[Node] = list(reversed(self.body))
        while stack:
            node = stack.pop()
            if isinstance(node, Loop):
                stack.extend(reversed(node.body))
            else:
                yield node

    def declaration(self, tensor: str) -> Declared | None:
        """Return what is declared of a tensor, or None."""
        return next((d for d in self.types if d.name == tensor), None)
