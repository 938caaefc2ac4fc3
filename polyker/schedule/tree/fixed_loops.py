"""Build loops with constant bounds without isl's AST builder.

    for c in 0:18: for r in 0:14: for v in 0:16: S[14 c + r, v]      isl sees      for c in 0:18: fixed0[c]

isl takes about a millisecond for each loop of each statement, and most loops are those inside a tile. Where a statement's
instances are a box, and the times of its loops the digits of its iterators (`floor(i / 14)`, `i mod 14`), the inner digits run
from one constant to another in every tile that the box does not cut, and that is known without isl. In its tree the nest is one
instance at the times of the loops around.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import islpy as isl
from msgspec import Struct

from polyker.ir.expr import Call, Expr, IndexExpr, Literal
from polyker.ir.typed import TypedStatement
from polyker.poly.boxes import ends
from polyker.schedule.tree.nodes import Member

# What an expression is: its constant, and the factors of floor((iterator + shift) / divisor).
_Form: TypeAlias = tuple[int, dict[tuple[str, int, int], int]]
_Range: TypeAlias = tuple[int, int]


class FixedLoops(Struct, frozen=True):
    """Innermost loops of one statement, each with its least and greatest time, and nothing but the statement inside.

    `iterators`: for each iterator a constant and what to add to it, as (place of a time, factor); the times are those of the
    loops around (`depth` of them), then those of these. `domain`: isl's conditions on the times `t0, t1, …` around at which the
    nest runs.
    """

    statement: str
    depth: int
    loops: tuple[tuple[Member, int, int], ...]
    iterators: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    domain: tuple[str, ...]


class _Digit(Struct, frozen=True):
    """The time at a place: `constant + floor(x / divisor) - base * floor(x / (base * divisor))`, x = iterator + shift.

    `base` 0: without what is subtracted.
    """

    place: int
    constant: int
    shift: int
    divisor: int
    base: int


def fixed_loops(
    statement: TypedStatement, points: isl.Set, around: tuple[Expr, ...], members: tuple[Member, ...]
) -> FixedLoops | None:
    """Return the loops `members` over the instances `points`, inside loops of the times `around`; None where isl has to say."""
    if points.dim(isl.dim_type.param) or not points.is_box() or points.is_empty():
        return None
    box: dict[str, _Range] = {}
    for n, name in enumerate(statement.iterators):
        found = ends(points, n)
        if found is None:
            return None
        box[name] = found
    times = (*around, *(m.time(statement.name) for m in members))
    digits: dict[str, list[_Digit]] = {}
    fixed: dict[int, _Range] = {}  # of the times that are known: least and greatest
    for place, time in enumerate(times):
        form = _form(time)
        if form is None:
            return None
        constant, terms = _without_constants(form, box)
        if not terms:
            fixed[place] = constant, constant
            continue
        digit = _digit(place, constant, terms)
        if digit is None:
            return None
        digits.setdefault(next(iter(terms))[0], []).append(digit)
    domain: list[str] = []
    for name, (low, high) in box.items():
        if low != high and not _run(digits.get(name, []), low, high, len(around), fixed, domain):
            return None
    domain += [f"t{place} = {fixed[place][0]}" for place in range(len(around)) if place in fixed]
    values = tuple(_value(digits[i]) if i in digits else (box[i][0], ()) for i in statement.iterators)
    loops = tuple((m, *fixed[len(around) + n]) for n, m in enumerate(members))
    return FixedLoops(statement.name, len(around), loops, values, tuple(domain))


def _run(digits: list[_Digit], low: int, high: int, around: int, fixed: dict[int, _Range], domain: list[str]) -> bool:
    """Note the ranges of an iterator's digits inside, and the conditions on those around; whether they do not depend on these.

    The digits are those of `iterator + shift`, which runs from `low + shift` to `high + shift`.
    """
    digits.sort(key=lambda d: -d.divisor)
    if not digits or digits[0].base or digits[-1].divisor != 1:
        return False
    if any(d.base * d.divisor != before.divisor for before, d in pairwise(digits)):
        return False
    shifts = {d.shift for d in digits if d.base or d.divisor > 1}
    if len(shifts) > 1:
        return False
    outer = [d for d in digits if d.place < around]
    if outer != digits[: len(outer)]:
        return False
    (shift,) = shifts or {0}
    low, high = low + shift, high + shift
    if outer:
        unit = outer[-1].divisor
        total = " + ".join(f"{d.divisor // unit}*(t{d.place} - {d.constant})" for d in outer)
        domain.append(f"{low // unit} <= {total} <= {high // unit}")
        domain += [f"0 <= t{d.place} - {d.constant} < {d.base}" for d in outer if d.base]
        inside = _inside(low, high, unit)
        if inside is None:
            return False
        low, high = inside
    for d in digits[len(outer) :]:
        fixed[d.place] = d.constant + low // d.divisor, d.constant + high // d.divisor
        inside = _inside(low, high, d.divisor)
        if inside is None:
            return False
        low, high = inside
    return True


def _inside(low: int, high: int, divisor: int) -> _Range | None:
    """Return the range of the remainders of all values from `low` to `high`; None where it is not the same for each quotient."""
    if low // divisor == high // divisor:
        return low % divisor, high % divisor
    return (0, divisor - 1) if low % divisor == 0 and (high + 1) % divisor == 0 else None


def _value(digits: list[_Digit]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return an iterator as a constant and the factors of the times."""
    shift = next((d.shift for d in digits if d.base or d.divisor > 1), 0)
    constant = -shift - sum(d.divisor * d.constant for d in digits)
    return constant, tuple((d.place, d.divisor) for d in digits)


