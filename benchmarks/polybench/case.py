"""What a PolyBench case is: one program in the notation, as plain loops and as a user of NumPy writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct, field

from benchmarks.polybench import CLASSES

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Inputs: TypeAlias = dict[str, Any]
# Says what is wrong with the results, "" if nothing: check(inputs, results, results of the plain loops).
Check: TypeAlias = Callable[[Inputs, tuple[Array, ...], tuple[Array, ...]], str]


def near(tolerance: float) -> Check:
    """Return a check: no element is off by more than `tolerance` times the largest element; integers have to be equal."""

    def check(inputs: Inputs, found: tuple[Array, ...], want: tuple[Array, ...]) -> str:
        for n, (a, b) in enumerate(zip(found, want, strict=True)):
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"result {n} is {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}"
            if a.dtype.kind in "iu":
                if not np.array_equal(a, b):
                    return f"{np.count_nonzero(a != b)} of {a.size} integers of result {n} differ"
                continue
            if not np.isfinite(b).all():
                return f"the plain loops' result {n} is not finite"
            scale = float(np.abs(b).max(initial=0.0)) or 1.0
            off = float(np.abs(a - b).max(initial=0.0)) / scale
            if not off <= tolerance:
                return f"result {n} is off by {off:.1e} of its largest element; {tolerance:.0e} is allowed"
        return ""

    return check


class Case(Struct, frozen=True):
    """One program of PolyBench 4.2.

    `names`: the names of its sizes; `extents`: one tuple a class of CLASSES. `initial(**sizes)` returns the inputs in the
    order of the declaration's parameters, integer sizes (time steps) among them. `loops(*inputs)` and `numpy(*inputs)` return the
    outputs, one array or a tuple; both may overwrite those inputs that are outputs, too.
    """

    name: str
    text: str
    names: str
    extents: tuple[tuple[int, ...], ...]
    initial: Callable[..., Inputs]
    loops: Callable[..., Any]
    numpy: Callable[..., Any]
    check: Check = field(default=near(1e-10))

    @property
    def changed(self) -> tuple[str, ...]:
        """The inputs that are outputs, too: plain loops overwrite them."""
        head = self.text.strip().splitlines()[0]
        before, after = head.split("->")
        outputs = {name.split(":")[0].strip() for name in after.rstrip(":").split(",")}
        inside = before[before.index("(") + 1 :]
        return tuple(n for n in (part.split(":")[0].strip() for part in inside.split(",")) if n in outputs)

    def sizes(self, size: str) -> Mapping[str, int]:
        """Return the sizes of a class."""
        return dict(zip(self.names.split(), self.extents[CLASSES.index(size)], strict=True))

    def inputs(self, size: str) -> Inputs:
        """Return the inputs at a class's sizes."""
        return self.initial(**self.sizes(size))


def results(found: Any) -> tuple[Array, ...]:
    """Return what a contestant gave as a tuple of arrays."""
    return tuple(map(np.asarray, found)) if isinstance(found, tuple) else (np.asarray(found),)


def table(value: Callable[..., Any], *extents: int, dtype: str = "float64") -> Array:
    """Return an array of `value(i, j, ...)`, computed with integer indices."""
    return np.ascontiguousarray(np.fromfunction(value, extents, dtype=np.int64).astype(dtype))
