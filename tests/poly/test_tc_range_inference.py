"""The range-inference cases of Tensor Comprehensions (test/test_inference.cc): the exact set, or the explained error.

Each row: the case's name, the statement in the notation, the types, the sizes, and what comes out. A set is
(extents of the outputs, domains of the statements, checks at the call); an error is (code, a part of its message, what
stands under the caret). `TC` says what Tensor Comprehensions itself answers, where that is something else.
"""

from __future__ import annotations

import islpy as isl
import pytest

from polyker.einsum_frontend import parse
from polyker.errors import PolykerError
from polyker.ir.dtypes import f32, i32
from polyker.ir.typed_printing import relabel
from polyker.poly.binding.bind import bind, infer

SETS = [
    ("Copy1D", "O[i] = I[i]", {"I": f32["I0"]}, {}, ["I0"], ["[I0] -> { [i] : 0 <= i < I0 }"], None),
    (
        "Transpose2D", "O[i,j] = I[j,i]", {"I": f32["I0", "I1"]}, {}, ["I1", "I0"],
        ["[I0, I1] -> { [i, j] : 0 <= i < I1 and 0 <= j < I0 }"], None,
    ),
    (
        "Transpose4D", "O[i,j,l,k] = I[j,i,k,l]", {"I": f32["I0", "I1", "I2", "I3"]}, {}, ["I1", "I0", "I3", "I2"],
        ["[I0, I1, I2, I3] -> { [i, j, l, k] : 0 <= i < I1 and 0 <= j < I0 and 0 <= l < I3 and 0 <= k < I2 }"], None,
    ),
    (
        "Scale1D", "O[i] = I[123*i]", {"I": f32["I0"]}, {}, ["(I0 - 1)//123 + 1"],
        ["[I0] -> { [i] : i >= 0 and 123*i < I0 }"], None,
    ),
    (
        "Conv", "T[n,m,h,w] += I[n,c,h+kh,w+kw] * W1[m,c,kh,kw]",
        {"I": f32["N", "C", "H", "W"], "W1": f32["M", "C", "KH", "KW"]}, {},
        ["N", "M", "maximum(0, H - KH + 1)", "maximum(0, W - KW + 1)"],
        ["[N, C, H, W, M, KH, KW] -> { [n, m, h, w, c, kh, kw] : 0 <= n < N and 0 <= m < M and 0 <= c < C and "
         "0 <= kh < KH and 0 <= kw < KW and 0 <= h <= H - KH and 0 <= w <= W - KW }"],
        "[KH, KW] -> { : KH >= 1 and KW >= 1 }",
    ),
    (
        "WeirdConv", "O[b,op,h,w] += X[b,ip,2*h+3*w+kh,2*w+kw] * K[op,ip,kh,kw]",
        {"X": f32[2, 3, 40, 11], "K": f32[4, 3, 3, 3]}, {}, [2, 4, 13, 5],
        ["{ [b, op, h, w, ip, kh, kw] : 0 <= b < 2 and 0 <= op < 4 and 0 <= h < 13 and 0 <= w < 5 and "
         "0 <= ip < 3 and 0 <= kh < 3 and 0 <= kw < 3 }"], None,
    ),
    (
        "TCA", "O[i] += I[j,i+j,k]", {"I": f32["I0", "I1", "I2"]}, {}, ["maximum(0, -I0 + I1 + 1)"],
        ["[I0, I1, I2] -> { [i, j, k] : 0 <= i <= I1 - I0 and 0 <= j < I0 and 0 <= k < I2 }"],
        "[I0] -> { : I0 >= 1 }",
    ),
    (
        "TCC", "O[i] += I[i,i+j,j]", {"I": f32["I0", "I1", "I2"]}, {}, ["I0"],
        ["[I0, I2] -> { [i, j] : 0 <= i < I0 and 0 <= j < I2 }"],
        "[I0, I1, I2] -> { : I0 = 0 or I2 = 0 or I0 + I2 - 1 <= I1 }",
    ),
    (
        "TCD", "O[i] += I[i,j,i,k,2*i+j]", {"I": f32["I0", "I1", "I2", "I3", "I4"]}, {}, ["I0"],
        ["[I0, I1, I3] -> { [i, j, k] : 0 <= i < I0 and 0 <= j < I1 and 0 <= k < I3 }"],
        "[I0, I1, I2, I3, I4] -> { : I2 = I0 and (I0 = 0 or I1 = 0 or I3 = 0 or 2*I0 + I1 - 2 <= I4) }",
    ),
    (
        "TCE", "O[i] += I[j,j+1,i,i+3,2*i+j]", {"I": f32["I0", "I1", "I2", "I3", "I4"]}, {},
        ["maximum(0, minimum(I3 - 3, I2))"],
        ["[I0, I1, I2, I3] -> { [i, j] : 0 <= i < I2 and i < I3 - 3 and 0 <= j < I0 and j < I1 - 1 }"],
        "[I0, I1, I2, I3, I4] -> { : I0 = 0 or I1 <= 1 or I2 = 0 or I3 <= 3 or "
        "2*I2 + I0 - 2 <= I4 or 2*I3 - 6 + I0 - 2 <= I4 or 2*I2 + I1 - 3 <= I4 or 2*I3 - 6 + I1 - 3 <= I4 }",
    ),
    (
        "TCF", "O2[j,k,l] = B[j,k,l] + sum[i](A[i,j,k]); O3[k,l,m] = C[k,l,m] + sum[j](O2[j,k,l])",
        {"B": f32["B0", "B1", "B2"], "A": f32["A0", "A1", "A2"], "C": f32["C0", "C1", "C2"]}, {}, ["B1", "B2", "C2"],
        ["[B0, B1, B2] -> { [j, k, l] : 0 <= j < B0 and 0 <= k < B1 and 0 <= l < B2 }",
         "[C0, C1, C2] -> { [k, l, m] : 0 <= k < C0 and 0 <= l < C1 and 0 <= m < C2 }"],
        "[A1, A2, B0, B1, B2, C0, C1] -> { : A1 = B0 and A2 = B1 and C0 = B1 and C1 = B2 }",
    ),
    (
        "UnambiguousRotate", "O[i,j] = I[10+i-j,i+j] for i in 0:10", {"I": f32["N", "M"]}, {},
        [10, "minimum(11, M - 9)"],
        ["[N, M] -> { [i, j] : 0 <= i < 10 and 0 <= j <= 10 and 20 - N <= j <= M - 10 }"],
        "[N, M] -> { : N >= 20 and M >= 10 }",
    ),
    (
        "RuntimeCheckOnDerivedSize", "O[i,j] = I[i,i+j,j]", {"I": f32["N", "NM", "M"]}, {}, ["N", "M"],
        ["[N, M] -> { [i, j] : 0 <= i < N and 0 <= j < M }"], "[N, M, NM] -> { : N = 0 or M = 0 or N + M < NM + 2 }",
    ),
    (
        "StaticallyProvable", "O[i,j] = I[i,i+j,j]", {"I": f32[10, 19, 10]}, {}, [10, 10],
        ["{ [i, j] : 0 <= i < 10 and 0 <= j < 10 }"], None,
    ),
    ("EmptySetWhere", "O[i,j] = 3 for i in 8:4, j in 3:20", {}, {}, [0, 20], ["{ [i, j] : 1 = 0 }"], None),
]  # fmt: skip

