"""Quasi-affine forms: made from expressions, printed for isl, turned back, evaluated; all agree with Python's integers."""

from __future__ import annotations

import islpy as isl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyker.ir.dtypes import bool_, f32
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read, SizeExpr
from polyker.poly.affine import (
    Affine,
    NotAffine,
    affine_of,
    constant,
    expr_of,
    extremum,
    restriction_of,
    show,
    variable,
)
from polyker.poly.checks import evaluate_shape
from tests.poly.sizes import condition_holds, evaluate

LEAVES = st.one_of(
    st.integers(-6, 6).map(Literal),
    st.sampled_from(["i0", "i1"]).map(IndexExpr),
    st.sampled_from(["n0", "n1"]).map(SizeExpr),
)


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    number, positive = st.integers(-4, 4).map(Literal), st.integers(1, 5).map(Literal)
    return st.one_of(
        st.tuples(inner, inner).map(lambda a: Call("add", a)),
        st.tuples(inner, number).map(lambda a: Call("mul", a)),
        st.tuples(number, inner).map(lambda a: Call("mul", a)),
        inner.map(lambda a: Call("neg", (a,))),
        st.tuples(inner, positive).map(lambda a: Call("floordiv", a)),
        st.tuples(inner, positive).map(lambda a: Call("mod", a)),
    )


EXPRS = st.recursive(LEAVES, _grow, max_leaves=8)
VALUES = st.fixed_dictionaries({name: st.integers(-9, 9) for name in ("i0", "i1", "n0", "n1")})


def value_of(expr: Expr, values: dict[str, int]) -> int:
    match expr:
        case Literal(value=value):
            return value
        case IndexExpr(name=name) | SizeExpr(name=name):
            return values[name]
        case Call(op="add", args=args):
            return sum(value_of(a, values) for a in args)
        case Call(op="mul", args=(a, b)):
            return value_of(a, values) * value_of(b, values)
        case Call(op="neg", args=(a,)):
            return -value_of(a, values)
        case Call(op="floordiv", args=(a, b)):
            return value_of(a, values) // value_of(b, values)
        case Call(op="mod", args=(a, b)):
            return value_of(a, values) % value_of(b, values)
    raise AssertionError(expr)


@given(EXPRS, VALUES)
def test_a_form_has_the_value_of_its_expression(expr, values):
    form = affine_of(expr)
    assert evaluate(form, values) == value_of(expr, values)
    assert value_of(expr_of(form), values) == value_of(expr, values)
    assert eval(show(form, lambda n: n), {}, dict(values)) == value_of(expr, values)


@given(EXPRS, VALUES)
def test_the_text_means_the_same_to_isl(expr, values):
    form = affine_of(expr)
    names = ", ".join(values)
    points = isl.Set(
        f"{{ [v, {names}] : v = {form.text} and {' and '.join(f'{n} = {v}' for n, v in values.items())} }}"
    )
    assert points.dim_max_val(0).to_python() == points.dim_min_val(0).to_python() == evaluate(form, values)


@given(EXPRS, EXPRS)
def test_equal_forms_are_equal_whatever_the_order(a, b):
    assert affine_of(Call("add", (a, b))) == affine_of(Call("add", (b, a)))
    assert affine_of(a) - affine_of(a) == constant(0)
    assert hash(affine_of(a) + affine_of(b)) == hash(affine_of(b) + affine_of(a))


@given(EXPRS, VALUES, st.integers(-9, 9))
def test_replacing_a_name_is_evaluating_with_it(expr, values, number):
    form = affine_of(expr)
    replaced = form.replace({"i0": constant(number)})
    assert "i0" not in replaced.names
    assert evaluate(replaced, values) == evaluate(form, {**values, "i0": number})


def test_extrema_merge_equal_forms_and_constants():
    n = variable("n0")
    assert extremum("maximum", [n, n]) == n
    assert extremum("maximum", [constant(3), constant(5)]) == constant(5)
    three = extremum("minimum", [n, constant(4), constant(2), n + 1])
    assert three.text == "min(2, (n0 + 1), n0)"
    assert [evaluate(three, {"n0": v}) for v in (-3, 1, 9)] == [-3, 1, 2]
    assert evaluate_shape(expr_of(three), {"n0": 1}) == 1


