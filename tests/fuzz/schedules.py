"""What the schedule of a kernel did, and random legal steps on it (oracle O3).

`fired` names what a compile used, from the printed schedule and loops, so that the share of cases is known in which
tiling, vector code and so on ran. `check` is the place for random steps; schedules cannot be edited yet, so it tries none.
"""

from __future__ import annotations

import random
import re
from typing import Any

from tests.fuzz.case import Case

_SIGNS = {
    "vector": r"\bvector",
    "unrolled": r"\bunroll",
    "tile": r"\btile",
    "promoted": r"\bpromot|\bregister",
    "fused": r"\bfuse",
    "parallel": r"\bparallel",
}


def fired(kernel: Any) -> set[str]:
    """Return the features of a compile."""
    try:
        text = "\n".join(str(kernel.source(stage)) for stage in ("schedule", "loops"))
    except NotImplementedError:
        return set()
    return {f"compiled:{name}" for name, sign in _SIGNS.items() if re.search(sign, text)}


def check(case: Case, got: tuple[Any, ...], rng: random.Random) -> tuple[str, list[str]]:
    """Return (problem, names of the steps tried); nothing until schedules take steps from outside."""
    return "", []
