"""One test for each code PK1xx: the class, the message, the text under the caret, the hint."""

import math
import re

import numpy as np
import pytest

import polyker.errors.syntax
from polyker.einsum_frontend import builder, parse
from polyker.einsum_frontend.builder import indices, sizes, tensors
from polyker.einsum_frontend.documents.read import read_program
from polyker.errors import CATALOGUE, ParseError, PolykerError, ShapeError

A, B, C = tensors("A B C")
i, j, k = indices("i j k")
(N,) = sizes("N")

_CIRCLE = "for t in 1:N:\n  A[t] = B[t-1] + X[t]\n  B[t] = A[t]"

# code, text, what stands under the caret (None where there is no place), part of the message, part of the hint
TEXTS = [
    ("PK101", "x" * 524289, None, "524289 characters, the limit is 524288", ""),
    ("PK152", f"C = 1{' ' * 65536}+ 1", "C", "more than 65536 characters", ""),
    ("PK102", "C[i] = \0A[i]", "\0", "U+0000", "delete"),
    ("PK103", "C[i] = \u0410[i]", "\u0410", "U+0410 (CYRILLIC CAPITAL LETTER A)", "ASCII"),
    ("PK104", f"C[i] = {'a' * 65}[i]", "a" * 65, "65 characters, the limit is 64", ""),
    ("PK105", f"C = {'(' * 65}x{')' * 65}", "(", "nested more than 64 deep", "split"),
    ("PK106", "C = " + "x * y / " * 100 + "z", ..., "more than 150 operators deep", "split"),
    ("PK107", "C = " + "(x < " * 30 + "y" + " < z)" * 30, ..., "more than 100000 parts", "counts b twice"),
    ("PK108", "C = 1\n" * 8193, "=", "more than 8192 statements", "split"),
    ("PK109", "\n".join(f"C += x{n}" for n in range(4097)), None, "4097 inputs, the limit is 4096", ""),
    ("PK110", f"C += A[{','.join(f'q{n}' for n in range(33))}]", ..., "33 indices, the limit is 32", ""),
    ("PK111", f"C = A[{'i,' * 128}i]", ",", "more than 128 items", ""),
    ("PK112", "C[i] = A[2i]", "2i", "`2i` is not a number", "2 * i"),
    ("PK113", "C = 18446744073709551616", "18446744073709551616", "too large", "64 bits"),
    ("PK114", "C[i] = A[2147483649*i]", "2147483649", "coefficient 2147483649", ""),
    ("PK115", "C[i] = !A[i]", "!", "`!` is not in the notation", "`C[i] = not A[i]`"),
    ("PK116", "C[i] = A[i", "[", "`[` is never closed", "add a `]`"),
    ("PK117", "C[i] = A[i)", ")", "`]` would close the `[`", ""),
    ("PK118", "C = 1\n  D = 2", "D", "deeper than that of the line above", "declaration or a loop"),
    ("PK119", "  # nothing", None, "no statement", "C[i,j] += A[i,k] * B[k,j]"),
    ("PK120", "C[i] = A[i] +", ..., "found the end of the line; expected an expression", ""),
    ("PK121", "sum[i] = A[i]", "sum", "`sum` is a reduction", "another name"),
    ("PK122", "C[i] = epx(A[i])", "epx", "no function `epx`", "did you mean `exp`?"),
    ("PK122", "C[i] = float32(A[i])", "float32", "no function `float32`", "`C[i] = f32(A[i])`"),
    ("PK122", "C[i] = fmax(A[i], B[i])", "fmax", "no function `fmax`", "write `C[i] = maximum(A[i], B[i])`"),
    ("PK120", "f(A: float64[N]) -> C:\n C[i] = A[i]", ":", "found `:`", "write `f(A: f64[N]) -> C:"),
    ("PK120", "T: bfloat16[N]; T[i] = A[i]", ":", "found `:`", "write `T: bf16[N]`"),
    ("PK123", "C[i] = where(A[i], 1)", "where(A[i], 1)", "`where` takes 3 argument(s), found 2", ""),
    ("PK124", "C[i] = max(A[i], 2)", "max(A[i], 2)", "`max` is a reduction", "write `C[i] = maximum(A[i], 2)`"),
    ("PK125", "C[i] = A[i-1; pad=egde]", "egde", "`egde` is not a way to pad", "did you mean `edge`?"),
    ("PK126", "C[..., ...] = A[...]", "...", "twice in one subscript", "once"),
    ("PK127", "C[i] += A[..., i]", "...", "on the right only", "C[...]"),
    ("PK128", "O[i] += X[s*i+r] * W[r]", "s*i", "a product of two indices", "pk.op(text, s=2)"),
    ("PK129", "C[i] = A[i] where i", "i", "compares indices and sizes", "where j <= i"),
    ("PK151", "C[i] = A[i] where A[i] > 0", "A[i] > 0", "which elements of `C`", "`C[i] = where(A[i] > 0, A[i], 0)`"),
    (
        "PK130",
        "C[i,j] = A[i,k] * B[k,j]",
        "k",
        "index `k` is only on the right of `=`",
        "`C[i,j] += ...` to sum over k",
    ),
    ("PK131", "C[i] = A[i] + A[i,i]", "A[i,i]", "`A` has 2 subscript(s) here and 1 elsewhere", ""),
    ("PK132", "C[i] = sum[k](A[i,k]) where k <= i", "k", "index `k` has no value here", "sum[k](... where k ...)"),
    ("PK133", "C[i] = sum[i](A[i])", "i", "index `i` of this reduction is already", "another name"),
    ("PK134", "f(n, A) -> C:\n C[i] = A[i] for n in 0:3, i in 0:n", "n in 0:3", "`n` is a size", "rename"),
    ("PK156", "C[i] = A[i] * i[i]", "i[i]", "`i` is an index", "`i` alone"),
    ("PK156", "C[i] = sum[k](A[k[i]])", "k[i]", "`k` is an index", "another name"),
    ("PK135", "s = 1; C[i] = A[s+i]", "s", "`s` is a tensor", "`s[]`"),
    ("PK136", "C[i] = 1 for i in 0:3, i in 0:4", "i in 0:4", "index `i` is given twice", "once"),
    ("PK138", "C[i; pad=0] = B[i]", "C[i; pad=0]", "`pad` stands on the left", ""),
    ("PK139", "f(A) -> C, D:\n C[i] = A[i]", "D", "output `D` is never defined", "D on its left"),
    ("PK140", "f(A, B) -> C:\n C[i] = A[i]", "B", "parameter `B` is never used", ""),
    ("PK141", "f(A) -> C:\n A[i] = 1 for i in 0:3\n C[i] = A[i]", "A[i]", "`A` is assigned but is no output", "`->`"),
    ("PK142", "C[i] = A[i]; A[i] = B[i]", "A[i]", "`A` is read before any statement defines it", "f(A) -> A:"),
    (
        "PK143",
        "f(alpha, A) -> C:\n C[i] = alhpa * alpha * A[i]",
        "alhpa",
        "`alhpa` is neither",
        "did you mean `alpha`?",
    ),
    ("PK144", _CIRCLE, None, "every tensor is read by another statement", "declare"),
    ("PK145", "f(A: f32[N], B) -> N:\n N[i] = A[i] + B[i]", ..., "`N` is a size, not a tensor", "rename"),
    ("PK147", "C[i,j] = 1 for i in 0:j, j in 0:i", "i in 0:j", "index `i` depends on itself", ""),
    ("PK148", "C[i] = argmax[k, l](A[i,k,l])", "argmax[k, l](A[i,k,l])", "one index, found 2", "argmax[k]"),
]
SHAPE = {"PK127", "PK130", "PK131", "PK132", "PK147"}

