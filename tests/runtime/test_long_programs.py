"""Long programs, up to the limits and beyond: right results or a clear error, also for a caller that is 200 calls deep."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest

import polyker as pk
from polyker.einsum_frontend import builder
from polyker.errors import PolykerError
from polyker.ir.measure import DEPTH

T = TypeVar("T")
N = 17
X = np.random.default_rng(0).random(N) + 0.5
Y = np.random.default_rng(1).random(N) + 0.5
STAGES = ("program", "isl", "schedule", "loops", "llvm")

# The time that a compile takes is looked at elsewhere; here the machine may be busy.
pytestmark = pytest.mark.usefixtures("patience")


@pytest.fixture
def patience() -> Any:
    with pk.options(timeout=None):
        yield


def deep(call: Callable[[], T], calls: int = 200) -> T:
    """Return what `call` gives in a caller that is so many calls deep."""
    return call() if calls == 0 else deep(call, calls - 1)


def steps(count: int, first: str, *forms: str) -> str:
    """Return a program of so many statements, each of which reads the one before, by the forms in turn."""
    lines = [f"T1[i] = {first}"]
    lines += [f"T{k}[i] = {forms[k % len(forms)].format(T=f'T{k - 1}', k=k)}" for k in range(2, count + 1)]
    return "\n".join(lines)


def repeated(count: int, value: Any, *forms: Callable[[Any], Any]) -> Any:
    for k in range(2, count + 1):
        value = forms[k % len(forms)](value)
    return value


def everything(op: Any, *arrays: Any) -> None:
    """Ask for all that a compile gives, besides the result."""
    p = op.program
    assert p == pk.op(str(p)).program
    assert hash(p) == hash(pk.op(str(p)).program)
    assert str(op)
    assert repr(op)
    assert repr(p)
    kernel = op.compile(*arrays, threads=1)
    assert all(kernel.source(stage) for stage in STAGES)
    assert str(kernel.explain())
    assert str(kernel.schedule)
    automatic, text = op.schedule(*arrays), op.schedule(*arrays, auto=False)
    assert str(automatic)
    assert str(text)
    assert automatic != text or str(automatic) == str(text)
    assert op.compile(*arrays, specialize="never").source("llvm")


# Statements that read the one before: the forms of a statement, and what they compute.
CHAINS: dict[str, tuple[tuple[str, ...], tuple[Callable[[Any], Any], ...]]] = {
    "sums and products": (("{T}[i]*1.01", "{T}[i] + 1"), (lambda v: v * 1.01, lambda v: v + 1)),
    "signs": (("-{T}[i]",), (lambda v: -v,)),
    "functions": (("exp(-{T}[i])",), (lambda v: np.exp(-v),)),
    "choices": (("maximum({T}[i], 0.25) - 0.125",), (lambda v: np.maximum(v, 0.25) - 0.125,)),
    "a value read twice": (("{T}[i]*{T}[i] + 0.1",), (lambda v: v * v + 0.1,)),
    "conversions": (("f32({T}[i])*2", "f64({T}[i]) + 1"), (lambda v: np.float32(v) * 2, lambda v: np.float64(v) + 1)),
    "sums over all": (
        ("{T}[i] - 0.01*sum[j](X[j])", "X[i] + {T}[i]*0.5"),
        (lambda v: v - 0.01 * X.sum(), lambda v: X + v * 0.5),
    ),
}


@pytest.mark.parametrize(("name", "count"), [(name, 80) for name in CHAINS] + [("sums and products", 250)])
def test_statements_that_each_read_the_one_before_give_numpys_result(name: str, count: int) -> None:
    forms, values = CHAINS[name]
    op = pk.op(steps(count, "X[i]*0.5", *forms))
    found = deep(lambda: op.compile(X, threads=2)(X))
    np.testing.assert_allclose(found, repeated(count, X * 0.5, *values), rtol=1e-5)
    assert deep(lambda: op.check(X))


@pytest.mark.parametrize("count", [2, 256])
def test_all_that_a_compile_gives_is_there_for_chains_of_any_length(count: int) -> None:
    op = pk.op(steps(count, "X[i]*0.5", "{T}[i]*1.01", "{T}[i] + 1"))
    deep(lambda: everything(op, X))


def test_more_statements_than_the_limit_are_refused_before_anything_else() -> None:
    with pytest.raises(PolykerError, match="PK108"):
        deep(lambda: pk.op(steps(8193, "X[i]*0.5", "{T}[i] + 1")))
    with pytest.raises(PolykerError, match=r"PK10[18]"):
        deep(lambda: pk.op(steps(20_000, "X[i]*0.5", "{T}[i] + 1")))


def test_130_reductions_that_each_read_the_one_before_have_accumulators_side_by_side() -> None:
    matrix = np.random.default_rng(2).random((N, N)) / N
    text = "\n".join(["T1[i] = X[i]*0.5", *(f"T{k}[i] += A[i,j]*T{k - 1}[j]" for k in range(2, 131))])
    op = pk.op(text)
    wanted = repeated(130, X * 0.5, lambda v: matrix @ v)
    kernel = deep(lambda: op.compile(X, matrix, threads=1))
    np.testing.assert_allclose(kernel(X, matrix), wanted, rtol=1e-8)
    loops = deep(lambda: kernel.source("loops"))
    assert max(len(line) - len(line.lstrip()) for line in loops.splitlines()) < 100
    assert deep(lambda: str(kernel.explain()))


def test_a_time_loop_around_130_statements_gives_numpys_result() -> None:
    inner = steps(129, "A[i]*1.01", "{T}[i]*1.01", "{T}[i] + 1").splitlines()
    lines = [*inner, f"A[i] = T{len(inner)}[i]*0.1"]
    op = pk.op("f(A: f64[N], steps) -> A:\n    for t in 0:steps:\n" + "\n".join("        " + line for line in lines))
    wanted = X
    for _ in range(2):
        wanted = repeated(129, wanted * 1.01, lambda v: v * 1.01, lambda v: v + 1) * 0.1
    np.testing.assert_allclose(deep(lambda: op.compile(X, 2)(X, 2)), wanted, rtol=1e-8)


# Long expressions: the text for a number of operands, the number, and the result.
LONG: dict[str, tuple[Callable[[int], str], int, Callable[[int], Any]]] = {
    "a sum": (lambda n: "+".join(["X[i]"] * n), 4_000, lambda n: X * n),
    "differences": (lambda n: "X[i]" + "-Y[i]" * n, 4_000, lambda n: X - Y * n),
    "a product": (lambda n: "*".join(["X[i]"] * n), 1_000, lambda n: X**n),
    "products of pairs": (lambda n: "+".join(["X[i]*Y[i]"] * n), 1_000, lambda n: X * Y * n),
    "and": (lambda n: " and ".join(f"X[i] < {k}" for k in range(1, n + 1)), 1_200, lambda n: X < 1),
    "or": (lambda n: " or ".join(f"X[i] > {k}" for k in range(1, n + 1)), 1_200, lambda n: X > 1),
    "comparisons": (lambda n: "0" + " < X[i]" * n, 1_200, lambda n: np.zeros(N, bool)),
    "signs": (lambda n: "-" * n + "X[i]", DEPTH - 2, lambda n: X * (-1) ** n),
    "nots": (lambda n: "not " * n + "(X[i] < 1)", DEPTH - 3, lambda n: (X < 1) ^ bool(n % 2)),
    "quotients": (lambda n: "X[i]" + "/Y[i]" * n, DEPTH - 2, lambda n: X / Y**n),
    "powers": (lambda n: "**".join(["X[i]"] * n), DEPTH - 1, lambda n: repeated(n, X, lambda v: X**v)),
    "extrema": (lambda n: "maximum(X[i], " * n + "Y[i]" + ")" * n, 63, lambda n: np.maximum(X, Y)),
    "choices": (lambda n: "where(X[i] < 1, Y[i], " * n + "X[i]" + ")" * n, 63, lambda n: np.where(X < 1, Y, X)),
}


@pytest.mark.parametrize("name", LONG)
def test_long_expressions_give_numpys_result(name: str) -> None:
    text, count, value = LONG[name]
    op = pk.op(f"C[i] = {text(count)}")
    arrays = [X, Y][: len(op.program.inputs)]
    found = deep(lambda: op.compile(*arrays)(*arrays))
    np.testing.assert_allclose(found, value(count), rtol=1e-6)
    assert deep(lambda: op.check(*arrays))


@pytest.mark.parametrize("name", ["signs", "nots", "quotients", "powers", "extrema", "choices"])
@pytest.mark.parametrize("beyond", [1, 5_000])
def test_deeper_expressions_than_the_limit_are_refused_with_the_limit(name: str, beyond: int) -> None:
    text, count, _ = LONG[name]
    with pytest.raises(PolykerError, match=r"PK10[156]|PK409") as caught:
        deep(lambda: pk.op(f"C[i] = {text(count + beyond)}").compile(*[pk.f64[N]] * len({"X", "Y"} & {*text(1)})))
    assert any(limit in caught.value.message for limit in (str(DEPTH), "64", "65536"))


i, k = builder.indices("i k")
A, B, C, Q = builder.tensors("A B C Q")

# Built in Python: a step, how often it may be taken, and the result of so many.
BUILT: dict[str, tuple[Callable[[Any], Any], int, Callable[[int], Any]]] = {
    "a sum": (lambda e: e + A[i], 5_000, lambda n: X * (n + 1)),
    "a sum from the right": (lambda e: A[i] + e, DEPTH - 2, lambda n: X * (n + 1)),
    "a product": (lambda e: e * A[i], 1_000, lambda n: X ** (n + 1)),
    "differences from the right": (lambda e: B[i] - e, (DEPTH - 2) // 2, lambda n: X if n % 2 == 0 else Y - X),
    "a polynomial": (lambda e: e * 0.5 + 1, (DEPTH - 2) // 2, lambda n: repeated(n + 1, X, lambda v: v * 0.5 + 1)),
    "extrema": (lambda e: builder.maximum(e, B[i]), DEPTH - 2, lambda n: np.maximum(X, Y)),
    "choices": (lambda e: builder.where(A[i] < 1, B[i], e), DEPTH - 3, lambda n: np.where(X < 1, Y, X)),
    "functions": (lambda e: builder.sqrt(e), DEPTH - 2, lambda n: repeated(n + 1, X, np.sqrt)),
    "conversions": (lambda e: e.astype(pk.f32), DEPTH - 2, lambda n: X.astype(np.float32)),
    "signs": (lambda e: -e, DEPTH - 2, lambda n: X * (-1) ** n),
    "powers": (lambda e: e**1.5, DEPTH - 2, lambda n: repeated(n + 1, X, lambda v: v**1.5)),
}


def built(name: str, count: int) -> Any:
    e, step = A[i], BUILT[name][0]
    for _ in range(count):
        e = step(e)
    return e


@pytest.mark.parametrize("name", BUILT)
def test_expressions_built_in_python_give_numpys_result(name: str) -> None:
    _, count, value = BUILT[name]
    op = deep(lambda: pk.op(C[i].set(built(name, count))))
    arrays = [{"A": X, "B": Y}[name] for name in op.program.inputs]
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(deep(lambda: op.compile(*arrays)(*arrays)), value(count), rtol=1e-5)
        assert deep(lambda: op.check(*arrays))


@pytest.mark.parametrize("name", [n for n in BUILT if n not in ("a sum", "a sum from the right", "a product")])
@pytest.mark.parametrize("beyond", [1, 5_000])
def test_expressions_built_in_python_have_the_same_limit(name: str, beyond: int) -> None:
    with pytest.raises(PolykerError, match="PK106"):
        deep(lambda: pk.op(C[i].set(built(name, BUILT[name][1] + beyond))))


def test_a_larger_expression_than_the_limit_is_refused() -> None:
    e = A[i]
    for _ in range(20):
        e = builder.maximum(e, e)
    with pytest.raises(PolykerError, match="PK107"):
        C[i].set(e)


def test_gathers_in_gathers_give_numpys_result_up_to_the_limit() -> None:
    turned, e = np.arange(N)[::-1].copy(), i
    for _ in range(DEPTH - 1):
        e = Q[e]
    op = pk.op(C[i].set(e))
    np.testing.assert_array_equal(deep(lambda: op.compile(turned)(turned)), turned if (DEPTH - 1) % 2 else np.arange(N))
    assert deep(lambda: op.check(turned))
    with pytest.raises(PolykerError, match="PK106"):
        C[i].set(Q[e])


def test_signs_around_all_terms_of_a_sum_give_numpys_result() -> None:
    matrix = np.random.default_rng(3).random((N, 40))
    op = pk.op(f"C[i] += {'-' * (DEPTH - 2)}A[i,j]")
    np.testing.assert_allclose(deep(lambda: op.compile(matrix)(matrix)), matrix.sum(1))


def test_conversions_between_types_count_as_operators() -> None:
    e, whole = A[i], np.arange(N)
    for _ in range(49):
        e = (e < B[i]) + 1
    op = pk.op(C[i].set(e))
    assert deep(lambda: op.check(whole, whole))
    for _ in range(20):
        e = (e < B[i]) + 1
    op = pk.op(C[i].set(e))
    with pytest.raises(PolykerError, match="PK409"):
        deep(lambda: op.compile(whole, whole))


def test_many_conditions_and_long_bounds_and_subscripts_give_numpys_result() -> None:
    matrix = np.random.default_rng(4).random((N, N))
    conditions = " and ".join(f"j <= i + {n}" for n in range(500))
    assert np.allclose(deep(lambda: pk.op(f"C[i] += A[i,j] where {conditions}")(matrix)), np.tril(matrix).sum(1))
    unequal = " and ".join(f"i != {3 * n + 1}" for n in range(60))
    line = np.arange(200.0)
    kept = np.setdiff1d(np.arange(200), 3 * np.arange(60) + 1)
    assert deep(lambda: pk.op(f"C += A[i] where {unequal}")(line)) == line[kept].sum()
    tangents = " and ".join(f"j >= {2 * n}*i - {n * n}" for n in range(40))
    above, parabola = np.random.default_rng(5).random((40, 500)), np.arange(40)[:, None] ** 2
    found = deep(lambda: pk.op(f"C[i] += A[i,j] where {tangents}")(above))
    assert np.allclose(found, np.where(np.arange(500) >= parabola, above, 0).sum(1))
    subscript = pk.op(f"C[i] = A[{'i + ' * 1_000}0] for i in 0:9")
    assert np.array_equal(deep(lambda: subscript(np.arange(9_000.0))), 1_000.0 * np.arange(9))
    halves, wanted = "(" * 62 + "i" + "//2 + 1)" * 62, np.arange(9)
    for _ in range(62):
        wanted = wanted // 2 + 1
    assert np.array_equal(deep(lambda: pk.op(f"C[i] = A[{halves}] for i in 0:9")(line)), wanted)


@pytest.mark.parametrize("count", [3, 31])
def test_loops_in_loops_up_to_the_limit_on_indices(count: int) -> None:
    lines = ["f(A: f64[N]) -> A:"]
    lines += ["    " * (d + 1) + f"for t{d} in 0:1:" for d in range(count)]
    lines.append("    " * (count + 1) + "A[i] = A[i] + 1")
    assert np.array_equal(deep(lambda: pk.op("\n".join(lines))(X)), X + 1)


def test_the_interpreter_takes_what_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "POLYKER_INTERPRET", "1")
    chain = pk.op(steps(256, "X[i]*0.5", "{T}[i]*1.01", "{T}[i] + 1"))
    wanted = repeated(256, X * 0.5, lambda v: v * 1.01, lambda v: v + 1)
    np.testing.assert_allclose(deep(lambda: chain(X)), wanted)
    quotients = pk.op(f"C[i] = X[i]{'/Y[i]' * 2_000}")
    with np.errstate(all="ignore"):
        deep(lambda: quotients(X, Y))


def test_symbolic_extents_beyond_what_numbers_hold_are_refused() -> None:
    e = i
    for _ in range(70):
        e = e // 2
    with pytest.raises(PolykerError, match=r"PK312|PK324"):
        pk.op(C[i].set(A[e])).compile(pk.f64["N"], specialize="never")
