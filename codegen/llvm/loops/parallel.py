"""PARALLEL loops as LLVM IR: the body becomes a function of its own, which several threads call for pieces of the range.

A region has a context in memory: the numbers of the region, then what the body uses of the values around it. The kernel hands the
function `participate`, and the context, to the run time's `parallel_for`, whose address it finds at run time:

    int parallel_for(int (*function)(void *context, int64_t index), void *context, int64_t begin, int64_t end, void *user)

which calls `function(context, i)` once for each i in [begin, end), on as many threads as it likes, and returns when all have
returned. Each participant works off its own share of the range piece by piece, then helps the others: the pieces are the same
whichever thread takes them, and a thread keeps to the same part of the range from region to region. The piece with the lowest
number of those where a Guard failed decides the kernel's status: the one that a serial loop would have come to first.

A host's own `parallel_for` may break this contract. A participant therefore enters once, as its memory is its own, and tells
when it leaves; the kernel counts. Where not all have left, or a status comes back, `host_failed` lets nobody in any more, waits
for those inside, and returns what `polyker.record.status.host_status` reads.
"""

from __future__ import annotations

from enum import IntEnum

from polyker.codegen.ir.kernel import For, Guard, LoopKind, Var
from polyker.codegen.ir.polynomial import Poly, atom
from polyker.codegen.ir.walk import expressions, names_bound, names_in, statements, stored, uses
from polyker.codegen.llvm.convert import ElementValue
from polyker.codegen.llvm.loops.serial import serial_loop
from polyker.codegen.llvm.operations import integer_extremum
from polyker.codegen.llvm.statements import Statements
from polyker.codegen.llvm.text import IRBuilder, Reg, Region, const
from polyker.ir.dtypes import i64
from polyker.record.status import HOST_RAN, HOST_RETURNED, Runtime

# Names that no kernel has: the first value of the loop's variable, and the context's number of words.
BEGIN, END = "\0begin", "\0end"

# Pieces of a participant's share: so many may be taken over by others. More where iterations take unlike long (chosen).
PIECES, UNEVEN_PIECES = 4, 16


class RegionContext(IntEnum):
    """Words of a region's context, in lines of 8 words.

    COUNTERS: from here a line a participant: how many of its pieces are taken, and whether it has entered.
    """

    BODY = 0
    COUNT = 1  # iterations
    PIECES = 2  # of each participant
    PARTICIPANTS = 3
    FAILURE = 4  # the least of (piece << 32 | status), all ones where none failed
    LEFT = 8  # participants that have left; and << 16 calls that were none of the region's
    COUNTERS = 16


