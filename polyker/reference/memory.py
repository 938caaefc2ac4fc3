"""Tensors while a program runs: values as they are computed, which cells are written, and how reads go outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyker.errors import failure
from polyker.errors.reference import EMPTY_PAD, GATHERED, OUTSIDE, UNWRITTEN_READ
from polyker.ir.expr import Read
from polyker.reference.tags import Tag, Weak, evaluated

Cell = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """Values in the type they are computed in; `written` is None where every cell is (an argument)."""

    name: str
    tag: Tag
    data: Any
    written: NDArray[np.bool_] | None = None

    @property
    def shape(self) -> Cell:
        """The extents; () for a Python scalar."""
        return self.data.shape if isinstance(self.data, np.ndarray) else ()


def argument(name: str, value: Any, tag: Tag, widen: bool) -> Tensor:
    """Return the tensor of an argument; the argument is copied."""
    if isinstance(tag, Weak):
        return Tensor(name, tag, value)
    return Tensor(name, tag, np.asarray(value).astype(evaluated(tag, widen)))


def fresh(name: str, shape: Cell, tag: Tag, widen: bool) -> Tensor:
    """Return a tensor that nothing has written yet."""
    return Tensor(name, tag, np.zeros(shape, evaluated(tag, widen)), np.zeros(shape, bool))


def inside(cell: Cell, shape: Cell) -> bool:
    """Whether a cell lies in a tensor of this shape."""
    return all(0 <= c < n for c, n in zip(cell, shape, strict=True))


def outside(cell: Cell, shape: Cell, gathered: Sequence[bool]) -> str:
    """Return the error's code for a cell outside: of the shapes where a subscript that reads no tensor leaves them."""
    affine = [c for c, n, g in zip(cell, shape, gathered, strict=True) if not g and not 0 <= c < n]
    return OUTSIDE if affine else GATHERED


def load(tensor: Tensor, read: Read, gathered: Sequence[bool]) -> Callable[[Cell], Any]:
    """Return the function that reads a cell; outside, it pads, or raises ShapeError or GatherError.

    `gathered` says for each subscript whether it reads a tensor.
    """
    data, written, shape = tensor.data, tensor.written, tensor.shape
    if not isinstance(data, np.ndarray):
        return lambda cell: data

    def plain(cell: Cell) -> Any:
        if not inside(cell, shape):
            code = outside(cell, shape, gathered)
            raise failure(code, span=read.span, tensor=tensor.name, shape=shape, cell=cell, instance="a read")
        if written is not None and not written[cell]:
            raise failure(UNWRITTEN_READ, span=read.span, tensor=tensor.name, cell=cell)
        return data[cell]

    if read.pad is None:
        return plain
    if read.pad.mode == "constant":
        constant = np.asarray(read.pad.value.value if read.pad.value else 0).astype(data.dtype)[()]
        return lambda cell: plain(cell) if inside(cell, shape) else constant
    move = {"edge": _edge, "wrap": _wrap, "reflect": _reflect}[read.pad.mode]

    def padded(cell: Cell) -> Any:
        for dim, extent in enumerate(shape):
            if not extent:
                raise failure(EMPTY_PAD, span=read.span, tensor=tensor.name, dim=dim)
        return plain(tuple(move(c, n) for c, n in zip(cell, shape, strict=True)))

    return padded


def _edge(c: int, n: int) -> int:
    return min(max(c, 0), n - 1)


def _wrap(c: int, n: int) -> int:
    return c % n


def _reflect(c: int, n: int) -> int:
    """Reflect about the first and the last cell, which are not repeated, as numpy.pad does."""
    if n == 1:
        return 0
    c %= 2 * (n - 1)
    return min(c, 2 * (n - 1) - c)
