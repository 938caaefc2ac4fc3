"""Einsum contractions with more labels than a statement may have indices: by fewer operands and dimensions at a time.

Several operands are contracted pair by pair, in an order that opt_einsum finds. Of one contraction the dimensions of extent 1 are
left out; if that is not enough, labels that the same operands and the output have become one, which may copy operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from msgspec import Struct

from polyker.api.einsum.order import diagonal
from polyker.einsum_frontend.einsum_string import EinsumContraction, Term
from polyker.einsum_frontend.names import MAX_INDICES
from polyker.errors.base import failure
from polyker.errors.calls import EINSUM_LIMIT
from polyker.process.jobs import load
from polyker.runtime.kinds import Array
from polyker.runtime.memory import physical_memory


def path_of(contraction: EinsumContraction) -> list[tuple[int, ...]]:
    """Return an order of contraction: the places of the operands of each step, which are taken out; its result comes last."""
    load("opt_einsum.paths")
    from opt_einsum import paths

    sizes = {label: max(1, extent) for label, extent in contraction.extents}
    found = paths.greedy([frozenset(t) for t in contraction.terms], frozenset(contraction.output), sizes)
    return [tuple(step) for step in found]


class Narrowed(Struct, frozen=True):
    """A contraction of fewer labels, its operands, and how its result becomes that of the wider one."""

    contraction: EinsumContraction
    views: list[Array]
    parts: tuple[int, ...]  # the extents that the result's dimensions are made of
    axes: tuple[int, ...]  # and their order in the wider output
    shape: tuple[int, ...]

    def widened(self, result: Array) -> Array:
        """Return the result with all its dimensions."""
        return np.asarray(result).reshape(self.parts).transpose(self.axes).reshape(self.shape)


def narrowed(contraction: EinsumContraction, views: Sequence[Array]) -> Narrowed:
    """Return a contraction of a few operands with fewer labels. Raises ParseError where these are still too many."""
    extents = dict(contraction.extents)
    terms, arrays = [], []
    for term, view in zip(contraction.terms, views, strict=True):
        # At an extent of 1 the one element is read, whatever the label's extent is elsewhere.
        kept = [d for d, n in enumerate(view.shape) if n != 1]
        whole = view.reshape([view.shape[d] for d in kept])
        own, view = diagonal(tuple(term[d] for d in kept), whole)
        terms.append(own)
        arrays.append(view)
    output = tuple(label for label in contraction.output if extents[label] != 1)
    labels = list(dict.fromkeys(label for term in (*terms, output) for label in term))
    groups: list[Term] = [(label,) for label in labels]
    if len(groups) > MAX_INDICES:
        groups = _together(labels, [*terms, output])
    if len(groups) > MAX_INDICES:
        raise failure(EINSUM_LIMIT, what="the number of labels at a time is", count=len(groups), limit=MAX_INDICES)
    merged = [_merged(term, array, groups) for term, array in zip(terms, arrays, strict=True)]
    ordered = sorted((g for g in groups if g[0] in output), key=lambda g: output.index(g[0]))
    parts = [label for g in ordered for label in g]
    made = EinsumContraction(
        tuple(_names(term, groups) for term in terms),
        tuple(g[0] for g in ordered),
        tuple((g[0], prod(extents[label] for label in g)) for g in groups),
    )
    return Narrowed(
        made,
        merged,
        tuple(extents[label] for label in parts),
        tuple(parts.index(label) for label in output),
        contraction.shape(contraction.output),
    )


def _together(labels: Sequence[str], terms: Sequence[Term]) -> list[Term]:
    """Return the labels in groups, each of those that the same terms have."""
    found: dict[tuple[bool, ...], list[str]] = {}
    for label in labels:
        found.setdefault(tuple(label in term for term in terms), []).append(label)
    return [tuple(group) for group in found.values()]


def _names(term: Term, groups: Sequence[Term]) -> Term:
    return tuple(g[0] for g in groups if g[0] in term)


def _merged(term: Term, array: Array, groups: Sequence[Term]) -> Array:
    """Return an operand with one dimension for each group, in the order of the groups."""
    mine = [g for g in groups if g[0] in term]
    ordered = array.transpose([term.index(label) for g in mine for label in g])
    shape = [prod(array.shape[term.index(label)] for label in g) for g in mine]
    if array.size * array.itemsize > physical_memory() // 2 and len(shape) < array.ndim:
        raise failure(EINSUM_LIMIT, what="the number of labels is", count=array.ndim, limit=MAX_INDICES)
    return ordered.reshape(shape)
