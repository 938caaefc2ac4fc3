"""Stores of the Kernel IR as LLVM IR: contracted sums, reductions over the lanes, masked and scattered vectors."""

from __future__ import annotations

from collections.abc import Callable

from polyker.codegen.ir.kernel import FORMS, FREE, Convert, For, KExpr, Load, LoopKind, Op, Prefetch, StmtBlock, Store
from polyker.codegen.ir.polynomial import Poly, as_constant, same_element
from polyker.codegen.ir.walk import factors_of
from polyker.codegen.llvm import complex as llvm_complex
from polyker.codegen.llvm.access import memory, strided
from polyker.codegen.llvm.access.memory import BufferPointer
from polyker.codegen.llvm.convert import ElementValue, convert
from polyker.codegen.llvm.expressions import LlvmExpressions, constant_value
from polyker.codegen.llvm.operations import combine, free_extremum
from polyker.codegen.llvm.text import IRBuilder, const
from polyker.codegen.passes.fold_lanes import REDUCIBLE
from polyker.ir.dtypes import DType

# Vectors whose values wait in registers until all are computed (experience value).
_VECTORS_AT_ONCE = 4


def store(e: LlvmExpressions, stmt: Store) -> None:
    """Emit a store for the active lanes."""
    if e.store is not None:
        e.store(stmt)
        return
    b, place = e.b, e.places[stmt.buffer]
    base, step, varying = e.split(e.offset(stmt.buffer, stmt.indices))
    uniform = not step and not varying
    if uniform and e.lanes.count > 1 and _reduction(e, stmt, place, base):
        return
    value = _contracted(e, stmt)
    if uniform:
        if value.lanes > 1:
            value = memory.last_active(b, value, e.lanes.mask)
        _store_uniform(e, place, base, value)
        return
    count, mask = e.lanes.count, e.lanes.mask
    value = memory.splat_value(b, value, count)
    stride = as_constant(step) if not varying else None
    if stride == 1:
        if e.rows_past is not None and mask is None and value.im is None:
            e.rows_past.append((base, memory.raw_of(b, value)))
            return
        pointer = e.pointer(place, base)
        if place.reassociating:
            mask = None
        elif place.on_stack and mask is not None:
            before = memory.load_vector(b, place, pointer, count, None)
            if b.avx512 and not mask.level and value.re.elem in ("float", "double"):
                # Of a constant LLVM makes a shuffle, which it does not put into the multiply-add as it does a mask.
                mask = memory.opaque(b, mask)
            value, mask = memory.select_value(b, mask, value, before), None
        memory.store_vector(b, place, pointer, value, mask, e.streamed)
    elif e.columns is not None and e.columns.store(e, stmt, value):
        pass
    elif stride == -1:
        strided.store_backwards(e, place, base, value, mask)
    else:
        memory.scatter(b, place, e.lane_pointers(place, base, step, varying), value, mask)


def store_together(e: LlvmExpressions, stores: list[Store]) -> None:
    """Emit stores whose elements lie side by side in memory; see `strided.interleaved`."""
    strided.store(e, stores, [_contracted(e, s) for s in stores])


def one_result(block: StmtBlock) -> bool:
    """Return whether a block is several vectors that are stored to one buffer."""
    return (
        len(block) > 1
        and len(_stored(block)) == 1
        and all(isinstance(v, For) and v.kind is LoopKind.VECTOR for v in block)
    )


def _stored(block: StmtBlock) -> set[str]:
    return {s.buffer for v in block if isinstance(v, For) for s in v.body if isinstance(s, Store)}


def store_last(e: LlvmExpressions, block: StmtBlock, emit: Callable[[StmtBlock], None]) -> None:
    """Emit the vectors of one iteration, a few at a time, whose values are all computed before any is stored.

    A load from a place whose last twelve address bits are those of an earlier store waits for it on Intel's cores: a vector
    for the one before, all along a row, where results lie a vector behind the operands in their pages.
    """
    (place,) = (e.places[name] for name in _stored(block))
    for first in range(0, len(block), _VECTORS_AT_ONCE):
        found = e.rows_past = []
        for vector in block[first : first + _VECTORS_AT_ONCE]:
            emit((vector,))
        e.rows_past = None
        for base, data in found:
            memory.store_raw(e.b, place, e.pointer(place, base), data, None, e.streamed)


def prefetch(e: LlvmExpressions, stmt: Prefetch) -> None:
    """Emit a prefetch of the first lane's cache line.

    What is written by streaming stores must not be in them.
    """
    if stmt.write and e.streamed:
        return
    place = e.places[stmt.buffer]
    base, _, _ = e.split(e.offset(stmt.buffer, stmt.indices))
    pointer = e.pointer(place, base)
    if e.columns is not None and not e.columns.asks(pointer):
        return
    if e.prefetched is not None:
        request = pointer.text, stmt.cache, stmt.write
        if request in e.prefetched:
            return
        e.prefetched.add(request)
    memory.prefetch(e.b, pointer, stmt.cache, write=stmt.write and stmt.cache == 1)


