"""One test for each code PK3xx: the class, the message with its values, the text under the caret, the hint."""

from __future__ import annotations

import pytest

import polyker.errors.shapes
from polyker.einsum_frontend import parse
from polyker.errors import CATALOGUE, CompileError, PolykerError, ShapeError
from polyker.ir.dtypes import f32, i32, i64
from polyker.ir.expr import Call, IndexExpr, Literal, Read, SizeExpr
from polyker.ir.program import Program, Statement
from polyker.poly import isl
from polyker.poly.binding.bind import bind
from tests.poly.sizes import evaluate_checks

# code, text, types, sizes, part of the message, what stands under the caret (None: no place), part of the hint
ROWS = [
    ("PK301", "O[i] += A[i+j]", {"A": f32[4]}, {}, "index `i` has no range: `A[i+j]` has `j` open too", "i+j",
     "for i in 0:"),
    ("PK301", "O[i] = A[i+1; pad=0]", {"A": f32[4]}, {}, "`A[i+1; pad=0]` is padded", "i+1", "for i in 0:"),
    ("PK301", "O[i] += A[i+r] * K[r]", {"A": f32[4], "K": f32[0]}, {}, "its other indices have no values", "i+r", "for i"),
    ("PK302", "C[i,j] += A[i,k] * B[k,j]", {"A": f32[8, 4], "B": f32[5, 9]}, {},
     "index `k` has 4 values in `A[i,k]` but 5 in `B[k,j]` (A has shape [8, 4], B has shape [5, 9])", "k", "equal"),
    ("PK302", "O[i] = A[i] + B[i]", {"A": f32[4], "B": f32[1]}, {}, "4 values in `A[i]` but 1 in `B[i]`", "i", "write `B[0]`"),
    ("PK303", "O[i] = A[i+1] for i in 0:4", {"A": f32[4]}, {},
     "`A[i+1]` leaves A: its subscript `i+1` has to be in 0:4, and is 4 at i = 3", "i+1", "pad="),
    ("PK303", "O[i] = A[i] * where(i > 0, A[i-1], 0) for i in 0:4", {"A": f32[4]}, {}, "is -1 at i = 0", "i-1", "pad="),
    ("PK324", "O[i] = A[2147483648*i % 4] for i in 0:2147483649", {"A": f32[4]}, {},
     "`2147483648*i % 4` computes numbers of 2^62 or more", "2147483648*i % 4", "smaller range by `for`"),
    ("PK304", "O[i] = A[i] * where(i > 0, A[i-1], 0)", {"A": f32[4]}, {}, "the elements O[0] of", ..., "pad="),
    ("PK304", "O[i] = A[i] for i in 2:5", {"A": f32[5]}, {}, "no statement writes the elements O[0] and O[1]",
     "O[i] = A[i] for i in 2:5", "pad="),
    ("PK304", "O[2*i] += A[i]", {"A": f32[2]}, {}, "the elements O[1] of output `O`", "O[2*i] += A[i]", "pad="),
    ("PK305", "T[i] = A[i] for i in 1:4; O[i] = T[i]", {"A": f32[4]}, {}, "`T[i]` reads the elements T[0]", "T[i]", "earlier"),
    ("PK305", "S[t] = S[t-1] + A[t] for t in 1:4", {"A": f32[4]}, {}, "`S[t-1]` reads the elements S[0]", "S[t-1]", "earlier"),
    ("PK306", "O[i//2] = A[i]", {"A": f32[4]}, {}, "the same element O[0]: i = 0 and i = 1", "O[i//2]", "`+=`"),
    ("PK307", "O[i-1] = A[i]", {"A": f32[4]}, {}, "the subscript `i-1` of `O` reaches below 0", "i-1", "shift"),
    ("PK309", "O[i] = A[i]", {"A": f32[4, 5]}, {}, "`A[i]` has 1 subscripts, but A has 2 dimensions: [4, 5]", "A[i]", ""),
    ("PK310", "f(A: f32[N], B: f32[N]) -> C:\n    C[i] = A[i] + B[i]", {"A": f32[4], "B": f32[5]}, {},
     "size `N` is 4 in dimension 0 of `A` but 5 in dimension 0 of `B`", "N", ""),
    ("PK310", "f(A: f32[N,N]) -> C:\n    C[i] = A[i,i]", {"A": f32[3, 4]}, {},
     "size `N` is 3 in dimension 0 of `A` but 4 in dimension 1 of `A`", ..., ""),
    ("PK323", "f(K: f32[3,3]) -> C:\n    C[i] = K[i,i]", {"K": f32[3, 4]}, {},
     "dimension 1 of `K` is 4, and its declaration says 3", ..., "such as N"),
    ("PK311", "O[i] = A[i] for i in 0:N", {"A": f32[4]}, {}, "pass it by keyword, `N=...`", "N", "f(A: [N]) -> O:"),
    ("PK311", "O[i] = A[i]", {"A": f32[4]}, {"H": 3}, "size `H` is none of the operator's: it has none", None, ""),
    ("PK311", "O[i] = A[i]", {"A": f32[-1]}, {}, "is negative: -1", None, ""),
    ("PK312", "O[i] = A[i]", {"A": f32[2**62]}, {}, "too large", None, ""),
    ("PK312", "O[i,j] = A[i] * B[j]", {"A": f32[2**31], "B": f32[2**31]}, {}, "`O` with shape [2147483648, 2147483648]",
     None, ""),
    ("PK313", "O[i] = argmax[k](A[i,k])", {"A": f32[3, 0]}, {}, "`argmax` runs over nothing", "argmax[k](A[i,k])", ""),
    ("PK315", "f(A: f32[N], idx: i32[N]) -> O:\n    O[idx[i]] += A[i]", {"A": f32[4], "idx": i32[4]}, {},
     "`O` is written through a gather, so its shape has to be declared", ..., ""),
    ("PK317", "O[i] = A[i] + B[i]", {"A": f32[4]}, {}, "no type for `B`; the inputs are A, B", None, ""),
    ("PK317", "O[i] = A[i]", {"A": f32[4], "B": f32[4]}, {}, "`B` is no input; the inputs are A", None, ""),
    ("PK318", "O[i] = A[i; pad=edge] for i in 0:3", {"A": f32[0]}, {},
     "`A[i; pad=edge]` pads with `edge`, but dimension 0 of `A` has no elements", "A[i; pad=edge]", "pad=0"),
]  # fmt: skip

