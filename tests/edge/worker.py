"""A child process that runs trials of a part, and reports each as a line of JSON before and after it."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import traceback
from typing import Any

from tests.edge.trial import Skipped, Trial, Wrong, part


def main(argv: list[str]) -> None:
    """Run trials `first` to `stop` of a part; the first that fails is the last."""
    name, seed, first, stop = argv[0], int(argv[1]), int(argv[2]), int(argv[3])
    # A process that hangs is sent SIGABRT, on which this shows where all threads are. (faulthandler's own watchdog would make
    # children of forks hang, which inherit it without its thread.)
    faulthandler.enable(sys.stderr)
    # Reports go to a file of their own: what a library or a child of this process prints must not get between them.
    say = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    found = part(name)
    for number in range(first, stop):
        trial = Trial(name, seed, number)
        tell(say, begin=number)
        began, problem, skipped = time.monotonic(), "", False
        try:
            found.run(trial)
        except Skipped:
            skipped = True
        except Wrong as wrong:
            problem = f"wrong: {wrong}"
        except BaseException:
            problem = "unexpected exception:\n" + traceback.format_exc()
        took = time.monotonic() - began
        tell(say, end=number, checks=trial.checks, notes=trial.notes, problem=problem, skipped=skipped, took=took)
        if problem:  # later trials might suffer from what this one left
            break


def tell(stream: Any, **values: Any) -> None:
    """Write one line of JSON."""
    stream.write(json.dumps(values) + "\n")
    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
