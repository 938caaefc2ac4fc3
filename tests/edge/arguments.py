"""Arguments of all kinds between guard pages: a result is NumPy's as if `out` were fresh, and nothing else is touched.

A trial calls one kernel again and again with several sets of arguments, many of them with the same shapes and strides but
another alignment or overlap: what the quick ways into a kernel took for granted may not hold in the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
from msgspec import Struct, field

import polyker as pk
from polyker.ir.dtypes import TensorType
from tests.edge.memory import (
    INPUT_LAYOUTS,
    OUTPUT_LAYOUTS,
    Arena,
    Place,
    outside,
    overlaps_itself,
    placed,
    reach,
    strides_of,
    view,
)
from tests.edge.trial import Part, Trial, Wrong

Shape = tuple[int, ...]
DTYPES = {
    "f64": "f8", "f32": "f4", "f16": "f2", "i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1", "u64": "u8", "u32": "u4",
    "u16": "u2", "u8": "u1", "c64": "c8", "c128": "c16", "bool": "?",
}  # fmt: skip
DTYPES_OF = {name: getattr(pk, "bool_" if name == "bool" else name) for name in DTYPES}
NUMBERS = tuple(name for name in DTYPES if name != "bool")


class Program(Struct, frozen=True):
    """A text for an element type, shapes of its arguments for three extents, and what NumPy makes of them."""

    name: str
    text: str
    shapes: Callable[[int, int, int], tuple[Shape, ...]]
    expected: Callable[..., Any]
    types: tuple[str, ...] = NUMBERS
    own: int | None = None  # the argument that the result starts from


PROGRAMS = (
    Program("copy", "y[i,j] = x[i,j]", lambda n, m, k: ((n, m),), lambda x: x.copy(), tuple(DTYPES)),
    Program("flat", "y[i] = x[i] + z[i]", lambda n, m, k: ((n,), (n,)), lambda x, z: x + z),
    Program("add", "y[i,j] = x[i,j] + z[j,i]", lambda n, m, k: ((n, m), (m, n)), lambda x, z: x + z.T),
    Program("matmul", "C[i,j] += A[i,k] * B[k,j]", lambda n, m, k: ((n, k), (k, m)), lambda a, b: a @ b),
    Program("rows", "y[i] = sum[k](x[i,k])", lambda n, m, k: ((n, k),), lambda x: x.sum(1, dtype=x.dtype)),
    Program("total", "s += x[i,j]", lambda n, m, k: ((n, m),), lambda x: x.sum(dtype=x.dtype)),
    Program("outer", "O[i,j] = a[i] * b[j]", lambda n, m, k: ((n,), (m,)), np.multiply.outer),
    Program("scaled", "y[i,j] = a * x[i,j]", lambda n, m, k: ((), (n, m)), lambda a, x: (a * x).astype(x.dtype)),
    Program("cube", "y[i,j,k] = x[k,i,j] + x[k,i,j]", lambda n, m, k: ((k, n, m),), lambda x: 2 * x.transpose(1, 2, 0)),
    Program(
        "inout",
        "f(A: §[N,M], B: §[N,M]) -> A:\n  A[i,j] = A[i,j] + B[i,j]",
        lambda n, m, k: ((n, m), (n, m)),
        lambda a, b: a + b,
        own=0,
    ),
    Program(
        "pair",
        "s[i,j] = x[i,j] + z[i,j]; t[i,j] = x[i,j] * z[i,j]",
        lambda n, m, k: ((n, m), (n, m)),
        lambda x, z: (x + z, x * z),
    ),
)


class Call(Struct):
    """Arguments of a call: arrays in arenas, what is given for them, and what is to come of it."""

    inputs: list[np.ndarray]
    given: list[Any]
    outs: list[np.ndarray]
    arenas: list[Arena]
    wanted: tuple[np.ndarray, ...]
    about: str
    foreign: bool
    before: list[np.ndarray] = field(default_factory=list)

    def remember(self) -> None:
        """Keep all bytes, to compare with and to start again from."""
        self.before = [arena.bytes.copy() for arena in self.arenas]

    def restore(self) -> None:
        for arena, before in zip(self.arenas, self.before, strict=True):
            arena.bytes[...] = before

    @property
    def legal(self) -> bool:
        """Whether the call has to be accepted."""
        apart = not any(np.shares_memory(a, b) for i, a in enumerate(self.outs) for b in self.outs[:i])
        return apart and not self.foreign and all(self._fits(out, w) for out, w in zip(self.outs, self.wanted))

    @staticmethod
    def _fits(out: np.ndarray, wanted: np.ndarray) -> bool:
        same = out.shape == wanted.shape and out.dtype == wanted.dtype and out.dtype.isnative
        return same and out.flags.writeable and not overlaps_itself(out)


class ByInterface:
    """An object of which only `__array_interface__` is known."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


