"""Options: what a compile may assume and spend, as process defaults, for a block of code, or for one call."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from polyker.errors.base import escape, failure
from polyker.errors.calls import BAD_OPTION, UNKNOWN_OPTION
from polyker.ir.dtypes import DTYPES, DType

FASTMATH = ("nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc")
MOST_THREADS = 256
SPECIALIZE = ("auto", "always", "never")


@dataclass(frozen=True, slots=True)
class Options:
    """Validated options of a compile.

    `acc`: element type of every accumulation, or None for the notation's rules. `fastmath`: LLVM flags allowed on
    every operation. `specialize`: "auto" (a symbolic kernel after three shapes), "always" (one kernel a shape), "never"
    (symbolic from the first). `timeout`: seconds that a compile may take. `threads`: of a kernel; None: POLYKER_NUM_THREADS, or
    as many as this process has cores. `deterministic`: bits do not depend on `threads`. `cache_size`: kernels kept.
    `scratch_bytes`: memory that temporaries may take, None for a quarter of the machine's. `deadline`: time.monotonic() at
    which the running compile is given up; the call sets it.
    """

    acc: DType | None = None
    fastmath: tuple[str, ...] = ()
    specialize: str = "auto"
    timeout: float = 30.0
    threads: int | None = None
    deterministic: bool = False
    cache_size: int = 512
    scratch_bytes: int | None = None
    deadline: float | None = field(default=None, compare=False)

    def changed(self, **changes: object) -> Options:
        """Return the options with some changed, each checked; raises ArgumentError."""
        if not changes:
            return self
        return replace(self, **{name: _checked(name, value) for name, value in changes.items()})  # type: ignore[arg-type]

    @property
    def thread_count(self) -> int:
        """The number of threads of a kernel; raises ArgumentError where POLYKER_NUM_THREADS is no number."""
        return self.threads or environment_threads() or available_cores()

    @property
    def code_key(self) -> tuple[object, ...]:
        """What of the options the generated code depends on."""
        one = self.specialize == "never"  # code for all sizes
        return self.acc, self.fastmath, self.thread_count, self.deterministic, self.scratch_bytes, one


NAMES = tuple(f.name for f in fields(Options) if f.name != "deadline")


def _checked(name: str, value: object) -> object:
    """Return an option's value in its stored form, or raise ArgumentError naming what is accepted."""
    match name:
        case "acc":
            if value is None or isinstance(value, DType):
                return value
            if isinstance(value, str) and value in DTYPES:
                return DTYPES[value]
            accepted = "None, or an element type such as 'f64'"
        case "fastmath":
            flags = (value,) if isinstance(value, str) else value
            if flags is None or flags is False:
                return ()
            if isinstance(flags, Iterable):
                given = tuple(flags)
                if all(isinstance(flag, str) and flag in FASTMATH for flag in given):
                    return tuple(flag for flag in FASTMATH if flag in given)
            accepted = "a set of " + ", ".join(FASTMATH)
        case "specialize":
            if isinstance(value, str) and value in SPECIALIZE:
                return value
            accepted = ", ".join(SPECIALIZE)
        case "timeout":
            if value is None:
                return float("inf")
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                return float(value)
            accepted = "seconds above 0, or None"
        case "threads":
            if value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_THREADS):
                return value
            accepted = f"an integer from 1 to {MOST_THREADS}, or None for as many as there are cores"
        case "cache_size":
            if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
                return value
            accepted = "an integer of 1 or more"
        case "deterministic":
            if isinstance(value, bool):
                return value
            accepted = "True or False"
        case "scratch_bytes":
            if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
                return value
            accepted = "a number of bytes, or None for a quarter of the memory"
        case _:
            raise failure(UNKNOWN_OPTION, name=name, known=", ".join(NAMES))
    raise failure(BAD_OPTION, name=name, value=escape(repr(value)), accepted=accepted)


_local: ContextVar[Options | None] = ContextVar("polyker_options", default=None)


