"""Operators on other processors, run by emulators where these are installed: `python -m tests.export.cross` takes all of them."""

from __future__ import annotations

import pytest

from tests.export.cross import PLACES, missing, run
from tests.export.operators import CASES, FEW

# Ten of a target, and what was wrong on one of them before.
TAKEN = FEW[:10]


@pytest.mark.parametrize("name", PLACES)
def test_operators_are_right_on(name: str) -> None:
    reason = missing(name)
    if reason is not None:
        pytest.skip(reason)
    wrong = {}
    for one in TAKEN:
        if one not in PLACES[name].skipped:
            wrong[one] = run(CASES[one], name).wrong
    assert len(wrong) >= 8
    assert not {one: told for one, told in wrong.items() if told}