ERRORS = [
    (
        "Transpose5D", "O[i,j,k,l,m] = I[j,i,k,i,l]", {"I": f32["I0", "I1", "I2", "I3", "I4"]}, {},
        "PK301", "index `m` has no range: nothing that is read bounds it", "m",
    ),
    ("Shift1D", "O[i] = I[i-1]", {"I": f32["I0"]}, {}, "PK304", "no statement writes the elements O[0]", None),
    ("Shift1D2", "O[i] = I[i+5]", {"I": f32["I0"]}, {}, "PK307", "the subscript `i` of `O` reaches below 0", "i"),
    (
        "ConvGrad", "dI[n,c,h,w] += dO[n,m,h-kh,w-kw] * W1[m,c,kh,kw]", {"dO": f32[2, 3, 8, 9], "W1": f32[3, 4, 3, 3]},
        {}, "PK304", "dI[0, 0, 0, 0], dI[0, 0, 0, 1], dI[0, 0, 0, 2] and 237 more of output `dI`", None,
    ),
    (
        "PaddedConv", "P[n,c,h,w] = I[n,c,h-5,w-7]; T[n,m,h,w] += P[n,c,2*h+kh,3*w+kw] * W1[m,c,kh,kw]",
        {"I": f32["N", "C", "H", "W"], "W1": f32["M", "C", "KH", "KW"]}, {},
        "PK305", "reads the elements P[0, 0, 0, 0] and others, which nothing has written yet", "P[n,c,2*h+kh,3*w+kw]",
    ),
    (
        "TCB", "O[i] += A[i+j,i+j,i+j]", {"A": f32["I0", "I1", "I2"]}, {},
        "PK301", "index `i` has no range: `A[i+j,i+j,i+j]` has `j` open too", "i+j",
    ),
    (
        "PartialCopy", "O[i,j] = I[i,j] for i in 3:N-1", {"I": f32["N", "M"]}, {"N": "N"},
        "PK304", "the elements O[i, j] with 0 <= i <= 2 and 0 <= j < M of output `O`", None,
    ),
    (
        "AmbiguousRotate", "O[i,j] = I[10+i-j,i+j]", {"I": f32["N", "M"]}, {},
        "PK301", "index `i` has no range: `I[10+i-j,i+j]` has `j` open too", "10+i-j",
    ),
    ("PartialAssignWithoutWhere", "O[i,j] = 3", {}, {}, "PK301", "index `i` has no range", "i"),
    (
        "PartialAssignWithWhere", "O[i,j] = 3 for i in 4:8, j in 3:20", {}, {},
        "PK304", "the elements O[0, 0], O[0, 1], O[0, 2] and 89 more of output `O`", None,
    ),
    (
        "IllegalIndirectWhere", "O[i,j] = 3 for i in 0:size[j], j in 0:size[i]", {"size": i32["N"]}, {},
        "PK128", "an element of `size` cannot stand in a bound", "size[j]",
    ),
]  # fmt: skip


