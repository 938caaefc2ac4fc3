"""Materialise a subexpression that many instances of a statement share.

Before: `O[q,d] += exp(S[q,k] - M[q]) * V[k,d]`. After: `T[q,k] = exp(S[q,k] - M[q]);  O[q,d] += T[q,k] * V[k,d]`. No value
changes. What does not depend on the innermost loop is left where it is: LLVM computes that before the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod

from msgspec import Struct

from polyker.cost.choose import choose
from polyker.cost.measure import Layouts, MeasuredStatement, accesses, measure
from polyker.cost.plan import HEAVY, TilePlan, values
from polyker.cost.table import GAIN, NEST
from polyker.cost.temporaries import MIN_SEARCHED_CYCLES, insisted, places, room, traffic
from polyker.ir.decision import Decision
from polyker.ir.expr import Call, Expr, Read, children, reads_in, replace_parts
from polyker.ir.quasi_affine import indices, indices_of
from polyker.ir.typed import TypedProgram, TypedStatement, replaced
from polyker.machine.model import Target
from polyker.poly.scop import domain_text, image
from polyker.poly.symbolic import from_least
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import renamed
from polyker.structs import replace

# Least instances that share a value; least operations of a value without functions; budget values of one statement that are tried
# (experience values).
MIN_SHARING_INSTANCES, MIN_SHARED_OPERATIONS, MAX_TRIED_VALUES = 2, 4, 3


def compute_once(
    program: TypedProgram, target: Target, layout: Layouts, *, budget: int | None = None
) -> tuple[TypedProgram, tuple[Decision, ...]]:
    """Return the program with such values in temporaries where the model finds it cheaper, and what was done in words.

    `budget`: bytes that temporaries may take, if there is a limit.
    """
    fresh = Fresh(program)
    notes: list[Decision] = []

    def change(statement: TypedStatement) -> list[TypedStatement]:
        parts = _parts(statement, 1 if insisted() is not None else MIN_SHARED_OPERATIONS)
        pays = _Statement(program, statement, target, layout, budget).pays(parts) if parts else []
        if not pays:
            return [statement]
        made = _stored(fresh, statement, pays, places(program, measure(program, statement, layout)))
        chosen = [f"{s.target} is computed once, not where it is needed" for s in made[:-1]]
        notes.extend(Decision(statement.name, c) for c in chosen)
        return [*(_alone(program, fresh, statement, s) for s in made[:-1]), made[-1]]

    body = replaced(program.body, change)
    return (fresh.finish(body) if notes else program), tuple(notes)


def _parts(statement: TypedStatement, least: int) -> list[Expr]:
    """Return the largest parts of a value that depend on some of the iterators, not on all; the costliest first.

    `least`: their operations.
    """
    found: dict[Expr, int] = {}

    def visit(e: Expr) -> None:
        if isinstance(e, Read):
            return
        used = indices_of(e)
        if isinstance(e, Call) and e.op != "neg" and used < set(statement.iterators):
            if used and not any(r.tensor == statement.target for r in reads_in(e)):
                found[e] = sum(MIN_SHARED_OPERATIONS if x.op in HEAVY else 1 for x in values(e) if isinstance(x, Call))
            return
        for child in children(e):
            visit(child)

    if not statement.outer:
        visit(statement.expr)
    return sorted((e for e in found if found[e] >= least), key=lambda e: -found[e])


class _Statement(Struct, dict=True):
    """What it costs to compute parts of a statement's value once."""

    program: TypedProgram
    statement: TypedStatement
    target: Target
    layout: Layouts
    budget: int | None

    def pays(self, parts: list[Expr]) -> list[Expr]:
        """Return the parts that had better be computed once."""
        if insisted() is not None:
            return [p for p in parts if self.fits(p)][:MAX_TRIED_VALUES]
        total = self.size(frozenset(self.statement.iterators))
        parts = [p for p in parts if MIN_SHARING_INSTANCES * self.size(indices_of(p)) <= total and self.fits(p)]
        if not parts or total < MIN_SEARCHED_CYCLES:
            return []
        plan = self.plan(self.program, self.statement)
        innermost = frozenset(self.statement.reduced or (plan.vector or self.statement.iterators[-1],))
        where = places(self.program, self.measured)
        best, chosen = (1 - GAIN) * total * plan.cost, list[Expr]()
        for part in [p for p in parts if indices_of(p) & innermost][:MAX_TRIED_VALUES]:
            trial = Fresh(self.program)
            made = _stored(trial, self.statement, [*chosen, part], where)
            program = trial.finish(self.program.body)
            cycles = sum(self.size(frozenset(s.iterators)) * self.plan(program, s).cost for s in made)
            cycles += sum(NEST + traffic(self.bytes(s.expr), self.target) for s in made[:-1])
            if cycles < best:
                best, chosen = cycles, [*chosen, part]
        return chosen

    @cached_property
    def measured(self) -> MeasuredStatement:
        """The statement as it stands."""
        return measure(self.program, self.statement, self.layout)

    def size(self, iterators: frozenset[str]) -> int:
        """Return how many points some iterators have."""
        return prod(self.measured.extent(i) for i in iterators)

    def bytes(self, part: Expr) -> int:
        """Return the size of a temporary for a part of the value."""
        assert part.dtype is not None
        return self.size(indices_of(part)) * part.dtype.itemsize

    def fits(self, part: Expr) -> bool:
        """Whether a temporary is not too large; of symbolic sizes, whether it is no larger than one that the part reads."""
        if self.program.sizes:
            return any(indices_of(part) <= indices_of(r) for r in reads_in(part))
        return self.bytes(part) <= room(self.measured, self.target, self.budget)

    def plan(self, program: TypedProgram, statement: TypedStatement) -> TilePlan:
        """Return the tile of the statement, or of one made of it."""
        bounds = {i: self.measured.bounds[i] for i in statement.iterators}
        free = statement.kept
        measured = MeasuredStatement(statement, accesses(program, statement, self.layout), bounds, self.measured.likely)
        return choose(measured, free, statement.reduced, self.target)


