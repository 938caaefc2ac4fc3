"""Tasks in child processes, each with a time limit; whatever a child does, each task has one outcome.

A child leads a process group of its own, which is killed as a whole (compilers that it started too): at the limit, after any
task that did not end well, and at the end. A task that did end well leaves its child, which is warm, for the next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

START = 90.0  # seconds that a child may take to import its libraries and find its machine
_WAIT = 0.25
_TRIES = 3  # children that do not start, one after another, before no more are tried
_PRINTED = 3000  # bytes of what a child printed that are kept


class Task(Struct, frozen=True):
    """What a child is to do: call `module:function` with arguments (of JSON's types), in so many seconds."""

    name: str
    call: str
    arguments: dict[str, Any] = field(default_factory=dict)
    limit: float = 60.0


class Outcome(Struct):
    """How a task ended: ok, skip, wrong, error, dead, hung, or left (there was no time for it).

    `trace`: what Python said of an error, or the end of what a child printed that did not answer.
    """

    task: Task
    status: str
    message: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    trace: str = ""

    @property
    def bad(self) -> bool:
        """Whether something is wrong; what there was no time for is not."""
        return self.status in ("wrong", "error", "dead", "hung")


class Child:
    """A process that does tasks."""

    def __init__(self, kind: str, environment: Mapping[str, str]) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the child
        reader, writer = os.pipe()
        command = [sys.executable, "-m", "benchmarks.gpu.child", kind, str(writer), str(os.getpid())]
        path = os.pathsep.join(os.path.abspath(place) for place in sys.path)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self.log, stderr=subprocess.STDOUT, pass_fds=(writer,),
            start_new_session=True, env={**os.environ, "PYTHONPATH": path, **environment},
        )  # fmt: skip
        os.close(writer)
        os.set_blocking(reader, False)
        self.reader, self._rest, self.ended = reader, b"", False
        self.ready, self.task, self.begun = False, None, time.monotonic()
        self.partial: dict[str, Any] = {}

    task: Task | None

    def give(self, task: Task) -> None:
        """Let the child do a task; one that is gone is noticed when it is listened to."""
        self.task, self.begun, self.partial = task, time.monotonic(), {}
        line = json.dumps({"call": task.call, "arguments": task.arguments}) + "\n"
        with contextlib.suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()

    def heard(self) -> list[dict[str, Any]]:
        """Return what the child has said since the last time."""
        try:
            while found := os.read(self.reader, 1 << 16):
                self._rest += found
            self.ended = True
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def kill(self) -> str:
        """Kill the child and all that it started, without waiting; return how it had ended, '' where it had not."""
        status = self.process.poll()
        if status is None and self.ended:  # it is about to
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self.process.wait(2)
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for stream in (self.process.stdin, self.log):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()
        os.close(self.reader)
        if status is None:
            return ""
        return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"

    def printed(self) -> str:
        """Return the end of what the child printed."""
        with contextlib.suppress(OSError):
            self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - _PRINTED))
            return self.log.read().decode(errors="replace").strip()
        return ""


