"""Choose the time steps and the extents in space of a time loop's tiles.

Without tiles each step finds what the one before left as far out in the caches as all that a step touches. In a tile of several
steps only the first finds it there; the others find it as far as the tile reaches. Against that stand what slanted tiles read
again at their sides, and more starts of loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import product
from math import ceil, prod

from msgspec import Struct

from polyker.cost.measure import MeasuredStatement
from polyker.cost.memory import passed
from polyker.cost.plan import TilePlan
from polyker.cost.table import GAIN, GAIN_OF_KIND, ROW
from polyker.machine.model import Target
from polyker.schedule.time.skew import Distance, Front, SkewedStatement, reach
from polyker.structs import replace

# Steps, and values of an index in tiles of vectors, that a tile is tried with (chosen); no more are taken for unknown numbers of
# steps.
TILE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class TimeTiles(Struct, frozen=True):
    """`steps` time steps run together, and so many places of each front. `won`: the share of the cycles that the model wins."""

    steps: int
    sizes: tuple[tuple[Front, int], ...]
    won: float = 0.0

    def size(self, dimension: int) -> int | None:
        """Return the tile's size along a dimension of space, None where it is not cut."""
        return next((size for front, size in self.sizes if front.dimension == dimension), None)


class TimeCosts(Struct, frozen=True, dict=True):
    """What the model looks at: the statements of the loop, their tiles in registers, and what one of its steps touches."""

    places: tuple[SkewedStatement, ...]
    measured: tuple[MeasuredStatement, ...]
    plans: tuple[TilePlan, ...]
    found: tuple[Distance, ...]
    fronts: tuple[Front, ...]
    target: Target

    def best(self) -> TimeTiles | None:
        """Return the cheapest tiles, None where none pay."""
        whole = self._bytes(self._extents)
        base = self._moved * passed(self.target, whole)
        if passed(self.target, whole) <= passed(self.target, self.target.cache(2).usable):
            return None  # what the second cache costs is hidden behind the arithmetic
        work = sum(
            p.cost * prod(hi - lo + 1 for i, (lo, hi) in q.bounds.items() if i != q.clock)
            for p, q in zip(self.plans, self.places, strict=True)
        )
        found = [(self._cost(tiles), tiles) for tiles in self._choices()]
        limit = min((cost for cost, _ in found), default=base) + GAIN_OF_KIND * (base + work)
        # Blocks of time are what several threads share.
        near = [(tiles.steps, cost, n) for n, (cost, tiles) in enumerate(found) if cost <= limit]
        if not near:
            return None
        _, cost, n = min(near)
        won = (base - cost) / (base + work)
        return replace(found[n][1], won=won) if won > GAIN else None

    @cached_property
    def steps(self) -> int:
        """The number of time steps; many where it is not known."""
        found = self.places[0].bounds.get(self.places[0].clock)
        return TILE_SIZES[-1] if found is None else found[1] - found[0] + 1

    @cached_property
    def vector(self) -> tuple[int, int] | None:
        """The dimension along which the vectors lie, and the size of which its tiles are multiples; None where there is none."""
        found = set()
        width = 1
        for place, plan in zip(self.places, self.plans, strict=True):
            found |= {n for n, (i, _) in enumerate(place.space) if i is not None and i == plan.vector}
            width = max(width, plan.lanes * plan.chunks)
        return (found.pop(), width) if len(found) == 1 else None

    @cached_property
    def _reach(self) -> dict[int, int]:
        return {f.dimension: reach(f, self.found) for f in self.fronts}

    @cached_property
    def _extents(self) -> tuple[int, ...]:
        extents = []
        for n in range(len(self.places[0].space)):
            ends = [
                (c, c) if i is None else (p.bounds[i][0] + c, p.bounds[i][1] + c)
                for p in self.places
                for i, c in (p.space[n],)
            ]
            extents.append(max(hi for _, hi in ends) - min(lo for lo, _ in ends) + 1)
        return tuple(extents)

    @cached_property
    def _tensors(self) -> tuple[dict[str, tuple[int, frozenset[int]]], ...]:
        """Of each statement the tensors that it touches: bytes of an element, dimensions of space that move it."""
        found = []
        for place, measured in zip(self.places, self.measured, strict=True):
            dims = {i: n for n, (i, _) in enumerate(place.space)}
            mine: dict[str, tuple[int, frozenset[int]]] = {}
            for a in measured.accesses:
                moving = frozenset(dims[i] for i in a.strides if i in dims and a.stride(i))
                known = mine.get(a.tensor, (a.itemsize, frozenset()))
                mine[a.tensor] = (a.itemsize, known[1] | moving)
            found.append(mine)
        return tuple(found)

    @cached_property
    def _moved(self) -> int:
        """The bytes that the statements of a step read and write, each tensor once a statement."""
        return sum(
            size * prod(self._extents[n] for n in dims) for mine in self._tensors for size, dims in mine.values()
        )

    def _bytes(self, extents: tuple[int, ...]) -> int:
        """Return the bytes that are touched within a part of space, each tensor once."""
        found: dict[str, int] = {}
        for mine in self._tensors:
            for tensor, (size, dims) in mine.items():
                found[tensor] = max(found.get(tensor, 0), size * prod(extents[n] for n in dims))
        return sum(found.values())

    def _choices(self) -> Iterator[TimeTiles]:
        counts = dict.fromkeys(_even(self.steps, n) for n in TILE_SIZES[1:] if n < 2 * self.steps)
        choices = [[(f, n) for n in (0, *self._sizes(f))] for f in self.fronts]
        for sizes in product(*choices):
            cut = tuple((f, n) for f, n in sizes if n)
            if cut:
                for count in counts:
                    if count > 1:
                        yield TimeTiles(count, cut)

    def _sizes(self, front: Front) -> Iterator[int]:
        unit = self.vector[1] if self.vector is not None and self.vector[0] == front.dimension else 1
        for n in TILE_SIZES:
            if n * unit < self._extents[front.dimension]:
                yield n * unit

    def _cost(self, tiles: TimeTiles) -> float:
        """Return the cycles that a time step spends on memory and on starting loops."""
        extents = list(self._extents)
        again = rows = near = 1.0
        for n, extent in enumerate(self._extents):
            size = tiles.size(n)
            is_vector = self.vector is not None and n == self.vector[0]
            if size is None:
                rows *= 1 if is_vector else extent
                continue
            front = next(f for f, _ in tiles.sizes if f.dimension == n)
            around, slant = self._reach[n], front.step * (tiles.steps - 1)
            extents[n] = min(extent + around, size + slant + around)
            near *= (size + around) / size
            rows *= ceil((extent + slant) / size) * (1 if is_vector else size)
            if front is not tiles.sizes[-1][0]:
                again *= extents[n] / size
        inside = self._moved * near * passed(self.target, self._bytes(tuple(extents)))
        whole = self._bytes(self._extents)
        return inside + whole * again * passed(self.target, whole) / tiles.steps + rows * ROW * len(self.places)


def _even(steps: int, wanted: int) -> int:
    """Return about `wanted`, so that the tiles are of nearly one size."""
    return ceil(steps / ceil(steps / wanted))
