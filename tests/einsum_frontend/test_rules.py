"""The rules of statements: each is tested by what keeps it and by what breaks it."""

import warnings

import pytest

from polyker.einsum_frontend import parse
from polyker.errors import PolykerError
from polyker.errors.syntax import ReductionWarning
from polyker.ir.expr import Call, IndexExpr, Literal, Pad, Read, SizeExpr


def only(text, **options):
    (statement,) = parse(text, **options).body
    return statement


OPERATORS = {"=": "set", "+=": "add", "*=": "mul", "max=": "max", "min=": "min", "any=": "any", "all=": "all"}


@pytest.mark.parametrize("op", OPERATORS)
def test_with_set_every_index_on_the_right_stands_on_the_left_and_reductions_are_free(op):
    statement = only(f"C[i] {op} A[i]")
    assert statement.op == OPERATORS[op]
    text = f"C[i] {op} A[i,k]"
    if op == "=":
        for bad in (text, "C[i] = A[i] * k for k in 0:3", "C = A[i]", "C[2*i] = A[i,k] for k in 0:1"):
            with pytest.raises(PolykerError, match="PK130"):
                parse(bad)
    else:
        assert only(text).op == OPERATORS[op]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("C[i] = A[i*i]", "PK128"),
        ("C[i] += A[i*j] * B[j]", "PK128"),
        ("C[i] = A[i/2]", "PK128"),
        ("C[i] = A[1.5]", "PK128"),
        ("C[i] = A[2j]", "PK128"),
        ("C[i] = A[exp(i)]", "PK128"),
        ("C[i] = A[i < 3]", "PK128"),
        ("C[i] = A[f32(i)]", "PK128"),
        ("C[i] = A[sum[k](B[k])]", "PK128"),
        ("C[i] = A[i % i]", "PK128"),
        ("C[i] = A[i // 0]", "PK128"),
        ("C[i] = A[i % -2]", "PK128"),
        ("C[i] = A[...+1, i]", "PK120"),
        ("C[i] = 1 for i in 0:size[j]", "PK128"),
        ("C[i] = 1 for i in 0:2.5", "PK128"),
        ("C[i] = A[i] where A[i] < 2", "PK151"),
        ("C[i] = A[i] where i*i < 4", "PK128"),
        ("C[i] = A[i] where i < 2 or i", "PK129"),
        ("C[i] = A[i] where not i", "PK129"),
        ("C[i] = A[i] where 1", "PK129"),
        ("C[i] = sum[k](A[k] where k)", "PK129"),
        ("X: f32[A[0]]\nC[i] = X[i]", "PK128"),
        ("for t in 0:A[0]:\n  C[t] = 1", "PK128"),
        ("C[i] = A[i]; D[i,j] = A[i,j]", "PK131"),
        ("C[i] = A[..., i]", "PK127"),
        ("C[...] = A[..., i, j]; D[i] = A[i]", "PK130"),
        ("C[...] += A[..., i, j]; D[i] = A[i]", "PK131"),
        ("f(A: f32[3]) -> C:\n C[i] = A[i,i]", "PK131"),
        ("C = A; D[i] = A[i]", "PK131"),
        ("C[i] = abs()", "PK123"),
        ("C[i] = maximum(A[i])", "PK123"),
        ("C[i] = f32(A[i], 2)", "PK123"),
        ("C[i] = sum(A[i])", "PK124"),
        ("C[i] = min(A[i], 1)", "PK124"),
        ("C[i] = argmin[k, l](A[k, l])", "PK148"),
    ],
)
def test_what_is_not_in_the_notation_is_refused(text, code):
    with pytest.raises(PolykerError, match=code):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "C[i] = A[2*i + 3 - N//2]  for i in 0:N",
        "C[i] = A[i // 2 % 3]",
        "C[i] = A[(i + 1) * 4 // 3]",
        "C[i] += A[i // N] * B[i % N]  for i in 0:N*N",
        "C[i] = A[B[i] + 1, D[E[2*i]]]",
        "s = X; C[i] = A[s[]] * B[i]",
        "C[i] = A[i] where 0 <= i < N and i != 3 and i % 2 == 0",
        "C[i] += A[i,j] for i in 0:4, j in i:2*i+1",
        "C[i] = sum[k in 0:i+1, l in k:N](A[k,l] where k != l)",
        "C[...] = exp(A[...])",
        "C[..., d] += T[idx[...], d]",
        "C[i, ..., j] += A[i, ..., k] * B[..., k, j]",
    ],
)
def test_affine_subscripts_bounds_conditions_gathers_and_dots_are_taken(text):
    program = parse(text)
    assert parse(str(program)) == program


