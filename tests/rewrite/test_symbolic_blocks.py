"""Time loops of symbolic sizes by blocks of steps."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.api.kernel import Kernel
from tests.covering import few
from tests.rewrite.test_early import EARLY
from tests.rewrite.test_late import HEAD as LATE_HEAD
from tests.rewrite.test_late import LATE
from tests.schedule.support import SMALL, case

pytestmark = pytest.mark.usefixtures("short_blocks")

TEXTS = {**{name: LATE_HEAD + text for name, text in LATE.items()}, **EARLY}


def of_size(text: str, n: int | str) -> str:
    """Return a text over matrices of 21 rows and columns for n of them."""
    named = {"21": f"{n}", "20": f"({n}-1)", "16": f"({n}-5)"}
    return re.sub("21|20|16", lambda found: named[found.group()], text)


@cache
def compiled(text: str, specialize: str) -> Kernel:
    named = pk.op(of_size(text, "N"))
    types = dict.fromkeys(named.program.inputs, pk.f64["N", "N"])
    return named.compile(**types, target=SMALL, specialize=specialize)


def assert_same_for(text: str, n: int, specialize: str) -> None:
    shape = f"f64[{n},{n}]"
    found = case(of_size(text, n), A=shape, **({"L": shape} if "L:" in text or "L[" in text else {}))
    kernel = compiled(text, specialize)
    results = kernel(**found.arrays(), **dict.fromkeys(kernel.program.sizes, n))
    (wanted,) = found.expected
    np.testing.assert_array_equal(results, wanted, f"{text} for {n} rows")


@pytest.mark.parametrize("name", TEXTS)
def test_loops_of_symbolic_sizes_run_by_blocks(name: str) -> None:
    told = "done after it, together" if name in LATE else "taken before it, together"
    assert told in compiled(TEXTS[name], "never").source("schedule")


@pytest.mark.parametrize("name", TEXTS)
@given(n=st.integers(0, 40))
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_kernel_for_all_sizes_gives_what_the_text_says(name: str, n: int) -> None:
    assert_same_for(TEXTS[name], n, "never")


@pytest.mark.parametrize(
    ("name", "n"), few(["square", "triangle", "a factor by columns", "from the last row up"], [17, 24, 31], 2)
)
def test_a_kernel_for_a_class_of_sizes_gives_what_the_text_says(name: str, n: int) -> None:
    assert_same_for(TEXTS[name], n, "auto")
