"""`python -m benchmarks polybench`: PolyBench's programs beside numba's plain loops and NumPy, on one core."""

from __future__ import annotations

import argparse
import json
import math
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

from benchmarks.polybench import CLASSES

LIMIT = 60.0  # seconds; a peer that takes longer counts as having taken so long
PATIENCE = 600.0  # seconds for what counts in full
OURS = "polyker"


def add_parser(commands: Any) -> None:
    """Add the command line of `polybench`."""
    found = commands.add_parser("polybench", help="PolyBench's 30 programs")
    found.add_argument("--size", choices=CLASSES, default="LARGE", help="default: %(default)s")
    found.add_argument("--case", default="*", metavar="GLOB", help="only programs whose name matches")
    found.add_argument("--check", action="store_true", help="compare results with numba's loops only")
    found.add_argument("--peers", default="numba,numpy", help="comma-separated; default: %(default)s")
    found.add_argument("--rounds", type=int, default=5, help="rounds, of which the median counts; default: %(default)s")
    found.add_argument("--seconds", type=float, default=10.0, help="begin no new round of a program after so long")
    found.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: where others share the core")
    found.add_argument("--core", type=int, help="the core to run on; default: the last")
    found.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def main(options: argparse.Namespace) -> int:
    """Run the programs, a process each; return the exit status: 1 if a result is wrong or missing."""
    from benchmarks.polybench.suite import select

    peers = [p for p in options.peers.split(",") if p]
    if options.check:
        peers, options.rounds = ["numba"], 0
    print(f"{'program':16}{'compile s':>10}{'polyker ms':>12}" + "".join(f"{p + ' ms':>12}{'ratio':>8}" for p in peers))
    rows: dict[str, dict[str, Any]] = {}
    for case in select(options.case):
        rows[case.name] = row = outcome(case.name, peers, options)
        print(line(case.name, row, peers), flush=True)
        if options.json:
            options.json.write_text(json.dumps({"size": options.size, "cases": rows}, indent=1), encoding="utf-8")
    for name in peers if not options.check else ():
        ratios = [r for row in rows.values() if (r := ratio(row, name)) is not None]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"geometric mean against {name}: {mean:.2f} over {len(ratios)} programs, least {min(ratios):.2f}")
    wrong = [name for name, row in rows.items() if row["fault"]]
    print(f"{len(rows) - len(wrong)} of {len(rows)} right" + (f"; not: {', '.join(wrong)}" if wrong else ""))
    return int(bool(wrong))


def ratio(row: dict[str, Any], name: str) -> float | None:
    """Return a peer's time over polyker's, None where one is missing."""
    times = row["seconds"]
    return times[name] / times[OURS] if name in times and OURS in times else None


def line(name: str, row: dict[str, Any], peers: list[str]) -> str:
    """Return a program's line of the table."""
    times = row["seconds"]
    text = f"{name:16}{row['compile']:10.2f}{times.get(OURS, math.nan) * 1e3:12.3f}"
    for peer in peers:
        late = ">" if peer in row["late"] else ""
        text += f"{late + format(times.get(peer, math.nan) * 1e3, '.3f'):>12}{ratio(row, peer) or math.nan:8.2f}"
    return text + (f"  {row['fault']}" if row["fault"] else "")


def outcome(name: str, peers: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Return what one program gives; a peer that took too long is left out, and counts as LIMIT."""
    late: list[str] = []
    while True:
        found, slow = attempt(name, [p for p in peers if p not in late], options)
        if found is not None:
            found["seconds"] = {n: min(t, LIMIT) if n != OURS else t for n, t in found["seconds"].items()}
            found["seconds"].update(dict.fromkeys(late, LIMIT))
            return found | {"late": late}
        if slow not in peers:
            return {"seconds": {}, "compile": math.nan, "fault": f"no result: {slow}", "late": late}
        late.append(slow)


def attempt(name: str, peers: list[str], options: argparse.Namespace) -> tuple[dict[str, Any] | None, str]:
    """Return the outcome of one process, or None and the contestant that took too long (or what the process said last)."""
    command = [sys.executable, "-m", "benchmarks.polybench.child", name, options.size, "--peers", ",".join(peers)]
    command += ["--rounds", str(options.rounds), "--seconds", str(options.seconds), "--clock", options.clock]
    command += [] if options.core is None else ["--core", str(options.core)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        said: queue.Queue[str] = queue.Queue()
        threading.Thread(target=listen, args=(child.stdout, said), daemon=True).start()
        running = ""
        # Where others share the core a process may need several times as long as what its own clock says.
        limit = (LIMIT + 5) * (4 if options.clock == "cpu" else 1)
        while True:
            try:
                text = said.get(timeout=limit if running in peers else PATIENCE)
            except queue.Empty:
                child.kill()
                return None, running or f"nothing was heard for {PATIENCE:.0f} s"
            if text.startswith("{"):
                return json.loads(text), ""
            if not text:
                complaints = child.stderr.read().strip().splitlines()
                return None, complaints[-1] if complaints else "the process ended"
            running = text.split()[1] if text.startswith("begin ") else ""


def listen(stream: IO[str], said: queue.Queue[str]) -> None:
    """Pass on a stream's lines, and an empty one at its end."""
    for text in stream:
        said.put(text.strip())
    said.put("")
