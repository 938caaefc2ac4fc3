"""Scans: recurrences and reductions over all terms up to an element, whose terms are dealt out to the threads of a block."""

import re

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda.build import cubin
from polyker.codegen.ir.kernel import Barrier
from polyker.codegen.llvm.jit.detect import target
from polyker.errors import InternalError, LegalityError
from polyker.ir.expr import Call
from polyker.ir.quasi_affine import mod
from polyker.poly.scop import build_scop
from polyker.schedule.legality.prove import prove
from polyker.schedule.tree.nodes import Band, Scope, Sequence
from polyker.structs import replace
from tests.artifacts import compiled_to, generated
from tests.codegen.interpret import run
from tests.gpu.sim_check import run_checked
from tests.gpu.support import needs_compiler, needs_nvcc
from tests.gpu.test_across import without
from tests.gpu.test_sanitizers import SANITIZERS

RECURRENCE = "f(X) -> S:\n    S[b,0] = X[b,0]\n    S[b,t] = {} for t in 1:{}"
PREFIX = "S[b,t] {} X[b,j] for t in 0:{} where j {} t"


def coded(*shape, dtype="i4"):
    """Return small integers that code their position."""
    return ((np.arange(int(np.prod(shape))) * 7 + 3) % 11 - 5).reshape(shape).astype(dtype)


def compiled(text, *types, **options):
    return pk.op(text).compile(*types, target="cuda-sim", **options)


def is_scan(kernel):
    return "threads scan" in generated(kernel, "schedule") and "pk_shfl_xor" in kernel.source("cuda")


@needs_compiler
@pytest.mark.parametrize("rows, terms", [(4, 33), (1, 64), (9, 257), (3, 2500)])
def test_threads_scan_the_rows_of_a_recurrence(rows, terms):
    x = coded(rows, terms)
    kernel = compiled(RECURRENCE.format("S[b,t-1] + X[b,t]", terms), x)
    assert is_scan(kernel)
    np.testing.assert_array_equal(kernel(x), x.cumsum(1))


OPERATORS = {
    "differences": ("S[b,t-1] - X[b,t]", "i4", lambda x: x[:, :1] * 2 - x.cumsum(1, dtype="i4")),
    "products": ("X[b,t] * S[b,t-1] * 3", "u2", lambda x: x.cumprod(1, dtype="u2") * 3 ** np.arange(300, dtype="u2")),
    "extrema": ("maximum(S[b,t-1], X[b,t])", "f4", lambda x: np.maximum.accumulate(x, 1)),
    "least": ("minimum(X[b,t], S[b,t-1])", "f8", lambda x: np.minimum.accumulate(x, 1)),
}


@needs_compiler
@pytest.mark.parametrize("case", OPERATORS)
def test_any_operator_whose_terms_may_be_grouped_is_scanned(case):
    step, dtype, want = OPERATORS[case]
    x = coded(3, 300, dtype=dtype)
    kernel = compiled(RECURRENCE.format(step, 300), x)
    assert is_scan(kernel)
    np.testing.assert_array_equal(kernel(x), want(x))