PARTICIPATE = f"""\
define internal i32 @participate(ptr %context, i64 %index) #0 {{
entry:
  %body = load ptr, ptr %context
  %count.at = getelementptr i64, ptr %context, i64 {RegionContext.COUNT:d}
  %count = load i64, ptr %count.at
  %pieces.at = getelementptr i64, ptr %context, i64 {RegionContext.PIECES:d}
  %pieces = load i64, ptr %pieces.at
  %participants.at = getelementptr i64, ptr %context, i64 {RegionContext.PARTICIPANTS:d}
  %participants = load i64, ptr %participants.at
  %failure = getelementptr i64, ptr %context, i64 {RegionContext.FAILURE:d}
  %left.at = getelementptr i64, ptr %context, i64 {RegionContext.LEFT:d}
  %counters = getelementptr i64, ptr %context, i64 {RegionContext.COUNTERS:d}
  %all = mul i64 %pieces, %participants
  %known = icmp ult i64 %index, %participants
  br i1 %known, label %enter, label %stray
enter:
  %own.offset = mul i64 %index, 8
  %own = getelementptr i64, ptr %counters, i64 %own.offset
  %entered.at = getelementptr i64, ptr %own, i64 1
  %entered = atomicrmw xchg ptr %entered.at, i64 1 monotonic
  %again = icmp ne i64 %entered, 0
  br i1 %again, label %stray, label %share
stray:
  %strays = atomicrmw add ptr %left.at, i64 65536 monotonic
  ret i32 0
share:
  %helped = phi i64 [ 0, %enter ], [ %helped.next, %next ]
  %ahead = add i64 %index, %helped
  %wraps = icmp uge i64 %ahead, %participants
  %wrapped = sub i64 %ahead, %participants
  %owner = select i1 %wraps, i64 %wrapped, i64 %ahead
  %counter.offset = mul i64 %owner, 8
  %counter = getelementptr i64, ptr %counters, i64 %counter.offset
  %first.piece = mul i64 %owner, %pieces
  br label %take
take:
  %taken = atomicrmw add ptr %counter, i64 1 monotonic
  %left = icmp ult i64 %taken, %pieces
  br i1 %left, label %piece, label %next
piece:
  %number = add i64 %first.piece, %taken
  %worst = load atomic i64, ptr %failure monotonic, align 8
  %worst.piece = lshr i64 %worst, 32
  %wanted = icmp ult i64 %number, %worst.piece
  %low = mul i64 %number, %count
  %first = udiv i64 %low, %all
  %high = add i64 %low, %count
  %last = udiv i64 %high, %all
  %any = icmp ult i64 %first, %last
  %go = and i1 %any, %wanted
  br i1 %go, label %run, label %take
run:
  %status = call i64 %body(ptr %context, i64 %first, i64 %last, i64 %index)
  %well = icmp eq i64 %status, 0
  br i1 %well, label %take, label %failed
failed:
  %shifted = shl i64 %number, 32
  %report = or i64 %shifted, %status
  %before = atomicrmw umin ptr %failure, i64 %report monotonic
  br label %take
next:
  %helped.next = add i64 %helped, 1
  %more = icmp ult i64 %helped.next, %participants
  br i1 %more, label %share, label %done
done:
  %leavers = atomicrmw add ptr %left.at, i64 1 release
  ret i32 0
}}

define internal i64 @host_failed(ptr %context, i32 %rc) cold noinline #0 {{
entry:
  %participants.at = getelementptr i64, ptr %context, i64 {RegionContext.PARTICIPANTS:d}
  %participants = load i64, ptr %participants.at
  %left.at = getelementptr i64, ptr %context, i64 {RegionContext.LEFT:d}
  %left = load atomic i64, ptr %left.at acquire, align 8
  %counters = getelementptr i64, ptr %context, i64 {RegionContext.COUNTERS:d}
  br label %close
close:
  %index = phi i64 [ 0, %entry ], [ %index.next, %close ]
  %inside = phi i64 [ 0, %entry ], [ %inside.next, %close ]
  %own.offset = mul i64 %index, 8
  %own = getelementptr i64, ptr %counters, i64 %own.offset
  %entered.at = getelementptr i64, ptr %own, i64 1
  %entered = atomicrmw xchg ptr %entered.at, i64 1 monotonic
  %inside.next = add i64 %inside, %entered
  %index.next = add i64 %index, 1
  %more = icmp ult i64 %index.next, %participants
  br i1 %more, label %close, label %wait
wait:
  %left.now = load atomic i64, ptr %left.at acquire, align 8
  %out = and i64 %left.now, 65535
  %all.out = icmp eq i64 %out, %inside.next
  br i1 %all.out, label %closed, label %wait
closed:
  %kept = icmp eq i64 %left, %participants
  br i1 %kept, label %returned, label %broken
broken:
  %counts = shl i64 %left, 16
  %numbers = or i64 %counts, %participants
  %broken.status = or i64 %numbers, {HOST_RAN}
  ret i64 %broken.status
returned:
  %failure.at = getelementptr i64, ptr %context, i64 {RegionContext.FAILURE:d}
  %failure = load i64, ptr %failure.at
  %found = icmp ne i64 %failure, -1
  %code = and i64 %failure, 4294967295
  %rc.wide = zext i32 %rc to i64
  %rc.status = or i64 %rc.wide, {HOST_RETURNED}
  %status = select i1 %found, i64 %code, i64 %rc.status
  ret i64 %status
}}
"""


def parallel_loop(code: Statements, loop: For) -> None:
    """Emit a PARALLEL loop: its body as a function, and the region that runs it."""
    b, e = code.b, code.e
    lo, hi = e.uniform(e.poly(loop.lo)), e.uniform(e.poly(loop.hi))
    length = integer_extremum(b, "smax", b.binary("sub", hi, lo), const(0, "i64"))
    count = length
    if loop.step > 1:
        count = b.binary("udiv", b.binary("add", length, const(loop.step - 1, "i64")), const(loop.step, "i64"))
    captured = {name: e.values[name] for name in sorted(_free(code, loop)) if name in e.values}
    captured[BEGIN] = ElementValue(i64, lo)
    slots = _slots(loop.lanes, captured)
    body = _outlined(code, loop, captured, slots)
    context = _context(code, loop, count, body, captured, slots)
    status = _region(code, loop, count, body, context)
    after, failed = b.label(), b.label()
    b.line(f"  br i1 {b.compare('icmp eq', status, const(0, 'i64')).text}, label %{after}, label %{failed}")
    b.line(f"{failed}:")
    b.line(f"  ret i64 {status.text}")
    b.start_block(after)
    if any(isinstance(s, Guard) for s in statements(loop.body)):
        for region in b.regions:
            region.blocked = True


