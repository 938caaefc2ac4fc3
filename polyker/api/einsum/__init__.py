"""numpy.einsum's calling convention over polyker's kernels."""

from __future__ import annotations

from typing import Any

import polyker.api.einsum.of_numpy  # noqa: F401
from polyker.errors.base import PolykerError
from polyker.errors.tracebacks import hide_frames
from polyker.process.jobs import load


def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """Evaluate Einstein's summation convention; a drop-in for numpy.einsum, but for views, which it never returns."""
    try:
        return load("polyker.api.einsum.call").call(operands, out, optimize, kwargs)
    except PolykerError as error:
        hide_frames(error)
        raise
