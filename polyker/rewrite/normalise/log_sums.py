"""Expand `logsumexp=` to a maximum and a sum of exponentials shifted by it.

Before: `L[i] logsumexp= X[i,k]`. After: `M[i] max= X[i,k];  S[i] += exp(X[i,k] - M[i]);  L[i] = M[i] + log(S[i])`, where M
counts as 0 in the shift where it is no finite number. What L held before takes part as one more term:

    M[i] = L[i];  M[i] max= X[i,k];  S[i] = exp(L[i] - M[i]);  S[i] += exp(X[i,k] - M[i]);  L[i] = M[i] + log(S[i])

A statement that reads other elements of its target combines its terms one by one, in the order of the text. Comes first.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl
from msgspec import Struct

from polyker.ir.expr import Call, Expr, Read, converted
from polyker.ir.quasi_affine import indices, indices_of, is_quasi_affine
from polyker.ir.typed import Role, TypedLoop, TypedNode, TypedProgram, TypedStatement, replaced, statements_of
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import access_relation, domain_text, elements_written, image, map_onto, tensor_box
from polyker.rewrite.core.exponentials import finite, log_of_sum, shifted_exp
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.normalise.start_reductions import start_of
from polyker.structs import replace


def log_sums(program: TypedProgram) -> TypedProgram:
    """Return the program with every statement `logsumexp=` written by maxima, sums and logarithms."""
    if not any(s.op == "logsumexp" for s in program.statements()):
        return program
    fresh = Fresh(program)
    body: list[TypedNode] = []
    held: dict[str, isl.Set] = {t.name: _box(program, t.name) for t in program.tensors if t.role is Role.INOUT}
    for node in program.body:
        known = dict(held)
        for s in statements_of((node,)):
            elements = _started(program, s)
            if s.op == "logsumexp" and (s.target in known or isinstance(node, TypedLoop) or s.reads_own):
                missing = elements.subtract(held[s.target]) if s.target in held else elements
                if not missing.is_empty():
                    body.append(start_of(program, fresh, s, missing))
                known[s.target] = elements
            held[s.target] = held[s.target].union(elements).coalesce() if s.target in held else elements

        def change(s: TypedStatement, known: dict[str, isl.Set] = known) -> list[TypedStatement]:
            if s.op != "logsumexp":
                return [s]
            if s.reads_own:
                return [_one_by_one(program, s)]
            return list(_Sums(program, fresh, s, s.target in known).statements())

        body += replaced((node,), change)
    return fresh.finish(tuple(body))


def _box(program: TypedProgram, tensor: str) -> isl.Set:
    return read_set(tensor_box(program, tensor))


def _started(program: TypedProgram, statement: TypedStatement) -> isl.Set:
    """Return the elements that hold a value after a statement."""
    if statement.op == "set":
        return elements_written(program, statement)
    return _box(program, statement.target) if statement.defines is None else read_set(statement.defines)


def _one_by_one(program: TypedProgram, s: TypedStatement) -> TypedStatement:
    """Return `L = log(exp(L) + exp(X))` for each term, run in the order of the text."""
    old = converted(Read(s.target, s.subscripts, dtype=program.tensor(s.target).dtype), s.acc)
    shift = finite(Call("maximum", (old, s.expr), s.acc))
    total = Call("add", (shifted_exp(old, shift), shifted_exp(s.expr, shift)), s.acc)
    return replace(s, op="set", expr=log_of_sum(shift, total), reduced=(), defines=None)


class _Sums(Struct, frozen=True):
    """The statements of one `logsumexp=`; `adds`: to what its target holds."""

    program: TypedProgram
    fresh: Fresh
    statement: TypedStatement
    adds: bool

    def statements(self) -> Iterator[TypedStatement]:
        """Yield what is run in the place of the statement."""
        s = self.statement
        target, gathers = self.program.tensor(s.target), not all(map(is_quasi_affine, s.subscripts))
        greatest, total = (
            self.fresh.temporary(target.label if gathers else label, s.acc, target.shape) for label in ("max", "sum")
        )
        iterators, places, elements = self._elements()
        shift = finite(Read(greatest, places, dtype=s.acc))
        old = converted(Read(s.target, places, dtype=target.dtype), s.acc)
        outer = s.outer if self.adds else 0

        def put(tensor: str, value: Expr) -> TypedStatement:
            return self.fresh.sets(elements, iterators, (tensor, places), value, s, outer)

        def update(tensor: str, op: str, term: Expr) -> TypedStatement:
            name = self.fresh.statement()
            domain = domain_text(read_set(s.domain), name)
            defines = None if s.defines is None else str(read_set(s.defines).set_tuple_name(tensor))
            return replace(s, name=name, domain=domain, target=tensor, op=op, expr=term, defines=defines)

        if self.adds:
            yield put(greatest, old)
        yield update(greatest, "max", s.expr)
        if self.adds:
            yield put(total, shifted_exp(old, shift))
        yield update(total, "add", shifted_exp(s.expr, finite(Read(greatest, s.subscripts, dtype=s.acc))))
        yield put(s.target, log_of_sum(shift, Read(total, places, dtype=s.acc)))

    def _elements(self) -> tuple[tuple[str, ...], tuple[Expr, ...], isl.Set]:
        """Return iterators over the elements that are written, their subscripts, and the set of their values.

        Where it adds these are the elements that the statement reaches in an iteration of the loops around it, else all.
        """
        s, outer = self.statement, self.statement.iterators[: self.statement.outer] if self.adds else ()
        if not self.adds:
            iterators = self.fresh.iterators(len(s.subscripts))
            return iterators, indices(iterators), _started(self.program, s)
        kept = tuple(i for i in s.iterators if i in outer or any(i in indices_of(e) for e in s.subscripts))
        if all(map(is_quasi_affine, s.subscripts)):
            values = image(self.program, s, kept)
            around = replace(s, iterators=kept, name="E")
            elements = read_map(access_relation(self.program, around, s.target, s.subscripts))
            elements = elements.intersect_domain(values.set_tuple_name("E"))
            # Instances of one iteration around reach different elements.
            if map_onto(self.program, around, outer).range_product(elements).is_injective():
                return kept, s.subscripts, values
        inner = self.fresh.iterators(len(s.subscripts))
        reached = read_map(access_relation(self.program, s, s.target, s.subscripts))
        pairs = map_onto(self.program, s, outer).range_product(reached.intersect_domain(read_set(s.domain)))
        return (*outer, *inner), indices(inner), pairs.range().flatten().reset_tuple_id()