def _free(code: Statements, loop: For) -> set[str]:
    """Return the variables of the places around that the body uses, also through what index Lets stand for."""
    body = list(statements(loop.body))
    bound = names_bound((loop,))
    found: set[str] = set()
    pending = names_in(*(x for s in body for x in expressions(s))) - bound
    while pending:
        name = pending.pop()
        found.add(name)
        if name in code.e.affine:
            pending |= names_in(*(a for monomial in code.e.affine[name] for a in monomial)) - found
    return found - set(code.kernel.integers)


def _slots(participants: int, captured: dict[str, ElementValue]) -> dict[str, int]:
    """Return the word of the context that each captured value that is no constant begins at; one a part."""
    words: dict[str, int] = {}
    at = RegionContext.COUNTERS + 8 * participants + 2
    for name, value in captured.items():
        words[name] = at
        at += len(value.parts)
    words[END] = at
    return words


def _at(b: IRBuilder, base: Reg, word: int) -> Reg:
    return b.pure(f"getelementptr i64, {base.typed}, i64 {word}", "ptr", 1, (base,))


def _context(
    code: Statements, loop: For, count: Reg, body: str, captured: dict[str, ElementValue], slots: dict[str, int]
) -> Reg:
    """Write the region's context into memory of the function that is being emitted."""
    b = code.b
    name = b.name()
    b.allocas.append(f"  {name} = alloca [{slots[END]} x i64], align 64")
    context = Reg(name, "ptr", 1, 0)
    participants = loop.lanes
    pieces = PIECES if is_even(loop) else UNEVEN_PIECES
    numbers = {
        RegionContext.COUNT: count.text, RegionContext.PIECES: str(pieces), RegionContext.PARTICIPANTS: str(participants),
        RegionContext.FAILURE: "-1",
    }  # fmt: skip
    b.line(f"  store ptr @{body}, {_at(b, context, RegionContext.BODY).typed}, align 8")
    for word, text in numbers.items():
        b.line(f"  store i64 {text}, {_at(b, context, word).typed}, align 8")
    b.line(f"  store i64 0, {_at(b, context, RegionContext.LEFT).typed}, align 8")
    for k in range(participants):
        b.line(f"  store <2 x i64> zeroinitializer, {_at(b, context, RegionContext.COUNTERS + 8 * k).typed}, align 16")
    fixed = RegionContext.COUNTERS + 8 * participants
    for k, argument in enumerate(("%pointers", "%integers")):
        b.line(f"  store ptr {argument}, {_at(b, context, fixed + k).typed}, align 8")
    for key, value in captured.items():
        for k, part in enumerate(value.parts):
            b.line(f"  store {part.typed}, {_at(b, context, slots[key] + k).typed}, align 8")
    return context


def is_even(loop: For) -> bool:
    """Whether no loop inside has bounds that depend on the iteration."""
    return not any(
        isinstance(s, For) and s.kind not in (LoopKind.VECTOR, LoopKind.UNROLL) and uses(loop.var, s.lo, s.hi)
        for s in statements(loop.body)
    )


