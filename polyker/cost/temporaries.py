"""What temporaries between statements cost: their elements, the memory that they may take, and their traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from polyker.cost.measure import MeasuredStatement
from polyker.cost.memory import fresh, passed
from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import lit
from polyker.ir.typed import TypedProgram
from polyker.machine.model import Target
from polyker.poly.isl import read_set
from polyker.poly.symbolic import box_of

# Least cycles of a statement for a search to be worth it (chosen: half a microsecond).
MIN_SEARCHED_CYCLES = 2000.0
# Bytes that temporaries may take in any case (chosen).
TEMPORARY_BYTES = 128 << 20

_insisted: ContextVar[int | None] = ContextVar("insisted", default=None)


@contextmanager
def insist(rank: int) -> Iterator[None]:
    """Let the rewrites make all temporaries that they can; of several ways the one of that rank. For tests."""
    token = _insisted.set(rank)
    try:
        yield
    finally:
        _insisted.reset(token)


def insisted() -> int | None:
    """Return the rank that a test insists on, None where the costs decide."""
    return _insisted.get()


def places(program: TypedProgram, measured: MeasuredStatement) -> Mapping[str, tuple[Expr, Expr]]:
    """Return the least value and the extent of each iterator of a statement."""
    found: dict[str, tuple[Expr, Expr]] = {}
    for d, (i, (lo, extent)) in enumerate(measured.bounds.items()):
        if lo is not None and extent is not None:
            found[i] = lit(lo), lit(extent)
        else:
            (low,), (extent_of,) = box_of(program, read_set(measured.statement.domain), range(d, d + 1))
            found[i] = low, extent_of
    return found


def room(measured: MeasuredStatement, target: Target, budget: int | None) -> int:
    """Return the bytes that temporaries may take: `TEMPORARY_BYTES`, the last cache, or what the statement touches anyway.

    `budget`: the limit that the caller set.
    """
    touched = sum(measured.footprint(a) * a.itemsize for a in measured.accesses)
    wanted = max(TEMPORARY_BYTES, target.caches[-1].size, touched)
    return wanted if budget is None else min(wanted, budget)


def traffic(size: int, target: Target) -> float:
    """Return the cycles to write and to read a temporary of so many bytes."""
    return size * (2 * passed(target, size) + fresh(size))
