"""Which values integer expressions may have: every value that they have lies in the range that is told."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyker.ir.dtypes import DType, bool_, f32, i8, i16, i32, i64, u8, u16
from polyker.ir.expr import Call, Cast, Expr, Literal, Read
from polyker.rewrite.core.value_range import modulo, type_range, value_range
from tests.codegen.interpret_operations import apply, convert

READS = {"a": i8, "b": u8, "c": i16, "d": bool_}


def value(expr: Expr, elements: dict[str, np.ndarray]) -> np.ndarray:
    """The value of an expression, wrapped as numpy wraps."""
    match expr:
        case Literal(value=number, dtype=dtype):
            return np.array(number, dtype.numpy)
        case Read(tensor=name):
            return elements[name]
        case Cast(arg=arg, to=to):
            return convert(value(arg, elements), to)
        case Call(op=op, args=args, dtype=dtype):
            with np.errstate(over="ignore"):
                return apply(op, [value(a, elements) for a in args], dtype)
        case _:
            raise AssertionError(expr)


def to(dtype: DType, name: str) -> Expr:
    return Cast(dtype, Read(name, (), dtype=READS[name]), dtype)


def leaves(dtype: DType) -> st.SearchStrategy[Expr]:
    least, greatest = type_range(dtype)
    numbers = st.integers(max(least, -300), min(greatest, 300)).map(lambda n: Literal(n, dtype))
    return st.one_of(numbers, st.sampled_from(sorted(READS)).map(lambda n: to(dtype, n)))


def trees(dtype: DType) -> st.SearchStrategy[Expr]:
    def more(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        pair = st.tuples(inner, inner)
        two = st.tuples(st.sampled_from(["add", "mul", "minimum", "maximum"]), pair)
        one = st.tuples(st.sampled_from(["neg", "abs", "relu"]), st.tuples(inner))
        other = st.sampled_from([i8, u8, i16, u16, i32]).flatmap(
            lambda t: inner.map(lambda e: Cast(dtype, Cast(t, e, t), dtype))
        )
        parts = st.tuples(
            st.sampled_from(["floordiv", "mod"]), st.tuples(inner, st.integers(1, 9).map(lambda n: Literal(n, dtype)))
        )
        return st.one_of(st.one_of(two, one, parts).map(lambda f: Call(f[0], f[1], dtype)), other)

    return st.recursive(leaves(dtype), more, max_leaves=6)


def corners() -> dict[str, np.ndarray]:
    ends = {n: [*type_range(t), 0 if t == bool_ else 1] for n, t in READS.items()}
    points = list(itertools.product(*(ends[n] for n in READS)))
    return {n: np.array([p[k] for p in points]).astype(t.numpy) for k, (n, t) in enumerate(READS.items())}


@given(expr=st.sampled_from([i16, i32, i64]).flatmap(trees))
@settings(max_examples=90, deadline=None)
def test_every_value_lies_in_the_range(expr: Expr) -> None:
    found = value(expr, corners())
    low, high = value_range(expr)
    assert low <= found.min()
    assert found.max() <= high


@given(expr=st.sampled_from([i16, i32, i64]).flatmap(trees), part=st.sampled_from([i8, u8, i16, u16]))
@settings(max_examples=90, deadline=None)
def test_a_value_converted_is_the_same_computed_in_the_narrow_type(expr: Expr, part: DType) -> None:
    elements = corners()
    wanted, found = convert(value(expr, elements), part), value(modulo(expr, part), elements)
    np.testing.assert_array_equal(np.broadcast_to(found, wanted.shape), wanted)


@pytest.mark.parametrize(
    ("expr", "wanted"),
    [
        (to(i32, "a"), (-128, 127)),
        (Call("add", (to(i32, "b"), Call("neg", (to(i32, "a"),), i32)), i32), (-127, 383)),
        (Call("mul", (to(i32, "a"), to(i32, "b")), i32), (-128 * 255, 127 * 255)),
        (Call("mul", (to(i16, "a"), to(i16, "c")), i16), type_range(i16)),
        (Cast(i32, Cast(i8, to(i32, "b"), i8), i32), (-128, 127)),
        (to(i32, "d"), (0, 1)),
    ],
)
def test_ranges_are_those_of_the_parts_combined(expr: Expr, wanted: tuple[int, int]) -> None:
    assert value_range(expr) == wanted


def test_what_is_no_integer_has_no_range() -> None:
    assert value_range(Read("x", (), dtype=f32)) is None
    assert value_range(Cast(i16, Read("x", (), dtype=f32), i16)) == type_range(i16)
