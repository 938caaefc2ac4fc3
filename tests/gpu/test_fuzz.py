"""A few random programs on `cuda-sim`; more by `python -m tests.fuzz --target cuda-sim --cases N`."""

from tests.fuzz.campaign import Campaign
from tests.gpu.support import needs_compiler

CASES = 10


@needs_compiler
def test_random_programs_give_the_oracles_results(monkeypatch):
    monkeypatch.setenv("POLYKER_TARGET", "cuda-sim")
    campaign = Campaign(seed=21)
    campaign.run(CASES)
    assert campaign.done == CASES
    assert not campaign.failures, "\n\n".join(f"{f.text}\n{f.problem}\n{f.snippet}" for f in campaign.failures)
