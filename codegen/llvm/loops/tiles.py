"""Emit tiles that are transposed in registers, of results beyond the caches: their rows are streaming stores by lines.

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

from collections.abc import Callable

from msgspec import Struct, field

from polyker.codegen.ir.kernel import Const, For, KExpr, LoopKind, Op, Store, Var
from polyker.codegen.ir.polynomial import Poly, as_constant, constant_length, minus
from polyker.codegen.ir.walk import loaded, loops_of, stored, substitute
from polyker.codegen.llvm.access import memory
from polyker.codegen.llvm.access.memory import BufferPointer
from polyker.codegen.llvm.access.transpose import suits
from polyker.codegen.llvm.loops.columns import columns_loop
from polyker.codegen.llvm.loops.interleave import NOWHERE
from polyker.codegen.llvm.loops.lines import begins, exceed, of_call, whole_lines
from polyker.codegen.llvm.loops.serial import counted
from polyker.codegen.llvm.loops.transpose import transpose_loop
from polyker.codegen.llvm.loops.vector import leading
from polyker.codegen.llvm.operations import logical_not
from polyker.codegen.llvm.statements import Statements
from polyker.codegen.llvm.text import Reg, const, vector

# Least tiles of a loop: with fewer, lines at the ends that are stored in two parts are too many (experience value).
_MIN_KEPT_TILES = 12
# What permutes a register's elements of so many bytes.
_ROTATE = {
    2: "llvm.x86.avx512.permvar.hi.512",
    4: "llvm.x86.avx512.permvar.si.512",
    8: "llvm.x86.avx512.permvar.di.512",
}


class _KeptRows(Struct):
    """What tiles of one form keep: `step`: the stride of their rows; `rows`: how many; `kept` points to the place in the
    result where the next tile's first row begins, to NOWHERE where nothing is kept; `lines` to a vector for each row."""

    step: Poly
    rows: int
    kept: Reg
    lines: Reg


class _Tiles(Struct):
    """What is kept in the loop around all tiles of a result; `lanes`: the elements of a line."""

    place: BufferPointer
    lanes: int
    sites: list[_KeptRows] = field(default_factory=list)


class TransposeLoops:
    """The TRANSPOSE loops of one kernel.

    `tiles`: what keeps the rows of tiles, in the loop around them all; `innermost`: the serial loop around what is emitted.
    """

    def __init__(self) -> None:
        self.tiles: _Tiles | None = None
        self.innermost: For | None = None

    def around(self, code: Statements, loop: For) -> Callable[[], None]:
        """Begin to keep the rows of tiles in a serial loop around them; return what stores the last ones."""
        tiles = _tiles_of(code, loop) if self.tiles is None else None
        outer, self.innermost, self.tiles = self.innermost, loop, tiles or self.tiles

        def end() -> None:
            self.innermost = outer
            if tiles is not None:
                _end_tiles(code, tiles)
                self.tiles = None

        return end

    def loop(self, code: Statements, loop: For) -> None:
        """Store a tile, by streaming stores where its rows are part of a result that exceeds them."""
        if not suits(loop):
            columns_loop(code, loop)
        elif code.e.columns is not None:
            transpose_loop(code, loop)
        else:
            self._tile(code, loop)

    def _tile(self, code: Statements, loop: For) -> None:
        ways = [(whole_lines(code, loop), lambda: code.past(lambda: transpose_loop(code, loop)))]
        if (tiles := self.tiles) is not None and self.innermost is not None:
            joined = _joined_lines(code, tiles, self.innermost, loop)
            ways.append((joined, lambda: _tile_past(code, tiles, loop)))
        _first_of(code, [(c, emit) for c, emit in ways if c is not None], lambda: transpose_loop(code, loop))


def _first_of(code: Statements, ways: list[tuple[Reg, Callable[[], None]]], otherwise: Callable[[], None]) -> None:
    """Emit the first way by streaming stores whose condition holds, else what goes through the caches."""
    if not ways:
        otherwise()
        return
    code.streams = code.streamed_anywhere = True
    (condition, emit), *rest = ways
    code.either(condition, emit, lambda: _first_of(code, rest, otherwise))


