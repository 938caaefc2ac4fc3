"""Split long sums from memory into distant pieces that are read side by side, where they come sooner so.

Before: `s += x[i] * y[i]` for n terms. After, for 4 pieces of r terms, which are rows of a tile in registers, and the rest:

    P[q] += x[q*r + l] * y[q*r + l];  s += P[q];  s += x[i] * y[i] for i in 4*r:n
"""

from __future__ import annotations

from polyker.cost.measure import MeasuredStatement
from polyker.cost.memory import rows_at_once
from polyker.cost.plan import TilePlan
from polyker.ir.quasi_affine import lit
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.machine.model import PAGE, Target
from polyker.poly.boxes import corners
from polyker.poly.isl import dim, read_set
from polyker.poly.scop import domain_text
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.reductions.split_sum import SumCut, split_sum
from polyker.structs import replace

# Greatest place of a result that is near the first one: partial results have places of their own from there on (chosen).
MAX_ADJACENT_PLACE = 64
# A statement and the start of its elements.
StartedPart = tuple[TypedStatement, TypedStatement | None]


def by_pieces(
    program: TypedProgram,
    fresh: Fresh,
    measured: MeasuredStatement,
    plan: TilePlan,
    start: TypedStatement | None,
    target: Target,
) -> list[StartedPart]:
    """Return what stands for a sum of all elements of operands from memory, in order; nothing where it had better be taken
    whole."""
    statement, along = measured.statement, plan.vector
    if rows_at_once(target) < 2 or along is None or along not in statement.reduced or program.sizes:
        return []
    if statement.outer or statement.in_order or program.tensor(statement.target).dtype != statement.acc:
        return []
    least, extent = measured.bounds[along]
    others = [i for i in statement.iterators if i != along]
    if (
        least != 0
        or extent is None
        or any(measured.extent(i) > 1 or not 0 <= measured.lo(i) < MAX_ADJACENT_PLACE for i in others)
    ):
        return []
    reads = [a for a in measured.accesses if not a.is_write and a.stride(along)]
    if not reads or any(a.stride(along) != 1 for a in reads):
        return []
    if not target.from_memory(sum(a.itemsize * measured.footprint(a) for a in reads)):
        return []
    count = round(rows_at_once(target) / len(reads))
    run = extent // max(1, count) // PAGE * PAGE
    domain = read_set(statement.domain)
    if count < 2 or run == 0 or corners(domain) is None:
        return []
    place, end = statement.iterators.index(along), count * run
    whole = replace(statement, domain=domain_text(domain.upper_bound_val(dim.set, place, end - 1), statement.name))
    shape = tuple(lit(measured.lo(i) + 1) for i in others if i not in statement.reduced)
    split = split_sum(program, fresh, whole, SumCut(along, count, run), shape)
    found: list[StartedPart] = [(split.partial, split.start), (split.fold, start)]
    if end < extent:
        name = fresh.statement()
        behind = domain_text(domain.lower_bound_val(dim.set, place, end), name)
        found.append((replace(statement, name=name, domain=behind, defines=None), None))
    return found
