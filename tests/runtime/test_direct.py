"""Calls that go on to a function as they are: to the one that was set last, with the object's own attributes kept."""

from __future__ import annotations

import copy
import inspect
import sys
import weakref
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.api.kernel import Kernel
from polyker.runtime.entry.direct import Direct

VECTORCALL = 1 << 11


class Doubler(Direct):
    def __init__(self, factor: int = 2) -> None:
        self.factor = factor
        self.hand_on_to(lambda *args, **named: (args, named, self.factor))


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="other interpreters call in their own way")
def test_its_type_is_called_without_a_tuple_and_a_dict() -> None:
    assert all(t.__flags__ & VECTORCALL for t in (Kernel, Doubler))


def test_arguments_are_handed_on_as_they_are() -> None:
    given = [object() for _ in range(9)]
    args, named, factor = Doubler(3)(*given, out=given[0], x=1)
    assert all(a is g for a, g in zip(args, given, strict=True))
    assert (named, factor) == ({"out": given[0], "x": 1}, 3)


def test_another_function_takes_over_and_attributes_stay() -> None:
    found = Doubler(5)
    found.hand_on_to(lambda: "other")
    assert found() == "other" and found.factor == 5 and found.args == () and found.keywords == {}


def test_a_call_under_way_ends_as_it_began() -> None:
    found = Doubler()

    def first(*args: Any) -> object:
        found.hand_on_to(lambda *args: "second")
        return args, found(1)

    gone = weakref.ref(first)
    found.hand_on_to(first)
    del first
    assert found(7) == ((7,), "second")
    assert gone() is None and found() == "second"


def test_an_object_that_is_not_made_to_its_end_says_so() -> None:
    with pytest.raises(TypeError, match="not made to its end"):
        Direct()()


def test_a_kernel_copies_to_itself_and_shows_how_it_is_called() -> None:
    kernel = pk.op("C[i] = A[i] + 1").compile(pk.f32[4])
    assert copy.copy(kernel) is kernel and copy.deepcopy([kernel])[0] is kernel
    assert "out" in inspect.signature(kernel).parameters
    for _ in range(9):  # from the third call on it is another function
        np.testing.assert_array_equal(kernel(np.zeros(4, "f4")), 1)
    assert "out" in inspect.signature(kernel).parameters
