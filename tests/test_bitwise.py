"""Bitwise operators: NumPy's types and values on every executor, Python's precedence, and hints where they are not meant."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.errors import DTypeError, ParseError
from polyker.ir.dtypes import i8, i64, u8
from polyker.ir.expr import Call, Literal, Read
from polyker.reference import interpret
from polyker.rewrite.core.value_range import modulo, value_range
from tests.gpu.support import needs_compiler
from tests.ways import interpreted, simulated

OPERATORS = {
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor, "<<": np.left_shift, ">>": np.right_shift,
}  # fmt: skip
TYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
rng = np.random.default_rng(11)


def values(dtype, count, small=False):
    """Return values of a type, its ends among them; `small`: such as shift by less than nothing up to more than all bits."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    if small:
        return rng.integers(max(low, -3), min(high, 70), count, endpoint=True).astype(kind)
    found = rng.integers(low, high, count, dtype=kind, endpoint=True)
    found[:3] = low, high, 0
    return found


def symbolic(text, *arrays):
    names = "NMKL"
    types = [getattr(pk, _name(a.dtype))[tuple(names[: a.ndim])] for a in arrays]
    return pk.op(text).compile(*types)(*arrays)


def _name(dtype):
    return "bool_" if dtype.kind == "b" else f"{dtype.kind}{8 * dtype.itemsize}"


EXECUTORS = [
    pytest.param(lambda text, *arrays: pk.op(text)(*arrays), id="cpu"),
    pytest.param(symbolic, id="symbolic"),
    pytest.param(interpreted, id="interpreter"),
    pytest.param(simulated, id="simulator", marks=needs_compiler),
]


def same(found, want):
    assert (found.dtype, found.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("run", EXECUTORS)
@pytest.mark.parametrize("kind", TYPES)
def test_values_and_types_are_numpys(run, kind):
    a, b = values(kind, 45), values(kind, 45)
    count = values(kind, 45, small=True)
    text = "; ".join(f"O{n}[i] = A[i] {op} {'C' if op in ('<<', '>>') else 'B'}[i]" for n, op in enumerate(OPERATORS))
    text += "; O5[i] = ~A[i]"
    program = parse(text)
    arrays = {"A": a, "B": b, "C": count}
    if run is EXECUTORS[2].values[0]:
        found = interpret(program, arrays)
    else:
        found = run(text, *(arrays[n] for n in program.inputs))
    for (symbol, function), one in zip(OPERATORS.items(), found, strict=False):
        same(one, function(a, count if symbol in ("<<", ">>") else b))
    same(found[5], ~a)


@pytest.mark.parametrize("op", OPERATORS)
def test_mixed_types_are_promoted_as_numpys(op):
    for left, right in itertools.product(TYPES, TYPES):
        a, b = values(left, 9), values(right, 9, small=True)
        try:
            want = OPERATORS[op](a, b)
        except TypeError:
            with pytest.raises(DTypeError):
                pk.op(f"O[i] = A[i] {op} B[i]")(a, b)
            continue
        same(interpreted(f"O[i] = A[i] {op} B[i]", a, b), want)
        assert pk.op(f"O[i] = A[i] {op} B[i]").infer(a, b).dtype.numpy == want.dtype


@pytest.mark.parametrize("run", EXECUTORS)
@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("O[i] = A[i] & 15", lambda a: a & 15),
        ("O[i] = 1 << A[i]", lambda a: 1 << a),
        ("O[i] = A[i] >> 3 << 2 | 1", lambda a: a >> 3 << 2 | 1),
        ("O[i] = A[i] ^ 1 << 7 & 255", lambda a: a ^ 1 << 7 & 255),
        ("O[i] = A[i] & (1 << 31) - 1", lambda a: a & (1 << 31) - 1),
        ("O[i] = -A[i] & ~A[i] ** 2 + 1", lambda a: -a & ~(a**2) + 1),
        ("O[i] = A[i] << 32", lambda a: a << 32),
        ("O[i] = A[i] >> 40", lambda a: a >> 40),
        ("O[i] = A[i] << -1", lambda a: a << -1),
        ("O[i] = A[i] & i ^ i >> 1", lambda a: a & np.arange(a.size, dtype="i4") ^ np.arange(a.size, dtype="i4") >> 1),
        ("O[i] = A[i] & 1 == 0 and A[i] | 1 < 5", lambda a: (a & 1 == 0) & ((a | 1) < 5)),
        ("O[i] = where(A[i] >> 31 & 1, ~A[i], A[i])", lambda a: np.where(a < 0, ~a, a)),
    ],
)
def test_literals_indices_and_precedence(run, text, want):
    a = values("i4", 37)
    with np.errstate(all="ignore"):
        expected = want(a)
    same(run(text, a), np.asarray(expected).astype(bool if "and" in text else "i4"))


