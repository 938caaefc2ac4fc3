"""Hold rows in the registers of a block's threads, where several statements of a launch by rows use their elements.

    R[i, j div 4 mod 256, j div 1024, j mod 4] = X[i,j]       the thread's number, and which of its registers
    m[i] max= R[i, k div 4 mod 256, k div 1024, k mod 4];  …  P[i,j] = exp(R[i, …] - m[i]) / s[i]

An operand is read once from memory, by 16 bytes where all rows begin at a multiple of that; a temporary of the launch needs no
shared memory. A thread's elements have to be few: their places are constants once the loops over them are unrolled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Read, transform
from polyker.ir.quasi_affine import floordiv, indices, lit, mod
from polyker.ir.typed import Role, TypedProgram, TypedStatement
from polyker.machine.model import Gpu
from polyker.poly.isl import union_of
from polyker.poly.scop import image
from polyker.poly.touches import alone, touches
from polyker.rewrite.core.fresh import Fresh
from polyker.schedule.fusion.items import Item
from polyker.schedule.gpu.map import MAX_ACCESS_BYTES, at_once
from polyker.schedule.gpu.rows import RowLaunch
from polyker.schedule.tree.nodes import Promotion
from polyker.structs import replace

# Registers of 32 bits that a thread has for elements of rows; elements of a row for which more threads pay (experience values).
ROW_REGISTERS, ROW_ELEMENTS_PER_THREAD = 32, 16


class _RegisterRow(Struct, frozen=True):
    """A tensor that the items `users` touch at one element for each row and value of their lanes, the lane being dimension
    `along`.

    `copied`: an operand, of which each thread copies its elements before the first of the items. `length`: lanes are below it.
    """

    tensor: str
    users: tuple[int, ...]
    along: int
    length: int
    copied: bool


def in_registers(
    program: TypedProgram, fresh: Fresh, rows: RowLaunch, outside: Iterable[TypedStatement], gpu: Gpu
) -> tuple[RowLaunch, frozenset[int]]:
    """Return a launch whose threads hold what they can of their rows, and the places of the items that copy operands.

    `outside`: the statements of other launches.
    """
    elsewhere = {t.tensor for s in outside for t in touches(s)}
    tensors = dict.fromkeys(t for i in rows.group.items for t in sorted(i.tensors))
    found = [r for t in tensors if (r := _row(program, rows, t, elsewhere)) is not None]
    found.sort(key=lambda r: -len(r.users))
    width, longest = rows.width, max((r.length for r in found), default=0)
    while width < gpu.threads and width * ROW_ELEMENTS_PER_THREAD < longest:
        width *= 2
    side = _side(rows, width, longest)
    rounds, held, room = -(-longest // (side * width)), dict[_RegisterRow, str](), ROW_REGISTERS
    for row in found:
        tensor = program.tensor(row.tensor)
        size = side * rounds * max(1, tensor.dtype.itemsize // 4)
        if 0 < size <= room:
            room -= size
            shape = (*tensor.shape[:-1], lit(width), lit(rounds), lit(side))
            held[row] = fresh.temporary("row", tensor.dtype, shape)
    if not held:
        return rows, frozenset()
    ones = (1,) * (len(rows.group.dims) + 1)
    registers = tuple(Promotion(name, (*ones, rounds, side)) for name in held.values())
    height = rows.height if width == rows.width else 1
    rows = replace(rows, width=width, height=height, registers=registers, side=side, rounds=rounds)
    return _rewritten(program, fresh, rows, held)


def _side(rows: RowLaunch, width: int, length: int) -> int:
    """Return how many neighbouring elements a thread takes at once: 16 bytes, where all rows begin at a multiple of that."""
    side = MAX_ACCESS_BYTES
    for n, item in enumerate(rows.group.items):
        lane = rows.lanes[n]
        for access in item.measured.accesses if lane is not None else ():
            side = at_once(access, str(lane), side)
        extent = _length(rows, n) if lane is not None else length
        while side > 1 and (extent is None or extent % side or extent < side * width):
            side //= 2
    return max(1, side)


def _row(program: TypedProgram, rows: RowLaunch, tensor: str, elsewhere: set[str]) -> _RegisterRow | None:
    """Return how the items of a launch use a tensor by rows, None where nothing is gained by holding it."""
    items = rows.group.items
    own = program.tensor(tensor).role is Role.TEMPORARY and tensor not in elsewhere
    users, length, along = [], 0, None
    for n, item in enumerate(items):
        for touch in item.touches:
            if touch.tensor != tensor:
                continue
            dimension = _along(rows, n, touch.subscripts) if touch.exact else None
            extent = _length(rows, n)
            if dimension is None or extent is None or along not in (None, dimension):
                if own or touch.is_write:
                    return None
                continue
            if touch.is_write and not own:
                return None
            users.append(n)
            length, along = max(length, extent), dimension
    if len(set(users)) < 2 or along is None:
        return None
    return _RegisterRow(tensor, tuple(dict.fromkeys(users)), along, length, not own)


def _length(rows: RowLaunch, n: int) -> int | None:
    """Return a number that an item's lane is below, None where it has other loops within a row, too."""
    item, lane = rows.group.items[n], rows.lanes[n]
    inner = set(item.statement.iterators[item.statement.outer :])
    if lane is None or inner != {lane, *(dim[n] for dim in rows.group.dims)}:
        return None
    lo, count = item.measured.bounds[lane]
    return lo + count if lo is not None and count is not None and lo >= 0 else None


