"""Run a campaign: `python -m tests.fuzz --cases 20000 --seed 1`, or for speed `python -m tests.fuzz speed --programs 3000`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.fuzz.campaign import Campaign
from tests.fuzz.speed.campaign import main as speed


def main(argv: list[str] | None = None) -> int:
    """Run the cases, print failures and the share of each feature; returns 1 if anything failed."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["speed"]:
        return speed(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=None, help="seconds")
    parser.add_argument("--hang", type=float, default=60, help="seconds without an answer that count as a failure")
    parser.add_argument("--backend", choices=["interpret", "compile"], default="compile")
    parser.add_argument("--failures", type=int, default=50, help="stop after so many")
    parser.add_argument("--findings", type=Path, default=None, help="a folder to write failures to, as they come")
    parser.add_argument("--verbose", action="store_true", help="the programs that took longest, too")
    parser.add_argument("--target", default=None, help="what to compile for, such as cuda-sim")
    parser.add_argument(
        "--undefined", action="store_true", help="look by isl for results of elements that nothing sets"
    )
    parser.add_argument("--cut", action="store_true", help="each statement a kernel of its own")
    options = parser.parse_args(arguments)
    if options.target is not None:
        os.environ["POLYKER_TARGET"] = options.target
    if options.cut:
        os.environ["POLYKER_FUZZ_CUT"] = "1"
    if options.undefined:
        os.environ["POLYKER_FUZZ_UNDEFINED"] = "1"
    began = time.monotonic()
    campaign = Campaign(options.seed, options.backend, options.hang, options.findings)
    campaign.run(options.cases, options.jobs, options.time_limit, options.start, options.failures)
    for n, f in enumerate(campaign.failures):
        print(f.report(options.seed))
        if n == 20 and not options.findings:
            print(f"... and {len(campaign.failures) - n - 1} more")
            break
    print(campaign.table())
    kinds = {k: sum(f.kind == k for f in campaign.failures) for k in {f.kind for f in campaign.failures}}
    took = time.monotonic() - began
    if options.verbose:
        for t, number, text in campaign.slow:
            print(f"{t:.2f} s: case {number}\n{text}")
    print(
        f"{campaign.done} cases in {took:.0f} s: {len(campaign.failures)} failures {kinds or ''}; "
        f"{campaign.exact} compared for equality; largest error {campaign.share:.2f} of its bound"
    )
    return 1 if campaign.failures else 0


if __name__ == "__main__":
    sys.exit(main())
