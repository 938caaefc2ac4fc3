"""Lines, blocks, comments, numbers."""

import pytest

from polyker.einsum_frontend import parse
from polyker.errors import ParseError
from polyker.ir.expr import Literal


def same(*texts):
    first, *rest = map(parse, texts)
    assert all(p == first for p in rest)
    return first


def test_statements_stand_on_lines_or_between_semicolons():
    same(
        "B[i] = A[i]; C[i] = B[i]",
        "B[i] = A[i]\nC[i] = B[i]",
        "B[i] = A[i];\nC[i] = B[i];",
        "\n\n  B[i] = A[i]\n\n  C[i] = B[i]",
    )


def test_newlines_are_blank_inside_brackets():
    same("C[i,j] += (A[i,k] * B[k,j])", "C[i,\n j] += (A[i,k]\n* # a comment\nB[k,j])")


def test_comments_and_blanks_say_nothing():
    same("C[i]=A[i]", "# first\nC [ i ] =\tA[i]  # last ) ]", "C[i] = A[i] # é — ≤")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_break_ends_a_line(end):
    assert parse(end.join(["B[i] = A[i]", "", "C[i] = B[i]", ""])) == parse("B[i] = A[i]; C[i] = B[i]")


def test_blocks_nest_by_indentation():
    program = same(
        "f(A, n) -> A:\n  for t in 0:n:\n    for u in 0:t:\n      A[u] = A[u] + t\n    A[t] = u_0\n    u_0 += 1",
        "  f(A, n) -> A:\n\n     for t in 0:n: \n # odd\n          for u in 0:t:\n\n           A[u] = A[u] + t\n"
        "          A[t] = u_0; u_0 += 1\n",
        "f(A, n) -> A:\n\tfor t in 0:n:\n\t\tfor u in 0:t: A[u] = A[u] + t\n\t\tA[t] = u_0\n\t\tu_0 += 1",
    )
    (loop,) = program.body
    assert [type(n).__name__ for n in loop.body] == ["Loop", "Statement", "Statement"]


@pytest.mark.parametrize(
    "text",
    [
        "C = 1\n D = 2",
        "for t in 0:3:\n    C = t\n  D = 2",
        "for t in 0:3:\n  C = t\n\tD = 2",
        "f(A) -> C:\n  C[i] = A[i]\nD = 1",
        "for t in 0:3:\n  T: f32[3]",
        "C[i] =\n  A[i]",
    ],
)
def test_indentation_that_fits_no_block_is_refused(text):
    with pytest.raises(ParseError):
        parse(text)


def test_a_reduction_is_told_from_a_name_that_ends_alike():
    program = parse("climax = A; B[i] max= climax * X[i]; C[i]min=X[i]")
    assert [s.op for s in program.body] == ["set", "max", "min"]
    assert program.outputs == ("B", "C")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("007", 7), ("1_000", 1000), ("18446744073709551615", 2**64 - 1), ("2.5", 2.5), (".5", 0.5), ("5.", 5.0),
        ("1e3", 1000.0), ("1E-3", 1e-3), ("1e400", None), ("2j", 2j), ("1.5e1j", 15j), ("inf", float("inf")),
        ("1__0", None), ("0x10", None), ("1e", None), ("pi", 3.141592653589793), ("1.0.0", None), ("_1", ...),
    ],
)  # fmt: skip
def test_numbers(text, value):
    if value is None:
        with pytest.raises(ParseError):
            parse(f"C = {text}")
        return
    (statement,) = parse(f"C = {text}").body
    if value is not ...:
        assert statement.expr == Literal(value)
        assert type(statement.expr.value) is type(value)


NAMES = (
    "int float double struct template namespace register asm auto main printf memset malloc exists mod rat true "
    "infty implies alloca define i1 ptr label global void undef poison half x86_fp80 lambda class def None import "
    "edge wrap reflect pad _ __ __global__ threadIdx restrict floord nullptr and_ S0 t0 n0 i0 steps if else return"
).split()


@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_keywords_elsewhere_are_free(name):
    other = "x" if name != "x" else "y"
    assert parse(f"{name}[q] += A[q,k] * B[k]").outputs == (name,)
    assert parse(f"C[{name}] += A[{name},{other}] * B[{other}]").inputs == ("A", "B")
    assert parse(f"C[q] = {name} * A[q]  for q in 0:N").inputs == (name, "A")
    assert parse(f"C[q] = A[q]  for q in 0:{name}").sizes == (name,)
    assert parse(f"{name}(A) -> C:\n  C[q] = A[q]").name == name
    assert parse(f"C[q] = sum[{name}](A[q,{name}])").inputs == ("A",)
    assert parse(f"C[q] = A[q-1; pad={name if name in ('edge', 'wrap', 'reflect') else 0}]").inputs == ("A",)
