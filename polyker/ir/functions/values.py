"""Values on NumPy's arrays and scalars of functions that NumPy has not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyker.ir.functions.special import complementary


def by_element(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function of arrays that applies one of scalars."""

    def each(x: Any) -> Any:
        if np.ndim(x) == 0:
            return function(x[()] if isinstance(x, np.ndarray) else x)
        return np.asarray([function(v) for v in np.ravel(x)]).reshape(np.shape(x))

    return each


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), by an exponential that does not overflow."""
    right = np.real(x) >= 0
    e = np.exp(np.where(right, -x, x))
    return (np.where(right, 1, e) / (1 + e))[()]


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x))."""
    return np.logaddexp(np.zeros((), np.asarray(x).dtype), x)


def gelu(x: Any) -> Any:
    """Return x (1 + erf(x / sqrt(2))) / 2, without cancellation."""
    return x * by_element(complementary)(-x / np.sqrt(np.asarray(2, np.asarray(x).dtype))) / 2
