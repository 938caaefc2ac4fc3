"""Children that write a line of JSON for what they do: their lines, their crashes, and how long they say nothing."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


class Child:
    """A Python process that runs a module of this project; `ended`: ("", ""), or hang or crash, and more of it."""

    def __init__(
        self, module: str, arguments: Sequence[object], hang: float, environment: dict[str, str] | None = None
    ) -> None:
        self._hang, self._errors = hang, list[str]()
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.ended = "", ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **(environment or {})},
        )
        streams = ((self._process.stdout, self._lines.put, True), (self._process.stderr, self._errors.append, False))
        for stream, sink, last in streams:
            threading.Thread(target=_pump, args=(stream, sink, last), daemon=True).start()

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield what it says, until it ends."""
        while True:
            line, seconds = _line(self._lines, self._process.pid, self._hang)
            if seconds:
                self.ended = "hang", f"no answer in {seconds:.0f} s"
                self.stop()
                return
            if line is None:
                break
            try:
                said = json.loads(line)
            except ValueError:  # a line cut short by a crash
                continue
            yield said
        if code := self._process.wait():
            name = signal.Signals(-code).name if code < 0 else f"exit {code}"
            self.ended = "crash", name + "\n" + "".join(self._errors)[-3000:]

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def _line(lines: queue.Queue[str | None], pid: int, hang: float) -> tuple[str | None, float]:
    """Return the next line of a child, or how long there was none: `hang` seconds of the processor's time, or ten times as long.

    On a machine that does other work, too, a child is not slow for waiting for its turn.
    """
    began, used = time.monotonic(), _processor_time(pid)
    while True:
        try:
            return lines.get(timeout=hang), 0.0
        except queue.Empty:
            waited, worked = time.monotonic() - began, _processor_time(pid)
            if used is None or worked is None or worked - used >= hang or waited >= 10 * hang:
                return None, waited


def _processor_time(pid: int) -> float | None:
    """Return the seconds of the processor that a process has had, None where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pump(stream: Any, sink: Any, last: bool) -> None:
    for line in stream:
        sink(line)
    if last:
        sink(None)