def _tiles_of(code: Statements, loop: For) -> _Tiles | None:
    """Return what keeps the rows of the tiles in a serial loop; None where they have to be stored at once.

    The result's elements are set once, by one statement, and not read in the loop.
    """
    if not code.b.avx512:
        return None
    names = {name for tile in loops_of(loop.body, LoopKind.TRANSPOSE) for name in stored(tile.body)}
    if len(names) != 1 or any(loops_of(loop.body, LoopKind.PARALLEL)):
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
    return _Tiles(place, code.target.caches[0].line // place.itemsize)


def _joined_lines(code: Statements, tiles: _Tiles, around: For, loop: For) -> Reg | None:
    """Return whether the rows of a tile are to join those of the tile before, by streaming stores; None where the arguments
    fit in the caches, and where its rows are no lines or the loop around does not go along them.

    Where shapes depend on sizes of the call these are asked when it runs.
    """
    if not _goes_along(code, tiles, around, loop):
        return None
    needs: list[KExpr] = []
    return begins(code, tiles.place, tiles.place.itemsize, needs) if exceed(code, tiles.place, needs) else None


def _goes_along(code: Statements, tiles: _Tiles, around: For, loop: For) -> bool:
    """Whether all that a tile stores are whole rows, and the loop around it goes from row to row along the result."""
    e, name = code.e, tiles.place.buffer.name
    length = constant_length(around)
    if length is not None and length < _MIN_KEPT_TILES * around.step:
        return False
    following = {around.var: Op("add", (Var(around.var), Const(around.step)))}
    for row in loops_of((loop,), LoopKind.VECTOR):
        if row.trip != tiles.lanes:
            return False
        for store in (s for s in row.body if isinstance(s, Store)):
            if store.buffer != name:
                return False
            there = e.offset(name, tuple(substitute(i, following) for i in store.indices))
            here = e.offset(name, store.indices)
            if here.get((Var(row.var),), 0) != 1 or as_constant(minus(there, here)) != tiles.lanes:
                return False
    return True


def _tile_past(code: Statements, tiles: _Tiles, loop: For) -> None:
    """Emit a tile whose rows join those of the tile before, by streaming stores."""
    e, b = code.e, code.b
    found = e.rows_past = []
    code.past(lambda: transpose_loop(code, loop))
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


def _end_tiles(code: Statements, tiles: _Tiles) -> None:
    """Store what was kept of the last rows, if any was."""
    b = code.b
    for site in tiles.sites:
        kept = b.impure(f"load i64, {site.kept.typed}, align 8", "i64", 1)

        def store(site: _KeptRows = site, kept: Reg = kept) -> None:
            _through(code, tiles, site, kept, heads=False)
            b.line(f"  store i64 {NOWHERE}, {site.kept.typed}, align 8")

        code.either(b.compare("icmp ne", kept, const(NOWHERE, "i64")), store)


def _site(code: Statements, tiles: _Tiles, bases: list[Poly]) -> _KeptRows | None:
    """Return what keeps rows that begin at the bases, None unless they lie equally far apart whatever the tile is."""
    b, steps = code.b, [minus(x, y) for x, y in zip(bases[1:], bases, strict=False)]
    atoms = (a for s in steps[:1] for monomial in s for a in monomial)
    if not steps or any(s != steps[0] for s in steps) or not all(of_call(code, a) for a in atoms):
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
    tiles.sites.append(_KeptRows(steps[0], len(bases), kept, lines))
    return tiles.sites[-1]


def _used(code: Statements, tiles: _Tiles, base: Poly) -> Reg:
    """Return how many elements of its line lie before a place in the result; it is the same for rows that whole lines part."""
    b, place = code.b, tiles.place
    within = {m: c % tiles.lanes for m, c in base.items() if c % tiles.lanes}
    elements = memory.element_number(b, place, place.pointer)
    return b.binary("and", b.binary("add", elements, code.e.uniform(within)), const(tiles.lanes - 1, "i64"))


def _rotated(code: Statements, tiles: _Tiles, row: Reg, count: Reg) -> Reg:
    """Return a row with its first element in lane `count`."""
    b, bits = code.b, 8 * tiles.place.itemsize
    places = b.binary("sub", _lanes(tiles), b.convert("trunc", count, f"i{bits}"))
    elements = b.convert("bitcast", row, f"i{bits}")
    return b.call(_ROTATE[tiles.place.itemsize], f"i{bits}", tiles.lanes, (elements, places))


def _before(code: Statements, tiles: _Tiles, count: Reg) -> Reg:
    """Return the lanes below a number."""
    mask = leading(code, count, tiles.lanes, surely=True).mask
    assert mask is not None
    return mask


def _lanes(tiles: _Tiles) -> Reg:
    return vector(list(range(tiles.lanes)), f"i{8 * tiles.place.itemsize}")


def _line(code: Statements, tiles: _Tiles, site: _KeptRows, row: Reg) -> Reg:
    """Return what is kept of a row."""
    b, bits = code.b, 8 * tiles.place.itemsize
    at = memory.offset_pointer(b, tiles.place, site.lines, b.binary("mul", row, const(tiles.lanes, "i64")))
    return b.impure(f"load <{tiles.lanes} x i{bits}>, {at.typed}, align 64", f"i{bits}", tiles.lanes)


def _through(code: Statements, tiles: _Tiles, site: _KeptRows, begin: Reg, *, heads: bool) -> None:
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

    counted(b, (const(0, "i64"), const(site.rows, "i64"), 1), store, certain=True)
