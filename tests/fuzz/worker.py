"""A child process runs the cases, so that a crash is a failure that is counted, and not the end."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import sys
import time
from typing import Any

from polyker.structs import replace
from tests.fuzz.generate import generate
from tests.fuzz.run import Outcome, run, snippet
from tests.fuzz.shrink import shrink


def main(argv: list[str]) -> None:
    """Run cases `start`, `start + step`, … of a seed, and write one line of JSON before and after each."""
    seed, start, stop, step, backend, small = int(argv[0]), int(argv[1]), int(argv[2]), int(argv[3]), argv[4], argv[5]
    faulthandler.enable(sys.stderr)
    # Reports go to a file of their own: what a library prints must not get between them.
    say, seen = os.fdopen(os.dup(1), "w"), set[str]()
    os.dup2(2, 1)
    for number in range(start, stop, step):
        case = generate(seed, number)
        _tell(say, begin=number, text=case.text, snippet=snippet(case), features=sorted(case.features))
        began = time.perf_counter()
        outcome = run(case, backend)
        took = time.perf_counter() - began
        report: dict[str, Any] = {
            "end": number, "kind": outcome.kind, "exact": outcome.exact, "share": outcome.ulps, "took": took,
            "features": sorted(outcome.features),
        }  # fmt: skip
        if outcome.problem:
            report["problem"] = outcome.problem
            _tell(say, **report)
            repeated = outcome.kind == "error" and signature(outcome) in seen
            seen.add(signature(outcome))
            if small == "shrink" and not repeated:
                until = time.perf_counter() + 25
                case = shrink(case, lambda c: time.perf_counter() < until and _same(outcome, run(replace(c), backend)))
                last = run(case, backend)
                _tell(
                    say, shrunk=number, text=case.text, snippet=snippet(case), problem=last.problem or outcome.problem
                )
        else:
            _tell(say, **report)


def _same(first: Outcome, second: Outcome) -> bool:
    return first.kind == second.kind and (first.kind != "error" or signature(first) == signature(second))


def signature(outcome: Outcome) -> str:
    """Return what failures of one cause have in common: the message without names and numbers, and where it was raised."""
    lines = outcome.problem.splitlines()
    return outcome.kind + re.sub(r"[`'\"][^`'\"]*[`'\"]|[0-9]+", "", lines[0])[:80] if lines else ""


def _tell(stream: Any, **values: Any) -> None:
    stream.write(json.dumps(values) + "\n")
    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
