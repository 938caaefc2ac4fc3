"""Statements of the Kernel IR in NumPy: slow, plain, and checking. What a kernel means is what this module does.

Every access is checked against the buffer's shape; reading an element of a STACK or SCRATCH buffer that nothing has
written is an error; a VECTOR loop runs each statement for all of its lanes before the next one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from polyker.codegen.ir.kernel import (
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
)
from polyker.codegen.ir.polynomial import Poly, atom, is_index, polynomial, same_element
from polyker.codegen.ir.swizzled import swizzle_of_buffer
from polyker.codegen.ir.walk import loads_in
from polyker.errors.base import InternalError
from polyker.ir.dtypes import DType
from polyker.schedule.tree.swizzle import Swizzle
from tests.codegen.interpret_operations import apply, combine, convert

Array: TypeAlias = np.ndarray[Any, Any]
_TRUE = np.asarray(True)
_REDUCIBLE = ("add", "mul", "minimum", "maximum", "and", "or")


@lru_cache(1024)
def _whole(value: int, dtype: DType) -> Array:
    found = np.asarray(value, dtype.numpy)
    found.flags.writeable = False
    return found


@lru_cache(1024)
def _loads(value: KExpr) -> frozenset[str]:
    return frozenset(load.buffer for load in loads_in(value))


def _spread(value: Array, shape: tuple[int, ...]) -> Array:
    """Return a value for each lane."""
    return value if value.shape == shape else np.broadcast_to(value, shape)


class Failed(Exception):
    """A Guard that did not hold."""

    def __init__(self, code: int) -> None:
        self.code = code


class Interpreter(ABC):
    """`env` maps variables to 0-d arrays, or to 1-d arrays in a vector loop: one element a lane."""

    def __init__(self, kernel: KernelIR, buffers: Mapping[str, Array], integers: Mapping[str, int]) -> None:
        self.integers: dict[str, Array] = {k: np.asarray(v, np.int64) for k, v in integers.items()}
        self.arrays: dict[str, Array] = {}
        self.dtypes: dict[str, DType] = {}
        self.defined: dict[str, Array] = {}
        self.counts: dict[str, Array] = {}
        self.counting = False  # whether anybody asks for them
        self.mask: Array | None = None  # of the vector loop around, else None
        self.swizzles: dict[str, Swizzle] = {}  # of swizzled buffers: their elements are held where they lie
        self.affine: dict[str, Poly] = {}  # of Lets that are index arithmetic
        self.failed = 0  # the code of the first guard that did not hold in a launch
        self.watch: Callable[..., None] | None = (
            None  # called with the name and indices of each scalar use, and `write`
        )
        for buffer in kernel.buffers:
            array = buffers[buffer.name]
            shape = tuple(int(self.value(s, self.integers)) for s in buffer.shape)
            if array.shape != shape or array.dtype != buffer.dtype.numpy:
                raise InternalError(
                    f"buffer {buffer.name!r} is {array.dtype}{array.shape}, declared {buffer.dtype}{shape}"
                )
            self.add(buffer, array)

    def add(self, buffer: Buffer, array: Array) -> None:
        """Let a buffer live in an array; of a STACK, SHARED or SCRATCH one nothing is defined."""
        self.arrays[buffer.name] = array
        self.dtypes[buffer.name] = buffer.dtype
        self.counts[buffer.name] = np.zeros(array.shape, np.int64)
        if buffer.swizzle:
            self.swizzles[buffer.name] = swizzle_of_buffer(buffer)
        if buffer.space is not Space.ARGUMENT:
            self.defined[buffer.name] = np.zeros(array.shape, np.bool_)

    # Statements

    def block(self, block: StmtBlock, env: dict[str, Array]) -> None:
        """Run a block; its Lets end with it."""
        env = {**self.integers, **env}
        for stmt in block:
            self.statement(stmt, env)

    def statement(self, stmt: Stmt, env: dict[str, Array]) -> None:
        """Run one statement for the active lanes."""
        match stmt:
            case Store():
                self._store(stmt, env)
            case VectorLoad():
                self._vector_load(stmt, env)
            case VectorStore():
                self._vector_store(stmt, env)
            case Copy():
                for place, given in self.copied(stmt, env):
                    self._write(stmt.buffer, place, given)
            case Prefetch():
                pass
            case Let(name=name, value=value):
                env[name] = self.value(value, env)
                if is_index(value):
                    self.affine[name] = polynomial(value, self._leaf)
            case Guard(condition=condition, code=code):
                if not np.all(self.value(condition, env) | ~self._active()):
                    raise Failed(code)
            case If(condition=condition, body=body, orelse=orelse):
                self._if(self.value(condition, env), body, orelse, env)
            case For(kind=LoopKind.VECTOR):
                self._vector(stmt, env)
            case For(kind=LoopKind.PARALLEL):
                self._parallel(stmt, env)
            case For():
                self._serial(stmt, env)
            case Allocate(buffers=buffers, body=body):
                self._allocate(buffers, env)
                self.block(body, env)
            case Launch():
                self.launch(stmt, env)
            case Barrier() | Shuffle() | Combine() | Commit() | Wait():
                raise InternalError("threads meet outside a launch")

    @abstractmethod
    def launch(self, launch: Launch, env: Mapping[str, Array]) -> None:
        """Run a launch."""

    def _vector_load(self, stmt: VectorLoad, env: dict[str, Array]) -> None:
        places = self._neighbours(stmt.buffer, stmt.indices, len(stmt.names), env)
        for name, at in zip(stmt.names, places, strict=True):
            env[name] = self._load(Load(stmt.buffer, at, stmt.dtype, stmt.predicate, stmt.other), env)

    def _vector_store(self, stmt: VectorStore, env: dict[str, Array]) -> None:
        computed = [self.value(v, env) for v in stmt.values]
        places = self._neighbours(stmt.buffer, stmt.indices, len(computed), env)
        for at, one in zip(places, computed, strict=True):
            self._write(stmt.buffer, self._indices(stmt.buffer, at, env, self._active()), one)

    def _allocate(self, buffers: tuple[Buffer, ...], env: dict[str, Array]) -> None:
        for b in buffers:
            shape = tuple(int(self.value(s, env)) for s in b.shape)
            self.add(b, np.zeros(shape, b.dtype.numpy))

    def _active(self) -> Array:
        return _TRUE if self.mask is None else self.mask

    def _if(self, condition: Array, body: StmtBlock, orelse: StmtBlock, env: dict[str, Array]) -> None:
        if self.mask is None:
            self.block(body if condition else orelse, env)
            return
        outer = self.mask
        for mask, block in ((outer & condition, body), (outer & ~condition, orelse)):
            self.mask = mask
            if mask.any():
                self.block(block, env)
        self.mask = outer

    def _vector(self, loop: For, env: dict[str, Array]) -> None:
        lo, hi = int(self.value(loop.lo, env)), int(self.value(loop.hi, env))
        if hi - lo > loop.lanes or (loop.trip is not None and loop.trip != max(0, hi - lo)):
            raise InternalError(f"VECTOR loop {loop.var!r} from {lo} to {hi}: lanes {loop.lanes}, trip {loop.trip}")
        lanes = np.arange(loop.lanes, dtype=np.int64)
        self.mask = lanes < hi - lo
        if self.mask.any():
            self.block(loop.body, {**env, loop.var: lo + lanes})
        self.mask = None

    def _parallel(self, loop: For, env: dict[str, Array]) -> None:
        """Run the last iteration first: the order means nothing."""
        lo, hi = int(self.value(loop.lo, env)), int(self.value(loop.hi, env))
        values = range(lo, hi, loop.step)
        if loop.trip is not None and loop.trip != len(values):
            raise InternalError(f"loop {loop.var!r} runs {len(values)} times, declared trip {loop.trip}")
        for n, value in reversed(list(enumerate(values))):
            inner = {**env, loop.var: np.asarray(value, np.int64)}
            if loop.thread:
                inner[loop.thread] = np.asarray(n * loop.lanes // len(values), np.int64)
            self.block(loop.body, inner)

    def _serial(self, loop: For, env: dict[str, Array]) -> None:
        var, hi = self.value(loop.lo, env), self.value(loop.hi, env)
        outer, count = self.mask, 0
        while (alive := var < hi) if outer is None else (alive := outer & (var < hi)).any():
            if outer is not None:
                self.mask = np.broadcast_to(alive, outer.shape)
            self.block(loop.body, {**env, loop.var: np.asarray(var)})
            self.mask = outer
            var = var + np.int64(loop.step)
            count += 1
        bounded = loop.kind not in (LoopKind.SERIAL, LoopKind.STREAM, LoopKind.SCAN)
        known = loop.trip if loop.trip is not None else loop.lanes if bounded else None
        if known is not None and outer is None and (count > known or (loop.trip is not None and count != known)):
            raise InternalError(f"loop {loop.var!r} runs {count} times, declared trip {loop.trip}, lanes {loop.lanes}")

    # Memory

    def _indices(
        self, name: str, indices: tuple[KExpr, ...], env: Mapping[str, Array], active: Array
    ) -> tuple[Array, ...]:
        """Return checked indices: 0-d each, or one a lane in those that differ in lanes, whose inactive ones' are 0."""
        values = [self.value(i, env) for i in indices]
        shape = self.arrays[name].shape
        everywhere = active is _TRUE
        for axis, (value, extent) in enumerate(zip(values, shape, strict=True)):
            if value.ndim == 0 and 0 <= int(value) < extent:
                continue
            wrong = (value.view(np.uint64) >= extent) & active  # negative ones are large without a sign
            if wrong.any():
                seen = _spread(value, wrong.shape)[wrong].flat[0]
                raise InternalError(f"index {seen} is outside axis {axis} of {name!r} with shape {shape}")
        if any(v.ndim for v in values):
            return (
                tuple(values)
                if everywhere or active.all()
                else tuple(np.where(active, v, 0) if v.ndim else v for v in values)
            )
        if name in self.swizzles:  # in launches alone: no vector loop is around
            at = self.swizzles[name].place(int(np.ravel_multi_index([int(v) for v in values], shape)))
            return tuple(np.asarray(n) for n in np.unravel_index(at, shape))
        return tuple(values) if everywhere or active.any() else (np.zeros((), np.int64),) * len(values)

    def copied(self, copy: Copy, env: dict[str, Array]) -> Iterator[tuple[tuple[Array, ...], Array]]:
        """Yield the indices that a copy writes to, checked, and the values."""
        to = self._neighbours(copy.buffer, copy.indices, copy.lanes, env)
        there = copy.predicate is None or bool(self.value(copy.predicate, env))
        places = self._neighbours(copy.source, copy.places, copy.lanes, env) if there else to
        for at, place in zip(to, places, strict=True):
            value = copy.other if not there else Load(copy.source, place, self.dtypes[copy.source])
            assert value is not None
            yield self._indices(copy.buffer, at, env, self._active()), self.value(value, env)

    def write(self, name: str, at: tuple[Array, ...], value: Array) -> None:
        """Store an element."""
        self._write(name, at, value)

    def _neighbours(
        self, name: str, indices: tuple[KExpr, ...], count: int, env: dict[str, Array]
    ) -> list[tuple[KExpr, ...]]:
        """Return the indices of neighbouring elements; their first one's offset has to be a multiple of their number."""
        shape = self.arrays[name].shape
        at = [int(self.value(i, env)) for i in indices]
        offset = 0
        for i, extent in zip(at, shape, strict=True):
            offset = offset * extent + i
        if offset % count:
            raise InternalError(f"an access of {count} elements of {name!r} at {at}, which is no multiple of them")
        return [(*map(Const, at[:-1]), Const(at[-1] + n)) for n in range(count)]

    def _load(self, load: Load, env: Mapping[str, Array]) -> Array:
        active = self._active()
        if load.predicate is not None:
            active = active & self.value(load.predicate, env)
        array = self.arrays[load.buffer]
        everywhere = active is _TRUE
        if load.predicate is not None and not active.any():
            value = np.zeros(active.shape, array.dtype)
        else:
            at = self._indices(load.buffer, load.indices, env, active)
            if self.watch is not None:
                self.watch(load.buffer, at, write=False)
            there = self.defined[load.buffer][at] if load.buffer in self.defined else _TRUE
            if there is not _TRUE and not (there.all() if everywhere else (there | ~active).all()):
                raise InternalError(f"read of an undefined element of {load.buffer!r} at {[a.tolist() for a in at]}")
            value = array[at]
            if np.ndim(value) or active.ndim:
                value = np.where(active, value, np.zeros((), array.dtype))
        if load.predicate is None or load.other is None:
            return np.asarray(value)
        return np.where(self.value(load.predicate, env), value, self.value(load.other, env))

    def _store(self, stmt: Store, env: dict[str, Array]) -> None:
        active = self._active()
        at = self._indices(stmt.buffer, stmt.indices, env, active)
        uniform = self.mask is not None and all(self._uniform(i, env) for i in stmt.indices)
        if uniform:
            first = np.flatnonzero(self.mask)[0]
            at = tuple(a[first] if a.ndim else a for a in at)
            if self._reduce(stmt, at, env):
                return
        value = self.value(stmt.value, env)
        if self.mask is not None:
            if uniform:
                value = _spread(value, self.mask.shape)[np.flatnonzero(self.mask)[-1]]
            else:
                at = tuple(a[self.mask] if a.ndim else a for a in at)
                self._check_lanes(stmt, at)
                value = _spread(value, self.mask.shape)[self.mask]
        self._write(stmt.buffer, at, value)

    def _leaf(self, expr: KExpr) -> Poly:
        known = self.affine.get(expr.name) if isinstance(expr, Var) else None
        return atom(expr) if known is None else known

    def _uniform(self, index: KExpr, env: dict[str, Array]) -> bool:
        """Return whether an index is the same in all lanes by its form, not only by its values."""
        poly = polynomial(index, self._leaf)
        return all(self.value(a, env).ndim == 0 for monomial in poly for a in monomial)

    def _check_lanes(self, stmt: Store, at: tuple[Array, ...]) -> None:
        """Refuse updates `x[f(lane)] = g(x[f(lane)])` of one element by two lanes: one of them would be lost."""
        lanes = [a.tolist() for a in at if a.ndim]
        if lanes and stmt.buffer in _loads(stmt.value) and len(set(zip(*lanes, strict=True))) < len(lanes[0]):
            raise InternalError(f"two lanes of a VECTOR loop update one element of {stmt.buffer!r}")

    def _reduce(self, stmt: Store, at: tuple[Array, ...], env: dict[str, Array]) -> bool:
        """`x op= value` at one place in a vector loop: all active lanes are combined."""
        match stmt.value:
            case Op(op=op, args=(Load(predicate=None) as old, term)):
                start: KExpr = old
            case Convert(arg=Op(op=op, args=(Convert(arg=Load(predicate=None) as old) as start, term))):
                pass  # combined in a wider type than is stored
            case _:
                return False
        if op not in _REDUCIBLE or not same_element(stmt, old):
            return False
        assert self.mask is not None
        terms = _spread(self.value(term, env), self.mask.shape)[self.mask]
        total = self.value(start, env)
        total = total if total.ndim == 0 else total[np.flatnonzero(self.mask)[0]]
        for one in terms:
            total = combine(op, np.asarray(total), np.asarray(one))
        self._write(stmt.buffer, at, convert(np.asarray(total), old.dtype))
        return True

    def _write(self, name: str, at: tuple[Array, ...], value: Array) -> None:
        if self.watch is not None:
            self.watch(name, at, write=True)
        self.arrays[name][at] = value
        if self.counting:
            np.add.at(self.counts[name], at, 1)
        if name in self.defined:
            self.defined[name][at] = True

    # Expressions

    def value(self, expr: KExpr, env: Mapping[str, Array]) -> Array:
        """Return the value: 0-d, or one element a lane."""
        if type(expr) is Var:  # the most frequent
            return env[expr.name]
        match expr:
            case Op(op=op, args=args, dtype=dtype):
                return apply(op, [self.value(a, env) for a in args], dtype)
            case Const(value=value, dtype=dtype):
                # Of other numbers equal ones may differ in their sign.
                return _whole(value, dtype) if isinstance(value, int) else np.asarray(value, dtype.numpy)
            case Convert(arg=arg, dtype=dtype):
                return convert(self.value(arg, env), dtype)
            case Load():
                return self._load(expr, env)
