"""A few random programs; `python -m tests.fuzz.gradients` runs thousands."""

from tests.fuzz.gradients import campaign


def test_derivatives_of_random_programs_agree() -> None:
    counts, wrong = campaign(seed=5, first=40, count=7)
    assert wrong == []
    assert counts["checked"] > 2
