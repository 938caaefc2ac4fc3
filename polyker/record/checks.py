"""Conditions on the sizes of a call, evaluated without isl."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyker.errors.base import failure
from polyker.process.jobs import load
from polyker.record.forms import value
from polyker.record.records import CallRecord, Failure, SizeCheck, SizeCondition


def holds(any_of: Sequence[Sequence[SizeCondition]], values: Mapping[str, int]) -> bool:
    """Return whether all conditions of one conjunction hold."""
    return any(
        all(found == 0 if equal else found >= 0 for equal, form in rows for found in (value(form, values),))
        for rows in any_of
    )


def check_sizes(call: CallRecord, values: Mapping[str, int]) -> None:
    """Raise the error of the first check that fails; `values` has each symbolic size by its generated name (`n0`)."""
    for check in call.checks:
        if not holds(check.any_of, values):
            raise _error(check, call.sizes, values)


def _error(check: SizeCheck, sizes: Sequence[tuple[str, str]], values: Mapping[str, int]) -> Exception:
    used = [(label, values[name]) for name, label in sizes if name in check.sizes]
    shown = " for " + ", ".join(f"{label} = {found}" for label, found in used) if used else ""
    return error_of(check.failure, sizes=shown)


def error_of(told: Failure, **values: str) -> Exception:
    """Return the exception of a failure, with further values of its template."""
    for catalogue in (
        "shapes",
        "schedules",
        "types",
        "codegen",
    ):  # which register the codes that checks and guards carry
        load(f"polyker.errors.{catalogue}")
    return failure(told.code, span=told.span, **dict(told.values), **values)
