"""Tiles that are transposed in registers, of a result that exceeds the caches: their rows are stored past them, line by line.

    for i.tile: transpose j: vector i: O[j, i.tile + i] = X[i.tile + i, j]

Where all rows are whole lines and the result begins with one, they pass as they are. A row of a tile has as many bytes as a line,
but arrays, and the rows in them, begin anywhere: a row's first part ends one line, and its last part begins the next. The loop
around goes along the rows, so the last part is kept, in memory of the function's own, and the next tile's row joins it: that is
rotated by the elements that its line has before it, and the two are blended.

    kept  a b . . . .      the next row  A B C D E F      rotated  E F A B C D      stored  a b A B C D      kept  E F . . . .

Where a tile does not go on where the last one ended, what was kept and the new row's first part are stored through the caches.
Places are compared when the loop runs, so nothing has to be known of strides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polyker.codegen.ir.kernel import Const, For, KExpr, LoopKind, Op, Space, Store, Var
from polyker.codegen.ir.polynomial import Poly, as_constant, plus, polynomial, scaled
from polyker.codegen.ir.walk import loaded, statements, substitute
from polyker.codegen.llvm.access import memory
from polyker.codegen.llvm.access.memory import Place
from polyker.codegen.llvm.loops.counted import counted
from polyker.codegen.llvm.loops.interleave import NOWHERE
from polyker.codegen.llvm.operations import logical_not
from polyker.codegen.llvm.text import Reg, const, vector
from polyker.ir.dtypes import bool_

if TYPE_CHECKING:
    from polyker.codegen.ir.kernel import Buffer
    from polyker.codegen.llvm.statements import Statements

# A loop of fewer tiles has too many lines that are stored in two parts.
_LEAST = 12
# What permutes a register's elements of so many bytes.
_ROTATE = {
    2: "llvm.x86.avx512.permvar.hi.512",
    4: "llvm.x86.avx512.permvar.si.512",
    8: "llvm.x86.avx512.permvar.di.512",
}


@dataclass(slots=True)
class _Site:
    """What tiles of one form keep: `step`: how far their rows lie apart; `rows`: how many; `kept` points to the place in the
    result where the next tile's first row begins, to NOWHERE where nothing is kept; `lines` to a vector for each row."""

    step: Poly
    rows: int
    kept: Reg
    lines: Reg


@dataclass(slots=True)
class Tiles:
    """What is kept in the loop around all tiles of a result; `lanes`: the elements of a line."""

    place: Place
    lanes: int
    sites: list[_Site] = field(default_factory=list)


