"""The program of a part of a larger one, by names of its own, so that equal parts are equal programs.

Names are given in the order in which they stand in the statements, and labels are kept apart: two layers of a model are the same
program, though they read other tensors, and though the text calls these by other names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from polyker.errors.base import Span
from polyker.ir.expr import Expr, IndexExpr, Range, Read, Reduce, SizeExpr, children, transform, walk
from polyker.ir.typed import Check, Role, TypedLoop, TypedNode, TypedProgram, TypedStatement, TypedTensor, statements_of
from polyker.poly.isl import only_sizes
from polyker.structs import replace

_NAME = re.compile(r"[A-Za-z_]\w*")


class Part(Struct, frozen=True):
    """A part of a program: `program` is that of its statements, `alike` the same without labels, equal in equal parts.

    `tensors` and `sizes`: the names in the larger program, by those in this one.
    """

    program: TypedProgram
    alike: TypedProgram
    tensors: Mapping[str, str]
    sizes: Mapping[str, str]

    def spans(self) -> list[Span | None]:
        """Return the places in the text of all that it says, in an order that equal parts share."""
        return [span for s in self.program.statements() for span in _spans(s)]


def parts_of(program: TypedProgram, groups: Sequence[Sequence[TypedNode]]) -> list[Part]:
    """Return the parts that groups of a program's statements make."""
    users: dict[str, set[int]] = {}
    for k, group in enumerate(groups):
        for s in statements_of(group):
            for read in s.reads():
                users.setdefault(read.tensor, set()).add(k)
    tensors = {t.name: t for t in program.tensors}
    conditions: dict[tuple[str, tuple[str, ...]], str] = {}
    return [_Extraction(program, tensors, conditions).part(k, group, users) for k, group in enumerate(groups)]


