"""How the dimensions of a program split over devices: which of them one index joins, and which have to be whole.

`C[i,j] += A[i,k] * B[k,j]` is the rule "i k, k j -> i j": over i and j each device computes its part alone, over k its partial
sums, which are added afterwards. A dimension is whole where its subscript is more than an index (a window, a gather, a
recurrence), where an inline reduction runs over it, or where the value of its index or its extent counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from polyker.ir.expr import Dots, Expr, IndexExpr, Literal, Range, Read, Reduce, SizeExpr, children
from polyker.ir.program import Loop, Node, Program, Statement

# Partial results of these reductions combine to the whole by the same one.
COMBINED = ("add", "max", "min")

# A dimension ("t", tensor, place), an index ("i", scope, name) or a size ("s", "", name).
Place: TypeAlias = tuple[str, str, "str | int"]


class SplitRule(Struct, frozen=True):
    """The factor of each dimension of the inputs and outputs, and those that are whole.

    `reduced`: of other factors, by which reductions the outputs at some places combine from the parts.
    """

    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[tuple[str, ...], ...]
    whole: frozenset[str]
    reduced: Mapping[str, Mapping[int, str]]

    def __str__(self) -> str:
        """Return the rule as in an einsum, with blanks between factors."""
        sides = (", ".join(map(" ".join, side)) for side in (self.inputs, self.outputs))
        return " -> ".join(sides)

    def for_shapes(self, inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> SplitRule:
        """Return the rule for shapes: where extents of one factor differ, each dimension is a factor of its own, and whole."""
        extents: dict[str, set[int]] = {}
        sides = (zip(self.inputs, inputs, strict=True), zip(self.outputs, outputs, strict=True))
        for factors, shape in (pair for side in sides for pair in side):
            for factor, extent in zip(factors, shape, strict=True):
                extents.setdefault(factor, set()).add(extent)
        differing = {factor for factor, found in extents.items() if len(found) > 1}
        if not differing:
            return self
        count, whole = 0, set(self.whole) - differing

        def renamed(side: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
            nonlocal count
            rows = []
            for factors in side:
                row = []
                for factor in factors:
                    if factor in differing:
                        count += 1
                        factor = f"{factor}_own{count}"
                        whole.add(factor)
                    row.append(factor)
                rows.append(tuple(row))
            return tuple(rows)

        reduced = {factor: ops for factor, ops in self.reduced.items() if factor not in differing}
        return SplitRule(renamed(self.inputs), renamed(self.outputs), frozenset(whole), reduced)


def split_rule(program: Program, fixed: Iterable[str], ranks: Mapping[str, int]) -> SplitRule | None:
    """Return how a program splits; None where `...` leaves its dimensions open. `ranks`: of the inputs and outputs."""
    places = _Places(program, frozenset(fixed))
    if any(isinstance(e, Dots) for s in program.statements() for r in (_target(s), *s.reads()) for e in r.subscripts):
        return None
    places.nodes(program.body, {})
    return places.rule(ranks)


class _Places(Struct):
    """Union-find over dimensions, indices and sizes."""

    program: Program
    fixed: frozenset[str]
    parent: dict[Place, Place] = field(default_factory=dict)
    whole: set[Place] = field(default_factory=set)
    partial: list[tuple[Place, int, str]] = field(default_factory=list)
    scopes: int = 0

    def __post_init__(self) -> None:
        bound = set()
        for d in self.program.types:
            for place, extent in enumerate(d.shape or ()):
                at: Place = ("t", d.name, place)
                match extent:
                    case SizeExpr(name=name):
                        self.join(at, ("s", "", name))
                        if d.name in self.program.inputs:
                            bound.add(name)
                    case _:
                        self.whole.add(at)
                        self._used(extent, {})
        # Sizes that a caller gives stay the whole ones on each device.
        self.whole |= {("s", "", name) for name in self.program.sizes if name not in bound or name in self.fixed}

    def root(self, place: Place) -> Place:
        while place in self.parent:
            place = self.parent[place]
        return place

    def join(self, a: Place, b: Place) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self.parent[b] = a

    def nodes(self, body: Sequence[Node], env: Mapping[str, Place]) -> None:
        """Take in the statements of a block, inside loops over the indices of `env`."""
        for node in body:
            if isinstance(node, Statement):
                self._statement(node, env)
            elif isinstance(node, Loop):
                index = self._index(node.range.index)
                self.whole.add(index)
                self._range(node.range, index, env)
                self.nodes(node.body, {**env, node.range.index: index})

    def _index(self, name: str) -> Place:
        self.scopes += 1
        return "i", str(self.scopes), name

    def _statement(self, s: Statement, outer: Mapping[str, Place]) -> None:
        env = dict(outer)
        own = {n for e in (s.expr, *s.subscripts, *s.conditions) for n in _free(e)} | {r.index for r in s.ranges}
        env |= {name: self._index(name) for name in sorted(own - {*outer})}
        for r in s.ranges:
            self._range(r, env[r.index], env)
        self._read(s.target, s.subscripts, env)
        for e in (s.expr, *s.conditions):
            self._used(e, env)
        kept = {e.name for e in s.subscripts if isinstance(e, IndexExpr)}
        combines = not outer and s.op in COMBINED and self._is_made_once(s.target)
        for name in own - {*outer} - kept:
            if combines:
                self.partial.append((env[name], self.program.outputs.index(s.target), s.op))
            else:
                self.whole.add(env[name])

    def _is_made_once(self, tensor: str) -> bool:
        """Whether a tensor is an output alone, of one statement."""
        every = list(self.program.statements())
        writers = sum(s.target == tensor for s in every)
        is_read = tensor in self.program.inputs or any(r.tensor == tensor for s in every for r in s.reads())
        return tensor in self.program.outputs and writers == 1 and not is_read

    def _range(self, r: Range, index: Place, env: Mapping[str, Place]) -> None:
        if r.lo is None or r.hi is None:
            return
        if isinstance(r.lo, Literal) and r.lo.value == 0 and isinstance(r.hi, SizeExpr):
            self.join(index, ("s", "", r.hi.name))
            return
        self.whole.add(index)
        self._used(r.lo, env)
        self._used(r.hi, env)

    def _read(self, tensor: str, subscripts: Sequence[Expr], env: Mapping[str, Place]) -> None:
        for d, e in enumerate(subscripts):
            at: Place = ("t", tensor, d)
            if isinstance(e, IndexExpr):
                self.join(at, env[e.name])
            else:
                self.whole.add(at)
                self._used(e, env)

    def _used(self, expr: Expr, env: Mapping[str, Place]) -> None:
        """Take in an expression whose value counts."""
        match expr:
            case IndexExpr(name=name):
                self.whole.add(env[name])
            case SizeExpr(name=name):
                self.whole.add(("s", "", name))
            case Read(tensor=tensor, subscripts=subscripts):
                self._read(tensor, subscripts, env)
            case Reduce(ranges=ranges, body=body, conditions=conditions):
                inner = {**env, **{r.index: self._index(r.index) for r in ranges}}
                for r in ranges:
                    self.whole.add(inner[r.index])
                    self._range(r, inner[r.index], inner)
                for e in (body, *conditions):
                    self._used(e, inner)
            case _:
                for e in children(expr):
                    self._used(e, env)

    def rule(self, ranks: Mapping[str, int]) -> SplitRule:
        """Return the rule for the inputs and outputs."""
        whole = {self.root(p) for p in self.whole} | self._repeated()
        partial: dict[Place, dict[int, str]] = {}
        for place, output, op in self.partial:
            partial.setdefault(self.root(place), {})[output] = op
        names: dict[Place, str] = {}
        rows = [
            [tuple(self._name(("t", n, d), names) for d in range(ranks[n])) for n in tensors]
            for tensors in (self.program.inputs, self.program.outputs)
        ]
        named = {names[root]: root for root in names}
        found = frozenset(name for name, root in named.items() if root in whole)
        reduced = {name: partial[root] for name, root in named.items() if root in partial and root not in whole}
        inputs, outputs = (tuple(_distinct(row) for row in side) for side in rows)
        again = {name for row in (*inputs, *outputs) for name in row} - {*named}
        return SplitRule(inputs, outputs, found | again, reduced)

    def _repeated(self) -> set[Place]:
        """Return the classes that two indices of one statement, or two dimensions of one tensor, belong to."""
        found: set[Place] = set()
        tensors: dict[tuple[Place, str], int] = {}
        places = {*self.parent, *self.parent.values()}
        for place in places:
            if place[0] == "t":
                key = self.root(place), place[1]
                tensors[key] = tensors.get(key, 0) + 1
        found |= {root for (root, _), count in tensors.items() if count > 1}
        for s in self.program.statements():
            roots = [self._at(r.tensor, d) for r in (_target(s), *s.reads()) for d in range(len(r.subscripts))]
            of = {
                (self._at(r.tensor, d), e.name)
                for r in (_target(s), *s.reads())
                for d, e in enumerate(r.subscripts)
                if isinstance(e, IndexExpr)
            }
            found |= {root for root in roots if len({name for at, name in of if at == root}) > 1}
        return found

    def _at(self, tensor: str, d: int) -> Place:
        return self.root(("t", tensor, d))

    def _name(self, place: Place, names: dict[Place, str]) -> str:
        """Return the name of a dimension's factor: that of an index that runs over it, or one that none has."""
        root = self.root(place)
        if root not in names:
            indices = sorted(str(p[2]) for p in {*self.parent, root} if p[0] == "i" and self.root(p) == root)
            plain = [name for name in indices if name.isascii() and name[0].isalpha()]
            wanted = plain[0] if plain else "whole" if root in {self.root(p) for p in self.whole} else "part"
            taken, number, chosen = {*names.values()}, 1, wanted
            while chosen in taken:
                number += 1
                chosen = f"{wanted}_{number}"
            names[root] = chosen
        return names[root]


def _distinct(factors: tuple[str, ...]) -> tuple[str, ...]:
    """Return the factors of a tensor with names of their own for those that stand in it again: a rule has each once."""
    return tuple(f"{f}_again_{d}" if f in factors[:d] else f for d, f in enumerate(factors))


def _target(s: Statement) -> Read:
    return Read(s.target, s.subscripts)


def _free(expr: Expr) -> Iterator[str]:
    """Yield the indices of an expression that no reduction in it runs over."""
    if isinstance(expr, Reduce):
        own = {r.index for r in expr.ranges}
        yield from (name for e in children(expr) for name in _free(e) if name not in own)
    elif isinstance(expr, IndexExpr):
        yield expr.name
    else:
        for e in children(expr):
            yield from _free(e)
