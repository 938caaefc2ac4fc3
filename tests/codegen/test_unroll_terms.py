"""Terms taken several at a time: the same sums, one request a line, one loop for the rest."""

from collections.abc import Callable

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import For, If, KernelIR, KExpr, Load, LoopKind, Op, Prefetch, Store
from polyker.codegen.ir.verify import verify
from polyker.codegen.ir.walk import rebuild, statements, with_blocks
from polyker.codegen.llvm.jit.detect import target
from polyker.codegen.passes.simplify import unroll
from polyker.codegen.passes.unroll_terms import UNROLL_FACTOR, several_terms
from polyker.ir.dtypes import bool_
from polyker.structs import replace
from tests.codegen.interpret import run
from tests.codegen.matrix import SIZES, matrix_product
from tests.codegen.support import C, V, check_same, index

V3 = target("cpu:x86-64-v3")


def terms_loops(kernel: KernelIR) -> list[For]:
    """The serial loops around unrolled ones."""
    loops = [s for s in statements(kernel.body) if isinstance(s, For) and s.kind is LoopKind.SERIAL]
    return [s for s in loops if isinstance(s.body[-1], For) and s.body[-1].kind is LoopKind.UNROLL]


def with_sum(kernel: KernelIR, change: Callable[[For], For]) -> KernelIR:
    """The kernel with another loop over its terms."""

    def changed(block):
        loops = ((s, s.var) if isinstance(s, For) else (s, "") for s in block)
        return tuple(
            change(s) if var == "k" else replace(s, body=changed(s.body)) if hasattr(s, "body") else s
            for s, var in loops
        )

    return replace(kernel, body=changed(kernel.body))


def with_terms(kernel: KernelIR, lo: KExpr, hi: KExpr) -> KernelIR:
    """The kernel with other bounds of its loop over the terms."""
    return with_sum(kernel, lambda loop: replace(loop, lo=lo, hi=hi))


def asking(kernel: KernelIR, step: int) -> KernelIR:
    """The kernel with a request in each step for an element of A that lies `step` elements further on with each term."""
    ahead = Prefetch("A", (C(0), index("add", index("mul", step, "k"), 64)))
    return with_sum(kernel, lambda loop: replace(loop, body=(ahead, *loop.body)))


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("terms", [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 16, 31])
def test_sums_are_the_same(terms, fixed):
    kernel = matrix_product(3, 2, 8)
    if fixed:
        kernel = with_terms(kernel, C(0), C(terms))
    changed = several_terms(kernel, V3)
    verify(changed)
    rng = np.random.default_rng(terms)
    a, b = (rng.integers(-9, 10, s).astype(np.float32) for s in ((6, terms), (terms, 32)))
    sizes = dict(zip(SIZES, (6, 32, terms, terms, 32, 32), strict=True))
    results = []
    for k in (kernel, changed):
        arrays = {"A": a, "B": b, "C": np.zeros((6, 32), np.float32)}
        assert run(k, arrays, sizes) == 0
        results.append(arrays["C"])
    assert np.array_equal(*results)
    check_same(kernel, {"A": a, "B": b, "C": np.zeros((6, 32), np.float32)}, sizes, "cpu:x86-64-v3")
    taken = fixed and terms < 2 * UNROLL_FACTOR
    assert (changed == kernel) == taken


def test_a_range_of_terms_that_is_empty_the_other_way_round_stays_empty():
    kernel = with_terms(matrix_product(3, 2, 8), V("N"), V("K"))
    changed = several_terms(kernel, V3)
    assert changed != kernel
    sizes = dict(zip(SIZES, (3, 16, 5, 5, 16, 16), strict=True))
    arrays = {"A": np.ones((3, 5), np.float32), "B": np.ones((5, 16), np.float32), "C": np.ones((3, 16), np.float32)}
    assert run(changed, arrays, sizes) == 0
    assert not arrays["C"].any()


def test_whole_groups_come_first_and_the_rest_after():
    whole, rest = terms_loops(several_terms(with_terms(matrix_product(3, 4, 8), C(0), C(30)), V3))
    assert (whole.step, whole.trip, rest.lo, rest.trip) == (UNROLL_FACTOR, 7, C(28), 2)
    (alone,) = terms_loops(several_terms(with_terms(matrix_product(3, 4, 8), C(0), C(32)), V3))
    assert (alone.step, alone.trip) == (UNROLL_FACTOR, 8)


