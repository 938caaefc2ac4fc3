"""Where einsum's results lie in memory: numpy's order C, F, A and K."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from polyker.einsum_frontend.einsum_string import EinsumContraction, Term
from polyker.einsum_frontend.names import MAX_INDICES
from polyker.runtime.kinds import Array


def is_wide(contraction: EinsumContraction) -> bool:
    """Whether a contraction has more labels than a statement may have indices."""
    return len(contraction.extents) > MAX_INDICES


def diagonal(term: Term, array: Array) -> tuple[Term, Array]:
    """Return an operand's labels, each once, and a view with a dimension for each of them."""
    own = tuple(dict.fromkeys(term))
    shape = [array.shape[term.index(label)] for label in own]
    strides = [sum(s for s, t in zip(array.strides, term, strict=True) if t == label) for label in own]
    return own, np.lib.stride_tricks.as_strided(array, shape, strides, writeable=False)


def axes_of(
    contraction: EinsumContraction, arrays: Sequence[Array], target: Array | None, order: str, *, reassociating: bool
) -> tuple[int, ...] | None:
    """Return the output's axes from the slowest to the fastest in memory, or None if that is their order already."""
    ndim = len(contraction.output)
    if ndim < 2:
        return None
    if target is not None:
        strides: Sequence[int] = [abs(s) for s in target.strides]
        axes = sorted(range(ndim), key=lambda d: -strides[d])
    elif order == "C":
        return None
    elif order == "F" or (order == "A" and _are_column_major(contraction, arrays, whole=reassociating)):
        axes = list(reversed(range(ndim)))
    elif order == "A":
        return None
    else:
        axes = _kept(contraction, arrays)
    return None if axes == list(range(ndim)) else tuple(axes)


def _diagonals(contraction: EinsumContraction, arrays: Sequence[Array]) -> Iterator[tuple[Term, Array]]:
    """Yield for each operand its labels, each once, and a view with a dimension for each of them."""
    for array, term in zip(arrays, contraction.terms, strict=True):
        yield diagonal(term, array)


def _are_column_major(contraction: EinsumContraction, arrays: Sequence[Array], *, whole: bool) -> bool:
    """Whether all operands are column-major, or `whole` or not their diagonals: order A then means F."""
    if whole:
        return all(a.flags.f_contiguous for a in arrays)
    return all(view.flags.f_contiguous for _, view in _diagonals(contraction, arrays))


def _kept(contraction: EinsumContraction, arrays: Sequence[Array]) -> list[int]:
    """Return the axes as numpy's iterator orders them to follow the operands' memory, which is what order K means."""
    labels = list(dict.fromkeys((*contraction.output, *(label for label, _ in contraction.extents))))
    if is_wide(contraction):  # numpy would find all of them too many
        labels = list(contraction.output)
    views, maps = [], []
    for own, view in _diagonals(contraction, arrays):
        if is_wide(contraction):
            kept = [d for d, label in enumerate(own) if label in labels]
            shape, strides = [min(2, view.shape[d]) for d in kept], [view.strides[d] for d in kept]
            own, view = (
                tuple(own[d] for d in kept),
                np.lib.stride_tricks.as_strided(view, shape, strides, writeable=False),
            )
        views.append(view)
        maps.append([own.index(label) if label in own else -1 for label in labels])
    maps.append([d if d < len(contraction.output) else -1 for d in range(len(labels))])
    iterator = np.nditer(  # type: ignore[call-overload]
        [*views, None],
        flags=["external_loop", "buffered", "delay_bufalloc", "reduce_ok", "refs_ok", "zerosize_ok"],
        op_flags=[["readonly"]] * len(views) + [["readwrite", "allocate", "no_broadcast"]],
        op_dtypes=[None] * len(views) + [np.dtype(np.int8)],
        op_axes=maps,
        order="K",
        casting="unsafe",
    )
    laid = [abs(s) for s in iterator.operands[-1].strides]
    return sorted(range(len(contraction.output)), key=lambda d: -laid[d])
