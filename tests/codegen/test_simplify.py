"""Simplification: what becomes of index expressions, loops and branches."""

import itertools
from random import Random

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import Const, For, Guard, If, KernelIR, Let, Load, LoopKind, Op, Store, Var
from polyker.codegen.ir.polynomial import atom, expression, plus, polynomial, scaled, times
from polyker.codegen.ir.simplify_index import FALSE, TRUE, simplify_expression
from polyker.codegen.passes.simplify import simplify, trip_count, unroll
from polyker.ir.dtypes import bool_, f32
from tests.codegen.support import C, V, index, vector_buffer
from tests.codegen.test_llvm_memory import evaluate

A, B = vector_buffer("A", f32, writable=False), vector_buffer("B", f32)
SMALL = {"i": (0, 3), "j": (0, 15), "n": (1, None)}


def store(at):
    return Store("B", (at,), Const(1.0, f32))


def body_of(*body):
    return simplify(KernelIR("k", (A, B), ("N",), tuple(body))).body


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (index("add", index("add", "i", 3), index("mul", 2, "i"), -3), index("mul", 3, "i")),
        (index("sub", "i", "i"), C(0)),
        (index("mul", index("add", "i", 1), index("add", "i", -1)), index("add", index("mul", "i", "i"), -1)),
        (index("floordiv", index("add", index("mul", 16, "i"), "j"), 16), V("i")),
        (index("mod", index("add", index("mul", 16, "i"), "j"), 16), V("j")),
        (index("floordiv", index("add", index("mul", 8, "q"), 5), 8), V("q")),
        (index("mod", index("add", index("mul", 8, "q"), 5), 8), C(5)),
        (index("floordiv", "q", 1), V("q")),
        (index("floordiv", "q", 0), C(0)),
        (index("floordiv", -7, 2), C(-4)),
        (index("mod", -7, 4), C(1)),
        (index("minimum", "q", index("add", "q", 2)), V("q")),
        (index("maximum", 3, index("maximum", "q", 5)), index("maximum", 5, "q")),
        (index("minimum", index("add", "j", 1), 16), index("add", "j", 1)),
        (index("maximum", "n", 0), V("n")),
    ],
)
def test_an_index_expression_becomes_canonical(before, after):
    found = simplify_expression(before, SMALL)
    assert polynomial(found) == polynomial(after) or set(found.args) == set(after.args)


@pytest.mark.parametrize(
    ("op", "x", "y", "known"),
    [
        ("lt", "j", 16, True), ("lt", "j", 15, None), ("ge", "j", 0, True), ("le", "i", -1, False),
        ("eq", "i", "i", True), ("ne", "j", 16, True), ("gt", index("add", "q", 1), "q", True), ("lt", "q", "r", None),
    ],
)  # fmt: skip
def test_a_comparison_is_decided_by_ranges(op, x, y, known):
    expr = Op(op, index("add", x, y).args, bool_)
    assert simplify_expression(expr, SMALL) == (expr if known is None else TRUE if known else FALSE)


def test_conditions_fold():
    lt = Op("lt", (V("q"), V("r")), bool_)
    assert simplify_expression(Op("and", (TRUE, lt, lt), bool_), {}) == lt
    assert simplify_expression(Op("or", (TRUE, lt), bool_), {}) == TRUE
    assert simplify_expression(Op("not", (lt,), bool_), {}) == Op("ge", (V("q"), V("r")), bool_)


def test_a_loop_that_never_runs_goes():
    assert body_of(For("i", C(3), C(3), (store(V("i")),))) == ()
    assert body_of(For("i", V("N"), index("add", "N", -2), (store(V("i")),))) == ()


def test_a_loop_that_runs_once_becomes_its_body():
    once = For("i", V("N"), index("add", "N", 1), (store(V("i")),))
    assert body_of(once) == (store(V("N")),)


def test_bindings_of_inlined_bodies_keep_apart():
    def once(k):
        return For(f"i{k}", C(k), C(k + 1), (Let("t", index("add", f"i{k}", "N")), store(V("t"))))

    names = [s.name for s in body_of(once(0), once(1)) if isinstance(s, Let)]
    assert len(set(names)) == 2


def test_a_condition_that_always_holds_goes():
    inside = If(Op("lt", (V("i"), C(4)), bool_), (store(V("i")),))
    (loop,) = body_of(For("i", C(0), C(4), (inside,)))
    assert loop.body == (store(V("i")),)
    assert loop.trip == 4


def test_a_guard_that_does_not_depend_on_the_loop_leaves_it():
    guard = Guard(Op("lt", (V("N"), C(9)), bool_), 2)
    loop = For("i", C(0), V("N"), (guard, store(V("i"))))
    first, rest = body_of(loop)
    assert first == If(Op("lt", (C(0), V("N")), bool_), (guard,))
    assert rest.body == (store(V("i")),)


def test_a_guard_that_reads_what_the_kernel_writes_stays():
    guard = Guard(Op("lt", (Load("B", (C(0),), f32), Const(9.0, f32)), bool_), 2)
    (loop,) = body_of(For("i", C(0), V("N"), (guard, store(V("i")))))
    assert loop.body[0] == guard