def tiles_of(code: Statements, loop: For) -> Tiles | None:
    """Return what keeps the rows of the tiles in a serial loop; None where they have to be stored at once.

    The result's elements are set once, by one statement, and not read in the loop.
    """
    if code.tiles is not None or not code.b.avx512:
        return None
    inside = list(statements(loop.body))
    tiles = [s for s in inside if isinstance(s, For) and s.kind is LoopKind.TRANSPOSE]
    names = {s.buffer for t in tiles for s in statements(t.body) if isinstance(s, Store)}
    if len(names) != 1 or any(isinstance(s, For) and s.kind is LoopKind.PARALLEL for s in inside):
        return None
    place = code.e.places.get(next(iter(names)))
    if (
        place is None
        or not place.buffer.once
        or place.itemsize not in _ROTATE
        or place.buffer.dtype.is_complex
        or names & loaded(loop.body)
    ):
        return None
    return Tiles(place, code.target.caches[0].line // place.itemsize)


def whole_lines(code: Statements, loop: For) -> Reg | None:
    """Return whether what a TRANSPOSE loop stores begins at a line, so that all its vectors may pass the caches; None where not
    all are whole lines of an argument then, or the arguments fit in the caches.

    Where shapes depend on sizes of the call these are asked when it runs.
    """
    e, line = code.e, code.target.caches[0].line
    inside = list(statements(loop.body))
    names = {s.buffer for s in inside if isinstance(s, Store)}
    place = e.places[next(iter(names))] if len(names) == 1 else None
    if place is None or place.buffer.space is not Space.ARGUMENT or names & loaded(loop.body):
        return None
    asked: list[KExpr] = []
    if not exceed(code, place, asked):
        return None
    for row in _rows(loop):
        if row.trip is None or row.trip * place.itemsize != line:
            return None
        for store in (s for s in row.body if isinstance(s, Store)):
            first = tuple(substitute(i, {row.var: row.lo}) for i in store.indices)
            offset = e.offset(store.buffer, first)
            along = plus(e.offset(store.buffer, store.indices), scaled(offset, -1))
            if along.get((Var(row.var),), 0) != 1 or not split_by_lines(code, place, offset, asked):
                return None
    return begins(code, place, line, asked)


def split_by_lines(code: Statements, place: Place, offset: Poly, asked: list[KExpr]) -> bool:
    """Whether each part of an offset may be a number of whole lines; what is to be asked is added."""
    line = code.target.caches[0].line
    for monomial, count in offset.items():
        if count * place.itemsize % line == 0:
            continue
        of_call = tuple(a for a in monomial if _of_call(code, a))
        if not of_call:
            return False
        step = Op("mul", (*of_call, Const(count * place.itemsize)))
        asked.append(Op("eq", (Op("mod", (step, Const(line))), Const(0)), bool_))
    return True


def joined_lines(code: Statements, loop: For) -> Reg | None:
    """Return whether the rows of a tile are to join those of the tile before and pass the caches; None where the arguments fit in
    these, and where its rows are no lines or the loop around does not go along them.

    Where shapes depend on sizes of the call these are asked when it runs.
    """
    tiles, around = code.tiles, code.innermost
    if tiles is None or around is None or not _goes_along(code, tiles, around, loop):
        return None
    asked: list[KExpr] = []
    return begins(code, tiles.place, tiles.place.itemsize, asked) if exceed(code, tiles.place, asked) else None


def _rows(tile: For) -> Iterator[For]:
    """Yield the vector loops of a tile."""
    return (s for s in statements((tile,)) if isinstance(s, For) and s.kind is LoopKind.VECTOR)


def exceed(code: Statements, result: Place, asked: list[KExpr]) -> bool:
    """Whether the arguments may exceed the last cache, and the result a good part of it; what is to be asked is added."""
    last = code.target.caches[-1].size
    places = [p.buffer for p in code.e.places.values() if p.buffer.space is Space.ARGUMENT]
    total = Op("add", tuple(map(_bytes, places)))
    return _may_reach(total, last + 1, asked) and _may_reach(_bytes(result.buffer), last // 4, asked)


def _bytes(buffer: Buffer) -> KExpr:
    return Op("mul", (*buffer.shape, Const(buffer.dtype.itemsize)))


def _may_reach(size: KExpr, least: int, asked: list[KExpr]) -> bool:
    """Whether a number of bytes may be the least or more; where it is not known, what is to be asked is added."""
    known = as_constant(polynomial(size))
    if known is None:
        asked.append(Op("ge", (size, Const(least)), bool_))
    return known is None or known >= least


def begins(code: Statements, place: Place, multiple: int, asked: list[KExpr]) -> Reg:
    """Return whether a buffer begins at a multiple of so many bytes, and all that is asked holds."""
    e, b = code.e, code.b
    address = b.convert("ptrtoint", place.pointer, "i64")
    past = b.compare("icmp eq", b.binary("and", address, const(multiple - 1, "i64")), const(0, "i64"))
    for condition in dict.fromkeys(asked):
        past = b.binary("and", past, e.value(condition).re)
    return past


def _goes_along(code: Statements, tiles: Tiles, around: For, loop: For) -> bool:
    """Whether all that a tile stores are whole rows, and the loop around it goes from row to row along the result."""
    e, name = code.e, tiles.place.buffer.name
    length = as_constant(plus(polynomial(around.hi), scaled(polynomial(around.lo), -1)))
    if length is not None and length < _LEAST * around.step:
        return False
    following = {around.var: Op("add", (Var(around.var), Const(around.step)))}
    for row in _rows(loop):
        if row.trip != tiles.lanes:
            return False
        for store in (s for s in row.body if isinstance(s, Store)):
            if store.buffer != name:
                return False
            there = e.offset(name, tuple(substitute(i, following) for i in store.indices))
            here = e.offset(name, store.indices)
            if here.get((Var(row.var),), 0) != 1 or as_constant(plus(there, scaled(here, -1))) != tiles.lanes:
                return False
    return True


def tile_past(code: Statements, loop: For) -> None:
    """Emit a tile whose rows join those of the tile before and pass the caches."""
    e, b, tiles = code.e, code.b, code.tiles
    assert tiles is not None
    found = e.rows_past = []
    code.past(lambda: code.transpose_loop(loop))
    e.rows_past = None
    site = _site(code, tiles, [base for base, _ in found])
    place = tiles.place
    if site is None:
        for base, data in found:
            memory.store_raw(b, place, e.pointer(place, base), data, None)
        return
    begin = e.uniform(found[0][0])
    kept = b.impure(f"load i64, {site.kept.typed}, align 8", "i64", 1)
    used = [_used(code, tiles, base) for base, _ in found]
    rows = [_rotated(code, tiles, data, n) for (_, data), n in zip(found, used, strict=True)]

    def join() -> None:
        for r, ((base, _), row, n) in enumerate(zip(found, rows, used, strict=True)):
            line = b.select(_before(code, tiles, n), _line(code, tiles, site, const(r, "i64")), row)
            at = memory.offset_pointer(b, place, e.pointer(place, base), b.binary("sub", const(0, "i64"), n))
            memory.store_raw(b, place, at, line, None, code.streamed)
        keep()

    def begin_anew() -> None:
        some = b.compare("icmp ne", kept, const(NOWHERE, "i64"))
        code.either(some, lambda: _through(code, tiles, site, kept, heads=False))
        keep()
        _through(code, tiles, site, begin, heads=True)

    def keep() -> None:
        for r, row in enumerate(rows):
            at = memory.offset_pointer(b, place, site.lines, const(r * tiles.lanes, "i64"))
            b.line(f"  store {row.typed}, {at.typed}, align 64")

    code.either(b.compare("icmp eq", kept, begin), join, begin_anew)
    after = b.binary("add", begin, const(tiles.lanes, "i64"))
    b.line(f"  store {after.typed}, {site.kept.typed}, align 8")


def end_tiles(code: Statements, tiles: Tiles) -> None:
    """Store what was kept of the last rows, if any was."""
    b = code.b
    for site in tiles.sites:
        kept = b.impure(f"load i64, {site.kept.typed}, align 8", "i64", 1)

        def store(site: _Site = site, kept: Reg = kept) -> None:
            _through(code, tiles, site, kept, heads=False)
            b.line(f"  store i64 {NOWHERE}, {site.kept.typed}, align 8")

        code.either(b.compare("icmp ne", kept, const(NOWHERE, "i64")), store)


def _site(code: Statements, tiles: Tiles, bases: list[Poly]) -> _Site | None:
    """Return what keeps rows that begin at the bases, None unless they lie equally far apart whatever the tile is."""
    b, steps = code.b, [plus(x, scaled(y, -1)) for x, y in zip(bases[1:], bases, strict=False)]
    atoms = (a for s in steps[:1] for monomial in s for a in monomial)
    if not steps or any(s != steps[0] for s in steps) or not all(_of_call(code, a) for a in atoms):
        return None
    for site in tiles.sites:
        if (site.step, site.rows) == (steps[0], len(bases)):
            return site
    kept, lines = (Reg(b.name(), "ptr", 1, 0) for _ in range(2))
    kind = f"<{tiles.lanes} x i{8 * tiles.place.itemsize}>"
    b.allocas += [
        f"  {kept.text} = alloca i64, align 8",
        f"  store i64 {NOWHERE}, {kept.typed}, align 8",
        f"  {lines.text} = alloca [{len(bases)} x {kind}], align 64",
    ]
    tiles.sites.append(_Site(steps[0], len(bases), kept, lines))
    return tiles.sites[-1]


def _of_call(code: Statements, atom: KExpr) -> bool:
    return isinstance(atom, Var) and atom.name in code.kernel.integers


def _used(code: Statements, tiles: Tiles, base: Poly) -> Reg:
    """Return how many elements of its line lie before a place in the result; it is the same for rows that whole lines part."""
    b, place = code.b, tiles.place
    within = {m: c % tiles.lanes for m, c in base.items() if c % tiles.lanes}
    elements = memory.element_number(b, place, place.pointer)
    return b.binary("and", b.binary("add", elements, code.e.uniform(within)), const(tiles.lanes - 1, "i64"))


def _rotated(code: Statements, tiles: Tiles, row: Reg, count: Reg) -> Reg:
    """Return a row with its first element in lane `count`."""
    b, bits = code.b, 8 * tiles.place.itemsize
    places = b.binary("sub", _lanes(tiles), b.convert("trunc", count, f"i{bits}"))
    elements = b.convert("bitcast", row, f"i{bits}")
    return b.call(_ROTATE[tiles.place.itemsize], f"i{bits}", tiles.lanes, (elements, places))


def _before(code: Statements, tiles: Tiles, count: Reg) -> Reg:
    """Return the lanes below a number."""
    mask = code.leading(count, tiles.lanes, surely=True).mask
    assert mask is not None
    return mask


def _lanes(tiles: Tiles) -> Reg:
    return vector(list(range(tiles.lanes)), f"i{8 * tiles.place.itemsize}")


def _line(code: Statements, tiles: Tiles, site: _Site, row: Reg) -> Reg:
    """Return what is kept of a row."""
    b, bits = code.b, 8 * tiles.place.itemsize
    at = memory.offset_pointer(b, tiles.place, site.lines, b.binary("mul", row, const(tiles.lanes, "i64")))
    return b.impure(f"load <{tiles.lanes} x i{bits}>, {at.typed}, align 64", f"i{bits}", tiles.lanes)


def _through(code: Statements, tiles: Tiles, site: _Site, begin: Reg, *, heads: bool) -> None:
    """Store the elements of the rows kept that lie before `begin`, the first row's, in its line, or from there on (`heads`)."""
    b, place, step = code.b, tiles.place, code.e.uniform(site.step)

    def store(row: Reg) -> None:
        offset = b.binary("add", begin, b.binary("mul", step, row))
        pointer = memory.offset_pointer(b, place, place.pointer, offset)
        count = b.binary("and", memory.element_number(b, place, pointer), const(tiles.lanes - 1, "i64"))
        at = memory.offset_pointer(b, place, pointer, b.binary("sub", const(0, "i64"), count))
        mask = _before(code, tiles, count)
        memory.store_raw(b, place, at, _line(code, tiles, site, row), logical_not(b, mask) if heads else mask)
        # The rows below begin and end beside these.
        below = memory.offset_pointer(b, place, pointer, b.binary("mul", step, const(site.rows, "i64")))
        memory.prefetch(b, below, 2)

    counted(code, (const(0, "i64"), const(site.rows, "i64"), 1), store, certain=True)