# code, text, types, sizes that stay symbolic, values that fail, part of the message: checks at the call
CHECKS = [
    ("PK302", "C[i] += A[i,k] * x[k]", {"A": f32["M", "K"], "x": f32["L"]}, {}, {"M": 2, "K": 3, "L": 4},
     "index `k` has K values in `A[i,k]` but L in `x[k]` (A has shape [M, K], x has shape [L]) for K = 3, L = 4"),
    ("PK303", "O[i] = A[i] for i in 0:N", {"A": f32["M"]}, {"N": "N"}, {"N": 3, "M": 2}, "in 0:M for M = 2, N = 3"),
    ("PK304", "O[i] = A[i] for i in N:M", {"A": f32["M"]}, {"N": "N", "M": "M"}, {"N": 1, "M": 2}, "no statement writes"),
    ("PK311", "O[i] = A[0] for i in 0:N", {"A": f32[1]}, {"N": "N"}, {"N": -1}, "size `N` is negative"),
    ("PK313", "O[i] = argmax[k](A[i,k])", {"A": f32["M", "K"]}, {}, {"M": 1, "K": 0}, "over nothing for M = 1, K = 0"),
    ("PK314", "O[h] += A[h+r] * K[r]", {"A": f32["N"], "K": f32["R"]}, {}, {"N": 4, "R": 0},
     "index `h` has no range from `A[h+r]`: the other indices of the subscript have no values for R = 0"),
    ("PK318", "O[i] = A[i; pad=wrap] for i in 0:3", {"A": f32["N"]}, {}, {"N": 0}, "has no elements for N = 0"),
    ("PK322", "O[i] += A[i] where i >= 2", {"A": f32["N"]}, {}, {"N": 2},
     "`O` has no elements that a statement writes for N = 2"),
]  # fmt: skip


def error_of(text, types, sizes):
    with pytest.raises(PolykerError) as caught:
        bind(parse(text), types, sizes)
    return caught.value


@pytest.mark.parametrize(("code", "text", "types", "sizes", "message", "under", "hint"), ROWS)
def test_the_error_names_the_place_and_the_values(code, text, types, sizes, message, under, hint):
    error = error_of(text, types, sizes)
    assert error.code == code
    assert isinstance(error, ShapeError)
    assert isinstance(error, ValueError)
    assert message in error.message
    assert hint in (error.hint or "")
    if under is None:
        assert error.span is None
    elif under is not ...:
        assert error.span.source.text[error.span.start : error.span.end] == under


