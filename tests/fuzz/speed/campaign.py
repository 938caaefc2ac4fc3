"""A campaign for speed: `python -m tests.fuzz speed --programs 3000 --seed 1 --log found.jsonl`.

Each program's line of JSON goes to the log as it is done; a campaign that is begun again with the same log goes on where it
was. What is compiled, and against what, is in variants.py. The clock counts the processor's time of one thread.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.fuzz.children import Child
from tests.fuzz.speed.variants import KINDS

RENEWED = 100  # programs of a child
SLOW_COMPILE = 1.0  # seconds
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "POLYKER_NUM_THREADS"), "1")


def main(argv: Sequence[str]) -> int:
    """Run a campaign and print what it found; returns 1 if some program was too slow, wrong or failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz speed", description=__doc__)
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first program")
    parser.add_argument(
        "--log", type=Path, required=True, help="a file of JSON lines, one a program; numbers in it are not run again"
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="what is compared: some of " + ", ".join(KINDS))
    parser.add_argument("--time-limit", type=float, default=1e9, help="seconds")
    parser.add_argument(
        "--hang", type=float, default=150, help="seconds of the processor without an answer that end a program"
    )
    options = parser.parse_args(argv)
    if unknown := set(options.kinds.split(",")) - set(KINDS):
        parser.error(f"no such kinds: {', '.join(sorted(unknown))}")
    numbers = range(options.start, options.start + options.programs)
    run(options.log, options.seed, numbers, options.kinds, options.time_limit, options.hang)
    found = [r for r in logged(options.log, options.seed) if r["number"] in numbers]
    print(summary(found))
    return int(any(r.get("excesses") or r.get("differs") or "error" in r for r in found))


def logged(log: Path, seed: int) -> list[dict[str, Any]]:
    """Return the lines of a log that are of a seed; one that was cut short when a campaign was ended is left out."""
    found = []
    for line in log.read_text().splitlines() if log.exists() else ():
        with suppress(ValueError):
            found.append(json.loads(line))
    return [r for r in found if r["seed"] == seed]


def run(log: Path, seed: int, numbers: Iterable[int], kinds: str, limit: float = 1e9, hang: float = 150) -> None:
    """Time the programs that are not in the log; a crash or a hang is one's error, and the others go on."""
    until = time.monotonic() + limit
    done = {r["number"] for r in logged(log, seed)}
    left = [n for n in numbers if n not in done]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write("\n" if log.stat().st_size and not log.read_text().endswith("\n") else "")
        while left and time.monotonic() < until:
            child = Child(
                "tests.fuzz.speed.worker", (seed, kinds, ",".join(map(str, left[:RENEWED]))), hang, ONE_THREAD
            )
            current: dict[str, Any] = {"number": left[0]}
            for said in child.lines():
                if "begin" in said:
                    current = said
                    continue
                file.write(json.dumps({"seed": seed, **said}) + "\n")
                file.flush()
                left.remove(said["number"])
                if time.monotonic() > until:
                    child.stop()
                    return
            kind, problem = child.ended
            if kind and current["number"] in left:
                current.pop("begin", None)
                file.write(json.dumps({"seed": seed, **current, "error": f"{kind}: {problem}"}) + "\n")
                left.remove(current["number"])


def summary(found: Sequence[dict[str, Any]]) -> str:
    """Return what a campaign found: counts by kind and family, the worst, what compiles slowly, what failed."""
    every = [(e, r) for r in found for e in r.get("excesses", ())]
    slow = sum(bool(r.get("excesses")) for r in found)
    lines = [f"{len(found)} programs, {slow} too slow: {dict(Counter(e['kind'] for e, _ in every).most_common())}"]
    families = Counter((e["kind"], *e.get("smaller", r)["families"]) for e, r in every)
    lines += [f"  {n:4} {kind}: {', '.join(names)}" for (kind, *names), n in families.most_common(40)]
    for e, r in sorted(every, key=lambda er: -er[0]["ratio"])[:10]:
        took = f"{e['slow']} {e['us'][0]} us, {e['quick']} {e['us'][1]} us"
        small = e.get("smaller", r)
        lines.append(
            f"{e['ratio']:.1f} x ({e['kind']}: {took}), program {r['number']}\n{small['text']}    {small['sizes']}"
        )
    late = [(s, way, r["number"]) for r in found for way, s in r.get("compiled", {}).items() if s > SLOW_COMPILE]
    lines.append(f"{len(late)} compiles of more than {SLOW_COMPILE:.0f} s, the longest:")
    lines += [f"  {s:.1f} s: {way} of program {n}" for s, way, n in sorted(late, reverse=True)[:10]]
    refused = Counter(f"{way}, {why.split(':')[0]}" for r in found for way, why in r.get("refused", {}).items())
    lines.append(f"not compiled: {dict(refused)}")
    lines += [f"values of program {r['number']} differ: {r['differs']}" for r in found if r.get("differs")]
    lines += [f"program {r['number']}: {r['error'][:300]}" for r in found if "error" in r]
    return "\n".join(lines)
