"""Time loops in blocks of steps: statements inside a block, and those that stand for all of its steps at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, Index
from polyker.ir.quasi_affine import add, lit, scale, substitute
from polyker.ir.typed import TypedStatement
from polyker.poly.isl import Set, read_map, read_set
from polyker.poly.scop import domain_text
from polyker.rewrite.fresh import Fresh

# Steps of a block: enough that what a tile loads and stores is little beside its terms, few enough that what is left for the
# single steps is a small part. Blocks of a loop, at least.
STEPS, LEAST_BLOCKS = (64, 32, 16, 8), 12


def steps_of(first: int, last: int) -> int | None:
    """Return how many steps a block of a loop has, None where the loop is too short for blocks."""
    return next((n for n in STEPS if last - first + 1 >= LEAST_BLOCKS * n), None)


def in_block(s: TypedStatement, domain: Set, name: str, number: str, first: int, steps: int) -> TypedStatement:
    """Return a part of a statement inside the loop over blocks, `number`, and that over their steps."""
    iterators = (number, *s.iterators)
    onto = read_map(
        f"{{ {s.name}[{', '.join(s.iterators)}] -> {name}[{', '.join(iterators)}] : "
        f"{number} = floor(({s.iterators[0]} - {first})/{steps}) }}"
    )
    return replace(s, name=name, iterators=iterators, outer=s.outer + 1, domain=domain_text(domain.apply(onto), name))


def of_block(
    fresh: Fresh,
    s: TypedStatement,
    domain: Set,
    number: str,
    first: int,
    steps: int,
    bounds: Sequence[tuple[int, int]],
    labels: dict[str, str],
) -> tuple[TypedStatement, str]:
    """Return a statement for all steps of a block at once, its iterators counted from the block's first ones, and the name of the
    one that was the clock.

    `bounds`: of each inner iterator, (slope, offset) of the least value in a block. The clock is the last of the iterators.
    """
    clock, *inner = s.iterators
    names = {i: fresh.iterator() for i in s.iterators}
    labels.update({n: labels.get(i, i) for i, n in names.items()})
    start = add(scale(steps, Index(number, i64)), lit(first))
    values: dict[str, Expr] = {clock: add(start, Index(names[clock], i64))}
    where = [f"{clock} = {steps} * {number} + {first} + {names[clock]}", f"0 <= {names[clock]} < {steps}"]
    for i, (slope, offset) in zip(inner, bounds, strict=True):
        values[i] = add(Index(names[i], i64), add(scale(slope, Index(number, i64)), lit(offset)))
        where.append(f"{i} = {names[i]} + {slope} * {number} + {offset}")
    name = fresh.statement()
    iterators = (number, *(names[i] for i in inner), names[clock])
    onto = read_map(
        f"{{ {s.name}[{', '.join(s.iterators)}] -> {name}[{', '.join(iterators)}] : {' and '.join(where)} }}"
    )
    made = replace(
        s,
        name=name,
        iterators=iterators,
        outer=1,
        domain=domain_text(domain.apply(onto).coalesce(), name),
        subscripts=tuple(substitute(e, values) for e in s.subscripts),
        expr=substitute(s.expr, values),
        reduced=tuple(names[i] for i in s.reduced),
    )
    return made, names[clock]


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
