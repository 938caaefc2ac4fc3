"""Emit SCAN loops: each element combines the one before with a term, by an associative operator.

    for t in lo:hi: S[t] = max(S[t-1], X[t])       before = S[lo-1]
                                                   for each vector x of X: x = x max (x, one lane on) max (two lanes on) …
                                                                           S[…] = before max x; before = before max (last of x)

Of a vector of n terms log2(n) steps give what its first k lanes come to, for each k; vector for vector only what stands before
is waited for, one operation long.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from polyker.codegen.ir.kernel import Const, For, KExpr, Load, LoopKind, Op, StmtBlock, Store, Var
from polyker.codegen.ir.polynomial import as_constant, constant, minus, plus
from polyker.codegen.ir.walk import loads_in, substitute, values_of
from polyker.codegen.llvm.access import memory
from polyker.codegen.llvm.access.strided import store_backwards
from polyker.codegen.llvm.convert import ElementValue
from polyker.codegen.llvm.expressions import LlvmExpressions
from polyker.codegen.llvm.loops.columns import columns_loop
from polyker.codegen.llvm.loops.serial import serial_loop
from polyker.codegen.llvm.operations import combine, integer_extremum
from polyker.codegen.llvm.statements import Statements
from polyker.codegen.llvm.store import identity
from polyker.codegen.llvm.text import IRBuilder, Reg, const
from polyker.ir.dtypes import DType, i64
from polyker.machine.model import Target

OPERATORS = ("add", "mul", "minimum", "maximum")


class ScanLoop(Struct, frozen=True):
    """A SCAN loop that can be taken by vectors: its one store, the operator, the term, the element before, the lanes of a vector,
    and 1 or -1: how far an element lies from the one before."""

    loop: For
    store: Store
    op: str
    term: KExpr
    before: Load
    lanes: int
    direction: int


def scan_of(e: LlvmExpressions, loop: For, target: Target) -> ScanLoop | None:
    """Return how a SCAN loop is carried out; None where it runs as a serial one, as inside a vector loop: each lane is a row."""
    if e.lanes.count > 1:
        return None
    match loop:
        case For(step=1, body=(Store(value=Op(op=op, args=args, dtype=dtype)) as store,)) if op in OPERATORS:
            pass
        case _:
            return None
    place = e.places[store.buffer]
    if dtype.kind not in "iuf" or (dtype.kind == "f" and dtype.itemsize < 4) or place.on_stack:
        return None
    here = e.offset(store.buffer, store.indices)
    earlier = e.offset(store.buffer, at(store, loop, Op("sub", (Var(loop.var), Const(1)))))
    direction = as_constant(minus(here, earlier))
    if direction not in (1, -1):
        return None
    own = [a for a in args if isinstance(a, Load) and a.buffer == store.buffer and a.predicate is None]
    before = [a for a in own if e.offset(a.buffer, a.indices) == earlier]
    if len(before) != 1 or len(args) < 2:
        return None
    rest = tuple(a for a in args if a is not before[0])
    if any(x.buffer == store.buffer and e.offset(x.buffer, x.indices) != here for x in loads_in(*rest)):
        return None
    widest = max(dtype.itemsize, *(x.dtype.real.itemsize for a in rest for x in values_of(a)))
    lanes = target.lanes(widest)
    term = rest[0] if len(rest) == 1 else Op(op, rest, dtype)
    whole = lanes > 1 and lanes & (lanes - 1) == 0
    return ScanLoop(loop, store, op, term, before[0], lanes, direction) if whole else None


def at(store: Store, loop: For, place: KExpr) -> tuple[KExpr, ...]:
    """Return the indices of a store in the iteration `place`."""
    return tuple(substitute(i, {loop.var: place}) for i in store.indices)


def parts(scan: ScanLoop, count: KExpr) -> tuple[For, StmtBlock]:
    """Return the loop over the `count` whole vectors, and what comes after it."""
    loop, lanes = scan.loop, scan.lanes
    turn = Var(f"{loop.var}\0turn")
    first = Op("add", (loop.lo, Op("mul", (Const(lanes), turn))))
    whole = For(loop.var, first, Op("add", (first, Const(lanes))), loop.body, 1, LoopKind.VECTOR, lanes, lanes)
    rest = For(
        loop.var, Op("add", (loop.lo, Op("mul", (Const(lanes), count)))), loop.hi, loop.body, 1, LoopKind.VECTOR, lanes
    )
    return For(turn.name, Const(0), count, (whole,)), (rest,)


def _store(e: LlvmExpressions, scan: ScanLoop, carried: Reg, stmt: Store) -> None:
    """Store the elements of one vector, and keep the last one's value in all lanes of `carried`."""
    b, count, mask = e.b, e.lanes.count, e.lanes.mask
    dtype = scan.before.dtype
    value = memory.splat_value(b, e.value(scan.term), count).re
    distance = 1
    while distance < count:
        value = combine(b, scan.op, _moved(b, scan.op, value, distance, dtype), value, dtype)
        distance *= 2
    before = b.impure(f"load {value.type}, {carried.typed}, align 64", value.elem, count)
    place = e.places[stmt.buffer]
    base = e.split(e.offset(stmt.buffer, stmt.indices))[0]
    elements = ElementValue(dtype, combine(b, scan.op, before, value, dtype))
    if scan.direction < 0:
        store_backwards(e, place, base, elements, mask)
    else:
        memory.store_vector(b, place, e.pointer(place, base), elements, mask)
    if mask is None:
        last = b.shuffle(value, None, [count - 1] * count)
        after = combine(b, scan.op, before, last, dtype)
        b.line(f"  store {after.typed}, {carried.typed}, align 64")


