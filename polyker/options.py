"""Options: what a compile may assume and spend, as process defaults, for a block of code, or for one call."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct

from polyker.errors.base import escape, failure
from polyker.errors.calls import BAD_OPTION, UNKNOWN_OPTION
from polyker.errors.given import exact_text, integer, is_a, number, printed
from polyker.errors.spelling import suggestion
from polyker.errors.tracebacks import api_boundary
from polyker.ir.dtypes import DType, dtype_of
from polyker.process.jobs import load
from polyker.structs import PartlyCompared, replace

FASTMATH = ("nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc")
MOST_THREADS = 256


class OptionDefault:
    """The value of an option that is not given; it prints as what holds then, for `help` and signatures."""

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __repr__(self) -> str:
        return self._shown


def default_of(shown: str) -> Any:
    """Return the value of a keyword that is not given, told from every value that can be given."""
    return OptionDefault(shown)


def is_given(value: object) -> bool:
    """Return whether a keyword has been given."""
    return type(value) is not OptionDefault


UNSET = default_of("...")
_MOST = 1 << 62  # bytes, and kernels: no bound
_MOST_FLAGS = 64  # names of flags that are looked at
SPECIALIZE = ("auto", "always", "never")


class Options(PartlyCompared, frozen=True):
    """Validated options of a compile.

    `acc`: element type of every accumulation, or None for the notation's rules. `fastmath`: LLVM flags allowed on
    every operation. `specialize`: "auto" (a symbolic kernel after three shapes), "always" (one kernel a shape), "never"
    (symbolic from the first). `timeout`: seconds that a compile may take, for each 64 statements where there are more.
    `threads`: of a kernel; None: POLYKER_NUM_THREADS, or as many as this process has cores. `deterministic`: bits do not depend
    on `threads`. `cache_size`: kernels kept. `scratch_bytes`: memory that temporaries may take, None for a quarter of the
    machine's. `deadline`: time.monotonic() at which the running compile is given up; the call sets it.
    """

    UNCOMPARED: ClassVar = frozenset({"deadline"})

    acc: DType | None = None
    fastmath: tuple[str, ...] = ()
    specialize: str = "auto"
    timeout: float = 30.0
    threads: int | None = None
    deterministic: bool = False
    cache_size: int = 512
    scratch_bytes: int | None = None
    deadline: float | None = None

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


NAMES = tuple(name for name in Options.__struct_fields__ if name != "deadline")


def _checked(name: str, value: object) -> object:
    """Return an option's value in its stored form, or raise ArgumentError naming what is accepted."""
    rule = _RULES.get(name)
    if rule is None:
        raise failure(UNKNOWN_OPTION, name=name, meant=suggestion(name, NAMES), known=", ".join(NAMES))
    stored = rule.stored(value)
    if stored is UNSET:
        raise failure(BAD_OPTION, name=name, value=printed(value), accepted=rule.accepted)
    return stored


class _Rule(Struct, frozen=True):
    """What an option accepts; `stored` returns a value in its stored form, UNSET for one that is refused."""

    stored: Callable[[object], object]
    accepted: str


def _element_type(value: object) -> object:
    return None if value is None else dtype_of(value) or UNSET


def _specialize(value: object) -> object:
    text = exact_text(value)
    return text if text in SPECIALIZE else UNSET


def _timeout(value: object) -> object:
    seconds = float("inf") if value is None else number(value)
    return seconds if seconds is not None and seconds > 0 else UNSET


def _thread_count(value: object) -> object:
    count = integer(value)
    return count if value is None or (count is not None and 1 <= count <= MOST_THREADS) else UNSET


def _cache_size(value: object) -> object:
    count = integer(value)
    return min(count, _MOST) if count is not None and count >= 1 else UNSET


def _bytes(value: object) -> object:
    count = integer(value)
    if value is None:
        return None
    return min(count, _MOST) if count is not None and count >= 0 else UNSET


def _flags(value: object) -> object:
    """Return LLVM's flags of one or several names, in one order; UNSET for anything else."""
    if value is None or value is False:
        return ()
    try:
        names: Iterable[object] = (value,) if is_a(value, str) else islice(value, _MOST_FLAGS)  # type: ignore[call-overload]
        given = [exact_text(name) for name in names]
    except Exception:  # whatever the iteration raises
        return UNSET
    known = len(given) < _MOST_FLAGS and all(flag in FASTMATH for flag in given)
    return tuple(flag for flag in FASTMATH if flag in given) if known else UNSET


def _flag(value: object) -> object:
    return bool(value) if is_a(value, (bool, np.bool_)) else UNSET


_RULES = {
    "acc": _Rule(_element_type, "None, or an element type such as 'f64'"),
    "fastmath": _Rule(_flags, "a set of " + ", ".join(FASTMATH)),
    "specialize": _Rule(_specialize, ", ".join(SPECIALIZE)),
    "timeout": _Rule(_timeout, "seconds above 0, or None"),
    "threads": _Rule(_thread_count, f"an integer from 1 to {MOST_THREADS}, or None for as many as there are cores"),
    "deterministic": _Rule(_flag, "True or False"),
    "cache_size": _Rule(_cache_size, "an integer of 1 or more"),
    "scratch_bytes": _Rule(_bytes, "a number of bytes, or None for a quarter of the memory"),
}