def test_bits_in_reductions_and_vectors():
    a, b = values("u4", 12 * 1000).reshape(12, 1000), values("u4", 1000)
    same(pk.op("O[i] += A[i,k] & B[k]")(a, b), (a & b).sum(1, dtype="u4"))
    same(pk.op("O[i] max= A[i,k] ^ B[k]")(a, b), (a ^ b).max(1))
    same(pk.op("O[i] = sum[k](A[i,k] >> (B[k] & 31))")(a, b), (a >> (b & 31)).sum(1, dtype="u4"))
    turned = a.T[::-2]
    same(pk.op("O[i,j] = ~A[i,j] << 3")(turned), ~turned << 3)


@settings(max_examples=36, deadline=None)
@given(st.data())
def test_random_expressions_are_numpys(data):
    names = {n: values(data.draw(st.sampled_from(TYPES[1:6])), 5, small=data.draw(st.booleans())) for n in "ABC"}
    text = data.draw(st.sampled_from(["A", "B", "C"])) + "[i]"
    plain = text
    for _ in range(data.draw(st.integers(1, 5))):
        op, name = data.draw(st.sampled_from([*OPERATORS, "+", "*"])), data.draw(st.sampled_from("ABC"))
        operand = data.draw(st.sampled_from([f"{name}[i]", f"~{name}[i]", f"({name}[i] | 1)"]))
        text, plain = f"{text} {op} {operand}", f"{plain} {op} {operand}"
    wanted = eval(plain.replace("[i]", ""), {}, names)
    used = parse(f"O[i] = {text}").inputs
    same(interpreted(f"O[i] = {text}", *(names[n] for n in used)), wanted)
    same(pk.op(f"O[i] = {text}")(*(names[n] for n in used)), wanted)


def test_of_bool_they_are_logical():
    a, b = values("?", 9), values("?", 9)
    for op in ("&", "|", "^"):
        found = pk.op(f"O[i] = A[i] {op} B[i]")(a, b)
        assert found.dtype == bool
        np.testing.assert_array_equal(found, OPERATORS[op](a, b))
    assert (
        str(parse("O[i] = (A[i] < 1) & (B[i] < 2) | ~(A[i] == 3)")) == "O[i] = A[i] < 1 and B[i] < 2 or not A[i] == 3"
    )


@pytest.mark.parametrize(
    "text",
    [
        "O[i] = A[i] & B[i] | A[i] ^ B[i]",
        "O[i] = A[i] & (B[i] | A[i]) ^ B[i]",
        "O[i] = (A[i] << 1) + (B[i] >> A[i]) << 2",
        "O[i] = A[i] << (B[i] << 1) >> 2",
        "O[i] = ~A[i] ** 2 & -~B[i]",
        "O[i] = (~A[i]) ** 2 * ~(A[i] & B[i])",
        "O[i] = (A[i] & B[i] == 3) == (A[i] | 1)",
        "O[i] = (not A[i]) & 3",
    ],
)
def test_they_are_printed_as_they_are_read(text):
    program = parse(text)
    assert parse(str(program)) == program


