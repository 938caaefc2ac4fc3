"""Materialise the type conversion of an operand that a register tile would convert in each of its steps.

Before: `C[i,j] += f64(A[i,k]) * B[k,j]`. After: `T[a,b] = f64(A[a,b]);  C[i,j] += T[i,k] * B[k,j]`. A register tile
converts what it loads in each of its steps, and broadcasting a converted value takes one instruction more than from memory.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct, field

from polyker.cost.choose import choose
from polyker.cost.measure import Layouts, MeasuredStatement, measure
from polyker.cost.plan import TilePlan, values
from polyker.cost.table import CONVERT, GAIN, NEST, WRITE
from polyker.cost.temporaries import MIN_SEARCHED_CYCLES, room, traffic
from polyker.ir.decision import Decision
from polyker.ir.dtypes import DType
from polyker.ir.expr import Cast, Expr, Literal, Read, replace_parts
from polyker.ir.quasi_affine import indices, indices_of, is_quasi_affine
from polyker.ir.typed import Role, TypedProgram, TypedStatement, replaced
from polyker.machine.model import Target
from polyker.poly.isl import read_set
from polyker.poly.scop import tensor_box
from polyker.rewrite.core.fresh import Fresh
from polyker.structs import replace

# Least uses of an element (chosen).
MIN_USES = 4


def convert_once(
    program: TypedProgram, target: Target, layout: Layouts, budget: int | None = None
) -> tuple[TypedProgram, tuple[Decision, ...]]:
    """Return the program with such operands in temporaries, and what was done in words.

    `budget`: bytes that temporaries may take, if there is a limit.
    """
    found = _Converter(program, target, layout, budget)
    body = replaced(program.body, found.change)
    # First of all, so that nothing comes between a reduction and its initialisation.
    return (found.fresh.finish((*found.first, *body)) if found.first else program), tuple(found.notes)


class _Converter(Struct, dict=True):
    """Rewrites statements; `first`: those that convert, `made`: the temporary of each tensor and type."""

    program: TypedProgram
    target: Target
    layout: Layouts
    budget: int | None
    notes: list[Decision] = field(default_factory=list)
    first: list[TypedStatement] = field(default_factory=list)
    made: dict[tuple[str, DType], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fresh = Fresh(self.program)

    def change(self, statement: TypedStatement) -> list[TypedStatement]:
        """Return a statement that reads what is converted."""
        if statement.outer or not statement.reduced:
            return [statement]
        casts = {e for e in values(statement.expr) if isinstance(e, Cast) and self._suits(e)}
        if not casts:
            return [statement]
        for e in sorted(self._paying(statement, casts), key=repr):
            if _key(e) not in self.made:
                self._store(statement, e)

        def read(e: Expr) -> Expr | None:
            if isinstance(e, Cast) and isinstance(e.arg, Read) and _key(e) in self.made and e in casts:
                return replace(e.arg, tensor=self.made[_key(e)], dtype=e.dtype)
            return e if isinstance(e, Read) else None

        return [replace(statement, expr=replace_parts(statement.expr, read))]

    def _suits(self, cast: Cast) -> bool:
        """Whether a value is an input's element, converted, that no gather finds."""
        read = cast.arg
        if not isinstance(read, Read) or read.pad is not None or not all(map(is_quasi_affine, read.subscripts)):
            return False
        tensor = self.program.tensor(read.tensor)
        return tensor.role is Role.INPUT and tensor.dtype.kind != "b" and bool(indices_of(read))

    def _paying(self, statement: TypedStatement, casts: set[Cast]) -> frozenset[Cast]:
        """Return the conversions that had better be made once."""
        measured = measure(self.program, statement, self.layout)
        points = prod(measured.extent(i) for i in statement.iterators)
        if points < MIN_SEARCHED_CYCLES:
            return frozenset()
        free = statement.kept
        plan = choose(measured, free, statement.reduced, self.target)
        each = {e: _converting(plan, e) for e in casts}
        total = points * (plan.cost + sum(each.values()))
        return frozenset(e for e in casts if self._pays(measured, e, points * each[e], points, GAIN * total))

    def _pays(self, measured: MeasuredStatement, cast: Cast, saved: float, points: int, least: float) -> bool:
        access = next((a for a in measured.accesses if a.read == cast.arg), None)
        assert cast.dtype is not None
        if access is None or access.joined > 1:
            return False  # it is read together with its neighbours
        shape = [_constant(e) for e in self.program.tensor(access.tensor).shape]
        known = [e for e in shape if e is not None]
        elements = prod(known) if len(known) == len(shape) else measured.footprint(access)
        size = elements * cast.dtype.itemsize
        if elements * MIN_USES > points or size > room(measured, self.target, self.budget):
            return False
        return saved - (NEST + elements * WRITE + traffic(size, self.target)) > least

    def _store(self, statement: TypedStatement, cast: Cast) -> None:
        """Convert a whole tensor."""
        read = cast.arg
        assert isinstance(read, Read)
        assert cast.dtype is not None
        tensor = self.program.tensor(read.tensor)
        name = self.fresh.temporary("converted", cast.dtype, tensor.shape)
        self.made[_key(cast)] = name
        self.notes.append(Decision(statement.name, f"{tensor.label} is converted once, not where it is read"))
        element = self.fresh.iterators(len(tensor.shape))
        value = replace(cast, arg=replace(read, subscripts=indices(element)))
        box = read_set(tensor_box(self.program, read.tensor))
        self.first.append(self.fresh.sets(box, element, (name, indices(element)), value, statement))


def _constant(extent: Expr) -> int | None:
    """Return an extent that is a constant."""
    return int(extent.value.real) if isinstance(extent, Literal) else None


def _key(cast: Cast) -> tuple[str, DType]:
    """Return what tells the copy of a conversion from others."""
    assert isinstance(cast.arg, Read)
    assert cast.dtype is not None
    return cast.arg.tensor, cast.dtype


def _converting(plan: TilePlan, cast: Cast) -> float:
    """Return the cycles of a point that a tile takes for a conversion."""
    moves = indices_of(cast)
    others = prod(s for i, s in plan.others if i in moves)
    each = plan.chunks * CONVERT if plan.vector in moves else 2 * CONVERT  # and broadcast
    return others * each / (plan.lanes * plan.chunks * prod(s for _, s in plan.others))