BUILT = [
    ("PK100", lambda: parse(b"C = 1"), "text, not bytes"),
    ("PK146", lambda: tensors("A 2b"), "2b is not a name"),
    ("PK149", lambda: 0 <= i < 3, "no truth value"),
    ("PK153", lambda: np.matmul(A, B), "`np.matmul`"),
    ("PK153", lambda: np.add.reduce(A[i]), "`np.add` with reduce"),
    ("PK153", lambda: np.exp(A[i], where=True), "`np.exp` with where="),
    ("PK153", lambda: np.mean(A[i]), "`np.mean` makes no expression"),
    ("PK154", lambda: math.exp(A[i]), "no value as a float"),
    ("PK154", lambda: int(i), "no value as an int"),
    ("PK154", lambda: complex(A[i]), "no value as a complex"),
    ("PK154", lambda: np.asarray(A[i]), "no value as an array"),
    ("PK155", lambda: A @ B, "`@` has no meaning"),
    ("PK155", lambda: A[i][j], "`X[i][j]` has no meaning"),
    ("PK155", lambda: pow(A[i], 2, 3), "`pow(a, b, m)` has no meaning"),
    ("PK155", lambda: round(A[i], 2), "`round(x, digits)` has no meaning"),
    ("PK150", lambda: A["i"], "'i' is not an expression"),
    ("PK170", lambda: read_program({}), "this is no program: the format is None"),
]


def raised(make):
    with pytest.raises(PolykerError) as info:
        make()
    return info.value


@pytest.mark.parametrize(("code", "text", "under", "message", "hint"), TEXTS, ids=[t[0] for t in TEXTS])
def test_a_text_with_the_error_is_refused_at_its_place(code, text, under, message, hint):
    error = raised(lambda: parse(text))
    assert error.code == code, error
    assert type(error) is (ShapeError if code in SHAPE else ParseError)
    assert message in error.message
    assert hint in (error.hint or "")
    assert not re.search(r"\b(LPAR|RPAR|LSQB|RSQB|NAME|NEWLINE|INDENT|DEDENT)\b", str(error))
    if under is None:
        assert error.span is None
    elif under is not ...:
        assert text[error.span.start : error.span.end] == under
        assert "^" * min(len(under), 100) in str(error)


