"""Measure how far two results differ: the largest error in units in the last place, and where."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from polyker.runtime.kinds import Array


class Difference(Struct, frozen=True):
    """One output: the largest error in ulp of the reference's type, its place, and how many elements differ at all."""

    name: str
    type: str
    ulp: float
    place: tuple[int, ...]
    differing: int
    elements: int

    def __str__(self) -> str:
        if not self.differing:
            return f"{self.name}: {self.type}: equal ({self.elements} elements)"
        place = ", ".join(map(str, self.place))
        return (
            f"{self.name}: {self.type}: largest error {self.ulp:.3g} ulp at [{place}],"
            f" {self.differing} of {self.elements} elements differ"
        )


class Comparison(Struct, frozen=True):
    """What `Operator.check` found, one `Difference` an output; it prints."""

    differences: tuple[Difference, ...]

    @property
    def ulp(self) -> float:
        """The largest error of all outputs, in ulp."""
        return max((d.ulp for d in self.differences), default=0.0)

    def __str__(self) -> str:
        return "\n".join(map(str, self.differences))

    __repr__ = __str__


def difference(name: str, got: Array, reference: Array) -> Difference:
    """Return how far `got` is from `reference`, arrays of one shape and type."""
    errors = _ulps(got, reference)
    worst = int(np.argmax(errors)) if errors.size else 0
    return Difference(
        name=name,
        type=f"{reference.dtype.name}[{', '.join(map(str, reference.shape))}]",
        ulp=float(errors.reshape(-1)[worst]) if errors.size else 0.0,
        place=tuple(int(i) for i in np.unravel_index(worst, errors.shape)) if errors.size else (),
        differing=int(np.count_nonzero(errors)),
        elements=int(errors.size),
    )


def _ulps(got: Array, reference: Array) -> Array:
    """Return errors in ulp (integers: in units); equal NaNs and infinities are no error, others an infinite one."""
    kind = reference.dtype.kind
    if kind == "c":
        parts: Array = np.maximum(_ulps(got.real, reference.real), _ulps(got.imag, reference.imag))
        return parts
    if kind in "biu":
        exact: Array = np.abs(got.astype(object) - reference.astype(object)).astype(np.float64)
        return exact
    if reference.dtype.name == "bfloat16":
        spacing = np.exp2(np.floor(np.log2(np.maximum(np.abs(reference.astype(np.float64)), 2.0**-126))) - 7)
    else:
        with np.errstate(all="ignore"):
            spacing = np.abs(np.spacing(np.abs(reference))).astype(np.float64)
    a, b = np.atleast_1d(got).astype(np.float64), np.atleast_1d(reference).astype(np.float64)
    with np.errstate(all="ignore"):
        errors = np.abs(a - b) / spacing
    errors = np.where(np.isfinite(errors), errors, np.inf)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    result: Array = np.where(same, 0.0, errors)
    return result
