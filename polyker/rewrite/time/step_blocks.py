"""Block the steps of a time loop: statements within a block, and those for all of its steps at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import islpy as isl
from msgspec import Struct

from polyker.ir.expr import Expr, Read
from polyker.ir.quasi_affine import add, floordiv, index, is_quasi_affine, lit, print_affine, scale
from polyker.ir.typed import TypedLoop, TypedProgram, TypedStatement, statements_of
from polyker.poly.boxes import ends
from polyker.poly.isl import Map, Set, read_map, read_set
from polyker.poly.scop import access_relation, map_onto, parameters
from polyker.poly.symbolic import bounds_of, expected
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import reindexed
from polyker.structs import replace

# Steps of a block that are tried: enough that what a tile loads and stores is little beside its terms, few enough that what is
# left for the single steps is a small part; least blocks of a loop (chosen).
BLOCK_STEPS, MIN_STEP_BLOCKS = (64, 32, 16, 8), 12


def steps_of(first: int, last: int) -> int | None:
    """Return how many steps a block of a loop has, None where the loop is too short for blocks."""
    return next((n for n in BLOCK_STEPS if last - first + 1 >= MIN_STEP_BLOCKS * n), None)


def steps_in(program: TypedProgram, domain: Set) -> tuple[int, int] | None:
    """Return the first step of a statement in a time loop, and the last one, that of the expected sizes; None where the first is
    not known of all sizes, or there is none."""
    low, found = domain.dim_min_val(0), ends(expected(program, domain), 0)
    return (low.to_python(), found[1]) if low.is_int() and found is not None else None


class Blocks(Struct, frozen=True):
    """A time loop that may run by blocks: `accesses`, what its statements write (no read) and read; `first`: the first step;
    `steps`: those of a block."""

    program: TypedProgram
    accesses: tuple[tuple[TypedStatement, Read | None], ...]
    first: int
    steps: int

    def elements(self, s: TypedStatement, read: Read | None) -> Map:
        """Return the elements that the instances of a statement write, or read."""
        tensor, places = (s.target, s.subscripts) if read is None else (read.tensor, read.subscripts)
        return read_map(access_relation(self.program, s, tensor, places)).intersect_domain(read_set(s.domain))

    def block(self, s: TypedStatement) -> Map:
        """Return the number of each instance's block."""
        return self._number(s, f"floor(({s.iterators[0]} - {self.first})/{self.steps})")

    def whole(self, s: TypedStatement, domain: Set) -> Set | None:
        """Return the space of a statement's instances whose block has all its steps; None where the last step is not affine."""
        _, last = bounds_of(domain, 0, self.program)
        if not is_quasi_affine(last):
            return None
        end = add(scale(self.steps, floordiv(add(last, lit(1 - self.first)), self.steps)), lit(self.first))
        head = f"{parameters(self.program)}{{ {s.name}[{', '.join(s.iterators)}]"
        return read_set(f"{head} : {s.iterators[0]} < {print_affine(end)} }}")

    def step(self, s: TypedStatement) -> Map:
        """Return each instance's step."""
        return self._number(s, s.iterators[0])

    def _number(self, s: TypedStatement, number: str) -> Map:
        return map_onto(self.program, s, (number,))

    def writers(self, s: TypedStatement, read: Read) -> Iterator[tuple[TypedStatement, Map]]:
        """Yield the statements that write what one reads, and the pairs of its instances and theirs that do in one block."""
        mine = self.elements(s, read)
        for other, known in self.accesses:
            if known is None and other.target == read.tensor:
                pairs = mine.apply_range(self.elements(other, None).reverse())
                yield other, pairs.intersect(self.block(s).apply_range(self.block(other).reverse()))

    def compared(self, s: TypedStatement, other: TypedStatement, sign: str) -> Map:
        """Return the pairs of instances of which the other's step is "<" or ">" the first one's, or "=", the same."""
        steps = read_map(f"{{ [a] -> [b] : b {sign} a }}")
        return self.step(s).apply_range(steps).apply_range(self.step(other).reverse())


