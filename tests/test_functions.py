"""Every function of the notation: known everywhere, and the same values from every executor."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.cuda.digamma import digamma
from polyker.codegen.cuda.functions import listed
from polyker.codegen.cuda.text import data_file
from polyker.codegen.ir.verify import OPERATIONS
from polyker.codegen.vecmath import functions as vecmath
from polyker.cost.plan import HEAVY
from polyker.einsum_frontend import builder, parse
from polyker.errors import DTypeError, ParseError
from polyker.ir import dtypes as dt
from polyker.ir.expr import FUNCTIONS
from polyker.ir.functions import TABLE, Function, cost_of
from polyker.ir.functions.table import table_of
from polyker.reference import interpret
from tests.codegen.interpret_operations import apply
from tests.gpu.support import needs_compiler

# Typing writes these by comparisons and extrema.
WRITTEN = ("clip", "isnan", "isinf", "isfinite")
EXACT = [f.name for f in TABLE.values() if not f.transcendental and f.name not in ("where", "sqrt", "rsqrt", "imag")]
COMPILED = [n for n in FUNCTIONS if not TABLE[n].transcendental or vecmath.supported(n, dt.f32)]
TARGETS = ["cpu", "cpu:x86-64-v2", pytest.param("cuda-sim", marks=needs_compiler)]
# Of f64 near a zero of lgamma; what it is compared with takes the logarithm of x87, whose last bit is not the same on all cores.
RELATIVE = {"f2": 2e-3, "f4": 2e-6, "f8": 5e-15}
NUMPY = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "popcount": np.bitwise_count, "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "softplus": lambda x: np.logaddexp(x.dtype.type(0), x), "round": np.rint,
}  # fmt: skip
SPECIAL = np.array(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -2.5, 3, -7, np.inf, -np.inf, np.nan, 6e-8, -6e-8, 60000, -60000, 100, -100]
)


def text_of(name: str) -> str:
    """Return a statement that applies a function to as many inputs as it takes."""
    return f"O[i] = {name}({', '.join(f'{t}[i]' for t in 'XYZ'[: TABLE[name].arity])})"


def by_reference(text: str, *args: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(interpret(parse(text), dict(zip("XYZ", args, strict=False)))[0])


def arguments(name: str, kind: str, count: int = 40) -> tuple[np.ndarray, ...]:
    """Return arguments with special values among them, in the domain of the function."""
    rng = np.random.default_rng(len(name))
    if TABLE[name].takes == "integer":
        kind = "i4"
    with np.errstate(all="ignore"):
        rows = [
            np.concatenate([np.roll(SPECIAL, 5 * k), rng.normal(0, 2, count)]).astype(kind)
            for k in range(TABLE[name].arity)
        ]
    return tuple(rows)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_known_to_every_part(name):
    known = TABLE[name]
    assert getattr(pk, name) is getattr(builder, name)
    assert (name in HEAVY) == (known.transcendental or name in ("sqrt", "fmod"))
    assert known.transcendental == (cost_of(name).least >= 8)
    assert known.numpy is not None
    if name not in WRITTEN:
        assert name in OPERATIONS
        args = [np.ones(3, "i4" if known.takes == "integer" else "f8")] * known.arity
        if name == "where":
            args[0] = args[0] != 0
        assert apply(name, args, dt.from_numpy(args[-1].dtype)).shape == (3,)
    header = data_file("pk_cuda.h")
    if known.c:
        assert f"X(T, S, {name}, {known.c})" in listed()
        assert listed() in header
    elif name not in (*WRITTEN, "where", "real", "imag", "minimum", "maximum"):
        assert f"pk_{name}(" in (digamma() if name == "digamma" else header)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "where"])
def test_the_builder_and_the_text_are_the_same_and_programs_print_as_they_read(name):
    (i,) = pk.indices("i")
    tensors = pk.tensors("O X Y Z")
    value = getattr(pk, name)(*(t[i] for t in tensors[1 : 1 + TABLE[name].arity]))
    program = pk.op(tensors[0][i].set(value)).program
    assert program == parse(text_of(name))
    assert parse(str(program)) == program


def together(names: list[str], arguments: dict[str, tuple[np.ndarray, ...]]) -> tuple[str, list[np.ndarray]]:
    """Return a program that applies each function to inputs of its own, and these inputs."""
    statements, inputs = [], []
    for name in names:
        own = [f"I{len(inputs) + k}" for k in range(len(arguments[name]))]
        statements.append(f"O{len(statements)}[i] = {name}({', '.join(f'{t}[i]' for t in own)})")
        inputs += arguments[name]
    return "; ".join(statements), inputs


@cache
def by_interpreter(name: str, kind: str) -> np.ndarray:
    return by_reference(text_of(name), *arguments(name, kind))


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
@pytest.mark.parametrize("target", TARGETS)
def test_every_executor_gives_the_interpreters_values(kind, target):
    names = [n for n in COMPILED if n != "where"]
    args = {name: arguments(name, kind) for name in names}
    wanted = {name: by_interpreter(name, kind) for name in names}
    for name in names:
        direct = NUMPY.get(name, getattr(np, name, None))
        if direct is not None:
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(wanted[name], direct(*args[name]), rtol=RELATIVE[kind], atol=0)
    for part in (names[: len(names) // 2], names[len(names) // 2 :]):
        text, inputs = together(part, args)
        symbolic = [getattr(pk, str(dt.from_numpy(x.dtype)))["N"] for x in inputs]
        # A function is the same code for symbolic sizes: one type shows that they hold.
        for types in (inputs, symbolic) if kind == "f4" else (inputs,):
            kernel = pk.op(text).compile(*types, target=target)
            for name, found in zip(part, kernel(*inputs), strict=True):
                _compare(name, kind, found, wanted[name], target)


def _compare(name: str, kind: str, found: np.ndarray, wanted: np.ndarray, target: str) -> None:
    assert found.dtype == wanted.dtype, name
    if name in EXACT:
        np.testing.assert_array_equal(found, wanted, name)
    else:
        # CUDA's header makes sigmoids of exp(-x), which underflows.
        least = 0 if target != "cuda-sim" else float(np.finfo(wanted.dtype).tiny) * 8
        np.testing.assert_allclose(found, wanted, rtol=RELATIVE[kind], atol=least, err_msg=name)
    if wanted.dtype.kind == "f" and name not in ("relu", "clip", "minimum", "maximum"):
        signs = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found[signs]), np.signbit(wanted[signs]), name)


INTEGER = ["popcount", "fmod", "clip", "trunc", "isnan", "isinf", "isfinite", "copysign"]


def integers(name: str, kind: str) -> tuple[np.ndarray, ...]:
    """Return integers of a type, its extremes and 0 among them."""
    rng = np.random.default_rng(3)
    if kind == "?":
        return tuple(rng.integers(0, 2, 30).astype(bool) for _ in range(TABLE[name].arity))
    info = np.iinfo(kind)
    one = -1 if info.min else 1
    rows = [rng.integers(info.min, info.max, 60, dtype=kind, endpoint=True) for _ in range(TABLE[name].arity)]
    for k, row in enumerate(rows):
        row[:20] = rng.integers(max(info.min, -4), 5, 20)
        row[20:24] = np.roll(np.array([info.min, info.max, 0, one], kind), k)
        row[24:28] = (info.min, info.min, one, one) if k == 0 else (one, 0, one, 0)
    return tuple(rows)


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
@pytest.mark.parametrize("target", TARGETS)
def test_integers_are_numpys(kind, target):
    args = {name: integers(name, kind) for name in INTEGER}
    text, inputs = together(INTEGER, args)
    for name, found in zip(INTEGER, pk.op(text).compile(*inputs, target=target)(*inputs), strict=True):
        with np.errstate(all="ignore"):
            wanted = NUMPY.get(name, getattr(np, name, None))(*args[name])
        assert by_reference(text_of(name), *args[name]).tolist() == wanted.tolist(), name
        assert found.dtype == wanted.dtype, name
        np.testing.assert_array_equal(found, wanted, name)


@settings(max_examples=36, deadline=None)
@given(st.data())
def test_random_shapes_and_strides(data):
    name = data.draw(st.sampled_from([n for n in COMPILED if n not in ("where", "popcount")]))
    rows, columns = data.draw(st.integers(0, 5)), data.draw(st.sampled_from([0, 1, 3, 8, 17, 33]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    args = []
    for _ in range(TABLE[name].arity):
        step = data.draw(st.sampled_from([1, -1, 2, 0]))
        base = rng.uniform(0.5, 3, (rows, max(1, abs(step)) * columns)).astype(data.draw(st.sampled_from(["f4", "f8"])))
        args.append(np.broadcast_to(base[:, :1], (rows, columns)) if step == 0 and columns else base[:, :: step or 1])
    inner = ", ".join(f"{t}[i,j]" for t in "XYZ"[: TABLE[name].arity])
    text = (
        f"O[i] max= {name}({inner})" if data.draw(st.booleans()) and rows and columns else f"O[i,j] = {name}({inner})"
    )
    wanted = by_reference(text, *args)
    found = pk.op(text)(*args)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=2e-6)


def test_what_tells_signs_of_zero_works_inside_where():
    x = np.array([-0.0, 0.0, -1.0, np.nan, -np.inf])
    found = pk.op("O[i] = where(copysign(1, X[i]) < 0 and not isnan(X[i]), -trunc(X[i] * 0.1), 5)")(x)
    np.testing.assert_array_equal(found, np.where((np.copysign(1, x) < 0) & ~np.isnan(x), -np.trunc(x * 0.1), 5))
    assert not np.signbit(found[0])


def test_softplus_and_hypot_neither_overflow_nor_lose_small_values():
    x = np.array([-745.0, -800, -40, -1e-300, 0, 1e-300, 36.7, 800, 1e308, np.inf, -np.inf])
    np.testing.assert_allclose(pk.op("O[i] = softplus(X[i])")(x), np.logaddexp(0, x), rtol=3e-16)
    small = np.array([3e-320, 3e200, 3e308, np.inf, np.nan])
    other = np.array([4e-320, 4e200, 4e307, np.nan, -np.inf])
    np.testing.assert_allclose(pk.op("O[i] = hypot(X[i], Y[i])")(small, other), np.hypot(small, other), rtol=3e-16)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if not TABLE[n].complex])
def test_what_takes_no_complex_numbers_says_so_at_its_place(name):
    text = text_of(name)
    with pytest.raises(DTypeError) as caught:
        pk.op(text).infer(*[pk.c128[3]] * TABLE[name].arity)
    assert caught.value.span is not None
    assert text[caught.value.span.start : caught.value.span.end] == text.removeprefix("O[i] = ")
    assert f"`{name}`" in str(caught.value)
    assert caught.value.hint


def test_popcount_takes_integers_and_says_what_to_write():
    with pytest.raises(DTypeError, match="popcount") as caught:
        pk.op("O[i] = popcount(X[i])").infer(pk.f32[3])
    assert caught.value.hint == "convert it first: `i64(...)`"
    assert pk.op("O[i] = popcount(i) for i in 0:9")().tolist() == [i.bit_count() for i in range(9)]


@pytest.mark.parametrize("text", ["O[i] = hypot(X[i])", "O[i] = clip(X[i], 0)", "O[i] = exp2(X[i], 1)"])
def test_another_number_of_arguments_is_an_error(text):
    with pytest.raises(ParseError, match="argument"):
        pk.op(text)


DOCS = Path(__file__).parents[1] / "docs"


def _rows(text: str) -> list[list[str]]:
    body = next(part for part in text.split("\n\n") if part.startswith("| "))
    return [[element.strip() for element in re.split(r"(?<!\\)\|", line)[1:-1]] for line in body.splitlines()[2:]]


def test_the_documented_table_is_that_of_the_code(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    import generate

    measured = {row[0]: (row[1], row[3]) for row in _rows((DOCS / "accuracy.md").read_text())}
    rows = _rows(generate.functions())
    assert [row[0].strip("`") for row in rows] == list(FUNCTIONS)
    kinds = {"float": "floats", "number": "numbers", "integer": "integers"}
    for name, takes, cplx, single, double, special in rows:
        known = TABLE[name.strip("`")]
        count = f"{known.arity} " if known.arity > 1 else ""
        assert takes == count + kinds[known.takes], name
        assert cplx == ("yes" if known.complex else "no"), name
        if known.transcendental:
            assert (single, double) == measured.get(known.name, ("", "")), name
        assert special, name


# Where a function's algebra, or code that nothing else gives, needs its name; `abs`, `round` and the like name other things, too.
NAMED = {
    "polyker/bridge/torch/rules/elementwise.py": "operators of torch",
    "polyker/export/closing/support.py": "what LLVM would call of a C library",
    "polyker/export/names.py": "forms of sizes as C writes them",
    "polyker/export/plain_javascript.py": "functions of JavaScript",
    "polyker/grad/forms/shifts.py": "sums of exponentials",
    "polyker/grad/forms/counts.py": "ones of a type",
    "polyker/grad/writers.py": "ones of a type",
    "polyker/grad/names.py": "counts of bits, whose arguments are integers",
    "polyker/grad/rules.py": "derivatives",
    "polyker/ir/functions/table.py": "the table",
    "polyker/ir/typing.py": "tests of numbers by their size, and the imaginary part of what is real",
    "polyker/reference/functions.py": "the remainder of Python's integers",
    "polyker/rewrite/core/exponentials.py": "sums of exponentials",
    "polyker/rewrite/normalise/hoist_from_reductions.py": "functions that keep an order",
    "polyker/rewrite/reductions/online_pairs.py": "sums of exponentials",
    "codegen/cuda/expressions.py": "parts of complex numbers",
    "codegen/cuda/functions.py": "code of its own",
    "codegen/llvm/complex.py": "code on pairs",
    "codegen/llvm/functions.py": "a power of one half",
    "codegen/llvm/operations.py": "code of its own",
    "einsum_frontend/building/expressions.py": "what Python itself calls of numbers",
    "einsum_frontend/hints/spellings.py": "the sign of a root",
}
OTHERS = ("abs", "floor", "maximum", "minimum", "real", "round", "sign", "trunc", "where")


def test_no_other_code_names_functions():
    root = Path(__file__).parents[1]
    names = set(FUNCTIONS) - set(OTHERS)
    found = set()
    for top in ("polyker", "codegen", "einsum_frontend"):
        for path in (root / top).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if names & {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}:
                found.add(str(path.resolve().relative_to(root.resolve())))
    assert {f for f in found if not f.startswith("codegen/vecmath/")} == set(NAMED)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (Function("f", written="x * nosuch(x)"), "'nosuch', which does not stand above it"),
        (Function("f", written="exp(x, x)"), "2 arguments, not 1"),
        (Function("f", written="f(x)"), "'f', which does not stand above it"),
        (Function("f"), "neither"),
    ],
)
def test_an_entry_that_cannot_be_is_refused(entry, message):
    with pytest.raises(ValueError, match=message):
        table_of([TABLE["exp"], entry])


def test_a_composition_has_the_values_and_costs_of_its_operations():
    two = Function("f", 2, written="where(x > y, x - y, -x / 2) * sqrt(y)")
    found = table_of([TABLE["sqrt"], two])["f"]
    x, y = np.array([3.0, 1.0, -2.0]), np.array([1.0, 4.0, 9.0])
    np.testing.assert_array_equal(found.value(x, y), np.where(x > y, x - y, -x / 2) * np.sqrt(y))
    single = found.value(x.astype("f4"), y.astype("f4"))
    assert single.dtype == np.float32
    assert found.cost is not None
    assert found.cost.least == sum(cost_of(op).least for op in ("where", "gt", "add", "neg", "div", "mul", "sqrt"))


@pytest.mark.parametrize("name", [n for n, f in TABLE.items() if f.transcendental and vecmath.supported(n, dt.f32)])
def test_the_cost_of_a_function_is_the_length_of_its_vector_code(name: str) -> None:
    lines = vecmath.function(name, dt.f32, 16, fma=True, avx512=True).text.splitlines()
    counted = sum(" = " in line and "bitcast" not in line for line in lines)
    assert TABLE[name].cost is not None
    assert 0.8 * counted <= TABLE[name].cost.usual <= 1.25 * counted