class Pool:
    """Runs tasks in children of one kind; `spares`: children that are started ahead of the tasks that they will do."""

    def __init__(self, kind: str, environment: Mapping[str, str] | None = None, deadline: float | None = None) -> None:
        self.kind, self.environment = kind, environment or {}
        self.deadline = float("inf") if deadline is None else deadline
        self._children: list[Child] = []
        self._ending: list[Child] = []  # killed: with a context on a device that takes a while
        self._selector = selectors.DefaultSelector()
        self.unavailable = ""
        self._begun, self._refused = (
            False,
            0,
        )  # whether a child ever began, and how many did not since the last one that did

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._selector.close()

    def close(self) -> None:
        """End all children and wait until they are gone; the next task starts others."""
        for child in list(self._children):
            self._drop(child)
        for child in self._ending:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(5)  # one that the system cannot end is left behind
        self._ending.clear()

    def warm(self, count: int) -> None:
        """Start children until there are so many."""
        while len(self._children) < count:
            child = Child(self.kind, self.environment)
            self._children.append(child)
            self._selector.register(child.reader, selectors.EVENT_READ, child)

    def _drop(self, child: Child) -> str:
        self._selector.unregister(child.reader)
        self._children.remove(child)
        self._ending = [c for c in [*self._ending, child] if c.process.poll() is None]
        return child.kill()

    def run(self, tasks: Sequence[Task], workers: int = 1, *, reuse: bool = True, spares: int = 0) -> Iterator[Outcome]:
        """Yield the outcome of each task, as they end."""
        waiting = deque(tasks)
        while waiting or any(c.task for c in self._children):
            now = time.monotonic()
            if now >= self.deadline:
                for child in [c for c in self._children if c.task]:
                    yield self._stopped(child, "left", "stopped as the time was over")
                yield from (Outcome(task, "left", "no time was left") for task in waiting)
                return
            busy = sum(c.task is not None for c in self._children)
            for child in [c for c in self._children if c.ready and not c.task][: workers - busy]:
                if waiting:
                    child.give(waiting.popleft())
            self.warm(min(workers + spares, sum(c.task is not None for c in self._children) + len(waiting)))
            for key, _ in self._selector.select(min(_WAIT, max(0.0, self.deadline - now))):
                yield from self._listen(key.data, waiting, reuse=reuse)
            for child in [c for c in self._children if c.process.poll() is not None]:
                child.ended = True  # even where something that it started holds its pipe
                yield from self._listen(child, waiting, reuse=reuse)
            yield from self._late(waiting)

    def _listen(self, child: Child, waiting: deque[Task], *, reuse: bool) -> Iterator[Outcome]:
        """Yield what comes of what a child says."""
        for message in child.heard():
            if "hello" in message:
                child.ready = self._begun = True
                self._refused = 0
            elif "no machine" in message:
                self.unavailable = message["no machine"]
            elif "partial" in message:
                child.partial |= message["partial"]
            elif child.task is not None:
                task, seconds = child.task, time.monotonic() - child.begun
                result = {**child.partial, **message.get("result", {})}
                if message["status"] == "ok":
                    result.pop("stage", None)
                child.task = None
                outcome = Outcome(task, message["status"], message.get("message", ""), result, seconds)
                outcome.trace = message.get("trace", "")
                if not reuse or outcome.status not in ("ok", "skip"):
                    self._drop(child)
                yield outcome
                if child not in self._children:
                    return
        if child.ended:
            yield from self._died(child, waiting)

    def _died(self, child: Child, waiting: deque[Task]) -> Iterator[Outcome]:
        """Yield the outcome of the task of a child that is gone."""
        printed, seconds = child.printed(), time.monotonic() - child.begun
        tail = (printed.splitlines() or [""])[-1][:300]
        how = self._drop(child) or "closed its pipe"
        if child.task is not None:
            message = f"the process {how}{_stage(child)}: {tail}".rstrip(": ")
            yield Outcome(child.task, "dead", message, child.partial, seconds, printed)
        elif not child.ready:
            yield from self._no_start(self.unavailable or f"{how}; {tail}", waiting)

    def _no_start(self, reason: str, waiting: deque[Task]) -> Iterator[Outcome]:
        """Note that a child did not start; yield the outcomes of all tasks that wait, where no other one is likely to."""
        self._refused += 1
        if self._refused >= _TRIES or (self.unavailable and not self._begun):
            while waiting:
                yield Outcome(waiting.popleft(), "dead", f"a child did not start: {reason}")

    def _late(self, waiting: deque[Task]) -> Iterator[Outcome]:
        """Yield the outcomes of tasks at whose limit their children are still busy."""
        now = time.monotonic()
        for child in list(self._children):
            spent = now - child.begun
            if child.task is not None and spent > child.task.limit:
                yield self._stopped(child, "hung", f"no answer in {child.task.limit:.0f} s{_stage(child)}")
            elif child.task is None and not child.ready and spent > START:
                self._drop(child)
                yield from self._no_start(f"nothing in {START:.0f} s", waiting)

    def _stopped(self, child: Child, status: str, message: str) -> Outcome:
        task, seconds, result, printed = child.task, time.monotonic() - child.begun, child.partial, child.printed()
        assert task is not None
        self._drop(child)
        return Outcome(task, status, message, result, seconds, printed)


def _stage(child: Child) -> str:
    """Return where a child was, as far as it said."""
    stage = child.partial.get("stage")
    return f" while {stage}" if stage else ""


def once(pool: Pool, task: Task) -> Outcome:
    """Return the outcome of one task."""
    return next(iter(list(pool.run([task]))))


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM end this process as an exception does, so that its children end too."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
