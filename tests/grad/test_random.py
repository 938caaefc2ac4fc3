"""A few random programs; `python -m tests.fuzz.gradients` runs thousands."""

from tests.fuzz.gradients import judged, made
from tests.fuzz.judging import campaign


def test_derivatives_of_random_programs_agree() -> None:
    counts, wrong = campaign([judged], seed=5, first=40, count=7, make=made)
    assert wrong == []
    assert counts["checked"] > 2
