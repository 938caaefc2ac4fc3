"""Evaluate einsum on tensors, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from polyker.api.operator import Operator
from polyker.bridge.torch.custom import TorchOperator, registered
from polyker.einsum_frontend.einsum_string import EinsumContraction, fit, from_lists, program, scan
from polyker.errors.base import failure
from polyker.errors.calls import EINSUM_ARGUMENT
from polyker.errors.given import exact_text
from polyker.process.jobs import load

# Contractions of given subscripts and shapes whose operators are kept.
_KEPT = 512


def einsum(*operands: Any) -> Any:
    """Evaluate a contraction as torch.einsum does: subscripts and tensors, or tensors each with its list of subscripts.

    Three operands and more are contracted in pairs, in the order that opt_einsum finds. Raises ParseError, ShapeError.
    """
    text = exact_text(operands[0]) if operands else None
    if text is not None:
        values = operands[1:]
        if len(values) == 1 and isinstance(values[0], (list, tuple)):
            values = tuple(values[0])
        subscripts = scan(text, on_path=True)
    else:
        if len(operands) < 2:
            raise failure(EINSUM_ARGUMENT, problem="needs subscripts and a tensor")
        pairs = len(operands) // 2
        values = operands[0 : 2 * pairs : 2]
        subscripts = from_lists(operands[1 : 2 * pairs : 2], operands[-1] if len(operands) % 2 else None, on_path=True)
    tensors = [torch.as_tensor(v) for v in values]
    contraction = fit(subscripts, [tuple(t.shape) for t in tensors], on_path=True)
    if len(tensors) < 3:
        return _contracted(contraction, tensors)
    terms = list(contraction.terms)
    for places in _path(contraction.text(), tuple(tuple(t.shape) for t in tensors)):
        chosen = sorted(places, reverse=True)
        parts, given = [terms.pop(k) for k in chosen], [tensors.pop(k) for k in chosen]
        needed = {label for term in terms for label in term} | {*contraction.output}
        labels = [label for term in parts for label in term if label in needed]
        output = tuple(dict.fromkeys(labels)) if terms else contraction.output
        terms.append(output)
        tensors.append(_contracted(EinsumContraction(tuple(parts), output, _extents(parts, given)), given))
    return tensors[0]


def _extents(terms: Sequence[tuple[str, ...]], tensors: Sequence[Any]) -> tuple[tuple[str, int], ...]:
    """Return the extent of each label, where one is 1 that of the others."""
    found: dict[str, int] = {}
    for term, tensor in zip(terms, tensors, strict=True):
        for label, n in zip(term, tensor.shape, strict=True):
            found[label] = n if found.get(label, 1) == 1 else found[label]
    return tuple(found.items())


def _contracted(contraction: EinsumContraction, tensors: Sequence[Any]) -> Any:
    """Return the contraction of all its operands at once."""
    return _operator(contraction, tuple(tuple(t.shape) for t in tensors))(*tensors)


@lru_cache(_KEPT)
def _operator(contraction: EinsumContraction, shapes: tuple[tuple[int, ...], ...]) -> TorchOperator:
    made = program(contraction, shapes, [None] * len(shapes), boolean=False)
    return registered(Operator(made, {}), "einsum")


@lru_cache(_KEPT)
def _path(text: str, shapes: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = load("opt_einsum").contract_path(text, *shapes, shapes=True)[0]
    return found
