"""How long a kernel runs, roughly: its loops and branches with the operations in them, as plain tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from polyker.record.forms import SizeForm, names, renamed_sizes, value

# Operations that are sure; ("for", variable, first, end, step, operations an iteration, body), with None for an unknown
# bound; ("if", condition or None, then, else); ("let", name, its value).
WorkItem: TypeAlias = "int | tuple[Any, ...]"
Work: TypeAlias = "tuple[WorkItem, ...]"

# Operations beyond which nobody asks how many they are.
MOST = 1e15


def exceeds(work: Work, sizes: Mapping[str, int], limit: int) -> bool:
    """Return whether it is about `limit` operations or more, a vector's counted as one.

    Bounds and conditions that depend on the loops around them count as in the middle of these; where a condition cannot be told
    both branches count. A bound that cannot be told exceeds any limit.

    >>> loop = ("for", "i", 0, "n0", 1, 1, (2,))
    >>> exceeds((loop,), {"n0": 10}, 31), exceeds((loop,), {"n0": 10}, 30), exceeds((loop,), {}, 10**9)
    (False, True, True)
    """
    return _count(work, dict(sizes), float(limit)) >= limit


def _count(work: Sequence[WorkItem], values: dict[str, int], limit: float) -> float:
    """Return the operations, or any number from `limit` on."""
    total = 0.0
    for item in work:
        if total >= limit:
            break
        match item:
            case int():
                total += item
            case ("for", str(variable), lo, hi, int(step), int(each), tuple(body)):
                low, high = known(lo, values), known(hi, values)
                if low is None or high is None:
                    return limit
                trips = max(0, -(-(high - low) // step))
                if trips:
                    inside = {**values, variable: low + (trips // 2) * step}
                    total += trips * (each + _count(body, inside, (limit - total) / trips))
            case ("if", condition, tuple(then), tuple(other)):
                holds = known(condition, values)
                if holds is None or holds:
                    total += _count(then, dict(values), limit - total)
                if not holds:
                    total += _count(other, dict(values), limit - total)
            case ("let", str(name), form):
                found = known(form, values)
                if found is not None:
                    values[name] = found
    return total


def known(form: SizeForm | None, values: Mapping[str, int]) -> int | None:
    """Return the value of a form, None where it names what has none."""
    try:
        return None if form is None else value(form, values)
    except KeyError:
        return None


def settled(work: Work, has_sizes: bool) -> Work:
    """Return what is the same for all calls as one number, and the rest without values that no bound and no condition uses."""
    if not has_sizes:
        return (int(_count(work, {}, MOST)),)
    return _used(work, set())


def _used(work: Work, wanted: set[str]) -> Work:
    """Return the items without values of names outside `wanted`, to which the names that the others use are added."""
    kept: list[WorkItem] = []
    for item in reversed(work):
        match item:
            case ("let", str(name), form):
                if name in wanted:
                    wanted |= _names(form)
                    kept.append(item)
            case ("for", variable, lo, hi, step, each, tuple(body)):
                body = _used(body, wanted)
                wanted |= _names(lo) | _names(hi)
                kept.append(("for", variable, lo, hi, step, each, body))
            case ("if", condition, tuple(then), tuple(other)):
                wanted |= _names(condition)
                kept.append(("if", condition, _used(then, wanted), _used(other, wanted)))
            case _:
                kept.append(item)
    return tuple(reversed(kept))


def renamed(work: Work, others: Mapping[str, str]) -> Work:
    """Return the same with other names for sizes.

    >>> renamed((("for", "i", 0, "n0", 1, 1, (2,)),), {"n0": "m"})
    (('for', 'i', 0, 'm', 1, 1, (2,)),)
    """
    found: list[WorkItem] = []
    for item in work:
        match item:
            case ("for", variable, lo, hi, step, each, tuple(body)):
                bounds = (_renamed(lo, others), _renamed(hi, others))
                found.append(("for", variable, *bounds, step, each, renamed(body, others)))
            case ("if", condition, tuple(then), tuple(other)):
                found.append(("if", _renamed(condition, others), renamed(then, others), renamed(other, others)))
            case ("let", name, form):
                found.append(("let", name, _renamed(form, others)))
            case _:
                found.append(item)
    return tuple(found)


def _renamed(form: SizeForm | None, names: Mapping[str, str]) -> SizeForm | None:
    return None if form is None else renamed_sizes(form, names)


def _names(form: SizeForm | None) -> frozenset[str]:
    return frozenset() if form is None else names(form)