def _along(rows: RowLaunch, n: int, subscripts: tuple[Expr, ...]) -> int | None:
    """Return the dimension that an item's lane walks alone, where the others are the launch's loops, each one of them."""
    found = [alone(s) for s in subscripts]
    want = [(dim[n], 0) for dim in rows.group.dims]
    lane = (rows.lanes[n], 0)
    if lane not in found or [f for f in found if f != lane] != want:
        return None
    return found.index((str(rows.lanes[n]), 0))


def _rewritten(
    program: TypedProgram, fresh: Fresh, rows: RowLaunch, held: Mapping[_RegisterRow, str]
) -> tuple[RowLaunch, frozenset[int]]:
    """Return the launch with its rows in registers, and with the copies of operands before their first use."""
    origins: list[int] = []  # the item of the launch before that each item stands for, or copies for
    items: list[Item] = []
    unrolled: set[int] = set()
    copies: set[int] = set()
    for n, item in enumerate(rows.group.items):
        here = {r.tensor: name for r, name in held.items() if n in r.users}
        for row, name in held.items():
            if row.copied and row.users[0] == n:
                copies.add(len(items))
                copy = _copy(program, fresh, rows, row, name)
                items.append(replace(item, statement=copy, start=None, reduces=False))
        if here:
            unrolled |= {len(items), *copies}
            item = replace(item, statement=_renamed(rows, n, item.statement, here))
        items.append(item)
        origins += [n] * (len(items) - len(origins))
    group = rows.group
    dims = tuple(tuple(dim[n] for n in origins) for dim in group.dims)
    wider = replace(group, items=tuple(items), dims=dims, shifts=tuple((0,) * len(items) for _ in dims))
    lanes = tuple(rows.lanes[n] for n in origins)
    return replace(rows, group=wider, lanes=lanes, unrolled=frozenset(unrolled)), frozenset(copies)


def _element(rows: RowLaunch, n: int) -> tuple[Expr, ...]:
    """Return where an item finds in registers what it touches: in its row the thread, its round, and the element of that."""
    lane = IndexExpr(str(rows.lanes[n]), i64)
    place = (rows.thread(lane.name), floordiv(lane, rows.side * rows.width), mod(lane, rows.side))
    return (*(IndexExpr(dim[n], i64) for dim in rows.group.dims), *place)


def _renamed(rows: RowLaunch, n: int, statement: TypedStatement, names: Mapping[str, str]) -> TypedStatement:
    """Return a statement that uses registers for rows."""
    element = _element(rows, n)

    def moved(e: Expr) -> Expr:
        if isinstance(e, Read) and e.tensor in names and _along(rows, n, e.subscripts) is not None:
            return Read(names[e.tensor], element, dtype=e.dtype)
        return e

    target, subscripts = statement.target, statement.subscripts
    if target in names:
        target, subscripts = names[target], element
    return replace(statement, target=target, subscripts=subscripts, expr=transform(statement.expr, moved))


def _copy(program: TypedProgram, fresh: Fresh, rows: RowLaunch, row: _RegisterRow, name: str) -> TypedStatement:
    """Return the copy of an operand: of all elements that one of its users reads, over the iterators of the first."""
    first = row.users[0]
    elements = []
    for n in row.users:
        statement = rows.group.items[n].statement
        own = dict(zip(_loops(rows, first), _loops(rows, n), strict=True))
        order = [own.get(i, i) for i in rows.group.items[first].statement.iterators]
        elements.append(image(program, statement, order))
    statement, places = rows.group.items[first].statement, indices(_loops(rows, first))
    subscripts = (*places[: row.along], places[-1], *places[row.along : -1])
    source = Read(row.tensor, subscripts, dtype=program.tensor(row.tensor).dtype)
    place = name, _element(rows, first)
    return fresh.sets(union_of(elements).coalesce(), statement.iterators, place, source, outer=statement.outer)


def _loops(rows: RowLaunch, n: int) -> tuple[str, ...]:
    """Return an item's iterators over rows, and its lane."""
    return (*(dim[n] for dim in rows.group.dims), str(rows.lanes[n]))
