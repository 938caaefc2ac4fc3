"""numpy.einsum's calling convention over polyker's kernels."""

from __future__ import annotations

from typing import Any

from numpy import einsum as numpy_einsum  # its own, also where a program has put polyker's in its place

from polyker.process.jobs import load

__all__ = ["einsum", "numpy_einsum"]


def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """Evaluate Einstein's summation convention; a drop-in for numpy.einsum, but for views, which it never returns."""
    return load("polyker.api.einsum_call").call(operands, out, optimize, kwargs)
