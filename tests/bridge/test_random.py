"""A few random programs; `python -m tests.bridge.random_programs` takes thousands."""

from tests.bridge.random_programs import JUDGES
from tests.fuzz.judging import campaign


def test_batches_and_parts_of_random_programs_are_right() -> None:
    counts, wrong = campaign(JUDGES, seed=1, first=18, count=12)
    assert wrong == []
    assert counts["batched"] > 3
    assert counts["split"] > 1
