"""Objects whose calls go on to a function as they are, keywords and all.

A class with a `__call__` of its own costs a tuple and a dict of the arguments each time, more than a small kernel takes.
`functools.partial` hands calls on by CPython's vectorcall convention (PEP 590), and classes may build on it; one that binds no
arguments is what is needed here. Since Python 3.12 such a class is called like that, too; in 3.11 its type has to say so.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, TypeVar, cast
from weakref import ref

from polyker.errors.base import PolykerError
from polyker.errors.tracebacks import hide_frames

T = TypeVar("T")
# Bytes of a type's struct on 64-bit machines: where its flags lie, and where the offset of its instances' entry does (CPython's
# PyTypeObject: tp_flags, tp_vectorcall_offset).
_FLAGS, _ENTRY = 168, 56
_HAVE_VECTORCALL = 1 << 11  # Py_TPFLAGS_HAVE_VECTORCALL


class Direct(partial[Any]):
    """What is called is `func`; `hand_on_to` sets it."""

    def __new__(cls, /, *args: Any, **named: Any) -> Direct:
        """Return an object whose `__init__` has to call `hand_on_to`."""
        return super().__new__(cls, _unset)

    def __init_subclass__(cls) -> None:
        if sys.version_info < (3, 12) and sys.implementation.name == "cpython" and ctypes.sizeof(ctypes.c_void_p) == 8:
            _take_vectorcalls(cls)

    def hand_on_to(self, function: Callable[..., Any]) -> None:
        """Let calls go to another function. Calls under way end as they began."""
        self.__setstate__((function, (), None, self.__dict__))  # type: ignore[attr-defined]

    def __copy__(self) -> Direct:
        return self

    def __deepcopy__(self, memo: object) -> Direct:
        return self


def weak_calls(
    owner: T, method: Callable[[T, tuple[Any, ...], Any, dict[str, Any]], Any], token: tuple[object, ...]
) -> Callable[..., Any]:
    """Return calls of a method by way of Python that do not hold on to its owner: whoever calls the owner does.

    `token`: what it computes, by which dask tells it from others.
    """
    weak = ref(owner)

    def call(*args: Any, out: Any = None, **named: Any) -> Any:
        try:
            return method(cast(T, weak()), args, out, named)
        except PolykerError as error:
            hide_frames(error)
            raise

    vars(call)["__dask_tokenize__"] = lambda: token
    return call


def _unset(*args: Any, **named: Any) -> NoReturn:
    raise TypeError("this object was not made to its end")


def _take_vectorcalls(cls: type) -> None:
    """Give a class the flag that it did not inherit, where its struct is laid out as expected."""
    flags = ctypes.c_ulong.from_address(id(cls) + _FLAGS)
    entry, inherited = (ctypes.c_ssize_t.from_address(id(c) + _ENTRY).value for c in (cls, partial))
    if flags.value == cls.__flags__ and entry == inherited > 0:
        flags.value |= _HAVE_VECTORCALL
