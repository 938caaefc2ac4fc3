"""Compute results of statements that are equal up to renaming of indices once.

Before: `M[i] max= X[i,k];  …  N[j] max= X[j,l];  O[j] = N[j] - 1`. After: `M[i] max= X[i,k];  …  O[j] = M[j] - 1`. A result is
all that defines a tensor: a statement, or a reduction and its start. Two are alike where each element has the same terms, by isl,
and nothing that they read changes between them: the bits are the same. Comes after reductions were started. Values below a
statement's own are for reuse_stored.py (stored ones) and store_shared_values.py (in the caches).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from polyker.cost.plan import is_costly, values
from polyker.ir.decision import Decision
from polyker.ir.expr import Expr, Read, transform
from polyker.ir.quasi_affine import indices, is_quasi_affine
from polyker.ir.typed import Role, TypedLoop, TypedNode, TypedProgram, TypedStatement, replaced, statements_of
from polyker.poly.isl import read_set, union_of
from polyker.poly.scop import elements_written, tensor_box
from polyker.rewrite.core.alike import Elements, TensorNames, alike, same_terms
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.match import outline_of
from polyker.rewrite.sharing.reuse_stored import read_stored
from polyker.structs import replace


class Result(Struct, frozen=True, dict=True):
    """All statements that write a tensor, and their places in the body that holds them."""

    tensor: str
    places: tuple[int, ...]
    statements: tuple[TypedStatement, ...]

    @cached_property
    def outline(self) -> tuple[object, ...]:
        """What results that are alike have in common."""
        return tuple((s.op, s.outer, s.acc.name, outline_of(s.expr, self.tensor)) for s in self.statements)


def share_results(program: TypedProgram) -> tuple[TypedProgram, tuple[Decision, ...]]:
    """Return the program that computes such results once, and what was done in words."""
    notes: list[Decision] = []
    while (found := _shared(program)) is not None:
        program, note = found
        notes.append(note)
    program, read = read_stored(program)
    return program, (*notes, *read)


def _shared(program: TypedProgram) -> tuple[TypedProgram, Decision] | None:
    """Return the program with the first two results that are alike computed once, and that in words."""
    for body in _bodies(program.body):
        known: dict[tuple[object, ...], list[Result]] = {}
        for result in _results(program, body):
            earlier = known.setdefault(result.outline, [])
            for one in earlier:
                changed = _ResultPair(program, body, one, result).merged()
                if changed is not None:
                    return changed
            earlier.append(result)
    return None


def _bodies(body: tuple[TypedNode, ...]) -> Iterator[tuple[TypedNode, ...]]:
    """Yield the body and those of the loops in it."""
    yield body
    for node in body:
        if isinstance(node, TypedLoop):
            yield from _bodies(node.body)


def _results(program: TypedProgram, body: tuple[TypedNode, ...]) -> list[Result]:
    """Return the results that a body alone defines, in the order in which they are complete."""
    places: dict[str, list[int]] = {}
    for place, node in enumerate(body):
        if isinstance(node, TypedStatement):
            places.setdefault(node.target, []).append(place)
    if len(places) < 2:
        return []
    writers = [s.target for s in program.statements()]
    found = []
    for tensor, own in places.items():
        statements = tuple(s for p in own if isinstance(s := body[p], TypedStatement))
        fresh = statements[0].op == "set" and program.tensor(tensor).role is not Role.INOUT
        if fresh and len(statements) == writers.count(tensor):
            found.append(Result(tensor, tuple(own), statements))
    return sorted(found, key=lambda r: r.places[-1])


class _ResultPair(Struct, frozen=True):
    """Two results that may be alike, the one that is complete first and the other."""

    program: TypedProgram
    body: tuple[TypedNode, ...]
    one: Result
    other: Result

    def merged(self) -> tuple[TypedProgram, Decision] | None:
        """Return the program that computes both at once, and that in words; None where they differ, or it does not pay."""
        here, there = self.program.tensor(self.one.tensor), self.program.tensor(self.other.tensor)
        if here.dtype != there.dtype or len(here.shape) != len(there.shape) or not self.keeps():
            return None
        elements = self.elements()
        if elements is None or not self.complete(self.other):
            return None
        if there.role is Role.TEMPORARY and self.readable(self.other, elements):
            return self.changed({}, self.other, (here.name, elements)), _note(there.label, here.name)
        if here.role is Role.TEMPORARY and self.whole(elements) and self.complete(self.one):
            if not self.readable(self.one, elements):
                return None
            moved = dict(zip(self.one.places, self.other.statements, strict=True))
            return self.changed(moved, self.one, (there.name, elements.back())), _note(here.label, there.name)
        if self.other.statements[0].outer or not any(map(_is_work, self.other.statements)):
            return None
        return self.changed({self.other.places[-1]: self.copy(elements)}), _note(there.name, here.name)

    def keeps(self) -> bool:
        """Whether nothing that either reads changes between them."""
        between = self.body[min(self.one.places[0], self.other.places[0]) : self.other.places[-1] + 1]
        written = {s.target for s in statements_of(between)} - {self.one.tensor, self.other.tensor}
        return not any(r.tensor in written for s in self.other.statements for r in s.reads())

    def complete(self, result: Result) -> bool:
        """Whether all that reads a result comes after it."""
        own = {s.name for s in result.statements}
        later = {s.name for s in statements_of(self.body[result.places[-1] + 1 :])}
        readers = (s.name for s in self.program.statements() if any(r.tensor == result.tensor for r in s.reads()))
        return all(name in own or name in later for name in readers)

    def readable(self, result: Result, elements: Elements) -> bool:
        """Whether all that reads a result can read the other one: what an extent bounds needs the same elements."""
        here, there = (self.program.tensor(r.tensor).shape for r in (self.one, self.other))
        if elements.same and here == there:
            return True
        reads = (r for s in self.program.statements() for r in s.reads() if r.tensor == result.tensor)
        return all(r.pad is None and all(map(is_quasi_affine, r.subscripts)) for r in reads)

    def elements(self) -> Elements | None:
        """Return where the first result has the elements of the second; None where they are not alike."""
        for _, elements in alike(self.one.statements[-1], self.other.statements[-1]):
            pairs = self.pairs(elements)
            if pairs and same_terms(self.program, pairs) is not False:
                return elements
        return None

    def whole(self, elements: Elements) -> bool:
        """Whether the second result defines all elements of the first."""
        return bool(same_terms(self.program, self.pairs(elements)))

    def pairs(self, elements: Elements) -> list[tuple[TypedStatement, TypedStatement, TensorNames]]:
        """Return the statements that stand for each other, with the names in the second of the iterators of the first."""
        found = []
        for one, other in zip(self.one.statements, self.other.statements, strict=True):
            names = next((n for n, c in alike(one, other) if c == elements), None)
            if names is None:
                return []
            found.append((one, other, names))
        return found

    def copy(self, elements: Elements) -> TypedStatement:
        """Return the statement that copies the second result from the first."""
        tensor, fresh = self.program.tensor(self.other.tensor), Fresh(self.program)
        iterators = fresh.iterators(len(tensor.shape))
        element = indices(iterators)
        written = read_set(tensor_box(self.program, tensor.name))
        if all(is_quasi_affine(x) for s in self.other.statements for x in s.subscripts):
            written = union_of(elements_written(self.program, s) for s in self.other.statements)
        value = Read(self.one.tensor, elements.place(element), dtype=tensor.dtype)
        return fresh.sets(written.coalesce(), iterators, (tensor.name, element), value, self.other.statements[-1])

    def changed(
        self,
        instead: Mapping[int, TypedStatement],
        gone: Result | None = None,
        reads: tuple[str, Elements] | None = None,
    ) -> TypedProgram:
        """Return the program with one of the results alone, and what stands at some places of the body instead.

        `gone`: the result that is not stored; `reads`: what is read for it.
        """
        dropped = {*self.other.places}
        body = tuple(
            instead.get(place, node) for place, node in enumerate(self.body) if place in instead or place not in dropped
        )
        tensors = self.program.tensors
        if gone is not None and reads is not None:
            name, elements = reads

            def read(e: Expr) -> Expr:
                if isinstance(e, Read) and e.tensor == gone.tensor:
                    return replace(e, tensor=name, subscripts=elements.place(e.subscripts))
                return e

            body = replaced(body, lambda s: (s.rewritten(lambda e: transform(e, read)),))
            tensors = tuple(t for t in tensors if t.name != gone.tensor)
        return replace(self.program, body=_exchanged(self.program.body, self.body, body), tensors=tensors)


def _exchanged(
    around: tuple[TypedNode, ...], old: tuple[TypedNode, ...], new: tuple[TypedNode, ...]
) -> tuple[TypedNode, ...]:
    """Return a body in which the body `old`, it or that of a loop inside, is `new`."""
    if around is old:
        return new
    return tuple(replace(n, body=_exchanged(n.body, old, new)) if isinstance(n, TypedLoop) else n for n in around)


def _note(gone: str, kept: str) -> Decision:
    return Decision("", f"{gone} has the values of {kept}: they are computed once")


def _is_work(statement: TypedStatement) -> bool:
    """Whether to compute a statement takes more than to copy its result."""
    return bool(statement.reduced) or any(is_costly(e) for e in values(statement.expr))
