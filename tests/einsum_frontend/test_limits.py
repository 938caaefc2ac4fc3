"""Every limit at the limit, one beyond it, and a thousand times beyond it; nothing hostile is slow."""

import subprocess
import sys
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyker.einsum_frontend import builder, names, parse
from polyker.errors import PolykerError

MEGABYTE = 1 << 20


def code_of(text):
    """The code of the error, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parse(text)
        except PolykerError as error:
            return error.code
    return None


def statement_with_indices(count):
    return f"C += A[{','.join(f'q{n}' for n in range(count))}]"


def batches(count):
    """Return so many names in rows of thirty."""
    named = [f"x{m}" for m in range(count)]
    return [named[at : at + 30] for at in range(0, count, 30)]


LIMITS = [
    ("PK101", names.MAX_TEXT_CHARACTERS, lambda n: "C = 1 #" + "x" * (n - 7)),
    ("PK152", names.MAX_STATEMENT_CHARACTERS, lambda n: f"C = 1{' ' * (n - 8)}+ 1"),
    ("PK104", names.MAX_IDENTIFIER_CHARACTERS, lambda n: f"C = {'a' * n}"),
    ("PK105", names.MAX_NESTING, lambda n: f"C = {'(' * n}x{')' * n}"),
    ("PK106", names.TREE_DEPTH - 1, lambda n: f"C = {'-' * n}x"),
    ("PK106", names.TREE_DEPTH - 2, lambda n: f"C[i] = A[i{'//2' * n}] for i in 0:9"),
    ("PK106", names.TREE_DEPTH - 2, lambda n: f"C[i] = A[i]{' % A[i]' * n}"),
    ("PK108", names.MAX_STATEMENTS, lambda n: "C += 1\n" * n),
    ("PK109", names.MAX_OPERANDS, lambda n: "\n".join(f"C += {' + '.join(xs)}" for xs in batches(n))),
    ("PK109", names.MAX_OPERANDS, lambda n: "\n".join(f"C{m} = 1" for m in range(n))),
    ("PK110", names.MAX_INDICES, statement_with_indices),
    ("PK111", names.MAX_ITEMS, lambda n: f"C = A[{','.join('1' * n)}]"),
    ("PK113", 20, lambda n: f"C = {'1' * n}"),
    ("PK114", names.MAX_COEFFICIENT, lambda n: f"C[i] = A[{n}*i + 1]"),
    ("PK114", names.MAX_OFFSET, lambda n: f"C[i] = A[i + {n}]"),
    ("PK114", names.MAX_EXTENT, lambda n: f"C[i] = A[i] for i in 0:{n}"),
]


@pytest.mark.parametrize(("code", "limit", "make"), LIMITS)
def test_a_limit_holds_at_its_value_and_not_beyond(code, limit, make):
    assert code_of(make(limit)) is None
    assert code_of(make(limit + 1)) == code
    far = limit * 1000 if limit <= names.MAX_TEXT_CHARACTERS or limit >= 2**31 else limit + 1
    assert code_of(make(min(far, 2**63))) in (code, "PK101", "PK105", "PK111", "PK152")


HUGE = {
    "text": "C[i] = A[i] + " * (MEGABYTE // 14),
    "brackets": "C = " + "(" * MEGABYTE,
    "indices": statement_with_indices(10**6),
    "digits": "C = " + "9" * MEGABYTE,
    "nul": "\0" * MEGABYTE,
    "name": "a" * MEGABYTE,
    "newlines": "\n" * MEGABYTE,
    "look-alikes": "\u0410" * MEGABYTE,
    "brackets below the limit": "C = " + "(" * 60_000,
    "digits below the limit": "C = " + "9" * 60_000,
    "float below the limit": "C = 0." + "9" * 60_000,
    "exponent below the limit": "C = 1e" + "9" * 60_000,
    "name below the limit": "a" * 60_000,
    "signs below the limit": "C = " + "-" * 60_000 + "x",
    "sign of pad below the limit": "C[i] = A[i; pad=" + "-" * 60_000 + "1]",
    "indices below the limit": statement_with_indices(9_000),
    "statements below the limit": "a=b;" * 60_000,
    "nul below the limit": "C = A" + "\0" * 60_000,
    "look-alikes below the limit": "C = " + "\u0410" * 60_000,
    "comparisons that double": "C = " + "(x < " * 60 + "x < y" + " < y)" * 60,
}


@pytest.mark.parametrize("name", HUGE)
def test_hostile_text_is_refused_at_once(name):
    parse("C[i] = A[i]")
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        assert code_of(HUGE[name]) is not None
        best = min(best, time.process_time() - start)
    assert best < (4.0 if "statements" in name else 0.05)


def test_no_depth_of_tree_within_the_limits_is_too_deep_for_what_walks_it():
    # 64 brackets, each with as many levels as the limit on depth leaves it.
    text = "C = " + "-(" * 64 + "x" + ")" * 64
    program = parse(text)
    assert parse(str(program)) == program
    assert repr(program).count("neg") == 64
    assert hash(program) == hash(parse(text))
    deepest = parse("C = " + "-" * (names.TREE_DEPTH - 1) + "x")
    assert parse(str(deepest)) == deepest


def test_the_builder_has_the_same_limits():
    (x,) = builder.tensors("x")
    deep = x
    for _ in range(5_000):
        deep = -deep
    with pytest.raises(PolykerError, match="PK106"):
        builder.build(builder.Tensor("s").set(deep))
    assert "150" in repr(deep)
    (i,) = builder.indices("i")
    for made in (
        lambda: builder.Tensor("s").set(deep),
        lambda: builder.Tensor("s")[deep].add(x),
        lambda: builder.Tensor("s").add(x).where(x < deep),
        lambda: builder.Tensor("s").add(x).for_(i.in_(0, deep)),
        lambda: builder.loop(i, deep, 3, builder.Tensor("s").add(x)),
    ):
        with pytest.raises(PolykerError, match="PK106"):
            made()
    with pytest.raises(PolykerError, match="PK108"):
        builder.build(*[builder.Tensor("s").add(x)] * (names.MAX_STATEMENTS + 1))
    with pytest.raises(PolykerError, match="PK113"):
        x + 2**64


ALPHABET = ["C", "A", "i", "j", "N", "[", "]", "(", ")", ",", ";", ":", " = ", " += ", "max=", "+", "-", "*", "**", "//",
            "%", "<", "==", "...", " for ", " in ", " where ", " and ", " not ", "sum", "max", "exp", "f32", "0", "2", "1.5",
            "->", "\n", "\n  ", "pad=", "edge", "inf", "#", "é", "\0", "\t", "2j"]  # fmt: skip


@given(st.lists(st.sampled_from(ALPHABET), max_size=30).map("".join) | st.text(max_size=40))
@settings(max_examples=360, deadline=None)
def test_any_text_gives_a_program_that_reads_back_or_an_error_of_ours(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = parse(text)
        except PolykerError as error:
            assert error.code.startswith("PK1")
            return
        assert repr(parse(str(program))) == repr(program)


def test_a_line_is_parsed_within_three_milliseconds_and_the_grammar_is_built_once():
    text = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
    parse(text)
    times = []
    for _ in range(5):
        start = time.process_time()
        parse(text)
        times.append(time.process_time() - start)
    assert min(times) < 0.003


def test_the_parser_generator_is_loaded_at_the_first_text_and_not_before():
    code = (
        "import sys, polyker.einsum_frontend as f; assert 'lark' not in sys.modules\n"
        "f.parse('C[i] = A[i]'); assert 'lark' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
