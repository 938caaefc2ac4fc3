"""Campaigns of random programs, each judged by functions that say in a word what came of it.

A word of more than one, after a colon, is not counted apart; `WRONG` and what is wrong is a failure.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tests.fuzz.case import Case
from tests.fuzz.generate import generate

Judge: TypeAlias = Callable[[Case], str]


def campaign(
    judges: Sequence[Judge], seed: int, first: int, count: int, make: Callable[[int, int], Case] = generate
) -> tuple[Counter[str], list[str]]:
    """Return how many programs came to what, and those that are wrong; what one judge refuses no later one sees."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(first, first + count):
        case = make(seed, number)
        if case.invalid:
            continue
        for judge in judges:
            try:
                said = judge(case)
            except Exception as error:
                said = f"WRONG: {judge.__name__}: {type(error).__name__} {str(error)[:600]}"
            counts[said.partition(":")[0]] += 1
            if said.startswith("WRONG"):
                wrong.append(f"program {seed}/{number}: {said}\n{case.text}")
            if said.startswith("refused"):
                break
    return counts, wrong


def main(
    about: str | None, judges: Sequence[Judge], make: Callable[[int, int], Case] = generate, programs: int = 2000
) -> int:
    """Run a campaign as the command line says, and print what came of it; return whether anything is wrong."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--programs", type=int, default=programs)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    counts, wrong = campaign(judges, given.seed, given.first, given.programs, make)
    print(*wrong, sep="\n\n")
    print(", ".join(f"{n} {what}" for what, n in counts.most_common()))
    return bool(wrong)
