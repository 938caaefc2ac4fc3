"""Choose the register tile of one statement: the cheapest of those that the registers hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf, prod

from polyker.cost.measure import MeasuredStatement, MemoryAccess
from polyker.cost.operation_cost import scalar_cost
from polyker.cost.plan import MAX_TILE_OPERATIONS, TilePlan, unit_iterator, values
from polyker.cost.tile_cost import TileCosts
from polyker.machine.model import Target

# Least uses of each copied element where an operand is packed for a vector that no operand is contiguous along (chosen).
MIN_USES_PER_COPIED_ELEMENT = 32
# Results that are summed at once without vectors (measured on znver4: partial traces take 0.5 to 0.75 of the time).
SCALAR_SUMS = 4

_rank: ContextVar[int] = ContextVar("rank", default=0)


@contextmanager
def alternative(rank: int) -> Iterator[None]:
    """Let `choose` return the tile of that rank by the model: 0 the best. For holding the model to measurements."""
    token = _rank.set(rank)
    try:
        yield
    finally:
        _rank.reset(token)


def choose(
    measured: MeasuredStatement,
    free: Sequence[str],
    reduced: Sequence[str],
    target: Target,
    packed: str | None = None,
    *,
    limit: float = inf,
) -> TilePlan:
    """Return the cheapest tile over the iterators that may be reordered: `free` ones (of the result) and `reduced` ones.

    `packed`: the vector for which operands were copied already. `limit`: of tiles that all cost more any will do.
    """
    rank = _rank.get() if packed is None else 0
    found = ranked(measured, free, reduced, target, packed, best_alone=rank == 0, limit=limit)
    return found[min(rank, len(found) - 1)]


def ranked(
    measured: MeasuredStatement,
    free: Sequence[str],
    reduced: Sequence[str],
    target: Target,
    packed: str | None = None,
    *,
    best_alone: bool = False,
    limit: float = inf,
) -> list[TilePlan]:
    """Return the best tile for each vector iterator and number of vectors, the cheapest first.

    `best_alone`: tiles that cost more than the best one found so far, or `limit`, are left out, and are not counted to the end.
    """
    together = _side_by_side(measured, free, reduced)
    waits = target.fma_latency if reduced and not together else 0
    scalar = TilePlan(None, 1, 1, together, scalar_cost(measured) + waits)
    best: dict[tuple[str | None, int], TilePlan] = {(None, 1): scalar}
    limit = min(limit, scalar.cost) if best_alone else inf
    size = sum(1 for _ in values(measured.statement.expr))
    most = max(MAX_TILE_OPERATIONS, size) // size
    moving = [a for a in measured.accesses if a.strides]
    # Terms that are taken in order cannot be the lanes of a vector.
    folded = () if measured.statement.in_order else reduced
    unit = [i for i in (*free, *folded) if any(abs(a.stride(i)) == 1 for a in moving)]
    unit += [i for i in free if i not in unit and any(unit_iterator(measured, a, i) in reduced for a in moving)]
    unit += [i for i in free if i not in unit and reduced and _could_be_packed(measured, moving, i)]
    # A tile has one value of what decides whether its terms matter.
    unrolled = [i for i in free if i not in measured.statement.seldom]
    unit = [i for i in unit if i not in measured.statement.seldom]
    for vector in (packed,) if packed is not None else unit or (*free, *folded):
        tiles = TileCosts(measured, vector, tuple(reduced), target, may_pack=packed is None)
        for chunks, others in tiles.candidates(unrolled):
            if chunks * prod(s for _, s in others) <= most:
                cost = tiles.cost(chunks, others, limit)
                if cost > limit:
                    continue
                known = best.get((vector, chunks))
                if known is None or cost < known.cost * 0.999:
                    best[vector, chunks] = tiles.plan(chunks, others, cost)
                    limit = cost if best_alone else inf
    return sorted(best.values(), key=lambda p: p.cost)


def _side_by_side(
    measured: MeasuredStatement, free: Sequence[str], reduced: Sequence[str]
) -> tuple[tuple[str, int], ...]:
    """Return the results that are summed at once where each term is one element: (iterator, number), if there are many.

    Such elements lie in lines of their own. A core waits for as many lines as it has instructions for in its window; a sum by
    itself fills half of that with its loop, and waits for each addition.
    """
    many = (i for i in reversed(free) if measured.is_exact(i) and measured.extent(i) >= 2 * SCALAR_SUMS)
    return tuple((i, SCALAR_SUMS) for i in list(many)[:1] if reduced)


def _could_be_packed(measured: MeasuredStatement, moving: list[MemoryAccess], iterator: str) -> bool:
    """Whether copies of all that strides over an iterator would be small beside the arithmetic."""
    over = [a for a in moving if abs(a.stride(iterator)) > 1]
    return bool(over) and all(MIN_USES_PER_COPIED_ELEMENT * measured.footprint(a) <= measured.points for a in over)