def blocks_of(program: TypedProgram, loop: TypedLoop, first: int, last: int) -> Blocks | None:
    """Return a loop in blocks, None where it is too short, or isl does not see what its statements touch."""
    steps = steps_of(first, last)
    accesses = tuple((s, r) for s in statements_of(loop.body) for r in (None, *dict.fromkeys(s.reads())))
    if steps is None or any(s.iterators[0] != loop.iterator for s, _ in accesses):
        return None
    for s, r in accesses:
        places = s.subscripts if r is None else r.subscripts
        if not all(map(is_quasi_affine, places)) or (r is not None and r.pad is not None):
            return None
    return Blocks(program, accesses, first, steps)


class BlockLoop(Struct, frozen=True):
    """The loop over blocks of steps: its iterator `number`, the `first` step, and how many `steps` a block has."""

    number: str
    first: int
    steps: int


def in_block(fresh: Fresh, s: TypedStatement, domain: Set, name: str, loop: BlockLoop) -> TypedStatement:
    """Return a part of a statement inside the loop over blocks, and that over their steps."""
    iterators = (loop.number, *s.iterators)
    block = f"{loop.number} = floor(({s.iterators[0]} - {loop.first})/{loop.steps})"
    points = domain.apply(map_onto(fresh.program, s, iterators, where=block))
    return replace(reindexed(s, iterators, points, {}, name), outer=s.outer + 1)


def of_block(
    fresh: Fresh,
    s: TypedStatement,
    domain: Set,
    loop: BlockLoop,
    bounds: Sequence[tuple[int, int]],
    labels: dict[str, str],
) -> tuple[TypedStatement, str]:
    """Return a statement for all steps of a block at once, its iterators counted from the block's first ones, and the name of the
    one that was the clock.

    `bounds`: of each inner iterator, (slope, offset) of the least value in a block. The clock is the last of the iterators.
    """
    number, first, steps = loop.number, loop.first, loop.steps
    clock, *inner = s.iterators
    names = {i: fresh.iterator() for i in s.iterators}
    labels.update({n: labels.get(i, i) for i, n in names.items()})
    start = add(scale(steps, index(number)), lit(first))
    values: dict[str, Expr] = {clock: add(start, index(names[clock]))}
    where = [f"{clock} = {steps} * {number} + {first} + {names[clock]}", f"0 <= {names[clock]} < {steps}"]
    for i, (slope, offset) in zip(inner, bounds, strict=True):
        values[i] = add(index(names[i]), add(scale(slope, index(number)), lit(offset)))
        where.append(f"{i} = {names[i]} + {slope} * {number} + {offset}")
    iterators = (number, *(names[i] for i in inner), names[clock])
    points = domain.apply(map_onto(fresh.program, s, iterators, where=" and ".join(where))).coalesce()
    made = reindexed(s, iterators, points, values, fresh.statement(), tuple(names[i] for i in s.reduced))
    return replace(made, outer=1), names[clock]


def least_in_block(points: Set, s: TypedStatement, dimension: int, first: int, steps: int) -> tuple[int, int]:
    """Return (slope, offset) of the least value of an iterator in a block: offset + slope * block, (0, 0) where it is another."""
    name = "least"
    iterators = ", ".join(s.iterators)
    onto = read_map(
        f"{{ {s.name}[{iterators}] -> {name}[floor(({s.iterators[0]} - {first})/{steps}), {s.iterators[dimension]}] }}"
    )
    reached = points.apply(onto)
    # The first block may have nothing yet of what steps before it made.
    numbers = [n for n in range(3) if not reached.fix_val(isl.dim_type.set, 0, isl.Val(n)).is_empty()][:2]
    if len(numbers) < 2:
        return 0, 0
    at = [reached.fix_val(isl.dim_type.set, 0, isl.Val(n)).dim_min_val(1) for n in numbers]
    if any(not v.is_int() for v in at) or numbers[1] != numbers[0] + 1:
        return 0, 0
    slope = at[1].to_python() - at[0].to_python()
    offset = at[0].to_python() - slope * numbers[0]
    whole = read_set(f"{{ {name}[n, x] : x >= {offset} + {slope} * n }}")
    return (slope, offset) if reached.is_subset(whole) else (0, 0)