def _digit(place: int, constant: int, terms: Mapping[tuple[str, int, int], int]) -> _Digit | None:
    """Return a time as a digit of one iterator, None if it is none."""
    by_divisor = sorted(terms.items(), key=lambda item: item[0][2])
    if len({name for name, _, _ in terms}) > 1 or len(terms) > 2:
        return None
    (_, shift, divisor), factor = by_divisor[0]
    if factor != 1:
        return None
    base = 0
    if len(terms) == 2:
        (_, outer_shift, outer), factor = by_divisor[1]
        if outer % divisor or factor != -(outer // divisor) or (divisor > 1 and shift != outer_shift):
            return None
        base, shift = outer // divisor, outer_shift
        constant -= outer_shift if divisor == 1 else 0  # i = (i + shift) - shift
    return _Digit(place, constant, shift, divisor, base)


def _without_constants(form: _Form, box: Mapping[str, _Range]) -> _Form:
    """Return a form without the quotients that have one value."""
    constant, terms = form
    left: dict[tuple[str, int, int], int] = {}
    for (name, shift, divisor), factor in terms.items():
        low, high = box[name]
        if (low + shift) // divisor == (high + shift) // divisor:
            constant += factor * ((low + shift) // divisor)
        elif factor:
            left[name, shift, divisor] = factor
    return constant, left


def _form(expr: Expr) -> _Form | None:
    """Return what an expression is, None if it is no sum of quotients of single iterators."""
    match expr:
        case Literal(value=value):
            return int(value.real), {}
        case IndexExpr(name=name):
            return 0, {(name, 0, 1): 1}
        case Call(op="add", args=args):
            return _sum([_form(a) for a in args])
        case Call(op="neg", args=(arg,)):
            return _scaled(_form(arg), -1)
        case Call(op="mul", args=(Literal(value=value), arg)) | Call(op="mul", args=(arg, Literal(value=value))):
            return _scaled(_form(arg), int(value.real))
        case Call(op="floordiv" | "mod" as op, args=(arg, Literal(value=value))):
            divisor = int(value.real)
            quotient = _quotient(_form(arg), divisor) if divisor > 0 else None
            return quotient if op == "floordiv" else _sum([_form(arg), _scaled(quotient, -divisor)])
        case _:
            return None


def _scaled(form: _Form | None, factor: int) -> _Form | None:
    if form is None:
        return None
    return factor * form[0], {k: factor * f for k, f in form[1].items() if factor}


def _sum(parts: Sequence[_Form | None]) -> _Form | None:
    constant, terms = 0, dict[tuple[str, int, int], int]()
    for part in parts:
        if part is None:
            return None
        constant += part[0]
        for key, factor in part[1].items():
            terms[key] = terms.get(key, 0) + factor
    return constant, {k: f for k, f in terms.items() if f}


def _quotient(form: _Form | None, divisor: int) -> _Form | None:
    """Return floor(form / divisor): whole multiples of the divisor leave it, and one term may stay."""
    if form is None:
        return None
    constant, terms = form
    outside = {k: f // divisor for k, f in terms.items() if f % divisor == 0}
    inside = [(k, f) for k, f in terms.items() if f % divisor]
    if not inside:
        return constant // divisor, outside
    ((name, shift, inner), factor), *others = inside
    if others or factor != 1:
        return None
    # floor((floor((i + shift) / inner) + constant) / divisor)
    return _sum([(0, outside), (0, {(name, shift + constant * inner, inner * divisor): 1})])
