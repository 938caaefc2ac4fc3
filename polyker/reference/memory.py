"""Tensors while a program runs: values as they are computed, which elements are written, and how reads go outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from polyker.errors import failure
from polyker.errors.reference import EMPTY_PAD, GATHERED, OUTSIDE, UNWRITTEN_READ
from polyker.ir.expr import Read
from polyker.reference.tags import Tag, Weak, evaluated

ElementKey = tuple[int, ...]


class TensorMemory(Struct, frozen=True):
    """Values in the type they are computed in; `written` is None where every element is (an argument)."""

    name: str
    tag: Tag
    data: Any
    written: NDArray[np.bool_] | None = None

    @property
    def shape(self) -> ElementKey:
        """The extents; () for a Python scalar."""
        return self.data.shape if isinstance(self.data, np.ndarray) else ()


def argument(name: str, value: Any, tag: Tag, widen: bool) -> TensorMemory:
    """Return the tensor of an argument; the argument is copied."""
    if isinstance(tag, Weak):
        return TensorMemory(name, tag, value)
    return TensorMemory(name, tag, np.asarray(value).astype(evaluated(tag, widen)))


def fresh(name: str, shape: ElementKey, tag: Tag, widen: bool) -> TensorMemory:
    """Return a tensor that nothing has written yet."""
    return TensorMemory(name, tag, np.zeros(shape, evaluated(tag, widen)), np.zeros(shape, bool))


def inside(element: ElementKey, shape: ElementKey) -> bool:
    """Whether an element lies in a tensor of this shape."""
    # No generator: most of the time of the interpreter goes into elements.
    for c, n in zip(element, shape, strict=True):  # noqa: SIM110
        if not 0 <= c < n:
            return False
    return True


def outside(element: ElementKey, shape: ElementKey, gathered: Sequence[bool]) -> str:
    """Return the error's code for an element outside: of the shapes where a subscript that reads no tensor leaves them."""
    affine = [c for c, n, g in zip(element, shape, gathered, strict=True) if not g and not 0 <= c < n]
    return OUTSIDE if affine else GATHERED


def load(tensor: TensorMemory, read: Read, gathered: Sequence[bool]) -> Callable[[ElementKey], Any]:
    """Return the function that reads an element; outside, it pads, or raises ShapeError or GatherError.

    `gathered` says for each subscript whether it reads a tensor.
    """
    data, written, shape = tensor.data, tensor.written, tensor.shape
    if not isinstance(data, np.ndarray):
        return lambda element: data

    def plain(element: ElementKey) -> Any:
        if not inside(element, shape):
            code = outside(element, shape, gathered)
            raise failure(code, span=read.span, tensor=tensor.name, shape=shape, element=element, instance="a read")
        if written is not None and not written[element]:
            raise failure(UNWRITTEN_READ, span=read.span, tensor=tensor.name, element=element)
        return data[element]

    if read.pad is None:
        return plain
    if read.pad.mode == "constant":
        constant = np.asarray(read.pad.value.value if read.pad.value else 0).astype(data.dtype)[()]
        return lambda element: plain(element) if inside(element, shape) else constant
    move = {"edge": _edge, "wrap": _wrap, "reflect": _reflect}[read.pad.mode]

    def padded(element: ElementKey) -> Any:
        for dim, extent in enumerate(shape):
            if not extent:
                raise failure(EMPTY_PAD, span=read.span, tensor=tensor.name, dim=dim)
        return plain(tuple(move(c, n) for c, n in zip(element, shape, strict=True)))

    return padded


def _edge(c: int, n: int) -> int:
    return min(max(c, 0), n - 1)


def _wrap(c: int, n: int) -> int:
    return c % n


def _reflect(c: int, n: int) -> int:
    """Reflect about the first and the last element, which are not repeated, as numpy.pad does."""
    if n == 1:
        return 0
    c %= 2 * (n - 1)
    return min(c, 2 * (n - 1) - c)