@pytest.mark.parametrize(
    ("expr", "why"),
    [
        (Call("mul", (IndexExpr("i0"), IndexExpr("i1"))), "a product of two variables"),
        (Call("floordiv", (IndexExpr("i0"), Literal(0))), "not a positive integer"),
        (Call("mod", (IndexExpr("i0"), SizeExpr("n0"))), "not a positive integer"),
        (Call("div", (IndexExpr("i0"), Literal(2))), "`/` gives a float"),
        (Literal(1.5), "only integers"),
        (Literal(True), "a bool"),
        (Call("exp", (IndexExpr("i0"),)), "`exp`"),
        (Call("pow", (IndexExpr("i0"), Literal(2))), "a power"),
        (Read("A", (), dtype=f32), "the value of a tensor"),
    ],
)
def test_what_is_not_affine_is_named(expr, why):
    with pytest.raises(NotAffine, match=why) as caught:
        affine_of(Call("add", (IndexExpr("i1"), expr)))
    assert caught.value.expr == expr


def test_constant_powers_are_constants():
    assert affine_of(Call("mul", (Call("pow", (Literal(2), Literal(5))), IndexExpr("i0")))) == variable("i0") * 32


_COMPARE = {"lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__, "eq": int.__eq__, "ne": int.__ne__}
COMPARISONS = st.tuples(st.sampled_from(list(_COMPARE)), EXPRS, EXPRS).map(lambda c: Call(c[0], c[1:]))
CONDITIONS = st.recursive(
    COMPARISONS | st.booleans().map(lambda v: Cast(bool_, Literal(int(v)))),
    lambda inner: st.one_of(
        inner.map(lambda c: Call("not", (c,))),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner).map(lambda c: Call(c[0], c[1:])),
    ),
    max_leaves=5,
)


def truth_of(condition, values):
    match condition:
        case Cast(arg=Literal(value=value)):
            return bool(value)
        case Call(op="not", args=(a,)):
            return not truth_of(a, values)
        case Call(op="and" | "or" as op, args=args):
            return (all if op == "and" else any)(truth_of(a, values) for a in args)
        case Call(op=op, args=(a, b)):
            return _COMPARE[op](value_of(a, values), value_of(b, values))


@given(CONDITIONS, VALUES)
def test_conditions_are_sets_of_isl(condition, values):
    found = restriction_of(condition)
    bound = " and ".join(f"{name} = {value}" for name, value in values.items())
    points = isl.Set(f"[n0, n1] -> {{ [i0, i1] : {bound} and {found.text} }}")
    assert points.is_empty() != truth_of(condition, values)
    assert found.indices <= {"i0", "i1"}


@pytest.mark.parametrize(
    "condition",
    [
        "[n0, n1] -> { : n0 = n1 }",
        "[n0, n1] -> { : n0 >= 3 or n1 < 2 }",
        "[n0, n1] -> { : n0 != n1 and n0 mod 3 = 1 }",
        "[n0, n1] -> { : exists e : n0 = 2e and n1 > e }",
        "[n0, n1] -> { : floor((n0 + 2 * n1)/3) <= n0 and n1 < max(n0, 4) }",
        "[n0, n1] -> { : exists e, f : n0 = 2e + 3f and 0 <= e < n1 and f >= 0 }",
        "[n0, n1] -> { : 1 = 0 }",
        "{ : }",
    ],
)
def test_checks_are_evaluated_as_isl_would(condition):
    whole = isl.Set(condition)
    for n0 in range(-3, 9):
        for n1 in range(-3, 9):
            point = whole.intersect(isl.Set(f"[n0, n1] -> {{ : n0 = {n0} and n1 = {n1} }}"))
            assert condition_holds(condition, {"n0": n0, "n1": n1}) == (not point.is_empty()), (n0, n1)


def test_big_numbers_are_exact():
    assert evaluate(variable("n0") * 2**70 + 1, {"n0": 3}) == 3 * 2**70 + 1
    assert condition_holds("[n0] -> { : n0 <= 4611686018427387904 }", {"n0": 2**62})
    assert not condition_holds("[n0] -> { : n0 <= 4611686018427387904 }", {"n0": 2**62 + 1})
    assert isinstance(variable("n0"), Affine)
