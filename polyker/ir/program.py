"""The untyped program: what a text or the builder says, names and ranks checked, not yet bound to types or shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from polyker.errors.base import Source, Span
from polyker.ir.dtypes import DType
from polyker.ir.expr import Expr, Range, Read, SizeExpr, reads_in
from polyker.ir.printing import print_conditions, print_expr, print_range, print_subscripts
from polyker.process.jobs import load
from polyker.structs import PartlyCompared

if TYPE_CHECKING:  # what JSON alone takes
    from polyker.ir.document.nodes import NodeJson, TensorJson

UPDATES = {
    "set": "=",
    "add": "+=",
    "mul": "*=",
    "max": "max=",
    "min": "min=",
    "any": "any=",
    "all": "all=",
    "logsumexp": "logsumexp=",
}


class Statement(PartlyCompared, frozen=True):
    """`target[subscripts] OP expr for ranges where conditions`.

    `op`: "set" for `=`, or the reduction: "add", "mul", "max", "min", "any", "all", "logsumexp".
    """

    UNCOMPARED: ClassVar = frozenset({"span", "target_span"})

    target: str
    subscripts: tuple[Expr, ...]
    op: str
    expr: Expr
    ranges: tuple[Range, ...] = ()
    conditions: tuple[Expr, ...] = ()
    span: Span | None = None
    target_span: Span | None = None

    def reads(self) -> Iterator[Read]:
        """Yield what is read, for the value, subscripts (gathers' too) and conditions; equal reads again and again."""
        return reads_in(self.expr, *self.subscripts, *self.conditions)


class Loop(PartlyCompared, frozen=True):
    """`for index in lo:hi:` with an indented body that runs once for each value, in order."""

    range: Range
    body: tuple[Node, ...]
    span: Span | None = None


Node: TypeAlias = Statement | Loop


class Declared(PartlyCompared, frozen=True):
    """A tensor's declared type: `dtype` and `shape` are None where not declared; a dimension is an index-free expression.

    `X: f32[N,C,3,3]` has shape (Size N, Size C, Literal 3, Literal 3).
    """

    name: str
    dtype: DType | None = None
    shape: tuple[Expr, ...] | None = None
    span: Span | None = None


class Program(PartlyCompared, frozen=True):
    """A program of the notation.

    `inputs` are the tensors that the caller gives, in calling order; `parameters` all parameters in calling order (the
    inputs, and the sizes that a declaration lists among its parameters); `outputs` in order. A tensor in both `inputs`
    and `outputs` is in-out. `sizes` are all sizes, in the order of the declared shapes, the parameters, then the text.
    """

    UNCOMPARED: ClassVar = frozenset({"source"})

    name: str | None
    declared: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    temporaries: tuple[str, ...]
    parameters: tuple[str, ...]
    sizes: tuple[str, ...]
    body: tuple[Node, ...]
    types: tuple[Declared, ...] = ()
    source: Source | None = None

    def __str__(self) -> str:
        """Return the program in the notation: `parse(str(p), sizes=p.sizes) == p`.

        `sizes` is needed only where the program was parsed with it.
        """
        if not self.declared:
            lines = [_declared(d) for d in self.types]
            return "\n".join([*lines, *_body(self.body, "")])
        types = {d.name: d for d in self.types}
        parameters = [_declared(types.pop(name, Declared(name))) for name in self.parameters]
        outputs = [_declared(types.pop(name, Declared(name))) for name in self.outputs]
        lines = [f"    {_declared(d)}" for d in types.values()]
        header = f"{self.name}({', '.join(parameters)}) -> {', '.join(outputs)}:"
        return "\n".join([header, *lines, *_body(self.body, "    ")])

    def to_json(self, fixed: Mapping[str, int] | None = None, text: str | None = None) -> str:
        """Return the program as JSON, which `pk.op` takes; its form is described in docs/reference/json.md.

        `fixed`: sizes with one value. `text`: what the program was parsed from with these.
        """
        load("polyker.ir.document.write")
        from polyker.ir.document.nodes import FORMAT, VERSION, ProgramJson
        from polyker.ir.document.write import json_text, sizes_json

        header = self.parameters if self.declared else self.inputs
        order = dict.fromkeys((*header, *self.outputs, *self.temporaries))
        declared = [d.name for d in self.types if d.dtype is not None or d.shape is not None]
        in_order = declared == [name for name in order if name in declared]
        document = ProgramJson(
            format=FORMAT,
            version=VERSION,
            name=self.name,
            inputs=self._tensors_json(self.inputs),
            outputs=self._tensors_json(self.outputs),
            temporaries=self._tensors_json(self.temporaries),
            parameters=None if self.parameters == self.inputs else self.parameters,
            sizes=self.sizes or None,
            declarations=None if in_order else tuple(declared),
            fixed=sizes_json(fixed or {}),
            body=_body_json(self.body),
            text=text,
        )
        return json_text(document)

    def _tensors_json(self, names: tuple[str, ...]) -> tuple[TensorJson, ...]:
        from polyker.ir.document.nodes import TensorJson
        from polyker.ir.document.write import type_json

        found = ((name, self.declaration(name) or Declared(name)) for name in names)
        return tuple(TensorJson(name, type_json(d.dtype, d.shape)) for name, d in found)

    @property
    def keywords(self) -> tuple[str, ...]:
        """The sizes that no parameter and no declared shape of an input gives alone: the caller gives them by keyword."""
        shapes = (d.shape or () for d in self.types if d.name in self.inputs)
        given = {e.name for shape in shapes for e in shape if isinstance(e, SizeExpr)} | set(self.parameters)
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


def _body(body: tuple[Node, ...], indent: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, Loop):
            yield f"{indent}for {print_range(node.range)}:"
            yield from _body(node.body, indent + "    ")
        else:
            yield indent + print_statement(node)


def _body_json(body: tuple[Node, ...]) -> tuple[NodeJson, ...]:
    from polyker.ir.document.nodes import LoopJson, StatementJson
    from polyker.ir.document.write import expr_json, exprs_json, ranges_json

    nodes: list[NodeJson] = []
    for node in body:
        if isinstance(node, Loop):
            (extent,) = ranges_json((node.range,))
            assert extent.lo is not None
            assert extent.hi is not None
            nodes.append(LoopJson(extent.index, extent.lo, extent.hi, _body_json(node.body)))
            continue
        subscripts, conditions = exprs_json(node.subscripts), exprs_json(node.conditions)
        value, ranges = expr_json(node.expr), ranges_json(node.ranges)
        nodes.append(StatementJson(node.target, node.op, value, subscripts, ranges, conditions))
    return tuple(nodes)


def print_statement(statement: Statement) -> str:
    """Return a statement in the notation, on one line.

    >>> from polyker.ir.expr import Index, Read
    >>> print_statement(Statement("C", (Index("i"),), "add", Read("A", (Index("i"), Index("k")))))
    'C[i] += A[i, k]'
    """
    target = statement.target
    if statement.subscripts:
        target += f"[{print_subscripts(statement.subscripts)}]"
    text = f"{target} {UPDATES[statement.op]} {print_expr(statement.expr)}"
    if statement.ranges:
        text += " for " + ", ".join(map(print_range, statement.ranges))
    return text + print_conditions(statement.conditions)


def _declared(declared: Declared) -> str:
    shape = "" if declared.shape is None else f"[{', '.join(map(print_expr, declared.shape))}]"
    dtype = declared.dtype.name if declared.dtype else ""
    return f"{declared.name}: {dtype}{shape}" if shape or dtype else declared.name
