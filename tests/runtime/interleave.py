"""Two calls of a kernel, interleaved in every way at the points where the emitted entry may lose the interpreter's lock.

The entry calls CPython and numpy through a table of addresses. Here some of them are replaced by functions that stop at a
gate before and after they do their work, where a schedule says which of two threads goes on. One thread calls the kernel. The
other calls it with arrays of other strides, so that its row takes the place of the first one's, and drops what the kernel
keeps. A table has one row. What is freed is overwritten. `python -m tests.runtime.interleave` runs all of it, and ends by a
signal where the entry reads freed memory; `python -m tests.runtime.interleave 6 tensors` does so with torch's tensors.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import polyker as pk
from polyker.codegen.llvm.jit.call_table import ApiWord, TableWord
from polyker.runtime.entry import tables
from polyker.runtime.entry.native import Native, native
from polyker.runtime.memory import address
from tests.artifacts import compiled_of

POINTER, INT, LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
# What may give the lock away; SAVE_THREAD does: its stand-in lets the other thread run instead.
TYPES = {
    ApiWord.EMPTY: (POINTER, INT, POINTER, POINTER, INT),
    ApiWord.COPY: (INT, POINTER, POINTER),
    ApiWord.MALLOC: (POINTER, LONG),
    ApiWord.RETURN: (POINTER, POINTER),
    ApiWord.VECTORCALL: (POINTER, POINTER, POINTER, LONG, POINTER),
    ApiWord.DECREF: (None, POINTER),
    ApiWord.SAVE_THREAD: (POINTER,),
    ApiWord.RESTORE_THREAD: (None, POINTER),
}

MOST = 200  # gates that two calls pass


class Gates:
    """Two threads of which one runs at a time; at a gate the schedule says which goes on."""

    def __init__(self, schedule: Iterator[int]) -> None:
        self._schedule = schedule
        self._turns = [threading.Semaphore(0), threading.Semaphore(0)]
        self._left = {0, 1}
        self._who: dict[int, int] = {}
        self.passed = 0

    def enter(self, number: int) -> None:
        """Begin as thread `number`, when the schedule lets it."""
        self._who[threading.get_ident()] = number
        self._turns[number].acquire()

    def gate(self) -> None:
        """Let the thread go on that the schedule names."""
        number = self._who.get(threading.get_ident())
        if number is None or len(self._left) < 2:
            return
        self.passed += 1
        chosen = next(self._schedule, number)
        if chosen != number:
            self._turns[chosen].release()
            self._turns[number].acquire()

    def leave(self, number: int) -> None:
        """End; the other thread goes on alone."""
        self._left.discard(number)
        for other in self._left:
            self._turns[other].release()

    def start(self) -> None:
        """Let the thread begin that the schedule names first."""
        self._turns[next(self._schedule, 0)].release()


def gated(api: np.ndarray[Any, Any], gates: Callable[[], Gates | None], points: set[ApiWord]) -> list[Any]:
    """Put stand-ins with gates in a table of addresses; return what has to be kept."""
    kept = []
    for point in points:
        kind = ctypes.PYFUNCTYPE(*TYPES[point])
        own = None if point in (ApiWord.SAVE_THREAD, ApiWord.RESTORE_THREAD) else kind(int(api[point]))

        def stand_in(*args: Any, own: Any = own) -> Any:
            at = gates()
            if at is not None:
                at.gate()
            result = None if own is None else own(*args)
            if at is not None:
                at.gate()
            return result

        made = kind(stand_in)
        api[point] = ctypes.cast(made, POINTER).value
        kept.append(made)
    return kept


def overwrite(words: int) -> list[np.ndarray[Any, Any]]:
    """Allocate, and fill with what is no address, memory of the size of a row that was freed."""
    return [np.full(words, 0x5A5A5A5A5A5A5A5A, np.int64) for _ in range(50)]


def strided(shape: tuple[int, ...], step: int, salt: int) -> np.ndarray[Any, Any]:
    """Return an array of small integers whose last axis has a step."""
    values = np.arange(np.prod(shape) * step, dtype=np.float64) % (7 + salt)
    return values.reshape(*shape[:-1], shape[-1] * step)[..., ::step]


class Trial:
    """A kernel, how it is called, and what NumPy says."""

    def __init__(
        self,
        text: str,
        shapes: tuple[tuple[int, ...], ...],
        expected: Callable[..., Any],
        out: bool,
        given: Callable[[Any], Any],
    ) -> None:
        self.given = given  # from an array what the kernel is called with
        self.kernel = pk.op(text).compile(*(pk.f64[s] for s in shapes), threads=1)
        self.shapes, self.expected, self.out = shapes, expected, out
        self.gates: Gates | None = None
        for _ in range(4):
            self.check(1, 0)
        words, table = self.kernel.func.__self__
        made = native()
        assert isinstance(made, Native)
        self.api = made.api.copy()
        words[TableWord.API] = address(self.api)
        self.words, self.table = words, table

    def arguments(self, step: int, salt: int) -> list[Any]:
        return [strided(s, step, salt + n) for n, s in enumerate(self.shapes)]

    def check(self, step: int, salt: int) -> None:
        args = self.arguments(step, salt)
        wanted = self.expected(*(a.copy() for a in args))
        given = {}
        if self.out:
            outs = tuple(self.given(np.full_like(np.asarray(w), -1.0)) for w in wanted)
            given = {"out": outs if len(outs) > 1 else outs[0]}
        found = self.kernel(*map(self.given, args), **given)
        found = found if isinstance(found, tuple) else (found,)
        for a, b in zip(found, wanted, strict=True):
            assert np.array_equal(np.asarray(a), b), (a, b)

    def replace(self, step: int) -> None:
        """Call in other ways until the row is another's, and drop all plans."""
        for _ in range(4):
            self.check(step, 3)
        compiled_of(self.kernel).plans.clear()
        gc.collect()
        self.garbage = overwrite(self.size)

    def run(self, schedule: list[int], step: int) -> int:
        """Interleave a call of known strides with the replacement of its row; return the gates passed."""
        for _ in range(4):
            self.check(1, 0)
        (row,) = self.table.rows
        self.size = row.words.size
        del row
        gates = Gates(iter(schedule))
        failures: list[BaseException] = []

        def thread(number: int, work: Callable[[], None]) -> None:
            gates.enter(number)
            try:
                work()
            except BaseException as error:
                failures.append(error)
            finally:
                gates.leave(number)

        works = (lambda: self.check(1, 5), lambda: self.replace(step))
        threads = [threading.Thread(target=thread, args=(n, w)) for n, w in enumerate(works)]
        for t in threads:
            t.start()
        while len(gates._who) < 2:
            pass
        self.gates = gates
        gates.start()
        for t in threads:
            t.join(60)
            assert not t.is_alive(), f"a deadlock after {schedule}"
        self.gates = None
        if failures:
            raise failures[0]
        return gates.passed


