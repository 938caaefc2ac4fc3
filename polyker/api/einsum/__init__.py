"""numpy.einsum's calling convention over polyker's kernels."""

from __future__ import annotations

from typing import Any

import polyker.api.einsum.of_numpy  # noqa: F401
from polyker.errors.base import PolykerError
from polyker.errors.tracebacks import hide_frames
from polyker.process.jobs import load


def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """Evaluate Einstein's summation convention; a drop-in for numpy.einsum, but for views, which it never returns.

    `operands`: subscripts such as "ij,jk->ik" and arrays, or arrays with lists of labels. `out`: an array to write into.
    `optimize`: False, True, "greedy", "optimal" or a path. Other keywords are NumPy's: `dtype`, `order` ("C", "F", "A" or "K"),
    `casting`. Raises ParseError, ShapeError, DTypeError, ArgumentError.

    >>> import numpy as np, polyker as pk
    >>> pk.einsum("ij,jk->ik", np.eye(2), np.ones((2, 3))).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    try:
        return load("polyker.api.einsum.call").call(operands, out, optimize, kwargs)
    except PolykerError as error:
        hide_frames(error)
        raise