class ByDlpack:
    """An object of which only DLPack's methods are known."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **named: Any) -> Any:
        return self._array.__dlpack__(**named)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class Sub(np.ndarray):
    """A subclass of NumPy's arrays."""


class Maker:
    """Makes calls of a program: the first sets the shapes, later ones often have its strides."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.program = random.choice(PROGRAMS)
        self.name = random.choice(self.program.types)
        self.dtype = np.dtype(DTYPES[self.name])
        extents = (0, 1, 2, 3, 5, 8, 17, 33) if random.random() < 0.5 else (3, 4, 5, 7, 16)
        self.shapes = self.program.shapes(*(random.choice(extents) for _ in range(3)))
        self._strides: dict[object, tuple[int, ...]] = {}
        self._twin = False  # whether arrays have the strides of earlier ones

    @property
    def text(self) -> str:
        """The operator's text."""
        return self.program.text.replace("§", self.name)

    def values(self, shape: Shape) -> np.ndarray:
        """Return small integers in the element type."""
        numbers = np.random.default_rng(self.random.getrandbits(32))
        low = 0 if self.dtype.kind in "ub" else -4
        found = numbers.integers(low, 2 if self.dtype.kind == "b" else 7, shape)
        if self.dtype.kind == "c":
            found = found + 1j * numbers.integers(-3, 4, shape)
        return np.asarray(found).astype(self.dtype)

    def _new(self, key: object, layouts: Sequence[str], shape: Shape, dtype: np.dtype[Any]) -> tuple[Arena, Place]:
        random = self.random
        strides = self._strides.get(key) if self._twin else None
        if strides is None:
            strides = strides_of(random, random.choice(layouts), shape, dtype.itemsize)
            self._strides.setdefault(key, strides)
        shift = random.choice((0, 0, 0, 1, dtype.itemsize // 2, dtype.itemsize, 3 * dtype.itemsize))
        return placed(shape, dtype, strides, shift=shift, at_end=random.random() < 0.5)

    def input(self, k: int) -> tuple[Arena, Place, np.ndarray]:
        """Return a new array for an argument."""
        dtype = self.dtype.newbyteorder() if self.random.random() < 0.08 else self.dtype
        arena, place = self._new(("input", k), INPUT_LAYOUTS, self.shapes[k], dtype)
        array = view(arena, place, self.shapes[k], dtype)
        array[...] = self.values(self.shapes[k])
        return arena, place, array

    def call(self) -> Call:
        """Return a call: arguments, `out` given or not, alone, on an argument, or on another `out`."""
        random = self.random
        self._twin = random.random() < 0.7
        found = [self.input(k) for k in range(len(self.shapes))]
        arenas, inputs = [f[0] for f in found], [f[2] for f in found]
        if len(inputs) == 2 and inputs[0].shape == inputs[1].shape and random.random() < 0.15:
            inputs[1] = inputs[0]
        mode = random.choice(("none", "alone", "alone", "overlap", "overlap", "overlap", "each other", "odd"))
        shapes = [np.asarray(w).shape for w in self._wanted(inputs)]
        outs: list[np.ndarray] = []
        for shape in shapes if mode != "none" else []:
            target = random.randrange(len(inputs))
            on = inputs[target] if mode == "overlap" else outs[0] if mode == "each other" and outs else None
            if on is not None and on.dtype == self.dtype:
                arena, out = self._onto(on, shape)
                moved = self._moved(arena, on)
                inputs = [moved if a is on else a for a in inputs]
                outs = [moved if o is on else o for o in outs]
            else:
                arena, out = self._alone(shape, odd=mode == "odd" and random.random() < 0.7)
            arenas.append(arena)
            outs.append(out)
        given: list[Any] = list(inputs)
        foreign = False
        for k, array in enumerate(inputs):
            if random.random() < 0.15:
                array.flags.writeable = False
            if random.random() < 0.12 or not array.ndim:
                given[k], foreign_one = self._otherwise(array)
                foreign |= foreign_one
        wanted = tuple(np.asarray(w) for w in self._wanted(inputs))
        about = [
            f"{self.name} {a.shape} strides {a.strides}, {a.ctypes.data % 64} mod 64, {type(g).__name__}"
            for a, g in zip(inputs, given, strict=True)
        ]
        about += [f"out {o.dtype.str} {o.shape} strides {o.strides}, {o.ctypes.data % 64} mod 64" for o in outs]
        made = Call(inputs, given, outs, arenas, wanted, f"{mode}: {'; '.join(about)}", foreign)
        made.remember()
        return made

    def _wanted(self, inputs: list[np.ndarray]) -> tuple[Any, ...]:
        found = self.program.expected(*(a.astype(self.dtype) for a in inputs))
        return found if isinstance(found, tuple) else (found,)

    def _alone(self, shape: Shape, *, odd: bool) -> tuple[Arena, np.ndarray]:
        """Return an array in memory of its own; `odd`: one that is no good as `out` in some way."""
        random, dtype, layouts = self.random, self.dtype, OUTPUT_LAYOUTS
        way = random.choice(("read-only", "type", "order", "shape", "zero")) if odd else ""
        if way == "type":
            dtype = np.dtype(random.choice(("f8", "f4", "i4", "i8", "c16")))
        elif way == "order":
            dtype = dtype.newbyteorder()
        elif way == "shape":
            shape = (*shape, 2) if random.random() < 0.5 else tuple(n + 1 for n in shape)
        elif way == "zero":
            layouts = ("zero", "window")
        arena, place = self._new(("out", way, shape), layouts, shape, dtype)
        out = view(arena, place, shape, dtype)
        out.flags.writeable = way != "read-only"
        return arena, out

    def _onto(self, on: np.ndarray, shape: Shape) -> tuple[Arena, np.ndarray]:
        """Return memory for a copy of `on`, and an array that overlaps that exactly, partly, transposed or reversed."""
        random, size = self.random, self.dtype.itemsize
        before, after = reach(on.shape, on.strides, size)
        slack = 12 * size
        arena = Arena(before + after + 2 * slack, at_end=random.random() < 0.5)
        first = slack + before
        strides = on.strides if len(on.strides) == len(shape) else strides_of(random, "dense", shape, size)
        way = random.choice(("same", "same", "transposed", "reversed", "own", "own", "own"))
        if way == "transposed":
            strides = strides[::-1]
        elif way == "own" and self._twin and ("out", "", shape) in self._strides:
            strides = self._strides["out", "", shape]
        elif way == "own" or shape != on.shape:
            strides = strides_of(random, random.choice(OUTPUT_LAYOUTS), shape, size)
        if way == "reversed":
            strides = tuple(-s for s in strides)
            first += reach(shape, strides, size)[0] - before
        first += random.choice((0, 0, size, -size, 3 * size, -2 * size, 8 * size, size // 2, 1))
        low, high = reach(shape, strides, size)
        if first < low or first + high > arena.bytes.size:  # it does not fit: as much of it as fits overlaps
            arena = Arena(max(before + after + 2 * slack, low + high + 2 * slack), at_end=random.random() < 0.5)
            first = max(low, min(first, arena.bytes.size - high))
        return arena, view(arena, Place(first, strides), shape, self.dtype)

    def _moved(self, arena: Arena, array: np.ndarray) -> np.ndarray:
        """Return the array in the arena that was made for it."""
        before, _ = reach(array.shape, array.strides, array.itemsize)
        moved = view(arena, Place(12 * array.itemsize + before, array.strides), array.shape, array.dtype)
        moved[...] = array
        return moved

    def _otherwise(self, array: np.ndarray) -> tuple[Any, bool]:
        """Return an argument as another kind of object with the same values, and whether it may be refused."""
        random = self.random
        ways: list[Callable[[], tuple[Any, bool]]] = [
            lambda: (array.view(Sub), False),
            lambda: (ByInterface(array), True),
            lambda: (ByDlpack(array), True),
            lambda: (memoryview(array), True),  # type: ignore[arg-type]
        ]
        native = array.dtype.isnative
        if array.dtype.str[1:] in ("f8", "i8", "c16", "b1") and array.size and native:
            ways.append(lambda: (array.tolist(), True))
        if array.ndim == 0:
            ways = [lambda: (array, False)]
            if native:
                ways.append(lambda: (array[()], False))
                ways.append(lambda: (array.item(), self.dtype.kind == "b"))
        return random.choice(ways)()


def attempt(trial: Trial, maker: Maker, function: Any, made: Call) -> None:
    """Make a call and look at results, at what is around them, and at what a refused call leaves."""
    made.restore()
    out = None if not made.outs else made.outs[0] if len(made.wanted) == 1 else tuple(made.outs)
    where = f"{maker.text!r}, {made.about}"
    try:
        result = function(*made.given, out=out)
    except pk.PolykerError as error:
        message = str(error)
        trial.check(not made.legal, lambda: f"refused: {where}: {message}")
        same = all((a.bytes == b).all() for a, b in zip(made.arenas, made.before, strict=True))
        trial.check(same, lambda: f"a refused call wrote: {where}: {message}")
        return
    results = result if isinstance(result, tuple) else (result,)
    if out is not None:
        trial.check(result is out or len(results) > 1, f"another object than out came back: {where}")
        fits = all(o.shape == w.shape and o.flags.writeable for o, w in zip(made.outs, made.wanted, strict=True))
        trial.check(fits and not any(map(overlaps_itself, made.outs)), f"out was not refused: {where}")
    for k, (got, wanted) in enumerate(zip(results, made.wanted, strict=True)):
        right = np.shape(got) == wanted.shape and np.array_equal(got, wanted)
        trial.check(right, lambda k=k, got=got, w=wanted: f"result {k}: {where}\n{np.asarray(got)!r}\nnot {w!r}")
        if out is None:
            trial.check(np.asarray(got).dtype == wanted.dtype, f"result {k} has another type: {where}")
        else:
            trial.check(np.array_equal(made.outs[k], wanted), f"out {k} does not hold the result: {where}")
    for arena, before in zip(made.arenas, made.before, strict=True):
        around = outside(arena, made.outs)
        trial.check((arena.bytes[around] == before[around]).all(), f"memory around out is touched: {where}")


def run(trial: Trial) -> None:
    """Call one operator or kernel with several sets of arguments, some of them many times."""
    random = trial.random
    maker = Maker(random)
    calls = [maker.call() for _ in range(random.choice((1, 3, 6)))]
    function: Any = pk.op(maker.text)
    if random.random() < 0.6:
        function = function.compile(*(TensorType(DTYPES_OF[maker.name], shape) for shape in maker.shapes))
    try:
        for made in calls:
            for _ in range(random.choice((1, 3, 5))):
                attempt(trial, maker, function, made)
        for _ in range(random.choice((0, 4, 64))):
            attempt(trial, maker, function, random.choice(calls))
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"{type(error).__name__}: {error}: {maker.text!r}, {made.about}") from error


PART = Part(run, limit=60.0, per_child=200)
