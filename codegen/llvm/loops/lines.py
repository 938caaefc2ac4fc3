"""Decide whether a tile stores whole lines of a result beyond the caches, by a condition on the call's sizes."""

from __future__ import annotations

from polyker.codegen.ir.kernel import Buffer, Const, For, KExpr, LoopKind, Op, Space, Store, Var
from polyker.codegen.ir.polynomial import Poly, as_constant, minus, polynomial
from polyker.codegen.ir.walk import loaded, loops_of, stored, substitute
from polyker.codegen.llvm.access.memory import BufferPointer
from polyker.codegen.llvm.statements import Statements
from polyker.codegen.llvm.text import Reg, const
from polyker.ir.dtypes import bool_


def whole_lines(code: Statements, loop: For) -> Reg | None:
    """Return whether what a TRANSPOSE loop stores begins at a line, so that streaming stores may take all its vectors; None where
    not all are whole lines of an argument then, or the arguments fit in the caches.

    Where shapes depend on sizes of the call these are asked when it runs.
    """
    e, line = code.e, code.target.caches[0].line
    names = stored(loop.body)
    place = e.places[next(iter(names))] if len(names) == 1 else None
    if place is None or place.buffer.space is not Space.ARGUMENT or names & loaded(loop.body):
        return None
    conditions: list[KExpr] = []
    if not exceed(code, place, conditions):
        return None
    for row in loops_of((loop,), LoopKind.VECTOR):
        if row.trip is None or row.trip * place.itemsize != line:
            return None
        for store in (s for s in row.body if isinstance(s, Store)):
            first = tuple(substitute(i, {row.var: row.lo}) for i in store.indices)
            offset = e.offset(store.buffer, first)
            along = minus(e.offset(store.buffer, store.indices), offset)
            if along.get((Var(row.var),), 0) != 1 or not split_by_lines(code, place, offset, conditions):
                return None
    return begins(code, place, line, conditions)


def split_by_lines(code: Statements, place: BufferPointer, offset: Poly, conditions: list[KExpr]) -> bool:
    """Whether each part of an offset may be a number of whole lines; what is to be asked is added."""
    line = code.target.caches[0].line
    for monomial, count in offset.items():
        if count * place.itemsize % line == 0:
            continue
        sizes = tuple(a for a in monomial if of_call(code, a))
        if not sizes:
            return False
        step = Op("mul", (*sizes, Const(count * place.itemsize)))
        conditions.append(Op("eq", (Op("mod", (step, Const(line))), Const(0)), bool_))
    return True


def exceed(code: Statements, result: BufferPointer, conditions: list[KExpr]) -> bool:
    """Whether the arguments may exceed the last cache, and the result a good part of it; what is to be asked is added."""
    last = code.target.caches[-1].size
    places = [p.buffer for p in code.e.places.values() if p.buffer.space is Space.ARGUMENT]
    total = Op("add", tuple(map(_bytes, places)))
    return _may_reach(total, last + 1, conditions) and _may_reach(_bytes(result.buffer), last // 4, conditions)


def _bytes(buffer: Buffer) -> KExpr:
    return Op("mul", (*buffer.shape, Const(buffer.dtype.itemsize)))


def _may_reach(size: KExpr, least: int, conditions: list[KExpr]) -> bool:
    """Whether a number of bytes may be the least or more; where it is not known, what is to be asked is added."""
    known = as_constant(polynomial(size))
    if known is None:
        conditions.append(Op("ge", (size, Const(least)), bool_))
    return known is None or known >= least


def begins(code: Statements, place: BufferPointer, multiple: int, conditions: list[KExpr]) -> Reg:
    """Return whether a buffer begins at a multiple of so many bytes, and all that is asked holds."""
    e, b = code.e, code.b
    address = b.convert("ptrtoint", place.pointer, "i64")
    past = b.compare("icmp eq", b.binary("and", address, const(multiple - 1, "i64")), const(0, "i64"))
    for condition in dict.fromkeys(conditions):
        past = b.binary("and", past, e.value(condition).re)
    return past


def of_call(code: Statements, atom: KExpr) -> bool:
    """Return whether an index is an integer of the call."""
    return isinstance(atom, Var) and atom.name in code.kernel.integers
