"""A pytest plugin that runs numpy's own einsum tests on polyker.einsum; see test_numpy_einsum_suite.py.

The tests below are left out, each for its reason; all others of the file run unchanged.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import polyker

LEFT_OUT = {
    "test_einsum_views": "polyker.einsum never returns views",
    "test_einsum_object_errors": "elements are Python objects",
    "test_einsum_sums_object": "elements are Python objects",
    "test_object_loop": "elements are Python objects",
    "test_einsum_sums_longdouble": "there is no longdouble",
    "test_einsum_sums_clongdouble": "there is no longdouble",
    "test_different_paths[g]": "there is no longdouble",
    "test_different_paths[G]": "there is no longdouble",
}

# Sums of types that others stand for, by size and sign: some 350 kernels each, for POLYKER_ALL_TESTS=1.
OTHERS = "int16", "int64", "float16", "uint8", "uint16", "uint32", "uint64", "int32", "float64", "cfloat128"
ALIKE = () if os.environ.get("POLYKER_ALL_TESTS") else OTHERS
LEFT_OUT |= {f"test_einsum_sums_{name}": "its neighbours in size stand for it" for name in ALIKE}


def pytest_configure() -> None:
    """Put polyker.einsum in numpy's place before the tests are collected."""
    np.einsum = polyker.einsum


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Deselect the tests of the table; one that is there no more is an error."""
    names = {item.name for item in items}
    missing = LEFT_OUT.keys() - names
    if missing and not config.option.keyword:
        raise ValueError(f"no longer in numpy's file: {sorted(missing)}")
    left_out = [item for item in items if item.name in LEFT_OUT]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item.name not in LEFT_OUT]
