"""The elements that a read takes its value from, in cases: inside the tensor, and beyond each end by the rule of the padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from polyker.grad.values import call
from polyker.ir.expr import Expr, Read
from polyker.ir.quasi_affine import lit


def places(read: Read, extents: Sequence[Expr]) -> Iterator[tuple[tuple[Expr, ...], tuple[Expr, ...]]]:
    """Yield the subscripts of an element, and the conditions under which it is the one that is read.

    Beyond the ends by more than an extent `wrap` and `reflect` go round again, which no case here does; such sizes are refused
    where the gradient is bound to them, as its subscripts leave the tensor there.
    """
    if read.pad is None:
        yield read.subscripts, ()
        return
    cases = [list(_cases(read.pad.mode, s, n)) for s, n in zip(read.subscripts, extents, strict=True)]
    for case in product(*cases):
        yield tuple(place for place, _ in case), tuple(c for _, conditions in case for c in conditions)


def _cases(mode: str, place: Expr, extent: Expr) -> Iterator[tuple[Expr, tuple[Expr, ...]]]:
    last = call("add", extent, lit(-1))
    below, above = call("lt", place, lit(0)), call("ge", place, extent)
    yield place, (call("ge", place, lit(0)), call("lt", place, extent))
    match mode:
        case "edge":
            yield lit(0), (below,)
            yield last, (above,)
        case "wrap":
            yield call("add", place, extent), (below,)
            yield call("add", place, call("neg", extent)), (above,)
        case "reflect":
            yield call("neg", place), (below,)
            yield call("add", last, last, call("neg", place)), (above,)
