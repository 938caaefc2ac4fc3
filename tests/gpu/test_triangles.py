"""Loops over blocks whose ranges depend on loops around them have as many blocks as they need."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import polyker as pk
from benchmarks.cases.programs import attention
from polyker.codegen.ir.greatest import greatest
from polyker.codegen.ir.kernel import Const, For, If, Launch, Load, LoopKind, Op, Var
from polyker.codegen.ir.polynomial import evaluate
from polyker.codegen.ir.walk import statements
from polyker.codegen.passes.gpu.launch import UNKNOWN_BLOCKS, launches
from polyker.structs import replace
from tests.artifacts import compiled_to
from tests.gpu.support import artifact_of, needs_compiler

ATTENTION = attention(True, h=16, q=1024, d=64).text
LOWER = """f(A: [N,K], B: [N,K]) -> C:
    L[i,j] += A[i,k] * B[j,k] for i in 0:N, j in 0:N where j <= i
    C[i] += L[i,j] for i in 0:N, j in 0:N where j <= i"""
REGIONS = {
    "j <= i": lambda i, j: j <= i,
    "i <= j": lambda i, j: i <= j,
    "j - 5 <= i and i <= j + 9": lambda i, j: (j - 5 <= i) & (i <= j + 9),
    "i + 10 < 3*j and j < 2*i + 7": lambda i, j: (i + 10 < 3 * j) & (j < 2 * i + 7),
    "j + i >= 40 and j <= i": lambda i, j: (j + i >= 40) & (j <= i),
}


def grids_of(artifact, **sizes):
    """Return the grids of a program's launches for values of its symbolic sizes."""
    values = {name: sizes[label] for name, label in artifact.typed.sizes}
    found = (s for s in statements(artifact.kernel.body) if isinstance(s, Launch))
    return [tuple(evaluate(g, values) for g in launch.grid) for launch in found]


def needed(block, values, axis):
    """Return how many iterations loops over blocks along an axis have at most, by running all that is around them."""
    most = 0
    for stmt in block:
        match stmt:
            case For(kind=LoopKind.BLOCK, body=body):
                places = range(evaluate(stmt.lo, values), evaluate(stmt.hi, values), stmt.step)
                most = max([most, len(places) * (stmt.axis == axis)])
                most = max([most, *(needed(body, {**values, stmt.var: n}, axis) for n in places)])
            case If(body=body):
                most = max(most, needed(body, values, axis))
            case _:
                pass
    return most


def test_causal_attention_has_as_many_blocks_as_scores():
    assert grids_of(artifact_of(ATTENTION, *[pk.f32[16, 1024, 64]] * 3, target="cuda:sm_90a"))[0] == (8, 8, 16)
    text = pk.op(ATTENTION).compile(*[pk.f32[16, 1024, 64]] * 3, target="cuda:sm_90a").source("cuda")
    # Each block has at most one tile, so there is no loop over tiles.
    assert "+= i32(gridDim" not in text