@pytest.mark.parametrize(("step", "times"), [(0, 1), (1, 1), (4, 1), (5, UNROLL_FACTOR), (64, UNROLL_FACTOR)])
def test_a_line_is_asked_for_once(step, times):
    kernel = asking(with_terms(matrix_product(3, 4, 8), C(0), C(32)), step)
    found = [s for s in statements(unroll(several_terms(kernel, V3)).body) if isinstance(s, Prefetch)]
    assert len(set(found)) == len(found) == times


def test_large_tiles_and_vectors_that_pass_in_halves_stay_as_they_are():
    kernel, wide = with_terms(matrix_product(6, 4, 16), C(0), C(512)), target("cpu:x86-64-v4")
    assert several_terms(kernel, replace(wide, native_bytes=32)) is kernel
    assert [s.step for s in terms_loops(several_terms(kernel, wide))] == [UNROLL_FACTOR // 2]
    costly = with_terms(matrix_product(8, 8, 8), C(0), C(512))
    assert several_terms(costly, V3) is costly


@pytest.mark.parametrize("axes", [(0, 2, 1), (1, 0, 2), (2, 0, 1)])
def test_a_tile_without_vectors_slides_over_nothing(axes):
    x = np.random.default_rng(0).normal(size=(2, 10, 10)).astype("f4")
    x = np.ascontiguousarray(x.transpose(axes)).transpose(np.argsort(axes))
    op, y = pk.op("L[j] += maximum(any[h](X[h,j+n,n-j+8] > 1), Y[n,j])"), np.zeros((2, 9), "f4")
    assert op.compile(x, y, target=replace(target("cpu:x86-64-v4"), native_bytes=32)).source("llvm")
    n, j = np.ogrid[:2, :9]
    np.testing.assert_array_equal(op(x, y), (x[:, j + n, n - j + 8] > 1).any(axis=0).sum(axis=0))


def test_a_loop_that_hardly_counts_is_not_repeated():
    large, small = (with_terms(matrix_product(3, 4, 8), C(0), C(n)) for n in (4096, 16))
    both = replace(large, body=(*large.body, *small.body))
    assert len(terms_loops(several_terms(both, V3))) == 2
    assert any(s.step == 1 for s in terms_loops(several_terms(both, V3)))


@pytest.mark.parametrize(("vectors", "taken"), [(3, False), (4, True)])
def test_a_tile_of_few_vectors_is_left(vectors, taken):
    kernel = with_terms(matrix_product(1, vectors, 8), C(0), C(64))
    assert (several_terms(kernel, V3) is not kernel) == taken


def test_tiles_in_both_branches_are_found():
    kernel, other = (with_terms(matrix_product(3, 4, 8), C(0), C(n)) for n in (64, 80))
    branch = If(Op("lt", (V("M"), C(3)), bool_), kernel.body, other.body)
    assert [s.step for s in terms_loops(several_terms(replace(kernel, body=(branch,)), V3))] == [
        UNROLL_FACTOR,
        UNROLL_FACTOR,
    ]


@pytest.mark.parametrize(
    ("stride", "rows", "steps"),
    [
        (
            C(4096),
            6,
            [UNROLL_FACTOR // 2],
        ),  # vectors at constant distances of each other: one pointer a term, and one a row
        (V("sj"), 6, [1]),  # one a vector and term: 14
        (V("sj"), 4, [UNROLL_FACTOR // 2]),  # their 16 sums leave registers for what the terms read
    ],
)
def test_tiles_with_more_pointers_than_registers_take_one_term_at_a_time(stride, rows, steps):
    """C += A[i, k] * B[j / 16, k, j % 16]: each vector of a step in a matrix of its own."""
    kernel = with_terms(matrix_product(rows, 4, 16), C(0), C(512))

    def moved(expr: KExpr) -> KExpr:
        if isinstance(expr, Load) and expr.buffer == "B":
            return replace(expr, indices=(V("jv"), V("k"), V("jl")))
        return rebuild(expr, moved)

    def changed(block):
        return tuple(
            replace(s, value=moved(s.value)) if isinstance(s, Store) else with_blocks(s, changed) for s in block
        )

    a, b, c = kernel.buffers
    parted = replace(b, shape=(C(4), V("K"), C(16)), strides=(stride, V("sb"), C(1)))
    found = replace(kernel, body=changed(kernel.body), buffers=(a, parted, c), integers=(*kernel.integers, "sj"))
    verify(found)
    for form in (found, unroll(found)):
        assert [s.step for s in terms_loops(several_terms(found, target("cpu:x86-64-v4")))] == steps
        loops = [s for s in statements(several_terms(form, target("cpu:x86-64-v4")).body) if isinstance(s, For)]
        assert any(s.step == steps[0] and s.var.startswith("k") for s in loops)
