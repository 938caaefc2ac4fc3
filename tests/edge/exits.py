"""Processes end as they mean to: with their status, soon, without a crash and without a word of one."""

from __future__ import annotations

import re
import subprocess
import sys
import time

from tests.edge.campaign import abort
from tests.edge.ending import WAYS
from tests.edge.trial import Part, Trial, Wrong

LIMIT = 45.0  # seconds that a process may take
SOON = 10.0  # seconds that the end of a process may take
_CRASH = re.compile(
    r"Fatal Python error|Segmentation|Exception ignored|terminate called|corrupt|double free|malloc|free\(\)|LLVM ERROR"
    r"|Assertion|core dumped|Aborted|InternalError|Exception in thread|stack smashing"
)


def run(trial: Trial) -> None:
    """Run one process to its end."""
    ways = [way for way in WAYS for _ in range(4 if way.startswith("daemons") else 1)]
    way, seed = trial.random.choice(ways), trial.random.getrandbits(30)
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.edge.ending", way, str(seed)]
    where = f"python -m tests.edge.ending {way} {seed}"
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, words = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        abort(process.pid)
        process.kill()
        out, words = process.communicate(timeout=20)
        raise Wrong(f"{where}: still there after {LIMIT:.0f} s\n{words[-5000:]}") from None
    ended, lines, status = time.monotonic(), out.split(), process.returncode
    shown = f"exit status {status}\n{out[-500:]}\n{words[-5000:]}"
    trial.check(status in WAYS[way][1], f"{where}: {shown}")
    if way in ("interrupted_while_ending", "interrupt_not_caught") and "KeyboardInterrupt" in words:
        # What the interpreter itself says of an interrupt that comes while it waits for threads or runs handlers.
        words = words.replace("Exception ignored in", "").replace("Exception ignored on", "")
    trial.check(not _CRASH.search(words), f"{where}: {shown}")
    if way in ("exception", "daemons_and_exception"):
        trial.check(words.strip().endswith("ValueError: meant to be raised"), f"{where}: {shown}")
    elif way not in ("interrupted_while_ending", "interrupt_not_caught"):
        trial.check(not words.strip(), f"{where}: {shown}")
    if lines and way != "threads_go_on":
        took = ended - max(began, float(lines[-1]))
        trial.note("end of a process", took)
        trial.check(took < SOON, f"{where}: its end took {took:.1f} s")


PART = Part(run, limit=100.0, per_child=10)
