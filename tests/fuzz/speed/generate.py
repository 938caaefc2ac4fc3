"""Random programs: one piece, or two or three that are joined by what the one defines and the next reads."""

from __future__ import annotations

import random

from tests.fuzz.speed import grids, images, products, rows
from tests.fuzz.speed.maker import PIECES, Maker
from tests.fuzz.speed.program import Program

DTYPES = ("f32", "f32", "f32", "f32", "f64", "f64", "i32", "u8", "i16", "f16")
MODULES = (grids, images, products, rows)  # importing them fills PIECES


def generate(seed: int, number: int) -> Program:
    """Return program `number` of a seed; the same for the same two numbers."""
    rng = random.Random(f"speed/{seed}/{number}")
    m = Maker(rng, rng.choice(DTYPES))
    count = rng.choice([1, 1, 2, 2, 2, 3])
    name, x = _first(m)
    for n in range(count):
        if n:
            name = _next(m, x)
            if not name:
                break
        m.families.append(name)
        x = PIECES[name].make(m, x)
    return m.program()


def _picked(m: Maker, rank: int | None, square: bool) -> str:
    """Return the name of a piece that begins with a tensor of that rank, "" if there is none."""
    fitting = [n for n, p in PIECES.items() if rank in (None, p.rank) and m.floating >= p.floats and square >= p.square]
    return m.rng.choices(fitting, [PIECES[n].weight for n in fitting])[0] if fitting else ""


def _first(m: Maker) -> tuple[str, str]:
    """Return the piece that begins, and a new input for it."""
    name = _picked(m, None, square=True)
    piece = PIECES[name]
    if piece.square:
        n = m.size(96, 400)
        return name, m.fresh(n, n)
    if piece.rank == 1:
        return name, m.fresh(m.size(60_000, 600_000))
    if piece.rank == 2:
        columns = m.size(64, 512)
        many = m.size(30_000 // m.value(columns), m.rng.choice([512, 512, 1025, 2048]))
        return name, m.fresh(many, columns if m.rng.random() < 0.85 else many)
    if piece.rank == 3:
        return name, m.fresh(m.size(7, 33), m.size(31, 129), m.size(63, 257))
    return name, m.fresh(m.size(1, 5), m.size(8, 33), m.size(24, 65), m.size(24, 97))


def _next(m: Maker, x: str) -> str:
    """Return a piece that can begin with what the last one defined, "" if there is none."""
    if m.tensors[x].dtype and not any(x in u.results and u.steps for u in m.units):
        return ""  # of another type than the program's
    dims = m.dims(x)
    values = [m.value(d) for d in dims]
    total = 1
    for v in values:
        total *= v
    if not dims or min(values) < 12 - 11 * (len(dims) == 4) or total > 600_000 or (len(dims) == 1 and total < 10_000):
        return ""
    return _picked(m, len(dims), square=len(set(dims)) == 1 and total < 60_000)
