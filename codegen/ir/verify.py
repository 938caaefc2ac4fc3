"""The verifier of the Kernel IR: every rule that `polyker.codegen.ir.kernel` states; a breach is a bug of polyker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

from msgspec import Struct

from polyker.codegen.ir.kernel import (
    AXES,
    COPIED,
    FORMS,
    MAX_ACCESS_BYTES,
    WARP,
    Allocate,
    Barrier,
    Buffer,
    Combine,
    Commit,
    Const,
    Convert,
    Copy,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Launch,
    Let,
    Load,
    LoopKind,
    Op,
    PartCall,
    Prefetch,
    Shuffle,
    Space,
    Stmt,
    StmtBlock,
    Store,
    Var,
    VectorLoad,
    VectorStore,
    Wait,
    Wide,
)
from polyker.codegen.ir.polynomial import as_constant, is_dense, is_multiple, offset_of, polynomial
from polyker.codegen.ir.walk import blocks_of, is_zero, on_gpu, read_by, statements, written_by
from polyker.errors.base import InternalError, escape
from polyker.ir.dtypes import DType, bool_, i32, i64, u32
from polyker.ir.expr import ARITHMETIC, BITWISE, COMPARISONS, DOTS, FUNCTIONS, INTERNAL, LOGICAL
from polyker.ir.functions import TABLE
from polyker.schedule.tree.swizzle import why_not_swizzled
from polyker.structs import replace

FAST_MATH = frozenset({"nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "fast"})
_OF_LAUNCHES = (LoopKind.BLOCK, LoopKind.THREAD)
_NARY = frozenset({"add", "mul", "minimum", "maximum", "and", "or", "bit_and", "bit_or", "bit_xor"})
_BINARY = frozenset({"sub", "div", "floordiv", "mod", "pow", "shift_left", "shift_right", *COMPARISONS, *DOTS, *FORMS})
# What typing writes by other operations, of all types or of complex numbers.
_WRITTEN = frozenset(f.name for f in TABLE.values() if "f" in f.expanded)
OPERATIONS = frozenset(
    {*ARITHMETIC, *COMPARISONS, *LOGICAL, *BITWISE, *FUNCTIONS, *INTERNAL, *FORMS, COPIED, "sub"} - _WRITTEN
)
# Extrema of complex numbers, in numpy's order, are for this level alone.
_REAL_ONLY = frozenset(
    {"floordiv", "mod", *(f.name for f in TABLE.values() if not f.complex or "c" in f.expanded)}
    - {"minimum", "maximum"}
)
_FLOATING = frozenset({"div", *(f.name for f in TABLE.values() if f.takes == "float")})
# Typing converts bools first.
_NOT_OF_BOOLS = frozenset(f.name for f in TABLE.values() if f.of_bool not in (None, bool_))
_INTEGERS = frozenset(f.name for f in TABLE.values() if f.takes == "integer")
_ARITY = {"multiply_add": 3} | dict.fromkeys(_BINARY, 2) | {f.name: f.arity for f in TABLE.values()}


class _Scope(Struct, frozen=True):
    names: Mapping[str, DType]
    buffers: Mapping[str, Buffer]
    in_vector: bool = False
    in_parallel: bool = False
    warps: bool = False  # in a Launch whose blocks have whole warps
    launched: tuple[bool, ...] | None = None  # for blocks x y z, threads x y z: whether a Store needs a loop of it yet

    def bind(self, name: str, dtype: DType, node: object) -> _Scope:
        _check(name not in self.names and name not in self.buffers, "the name {!r} is bound already", node, name)
        return self.having({**self.names, name: dtype}, self.in_vector)

    def having(self, names: Mapping[str, DType], in_vector: bool) -> _Scope:
        """Return the scope with other names, in a vector loop or not."""
        return _Scope(names, self.buffers, in_vector, self.in_parallel, self.warps, self.launched)


def _check(holds: bool, what: str, node: object, *parts: object) -> None:
    """Raise unless `holds`; `what` is formatted with `parts` only then, for there are many checks."""
    if not holds:
        raise InternalError(f"bad kernel: {what.format(*parts)}, in {escape(repr(node))}")


def verify(kernel: KernelIR) -> None:
    """Check a kernel; raises InternalError that names the node and the rule it breaks."""
    unknown = set(kernel.fastmath) - FAST_MATH
    _check(not unknown, "unknown fast-math flags {}", kernel.fastmath, sorted(unknown))
    scope = _Scope({}, {})
    for name in kernel.integers:
        scope = scope.bind(name, i64, name)
    for buffer in kernel.buffers:
        outside = buffer.space in (Space.ARGUMENT, Space.SCRATCH)
        _check(outside, "a {} buffer is allocated in the body", buffer, buffer.space.name)
        _buffer(buffer, scope)
        scope = _Scope(scope.names, {**scope.buffers, buffer.name: buffer})
    if on_gpu(kernel):
        scope = replace(scope, launched=(True,) * 6)
    elif any(isinstance(s, For) and s.kind in _OF_LAUNCHES for s in statements(kernel.body)):
        scope = replace(scope, launched=(False,) * 6)  # the pass `launches` has not given its loops their axes yet
    for part in kernel.parts:
        verify(part)
    for stmt in kernel.body:
        if isinstance(stmt, PartCall):
            _part_call(stmt, kernel.parts, scope)
    _block([s for s in kernel.body if not isinstance(s, PartCall)], scope)


def _part_call(call: PartCall, parts: Sequence[KernelIR], scope: _Scope) -> None:
    """Check that a part is given what it takes."""
    _check(0 <= call.part < len(parts), "there is no such part", call)
    part = parts[call.part]
    _check(len(call.buffers) == len(part.buffers), "one buffer for each of the part's", call)
    _check(len(call.integers) == len(part.integers), "one integer for each of the part's", call)
    for name, wanted in zip(call.buffers, part.buffers, strict=True):
        _check(name in scope.buffers, "no buffer {!r}", call, name)
        given = scope.buffers[name]
        _check(given.dtype == wanted.dtype, "the buffer {!r} is of another type", call, name)
        _check(given.writable or not wanted.writable, "the part writes the read-only buffer {!r}", call, name)
        written_twice = wanted.writable and call.buffers.count(name) > 1
        _check(not written_twice, "the part writes {!r}, which it has by another name, too", call, name)
    for value in call.integers:
        _index(value, scope, call)


def _buffer(buffer: Buffer, scope: _Scope) -> None:
    _check(buffer.name not in scope.names and buffer.name not in scope.buffers, "the name is bound already", buffer)
    _check(len(buffer.shape) == len(buffer.strides), "one stride a dimension is needed", buffer)
    for expr in (*buffer.shape, *buffer.strides):
        _index(expr, scope, buffer)
    _check(not buffer.alignment or is_dense(buffer), "only what is dense has an alignment of its own", buffer)
    if buffer.space in (Space.STACK, Space.SHARED):
        sizes = [as_constant(polynomial(s)) for s in buffer.shape]
        positive = all(s is not None and s > 0 for s in sizes)
        _check(positive, "a {} buffer has a constant positive shape", buffer, buffer.space.name)
        _check(buffer.writable, "a {} buffer is writable", buffer, buffer.space.name)
    if buffer.swizzle:
        shared = buffer.space is Space.SHARED and bool(buffer.shape) and is_dense(buffer)
        _check(shared, "only a dense SHARED buffer with rows is swizzled", buffer)
        reason = why_not_swizzled(as_constant(polynomial(buffer.shape[-1])) or 0, buffer.dtype.itemsize, buffer.swizzle)
        _check(not reason, "a buffer that cannot be swizzled: {}", buffer, reason)


def _block(block: Sequence[Stmt], scope: _Scope) -> None:
    for stmt in block:
        if isinstance(stmt, Let):
            scope = scope.bind(stmt.name, _expr(stmt.value, scope), stmt)
        elif isinstance(stmt, VectorLoad):
            _wide(stmt, scope)
            for name in stmt.names:
                scope = scope.bind(name, stmt.dtype, stmt)
        elif isinstance(stmt, Shuffle):
            _check(scope.warps, "a Shuffle outside a Launch by whole warps", stmt)
            _check(0 < stmt.mask < WARP, "the mask names another thread of the warp", stmt)
            scope = scope.bind(stmt.name, _expr(stmt.value, scope), stmt)
        else:
            _statement(stmt, scope)


def _statement(stmt: Stmt, scope: _Scope) -> None:
    match stmt:
        case Store(buffer=name, indices=indices, value=value):
            _typed(value, _stored(name, indices, scope, stmt).dtype, scope, stmt)
        case Combine(buffer=name, indices=indices, value=value):
            _stored(name, indices, scope, stmt)
            _expr(value, scope)
            _check(scope.launched is not None, "a Combine outside a Launch", stmt)
        case VectorStore() | Copy():
            _wide(stmt, scope)
        case Prefetch(buffer=name, indices=indices):
            _access(name, indices, scope, stmt)
        case Guard(condition=condition, code=code):
            _typed(condition, bool_, scope, stmt)
            _check(isinstance(code, int) and code != 0, "a Guard's code is not 0", stmt)
        case If(condition=condition, body=body, orelse=orelse):
            _typed(condition, bool_, scope, stmt)
            _block(body, scope)
            _block(orelse, scope)
        case For():
            _loop(stmt, scope)
        case Allocate(buffers=buffers, body=body):
            for buffer in buffers:
                inner = buffer.space is Space.STACK or (buffer.space is Space.SHARED and scope.launched is not None)
                _check(inner, "only STACK buffers are allocated in the body, and SHARED ones in a Launch", buffer)
                _buffer(buffer, scope)
                scope = replace(scope, buffers={**scope.buffers, buffer.name: buffer})
            _block(body, scope)
        case Barrier(warps=True):
            _check(scope.warps, "a Barrier of warps outside a Launch by whole warps", stmt)
        case Barrier() | Commit():
            _check(scope.launched is not None, "a {} outside a Launch", stmt, type(stmt).__name__)
        case Wait(pending=pending):
            _check(scope.launched is not None and pending >= 0, "a Wait outside a Launch, or for less than none", stmt)
        case Launch(grid=grid, block=threads, body=body):
            header = (stmt.name, grid, threads)
            _check(scope.launched == (True,) * 6, "a Launch in a Launch", header)
            for size in grid:
                _index(size, scope, header)
            _check(all(n > 0 for n in threads) and prod(threads) <= 1024, "1 to 1024 threads", header)
            _check_written(body)
            several = (*(g != Const(1) for g in grid), *(n > 1 for n in threads))
            _block(body, replace(scope, launched=several, warps=prod(threads) % WARP == 0))
        case _:
            _check(False, "not a statement", stmt)


def _check_written(block: StmtBlock) -> tuple[frozenset[str], frozenset[str]]:
    """Return the buffers that a block of a Launch writes and reads; what is allocated in it and read is written in its extent."""
    written, read = frozenset[str](), frozenset[str]()
    for stmt in block:
        written, read = written | written_by(stmt), read | read_by(stmt)
        for inner in blocks_of(stmt):
            more, also = _check_written(inner)
            for buffer in stmt.buffers if isinstance(stmt, Allocate) else ():
                name = buffer.name
                _check(name in more or name not in also, "an allocated buffer is read and never written", buffer)
                more, also = more - {name}, also - {name}
            written, read = written | more, read | also
    return written, read


def _stored(name: str, indices: tuple[KExpr, ...], scope: _Scope, node: object) -> Buffer:
    """Return the checked buffer of a store."""
    buffer = _access(name, indices, scope, node)
    _check(buffer.writable, "store to the read-only buffer {!r}", node, name)
    one = buffer.space is Space.STACK or not any(scope.launched or ())
    _check(one, "a store by more than one thread, or outside a Launch", node)
    return buffer


def _wide(stmt: Wide, scope: _Scope) -> None:
    """Check an access of several elements at once."""
    used: list[tuple[Buffer, tuple[KExpr, ...]]] = []
    match stmt:
        case VectorLoad(names=names, buffer=name, indices=indices, dtype=dtype):
            lanes = len(names)
            used.append((_access(name, indices, scope, stmt), indices))
            _check(used[0][0].dtype == dtype, "a load of another type than the buffer's", stmt)
        case VectorStore(buffer=name, indices=indices, values=values):
            lanes = len(values)
            used.append((_stored(name, indices, scope, stmt), indices))
            for value in values:
                _typed(value, used[0][0].dtype, scope, stmt)
        case Copy(buffer=name, indices=indices, source=source, places=places, lanes=lanes):
            used += [(_stored(name, indices, scope, stmt), indices), (_access(source, places, scope, stmt), places)]
            _check(used[0][0].dtype == used[1][0].dtype, "a copy between buffers of different types", stmt)
            far = used[0][0].later and used[1][0].space in (Space.ARGUMENT, Space.SCRATCH)
            zero = stmt.predicate is None or is_zero(stmt.other)
            fits = far and zero and lanes * used[0][0].dtype.itemsize in (4, 8, 16)
            _check(fits or not stmt.later, "a copy that arrives later is 4, 8 or 16 bytes, or 0", stmt)
    if not isinstance(stmt, VectorStore) and stmt.predicate is not None:
        _typed(stmt.predicate, bool_, scope, stmt)
        _check(stmt.other is not None, "a predicate without `other`", stmt)
        _typed(stmt.other or stmt.predicate, used[0][0].dtype, scope, stmt)
    for buffer, at in used:
        size = lanes * buffer.dtype.itemsize
        alone = lanes == 1 and not (isinstance(stmt, Copy) and stmt.later and buffer.dtype.is_complex)
        aligned = buffer.space is not Space.ARGUMENT or buffer.alignment % size == 0 < buffer.alignment or alone
        _check(lanes >= 1 and size & (size - 1) == 0 and size <= MAX_ACCESS_BYTES, "an access of 1 to 16 bytes", stmt)
        _check(lanes == 1 or buffer.space is not Space.STACK, "one element of a STACK buffer at a time", stmt)
        _check(aligned and is_multiple(offset_of(buffer, at), lanes), "a wide access that is not aligned", stmt)


def _loop(loop: For, scope: _Scope) -> None:
    header = (loop.var, loop.kind, loop.lo, loop.hi, loop.step, loop.lanes, loop.trip)
    _index(loop.lo, scope, header)
    _index(loop.hi, scope, header)
    _check(isinstance(loop.step, int) and loop.step > 0, "the step is a positive constant", header)
    _check(loop.trip is None or loop.trip >= 0, "the trip count is not negative", header)
    if loop.kind in _OF_LAUNCHES:
        waits = scope.launched == (False,) * 6 and not loop.axis
        dealt = loop.axis in AXES and scope.launched is not None
        _check(waits or dealt, "a BLOCK or THREAD loop has an axis, in a Launch", header)
    elif loop.kind is not LoopKind.SERIAL:
        _check(loop.lanes > 0 or (loop.kind is LoopKind.UNROLL and loop.trip is not None), "lanes are needed", header)
        free = loop.trip is None or loop.lanes == 0 or loop.kind in (LoopKind.STREAM, LoopKind.SCAN, LoopKind.PARALLEL)
        _check(free or (loop.trip or 0) <= loop.lanes, "more iterations than lanes", header)
    vector = loop.kind is LoopKind.VECTOR
    if vector:
        _check(loop.step == 1, "a VECTOR loop has step 1", header)
        _check(not scope.in_vector, "a VECTOR loop in a VECTOR loop", header)
    inner = scope.bind(loop.var, i64, header)
    inner = inner.having(inner.names, True) if vector else inner
    if loop.kind is LoopKind.PARALLEL:
        _check(not (scope.in_vector or scope.in_parallel), "a PARALLEL loop in a VECTOR or PARALLEL loop", header)
        if loop.enough is not None:
            _index(loop.enough, scope, header)
        inner = inner.bind(loop.thread, i64, header) if loop.thread else inner
        shared = {name: b for name, b in inner.buffers.items() if b.space is not Space.STACK}
        inner = replace(inner, buffers=shared, in_parallel=True)
    if loop.axis and scope.launched is not None:
        place = AXES.index(loop.axis) + 3 * (loop.kind is LoopKind.THREAD)
        inner = replace(inner, launched=tuple(x and n != place for n, x in enumerate(scope.launched)))
    _block(loop.body, inner)


def _access(name: str, indices: tuple[KExpr, ...], scope: _Scope, node: object) -> Buffer:
    _check(name in scope.buffers, "no buffer {!r} is alive here", node, name)
    buffer = scope.buffers[name]
    _check(len(indices) == len(buffer.shape), "{} indices for {} dimensions", node, len(indices), len(buffer.shape))
    for index in indices:
        _index(index, scope, node)
    return buffer


def _index(expr: KExpr, scope: _Scope, node: object) -> None:
    _typed(expr, i64, scope, node)


def _typed(expr: KExpr, dtype: DType, scope: _Scope, node: object) -> None:
    found = _expr(expr, scope)
    _check(found == dtype, "{} where {} is needed", node, found, dtype)


def _expr(expr: KExpr, scope: _Scope) -> DType:
    """Return the checked type of an expression."""
    if isinstance(expr, Op):
        _operation(expr, scope)
    elif isinstance(expr, Const):
        _check(_fits(expr.value, expr.dtype), "{!r} is no {}", expr, expr.value, expr.dtype)
    elif isinstance(expr, Var):
        dtype = scope.names.get(expr.name)
        _check(dtype is not None, "no variable {!r} is bound here", expr, expr.name)
        _check(dtype is expr.dtype, "{!r} is of type {}", expr, expr.name, dtype)
    elif isinstance(expr, Convert):
        _expr(expr.arg, scope)
    elif isinstance(expr, Load):
        buffer = _access(expr.buffer, expr.indices, scope, expr)
        _check(buffer.dtype is expr.dtype, "a load of {} from a buffer of {}", expr, expr.dtype, buffer.dtype)
        if expr.predicate is not None:
            _typed(expr.predicate, bool_, scope, expr)
        if expr.other is not None:
            _check(expr.predicate is not None, "`other` without a predicate", expr)
            _typed(expr.other, expr.dtype, scope, expr)
    else:
        _check(False, "not an expression", expr)
    return expr.dtype


def _fits(value: object, dtype: DType) -> bool:
    match dtype.kind:
        case "b":
            return isinstance(value, bool)
        case "i" | "u":
            bits = 8 * dtype.itemsize - (dtype.kind == "i")
            low = -(1 << bits) if dtype.kind == "i" else 0
            return isinstance(value, int) and not isinstance(value, bool) and low <= value < 1 << bits
        case "f":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case _:
            return isinstance(value, (int, float, complex)) and not isinstance(value, bool)


def _operation(expr: Op, scope: _Scope) -> None:
    op, args, result = expr.op, expr.args, expr.dtype
    _check(op in OPERATIONS, "unknown operation {!r}", expr, op)
    types = list(map(partial(_expr, scope=scope), args))
    least = 1 if op in _NARY and op not in ("minimum", "maximum") else 2
    wanted = None if op in _NARY else _ARITY.get(op, 1)
    if op == "join":
        wanted = 4 // types[0].itemsize if types and types[0].is_integer and types[0].itemsize < 4 else 0
    _check(len(args) == wanted if wanted else len(args) >= least, "{} arguments for {!r}", expr, len(args), op)
    if op == "where":
        _check(types[0] == bool_, "where's condition is a bool", expr)
        types = types[1:]
    dtype = types[0]
    _check(all(t == dtype for t in types), "arguments of types {}", expr, types)
    if op in COMPARISONS:
        _check(result == bool_, "a comparison gives a bool", expr)
    elif op == "join" or op in DOTS:
        _check(
            result in (i32, u32) and (op == "join" or dtype == result), "{} of {} is not {}", expr, op, dtype, result
        )
    elif op in TABLE and TABLE[op].gives == "real":
        _check(result == dtype.real, "{} of {} is {}", expr, op, dtype, dtype.real)
    else:
        _check(result == dtype, "{} of {} is {}, not {}", expr, op, dtype, dtype, result)
    _check(op not in ("below", "above") or (dtype.kind == "f" and dtype.itemsize >= 4), "{} takes f32 or f64", expr, op)
    _check(op not in FORMS or dtype.kind == "f", "{} takes floats", expr, op)
    _check(op not in LOGICAL or dtype == bool_, "{} takes bools", expr, op)
    _check(op not in BITWISE or dtype.is_integer, "{} takes integers", expr, op)
    _check(op not in _REAL_ONLY or not dtype.is_complex, "{} takes no complex numbers", expr, op)
    if op in ("sub", "neg", "floordiv", "mod", "pow") or op in _NOT_OF_BOOLS:
        _check(dtype.kind != "b", "{} takes no bools", expr, op)
    _check(op not in _FLOATING or dtype.kind in "fc", "{} takes floats", expr, op)
    _check(op not in _INTEGERS or dtype.is_integer, "{} takes integers", expr, op)
