"""Emit sums of products of narrow integers: one instruction multiplies and adds several that share 32 bits.

Where a processor has no such instruction (polyker.ir.instructions), and for single elements, the parts are extracted one by one.
"""

from __future__ import annotations

from polyker.codegen.ir.kernel import Const, Convert, KExpr, Load, Op
from polyker.codegen.ir.polynomial import as_constant, minus
from polyker.codegen.llvm.access import memory
from polyker.codegen.llvm.access.scope import EmitterScope
from polyker.codegen.llvm.convert import ElementValue, convert
from polyker.codegen.llvm.operations import real_operation
from polyker.codegen.llvm.text import IRBuilder, Reg, const
from polyker.ir.dtypes import DType
from polyker.ir.instructions import MEANINGS, DotProduct


def dot(b: IRBuilder, op: str, x: Reg, y: Reg, total: Reg | None = None) -> Reg:
    """Return `total + op(x, y)` of a sum of products on i32."""
    row = b.dots.get(op)
    lanes = max(r.lanes for r in (x, y, total) if r is not None)
    if lanes == 1 or row is None:
        sums = _parts(b, MEANINGS[op], x, y)
        return sums if total is None else b.binary("add", total, sums)
    x, y = b.splat(x, lanes), b.splat(y, lanes)
    total = None if total is None else b.splat(total, lanes)
    most = min(b.dot_lanes, max(row.llvm))
    if lanes > most:
        found: Reg | None = None
        for first in range(0, lanes, most):
            here = list(range(first, min(first + most, lanes)))
            piece = dot(b, op, b.lanes(x, here), b.lanes(y, here), None if total is None else b.lanes(total, here))
            found = piece if found is None else _joined_lanes(b, found, piece)
        assert found is not None
        return found
    width = min(w for w in row.llvm if lanes <= w)
    if width > lanes:
        order = [*range(lanes), *[0] * (width - lanes)]
        wide = dot(b, op, *(b.shuffle(r, None, order) for r in (x, y, *(() if total is None else (total,)))))
        return b.lanes(wide, list(range(lanes)))
    factors = _bits(b, x, f"i{8 * row.left.itemsize}"), _bits(b, y, f"i{8 * row.right.itemsize}")
    if not row.accumulates:
        sums = b.call(row.llvm[width], "i32", width, factors)
        return sums if total is None else b.binary("add", total, sums)
    start = b.splat(const(0, "i32"), width) if total is None else total
    return b.call(row.llvm[width], "i32", width, (start, *factors))


def _joined_lanes(b: IRBuilder, x: Reg, y: Reg) -> Reg:
    """Return the lanes of x and then those of y, which has no more."""
    if y.lanes == 1:
        wide = b.shuffle(x, None, [*range(x.lanes), 0])
        return b.insert(wide, y, x.lanes)
    wide = b.shuffle(y, None, [*range(y.lanes), *[0] * (x.lanes - y.lanes)]) if y.lanes < x.lanes else y
    return b.shuffle(x, wide, list(range(x.lanes + y.lanes)))


def _bits(b: IRBuilder, reg: Reg, elem: str) -> Reg:
    """Return the bits of a vector (or one element) as elements of another width."""
    lanes = reg.lanes * int(reg.elem[1:]) // int(elem[1:])
    kind = elem if lanes == 1 else f"<{lanes} x {elem}>"
    return b.pure(f"bitcast {reg.typed} to {kind}", elem, lanes, (reg,))


def _parts(b: IRBuilder, row: DotProduct, x: Reg, y: Reg) -> Reg:
    """Return the sum of the products, part by part."""
    found: Reg | None = None
    for p in range(row.terms):
        product = b.binary("mul", _part(b, x, row.left, p), _part(b, y, row.right, p))
        found = product if found is None else b.binary("add", found, product)
    assert found is not None
    return found


def _part(b: IRBuilder, x: Reg, kind: DType, part: int) -> Reg:
    return (_signed if kind.kind == "i" else _unsigned)(b, x, 8 * kind.itemsize, part)


def _signed(b: IRBuilder, x: Reg, bits: int, part: int) -> Reg:
    high = b.binary("shl", x, const(32 - bits * (part + 1), "i32"))
    return b.binary("ashr", high, const(32 - bits, "i32"))


def _unsigned(b: IRBuilder, x: Reg, bits: int, part: int) -> Reg:
    return b.binary("and", b.binary("lshr", x, const(bits * part, "i32")), const((1 << bits) - 1, "i32"))


def join(e: EmitterScope, expr: Op) -> ElementValue:
    """Return narrow integers side by side in 32 bits, the first lowest; neighbours in memory are read at once."""
    b = e.b
    found = _neighbours(e, expr.args) if e.lanes.count > 1 else None
    if found is not None:
        return ElementValue(expr.dtype, _bits(b, found.re, "i32"))
    bits = 32 // len(expr.args)
    total: Reg | None = None
    for p, arg in enumerate(expr.args):
        part = b.convert("zext", e.value(arg).re, "i32")
        part = b.binary("shl", part, const(bits * p, "i32"))
        total = part if total is None else b.binary("or", total, part)
    assert total is not None
    return ElementValue(expr.dtype, total)


def _neighbours(e: EmitterScope, args: tuple[KExpr, ...]) -> ElementValue | None:
    """Return the values of expressions that differ in neighbouring elements alone, lane by lane and side by side."""
    first = args[0]
    if all(a == first for a in args):
        is_whole = isinstance(first, Const) and first.dtype.is_integer
        return e.value(first) if is_whole else None
    match first:
        case Load(buffer=buffer, predicate=None):
            loads = [a for a in args if isinstance(a, Load) and a.buffer == buffer and a.predicate is None]
            return _neighbour_elements(e, loads) if len(loads) == len(args) else None
        case Convert(arg=inner, dtype=dtype):
            same = [a.arg for a in args if isinstance(a, Convert) and a.dtype == dtype and a.arg.dtype == inner.dtype]
            found = _neighbours(e, tuple(same)) if len(same) == len(args) else None
            return None if found is None else convert(e.b, found, dtype)
        case Op(op="add" | "mul" | "sub" | "neg" as op, args=inside, dtype=dtype) if dtype.is_integer:
            like = [a.args for a in args if isinstance(a, Op) and a.op == op and len(a.args) == len(inside)]
            if len(like) != len(args):
                return None
            parts = [_neighbours(e, column) for column in zip(*like, strict=True)]
            known = [p.re for p in parts if p is not None]
            return real_operation(e.b, op, known, dtype, dtype) if len(known) == len(parts) else None
        case _:
            return None


def _neighbour_elements(e: EmitterScope, loads: list[Load]) -> ElementValue | None:
    """Return the elements of loads if together, over the lanes, they are neighbours in memory, in that order."""
    count, place = len(loads), e.places[loads[0].buffer]
    first = e.offset(loads[0].buffer, loads[0].indices)
    for p, load in enumerate(loads):
        step = as_constant(minus(e.offset(load.buffer, load.indices), first))
        if step != p:
            return None
    base, step_of_lanes, varying = e.split(first)
    if varying or as_constant(step_of_lanes) != count or place.buffer.dtype.is_complex:
        return None
    mask = e.lanes.mask
    if mask is not None:
        mask = e.b.shuffle(mask, None, [k // count for k in range(count * mask.lanes)])
    return memory.load_vector(e.b, place, e.pointer(place, base), count * e.lanes.count, mask)
