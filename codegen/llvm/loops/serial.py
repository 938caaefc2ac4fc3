"""SERIAL loops: counted ones, rotated, and those of vectors whose lanes end at different times."""

from __future__ import annotations

from collections.abc import Callable

from polyker.codegen.ir.kernel import For, Var
from polyker.codegen.ir.polynomial import as_constant, atom, minus
from polyker.codegen.ir.walk import stored
from polyker.codegen.llvm.access.memory import ActiveLanes
from polyker.codegen.llvm.convert import ElementValue
from polyker.codegen.llvm.statements import Statements
from polyker.codegen.llvm.text import IRBuilder, Reg, Region, const
from polyker.ir.dtypes import i64


def serial_loop(code: Statements, loop: For) -> None:
    """Emit a loop whose iterations run one after another."""
    b, e = code.b, code.e
    lo, hi = e.poly(loop.lo), e.poly(loop.hi)
    trip = loop.trip
    if trip is None and (length := as_constant(minus(hi, lo))) is not None:
        trip = max(0, -(-length // loop.step))
    if trip == 0:
        return
    start, stop = e.index(lo), e.index(hi)
    if start.lanes > 1 or stop.lanes > 1:
        _lane_loop(code, loop, start, stop)
        return
    if trip == 1:
        code.bound_block(loop.var, lo, loop.body)
        return
    ends = [end for begin in code.loops.around if (end := begin(code, loop)) is not None]
    mark = code.facts.mark()

    def emit(counter: Reg) -> None:
        shadowed, known = e.values.get(loop.var), e.affine.pop(loop.var, None)
        e.values[loop.var] = ElementValue(i64, counter)
        code.facts.in_loop(loop, atom(Var(loop.var)))
        code.block(loop.body)
        code.facts.forget(mark)
        if shadowed is not None:
            e.values[loop.var] = shadowed
        if known is not None:
            e.affine[loop.var] = known

    counted(b, (start, stop, loop.step), emit, certain=trip is not None, written=stored(loop.body))
    for end in reversed(ends):
        end()


def counted(
    b: IRBuilder,
    bounds: tuple[Reg, Reg, int],
    emit: Callable[[Reg], None],
    *,
    certain: bool,
    written: frozenset[str] = frozenset(),
) -> None:
    """Emit a loop from the first of `bounds` to before the second by steps of the third; `emit` is given the counter.

    It is tested before the first iteration, then at the end; `certain`: it surely runs. `written`: the buffers stored to.
    """
    start, stop, step = bounds
    pre, body, end = b.label(), b.label(), b.label()
    counter, following, more = b.name(), b.name(), b.name()
    b.regions += [Region("preheader", certain=certain, written=written), Region("body", written=written)]
    outer, b.block = b.block, body
    emit(Reg(counter, "i64", 1, b.level))
    latch, inside, before = b.block, b.regions.pop(), b.regions.pop()
    b.block = outer
    if certain:
        b.line(f"  br label %{pre}")
    else:
        b.line(f"  br {b.compare('icmp slt', start, stop).typed}, label %{pre}, label %{end}")
    b.top.lines += [
        f"{pre}:", *before.lines, f"  br label %{body}",
        f"{body}:", f"  {counter} = phi i64 [ {start.text}, %{pre} ], [ {following}, %{latch} ]", *inside.lines,
        f"  {following} = add nsw i64 {counter}, {step}",
        f"  {more} = icmp slt i64 {following}, {stop.text}",
        f"  br i1 {more}, label %{body}, label %{end}, !llvm.loop !1",
    ]  # fmt: skip
    b.start_block(end)


def _lane_loop(code: Statements, loop: For, start: Reg, stop: Reg) -> None:
    """Emit a serial loop in a vector loop whose bounds differ from lane to lane: it runs until no lane is left."""
    b, e, lanes = code.b, code.e, code.e.lanes
    start, stop = b.splat(start, lanes.count), b.splat(stop, lanes.count)
    first = b.compare("icmp slt", start, stop)
    first = first if lanes.mask is None else b.binary("and", first, lanes.mask)
    pre, body, end = b.label(), b.label(), b.label()
    counter, mask, following, left, more = (b.name() for _ in range(5))
    written = stored(loop.body)
    b.regions += [Region("preheader", written=written), Region("body", written=written)]
    outer, b.block = b.block, body
    values, affine = e.values, e.affine
    e.values, e.affine = dict(values), {k: v for k, v in affine.items() if k != loop.var}
    e.values[loop.var] = ElementValue(i64, Reg(counter, "i64", lanes.count, b.level))
    e.lanes = ActiveLanes(lanes.count, Reg(mask, "i1", lanes.count, b.level))
    code.block(loop.body)
    e.values, e.affine, e.lanes = values, affine, lanes
    latch, inside, before = b.block, b.regions.pop(), b.regions.pop()
    b.block = outer
    kind, flags = start.type, first.type
    b.line(f"  br {b.any(first).typed}, label %{pre}, label %{end}")
    reduce = f"llvm.vector.reduce.or.v{lanes.count}i1"
    b.declare(reduce, f"declare i1 @{reduce}({flags})")
    step, compared = b.splat(const(loop.step, "i64"), lanes.count), b.name()
    b.top.lines += [
        f"{pre}:", *before.lines, f"  br label %{body}",
        f"{body}:", f"  {counter} = phi {kind} [ {start.text}, %{pre} ], [ {following}, %{latch} ]",
        f"  {mask} = phi {flags} [ {first.text}, %{pre} ], [ {left}, %{latch} ]", *inside.lines,
        f"  {following} = add {kind} {counter}, {step.text}",
        f"  {compared} = icmp slt {kind} {following}, {stop.text}",
        f"  {left} = and {flags} {compared}, {mask}",
        f"  {more} = call i1 @{reduce}({flags} {left})",
        f"  br i1 {more}, label %{body}, label %{end}, !llvm.loop !1",
    ]  # fmt: skip
    b.start_block(end)