@pytest.mark.parametrize(
    ("pad", "wanted"),
    [
        ("0", Pad("constant", Literal(0))),
        ("-1.5", Pad("constant", Literal(-1.5))),
        ("-inf", Pad("constant", Literal(float("-inf")))),
        ("+ inf", Pad("constant", Literal(float("inf")))),
        ("-(2)", Pad("constant", Literal(-2))),
        ("pi", Pad("constant", Literal(3.141592653589793))),
        ("1 - 2j", Pad("constant", Literal(1 - 2j))),
        ("edge", Pad("edge")),
        ("wrap", Pad("wrap")),
        ("reflect", Pad("reflect")),
    ],
)
def test_pad_takes_constants_and_modes(pad, wanted):
    statement = only(f"C[i] = A[i-1; pad={pad}] for i in 0:9")
    assert statement.expr.pad == wanted
    assert only(str(parse(f"C[i] = A[i-1; pad={pad}] for i in 0:9"))) == statement


@pytest.mark.parametrize("pad", ["x", "1+1", "A[i]", "exp(1)", "egde", "1j + 2j", "f32(1)"])
def test_pad_takes_nothing_else(pad):
    with pytest.raises(PolykerError, match="PK125"):
        parse(f"C[i] = A[i-1; pad={pad}]")


def test_conditions_joined_by_and_are_taken_apart_and_chains_too():
    statement = only("C[i] = A[i] where 0 <= i < N and (i != 3 and i != 4)")
    i = IndexExpr("i")
    assert statement.conditions == (
        Call("ge", (i, Literal(0))),
        Call("lt", (i, SizeExpr("N"))),
        Call("ne", (i, Literal(3))),
        Call("ne", (i, Literal(4))),
    )


def test_spans_cover_the_text_of_each_node():
    text = "C[i] += (A[i,k] + 1) * exp(B[k])  for k in 0:N"
    program = parse(text)
    statement = only(text)

    def under(node):
        return text[node.span.start : node.span.end]

    assert under(statement) == text
    assert text[statement.target_span.start : statement.target_span.end] == "C[i]"
    assert under(statement.expr) == "(A[i,k] + 1) * exp(B[k])"
    assert [under(a) for a in statement.expr.args] == ["(A[i,k] + 1)", "exp(B[k])"]
    assert under(statement.ranges[0]) == "k in 0:N"
    assert under(statement.ranges[0].hi) == "N"
    assert program.source.text == text


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("O[n] += A[n,k]*x[k] + b[n]", "b[n]"),
        ("O[n] += b[n] - A[n,k]*x[k]", "b[n]"),
        ("O[n] += A[n,k] + x[k]", None),
        ("O[n] += A[n,k] * x[k]", None),
        ("O[n] += A[n] + 1", None),
        ("O[n] max= A[n,k] + b[n]", None),
        ("O[n] = sum[k](A[n,k]) + b[n]", None),
        ("O[n] += sum[k](A[n,k]) + b[n]", None),
        ("for t in 0:3:\n  O[n] += A[n,t] + b[n]", None),
    ],
)
def test_a_term_that_lacks_a_reduced_index_is_warned_of(text, warned):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parse(text)
    assert [w.category for w in caught] == ([ReductionWarning] if warned else [])
    if warned:
        (warning,) = caught
        assert f"^{'^' * (len(warned) - 1)}\n" in str(warning.message)
        assert "`k`" in str(warning.message)
        assert warning.filename == __file__


def test_a_0d_tensor_is_written_with_or_without_brackets():
    assert parse("s += x[i]") == parse("s[] += x[i]")
    assert parse("C[i] = s * x[i]") == parse("C[i] = s[] * x[i]")
    assert only("s = t").expr == Read("t", ())