class Settings:
    """The options in force: attributes to read and set, and a block with others.

    >>> import polyker as pk
    >>> with pk.options(acc="f64"):
    ...     pk.options.acc
    f64
    """

    __slots__ = ("_default",)
    _default: Options

    def __init__(self) -> None:
        object.__setattr__(self, "_default", Options())

    @property
    def current(self) -> Options:
        """The options in force here, as a value."""
        return _local.get() or self._default

    @contextmanager
    def __call__(self, **changes: object) -> Iterator[Options]:
        """Change options for a `with` block (of this thread or task)."""
        chosen, before = self.current.changed(**changes), _local.get()
        try:  # from before the change on: a signal handler may raise right after it
            _local.set(chosen)
            yield chosen
        finally:
            _local.set(before)

    def __getattr__(self, name: str) -> Any:
        if name in NAMES:
            return getattr(self.current, name)
        raise AttributeError(f"there is no option {escape(name)!r}; options: {', '.join(NAMES)}")

    def __setattr__(self, name: str, value: object) -> None:
        """Set the process's default, or inside a `with` block the block's option."""
        if _local.get() is not None:
            _local.set(self.current.changed(**{name: value}))
        else:
            object.__setattr__(self, "_default", self._default.changed(**{name: value}))

    def __dir__(self) -> list[str]:
        return sorted((*NAMES, "current"))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self.current, name)!r}" for name in NAMES)
        return f"polyker.options({shown})"


options = Settings()


def interpreting() -> bool:
    """Whether POLYKER_INTERPRET asks for the plain interpreter."""
    return os.environ.get("POLYKER_INTERPRET", "") not in ("", "0")


def environment_target() -> str | None:
    """Return what POLYKER_TARGET names, or None."""
    return os.environ.get("POLYKER_TARGET") or None


_environment = os.environ
_PLAIN = getattr(_environment, "_data", None)
_CHANGING = tuple(map(getattr(_environment, "encodekey", str), ("POLYKER_TARGET", "POLYKER_INTERPRET")))


def environment_is_plain() -> bool:
    """Whether neither POLYKER_TARGET nor POLYKER_INTERPRET is in the environment; False where that is slow to find out.

    `os.environ.get` costs half a microsecond, so the dict behind it is looked at, where that is there.
    """
    if _PLAIN is None or os.environ is not _environment:
        return False
    return _CHANGING[0] not in _PLAIN and _CHANGING[1] not in _PLAIN


def environment_timeout() -> float | None:
    """Return the seconds of POLYKER_COMPILE_TIMEOUT, or None; raises ArgumentError where it is no number."""
    text = os.environ.get("POLYKER_COMPILE_TIMEOUT")
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise failure(BAD_OPTION, name="POLYKER_COMPILE_TIMEOUT", value=repr(text), accepted="seconds above 0")
    return seconds


def environment_threads() -> int | None:
    """Return the threads of POLYKER_NUM_THREADS, or None; raises ArgumentError where it is no number from 1 to 256."""
    text = os.environ.get("POLYKER_NUM_THREADS")
    if not text:
        return None
    count = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= count <= MOST_THREADS:
        accepted = f"an integer from 1 to {MOST_THREADS}"
        raise failure(BAD_OPTION, name="POLYKER_NUM_THREADS", value=escape(repr(text)), accepted=accepted)
    return count


@cache
def available_cores() -> int:
    """Return how many cores this process may run on, as it was when this was first asked."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    return min(count, MOST_THREADS)


def set_num_threads(count: int | None) -> None:
    """Run kernels on so many threads from the next call on; None: on as many as there are cores (POLYKER_NUM_THREADS).

    The same as `options.threads = count`. A kernel that `compile` returned keeps the threads it was compiled for.
    Raises ArgumentError.
    """
    options.threads = count


def get_num_threads() -> int:
    """Return how many threads kernels run on."""
    return options.current.thread_count
