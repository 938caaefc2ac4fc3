"""Run the campaign: `python -m tests.edge --minutes 30 --seed 1 --jobs 2`."""

from __future__ import annotations

import argparse
import sys
import time

from tests.edge.campaign import Campaign
from tests.edge.trial import PARTS


def main(argv: list[str] | None = None) -> int:
    """Run trials, print failures as they come and the table at the end; returns 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.edge", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="a new one each time, if not given")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--only", choices=(*PARTS, "interrupts"), action="append", help="a part; may be given more than once"
    )
    parser.add_argument("--trials", default=None, metavar="FIRST:STOP", help="certain trials of the one part, in order")
    parser.add_argument("--interrupts", type=int, default=None, help="only interrupt so many compiles by SIGINT")
    parser.add_argument("--ci", action="store_true", help="two minutes with seed 0")
    options = parser.parse_args(argv)
    began = time.monotonic()
    seed = options.seed if options.seed is not None else 0 if options.ci else int(time.time()) % 1_000_000
    if options.interrupts is not None:
        from tests.edge.interrupts import interrupted_compiles

        return interrupted_compiles(options.interrupts, seed, options.jobs)
    campaign = Campaign(seed, options.only or PARTS, say=lambda text: print(text, flush=True))
    print(f"seed {seed}", flush=True)
    if options.trials is not None:
        if not options.only or len(options.only) != 1:
            parser.error("--trials needs one part: --only NAME")
        first, _, stop = options.trials.partition(":")
        campaign.run_trials(options.only[0], int(first), int(stop or int(first) + 1))
    else:
        campaign.run(120.0 if options.ci else 60 * options.minutes, options.jobs)
    print(f"{campaign.table()}\n{time.monotonic() - began:.0f} s, seed {seed}")
    return 1 if campaign.failed else 0


if __name__ == "__main__":
    sys.exit(main())