@pytest.mark.parametrize(("code", "text", "types", "sizes", "values", "message"), CHECKS)
def test_what_symbolic_sizes_leave_open_fails_at_the_call(code, text, types, sizes, values, message):
    typed = bind(parse(text), types, sizes)
    with pytest.raises(ShapeError) as caught:
        evaluate_checks(typed, {name: values[label] for name, label in typed.sizes})
    assert caught.value.code == code
    assert message in caught.value.message


def _program(*statements: Statement, inputs=("A",), sizes=()) -> Program:
    return Program(None, False, inputs, (statements[-1].target,), (), inputs, sizes, statements)


def test_a_product_of_indices_is_not_affine():
    product = Call("mul", (IndexExpr("i"), IndexExpr("j")))
    program = _program(Statement("O", (IndexExpr("i"),), "add", Read("A", (product,))))
    with pytest.raises(ShapeError, match="not affine: a product of two variables") as caught:
        bind(program, {"A": f32[4]})
    assert caught.value.code == "PK308"


def test_a_size_times_an_index_is_affine_once_the_size_is_fixed():
    scaled = Call("mul", (SizeExpr("s"), IndexExpr("i")))
    program = _program(Statement("O", (IndexExpr("i"),), "set", Read("A", (scaled,))), sizes=("s",))
    assert bind(program, {"A": f32[7]}, {"s": 3}).tensors[1].shape == (Literal(3, i64),)
    with pytest.raises(ShapeError, match="not affine"):
        bind(program, {"A": f32[7]}, {"s": "s"})


def test_a_number_is_no_condition():
    either = Call("or", (Call("lt", (IndexExpr("i"), Literal(1))), IndexExpr("i")))
    program = _program(Statement("O", (IndexExpr("i"),), "add", Read("A", (IndexExpr("i"),)), conditions=(either,)))
    with pytest.raises(ShapeError) as caught:
        bind(program, {"A": f32[4]})
    assert caught.value.code == "PK316"


def test_a_statement_has_at_most_32_indices():
    names = tuple(IndexExpr(f"i{n}") for n in range(33))
    with pytest.raises(ShapeError, match="33 indices") as caught:
        bind(_program(Statement("O", (), "add", Read("A", names))), {"A": f32[(1,) * 33]})
    assert caught.value.code == "PK320"
    bind(_program(Statement("O", (), "add", Read("A", names[1:]))), {"A": f32[(1,) * 32]})


def test_an_extent_without_a_form_asks_for_a_declaration():
    text = "T[2*i+3*j] += A[i] * A[j] where 2*i + 3*j < N and i + 5*j < M"
    with pytest.raises(ShapeError, match="cannot be told") as caught:
        bind(parse(text), {"A": f32["K"]}, {"N": "N", "M": "M"})
    assert caught.value.code == "PK321"
    assert "T: f32[N]" in (caught.value.hint or "")


def test_a_failure_of_isl_is_a_compile_error_with_its_stage():
    with pytest.raises(CompileError, match="the stage `reading` failed") as caught, isl.isl_job("reading"):
        isl.read_set("{ [i] : i * j < 3 }")
    assert caught.value.code == "PK390"
    assert "/" not in caught.value.message


def test_an_exceeded_quota_is_a_compile_error_and_isl_goes_on():
    dims = ", ".join(f"i{n}" for n in range(8))
    text = f"{{ [{dims}] : " + " and ".join(f"0 <= i{n} < 9 + i{(n + 1) % 8}" for n in range(8)) + " }"
    hard = isl.read_set(text)
    with pytest.raises(CompileError, match="quota of 50") as caught, isl.isl_job("counting", quota=50):
        hard.complement().subtract(hard.lexmin()).coalesce()
    assert caught.value.code == "PK391"
    assert isl.read_set("{ [i] : 0 <= i < 3 }").dim_max_val(0).to_python() == 2


def test_every_code_of_this_catalogue_has_a_test():
    codes = {c for c in CATALOGUE if c.startswith("PK3")}
    here = {row[0] for row in ROWS} | {row[0] for row in CHECKS}
    alone = {"PK308", "PK316", "PK320", "PK321", "PK390", "PK391"}
    assert codes == here | alone
    assert polyker.errors.shapes.NO_RANGE == "PK301"
