"""Conditions and forms of sizes, evaluated as a call evaluates them."""

from __future__ import annotations

from collections.abc import Mapping

from polyker.ir.typed import TypedProgram
from polyker.poly.affine import Affine
from polyker.poly.checks import affine_form, call_record, conditions_of
from polyker.record.checks import check_sizes, holds
from polyker.record.forms import value


def evaluate_checks(typed: TypedProgram, values: Mapping[str, int]) -> None:
    """Raise the error of the first check of a program that fails."""
    check_sizes(call_record(typed), values)


def condition_holds(condition: str, values: Mapping[str, int]) -> bool:
    """Return whether sizes lie in an isl parameter set."""
    return holds(conditions_of(condition), values)


def evaluate(form: Affine, values: Mapping[str, int]) -> int:
    """Return the value of a quasi-affine form."""
    return value(affine_form(form), values)
