"""Random programs: what is printed reads back, and text and builder give the same Program."""

import importlib.util
import warnings
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from polyker.einsum_frontend import builder, parse
from polyker.ir.printing import print_expr

_spec = importlib.util.spec_from_file_location("recipes", Path(__file__).parent / "recipes.py")
recipes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(recipes)


def parsed(text, sizes=()):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse(text, sizes=sizes)


# `repr` tells 1, 1.0 and True apart, and takes nan to equal itself; `==` alone would not.


@given(st.integers(0, 2**32))
@settings(max_examples=72, deadline=None)
def test_a_printed_program_reads_back(seed):
    program = parsed(recipes.to_text(recipes.Maker(seed).program()), recipes.SIZES)
    again = parsed(str(program), program.sizes)
    assert repr(again) == repr(program)
    assert str(again) == str(program)


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_text_and_builder_give_the_same_program(seed):
    recipe = recipes.Maker(seed).program()
    text = parsed(recipes.to_text(recipe), recipes.SIZES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = builder.build(*recipes.built(recipe), sizes=recipes.SIZES)
    assert repr(made) == repr(text)
    assert made == parsed(str(made), made.sizes) or "nan" in str(made)


def test_long_chains_are_one_call_and_read_back():
    for symbol, op in (("+", "add"), ("*", "mul"), ("/", "div"), ("**", "pow"), ("and", "and"), ("-", "add")):
        length = 10_000 if symbol == "+" else 2_000
        program = parse("s = " + f" {symbol} ".join(["x"] * length))
        (statement,) = program.body
        assert statement.expr.op == op
        assert len(statement.expr.args) == length
        assert parse(str(program)) == program


def test_a_chain_built_in_python_is_one_call_too():
    (x, s) = builder.tensors("x s")
    total = x
    for _ in range(2_000):
        total = total + x
    program = builder.build(s.set(total))
    assert program == parse("s = " + " + ".join(["x"] * 2_001))


def test_sizes_given_by_value_are_printed_and_read_back_with_them():
    program = parse("O[i] += X[s*i+r] * W[r]", sizes={"s"})
    assert program.sizes == ("s",)
    assert parse(str(program), sizes=program.sizes) == program


def test_expressions_print_with_the_brackets_that_they_need_alone():
    def shown(text):
        (statement,) = parse(f"C[i] = {text}").body
        return print_expr(statement.expr)

    for text in (
        "a + (b + c)", "a - (b - c)", "a * b / c", "a * (b / c)", "-a ** b", "(-a) ** b", "a ** -b ** c", "(a ** b) ** c",
        "-(a + b)", "- -a", "a * -b", "not (a or b) and c", "a and (b and c)", "(a < b) == c", "where(a < b, -a, b)",
        "f32(a + b)", "sum[k](A[k] where k < 3 and k != i)", "1e-05 + 2.5", "2.0j * a", "a // b % c", "a % (b // c)",
    ):  # fmt: skip
        assert shown(text) == text.replace("- -a", "--a"), text