def _region(code: Statements, loop: For, count: Reg, body: str, context: Reg) -> Reg:
    """Run the region, by this thread alone where there is little to do; return the status."""
    b, e = code.b, code.e
    alone, together, whole, broken, joined = (b.label() for _ in range(5))
    worth = b.compare("icmp ugt", count, const(1, "i64"))
    if loop.enough is not None:
        worth = b.binary("and", worth, b.compare("icmp sge", count, e.uniform(e.poly(loop.enough))))
    status, one, several, failure, found, left, kept, reported = (b.name() for _ in range(8))
    b.line(f"  br {worth.typed}, label %{together}, label %{alone}")
    b.line(f"{alone}:")
    b.line(f"  {one} = call i64 @{body}({context.typed}, i64 0, {count.typed}, i64 0)")
    b.line(f"  br label %{joined}")
    b.line(f"{together}:")
    runtime, table, function, at, user, rc = (b.name() for _ in range(6))
    b.top.lines += [
        f"  {table} = getelementptr i64, ptr %integers, i64 {len(code.kernel.integers)}",
        f"  {runtime} = load ptr, ptr {table}, align 8",
        f"  {at} = getelementptr ptr, ptr {runtime}, i64 {int(Runtime.PARALLEL_FOR)}",
        f"  {function} = load ptr, ptr {at}, align 8",
        f"  {at}.user = getelementptr ptr, ptr {runtime}, i64 {int(Runtime.USER)}",
        f"  {user} = load ptr, ptr {at}.user, align 8",
        f"  {rc} = call i32 {function}(ptr @participate, {context.typed}, i64 0, i64 {loop.lanes}, ptr {user})",
        f"  {left}.at = getelementptr i64, {context.typed}, i64 {int(RegionContext.LEFT)}",
        f"  {left} = load atomic i64, ptr {left}.at acquire, align 8",
        f"  {left}.all = icmp eq i64 {left}, {loop.lanes}",
        f"  {rc}.well = icmp eq i32 {rc}, 0",
        f"  {kept} = and i1 {left}.all, {rc}.well",
        f"  br i1 {kept}, label %{whole}, label %{broken}",
        f"{broken}:",
        f"  {reported} = call i64 @host_failed({context.typed}, i32 {rc})",
        f"  br label %{joined}",
        f"{whole}:",
        f"  {failure}.at = getelementptr i64, {context.typed}, i64 {int(RegionContext.FAILURE)}",
        f"  {failure} = load i64, ptr {failure}.at, align 8",
        f"  {found} = icmp ne i64 {failure}, -1",
        f"  {failure}.code = and i64 {failure}, 4294967295",
        f"  {several} = select i1 {found}, i64 {failure}.code, i64 0",
        f"  br label %{joined}",
    ]
    b.start_block(joined)
    b.line(f"  {status} = phi i64 [ {one}, %{alone} ], [ {several}, %{whole} ], [ {reported}, %{broken} ]")
    return Reg(status, "i64", 1, b.level)


def _outlined(code: Statements, loop: For, captured: dict[str, ElementValue], slots: dict[str, int]) -> str:
    """Emit the body as a function of the context, the first iteration, the end, and the participant; return its name."""
    b, e = code.b, code.e
    number = len(code.functions)
    name = f"{code.symbol}body{number}"
    code.functions.append("")  # its place: bodies are numbered in the order they are met
    outer = (b.regions, b.allocas, b.clears, b.block, e.values, e.affine, e.places, e.columns)
    own = (code.failures, code.streams, code.spares)
    b.regions, b.allocas, b.clears, b.block = [Region("entry", written=stored(loop.body))], [], {}, "body"
    e.columns, code.failures, code.streams, code.spares = None, {}, False, ""
    context = Reg("%context", "ptr", 1, 0)
    fixed = RegionContext.COUNTERS + 8 * loop.lanes
    for k, argument in enumerate(("%pointers", "%integers")):
        b.line(f"  {argument} = load ptr, {_at(b, context, fixed + k).typed}, align 8")
    e.values, e.affine, e.places = {}, dict(e.affine), {}
    code.arguments()
    for key, value in captured.items():
        e.values[key] = _loaded(b, context, slots[key], value)
    start, stop = (_counted(b, e.values[BEGIN].re, Reg(r, "i64", 1, 0), loop.step) for r in ("%first", "%last"))
    e.values |= {"\0first": ElementValue(i64, start), "\0last": ElementValue(i64, stop)}
    if loop.thread:
        e.values[loop.thread] = ElementValue(i64, Reg("%thread", "i64", 1, 0))
    mark = code.facts.mark()
    variable: Poly = atom(Var(loop.var))
    code.facts.in_loop(loop, variable)
    serial_loop(code, For(loop.var, Var("\0first"), Var("\0last"), loop.body, loop.step))
    code.facts.forget(mark)
    header = f"define internal i64 @{name}(ptr noalias readonly %context, i64 %first, i64 %last, i64 %thread) #0 {{"
    code.functions[number] = "\n".join([header, "entry:", *code.function_body(), "}"])
    b.regions, b.allocas, b.clears, b.block, e.values, e.affine, e.places, e.columns = outer
    code.failures, code.streams, code.spares = own
    return name


def _loaded(b: IRBuilder, context: Reg, word: int, value: ElementValue) -> ElementValue:
    """Return a captured value in the body's function: loaded, but for constants."""
    parts = [
        part
        if part.is_constant
        else b.load(f"load {part.type}, {_at(b, context, word + k).typed}, align 8", part.elem, 1, ())
        for k, part in enumerate(value.parts)
    ]
    return ElementValue(value.dtype, *parts)


def _counted(b: IRBuilder, lo: Reg, number: Reg, step: int) -> Reg:
    """Return the value of the loop's variable in an iteration."""
    return b.binary("add", lo, b.binary("mul", number, const(step, "i64")))