@pytest.mark.parametrize(("code", "make", "message"), BUILT, ids=[b[0] for b in BUILT])
def test_a_built_program_with_the_error_is_refused(code, make, message):
    error = raised(make)
    assert error.code == code, error
    assert type(error) is ParseError
    assert message in error.message


def test_every_code_of_the_catalogue_has_its_test():
    codes = {v for v in vars(polyker.errors.syntax).values() if isinstance(v, str) and v.startswith("PK1")}
    assert codes <= CATALOGUE.keys()
    assert {t[0] for t in TEXTS} | {b[0] for b in BUILT} == codes


def test_the_error_of_the_notation_reads_as_it_says():
    error = raised(lambda: parse("C[i,j] = A[i,k] * B[k,j]"))
    assert str(error).splitlines() == [
        "index `k` is only on the right of `=`, so it has no value to assign",
        "  C[i,j] = A[i,k] * B[k,j]",
        "               ^",
        "hint: write `C[i,j] += ...` to sum over k, or sum[k](...)",
        "[PK130]",
    ]


UNEXPECTED = [
    ("C[i] = 2 A[i]", "found the name `A`", "write a product with `*`"),
    ("C[i] = A[i] fro i in 0:3", "expected an operator, `for`, `where`", "did you mean `for`?"),
    ("C[i] = A[i] wher i < 3", "found the name `wher`", "did you mean `where`?"),
    ("C[i] = A[i] for i im 0:3", "expected `in`", "did you mean `in`?"),
    ("C[i] = A[i] if i", "found the name `if`", "where(c, a, b)"),
    ("C[i] -= A[i]", "found `-`", "C[i] = C[i] - A[i]"),
    ("C[i] == A[i]", "found `==`", "write `C[i] = A[i]`"),
    ("C[i] = A[i = 2]", "found `=`", "equality is written `==`"),
    ("C[i] = A[i] where i < 3 for i in 0:3", "found `for`", "`for` stands before `where`"),
    ("C[i] = A[i; pda=0]", "found `pda`", "did you mean `pad`?"),
    ("f(A) -> B:\nB[i] = A[i]", "expected an indented block", None),
    ("f(A) -> B:", "found the end of the text", None),
    ("C[i,] = A[i]", "expected an expression or `...`", None),
    ("C", "expected `=` or a reduction such as `+=`", None),
]


@pytest.mark.parametrize(("text", "message", "hint"), UNEXPECTED)
def test_what_was_found_and_what_is_accepted_is_said_in_the_words_of_the_notation(text, message, hint):
    error = raised(lambda: parse(text))
    assert error.code == "PK120", error
    assert message in str(error)
    assert hint is None or hint in error.hint


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("i8[i] = A[i]", "i8"),
        ("C[for] = 3", "for"),
        ("C[i] = exp[i]", "exp"),
        ("C[i] = f32 + 2", "f32"),
        ("for = 3", "for"),
        ("pi = 3", "pi"),
        ("C = pi[2]", "pi"),
        ("f(A, max) -> C:\n C[i] = A[i]", "max"),
        ("f(A) -> where:\n where[i] = A[i]", "where"),
        ("not(A) -> C:\n C[i] = A[i]", "not"),
        ("C[i] = A[i] for in in 0:3", "in"),
        ("C[i] = sum[abs](A[i,abs])", "abs"),
        ("for exp in 0:3:\n  C[i] = A[i]", "exp"),
    ],
)
def test_a_reserved_word_as_a_name_is_named(text, name):
    error = raised(lambda: parse(text))
    assert error.code == "PK121", error
    assert f"`{name}` is a" in error.message


@pytest.mark.parametrize("name", ["for", "f32", "max", "exp", "nan", "where"])
@pytest.mark.parametrize("make", [indices, sizes, tensors])
def test_the_builder_refuses_reserved_words(make, name):
    assert raised(lambda: make(name)).code == "PK121"


@pytest.mark.parametrize(
    "name", ["", "a-b", 'x"; system("rm")', "a\nb", "\u0430", "a" * 65, "0a", "\0", "a.b", "/*", 3, None]
)
def test_the_builder_refuses_hostile_names(name):
    for make in (builder.Index, builder.Size, builder.Tensor):
        assert raised(lambda: make(name)).code in ("PK102", "PK103", "PK104", "PK146")
    if isinstance(name, str):
        assert raised(lambda: C[i].set(A[i]).for_(**{name: (0, 3)})).code in ("PK102", "PK103", "PK104", "PK146")
    assert raised(lambda: builder.declare(name, [A], [C], C[i].set(A[i]))).code.startswith("PK1")


def test_messages_hold_no_control_characters():
    error = raised(lambda: parse("C[i] = A[\x1b[31m]"))
    assert "\x1b" not in str(error)
