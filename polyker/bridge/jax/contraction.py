"""Einsum on JAX arrays: JAX's rules for types, polyker's reading of subscripts, one operator a contraction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Any

import jax.numpy as jnp
import numpy as np

from polyker.api.definition import of_program
from polyker.api.einsum.wide import path_of
from polyker.bridge.jax.function import JaxOperator
from polyker.bridge.jax.source import JaxSource
from polyker.einsum_frontend.einsum_string import (
    EinsumContraction,
    Subscripts,
    fit,
    from_lists,
    program,
    scan,
)
from polyker.errors.base import failure
from polyker.errors.calls import EINSUM_ARGUMENT, EINSUM_PATH, EINSUM_TYPE
from polyker.errors.given import exact_text, printed, text_of
from polyker.ir.dtypes import DType, from_numpy

_MOST_CONTRACTIONS = 1024  # whose functions are kept (chosen)
_MODES = ("auto", "eager", "greedy", "optimal")  # names that jax.numpy.einsum knows


def einsum(operands: Sequence[Any], optimize: Any, preferred: Any) -> Any:
    """Evaluate a call of einsum; raises ParseError, ShapeError, DTypeError, ArgumentError."""
    subscripts, values = _read(operands)
    try:
        arrays = [jnp.asarray(v) for v in values]
        common = jnp.result_type(*values)
        wanted = common if preferred is None else jnp.dtype(preferred)
    except TypeError as error:
        raise failure(EINSUM_TYPE, problem=text_of(error)) from error
    contraction = fit(subscripts, [a.shape for a in arrays], on_path=True)
    element = _element(jnp.promote_types(common, wanted))
    for step in _path(contraction, optimize):
        if not step or not all(-len(arrays) <= k < len(arrays) for k in step):
            raise failure(EINSUM_PATH, problem=f"a step of the path is {step}, of {len(arrays)} operands")
        places = sorted({k % len(arrays) for k in step}, reverse=True)
        taken = [(contraction.terms[k], arrays[k]) for k in places]
        rest = [(t, a) for k, (t, a) in enumerate(zip(contraction.terms, arrays, strict=True)) if k not in places]
        needed = {label for term, _ in rest for label in term} | {*contraction.output}
        kept = tuple(dict.fromkeys(label for term, _ in taken for label in term if label in needed))
        rest.append((kept, _contract([t for t, _ in taken], kept, [a for _, a in taken], element)))
        arrays = [a for _, a in rest]
        contraction = EinsumContraction(tuple(t for t, _ in rest), contraction.output, contraction.extents)
    return _contract(contraction.terms, contraction.output, arrays, element).astype(wanted)


def _read(operands: Sequence[Any]) -> tuple[Subscripts, Sequence[Any]]:
    """Return the subscripts and the operands of either calling form."""
    text = exact_text(operands[0]) if operands else None
    if text is not None:
        return scan(text, on_path=True), operands[1:]
    if len(operands) < 2:
        problem = "needs a string of subscripts and an operand, or an operand and its list of subscripts"
        raise failure(EINSUM_ARGUMENT, problem=problem)
    pairs = len(operands) // 2
    output = operands[-1] if len(operands) % 2 else None
    return from_lists(operands[1 : 2 * pairs : 2], output, on_path=True), operands[0 : 2 * pairs : 2]


def _element(dtype: np.dtype[Any]) -> DType:
    found = from_numpy(dtype)
    if found is None:
        raise failure(EINSUM_TYPE, problem=f"polyker has no type {dtype}")
    return found


def _path(contraction: EinsumContraction, optimize: Any) -> list[tuple[int, ...]]:
    """Return the steps by which operands are contracted before the last ones are."""
    if isinstance(optimize, (list, tuple)):
        steps = [step for step in optimize if exact_text(step) != "einsum_path"]
        try:
            return [tuple(index(k) for k in step) for step in steps][:-1]
        except TypeError as error:
            raise failure(EINSUM_ARGUMENT, problem=f"did not understand the path: {printed(optimize)}") from error
    if not isinstance(optimize, bool) and exact_text(optimize) not in _MODES:
        raise failure(EINSUM_ARGUMENT, problem=f"optimize is {printed(optimize)}, not a bool, a path, or of {_MODES}")
    return path_of(contraction)[:-1] if optimize and len(contraction.terms) > 2 else []


def _contract(terms: Sequence[tuple[str, ...]], output: tuple[str, ...], arrays: Sequence[Any], element: DType) -> Any:
    """Evaluate one contraction, in an element type."""
    made = fit(Subscripts(tuple(terms), output), [a.shape for a in arrays], on_path=True)
    pattern = tuple(
        tuple(n == whole for n, whole in zip(a.shape, made.shape(term), strict=True))
        for term, a in zip(terms, arrays, strict=True)
    )
    casts = tuple(None if (own := _element(a.dtype)) == element else (own, element) for a in arrays)
    return _function(made.terms, output, pattern, casts, element.kind == "b")(*arrays)


@lru_cache(maxsize=_MOST_CONTRACTIONS)
def _function(
    terms: tuple[tuple[str, ...], ...],
    output: tuple[str, ...],
    pattern: tuple[tuple[bool, ...], ...],
    casts: tuple[tuple[DType, DType] | None, ...],
    boolean: bool,
) -> JaxOperator:
    """Return the function of a contraction; `pattern`: which dimensions of each operand have their label's extent."""
    extents = dict.fromkeys(dict.fromkeys(label for term in terms for label in term), 2)
    shapes = [tuple(2 if whole else 1 for whole in row) for row in pattern]
    to = [None if cast is None else cast[1] for cast in casts]
    made = program(EinsumContraction(terms, output, tuple(extents.items())), shapes, to, boolean)
    return JaxOperator(JaxSource(of_program(made, {})))
