"""What isl writes in an AST, as Kernel IR: the same value, and conditions of the type of conditions."""

from __future__ import annotations

import islpy as isl
import numpy as np
import pytest

from polyker.codegen.ir.kernel import Const, If, KernelIR, KExpr, Store
from polyker.codegen.ir.verify import verify
from polyker.codegen.ir.walk import operands
from polyker.codegen.lowering.expressions import condition_from_ast, from_ast
from polyker.ir.dtypes import bool_, i64
from polyker.poly.isl import context, int_val, read_pw_aff, read_set
from tests.codegen.interpret import run
from tests.codegen.support import vector_buffer

POINTS = [(n, m) for n in (-7, -1, 0, 3, 4, 11) for m in (-2, 0, 6)]


def number(value: int) -> isl.AstExpr:
    return isl.AstExpr.from_val(int_val(value))


def name(label: str) -> isl.AstExpr:
    return isl.AstExpr.from_id(isl.Id(label, context=context()))


def stored(value: KExpr, n: int, m: int) -> int:
    """Return the value, or for a condition whether it holds, as a verified kernel stores it."""
    store = Store("o", (Const(0),), Const(1) if value.dtype == bool_ else value)
    body = If(value, (store,), ()) if value.dtype == bool_ else store
    kernel = KernelIR("kernel", (vector_buffer("o", i64, 1),), ("n", "m"), (body,))
    verify(kernel)
    out = np.zeros(1, np.int64)
    run(kernel, {"o": out}, {"n": n, "m": m})
    return int(out[0])


@pytest.mark.parametrize(
    "text", ["floor(n/3) - m mod 4", "max(n, m, 4)", "-3n + 2*floor((n + m)/5)", "n - m mod 4", "7"]
)
@pytest.mark.parametrize("known", ["n >= 0 and m >= 0", "1 = 1"])
def test_values_are_those_of_isl(text, known):
    aff = read_pw_aff(f"[n, m] -> {{ [({text})] }}")
    context = read_set(f"[n, m] -> {{ : {known} }}")
    expr = from_ast(isl.AstBuild.from_context(context).expr_from_pw_aff(aff))
    for n, m in (p for p in POINTS if min(p) >= 0 or known == "1 = 1"):
        at = aff.intersect_params(read_set(f"[n, m] -> {{ : n = {n} and m = {m} }}"))
        assert stored(expr, n, m) == at.max_val().to_python()


@pytest.mark.parametrize(
    "text", ["n mod 3 = 1 or n < m", "(n >= 3 and m < 4) or (m mod 2 = 0 and n <= m)", "1 = 1", "1 = 0"]
)
def test_conditions_are_those_of_isl(text):
    holds = read_set(f"[n, m] -> {{ : {text} }}")
    expr = condition_from_ast(isl.AstBuild.from_context(read_set("[n, m] -> { : }")).expr_from_set(holds))
    assert expr.dtype == bool_
    for n, m in POINTS:
        inside = not holds.is_disjoint(read_set(f"[n, m] -> {{ : n = {n} and m = {m} }}"))
        assert stored(expr, n, m) == inside


@pytest.mark.parametrize(("truth", "holds"), [(0, False), (1, True)])
def test_truth_values_that_isl_writes_as_integers_are_conditions(truth, holds):
    # `n >= 2 || 0`, `1 && n < 2`, `0 ? 3 : n`
    either = from_ast(name("n").ge(number(2)).or_(number(truth)))
    both = from_ast(number(truth).and_(name("n").lt(number(2))))
    chooses = isl.AstBuild.from_context(read_set("[n] -> { : }")).expr_from_pw_aff(
        read_pw_aff("[n] -> { [(3)] : n <= 4; [(n)] : n > 4 }")
    )
    choice = from_ast(chooses.set_op_arg(0, number(truth)))
    for n in (1, 2):
        assert stored(either, n, 0) == (n >= 2 or holds)
        assert stored(both, n, 0) == (n < 2 and holds)
        assert stored(choice, n, 0) == (3 if holds else n)


def depth(expr: KExpr) -> int:
    return 1 + max(map(depth, operands(expr)), default=0)


@pytest.mark.parametrize("count", [3, 60, 200])
def test_many_conditions_are_a_low_tree(count):
    """isl makes a tower of them; m lies on or above a parabola's tangents."""
    tangents = [f"{2 * k}n - {k * k}" for k in range(count)]
    above = read_set("[n, m] -> { : " + " and ".join(f"m >= {t}" for t in tangents) + " }")
    condition = from_ast(isl.AstBuild.from_context(read_set("[n, m] -> { : }")).expr_from_set(above))
    assert depth(condition) < 16
    for n in (0, 1, 2, 7):
        wanted = max(2 * k * n - k * k for k in range(count))
        assert stored(condition, n, wanted) == 1
        assert stored(condition, n, wanted - 1) == 0