@pytest.mark.parametrize("size", [1, 64, 128, 1000, 1024, 1025])
def test_symbolic_sizes_say_how_many_blocks_a_triangle_has(size):
    artifact = artifact_of(ATTENTION, *[pk.f32[16, "N", 64]] * 3, target="cuda:sm_90a")
    assert grids_of(artifact, N=size)[0] == (-(-size // 64), -(-size // 128), 16)
    artifact = artifact_of(LOWER, pk.f32["N", 64], pk.f32["N", 64], target="cuda:sm_90a")
    assert grids_of(artifact, N=size)[0] == (-(-size // 128), -(-size // 128), 1)


@needs_compiler
@pytest.mark.parametrize("types", [None, ("N", "K")], ids=["fixed", "symbolic"])
def test_a_triangular_product_is_right_at_all_sizes(types):
    for n, k in (130, 16), (1, 3), (257, 40), (64, 17):
        a, b = (np.random.default_rng(s).integers(-4, 5, (n, k)).astype("f4") for s in (0, 1))
        given_types = (a, b) if types is None else (pk.f32[types],) * 2
        kernel = pk.op(LOWER).compile(*given_types, target="cuda-sim")
        np.testing.assert_array_equal(kernel(a, b), np.tril(a @ b.T).sum(1))


@needs_compiler
@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_parts_of_a_matrix_have_the_blocks_of_a_matrix_at_most(region, symbolic):
    text = f"f(X) -> X:\n    X[i,j] = 2 * X[i,j] where {region}"
    for shape in (70, 100), (33, 9), (1, 129):
        x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
        kernel = pk.op(text).compile(pk.f32["N", "M"] if symbolic else x, target="cuda-sim")
        for grid in grids_of(compiled_to(kernel), N=shape[0], M=shape[1]):
            assert grid[0] <= -(-shape[1] // 32) and grid[1] <= -(-shape[0] // 8)
        i, j = np.ogrid[: shape[0], : shape[1]]
        np.testing.assert_array_equal(kernel(x), np.where(REGIONS[region](i, j), 2 * x, x))


slope = st.sampled_from((-2, -1, 1, 2))
bound = st.tuples(slope, slope, st.integers(-30, 30))


@settings(max_examples=6, deadline=None)
@given(lines=st.lists(bound, min_size=1, max_size=3), sizes=st.tuples(st.integers(1, 90), st.integers(1, 90)))
def test_random_parts_of_a_matrix_have_the_blocks_that_they_need(lines, sizes):
    where = " and ".join(f"{a}*i + {b}*j <= {c}" for a, b, c in lines)
    text = f"f(X) -> X:\n    X[i,j] = 2 * X[i,j] where {where}"
    n, m = sizes
    for shape in (sizes, ("N", "M")):
        try:
            artifact = artifact_of(text, pk.f32[shape], target="cuda:sm_90a")
        except pk.PolykerError:
            assume(False)  # no element at all
        for launch in (s for s in statements(artifact.kernel.body) if isinstance(s, Launch)):
            values = dict.fromkeys(artifact.kernel.integers, n * m)
            values |= {name: {"N": n, "M": m}[label] for name, label in artifact.typed.sizes}
            for grid, axis, elements in zip(launch.grid, "xyz", (m * n, n, 1), strict=True):
                assert max(1, needed(launch.body, values, axis)) <= evaluate(grid, values) <= elements


variables = ("a", "b", "c")


def affine(names):
    """Return a strategy for expressions of some variables."""
    leaf = st.one_of(st.integers(-9, 9).map(Const), *(st.just(Var(n)) for n in names))

    def grown(inner):
        pairs = st.tuples(inner, inner)
        small = st.integers(2, 5).map(Const)
        return st.one_of(
            *(pairs.map(lambda p, op=op: Op(op, p)) for op in ("add", "sub", "minimum", "maximum")),
            *(st.tuples(inner, small).map(lambda p, op=op: Op(op, p)) for op in ("floordiv", "mod")),
            st.tuples(st.integers(-3, 3).map(Const), inner).map(lambda p: Op("mul", p)),
        )

    return st.recursive(leaf, grown, max_leaves=6)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), step=st.integers(1, 3), size=st.integers(0, 12))
def test_the_greatest_value_is_no_less_than_any(data, step, size):
    loops = []
    for n, name in enumerate(variables):
        lo, hi = (data.draw(affine(("n", *variables[:n]))) for _ in range(2))
        loops.append(For(name, lo, hi, (), step))
    expr = data.draw(affine(("n", *variables)))
    found = greatest(expr, loops, frozenset({"n"}), {})
    assume(found is not None)

    def values(n, scope):
        if n == len(loops):
            yield evaluate(expr, scope)
            return
        for place in range(evaluate(loops[n].lo, scope), evaluate(loops[n].hi, scope), step):
            yield from values(n + 1, {**scope, loops[n].var: place})

    assert all(v <= evaluate(found, {"n": size}) for v in values(0, {"n": size}))


@settings(max_examples=60, deadline=None)
@given(factors=st.tuples(*[st.integers(-5, 5)] * 3), size=st.integers(1, 9), slope=st.integers(0, 3))
def test_of_what_is_affine_it_is_the_greatest_itself(factors, size, slope):
    a, b, n = Var("a"), Var("b"), Var("n")
    loops = [
        For("a", Const(0), n, ()),
        For("b", Op("mul", (Const(slope), a)), Op("add", (Op("mul", (Const(slope), a)), Const(4))), ()),
    ]
    expr = Op("add", tuple(Op("mul", (Const(f), v)) for f, v in zip(factors, (a, b, n), strict=True)))
    most = max(
        evaluate(expr, {"a": x, "b": y, "n": size}) for x in range(size) for y in range(slope * x, slope * x + 4)
    )
    assert evaluate(greatest(expr, loops, frozenset({"n"}), {}), {"n": size}) == most


def test_blocks_that_memory_tells_of_are_some():
    artifact = artifact_of(LOWER, pk.f32[300, 64], pk.f32[300, 64], target="cuda:sm_90a")
    (launch, *_) = (s for s in statements(artifact.kernel.body) if isinstance(s, Launch))
    (outer,) = launch.body
    count = Load("L", (Var(outer.var),), pk.i64)

    def told(stmt):
        """Return loops whose inner one has as many iterations as memory says."""
        if stmt.axis == "x":
            return replace(stmt, hi=count, trip=None, lanes=0)
        return replace(stmt, body=tuple(map(told, stmt.body)))

    (found,) = launches(replace(artifact.kernel, body=(told(outer),))).body
    assert found.grid[0] == Const(UNKNOWN_BLOCKS)
