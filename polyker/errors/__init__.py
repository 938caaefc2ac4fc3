"""Errors: what was wrong, where, the values, and what would be accepted.

Every error that polyker raises on purpose has a stable code, registered once in the catalogue module of its layer
(`polyker.errors.syntax`, `.shapes`, `.types`, `.schedules`, `.codegen`, `.calls`) and raised through `fail(code, ...)`.
The classes keep the bases that numpy raises, so that `except ValueError` goes on working.
"""

from __future__ import annotations

from polyker.errors.base import (
    CATALOGUE,
    ArgumentError,
    BackendUnavailable,
    CompileError,
    CompileTimeout,
    DTypeError,
    Entry,
    GatherError,
    GradientError,
    HostError,
    InternalError,
    LegalityError,
    ParseError,
    PathError,
    PolykerError,
    ScheduleError,
    ShapeError,
    Source,
    Span,
    StepNameError,
    escape,
    failure,
    register,
)

__all__ = [
    "CATALOGUE",
    "ArgumentError",
    "BackendUnavailable",
    "CompileError",
    "CompileTimeout",
    "DTypeError",
    "Entry",
    "GatherError",
    "GradientError",
    "HostError",
    "InternalError",
    "LegalityError",
    "ParseError",
    "PathError",
    "PolykerError",
    "ScheduleError",
    "ShapeError",
    "Source",
    "Span",
    "StepNameError",
    "escape",
    "failure",
    "register",
]
