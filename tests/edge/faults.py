"""A part that fails as POLYKER_EDGE_FAULT says, to see that the campaign sees it."""

from __future__ import annotations

import ctypes
import os
import time

from tests.edge.trial import Part, Trial


def run(trial: Trial) -> None:
    """Fail in the third trial."""
    trial.note("seconds", trial.number)
    fault = os.environ.get("POLYKER_EDGE_FAULT") if trial.number == 2 else None
    trial.check(fault != "wrong", "meant to be wrong")
    if fault == "raises":
        raise ValueError("meant")
    if fault == "crashes":
        ctypes.string_at(0)
    if fault == "hangs":
        time.sleep(60)
    if fault == "exits":
        os._exit(5)


PART = Part(run, limit=4.0)
