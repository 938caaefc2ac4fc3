"""A program that is being made of another: its statements, its tensors, and its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from polyker.einsum_frontend import parse
from polyker.errors.base import PolykerError, failure
from polyker.errors.gradients import NO_REVERSE
from polyker.grad.bound import PlainLoop, PlainNode, PlainProgram, PlainStatement, is_sayable
from polyker.grad.values import number
from polyker.grad.writers import Writers, weights
from polyker.ir.dtypes import f64
from polyker.ir.expr import Call, Expr, IndexExpr, Range, SizeExpr, walk
from polyker.ir.program import Declared, Loop, Node, Program, Statement
from polyker.ir.quasi_affine import lit
from polyker.ir.reductions import identity
from polyker.structs import replace


class Derivation(Struct):
    """A program that is being made of another: statements, and the tensors that it has besides the other's.

    `like` has, for each such tensor, the tensor whose shape it has.
    """

    program: Program
    fixed: Mapping[str, int]
    source: PlainProgram
    made: list[Node] = field(default_factory=list)
    like: dict[str, str] = field(default_factory=dict)
    sizes: dict[tuple[str, int], str] = field(default_factory=dict)

    _weights: dict[tuple[int, ...], Callable[[PlainStatement], Expr]] = field(default_factory=dict)

    def tensor(self, wanted: str, like: str) -> str:
        """Return the name of a new tensor with the shape of another."""
        name = self.source.names.fresh(wanted)
        self.like[name] = like
        return name

    def given(self, like: str) -> str:
        """Return the name of a new input with the shape of another tensor; it gives extents that no shape can say."""
        name = self.tensor(f"d{like}", like)
        for d, extent in enumerate(self.source.shapes[like]):
            if not is_sayable(extent):
                self.sizes[like, d] = self.source.names.fresh(f"{name}{d}")
        return name

    def shape(self, tensor: str) -> tuple[Expr, ...] | None:
        """Return the shape of a tensor; None where no text can say it, and of a size among the parameters."""
        like = self.like.get(tensor, tensor)
        if like not in self.source.shapes:
            return None
        extents = tuple(
            SizeExpr(self.sizes[like, d]) if (like, d) in self.sizes else extent
            for d, extent in enumerate(self.source.shapes[like])
        )
        return extents if all(map(is_sayable, extents)) else None

    def weights(self, tensor: str, writers: Writers, made: list[Node]) -> Callable[[PlainStatement], Expr]:
        """Return the derivative of a tensor's element by a term of a statement; the statements that it needs go to `made`.

        `writers`: the statements of one block that define the tensor's elements.
        """
        key = tuple(map(id, writers.statements))
        if key not in self._weights:
            names: dict[str, str] = {}

            def emit(what: str, statement: Statement) -> str:
                if what not in names:
                    names[what] = self.tensor(f"{tensor}_{what}", tensor)
                made.append(replace(statement, target=names[what]))
                return names[what]

            self._weights[key] = weights(tensor, writers, emit)
        return self._weights[key]

    def everywhere(self, target: str, value: Expr | Callable[[tuple[Expr, ...]], Expr]) -> Statement:
        """Return the statement that sets all elements of a tensor, to one value or by their subscripts."""
        extents = self.shape(target) or tuple(map(_bound, self.source.shapes[self.like[target]]))
        indices = tuple(self.source.names.fresh(f"d{n}") for n in range(len(extents)))
        at = tuple(IndexExpr(i) for i in indices)
        ranges = tuple(Range(i, lit(0), n) for i, n in zip(indices, extents, strict=True))
        return Statement(target, at, "set", value(at) if callable(value) else value, ranges)

    def is_local(self, tensor: str) -> bool:
        """Whether a tensor holds values of one block of steps alone."""
        return self.like.get(tensor, tensor) in self.source.local

    def of_block(self, loop: PlainLoop, body: Sequence[Node]) -> list[Node]:
        """Return what derivatives of a block of steps begin with: what they need of its values, computed again, and starts."""
        if loop.range.index not in self.source.blocks:
            return []
        again = needed(loop.body, {r.tensor for s in statements_in(body) for r in s.reads()}, self.source.local)
        begun = {s.target: s.op for s in reversed(list(statements_in(body))) if self.is_local(s.target)}
        begun = {target: op for target, op in reversed(begun.items()) if op != "set"}
        starts = [self.everywhere(target, number(identity(op, f64).value.real)) for target, op in begun.items()]
        return [*again, *starts]

    def text(self, kind: str, more: Sequence[str], outputs: Sequence[str], given: Sequence[str] = ()) -> str:
        """Return the program: with inputs `more` than the other's, and the statements of the other that it needs, first.

        `given`: tensors of the other that are inputs, too.
        """
        # What holds values of one block is computed where it is read.
        wanted = {*outputs, *(r.tensor for s in statements_in(self.made) for r in s.reads())} - self.source.local
        computed = frozenset(s.target for s in self.source.statements) - {*given}
        body = [*needed(self.source.nodes, wanted, computed), *self.made]
        kept = list(statements_in(body))
        p, targets = self.program, [s.target for s in kept]
        read = {r.tensor for s in kept for r in s.reads()}
        parameters = [*p.parameters, *(n for n in given if n in read), *more]
        for name in p.inputs:
            others = [self._declared(n) for n in (*parameters, *outputs, *targets) if n != name]
            if name not in read and sizes_in([self._declared(name)], []).isdisjoint(sizes_in(others, body)):
                parameters.remove(name)  # it is needed for nothing, not even for its shape
        used = sizes_in(map(self._declared, (*parameters, *outputs, *targets)), body)
        parameters = [name for name in parameters if name in used or name not in p.sizes]
        declared = map(self._declared, dict.fromkeys((*parameters, *outputs, *targets)))
        made = Program(
            name=f"{p.name or 'op'}_{kind}", declared=True, inputs=(), outputs=tuple(outputs), temporaries=(),
            parameters=tuple(parameters), sizes=(), body=tuple(body),
            types=tuple(d for d in declared if d.shape is not None or d.dtype is not None),
        )  # fmt: skip
        return _accepted(str(made), self.fixed, outputs)

    def _declared(self, name: str) -> Declared:
        given = self.program.declaration(name)  # a derivative has the type that its terms have
        return Declared(name, given.dtype if given is not None else None, self.shape(name))


def _bound(extent: Expr) -> Expr:
    """Return an extent, or what it is never above, that a text can say."""
    if isinstance(extent, Call) and extent.op == "minimum":
        return next((e for e in map(_bound, extent.args) if is_sayable(e)), extent)
    return extent


def _accepted(text: str, fixed: Iterable[str], outputs: Sequence[str]) -> str:
    """Return a text; raises GradientError for one that says what no text can."""
    try:
        parse(text, sizes=[name for name in fixed if re.search(rf"\b{name}\b", text)])
    except PolykerError as error:
        reason = f"a text cannot say it ({error.message})"
        raise failure(
            NO_REVERSE, tensor=", ".join(outputs), reason=reason, advice="declare shapes and ranges"
        ) from error
    return text


def statements_in(nodes: Iterable[Node]) -> Iterator[Statement]:
    """Yield the statements of nodes in order."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from statements_in(node.body)
        else:
            yield node


