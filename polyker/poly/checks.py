"""Conditions on sizes at the call: compiled once to integer arithmetic, then evaluated without isl."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

import polyker.errors.shapes  # noqa: F401  (registers the codes that checks carry)
from polyker.errors.base import failure
from polyker.ir.expr import Call, Expr, IndexExpr, Literal, SizeExpr
from polyker.ir.typed import TypedProgram
from polyker.poly.affine import Affine, Condition, Extremum, Quotient


def evaluate_checks(typed: TypedProgram, values: Mapping[str, int]) -> None:
    """Raise the error of the first check that fails; `values` has each symbolic size by its generated name (`n0`)."""
    for check in typed.checks:
        if not condition_holds(check.condition, values):
            used = [(label, values[name]) for name, label in typed.sizes if name in _names(check.condition)]
            shown = " for " + ", ".join(f"{label} = {value}" for label, value in used) if used else ""
            raise failure(check.code, span=check.span, hint=None, **(dict(check.values) | {"sizes": shown}))


def condition_holds(condition: str, values: Mapping[str, int]) -> bool:
    """Return whether sizes lie in an isl parameter set, given as text."""
    for rows, others in _flat(condition):
        for equal, value, terms in rows:
            for name, coefficient in terms:
                value += coefficient * values[name]
            if value < 0 or (equal and value):
                break
        else:
            if all(_holds(c, values) for c in others):
                return True
    return False


def _holds(condition: Condition, values: Mapping[str, int]) -> bool:
    op, form = condition
    value = evaluate(form, values)
    return value >= 0 if op == "ge" else value == 0


_ConstraintRow: TypeAlias = tuple[bool, int, tuple[tuple[str, int], ...]]  # (is an equation, constant, coefficients)


@lru_cache(maxsize=1024)
def _flat(condition: str) -> tuple[tuple[tuple[_ConstraintRow, ...], tuple[Condition, ...]], ...]:
    """Return each conjunction as coefficient rows, and what has divisions or extrema as forms."""
    flat = []
    for conjunction in _compiled(condition):
        rows, others = [], []
        for op, form in conjunction:
            terms = tuple((a, c) for a, c in form.terms if isinstance(a, str))
            if len(terms) == len(form.terms):
                rows.append((op == "eq", form.const, terms))
            else:
                others.append((op, form))
        flat.append((tuple(rows), tuple(others)))
    return tuple(flat)


def evaluate(form: Affine, values: Mapping[str, int]) -> int:
    """Return the value of a form of sizes."""
    total = form.const
    for atom, coefficient in form.terms:
        match atom:
            case str():
                value = values[atom]
            case Quotient(op="floordiv", form=inner, divisor=divisor):
                value = evaluate(inner, values) // divisor
            case Quotient(form=inner, divisor=divisor):
                value = evaluate(inner, values) % divisor
            case Extremum(op=op, forms=forms):
                value = (min if op == "minimum" else max)(evaluate(f, values) for f in forms)
        total += coefficient * value
    return total


@lru_cache(maxsize=1024)
def _compiled(condition: str) -> tuple[tuple[Condition, ...], ...]:
    """Return an isl parameter set as a disjunction of conjunctions."""
    from polyker.poly import isl
    from polyker.poly.forms import form_of_aff

    with isl.isl_job("checks"):
        conjunctions = []
        for basic in isl.read_set(condition).compute_divs().get_basic_sets():
            conjunction: list[Condition] = []
            for constraint in basic.get_constraints():
                form = form_of_aff(constraint.get_aff())
                assert form is not None, "a constraint has integer coefficients"
                conjunction.append(("eq" if constraint.is_equality() else "ge", form))
            conjunctions.append(tuple(conjunction))
    return tuple(conjunctions)


@lru_cache(maxsize=1024)
def _names(condition: str) -> frozenset[str]:
    return frozenset(n for conjunction in _compiled(condition) for _, form in conjunction for n in form.names)


def evaluate_shape(expr: Expr, values: Mapping[str, int]) -> int:
    """Return the value of a quasi-affine expression, such as an extent; `values` has its sizes and indices by name."""
    match expr:
        case Literal(value=value):
            return int(value.real)
        case SizeExpr(name=name) | IndexExpr(name=name):
            return values[name]
        case Call(op=op, args=args):
            numbers = [evaluate_shape(a, values) for a in args]
    match op:
        case "add":
            return sum(numbers)
        case "mul":
            product = 1
            for n in numbers:
                product *= n
            return product
        case "neg":
            return -numbers[0]
        case "floordiv":
            return numbers[0] // numbers[1]
        case "mod":
            return numbers[0] % numbers[1]
        case "minimum":
            return min(numbers)
        case "maximum":
            return max(numbers)
    raise ValueError(f"not an extent: {expr!r}")
