"""Decide by cost whether statements are fused, and how many iterations of their common loops form a block.

The model compares cycles. Without fusion the reuse distance between two statements is all that was touched in between; with
fusion it is what one iteration of the common loops touches. Against that stand worse tiles (the common loops are no longer
unrolled or vectorised) and more loop starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import ceil, lcm, prod

from msgspec import Struct

from polyker.cost.blocking import blocking
from polyker.cost.choose import choose
from polyker.cost.measure import UNKNOWN_STRIDE, MemoryAccess, tensor_elements
from polyker.cost.memory import passed
from polyker.cost.own_distances import free_iterators
from polyker.cost.plan import TilePlan
from polyker.cost.table import GAIN_OF_KIND, LOAD, ROW
from polyker.ir.decision import Decision
from polyker.ir.typed import Role, TypedProgram
from polyker.machine.model import Target
from polyker.schedule.fusion.groups import MAX_ITEM_DISTANCE, Group, grow
from polyker.schedule.fusion.items import Item
from polyker.schedule.fusion.move import moved
from polyker.schedule.fusion.zip import paired
from polyker.schedule.nests.scan import scan_plan
from polyker.structs import replace

# The share of a reduction's cycles that it loses where it has no copies of its operands by blocks, as by itself it would have
# (measured of products of 256-square matrices).
UNBLOCKED_LOSS = 0.1
# The share of all cycles by which the model cannot tell one way from another (experience value).
TIE_SHARE = 0.005
# Lines that could have come while a core goes on to another row: its prefetchers begin anew. So many more where rows lie in more
# pages than it keeps addresses of (experience value).
ROW_START_LINES = 4
# Tiles of a block that is tried in any case, besides one, two and as many as a cache holds (chosen).
FEW_TILES = 4


class Fusion(Struct, frozen=True):
    """`rows` common loops run one iteration at a time; `block` iterations of one more run together (0: of no other).

    With neither, the statements have trees of one shape, which become one tree.

    `gain`: cycles won; `total`: those of the unfused statements. `strain`: cycles that each item loses in the common loops;
    `plans`: its tile there.
    """

    group: Group
    rows: int
    block: int
    gain: float
    total: float
    strain: tuple[float, ...] = ()
    plans: tuple[TilePlan, ...] = ()

    @property
    def pays(self) -> bool:
        """Whether the model finds it worth while."""
        return self.gain > GAIN_OF_KIND * self.total

    def decision(self) -> Decision:
        """Return what was chosen and why."""
        names = ", ".join(i.statement.name for i in self.group.items)
        steps = [f"{loop[0]} by {step}" for loop, step in zip(self.loops(), self.steps(), strict=True)]
        if steps:
            later = [f"{i.statement.name} {n}" for i, n in zip(self.group.items, self.shifts()[-1], strict=True) if n]
            steps[-1] += f" ({', '.join(later)} later)" if later else ""
        won = 100 * self.gain / max(1.0, self.total)
        loops = f"loops {', '.join(steps)}" if steps else "their own loops, in one"
        chosen = f"run together: {loops}; the model wins {won:.0f}% of the cycles"
        return Decision(names, chosen, cost=1 - self.gain / max(1.0, self.total))

    def near(self) -> frozenset[str]:
        """Return the tensors that the items write and that go through the caches: what an item reads has to be there, and what
        several write is fetched again."""
        written = [t for i in self.group.items for t in i.writes]
        read = {r.tensor for i in self.group.items for r in i.statement.reads()}
        return frozenset(t for t in written if t in read or written.count(t) > 1)

    def loops(self) -> tuple[tuple[str, ...], ...]:
        """Return the common loops, outermost first, as one iterator an item."""
        return self.group.dims[: self.rows + bool(self.block)]

    def shifts(self) -> tuple[tuple[int, ...], ...]:
        """Return by how many iterations of each common loop each item runs later."""
        return self.group.shifts[: self.rows + bool(self.block)]

    def steps(self) -> tuple[int, ...]:
        """Return how many iterations of each common loop run together."""
        return (1,) * self.rows + ((self.block,) if self.block else ())


# Most items of a group that are left out of it, one after another, in search of a better one (chosen; bounds the search).
MAX_LEFT_OUT = 3


def best_fusion(
    program: TypedProgram, items: list[Item], target: Target
) -> tuple[Fusion, list[Item], list[Item]] | None:
    """Return the best way to run the first item together with others, what runs before and what after; None if none pays."""
    best: tuple[Fusion, list[Item], list[Item]] | None = None
    left: list[Item] = []
    for _ in range(MAX_LEFT_OUT + 1):
        group, before, after = grow(program, items, left)
        found = fusion_of(program, group, target)
        if found is None:
            break
        if best is None or found.gain > best[0].gain:
            best = found, before, after
        worst = max(range(1, len(group.items)), key=lambda n: found.strain[n])
        if found.strain[worst] <= GAIN_OF_KIND * found.total:
            break
        left.append(group.items[worst])
    if best is not None and not best[0].pays and len(best[0].group.dims) < len(items[0].loops):
        group, before, after = grow(program, items, _shallow(program, items))
        deeper = fusion_of(program, group, target)
        best = None if deeper is None else (deeper, before, after)
    if best is not None:
        best = max((best, *_from_producers(program, items, best, target)), key=lambda found: found[0].gain)
    return best if best is not None and best[0].pays else None


def _from_producers(
    program: TypedProgram, items: list[Item], best: tuple[Fusion, list[Item], list[Item]], target: Target
) -> Iterator[tuple[Fusion, list[Item], list[Item]]]:
    """Yield the fusions whose first item is a producer that the best group of the first item reads, and left unfused."""
    fusion, before, _ = best
    for item in before[:MAX_LEFT_OUT]:
        if not any(member.conflicts(item) for member in fusion.group.items):
            continue
        place = items.index(item)
        first = [item]
        for earlier in reversed(items[:place]):
            if any(later.conflicts(earlier) for later in first):
                first.insert(0, earlier)
        needed = first[:-1]
        group, others, later = grow(program, [item, *(i for i in items if i not in first)], [])
        found = fusion_of(program, group, target)
        if found is not None:
            yield found, [*needed, *others], later


def _shallow(program: TypedProgram, items: list[Item]) -> list[Item]:
    """Return the items that share fewer loops with the first one than the next that shares any."""
    group, left = Group.of(items[0]), list[Item]()
    for item in items[1 : MAX_ITEM_DISTANCE + 1]:
        wider = group.joined(program, item)
        if wider is not None and len(group.items) > 1 and len(wider.dims) < len(group.dims):
            left.append(item)
        elif wider is not None:
            group = wider
    return left


def fusion_of(program: TypedProgram, group: Group, target: Target) -> Fusion | None:
    """Return the best way to run a group together, None where there is none."""
    if len(group.items) < 2:
        return None
    costs = _Costs(program, _ordered(group), target)
    found = list(costs.choices())
    if not found:
        return None
    best = max(f.gain for f in found)
    far = costs.part(0, len(group.items), 0, 0) > target.cache(2).size
    alike = [f for f in found if f.gain >= best - TIE_SHARE * f.total * far]
    # What comes from afar: statements that take short turns read, compute and write at the same time.
    return min(alike, key=lambda f: (costs.part(0, len(group.items), f.rows, f.block) if f.loops() else 0, -f.gain))


def _ordered(group: Group) -> Group:
    """Return the group with its loops in the order of memory, the largest strides outermost."""

    def weight(dim: tuple[str, ...]) -> int:
        pairs = zip(group.items, dim, strict=True)
        return max(min(UNKNOWN_STRIDE, abs(a.stride(i))) for item, i in pairs for a in item.measured.accesses)

    return group.loops(tuple(sorted(range(len(group.dims)), key=lambda d: weight(group.dims[d]), reverse=True)))


class _Costs(Struct, dict=True):
    program: TypedProgram
    group: Group
    target: Target

    def __post_init__(self) -> None:
        self.plans: dict[tuple[int, int, bool], TilePlan] = {}
        self.kept: dict[int, frozenset[str]] = {}
        self.blocks: dict[int, bool] = {}
        self.sizes: dict[tuple[int, str, int, int], int] = {}
        self.elements: dict[str, int] = {}

    def choices(self) -> Iterator[Fusion]:
        """Yield the ways to fuse."""
        if all(mate == 0 for mate in self.mates(0)[1:]):
            yield self._fusion(0, 0)
        for rows in range(len(self.group.dims) + 1):
            if rows:
                yield self._fusion(rows, 0)
            if rows and any(self.group.shifts[rows - 1]):
                break  # what waits for a later iteration waits in the innermost common loop
            if rows < len(self.group.dims):
                for block in self._blocks(rows):
                    yield self._fusion(rows, block)

    def mates(self, rows: int) -> list[int | None]:
        """Return of each item which earlier one it shares all its loops with inside so many common ones."""
        plans = tuple(self.plan(n, rows) for n in range(len(self.group.items)))
        return paired(self.program, self.group.items, plans, self.target)

    def plan(self, n: int, rows: int, together: bool = True) -> TilePlan:
        """Return the tile of an item inside so many common loops; not `together`: of an item by itself."""
        if (n, rows, together) not in self.plans:
            item = self.group.items[n]
            fixed = tuple(dim[n] for dim in self.group.dims[:rows])
            invariant = self._steady if together and not item.statement.outer else None
            # It only prefetches tensors that it reads itself.
            invariant = None if invariant is None else invariant & item.tensors
            if (fixed, invariant) not in item.plans:
                item.plans[fixed, invariant] = self._plan(item, fixed, invariant)
            self.plans[n, rows, together] = item.plans[fixed, invariant]
        return self.plans[n, rows, together]

    @cached_property
    def _steady(self) -> frozenset[str]:
        return invariant_tensors(self.group)

    def _plan(self, item: Item, fixed: tuple[str, ...], invariant: frozenset[str] | None) -> TilePlan:
        statement = moved(self.program, item.statement, fixed, len(fixed))
        free = tuple(i for i in item.free if i not in fixed)
        if item.carried in fixed:
            free = free_iterators(self.program, statement)  # in one step more may move
        reduced = item.statement.reduced if item.reduces else ()
        measured = replace(item.measured, statement=statement, invariant=invariant)
        plan = choose(measured, free, reduced, self.target)
        if not item.reduces and len(free) < len(statement.iterators) - statement.outer:
            plan = scan_plan(self.program, measured, plan, free, self.target)[0]
        return plan

    def _blocks(self, rows: int) -> Iterator[int]:
        """Yield how many iterations of the next loop may run together: whole tiles of all items, within the caches."""
        dim = self.group.dims[rows]
        step, starts = 1, list[int]()
        for n, item in enumerate(self.group.items):
            plan = self.plan(n, rows)
            if plan.packs_result or not {r.tensor for r in plan.packed} <= invariant_tensors(self.group):
                return
            step = lcm(step, plan.size(dim[n]))
            starts.append(item.measured.lo(dim[n]) + self.group.shifts[rows][n])
        if len({start % step for start in starts}) > 1:
            return
        one = self.part(0, len(self.group.items), rows, 1)
        two = self.part(0, len(self.group.items), rows, 2)
        each, fixed = max(1, two - one), max(0, 2 * one - two)
        extent = max(i.measured.extent(dim[n]) for n, i in enumerate(self.group.items))
        most = self.target.caches[-1].size * 3 // 4 - fixed
        found = {n * step for n in (1, 2, FEW_TILES) if n * step * each <= most}
        for room in (self.target.caches[0].size // 2, self.target.cache(2).size * 3 // 4):
            count = (room - fixed) // (each * step)
            if count > 0:
                found.add(min(step * (1 << count.bit_length() - 1), -(-extent // step) * step))
        # Statements without instances have no block, and all iterations are none.
        yield from sorted(b for b in found if 0 < b < extent or b == step)

    def _fusion(self, rows: int, block: int) -> Fusion:
        items = self.group.items
        last = len(items)
        points = [float(prod(i.measured.extent(x) for x in i.measured.bounds)) for i in items]
        steps = (1,) * rows + ((block,) if block else ())
        turns = self._turns(steps)
        separate = sum(p * self.plan(n, 0, False).cost for n, p in enumerate(points))
        strain = [p * (self.plan(n, rows).cost - self.plan(n, 0, False).cost) for n, p in enumerate(points)]
        together = separate + ROW * sum(self._turns(steps, n) for n in range(last))
        # What a later item finds of what an earlier one touched.
        total = sum(self._whole)
        seen: dict[str, int] = {}
        local = self.local(len(steps))
        waits = 1 + max(self.group.shifts[len(steps) - 1]) / steps[-1] if steps else 1.0
        mates = self.mates(rows)
        for n, item in enumerate(items):
            for tensor in self._tensors(item):
                size = self._bytes(n, tensor, 0, 0)
                if tensor in seen:
                    separate += size * passed(self.target, sum(self._whole[seen[tensor] : n]))
                    if mates[n] is None or mates[n] != seen[tensor]:
                        together += size * passed(self.target, waits * self.part(seen[tensor], n, rows, block))
                else:
                    separate += size * passed(self.target, total)
                    held = self._bytes(n, tensor, rows, block) if tensor in local else size
                    together += held * passed(self.target, total)
                seen[tensor] = n
        # What each iteration reads anew.
        inside = passed(self.target, self.part(0, last, rows, block))
        if inside and steps:
            for n, item in enumerate(items):
                mine = {dim[n] for dim in self.group.dims[: len(steps)]}
                own = 0.0 if item.reduces else passed(self.target, self.part(n, n + 1, rows, block))
                for a in item.measured.accesses:
                    if not any(a.stride(i) for i in mine):
                        strain[n] += turns * self._size(item, a, {}) * max(0.0, inside - own)
        for n in range(last if steps else 0):
            strain[n] += UNBLOCKED_LOSS * points[n] * self.plan(n, 0, False).cost * self._loses_blocks(n, rows)
        for n, again in enumerate(self._again(rows, block, turns, local)):
            strain[n] += again
        for n, lost in self._jumps(rows, block, local).values():
            strain[n] += lost * passed(self.target, total)
        together += sum(strain)
        plans = tuple(self.plan(n, rows) for n in range(last))
        for n, mate in enumerate(mates):
            if mate is not None:  # one loop for both, and what both read is loaded once
                together -= turns * ROW + points[n] * LOAD / plans[n].lanes
        return Fusion(self.group, rows, block, separate - together, separate, tuple(strain), plans)

    def _loses_blocks(self, n: int, rows: int) -> bool:
        """Whether an item by itself would compute on copies of its operands, by blocks, and has none in common loops."""
        item, plan = self.group.items[n], self.plan(n, 0, False)
        if not item.reduces or plan.packs_result or self.plan(n, rows).packed:
            return False
        if n not in self.blocks:
            statement = item.statement
            kept = tuple(i for i in statement.iterators[statement.outer :] if i not in statement.reduced)
            found = blocking(item.measured, plan, kept, self.target)
            self.blocks[n] = found is not None and bool(found.packs_columns or found.packs_rows)
        return self.blocks[n]

    def _again(self, rows: int, block: int, turns: float, local: frozenset[str]) -> list[float]:
        """Return the cycles that each item loses because iterations read parts of cache lines that others read, too."""
        parts = []
        for n, item in enumerate(self.group.items):
            fixed = self._fixed(n, rows, block)
            moving = [a for a in item.measured.accesses if a.tensor not in local and any(a.stride(i) for i in fixed)]
            parts.append([(self._lines(item, a, fixed), self._lines(item, a, {})) for a in moving])
        far = passed(self.target, sum(part for item in parts for part, _ in item))
        return [sum(max(0.0, turns * part - whole) for part, whole in item) * far for item in parts]

    def _jumps(self, rows: int, block: int, local: frozenset[str]) -> dict[str, tuple[int, float]]:
        """Return, of each tensor, the bytes that could have come or gone where iterations go from piece to piece of rows
        instead of on, the first time, and the item that does so."""
        found: dict[str, tuple[int, float]] = {}
        for n, item in enumerate(self.group.items):
            fixed = self._fixed(n, rows, block)
            for a in item.measured.accesses:
                moving = {i: count for i, count in fixed.items() if a.stride(i)}
                if a.tensor in local or not moving:
                    continue
                turns = prod(ceil(item.measured.extent(i) / count) for i, count in moving.items())
                runs, line = self._runs(item, a, fixed), self.target.caches[0].line
                most = self._size(item, a, {}) // line  # a line comes once
                lines = max(0, min(turns * runs, most) - self._runs(item, a, {})) * (
                    ROW_START_LINES if runs <= self.target.memory.pages else 2 * ROW_START_LINES
                )
                known = found.get(a.tensor, (n, 0.0))
                found[a.tensor] = max(known, (n, float(lines * line)), key=lambda f: f[1])
        return found

    def _runs(self, item: Item, access: MemoryAccess, fixed: dict[str, int]) -> int:
        """Return how many runs of neighbouring lines an access has while some iterators have only so many values, 0 where it is
        one: the next values go on from there."""
        reach, runs = self.target.caches[0].line // access.itemsize, 1
        for step, i in sorted((abs(access.stride(i)), i) for i in access.strides if access.stride(i)):
            extent = fixed.get(i, item.measured.extent(i))
            if step <= reach:
                reach = max(reach, (extent - 1) * step + min(step, reach))
            else:
                runs *= extent
        return runs if runs > 1 else 0

    def _lines(self, item: Item, access: MemoryAccess, fixed: dict[str, int]) -> int:
        """Return the bytes of the cache lines that an access reaches while some iterators have only so many values."""
        line = self.target.caches[0].line
        elements, near, reach = 1, 1, 1
        for i in access.strides:
            extent, step = fixed.get(i, item.measured.extent(i)), abs(access.stride(i))
            if step * access.itemsize >= line:
                elements *= extent
            elif step:
                near, reach = near * extent, reach + (extent - 1) * step
        return elements * min(near, ceil(reach * access.itemsize / line)) * line

    def _turns(self, steps: tuple[int, ...], item: int | None = None) -> float:
        """Return how many iterations the common loops have, those in which one item runs or all of them."""
        turns, items = 1.0, range(len(self.group.items)) if item is None else (item,)
        for dim, step in zip(self.group.dims, steps, strict=False):
            turns *= ceil(max(self.group.items[n].measured.extent(dim[n]) for n in items) / step)
        return turns

    def local(self, loops: int) -> frozenset[str]:
        """Return the temporaries of which so many common loops keep a part at a time."""
        if loops not in self.kept:
            self.kept[loops] = local_tensors(self.program, self.group, loops)
            for depth in range(1, loops + 1):
                self.kept[loops] |= rolling_tensors(self.program, self.group, depth)
        return self.kept[loops]

    @cached_property
    def _whole(self) -> list[int]:
        return [self.part(n, n + 1, 0, 0) for n in range(len(self.group.items))]

    def part(self, first: int, last: int, rows: int, block: int) -> int:
        """Return the bytes that items touch in one iteration of the common loops, each tensor once."""
        found: dict[str, int] = {}
        for n in range(first, last):
            for tensor in self._tensors(self.group.items[n]):
                found[tensor] = max(found.get(tensor, 0), self._bytes(n, tensor, rows, block))
        return sum(found.values())

    def _tensors(self, item: Item) -> tuple[str, ...]:
        return tuple(dict.fromkeys(a.tensor for a in item.measured.accesses))

    def _bytes(self, n: int, tensor: str, rows: int, block: int) -> int:
        place = n, tensor, rows, block
        if place not in self.sizes:
            item, fixed = self.group.items[n], self._fixed(n, rows, block)
            self.sizes[place] = max(self._size(item, a, fixed) for a in item.measured.accesses if a.tensor == tensor)
        return self.sizes[place]

    def _fixed(self, n: int, rows: int, block: int) -> dict[str, int]:
        """Return the iterators of an item of which an iteration of the common loops has one value, or a block of them."""
        fixed = {dim[n]: 1 for dim in self.group.dims[:rows]}
        if block:
            fixed[self.group.dims[rows][n]] = block
        return fixed

    def _size(self, item: Item, access: MemoryAccess, fixed: dict[str, int]) -> int:
        """Return the bytes of an access while some iterators have only so many values."""
        elements = prod(fixed.get(i, item.measured.extent(i)) for i in access.strides if access.stride(i))
        if access.tensor not in self.elements:
            self.elements[access.tensor] = tensor_elements(self.program, access.tensor)
        return min(elements, self.elements[access.tensor]) * access.itemsize


def invariant_tensors(group: Group) -> frozenset[str]:
    """Return the tensors that the items read and none writes, of which copies can be made before their common loops.

    Inside a loop of the text there are none: such copies have no iterator of it.
    """
    if any(i.statement.outer for i in group.items):
        return frozenset()
    return frozenset().union(*(i.tensors for i in group.items)) - frozenset().union(*(i.writes for i in group.items))


def local_tensors(program: TypedProgram, group: Group, loops: int) -> frozenset[str]:
    """Return the temporaries of which every value is written and read in one iteration of the group's first `loops` loops."""
    return _own(program, group) - frozenset().union(*group.crossing[:loops])


def rolling_tensors(program: TypedProgram, group: Group, loops: int) -> frozenset[str]:
    """Return the temporaries of which iterations of the last of those loops read what earlier ones wrote."""
    if not loops:
        return frozenset()
    return (_own(program, group) & group.crossing[loops - 1]) - frozenset().union(*group.crossing[: loops - 1])


def _own(program: TypedProgram, group: Group) -> frozenset[str]:
    """Return the temporaries that no statement outside the group uses."""
    inside = {s.name for i in group.items for s in (i.statement, i.start, i.epilogue) if s is not None}
    used = {t for i in group.items for t in i.tensors}
    outside = {t.name for t in program.tensors if t.name in used and t.role is not Role.TEMPORARY}
    for s in program.statements():
        if s.name not in inside:
            outside |= {s.target, *(r.tensor for r in s.reads())}
    return frozenset(used - outside)