OFFSET = "a tensor that starts at the least subscript, where polyker's start at 0 and every element needs a value"
AMBIGUOUS = "an error: both indices stand alone, and their sum is checked at the call here"
TC = {
    "Shift1D": OFFSET, "Shift1D2": OFFSET, "ConvGrad": OFFSET, "PaddedConv": OFFSET, "PartialCopy": OFFSET,
    "PartialAssignWithWhere": OFFSET, "UnambiguousRotate": OFFSET,
    "TCC": AMBIGUOUS, "TCD": AMBIGUOUS, "TCE": AMBIGUOUS, "RuntimeCheckOnDerivedSize": AMBIGUOUS,
    "TCF": "the least of the extents, where bare subscripts have to agree here",
    "EmptySetWhere": "a negative extent",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "types", "sizes", "extents", "domains", "check"), SETS, ids=lambda v: str(v)[:24]
)
def test_the_range_is_exactly_this_set(name, text, types, sizes, extents, domains, check):
    typed = bind(parse(text), types, sizes)
    labels = dict(typed.sizes) | dict(typed.labels)
    shape = [d for t in infer(parse(text), types, sizes).values() for d in t.shape]
    assert shape == extents
    context = isl.Set(relabel(typed.context, labels))
    for statement, expected in zip(typed.statements(), domains, strict=True):
        found = isl.Set(relabel(statement.domain, labels)).reset_tuple_id().intersect_params(context)
        wanted = isl.Set(expected).intersect_params(context)
        assert found.is_equal(wanted), (found, wanted)
    demanded = isl.Set("{ : }")
    for c in typed.checks:
        demanded = demanded.intersect(isl.Set(relabel(c.condition, labels)))
    positive = isl.Set(f"[{', '.join(labels[n] for n, _ in typed.sizes)}] -> {{ : "
                       f"{' and '.join(f'{label} >= 0' for _, label in typed.sizes) or '1 = 1'} }}")  # fmt: skip
    assert demanded.intersect(positive).is_equal(isl.Set(check or "{ : }").intersect(positive))


@pytest.mark.parametrize(
    ("name", "text", "types", "sizes", "code", "message", "under"), ERRORS, ids=lambda v: str(v)[:24]
)
def test_the_error_says_why(name, text, types, sizes, code, message, under):
    with pytest.raises(PolykerError) as caught:
        bind(parse(text), types, sizes)
    assert caught.value.code == code
    assert message in caught.value.message
    assert caught.value.span is not None
    if under is not None:
        span = caught.value.span
        assert span.source.text[span.start : span.end] == under
    assert caught.value.hint


def test_all_cases_are_here():
    names = [row[0] for row in (*SETS, *ERRORS)]
    assert len(names) == len(set(names)) == 26
    assert len(SETS) == 15
    assert set(TC) < set(names)