def needed(nodes: Sequence[PlainNode], wanted: set[str], among: frozenset[str] | None = None) -> list[Node]:
    """Return the nodes whose values are read, with what they read, of tensors among some; `wanted` grows by that."""
    kept: list[Node] = []
    for node in reversed(nodes):
        if isinstance(node, PlainStatement):
            if node.target in wanted and (among is None or node.target in among):
                made = Statement(node.target, node.subscripts, node.op, node.expr, node.ranges, node.conditions)
                kept.append(made)
                wanted |= {r.tensor for r in made.reads()}
            continue
        body, known = needed(node.body, wanted, among), -1
        while known != len(wanted):  # what an iteration needs of the one before
            known = len(wanted)
            body = needed(node.body, wanted, among)
        if body:
            kept.append(Loop(node.range, tuple(body)))
    return kept[::-1]


def sizes_in(types: Iterable[Declared], nodes: Iterable[Node]) -> set[str]:
    """Return the sizes that shapes, loops and statements speak of."""
    exprs = [e for d in types for e in d.shape or ()]
    nodes = list(nodes)
    exprs += [e for n in nodes if isinstance(n, Loop) for e in (n.range.lo, n.range.hi) if e is not None]
    for s in statements_in(nodes):
        exprs += [*s.subscripts, s.expr, *s.conditions, *(e for r in s.ranges for e in (r.lo, r.hi) if e is not None)]
    return {part.name for e in exprs for part in walk(e) if isinstance(part, SizeExpr)}