def _moved(b: IRBuilder, op: str, value: Reg, distance: int, dtype: DType) -> Reg:
    """Return the lanes moved up; those that nothing comes to hold what changes nothing there."""
    count = value.lanes
    if op in ("minimum", "maximum"):  # their own value
        return b.shuffle(value, None, [k if k < distance else k - distance for k in range(count)])
    neutral = b.splat(identity(op, dtype).re, count)
    return b.shuffle(value, neutral, [count + k if k < distance else k - distance for k in range(count)])


def scan_loop(code: Statements, loop: For) -> None:
    """Emit a SCAN loop, as a serial one where its form does not allow more."""
    scan = scan_of(code.e, loop, code.target)
    if scan is None:
        columns_loop(code, loop)
    else:
        _by_vectors(code, scan)


def _by_vectors(code: Statements, scan: ScanLoop) -> None:
    """Combine whole vectors of operands with what stands before them, then the rest."""
    e, b, loop = code.e, code.b, scan.loop
    lo, hi = e.poly(loop.lo), e.poly(loop.hi)
    length = as_constant(minus(hi, lo))
    trip = loop.trip if loop.trip is not None else length
    if trip is not None and trip <= 0:
        return
    start, stop, name = e.uniform(lo), e.uniform(hi), f"{loop.var}\0count"
    some = None if trip is not None else b.compare("icmp slt", start, stop)
    place, offset = e.places[scan.store.buffer], e.offset(scan.store.buffer, at(scan.store, loop, loop.lo))
    before = plus(offset, constant(-scan.direction))
    first = memory.load_scalar(b, place, e.guarded(place, e.pointer(place, before), before, some)).re
    pointer = Reg(b.name(), "ptr", 1, 0)
    b.allocas.append(f"  {pointer.text} = alloca <{scan.lanes} x {first.elem}>, align 64")
    b.line(f"  store {b.splat(first, scan.lanes).typed}, {pointer.typed}, align 64")
    if trip is None:
        count = b.binary("sdiv", b.binary("sub", stop, start), const(scan.lanes, "i64"))
        e.values[name] = ElementValue(i64, integer_extremum(b, "smax", count, const(0, "i64")))
    whole, rest = parts(scan, Var(name) if trip is None else Const(trip // scan.lanes))
    e.store = partial(_store, e, scan, pointer)
    serial_loop(code, whole)
    code.block(rest)
    e.store = None
    e.values.pop(name, None)