def _store_uniform(e: LlvmExpressions, place: BufferPointer, base: Poly, value: ElementValue) -> None:
    pointer = e.pointer(place, base)
    if place.on_stack and e.lanes.some is not None and as_constant(base) is not None:
        value = memory.select_value(e.b, e.lanes.some, value, memory.load_scalar(e.b, place, pointer))
    memory.store_scalar(e.b, place, e.guarded(place, pointer, base, e.lanes.some), value)


def _contracted(e: LlvmExpressions, stmt: Store) -> ElementValue:
    """Return the stored value; products in `x += a*b + ...` are fused multiply-adds: reductions may be contracted."""
    match stmt.value:
        case Op(op="add", args=(Load(predicate=None) as old, *terms), dtype=dtype) if (
            dtype.kind in "fc" and dtype.real.itemsize >= 4 and e.b.fma != "none" and same_element(stmt, old)
        ):
            total = e.value(old)
            for term in terms:
                factors = factors_of(term)
                total = e.fused(total, factors) if factors else _combine(e.b, "add", total, e.value(term))
            return total
        case value:
            return e.value(value)


def _reduction(e: LlvmExpressions, stmt: Store, place: BufferPointer, base: Poly) -> bool:
    """Emit `x op= value` in a vector loop as a tree over the active lanes; False where the store has another form."""
    match stmt.value:
        case Op(op=op, args=(Load(predicate=None) as old, term), dtype=dtype):
            start: KExpr = old
        case Convert(arg=Op(op=op, args=(Convert(arg=Load(predicate=None) as old) as start, term), dtype=dtype)):
            pass  # combined in a wider type than is stored
        case _:
            return False
    op = FORMS.get(op, op)
    if op not in REDUCIBLE or not same_element(stmt, old):
        return False
    value = memory.splat_value(e.b, e.value(term), e.lanes.count)
    if e.lanes.mask is not None:
        value = memory.select_value(e.b, e.lanes.mask, value, identity(op, dtype))
    total = _combine(e.b, op, e.value(start), _folded(e.b, op, value))
    _store_uniform(e, place, base, convert(e.b, total, old.dtype))
    return True


def _folded(b: IRBuilder, op: str, value: ElementValue) -> ElementValue:
    """Return all lanes combined: two parts, then two of each; an odd middle lane meets the identity."""
    if op not in FREE or value.dtype.kind != "f" or b.native_maximum or value.lanes == 1:
        return _halved(b, value, identity(op, value.dtype), lambda x, y: _combine(b, op, x, y))
    # All lanes are tested for NaN at once, beside what combines them: each step after a test of its own would wait for that.
    nan = b.any(b.compare("fcmp uno", value.re, value.re))
    best = _halved(
        b,
        value,
        identity(op, value.dtype),
        lambda x, y: ElementValue(value.dtype, free_extremum(b, FREE[op], x.re, y.re)),
    )
    return ElementValue(value.dtype, b.select(nan, const(float("nan"), best.re.elem), best.re))


def _halved(
    b: IRBuilder, value: ElementValue, none: ElementValue, join: Callable[[ElementValue, ElementValue], ElementValue]
) -> ElementValue:
    """Return the lanes of a value joined; `none`: what changes nothing."""
    while (n := value.lanes) > 1:
        half = -(-n // 2)
        low = _lanes(b, value, range(half))
        high = _lanes(b, value, range(n - half, n))
        if n % 2:
            high = _with_first_lane(b, high, none)
        value = join(low, high)
    return value


def _lanes(b: IRBuilder, value: ElementValue, lanes: range) -> ElementValue:
    return value.each(lambda part: b.lanes(part, list(lanes)))


def _with_first_lane(b: IRBuilder, value: ElementValue, first: ElementValue) -> ElementValue:
    im = None if value.im is None or first.im is None else b.insert(value.im, first.im, 0)
    return ElementValue(value.dtype, b.insert(value.re, first.re, 0), im)


def _combine(b: IRBuilder, op: str, x: ElementValue, y: ElementValue) -> ElementValue:
    if x.dtype.is_complex:
        return llvm_complex.combine(b, op, x, y)
    return ElementValue(x.dtype, combine(b, op, x.re, y.re, x.dtype))


def identity(op: str, dtype: DType) -> ElementValue:
    """Return the identity of a reduction, as a uniform value."""
    if op in ("minimum", "maximum"):
        extreme = _extreme(dtype, least=op == "maximum")
        return constant_value(complex(extreme, extreme) if dtype.is_complex else extreme, dtype)
    return constant_value(1 if op in ("mul", "and") else 0, dtype)


def _extreme(dtype: DType, *, least: bool) -> float | int:
    if dtype.kind in "fc":
        return float("-inf") if least else float("inf")
    if dtype.kind == "b":
        return 0 if least else 1
    bits = 8 * dtype.itemsize - (dtype.kind == "i")
    low = -(1 << bits) if dtype.kind == "i" else 0
    return low if least else (1 << bits) - 1
