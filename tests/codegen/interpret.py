"""Interpret the Kernel IR in NumPy: finds accesses outside buffers, undefined reads, races, and missed barriers.

Launches run thread by thread, the rest statement by statement: see `interpret_statements`.

Two uses of one element by different threads, one of them a write, are a race unless a barrier of their block lies between:
whatever the order in which this module runs the threads, each race is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import TypeVar

import numpy as np
from msgspec import Struct, field

from polyker.codegen.ir.kernel import (
    AXES,
    WARP,
    Allocate,
    Barrier,
    Buffer,
    Commit,
    Copy,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Launch,
    LoopKind,
    PartCall,
    Shuffle,
    Space,
    Stmt,
    StmtBlock,
    Wait,
)
from polyker.codegen.ir.polynomial import evaluate
from polyker.errors.base import InternalError
from tests.codegen.interpret_statements import Array, Failed, Interpreter

T = TypeVar("T")
ThreadPlace = tuple[int, int, int]
BufferElement = tuple[str, tuple[int, ...]]
# Barriers of the block that a thread has passed, the number of its warp, and the warp's barriers that it has passed.
Epoch = tuple[int, int, int]
Use = tuple[ThreadPlace, ThreadPlace, Epoch]  # block, thread, and what it has passed


class _Shadow(Struct):
    """The uses of each element in one launch since it was written last."""

    launch: str
    written: dict[BufferElement, Use] = field(default_factory=dict)
    read: dict[BufferElement, dict[tuple[ThreadPlace, ThreadPlace], Epoch]] = field(default_factory=dict)
    coming: dict[BufferElement, ThreadPlace] = field(
        default_factory=dict
    )  # what copies have not brought yet, and whose they are

    def reads(self, element: BufferElement, use: Use) -> None:
        """Note a read."""
        self._check_there(element, use, "reads")
        last = self.written.get(element)
        if last is not None:
            self._check(element, last, use, "writes", "reads")
        self.read.setdefault(element, {})[use[:2]] = use[2]

    def writes(self, element: BufferElement, use: Use) -> None:
        """Note a write."""
        self._check_there(element, use, "writes")
        last = self.written.get(element)
        if last is not None:
            self._check(element, last, use, "writes", "writes")
        for (block, thread), passed in self.read.pop(element, {}).items():
            self._check(element, (block, thread, passed), use, "reads", "writes")
        self.written[element] = use

    def forget(self, buffers: set[str]) -> None:
        """Drop the uses of what ends with its block."""
        self.written = {element: use for element, use in self.written.items() if element[0] not in buffers}
        self.read = {element: uses for element, uses in self.read.items() if element[0] not in buffers}
        self.coming = {element: thread for element, thread in self.coming.items() if element[0] not in buffers}

    def _check_there(self, element: BufferElement, use: Use, does: str) -> None:
        if element in self.coming:
            name, index = element
            raise InternalError(
                f"{name}[{', '.join(map(str, index))}] in {self.launch} is not there when thread {use[1]} of block {use[0]} "
                f"{does} it: no wait of thread {self.coming[element]} covers the copy"
            )

    def _check(self, element: BufferElement, first: Use, second: Use, did: str, does: str) -> None:
        (one, warp, met), (other, same, later) = first[2], second[2]
        ordered = first[0] == second[0] and (one != other or (warp == same and met != later))
        if first[:2] != second[:2] and not ordered:
            name, index = element
            raise InternalError(
                f"race in {self.launch} on {name}[{', '.join(map(str, index))}]: thread {first[1]} of block {first[0]} {did} it, "
                f"thread {second[1]} of block {second[0]} {does} it, and no barrier lies between"
            )


def run(
    kernel: KernelIR,
    buffers: Mapping[str, Array],
    integers: Mapping[str, int],
    *,
    stores: dict[str, Array] | None = None,
) -> int:
    """Run a kernel on arrays (ARGUMENT and SCRATCH buffers by name; written in place) and return its status.

    `stores`, if given, receives for each of those buffers how often each element was stored to.
    Raises InternalError on an access outside a buffer and on a read of an undefined element.
    """
    if kernel.parts:
        return _run_parts(kernel, buffers, integers)
    state = _Launches(kernel, buffers, integers)
    if stores is not None:
        state.counting = True
        stores.update(state.counts)
    try:
        with np.errstate(all="ignore"):
            state.block(kernel.body, {})
    except Failed as failed:
        return failed.code
    return state.failed


def _run_parts(kernel: KernelIR, buffers: Mapping[str, Array], integers: Mapping[str, int]) -> int:
    """Run the parts of a kernel one after another."""
    for call in kernel.body:
        assert isinstance(call, PartCall)
        part = kernel.parts[call.part]
        given = {b.name: buffers[name] for b, name in zip(part.buffers, call.buffers, strict=True)}
        values = {name: evaluate(value, integers) for name, value in zip(part.integers, call.integers, strict=True)}
        status = run(part, given, values)
        if status:
            return status + call.codes
    return 0


class _Launches(Interpreter):
    """The interpreter of statements, and of launches among them."""

    def launch(self, launch: Launch, env: Mapping[str, Array]) -> None:
        """Run all blocks, the last first; raises InternalError on a race and on a barrier that some threads never reach."""
        grid = tuple(int(self.value(g, env)) for g in launch.grid)
        shadow = _Shadow(launch.name)
        for z, y, x in reversed(list(product(range(grid[2]), range(grid[1]), range(grid[0])))):
            _run_block(self, launch, dict(env), grid, (x, y, z), shadow)


def _run_block(
    state: Interpreter,
    launch: Launch,
    env: dict[str, Array],
    grid: tuple[int, ...],
    block: ThreadPlace,
    shadow: _Shadow,
) -> None:
    width, height, depth = launch.block
    places = [(x, y, z) for z in range(depth) for y in range(height) for x in range(width)]
    shared: set[str] = set()
    places.reverse()  # the last thread first; a warp's still lie together
    threads = [_Thread(state, launch, grid, block, place, shadow, shared) for place in places]
    for n, t in enumerate(threads):
        t.warp = n // WARP
    runs = [t.run(launch.body, env) for t in threads]
    while True:
        met = [next(r, None) for r in runs]
        for first in range(0, len(met), WARP):
            warp = slice(first, first + WARP)
            while any(isinstance(m, Shuffle) or (m is not None and m.warps) for m in met[warp]):
                if any(m is not met[first] for m in met[warp]):
                    what = "a shuffle" if any(isinstance(m, Shuffle) for m in met[warp]) else "a barrier of it"
                    raise InternalError(f"some threads of a warp of block {block} of {launch.name} miss {what}")
                if isinstance(met[first], Shuffle):
                    _exchange(threads[warp])
                else:
                    for t in threads[warp]:
                        t.met += 1
                met[warp] = [next(r, None) for r in runs[warp]]
        if all(b is None for b in met):
            break
        if any(b is not met[0] for b in met):
            raise InternalError(
                f"some threads of block {block} of {launch.name} never reach a barrier that others wait in"
            )
        for t in threads:
            t.passed += 1
    for name in shared:
        state.arrays.pop(name)
    if shared:
        shadow.forget(shared)


def _exchange(warp: list[_Thread]) -> None:
    """Give each thread of a warp, the last of which is the first of the list, the value of its partner in a shuffle."""
    given = [t.shuffled for t in warp]
    for n, t in enumerate(warp):
        t.shuffled = given[WARP - 1 - ((WARP - 1 - n) ^ t.mask)]


class _Thread:
    """One thread: its own variables and STACK buffers, the interpreter's expressions and memory."""

    def __init__(
        self, state: Interpreter, launch: Launch, grid: tuple[int, ...], block: ThreadPlace, thread: ThreadPlace, shadow: _Shadow,
        shared: set[str],
    ) -> None:  # fmt: skip
        self.state, self.shadow, self.shared, self.passed = state, shadow, shared, 0
        self.place = block, thread
        self.warp = self.met = 0  # the number of its warp, and that warp's barriers passed
        self.shuffled: Array = np.asarray(0)  # what it gives in a shuffle, then what it gets
        self.mask = 0
        self.groups: list[list[tuple[str, tuple[Array, ...], Array]]] = [
            []
        ]  # copies that come later, the last group is open
        self.own: dict[str, tuple[Array, Array]] = {}  # STACK buffers and what of them is defined
        self.counts = {LoopKind.BLOCK: grid, LoopKind.THREAD: launch.block}

    def run(self, block: StmtBlock, env: dict[str, Array]) -> Iterator[Barrier | Shuffle]:
        """Run a block up to its end, and yield each barrier and shuffle."""
        env = dict(env)
        for stmt in block:
            match stmt:
                case Barrier():
                    yield stmt
                case Commit():
                    self.groups.append([])
                case Wait(pending=pending):
                    self._arrive(pending)
                case Copy(later=True):
                    self._ask(stmt, env)
                case Shuffle(name=name, value=given, mask=mask):
                    self.shuffled, self.mask = self.value(given, env), mask
                    yield stmt
                    env[name] = self.shuffled
                case Guard(condition=condition, code=code):
                    if not self.value(condition, env):
                        self.state.failed = self.state.failed or code
                        return  # what uses the index is left out
                case For(var=var, body=body):
                    for value in self._iterations(stmt, env):
                        yield from self.run(body, {**env, var: np.asarray(value, np.int64)})
                case If(condition=condition, body=body, orelse=orelse):
                    yield from self.run(body if self.value(condition, env) else orelse, env)
                case Allocate(buffers=buffers, body=body):
                    self._allocate(buffers, env)
                    yield from self.run(body, env)
                case _:
                    self._statement(stmt, env)

    def _iterations(self, loop: For, env: dict[str, Array]) -> range:
        """Return the values of a loop's variable in this thread: those dealt to it where blocks or threads share them."""
        first, by = int(self.value(loop.lo, env)), loop.step
        if loop.kind in self.counts:
            number = self.place[loop.kind is LoopKind.THREAD][AXES.index(loop.axis)]
            first, by = first + number * loop.step, loop.step * self.counts[loop.kind][AXES.index(loop.axis)]
        return range(first, int(self.value(loop.hi, env)), by)

    def _allocate(self, buffers: tuple[Buffer, ...], env: dict[str, Array]) -> None:
        """Allocate this thread's STACK buffers, and those of the block that no thread has allocated yet."""
        for buffer in buffers:
            shape = tuple(int(self.value(s, env)) for s in buffer.shape)
            if buffer.space is Space.STACK:
                self.own[buffer.name] = np.zeros(shape, buffer.dtype.numpy), np.zeros(shape, np.bool_)
            elif buffer.name not in self.shared:
                self.shared.add(buffer.name)
                self.state.add(buffer, np.zeros(shape, buffer.dtype.numpy))

    def value(self, expr: KExpr, env: dict[str, Array]) -> Array:
        """Return the value of an expression."""
        return self._within(lambda: self.state.value(expr, env))

    def _statement(self, stmt: Stmt, env: dict[str, Array]) -> None:
        self._within(lambda: self.state.statement(stmt, env))

    def _ask(self, copy: Copy, env: dict[str, Array]) -> None:
        """Begin a copy that arrives later: what was in its place is lost at once."""
        found = self._within(lambda: list(self.state.copied(copy, env)))
        for at, value in found:
            self._note(copy.buffer, at, write=True)
            self.state.defined[copy.buffer][at] = False
            self.shadow.coming[_element(copy.buffer, at)] = self.place[1]
            self.groups[-1].append((copy.buffer, at, value))

    def _arrive(self, pending: int) -> None:
        """Let the copies arrive that a wait covers; those of the open group it does not."""
        closed = self.groups[:-1]
        for group in closed[: len(closed) - pending] if pending < len(closed) else []:
            for name, at, value in group:
                del self.shadow.coming[_element(name, at)]
                self._store(name, at, value)
            group.clear()

    def _store(self, name: str, at: tuple[Array, ...], value: Array) -> None:
        self._within(lambda: self.state.write(name, at, value))

    def _within(self, work: Callable[[], T]) -> T:
        """Do something with this thread's buffers, its uses of memory noted."""
        state = self.state
        state.watch = self._note
        for name, (array, defined) in self.own.items():
            state.arrays[name], state.defined[name] = array, defined
            state.counts[name] = np.zeros(array.shape, np.int64)
        try:
            return work()
        finally:
            state.watch = None

    def _note(self, name: str, at: tuple[Array, ...], *, write: bool) -> None:
        if name not in self.own:
            element = _element(name, at)
            (self.shadow.writes if write else self.shadow.reads)(
                element, (*self.place, (self.passed, self.warp, self.met))
            )


def _element(name: str, at: tuple[Array, ...]) -> BufferElement:
    return name, tuple(int(a) for a in at)