@needs_compiler
def test_a_recurrence_of_floats_is_grouped_only_where_rounding_may_differ():
    x = np.random.default_rng(0).normal(size=(3, 400)).astype("f4")
    text = RECURRENCE.format("S[b,t-1] + X[b,t]", 400)
    exact = compiled(text, x)
    assert not is_scan(exact)
    np.testing.assert_array_equal(exact(x), x.cumsum(1, dtype="f4"))
    reassociating = compiled(text, x, fastmath={"reassoc"})
    assert is_scan(reassociating)
    np.testing.assert_allclose(reassociating(x), x.cumsum(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "step", ["S[b,t-1] * X[b,t] + 1", "X[b,t] - S[b,t-1]", "S[b,t-1] + S[b,t-1] * X[b,t]", "S[b,t//2] + X[b,t]"]
)
def test_what_is_no_step_of_an_associative_operator_is_left_to_one_thread(step):
    kernel = compiled(RECURRENCE.format(step, 100), pk.i32[3, 100])
    assert not is_scan(kernel)


PREFIXES = {
    "sums": ("+=", "<=", "f4", lambda x: x.cumsum(1)),
    "sums before": ("+=", "<", "i8", lambda x: x.cumsum(1) - x),
    "products": ("*=", "<=", "f8", lambda x: x.cumprod(1)),
    "halves": ("+=", "<=", "f2", lambda x: x.astype("f4").cumsum(1)),
    "complex": ("+=", "<=", "c8", lambda x: x.cumsum(1)),
    "extrema": ("max=", "<=", "i2", lambda x: np.maximum.accumulate(x, 1)),
    "truth": ("any=", "<=", "bool", lambda x: np.logical_or.accumulate(x, 1)),
}


@needs_compiler
@pytest.mark.parametrize("case", PREFIXES)
def test_a_reduction_over_all_terms_up_to_a_element_is_a_scan(case):
    op, compare, dtype, want = PREFIXES[case]
    x = coded(5, 333) % 3 - 1 if op == "*=" else coded(5, 333)
    x = (x > 4 if dtype == "bool" else x).astype(dtype)
    kernel = compiled(PREFIX.format(op, 333, compare), x)
    assert is_scan(kernel)
    np.testing.assert_array_equal(kernel(x), want(x))


@needs_compiler
def test_terms_from_a_element_on_are_scanned_from_the_end():
    x = coded(5, 333)
    kernel = compiled(PREFIX.format("+=", 333, ">="), x)
    assert is_scan(kernel)
    np.testing.assert_array_equal(kernel(x), x[:, ::-1].cumsum(1)[:, ::-1])


@needs_compiler
def test_sums_over_windows_and_elements_of_their_own_are_no_scans():
    x = coded(3, 100)
    t, j = np.ogrid[:100, :100]
    for where, mask in (
        ("j <= t and j > t - 5", (j <= t) & (j > t - 5)),
        ("j >= t and j < t + 5", (j >= t) & (j < t + 5)),
    ):
        kernel = compiled(f"S[b,t] += X[b,j] for t in 0:100 where {where}", x)
        assert not is_scan(kernel)
        np.testing.assert_array_equal(kernel(x), x @ mask.T)
    kernel = compiled("S[b,t] += X[b,j] * Y[t] for t in 0:100 where j <= t", x, x[0])
    np.testing.assert_array_equal(kernel(x, x[0]), x.cumsum(1) * x[0])


@needs_compiler
@pytest.mark.parametrize("shape", [(20000,), (2, 17001)])
def test_long_rows_are_scanned_by_runs(shape):
    x = coded(*shape)
    rows = "b," * (len(shape) - 1)
    n = shape[-1]
    kernel = compiled(f"S[{rows}0] = X[{rows}0]; S[{rows}t] = S[{rows}t-1] + X[{rows}t] for t in 1:{n}", x)
    assert is_scan(kernel) and "runs of" in generated(kernel, "schedule")
    np.testing.assert_array_equal(kernel(x), x.cumsum(-1))


@needs_compiler
def test_long_rows_of_a_size_begin_with_what_pads_the_first_element():
    text = "f(X: i32[N]) -> S: i32[N]:\n    S[t] = S[t-1; pad=3] + X[t] for t in 0:N"
    kernel = compiled(text, pk.i32["N"])
    assert "runs of" in generated(kernel, "schedule")
    for n in (0, 1, 5, 40000):
        np.testing.assert_array_equal(kernel(coded(n)), 3 + coded(n).cumsum())


@needs_compiler
def test_one_symbolic_kernel_scans_rows_of_all_lengths_and_strides():
    kernel = compiled("f(X: i32[B,N]) -> S:\n    S[b,t] += X[b,j] for t in 0:N where j <= t", pk.i32["B", "N"])
    assert is_scan(kernel)
    for rows, terms in ((3, 0), (0, 4), (1, 1), (2, 513), (3, 2048)):
        np.testing.assert_array_equal(kernel(coded(rows, terms)), coded(rows, terms).cumsum(1))
    x = coded(7, 600)[::-2, 5::2]
    np.testing.assert_array_equal(kernel(x), x.cumsum(1))


@needs_compiler
def test_scans_go_backwards_and_along_any_index():
    x = coded(500)
    kernel = compiled("S[499] = X[499]; S[499-t] = S[499-t+1] + X[499-t] for t in 1:500", x)
    assert is_scan(kernel)
    np.testing.assert_array_equal(kernel(x), x[::-1].cumsum()[::-1])
    y = coded(3, 40, 5)
    kernel = compiled("S[b,0,c] = Y[b,0,c]; S[b,t,c] = S[b,t-1,c] + Y[b,t,c] for t in 1:40", y)
    assert is_scan(kernel)
    np.testing.assert_array_equal(kernel(y), y.cumsum(1))


COLUMNS = {
    "recurrence": (
        "S[0,b] = X[0,b]; S[t,b] = S[t-1,b] + X[t,b] for t in 1:1000",
        "i4",
        (1000, 40),
        lambda x: x.cumsum(0),
    ),
    "sums": ("S[t,b] += X[j,b] for t in 0:999 where j <= t", "f4", (999, 33), lambda x: x.cumsum(0)),
    "sums before": ("S[t,b] += X[j,b] for t in 0:999 where j < t", "f8", (999, 33), lambda x: x.cumsum(0) - x),
    "extrema": (
        "S[a,0,b] = X[a,0,b]; S[a,t,b] = maximum(S[a,t-1,b], X[a,t,b]) for t in 1:700",
        "f4",
        (3, 700, 40),
        lambda x: np.maximum.accumulate(x, 1),
    ),
}


@needs_compiler
@pytest.mark.parametrize("case", COLUMNS)
def test_rows_that_lie_side_by_side_are_cut_into_runs_of_a_thread_each(case):
    text, dtype, shape, want = COLUMNS[case]
    x = coded(*shape, dtype=dtype)
    kernel = compiled(text, x)
    assert "runs of" in generated(kernel, "schedule") and not is_scan(kernel)
    np.testing.assert_array_equal(kernel(x), want(x))


@needs_compiler
def test_one_symbolic_kernel_scans_columns_of_all_lengths():
    kernel = compiled("f(X: i32[N,40]) -> S:\n    S[t,b] += X[j,b] for t in 0:N where j <= t", pk.i32["N", 40])
    assert "runs of" in generated(kernel, "schedule")
    for n in (0, 1, 7, 129, 5000):
        np.testing.assert_array_equal(kernel(coded(n, 40)), coded(n, 40).cumsum(0))


@needs_compiler
def test_what_a_thread_stored_a_step_before_stays_in_a_register():
    x = coded(90, 200, dtype="f4")
    kernel = compiled("S[0,b] = X[0,b]; S[t,b] = 0.5 * S[t-1,b] + X[t,b] for t in 1:90", x)
    assert "carried" in kernel.source("cuda")
    want = x.copy()
    for t in range(1, 90):
        want[t] += np.float32(0.5) * want[t - 1]
    np.testing.assert_array_equal(kernel(x), want)


@needs_compiler
def test_a_scan_in_place_in_a_loop_of_the_text_is_right():
    x = coded(5, 100)
    text = "f(X: i32[5,100], n) -> X:\n    for s in 0:n:\n        X[b,t] = X[b,t-1] + X[b,t] for t in 1:100"
    kernel = compiled(text, x, n=3)
    assert is_scan(kernel)
    want = x.copy()
    for _ in range(3):
        want = want.cumsum(1, dtype="i4")
    np.testing.assert_array_equal(kernel(x.copy(), 3), want)


@needs_compiler
def test_a_long_scan_in_place_is_right():
    x = coded(20000)
    kernel = compiled("f(X: i32[20000]) -> X:\n    X[t] = X[t-1] + 2 * X[t] for t in 1:20000", x)
    assert "runs of" in generated(kernel, "schedule")
    np.testing.assert_array_equal(kernel(x.copy()), np.r_[x[:1], 2 * x[1:]].cumsum())


@needs_compiler
def test_sums_up_to_each_element_are_a_recurrence_of_a_thread_where_rows_are_many():
    text = "S[t,b] += X[j,b] for t in 0:70 where j <= t"
    x = coded(70, 300, dtype="f4")
    kernel = compiled(text, x)
    program, _ = compiled_to(kernel).scheduled
    assert not is_scan(kernel) and any(s.reads_own for s in program.statements())
    np.testing.assert_array_equal(kernel(x), x.cumsum(0))


def test_many_rows_that_lie_side_by_side_are_a_thread_each():
    text = "S[0,b] = X[0,b]; S[t,b] = S[t-1,b] + X[t,b] for t in 1:1000"
    kernel = pk.op(text).compile(pk.i32[1000, 1 << 17], target="cuda:sm_90a")
    assert not is_scan(kernel)


@needs_compiler
@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("shape", [(9, 70), (2, 2100)])
def test_scans_are_clean_under_the_sanitizers(shape, sanitizer):
    x = coded(*shape)
    kernel = compiled(PREFIX.format("+=", shape[1], "<="), x)
    rest = compiled_to(kernel).kernel.buffers[1:]
    memory = [x] + [np.full([s.value for s in b.shape], 77, b.dtype.numpy) for b in rest]
    found = run_checked(kernel.source("cuda"), memory, sanitizer=sanitizer)
    assert (found.report, found.status) == ("", 0)
    np.testing.assert_array_equal(found.arrays[1], x.cumsum(1))


@needs_compiler
def test_the_interpreter_finds_each_barrier_of_a_scan_that_is_left_out():
    x = coded(2, 1200)
    kernel = compiled_to(compiled(PREFIX.format("+=", 1200, "<="), x)).kernel

    def interpreted(changed):
        arrays = {b.name: np.zeros([s.value for s in b.shape], b.dtype.numpy) for b in kernel.buffers}
        arrays[kernel.buffers[0].name] = x
        assert run(changed, arrays, {}) == 0
        return arrays[kernel.buffers[1].name]

    np.testing.assert_array_equal(interpreted(kernel), x.cumsum(1))
    number, left = 0, -1
    while (found := without(kernel.body, Barrier, number))[1] < 0:
        body, left = found
        with pytest.raises(InternalError, match=r"race|undefined"):
            interpreted(replace(kernel, body=body))
        number += 1
    assert number == 3 and left < 0


def wider(tree):
    """Return a tree in which the threads of a scan are twice as many as its chunks have runs."""
    match tree:
        case Band(members=members, child=child):
            found = (
                replace(m, extent=64, times=tuple(map(doubled, m.times))) if m.extent == 32 else m for m in members
            )
            return Band(tuple(found), wider(child))
        case Sequence(children=children):
            return Sequence(tuple(replace(f, child=wider(f.child)) for f in children))
        case Scope(child=child):
            return replace(tree, child=wider(child))
        case _:
            return tree


def doubled(time):
    statement, expr = time
    return statement, mod(expr.args[0], 64) if isinstance(expr, Call) else expr


def test_threads_that_have_no_part_in_a_scan_are_refused():
    kernel = compiled(PREFIX.format("+=", 200, "<="), pk.i32[2, 200])
    program, schedule = compiled_to(kernel).scheduled
    scop = build_scop(program)
    prove(scop, schedule)
    with pytest.raises(LegalityError, match="not each has one"):
        prove(scop, replace(schedule, tree=wider(schedule.tree)))


def test_a_recurrence_that_a_person_deals_out_to_threads_is_refused():
    text = "S[0] = X[0]\nS[t] = S[t-1] + X[t] for t in 1:65"
    s = pk.op(text).schedule(pk.i32[65], target="cuda-sim", auto=False)["S#2"].tile(t=64)
    with pytest.raises(LegalityError, match="at the same time"):
        s["S#2"].map({"t.tile": "block.x", "t.point": "thread.x"})


@needs_nvcc
@pytest.mark.parametrize("arch", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("shape", [(1 << 24,), (4096, 1024)])
def test_nvcc_compiles_scans_without_spills(arch, shape):
    rows = "b," * (len(shape) - 1)
    text = f"S[{rows}t] += X[{rows}j] for t in 0:{shape[-1]} where j <= t"
    kernel = pk.op(text).compile(pk.f32[shape], target=arch)
    assert "threads scan" in generated(kernel, "schedule")
    _, used = cubin(kernel.source("cuda"), target(arch))
    assert used and all(r.spilled == 0 and r.registers <= 64 for r in used.values()), used


@needs_compiler
def test_what_many_scans_hand_on_has_no_types_name():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(9, 40)) + 1j * rng.normal(size=(9, 40))).astype("c8")
    text = "f(X) -> " + ", ".join(f"S{n}" for n in range(6)) + ":\n"
    text += "\n".join(f"    S{n}[t] += X[{n},j] for t in 0:40 where j <= t" for n in range(6))
    kernel = compiled(text, x)
    named = set(re.findall(r"const \w+ (\w+) =", kernel.source("cuda")))
    assert len(named) > 64 and "pk_shfl_xor" in kernel.source("cuda")
    for n, found in enumerate(kernel(x)):
        np.testing.assert_allclose(found, x[n].cumsum(), rtol=1e-4, atol=1e-5)
