"""What the GPU benchmark's tests add to its runs: cases and items that are wrong, raise, hang, or end their process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu.case import Case


def _raise(torch, x):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def _hang(torch, x):
    """Wait, with a process beside that waits, too: both have to be gone at the limit."""
    noted = os.environ.get("BAD_CASES_PROCESS")
    if noted:
        Path(noted).write_text(str(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid))
    time.sleep(600)


def _kill(torch, x):
    os.kill(os.getpid(), signal.SIGSEGV)


def cases():
    """Return bad cases with good ones between."""
    works = {
        "bad-raises": _raise,
        "good-1": lambda torch, x: 2 * x,
        "bad-hangs": _hang,
        "bad-is-killed": _kill,
        "good-2": lambda torch, x: 2 * x,
    }
    return [
        Case(name, "bad", "Y[i] = 2 * X[i]", ((9,),), work, 9.0, limit=6.0 if work is _hang else 0.0)
        for name, work in works.items()
    ]


class Trapped(Case, frozen=True):
    """A case that does something when it is measured, on machines without torch, too."""

    trap: Callable[[], object] = int

    @property
    def read(self):
        """Bytes of the inputs."""
        self.trap()
        return 36


def trapped():
    """Return the same without torch."""
    works = {
        "bad-raises": lambda: _raise(None, None),
        "good-1": int,
        "bad-hangs": lambda: _hang(None, None),
        "bad-is-killed": lambda: _kill(None, None),
        "good-2": int,
    }
    return [
        Trapped(name, "bad", "Y[i] = 2 * X[i]", ((9,),), _raise, 9.0, limit=4.0 if "hangs" in name else 0.0, trap=trap)
        for name, trap in works.items()
    ]


def wrong():
    """Return a case whose result is not what it should be."""
    return [Case("bad-result", "bad", "Y[i] = 2 * X[i]", ((9,),), lambda torch, x: 3 * x, 9.0)]


def raises(machine, say):
    raise ValueError("this item raises")


def hangs(machine, say):
    say({"stage": "it waited"})
    time.sleep(600)


def exits(machine, say):
    os._exit(7)


def good(machine, say):
    return {"note": "this item is good"}