class _Extraction:
    """The names of one part: each gets its own when it is met first."""

    def __init__(
        self,
        program: TypedProgram,
        tensors: Mapping[str, TypedTensor],
        conditions: dict[tuple[str, tuple[str, ...]], str],
    ) -> None:
        self.program, self.tensors, self.conditions = program, tensors, conditions
        self.known = {name: "n" for name, _ in program.sizes} | dict.fromkeys(tensors, "t")
        self.names: dict[str, str] = {}
        self.counts: dict[str, int] = {}

    def part(self, number: int, group: Sequence[TypedNode], users: Mapping[str, set[int]]) -> Part:
        """Return the part of a group of statements; `users`: the groups that read each tensor."""
        for s in statements_of(group):
            self.known[s.name] = "S"
            self.known |= dict.fromkeys(s.iterators, "i")
            inside = (e for x in (s.expr, *s.subscripts) for e in walk(x) if isinstance(e, Reduce))
            self.known |= {r.index: "i" for e in inside for r in e.ranges}
        body = tuple(map(self._node, group))
        written = {s.target for s in statements_of(group)}
        used = [name for name in self.names if self.known[name] == "t"]
        tensors = [
            self._tensor(self.tensors[name], name in written, users.get(name, set()) <= {number}) for name in used
        ]
        sizes = {new: old for old, new in self.names.items() if self.known[old] == "n"}
        inputs = tuple(t.name for t in tensors if t.role in (Role.INPUT, Role.INOUT))
        outputs = tuple(t.name for t in tensors if t.role in (Role.OUTPUT, Role.INOUT))
        labels = dict(self.program.sizes) | dict(self.program.labels)
        own = {new: labels.get(old, old) for old, new in self.names.items()}
        likely = dict(self.program.likely)
        made = TypedProgram(
            tensors=tuple(tensors),
            sizes=tuple((new, labels[old]) for new, old in sizes.items()),
            inputs=inputs,
            outputs=outputs,
            body=body,
            context=self._known(self.program.context, tuple(sizes.values())),
            checks=tuple(Check(self._known(c.condition, tuple(sizes.values())), c.code) for c in self.program.checks)
            if sizes
            else (),
            labels=tuple((new, own[new]) for old, new in self.names.items() if self.known[old] == "i"),
            likely=tuple((new, likely[old]) for new, old in sizes.items() if old in likely),
        )
        alike = replace(
            made,
            tensors=tuple(replace(t, label=t.name, outside=None) for t in tensors),
            sizes=tuple((new, new) for new in sizes),
            labels=(),
        )
        return Part(made, alike, {self.names[name]: name for name in used}, sizes)

    def _known(self, condition: str, sizes: tuple[str, ...]) -> str:
        """Return what a condition says of the sizes of a part, by its names for them; a call has checked that it holds."""
        key = (condition, sizes)
        if key not in self.conditions:
            self.conditions[key] = only_sizes(condition, sizes)
        return self._text(self.conditions[key])

    def _tensor(self, tensor: TypedTensor, written: bool, own: bool) -> TypedTensor:
        """Return a tensor as it is to the part: `written` in it, and `own` if no other part reads it."""
        role = tensor.role
        if not written:
            role = Role.INPUT
        elif role is Role.TEMPORARY and not own:
            role = Role.OUTPUT
        shape = tuple(self._expr(e) for e in tensor.shape)
        limits = tensor.limits if role is Role.INPUT else None
        return replace(tensor, name=self.names[tensor.name], shape=shape, role=role, limits=limits)

    def _name(self, old: str) -> str:
        kind = self.known.get(old)
        if kind is None:
            return old
        if old not in self.names:
            count = self.counts[kind] = self.counts.get(kind, -1) + 1
            self.names[old] = f"{kind}{count}"
        return self.names[old]

    def _text(self, text: str) -> str:
        return _NAME.sub(lambda m: self._name(m.group()), text)

    def _expr(self, expr: Expr) -> Expr:
        return transform(expr, self._changed)

    def _changed(self, node: Expr) -> Expr:
        match node:
            case IndexExpr(name=name) | SizeExpr(name=name):
                return replace(node, name=self._name(name))
            case Read(tensor=tensor):
                return replace(node, tensor=self._name(tensor))
            case Reduce(ranges=ranges, domain=domain):
                fresh = tuple(replace(r, index=self._name(r.index)) for r in ranges)
                return replace(node, ranges=fresh, domain=None if domain is None else self._text(domain))
            case _:
                return node

    def _node(self, node: TypedNode) -> TypedNode:
        if isinstance(node, TypedLoop):
            return TypedLoop(self._name(node.iterator), tuple(map(self._node, node.body)))
        return replace(
            node,
            name=self._name(node.name),
            iterators=tuple(map(self._name, node.iterators)),
            domain=self._text(node.domain),
            target=self._name(node.target),
            subscripts=tuple(map(self._expr, node.subscripts)),
            expr=self._expr(node.expr),
            reduced=tuple(map(self._name, node.reduced)),
            defines=None if node.defines is None else self._text(node.defines),
            prefetch=tuple(replace(p, read=self._changed_read(p.read)) for p in node.prefetch),
            seldom=frozenset(map(self._name, node.seldom)),
        )

    def _changed_read(self, read: Read) -> Read:
        found = self._expr(read)
        assert isinstance(found, Read)
        return found


def _spans(statement: TypedStatement) -> Iterator[Span | None]:
    yield statement.span
    for expr in (*statement.subscripts, statement.expr):
        for node in _all(expr):
            yield getattr(node, "span", None)


def _all(expr: Expr) -> Iterator[Expr | Range]:
    yield expr
    if isinstance(expr, Reduce):
        yield from expr.ranges
    for child in children(expr):
        yield from _all(child)


def relabelled(values: Iterable[tuple[str, str]], labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the values of an error with the labels of one part's names replaced by those of another."""
    return tuple((key, _NAME.sub(lambda m: labels.get(m.group(), m.group()), value)) for key, value in values)
