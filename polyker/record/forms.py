"""Integer forms over named sizes, as plain tuples: extents, conditions on sizes, bounds of loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TypeAlias, cast

# A constant, the name of a size, or (operator, *forms). ("linear", c, (form, k), …) is c plus the sum of k times each form.
SizeForm: TypeAlias = "int | str | tuple[SizeForm, ...]"

OPERATORS: dict[str, Callable[..., int]] = {
    "add": lambda *values: sum(values),
    "sub": lambda a, b: a - b,
    "mul": lambda *values: prod(values),
    "neg": lambda a: -a,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "minimum": min,
    "maximum": max,
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "gt": lambda a, b: int(a > b),
    "ge": lambda a, b: int(a >= b),
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "and": lambda *values: int(all(values)),
    "or": lambda *values: int(any(values)),
    "not": lambda a: int(not a),
    "where": lambda condition, a, b: a if condition else b,
}


def value(form: SizeForm, values: Mapping[str, int]) -> int:
    """Return the value of a form; raises KeyError where it names a size that has none.

    >>> value(("floordiv", ("add", "n0", 3), 4), {"n0": 9})
    3
    >>> value(("linear", 5, ("n0", -2), (("mod", "n0", 4), 10)), {"n0": 7})
    21
    """
    if isinstance(form, int):
        return form
    if isinstance(form, str):
        return values[form]
    if form[0] == "linear":
        total = cast(int, form[1])
        for atom, factor in cast("tuple[tuple[SizeForm, int], ...]", form[2:]):
            total += factor * (values[atom] if isinstance(atom, str) else value(atom, values))
        return total
    return OPERATORS[cast(str, form[0])](*(value(f, values) for f in form[1:]))


def names(form: SizeForm) -> frozenset[str]:
    """Return the names of the sizes in a form.

    >>> sorted(names(("linear", 5, ("n0", -2), (("mod", "n1", 4), 10))))
    ['n0', 'n1']
    """
    if isinstance(form, int):
        return frozenset()
    if isinstance(form, str):
        return frozenset((form,))
    inner = (
        [pair[0] for pair in cast("tuple[tuple[SizeForm, int], ...]", form[2:])] if form[0] == "linear" else form[1:]
    )
    return frozenset().union(*map(names, inner))


def renamed_sizes(form: SizeForm, others: Mapping[str, str]) -> SizeForm:
    """Return a form with other names for sizes.

    >>> renamed_sizes(("linear", 5, ("n0", -2), (("mod", "n1", 4), 10)), {"n0": "m"})
    ('linear', 5, ('m', -2), (('mod', 'n1', 4), 10))
    """
    if isinstance(form, int):
        return form
    if isinstance(form, str):
        return others.get(form, form)
    if form[0] == "linear":
        pairs = cast("tuple[tuple[SizeForm, int], ...]", form[2:])
        return (*form[:2], *((renamed_sizes(atom, others), factor) for atom, factor in pairs))
    return (form[0], *(renamed_sizes(part, others) for part in form[1:]))


def extents(shape: tuple[SizeForm, ...], values: Mapping[str, int]) -> tuple[int, ...]:
    """Return the extents of a shape for the values of the sizes, none below zero."""
    return tuple(max(0, value(n, values)) for n in shape)
