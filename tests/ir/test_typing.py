"""Types of expressions are numpy's (NEP 50): each operation is compared with what numpy gives for scalars."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyker.einsum_frontend import parse
from polyker.errors import DTypeError
from polyker.ir import dtypes as dt
from polyker.ir.dtypes import DTYPES, DType, bf16, bool_, c64, c128, f16, f32, f64, i8, i16, i32, i64, u8, u64
from polyker.ir.expr import Call, Cast, Literal, Read, Reduce, walk
from polyker.ir.functions import TABLE
from polyker.ir.promotion import ValueType, computed, promote
from polyker.poly.binding.bind import bind, infer

PLAIN = [d for d in DTYPES.values() if d != bf16]
OPERATORS = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide, "//": np.floor_divide, "%": np.remainder,
    "**": np.power, "<": np.less, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip
FUNCTIONS = {
    "abs": np.abs, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "sign": np.sign,
    "real": np.real, "imag": np.imag, "exp2": np.exp2, "log2": np.log2, "log10": np.log10, "cbrt": np.cbrt, "hypot": np.hypot,
    "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "softplus": np.cbrt, "trunc": np.trunc,
    "copysign": np.copysign, "fmod": np.fmod, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "popcount": np.bitwise_count, "erfc": np.cbrt, "erfinv": np.cbrt, "lgamma": np.cbrt, "digamma": np.cbrt,
}  # fmt: skip
PAIRS = [name for name in FUNCTIONS if TABLE[name].arity == 2]
ORDERED_ONLY = ("<", ">=")  # numpy orders complex numbers by parts; the notation does not order them


def result_of(text: str, **types):
    return next(iter(infer(parse(text), types).values())).dtype


@pytest.mark.parametrize("sign", OPERATORS)
def test_operators_give_numpys_types(sign):
    for a, b in itertools.product(PLAIN, PLAIN):
        try:
            wanted = OPERATORS[sign].resolve_dtypes((a.numpy, b.numpy, None))[2]
        except TypeError:
            wanted = None
        if sign in ORDERED_ONLY and (a.is_complex or b.is_complex):
            wanted = None
        if wanted is None:
            with pytest.raises(DTypeError):
                result_of(f"O[i] = A[i] {sign} B[i]", A=a[3], B=b[3])
        else:
            assert result_of(f"O[i] = A[i] {sign} B[i]", A=a[3], B=b[3]) == dt.from_numpy(wanted), (a, sign, b)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in PAIRS])
def test_functions_give_numpys_types(name):
    for a in PLAIN:
        sample = np.ones((), a.numpy)
        try:
            wanted = dt.from_numpy(FUNCTIONS[name](sample).dtype)
        except TypeError:
            wanted = None
        if name == "round" and a.is_integer:
            wanted = a  # np.round, not np.rint
        if wanted is None:
            with pytest.raises(DTypeError):
                result_of(f"O[i] = {name}(A[i])", A=a[3])
        else:
            assert result_of(f"O[i] = {name}(A[i])", A=a[3]) == wanted, (name, a)


@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two_arguments_give_numpys_types(name):
    for a, b in itertools.product(PLAIN, PLAIN):
        try:
            wanted = FUNCTIONS[name].resolve_dtypes((a.numpy, b.numpy, None))[2]
        except TypeError:
            wanted = None
        if wanted is None:
            with pytest.raises(DTypeError):
                result_of(f"O[i] = {name}(A[i], B[i])", A=a[3], B=b[3])
        else:
            assert result_of(f"O[i] = {name}(A[i], B[i])", A=a[3], B=b[3]) == dt.from_numpy(wanted), (name, a, b)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("scalar", [2, 2.5])
def test_functions_of_two_arguments_take_literals_as_weak(name, scalar):
    for a in PLAIN:
        if a.is_complex:
            continue
        wanted = dt.from_numpy(FUNCTIONS[name](np.ones(1, a.numpy), scalar).dtype)
        assert result_of(f"O[i] = {name}(A[i], {scalar})", A=a[3]) == wanted, (name, a)
        assert result_of(f"O[i] = {name}({scalar}, A[i])", A=a[3]) == wanted, (name, a)


def test_clip_has_numpys_types():
    for a, b in itertools.product(PLAIN, PLAIN):
        if a.is_complex or b.is_complex:
            with pytest.raises(DTypeError, match="clip"):
                result_of("O[i] = clip(A[i], B[i], 0)", A=a[3], B=b[3])
        else:
            wanted = np.clip(np.ones(1, a.numpy), np.ones(1, b.numpy), np.ones(1, a.numpy)).dtype
            assert result_of("O[i] = clip(A[i], B[i], A[i])", A=a[3], B=b[3]) == dt.from_numpy(wanted), (a, b)


@pytest.mark.parametrize(
    ("value", "sample"), [("2", 2), ("2.5", 2.5), ("N", 3), ("i", 3), ("(i+N)", 3), ("(i*0.5)", 1.5)]
)
def test_literals_sizes_and_indices_are_weak(value, sample):
    for a in PLAIN:
        wanted = dt.from_numpy(np.result_type(a.numpy, sample))
        program = parse(f"O[i] = A[i] * {value} for i in 0:N")
        assert infer(program, {"A": a[3]}, {"N": 3})["O"].dtype == wanted, (a, value)


def test_a_function_of_a_weak_value_is_weak():
    assert result_of("O[i] = A[i] / sqrt(2)", A=f32[3]) == f32
    assert result_of("O[i] = A[i] / sqrt(2)", A=i32[3]) == f64


def test_a_python_scalar_argument_is_weak():
    weak = dt.TensorType(f64, (), weak=True)
    assert infer(parse("O[i] = A[i] * s"), {"A": f32[3], "s": weak})["O"].dtype == f32
    assert infer(parse("O[i] = A[i] * s"), {"A": f32[3], "s": f64[()]})["O"].dtype == f64


def test_a_python_scalar_takes_the_declared_type():
    text = "f(A: f32[N], s: f16) -> O:\n    O[i] = A[i] * s"
    weak = dt.TensorType(f64, (), weak=True)
    typed = bind(parse(text), {"A": f32[3], "s": weak})
    assert typed.tensor("t1").dtype == f16
    with pytest.raises(DTypeError, match="`s` is declared i32"):
        bind(parse(text.replace("f16", "i32")), {"A": f32[3], "s": weak})


def test_sums_of_literals_are_exact():
    assert result_of("O[i] = A[i] + (9223372036854775807 + 1)", A=u64[3]) == u64
    with pytest.raises(DTypeError, match="9223372036854775808 is out of range for i64"):
        result_of("O[i] = A[i] + (9223372036854775807 + 1)", A=i64[3])


@given(st.sampled_from(list(DTYPES.values())), st.sampled_from(list(DTYPES.values())))
def test_promotion_is_symmetric_and_numpys(a, b):
    found = promote(ValueType(a), ValueType(b))
    assert found == promote(ValueType(b), ValueType(a))
    if bf16 not in (a, b):
        assert found.dtype == dt.from_numpy(np.promote_types(a.numpy, b.numpy))


def test_bf16_promotes_as_ml_dtypes_where_that_has_an_answer():
    for other in PLAIN:
        found = promote(ValueType(bf16), ValueType(other)).dtype
        try:
            wanted = np.promote_types(bf16.numpy, other.numpy)
        except TypeError:
            assert found == (f32 if other in (f16, i16, dt.u16) else f64), other
        else:
            assert found.numpy == wanted, other


def expr_of(text: str, **types):
    return next(bind(parse(text), types).statements())


@pytest.mark.parametrize("half", [f16, bf16])
def test_half_types_are_stored_and_computed_in_f32(half):
    statement = expr_of("O[i] = A[i] * B[i] + 1", A=half[3], B=half[3])
    assert result_of("O[i] = A[i] * B[i] + 1", A=half[3], B=half[3]) == half
    assert statement.acc == f32
    for node in walk(statement.expr):
        assert node.dtype != half or isinstance(node, Read)


def test_a_cast_to_a_half_type_rounds_there():
    statement = expr_of("O[i] = f16(A[i]) * B[i]", A=f32[3], B=f32[3])
    casts = [n.to for n in walk(statement.expr) if isinstance(n, Cast)]
    assert casts == [f32, f16]


def test_every_node_has_a_type_and_arguments_agree():
    statement = expr_of(
        "O[i] = where(A[i] > 2, A[i] ** 2 / (B[i] + C[i]), exp(B[i])) - sum[k](B[k] * C[k])",
        A=i32[3],
        B=f32[3],
        C=f16[3],
    )
    for node in walk(statement.expr):
        assert node.dtype is not None
        if isinstance(node, Call) and node.op in ("add", "mul", "div", "lt", "gt", "pow"):
            assert len({a.dtype for a in node.args}) == 1, node


def test_chains_stay_one_call_and_split_where_types_change():
    assert len(expr_of("O[i] = A[i] + A[i] + A[i] + 1", A=f32[3]).expr.args) == 4
    mixed = expr_of("O[i] = A[i] * A[i] * B[i]", A=i8[3], B=f64[3]).expr
    assert mixed.dtype == f64
    inner = mixed.args[0]
    assert isinstance(inner, Cast)
    assert inner.arg.dtype == i8  # i8 * i8 wraps in i8, as numpy's


def test_subtraction_converts_before_it_negates():
    expr = expr_of("O[i] = A[i] - B[i]", A=i16[3], B=u8[3]).expr
    negated = expr.args[1]
    assert (negated.op, negated.dtype, negated.args[0].to) == ("neg", i16, i16)


def test_bool_arithmetic_is_logical():
    assert expr_of("O[i] = A[i] + B[i]", A=bool_[3], B=bool_[3]).expr.op == "or"
    assert expr_of("O[i] = A[i] * B[i]", A=bool_[3], B=bool_[3]).expr.op == "and"
    assert expr_of("O[i] = not A[i]", A=f32[3]).expr.args[0] == Call(
        "ne", (Read("t0", expr_of("O[i] = A[i]", A=f32[3]).subscripts, dtype=f32), Literal(0.0, f32)), bool_
    )


def test_integers_compare_exactly():
    always = expr_of("O[i] = A[i] < 300", A=i8[3]).expr
    assert always == Literal(True, bool_)
    mixed = expr_of("O[i] = A[i] < B[i]", A=i64[3], B=u64[3]).expr
    assert mixed.op == "or"
    assert all(n.dtype != f64 for n in walk(mixed))


@pytest.mark.parametrize(
    ("text", "type_", "result", "acc"),
    [
        ("O += A[i]", f16, f16, f32),
        ("O += A[i]", bf16, bf16, f32),
        ("O += A[i]", i8, i8, i8),
        ("O += A[i]", bool_, i64, i64),
        ("O *= A[i]", bool_, i64, i64),
        ("O max= A[i]", bool_, bool_, bool_),
        ("O max= A[i]", f16, f16, f32),
        ("O any= A[i]", f32, bool_, bool_),
        ("O += A[i]", c64, c64, c64),
        ("O += 2", f32, i64, i64),
    ],
)
def test_statement_reductions_accumulate_in(text, type_, result, acc):
    program = parse(text + (" for i in 0:3" if "2" in text else ""))
    typed = bind(program, dict.fromkeys(program.inputs, type_[3]))
    assert typed.tensor(typed.outputs[0]).dtype == result
    statement = next(typed.statements())
    assert statement.acc == acc
    assert statement.expr.dtype == acc


@pytest.mark.parametrize(
    ("op", "type_", "result", "acc"),
    [
        ("sum", f16, f16, f32), ("sum", i8, i8, i8), ("sum", bool_, i64, i64), ("prod", bool_, i64, i64),
        ("mean", i32, f64, f64), ("mean", bool_, f64, f64), ("mean", f16, f16, f32), ("logsumexp", i8, f64, f64),
        ("max", bool_, bool_, bool_), ("argmax", f16, i64, f32), ("argmin", i8, i64, i8), ("any", f64, bool_, bool_),
    ],
)  # fmt: skip
def test_inline_reductions_accumulate_in(op, type_, result, acc):
    typed = bind(parse(f"O[i] = {op}[k](A[i,k])"), {"A": type_[3, 4]})
    assert typed.tensor(typed.outputs[0]).dtype == result
    reduce = next(n for n in walk(next(typed.statements()).expr) if isinstance(n, Reduce))
    assert (reduce.acc, reduce.body.dtype, reduce.dtype) == (acc, acc, computed(result))


def test_acc_overrides_where_it_is_of_the_same_sort():
    def accs(type_, acc):
        typed = bind(parse("O[i] += A[i,k]"), {"A": type_[3, 4]}, acc=acc)
        return next(typed.statements()).acc, typed.tensor("t1").dtype

    assert accs(f32, f64) == (f64, f32)
    assert accs(f16, f64) == (f64, f16)
    assert accs(i8, i64) == (i64, i8)
    assert accs(i8, f64) == (i8, i8)
    assert accs(c64, f64) == (c128, c64)


def test_a_fresh_tensor_promotes_over_its_defining_statements():
    assert infer(parse("T[i] = A[i]; T[i] += B[i]"), {"A": i8[3], "B": f32[3]})["T"].dtype == f32
    assert infer(parse("T[i] = 1 for i in 0:3; T[i] += B[i]"), {"B": f32[3]})["T"].dtype == f32
    assert infer(parse("T[i] = 1 for i in 0:3; O[i] = T[i] * B[i]"), {"B": f32[3]})["O"].dtype == f64
    text = "S[0] = A[0]; S[t] = S[t-1] * B[t] for t in 1:4"
    assert infer(parse(text), {"A": i8[1], "B": f64[4]})["S"].dtype == f64


def test_a_declared_type_is_kept_and_takes_the_same_kind():
    text = "f(A: f64[N]) -> O:\n    O: f32[N]\n    O[i] = A[i]"
    assert infer(parse(text), {"A": f64[4]})["O"].dtype == f32


def test_pad_values_are_of_the_tensors_type():
    statement = expr_of("O[i] = A[i; pad=-inf] for i in 0:9", A=f32[3])
    assert statement.expr.pad.value == Literal(float("-inf"), f32)
    assert expr_of("O[i] = A[i; pad=1] for i in 0:9", A=f16[3]).expr.arg.pad.value == Literal(1.0, f16)


def test_subscripts_are_i64_and_gathers_are_cast():
    statement = expr_of("O[i] = A[I[i], 2*i]", A=f32[9, 9], I=i32[3])
    gathered, plain = statement.expr.subscripts
    assert (gathered.to, gathered.arg.dtype) == (i64, i32)
    assert all(n.dtype == i64 for n in walk(plain))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_copy_of_an_element_type_is_that_element_type(dtype: DType) -> None:
    assert copy.deepcopy({"of": dtype})["of"] is dtype
    assert copy.copy(dtype) is dtype
