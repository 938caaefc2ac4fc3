"""A new process that is interrupted in its first import, definition, compile or einsum, and then does it all again.

`python -m tests.edge.fresh STAGE SIGNAL SECONDS` prints a line of JSON: what was caught and when, or the problem.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

# NumPy cannot be imported again in a process where its first import failed; that is not looked at here.
import numpy as np


class Late(Exception):
    """What a user's handler raises."""


def main(stage: str, way: str, delay: float) -> None:
    """Run the stage with a signal after `delay` seconds, then all stages without."""
    a, b = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5)
    text = "C[i,j] += A[i,k] * B[k,j]"

    def module() -> Any:
        import polyker

        return polyker

    stages: dict[str, Callable[[], Any]] = {
        "import": module,
        "op": lambda: module().op(text),
        "compile": lambda: module().op(text)(a, b),
        "einsum": lambda: module().einsum("ij,jk->ik", a, b),
    }
    order = list(stages)
    work = stages[stage] if stage in stages else lambda: [s() for s in stages.values()]
    for before in order[: order.index(stage)] if stage in ("op", "compile") else ["import"] * (stage == "einsum"):
        stages[before]()
    handled: list[float] = []

    def handler(number: int, frame: object) -> None:
        # SIGINT is what a person sends; a timer sends it to itself here, so that the moment is known.
        handled.append(time.monotonic())
        if way == "SIGINT":
            signal.default_int_handler(number, frame)  # type: ignore[arg-type]
        raise Late

    signal.signal(signal.SIGALRM, handler)
    expected = KeyboardInterrupt if way == "SIGINT" else Late
    said: dict[str, Any] = {"caught": False, "early": True}
    finished = False
    began = time.monotonic()
    try:
        if way != "none":
            signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))
        work()
        finished = True
        ended = time.monotonic()
        said["early"] = ended - began < delay + 0.02
        time.sleep(0.02 if way == "none" else max(0.0, began + delay - ended) + 0.02)
    except BaseException as error:
        ended = time.monotonic()
        if type(error) is not expected:
            said["problem"] = "the caller got another exception\n" + traceback.format_exc()
        said["caught"] = not finished
        said["latency"] = ended - began - delay
    said["took"] = ended - began
    try:
        for name, again in stages.items():
            result = again()
            if name in ("compile", "einsum") and not np.array_equal(result, a @ b):
                said["problem"] = f"{name} gives a wrong result after the interrupt"
    except BaseException:
        said["problem"] = "the same again fails after the interrupt\n" + traceback.format_exc()
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