def test_unrolling_repeats_the_body_or_tests_each_copy():
    exact = For("i", V("N"), index("add", "N", 3), (store(V("i")),), kind=LoopKind.UNROLL, lanes=3)
    copies = unroll(KernelIR("k", (A, B), ("N",), (exact,))).body
    assert [polynomial(s.indices[0]) for s in copies] == [polynomial(index("add", "N", k)) for k in range(3)]
    tested = For("i", C(0), V("N"), (store(V("i")),), kind=LoopKind.UNROLL, lanes=2, step=2)
    copies = unroll(KernelIR("k", (A, B), ("N",), (tested,))).body
    assert [c.condition for c in copies] == [Op("lt", (C(k), V("N")), bool_) for k in (0, 2)]


def test_trip_counts_round_up():
    assert trip_count(For("i", C(0), C(7), (), 3)) == 3
    assert trip_count(For("i", V("N"), V("M"), ())) is None


def test_polynomials_are_a_ring():
    rng = Random(2)

    def some():
        expr = index("add", index("mul", rng.randint(-3, 3), rng.choice("xyz")), rng.randint(-5, 5))
        return rng.choice([expr, index("mul", expr, rng.choice("xyz")), index("neg", expr)])

    for _ in range(300):
        a, b, c = polynomial(some()), polynomial(some()), polynomial(some())
        assert times(a, plus(b, c)) == plus(times(a, b), times(a, c))
        assert plus(a, scaled(a, -1)) == {}
        assert polynomial(expression(a)) == a
    assert times(atom(Var("x")), {}) == {}


def test_simplified_expressions_keep_their_value():
    rng = Random(3)

    def some(depth):
        if depth == 0:
            return rng.choice([V("i"), V("j"), V("n"), C(rng.randint(-20, 20))])
        op = rng.choice(["add", "sub", "mul", "floordiv", "mod", "minimum", "maximum", "neg", "abs"])
        if op in ("floordiv", "mod"):
            return index(op, some(depth - 1), rng.choice([-3, 1, 2, 3, 4, 16, 0]))
        return index(op, *(some(depth - 1) for _ in range(1 if op in ("neg", "abs") else 2)))

    for _ in range(400):
        x, y = some(3), some(2)
        tests = [Op(op, (x, y), bool_) for op in ("lt", "le", "eq", "ne", "ge", "gt")]
        for expr in (x, *tests):
            found = simplify_expression(expr, SMALL)
            for i, j, n in itertools.product((0, 2, 3), (0, 7, 15), (1, 9)):
                env = {"i": i, "j": j, "n": n}
                with np.errstate(divide="ignore"):
                    assert evaluate(found, env) == evaluate(expr, env), (expr, found, env)


@pytest.mark.parametrize("within", [(0, 7), (0, 8), (-1, 6), (3, 9)])
@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_a_vector_within_a_row_divides_only_if_it_stays_there(op, within):
    expr = index(op, index("add", index("mul", 8, "q"), "r"), 32)
    found = simplify_expression(expr, {"q": (0, 9), "r": within})
    for q, r in itertools.product(range(10), range(within[0], within[1] + 1)):
        assert evaluate(found, {"q": q, "r": r}) == evaluate(expr, {"q": q, "r": r})


def test_how_far_a_streamed_loop_runs_is_not_known_from_its_vectors():
    at = index("mod", "j", 100)
    loop = For("j", C(0), V("N"), (Store("B", (V("j"),), Load("A", (at,), f32)),), kind=LoopKind.STREAM, lanes=64)
    (found,) = body_of(loop)
    assert found.body[0].value.indices == (at,)


@pytest.mark.parametrize("size", [9, 13, 17, 30])
def test_branches_that_no_copy_takes_are_left_out(size: int) -> None:
    # In the tile's copies above the diagonal a vector loop would have more iterations than lanes.
    kernel = pk.op("N[e,b] += 1 for e in 0:n, b in 0:e+1, d in 0:e+1", n=size)
    rows, columns = np.indices((size, size))
    np.testing.assert_array_equal(kernel(), np.where(columns <= rows, rows + 1, 0))


def test_loops_that_several_tests_together_keep_from_running_are_left_out() -> None:
    X = np.arange(21.0)
    kernel = pk.op("S[i] = sum[k](X[k] where k != i) for i in 0:21").compile(X=X, threads=1)
    np.testing.assert_array_equal(kernel(X), X.sum() - X)


def test_blocks_of_a_triangles_rows_have_no_more_iterations_than_lanes() -> None:
    X = (np.arange(2000) % 7).astype(np.float32)
    kernel = pk.op("S[t] += X[j] for t in 0:2000 where j <= t").compile(X=X, threads=1, specialize="never")
    np.testing.assert_array_equal(kernel(X), np.cumsum(X))


def test_columns_within_two_borders_have_no_more_iterations_than_lanes() -> None:
    X = (np.arange(10000) % 7).astype("u2").reshape(100, 100)
    kernel = pk.op("S[t,u] += X[j,u] * X[t,j] for t in 0:100 where j > t and u >= j").compile(X=X, threads=1)
    np.testing.assert_array_equal(kernel(X), np.triu(X, 1) @ np.triu(X))