def checked_flag(name: str, value: object) -> bool:
    """Return an option that is True or False, NumPy's included; raises ArgumentError for anything else."""
    flag = _flag(value)
    if flag is UNSET:
        raise failure(BAD_OPTION, name=name, value=printed(value), accepted="True or False")
    return bool(flag)


def checked_target(value: object) -> Any:
    """Return a target's name or description, None for the default one; raises ArgumentError for anything else."""
    load("polyker.machine.model")
    from polyker.machine.model import Target

    if is_a(value, Target):
        return value
    text = exact_text(value)
    if value is None or text is not None:
        return text or None
    accepted = "a text such as 'cpu', 'cpu:x86-64-v3' or 'cuda', or None for this machine"
    raise failure(BAD_OPTION, name="target", value=printed(value), accepted=accepted)


def checked_seconds(value: object) -> float:
    """Return the seconds that a measurement may take; raises ArgumentError for what is no number of 0 or more."""
    seconds = number(value)
    if seconds is None or not seconds >= 0:
        raise failure(BAD_OPTION, name="seconds", value=printed(value), accepted="seconds, 0 or more")
    return seconds


def split_keywords(
    own: Container[str], named: Mapping[str, Any], names: Iterable[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return keywords as options, where they are in `names` and not the program's own, and the rest."""
    chosen = {name: named[name] for name in names if name in named and name not in own}
    return chosen, {name: value for name, value in named.items() if name not in chosen}


_local: ContextVar[Options | None] = ContextVar("polyker_options", default=None)


class Settings:
    """The options in force: attributes to read and set, and a block with others.

    >>> import polyker as pk
    >>> with pk.options(acc="f64"):
    ...     pk.options.acc
    f64
    """

    _default: Options  # an item of its dict, where the emitted entry of calls looks (guards)

    def __init__(self) -> None:
        object.__setattr__(self, "_default", Options())

    @property
    def current(self) -> Options:
        """The options in force here, as a value."""
        return _local.get() or self._default

    @api_boundary
    def __call__(self, **changes: object) -> AbstractContextManager[Options]:
        """Change options for a `with` block (of this thread or task): acc, fastmath, specialize, timeout, threads, deterministic,
        cache_size, scratch_bytes, as in Options. Raises ArgumentError.
        """
        self.current.changed(**changes)  # now, at the caller's line, and also where no block follows
        return self._block(changes)

    @contextmanager
    def _block(self, changes: Mapping[str, object]) -> Iterator[Options]:
        chosen, before = self.current.changed(**changes), _local.get()
        try:  # from before the change on: a signal handler may raise right after it
            _local.set(chosen)
            yield chosen
        finally:
            _local.set(before)

    def __getattr__(self, name: str) -> Any:
        if name in NAMES:
            return getattr(self.current, name)
        meant = f"{suggestion(name, NAMES)}options: {', '.join(NAMES)}"
        raise AttributeError(f"there is no option {escape(name)!r}; {meant}", name=name, obj=self)

    @api_boundary
    def __setattr__(self, name: str, value: object) -> None:
        """Set the process's default, or inside a `with` block the block's option."""
        if _local.get() is not None:
            _local.set(self.current.changed(**{name: value}))
        else:
            object.__setattr__(self, "_default", self._default.changed(**{name: value}))

    def __dir__(self) -> list[str]:
        return sorted((*NAMES, "current"))

    def __reduce__(self) -> str:
        """Pickle and copy it as the process's own: the values of a `with` block are `current`, which goes as they are."""
        return "options"

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


class Guards(Struct, frozen=True):
    """Where to look, without Python, whether options are in force and the environment is plain (environment_is_plain).

    `items`: of dicts, with what each has to be, None for none. `variable`: a context variable; where it is None the options in
    force are the item of `defaults` by `key`.
    """

    items: tuple[tuple[dict[Any, Any], object, object], ...]
    variable: ContextVar[Options | None]
    defaults: dict[str, Any]
    key: str = sys.intern("_default")


def guards() -> Guards | None:
    """Return where to look, None where that cannot be told."""
    if type(_PLAIN) is not dict:
        return None
    environment: tuple[dict[Any, Any], object, object] = (os.__dict__, sys.intern("environ"), _environment)
    return Guards((environment, *((_PLAIN, key, None) for key in _CHANGING)), _local, options.__dict__)


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


@api_boundary
def set_num_threads(count: int | None) -> None:
    """Run kernels on so many threads from the next call on; None: on as many as there are cores (POLYKER_NUM_THREADS).

    The same as `options.threads = count`. A kernel that `compile` returned keeps the threads it was compiled for.
    Raises ArgumentError.
    """
    options.threads = count


@api_boundary
def get_num_threads() -> int:
    """Return how many threads kernels run on."""
    return options.current.thread_count
