"""What a benchmark case is: an operator in polyker's notation at one shape, and the same operator for each peer."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct, field

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
# Called as spelling(module, *inputs, out=...): returns the result, written to `out` where the peer can; `out` may be None.
Spelling: TypeAlias = Callable[..., Any]

DTYPES = {
    "f32": "float32", "f64": "float64", "i8": "int8", "u8": "uint8", "i16": "int16", "i32": "int32", "i64": "int64",
    "bool": "bool",
}  # fmt: skip
ALIGNMENT = 64  # bytes; a cache line, so that no contestant is given a worse array than another


class Operand(Struct, frozen=True):
    """An input: its name in the text, dtype (polyker's name) and shape.

    `values`: "normal", "positive" (0.5 to 1.5), "unit" (0 to 1), "index" (0 to `bound`), "bool" (one in 16 true),
    "whole" (from -`bound`, or 0 where it has no sign, to `bound`).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: str = "normal"
    bound: int = 0

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return math.prod(self.shape) * np.dtype(DTYPES[self.dtype]).itemsize


class Problem(Struct, frozen=True):
    """An operator with its shapes and all its spellings.

    `text`, `fixed`: as for `pk.op`; `flops`: a multiply-add counts as two, None where memory is the bound; `bytes`: what any
    implementation has to move (each input read once, each output written once); `reference`: the result from inputs in
    float64; `rule`: how a result is compared with it (see benchmarks.check), `terms`: how many terms an element adds up;
    `spellings`: peer -> function.
    """

    text: str
    inputs: tuple[Operand, ...]
    output: Operand
    flops: int | None
    reference: Callable[..., Any]
    spellings: Mapping[str, Spelling]
    rule: str = "sum"
    terms: int = 1
    fixed: Mapping[str, int] = field(default_factory=dict)
    moved: int | None = None

    @property
    def bytes(self) -> int:
        """Compulsory bytes."""
        return self.moved if self.moved is not None else sum(o.bytes for o in (*self.inputs, self.output))


class Case(Struct, frozen=True):
    """A problem of the list, made when it is asked for.

    `family` and `group`: where its ratio counts; `make(**sizes, **settings)` returns the Problem; only `sizes` shrink.
    """

    name: str
    family: str
    group: str
    make: Callable[..., Problem]
    sizes: Mapping[str, int]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def problem(self) -> Problem:
        """Return the problem at its benchmark sizes."""
        return self.make(**self.sizes, **self.settings)

    def small(self) -> Problem:
        """Return the problem at sizes that even a plain interpreter runs through quickly."""
        limit = {1: 24, 2: 17, 3: 9, 4: 6}.get(len(self.sizes), 4)
        # Cut sizes differ, so that a transposed result has another shape.
        cut = {k: v if v <= limit else limit - n % 3 for n, (k, v) in enumerate(self.sizes.items())}
        return self.make(**cut, **self.settings)


def empty(shape: tuple[int, ...], dtype: str) -> Array:
    """Return an aligned array whose pages are there already."""
    kind = np.dtype(DTYPES[dtype])
    size = math.prod(shape) * kind.itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    raw.fill(0)  # numpy's zeros are pages that nobody has touched
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(kind).reshape(shape)


def arrays(name: str, problem: Problem) -> list[Array]:
    """Return the problem's inputs, the same for the same name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    found = []
    for operand in problem.inputs:
        array = empty(operand.shape, operand.dtype)
        match operand.values:
            case "index":
                array[...] = rng.integers(0, operand.bound, operand.shape)
            case "whole":
                low = -operand.bound if array.dtype.kind == "i" else 0
                array[...] = rng.integers(low, operand.bound, operand.shape)
            case "bool":
                array[...] = rng.integers(0, 16, operand.shape) == 0
            case "unit" | "positive":
                array[...] = rng.random(operand.shape, dtype=array.dtype.type)
                array += array.dtype.type(0.5 if operand.values == "positive" else 0)
            case _:
                array[...] = rng.standard_normal(operand.shape, dtype=array.dtype.type)
        found.append(array)
    return found
