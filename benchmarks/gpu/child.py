"""A child process that does tasks: `python -m benchmarks.gpu.child KIND FD`, tasks by standard input, answers by the descriptor.

Both are lines of JSON. A task names a function, which is called with the machine, a function that tells how far it has come, and
the task's arguments. The first answer is `hello`, when there is a machine. Prints of whatever is called go to the log.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG

_TRACE = 3000  # characters

Say = Callable[[dict[str, Any]], None]


def follow_parent(parent: int) -> None:
    """Let the system end this process when the one that started it ends, however it does."""
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):  # not Linux: the end of the input has to do
        return
    if os.getppid() != parent:
        os._exit(1)


def function_of(name: str) -> Callable[..., Any]:
    """Return the function `module:name`."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def answer_of(task: dict[str, Any], machine: Any, say: Say) -> dict[str, Any]:
    """Do a task; return what it gave, or what went wrong."""
    from benchmarks.gpu.machine import Skip

    try:
        result = function_of(task["call"])(machine, say, **task["arguments"])
        if machine is not None:
            machine.sync()  # what the device did wrong is this task's, not the next one's
        return {"status": "ok", "result": result or {}}
    except Skip as reason:
        return {"status": "skip", "message": str(reason)}
    except Exception as error:
        traceback.print_exc()
        status = "wrong" if isinstance(error, AssertionError) else "error"
        lines = str(error).strip().splitlines() or [""]
        message = f"{type(error).__name__}: {lines[0][:300]}"
        return {"status": status, "message": message, "trace": traceback.format_exc()[-_TRACE:]}


def main() -> None:
    """Answer tasks until the input ends."""
    kind, descriptor, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    follow_parent(parent)
    os.set_inheritable(descriptor, False)
    output = os.fdopen(descriptor, "w", encoding="utf-8")
    # What this process starts, such as compilers, can read no task.
    tasks = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def send(message: dict[str, Any]) -> None:
        output.write(json.dumps(message) + "\n")
        output.flush()

    try:
        from benchmarks.gpu.machine import machine_of

        machine = machine_of(kind)
    except BaseException as error:
        traceback.print_exc()
        send({"no machine": f"{type(error).__name__}: {error}"})
        return
    send({"hello": True})
    for line in tasks:
        task = json.loads(line)
        answer = answer_of(task, machine, lambda found: send({"partial": found}))
        sys.stdout.flush()
        send(answer)


if __name__ == "__main__":
    main()