def test_the_builder_gives_the_same():
    (i,), (a, b, o) = pk.indices("i"), pk.tensors("A B O")
    for built, text in [
        (a[i] & b[i] | a[i] ^ 3, "A[i] & B[i] | A[i] ^ 3"),
        (~a[i] << 2 >> b[i], "~A[i] << 2 >> B[i]"),
        (1 << a[i] & 7, "1 << A[i] & 7"),
        (3 | a[i], "3 | A[i]"),
        ((a[i] < 1) & (b[i] < 2), "A[i] < 1 and B[i] < 2"),
        (~(a[i] < 1) | (b[i] < 2), "not A[i] < 1 or B[i] < 2"),
        (pk.logical_or(a[i], pk.logical_and(b[i], pk.logical_not(a[i]))), "A[i] or B[i] and not A[i]"),
    ]:
        assert pk.op(o[i].set(built)).program == parse(f"O[i] = {text}")
    with pytest.raises(ParseError, match="logical_and"):
        pk.logical_and(a[i])


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("O[i] = X[i] & 3", "convert first: `i32(X[i]) & 3`"),
        ("O[i] = I[i] >> X[i]", "convert first: `I[i] >> i32(X[i])`"),
        ("O[i] = ~X[i]", "convert first: `~i32(X[i])`"),
        ("O[i] = X[i] ^ 2", "convert first: `i32(X[i]) ^ 2`; a power is `X[i] ** 2`"),
        ("O[i] = I[i] & U[i]", "convert first: `I[i] & i64(U[i])`"),
        ("O[i] = where(X[i] < X[i] & X[i] < 3, 1, 0)", "write `X[i] < X[i] and X[i] < 3`"),
        ("O[i] = X[i] > 1 | X[i]", "write `X[i] > 1 or X[i]`"),
        ("O[i] = X[i] & X[i]", "write `and`"),
    ],
)
def test_what_they_do_not_take_says_what_to_write(text, hint):
    arrays = {"X": np.ones(3, "f4"), "I": np.ones(3, "i4"), "U": np.ones(3, "u8")}
    with pytest.raises(DTypeError) as caught:
        pk.op(text)(*(arrays[n] for n in parse(text).inputs))
    assert hint in (caught.value.hint or ""), caught.value
    if "convert" in hint:
        mended = f"O[i] = {caught.value.hint.split('`')[1]}"
        pk.op(mended)(*(arrays[n] for n in parse(mended).inputs))
    with pytest.raises(DTypeError):
        interpret(parse(text), {n: arrays[n] for n in parse(text).inputs})


@pytest.mark.parametrize(("text", "hint"), [("O[i] = A[i] && B[i]", " and "), ("O[i] = A[i] || B[i]", " or ")])
def test_the_operators_of_c_are_named(text, hint):
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert hint in caught.value.hint


def test_constants_that_do_not_fit_are_refused():
    with pytest.raises(DTypeError, match="256"):
        pk.op("O[i] = A[i] & 256")(values("u1", 4))


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_what_is_known_of_their_values_holds(data):
    dtype = data.draw(st.sampled_from([i8, u8]))
    op = data.draw(st.sampled_from(["bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"]))
    mask = data.draw(st.integers(0, 127))
    x = Read("t0", (), dtype=dtype)
    inner = Call("bit_and", (x, Literal(mask, dtype)), dtype)
    by = Literal(data.draw(st.integers(0, 9 if "shift" in op else 127)), dtype)
    expr = Call(op, (inner, by), dtype)
    low, high = value_range(expr)
    functions = dict(
        zip(("bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"), OPERATORS.values(), strict=True)
    )
    every = np.arange(256).astype(np.uint8).view(dtype.numpy)
    found = functions[op](every & dtype.numpy.type(mask), dtype.numpy.type(by.value))
    assert low <= found.min() and found.max() <= high


def test_they_are_computed_in_narrower_types():
    x = Read("t0", (), dtype=i64)
    assert modulo(Call("bit_and", (x, Literal(255, i64)), i64), u8).op == "bit_and"
