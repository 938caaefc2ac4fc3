"""Tracebacks that end at the caller's line: polyker's frames are taken out of its errors where these leave it.

CPython adds a frame to the traceback of an error where the error is raised or passes through, but not where a bare `raise`
raises it again: what that frame set as the traceback stays. So a boundary sets what is left of it, and leaves no frame itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from types import FunctionType, TracebackType
from typing import ParamSpec, TypeVar

from polyker.errors.base import InternalError, PolykerError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

# Packages whose frames a user has no use for: polyker's own, and those that stand between two of these.
_OWN = frozenset(
    (
        "polyker",
        "contextlib",
        "functools",
        "threading",
        "importlib",
        "lark",
        "islpy",
        "llvmlite",
        "msgspec",
        "numpy",
        "sympy",
    )
)
_KEPT = frozenset({"__new__", "__init_subclass__", "__getattr__", "__reduce__", "__copy__", "__deepcopy__"})


def hide_frames(error: PolykerError) -> None:
    """Take polyker's frames, and the causes that polyker raised and caught itself, out of an error that a user gets.

    What stays are frames of the user's, such as those of a method that polyker called. An InternalError is a bug of polyker, and
    stays as it is; so does every error where POLYKER_TRACEBACK is "full". To be followed by a bare `raise`.
    """
    if isinstance(error, InternalError) or os.environ.get("POLYKER_TRACEBACK", "") == "full":
        return
    error.__traceback__ = _of_user(error.__traceback__)
    cause = error.__cause__
    if cause is not None and _is_own(cause):
        error.__cause__ = None  # as for `from None`, a context is shown no more either
    elif cause is not None:
        cause.__traceback__ = _of_user(cause.__traceback__)
    context = error.__context__
    while context is not None and _is_own(context):
        context = context.__context__
    error.__context__ = context


def _of_user(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that are polyker's."""
    kept = None
    for found in reversed(_listed(frames)):
        if not _is_own_frame(found):
            kept = TracebackType(kept, found.tb_frame, found.tb_lasti, found.tb_lineno)
    return kept


def _listed(frames: TracebackType | None) -> list[TracebackType]:
    found = []
    while frames is not None:
        found.append(frames)
        frames = frames.tb_next
    return found


def _is_own_frame(frame: TracebackType) -> bool:
    return str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0] in _OWN


def _is_own(error: BaseException) -> bool:
    """Whether an error came up and was caught inside of polyker."""
    frames = _listed(error.__traceback__)
    return bool(frames) and all(map(_is_own_frame, frames))


def api_boundary(function: Callable[P, R]) -> Callable[P, R]:
    """Return a public function whose errors have no frames of polyker.

    >>> api_boundary(len)("ab")
    2
    """

    @wraps(function)
    def bounded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except PolykerError as error:
            hide_frames(error)
            raise

    return bounded


def api_class(cls: C) -> C:
    """Make the public methods, operators and properties of a class boundaries; return the class."""
    for name, member in list(vars(cls).items()):
        if (name.startswith("_") and not name.endswith("__")) or name in _KEPT:
            continue
        if isinstance(member, FunctionType):
            setattr(cls, name, api_boundary(member))
        elif isinstance(member, (staticmethod, classmethod)):
            setattr(cls, name, type(member)(api_boundary(member.__func__)))
        elif isinstance(member, property) and member.fget is not None:
            setattr(cls, name, property(api_boundary(member.fget), member.fset, member.fdel, member.__doc__))
    return cls
