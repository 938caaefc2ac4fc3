"""Structs: what they are compared by, and what a changed one keeps."""

from functools import cached_property

from msgspec import Struct

from polyker.errors.base import Source, Span
from polyker.ir.dtypes import TensorType, f32
from polyker.ir.expr import Literal, Read
from polyker.structs import replace

HERE = Span(Source("C[i] = 1"), 0, 4)


def test_places_are_not_compared_hashed_or_shown() -> None:
    here, nowhere = Read("C", (Literal(1, span=HERE),), span=HERE), Read("C", (Literal(1),))
    assert here == nowhere and not here != nowhere and hash(here) == hash(nowhere)
    assert "span" not in repr(here) and repr(here) == repr(nowhere)
    assert here.span is HERE
    assert here != Read("D", (Literal(1),)) and here != Literal(1) and here != "C[1]"
    assert TensorType(f32, (3,), ranges=("i in 0:3",)) == TensorType(f32, (3,))


def test_a_changed_struct_finds_out_anew_what_it_keeps() -> None:
    class Square(Struct, frozen=True, dict=True):
        side: int

        @cached_property
        def area(self) -> int:
            return self.side**2

    three = Square(3)
    assert three.area == 9 and replace(three, side=4).area == 16 and three.area == 9
