"""Statements with their loops around them, inline indices renamed apart, `...` written out, and what they access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from polyker.errors import failure
from polyker.errors.reference import BROADCAST, RANK
from polyker.ir.expr import Dots, Expr, IndexExpr, Literal, Range, Read, Reduce, children, rebuild, transform, walk
from polyker.ir.program import Loop, Node, Program, Statement
from polyker.reference.integers import indices_of
from polyker.structs import replace

Shape = tuple[int, ...]


class Flat(Struct, frozen=True):
    """A statement with the ranges of the loops around it; `batch` are the extents of its `...` indices."""

    statement: Statement
    loops: tuple[Range, ...]
    batch: tuple[tuple[str, int], ...] = ()

    @property
    def left(self) -> tuple[str, ...]:
        """The indices of the target's subscripts, those of loops around the statement left out."""
        around = {r.index for r in self.loops}
        names = (n for s in self.statement.subscripts for n in indices_of(s))
        return tuple(dict.fromkeys(n for n in names if n not in around))

    @property
    def order(self) -> tuple[str, ...]:
        """The statement's own indices in the order of execution: `for` as written, the left's, the reduced."""
        s = self.statement
        inner = {r.index for r in self.inline()} | {r.index for r in self.loops}
        names = [r.index for r in s.ranges] + list(self.left)
        for e in (s.expr, *s.conditions):
            names += indices_of(e)
        return tuple(dict.fromkeys(n for n in names if n not in inner))

    def inline(self) -> Iterator[Range]:
        """Yield the ranges of the inline reductions."""
        for part in (self.statement.expr, *self.statement.conditions):
            for e in walk(part):
                if isinstance(e, Reduce):
                    yield from e.ranges

    def explicit(self) -> dict[str, Range]:
        """Return the ranges that the text gives: those of loops, of `for`, and of inline reductions."""
        given = (*self.loops, *self.statement.ranges, *self.inline())
        return {r.index: r for r in given if r.lo is not None}

    def guarded_reads(self) -> Iterator[tuple[Read, tuple[Expr, ...]]]:
        """Yield the reads, each with the `where` conditions of the scopes around it."""
        s = self.statement
        stack = [(e, s.conditions) for e in (*s.subscripts, s.expr, *s.conditions)]
        while stack:
            e, conditions = stack.pop()
            if isinstance(e, Read):
                yield e, conditions
            inner = (*conditions, *e.conditions) if isinstance(e, Reduce) else conditions
            stack += [(c, inner) for c in children(e)]

    def reads(self) -> Iterator[Read]:
        """Yield the reads, gathered indices among them; those in the target's subscripts too."""
        for e in (*self.statement.subscripts, self.statement.expr, *self.statement.conditions):
            yield from (n for n in walk(e) if isinstance(n, Read))


def flatten(program: Program) -> list[Flat]:
    """Return the statements in the order of the text."""
    return list(_flatten(program.body, ()))


def _flatten(nodes: tuple[Node, ...], loops: tuple[Range, ...]) -> Iterator[Flat]:
    for node in nodes:
        if isinstance(node, Loop):
            yield from _flatten(node.body, (*loops, node.range))
        else:
            counter = [0]
            expr = _rename(node.expr, {}, counter)
            yield Flat(
                replace(node, expr=expr, conditions=tuple(_rename(c, {}, counter) for c in node.conditions)), loops
            )


def _rename(expr: Expr, names: Mapping[str, str], counter: list[int]) -> Expr:
    """Give each inline reduction's indices a name of their own: `k` becomes `k'1`."""
    match expr:
        case IndexExpr(name=name):
            return replace(expr, name=names.get(name, name))
        case Reduce(ranges=ranges):
            counter[0] += 1
            inner = {**names, **{r.index: f"{r.index}'{counter[0]}" for r in ranges}}
            fresh = tuple(replace(r, index=inner[r.index]) for r in ranges)
            return rebuild(replace(expr, ranges=fresh), lambda e: _rename(e, inner, counter))
    return rebuild(expr, lambda e: _rename(e, names, counter))


def has_dots(flat: Flat) -> bool:
    """Whether the statement uses `...`."""
    exprs = (*flat.statement.subscripts, flat.statement.expr, *flat.statement.conditions)
    return any(isinstance(n, Dots) for e in exprs for n in walk(e))


def expand_dots(flat: Flat, shapes: Mapping[str, Shape]) -> Flat:
    """Return the statement with `...` written as indices `...0`, `...1` and so on; 1 broadcasts among them alone."""
    batch: list[int] = []
    dotted = [r for r in flat.reads() if r.tensor in shapes and Dots() in r.subscripts]
    target = flat.statement
    if not dotted and target.target in shapes:
        dotted = [Read(target.target, target.subscripts)]
    for read in dotted:
        shape = shapes[read.tensor]
        count = len(shape) - len(read.subscripts) + 1
        if count < 0:
            raise failure(RANK, span=read.span, tensor=read.tensor, found=len(shape), wanted=len(read.subscripts) - 1)
        start = read.subscripts.index(Dots())
        batch = _broadcast(batch, list(shape[start : start + count]), read)
    names = [f"...{n}" for n in range(len(batch))]

    def subscripts(tensor: str, subs: tuple[Expr, ...], *, target: bool) -> tuple[Expr, ...]:
        if Dots() not in subs:
            return subs
        start = subs.index(Dots())
        shape = shapes.get(tensor)
        count = len(batch) if shape is None or target else len(shape) - len(subs) + 1
        own: list[Expr] = [IndexExpr(n) for n in names[len(batch) - count :]]
        if shape is not None and not target:
            extents = shape[start : start + count]
            wanted = batch[len(batch) - count :]
            own = [Literal(0) if e == 1 != w else i for e, w, i in zip(extents, wanted, own, strict=True)]
        return (*subs[:start], *own, *subs[start + 1 :])

    def change(e: Expr) -> Expr:
        return replace(e, subscripts=subscripts(e.tensor, e.subscripts, target=False)) if isinstance(e, Read) else e

    left = tuple(transform(s, change) for s in subscripts(target.target, target.subscripts, target=True))
    conditions = tuple(transform(c, change) for c in target.conditions)
    changed = replace(target, subscripts=left, expr=transform(target.expr, change), conditions=conditions)
    return Flat(changed, flat.loops, tuple(zip(names, batch, strict=True)))


def _broadcast(a: list[int], b: list[int], read: Read) -> list[int]:
    n = max(len(a), len(b))
    left, right = [1] * (n - len(a)) + a, [1] * (n - len(b)) + b
    out = []
    for x, y in zip(left, right, strict=True):
        if x != y and 1 not in (x, y):
            raise failure(BROADCAST, span=read.span, tensor=read.tensor, found=b, wanted=a)
        out.append(y if x == 1 else x)
    return out
