"""Processes end as they mean to: with their status, soon, without a crash and without a word of one."""

from __future__ import annotations

import os
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


def ended_process(command: list[str], where: str) -> tuple[int, str, str, float]:
    """Run a process to its end; return its exit status, what it wrote to stdout and stderr, and when it ended."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONFAULTHANDLER"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        out, words = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        abort(process.pid)
        process.kill()
        out, words = process.communicate(timeout=20)
        raise Wrong(f"{where}: still there after {LIMIT:.0f} s\n{words[-5000:]}") from None
    return process.returncode, out, words, time.monotonic()


TURNS = [*WAYS, *(way for way in WAYS if way.startswith("daemons") for _ in range(3))]


def run(trial: Trial) -> None:
    """Run one process to its end."""
    way, seed = trial.turn(TURNS), trial.random.getrandbits(30)
    # A process that takes note of crashes takes longer to end, so only some do.
    noted = ["-X", "faulthandler"] if trial.random.random() < 0.3 else []
    command = [sys.executable, *noted, "-m", "tests.edge.ending", way, str(seed)]
    where = f"python -m tests.edge.ending {way} {seed}"
    began = time.monotonic()
    # On a busy machine the threads that are left run on longer while the process ends.
    leaves, spin = way.startswith(("daemons", "threads")), [sys.executable, "-S", "-c", "while True: pass"]
    busy = subprocess.Popen(spin) if leaves and trial.random.random() < 0.5 else None
    try:
        status, out, words, ended = ended_process(command, where)
    finally:
        if busy is not None:
            busy.kill()
            busy.wait()
    shown = f"exit status {status}\n{out[-500:]}\n{words[-5000:]}"
    lines = out.split()
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


PART = Part(run, limit=100.0, per_child=10, turns=len(WAYS))