TRIALS = {
    "in-out": ("f(A: f64[N], B: f64[N]) -> A:\n  A[i] = A[i] + B[i]", ((9,), (9,)), lambda a, b: (a + b,)),
    "several": ("S[i] = X[i] + 1; T[i] = X[i] * 2", ((7,),), lambda x: (x + 1, x * 2)),
    "scalar": ("s += X[i] * Y[i]", ((11,), (11,)), lambda x, y: (x @ y,)),
    "temporaries": (
        "T[i,j] = X[i,j] * 2; O[j] = sum[i](T[i,j] * T[(i + 1) % 40,j]) + max[i](T[i,j])",
        ((40, 700),),
        lambda x: ((2 * x * np.roll(2 * x, -1, 0)).sum(0) + (2 * x).max(0),),
    ),
}


def schedules(length: int) -> Iterator[list[int]]:
    """Yield all ways to choose a thread at the first gates, and those in which the second runs whole at any one gate."""
    for choice in itertools.product((0, 1), repeat=length):
        yield [0, *choice]
    for gate in range(length, MOST):
        yield [0] * (gate + 1) + [1] * 100


def comes_too_late(schedule: list[int], passed: int) -> bool:
    """Whether the first thread has ended before the second is to run whole: at later gates it is the same."""
    return 1 in schedule and 1 not in schedule[: passed + 1] and len(schedule) > MOST


def main(length: int, given: Callable[[Any], Any]) -> None:
    """Run every trial with every schedule of so many gates; `given`: from an array what kernels are called with."""
    tables.ROWS = 1  # type: ignore[misc]
    count = 0
    for name, (text, shapes, expected) in TRIALS.items():
        for out in (False, True):
            trial = Trial(text, shapes, expected, out, given)
            kept = gated(trial.api, lambda trial=trial: trial.gates, set(TYPES))
            most = 0
            for n, schedule in enumerate(schedules(length)):
                passed = trial.run(schedule, 2 + n % 2)
                most, count = max(most, passed), count + 1
                if comes_too_late(schedule, passed):
                    break
            print(f"{name}{' into out' if out else ''}: {most} gates at most", flush=True)
            assert 3 < most <= MOST
            del kept
    print(f"{count} schedules")


if __name__ == "__main__":
    TENSORS = sys.argv[2:] == ["tensors"]
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 6,
        importlib.import_module("torch").from_numpy if TENSORS else lambda a: a,
    )
