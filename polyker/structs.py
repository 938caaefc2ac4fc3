"""Structs: values with named fields. Some are compared, hashed and shown without some of these, such as places in the text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct


class PartlyCompared(Struct, frozen=True, eq=False):
    """A value whose fields in `UNCOMPARED` say nothing of what it is: nodes that differ in them alone are equal."""

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"span"})

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        value = _value(type(self))
        return bool(value(self) == value(other))

    def __ne__(self, other: object) -> bool:  # which Struct has of its own
        return not self == other

    def __hash__(self) -> int:
        return hash(_value(type(self))(self))

    def __repr__(self) -> str:
        return _shown(type(self)) % _value(type(self))(self)


def _compared(cls: type[PartlyCompared]) -> list[str]:
    return [name for name in cls.__struct_fields__ if name not in cls.UNCOMPARED]


@cache
def _shown(cls: type[PartlyCompared]) -> str:
    """Return the form of what is shown: as few levels of calls as there can be, for trees that are deep."""
    return f"{cls.__name__}({', '.join(f'{name}=%r' for name in _compared(cls))})"


@cache
def _value(cls: type[PartlyCompared]) -> Callable[[PartlyCompared], tuple[object, ...]]:
    """Return what reads the compared fields."""
    names = _compared(cls)
    return attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)


if TYPE_CHECKING:  # mypy checks what this one is given
    from dataclasses import replace as replace
else:
    from msgspec.structs import replace as replace
