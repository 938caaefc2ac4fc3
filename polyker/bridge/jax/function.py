"""Operators as functions of JAX arrays: arguments by position and by name, results as JAX arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import numpy as np

from polyker.bridge.jax.installed import check_width
from polyker.bridge.jax.primitive import apply
from polyker.bridge.jax.source import JaxSource
from polyker.errors.base import failure
from polyker.errors.calls import NOT_AN_ARRAY
from polyker.errors.given import is_a, type_name
from polyker.ir.dtypes import TensorType, from_numpy
from polyker.options import Options, options
from polyker.runtime.arguments import matched, result_tuple, size_value

_MOST_KINDS = 256  # of sizes and options whose jitted functions are kept (chosen)


class JaxOperator:
    """An operator as a function of JAX arrays. Made by `polyker.jax.op`.

    It takes arrays by position or name, and sizes by keyword, as the operator does; several outputs come as a namedtuple. It may
    stand inside of jax.jit, grad, jvp, vmap, shard_map and jax.export, and is jitted where it does not.
    Raises ShapeError, DTypeError and ArgumentError when it is traced, GradientError when it is differentiated.
    """

    def __init__(self, source: JaxSource) -> None:
        self._source = source
        outputs = source.signature.outputs
        self._fields = result_tuple(outputs) if len(outputs) > 1 else None
        self._jitted: dict[Hashable, Any] = {}
        signature = source.signature
        self._count = len(signature.inputs) if signature.parameters == signature.inputs else -1
        self._quick: tuple[Options | None, Any] = None, None  # of calls without sizes, under these options

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Return the results for arrays and sizes."""
        chosen = options.current
        known, quick = self._quick
        if known is chosen and not named and len(args) == self._count and all(isinstance(a, jax.Array) for a in args):
            return quick(*args)
        arrays, sizes = self._given(args, named)
        for name, array in zip(self._source.signature.inputs, arrays, strict=True):
            _check(array, name)
        key = chosen, tuple(sizes.items())
        jitted = self._jitted.get(key)
        if jitted is None:
            if len(self._jitted) >= _MOST_KINDS:
                self._jitted.clear()
            jitted = self._jitted[key] = self._made(sizes, chosen)
        if not sizes:
            self._quick = chosen, jitted
        return jitted(*arrays)

    def _made(self, sizes: dict[str, int], chosen: Options) -> Any:
        """Return the function for given sizes and options, jitted."""

        def polyker(*arrays: Any) -> Any:
            found = apply(self._source, arrays, sizes, chosen)
            return found[0] if self._fields is None else self._fields(*found)

        return jax.jit(polyker, inline=True)

    def _given(self, args: Sequence[Any], named: dict[str, Any]) -> tuple[Sequence[Any], dict[str, int]]:
        """Return the arrays in order, and the sizes that are given by keyword."""
        signature, fixed = self._source.signature, self._source.fixed
        if not named and len(args) == self._count:
            return args, {}
        rest = signature.parameters[len(args) :]
        known = {n: v for n, v in fixed.items() if n in rest and n not in named}
        arrays, sizes = matched(signature, args, {**named, **known})
        return arrays, {n: size_value(n, v) for n, v in sizes.items() if n not in known}

    def __str__(self) -> str:
        return str(self._source.definition.program)

    def __repr__(self) -> str:
        return f"<polyker.jax.op of {' ; '.join(str(self).splitlines())}>"


def _check(array: Any, name: str) -> None:
    """Raise ArgumentError for what is no array of JAX's or NumPy's and no number, DTypeError for 64 bits that JAX would cut."""
    if isinstance(array, jax.Array):
        return
    if not is_a(array, (np.ndarray, np.generic, bool, int, float, complex)):
        raise failure(NOT_AN_ARRAY, name=name, type=type_name(array))
    if isinstance(array, (np.ndarray, np.generic)):
        dtype = from_numpy(array.dtype)
        if dtype is not None:
            check_width(name, TensorType(dtype, array.shape))