def _stored(
    fresh: Fresh, statement: TypedStatement, parts: list[Expr], where: Mapping[str, tuple[Expr, Expr]]
) -> list[TypedStatement]:
    """Return statements that store parts of a value, over iterators of the statement itself, and the one that reads them."""
    made: list[TypedStatement] = []
    reads: dict[Expr, Read] = {}
    for part in parts:
        assert part.dtype is not None
        # In the order of memory of what the part reads.
        named = [i for r in reads_in(part) for s in r.subscripts for i in statement.iterators if i in indices_of(s)]
        element = tuple(dict.fromkeys((*named, *(i for i in statement.iterators if i in indices_of(part)))))
        places = from_least(indices(element), (where[i][0] for i in element))
        tensor = fresh.temporary("value", part.dtype, tuple(where[i][1] for i in element))
        reads[part] = Read(tensor, places, dtype=part.dtype)
        stored = TypedStatement(
            fresh.statement(), element, 0, statement.domain, tensor, places, "set", part, part.dtype
        )
        made.append(replace(stored, span=statement.span))

    def read(e: Expr) -> Expr | None:
        return reads[e] if e in reads else e if isinstance(e, Read) else None

    return [*made, replace(statement, expr=replace_parts(statement.expr, read))]


def _alone(program: TypedProgram, fresh: Fresh, statement: TypedStatement, stored: TypedStatement) -> TypedStatement:
    """Return a statement that stores a part with iterators of its own, over the points for which the value is needed."""
    domain = domain_text(image(program, statement, stored.iterators), stored.name)
    return renamed(replace(stored, domain=domain), {i: fresh.iterator() for i in stored.iterators})
