"""Random programs of rows, on a machine with tiny caches: what runs together gives what the plain interpreter gives."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.ir.printing import print_kernel
from polyker.codegen.llvm.jit.detect import target
from polyker.einsum_frontend import parse
from polyker.errors import LegalityError, failure
from polyker.ir.quasi_affine import indices_of
from polyker.machine.model import Cache, Target
from polyker.pipeline import threads as lowering
from polyker.poly.scop import Scop
from polyker.reference import interpret
from polyker.schedule.fusion import cost as fuse_cost
from polyker.schedule.legality.prove import BROKEN, prove
from polyker.schedule.nests import loop_order as order
from polyker.schedule.tree.nodes import Band, Promotion, ScheduleTree, Scope, Sequence, loops
from polyker.structs import replace
from tests.artifacts import generated
from tests.schedule.support import SMALL, assert_same, case, lowered

TINY = replace(target(SMALL), caches=(Cache(1024), Cache(2048), Cache(4096)))

# Statements over a matrix P (the one before) and X, that give the next matrix, `{o}`; `{s}` is a vector of the rows.
STEPS = (
    "{o}[i,j] = {p}[i,j] * 2 + X[i,j]",
    "{s}[i] += {p}[i,j];  {o}[i,j] = {p}[i,j] - {s}[i]",
    "{s}[i] max= {p}[i,j] * X[i,j];  {o}[i,j] = minimum({s}[i], X[i,j])",
    "{o}[i,j] = {p}[i,j] - max[k]({p}[i,k]) + min[k](X[i,k])",
    "{s}[i] = {p}[i,0];  {o}[i,j] = {s}[i] + X[i,j]",
    "{o}[i,j] = {p}[i,j] + {p}[i-1,j; pad=1] - {p}[i,j-1; pad=edge]",
    "{o}[i,j] = {p}[{n}-1-i,j] + X[i,j]",
    "{o}[i,j] = {p}[i,j] - {p}[i+1,j; pad=1] + 3 * {p}[i+3,j; pad=0]",
    "{o}[i,j] += {p}[i+r,j; pad=0] * X[i,r]  for r in 0:2, i in 0:{n}",
    "{o}[i,j] = minimum({p}[i+1,j+1; pad=2], X[i,j]) + {p}[i-2,j; pad=0]",
    "{s}[i] += X[i,j] where j <= i;  {o}[i,j] = {s}[i] * {p}[i,j]",
    "{o}[i,j] = X[i,j]; {o}[i,j] += {p}[i,k] for k in 0:2, j in 0:{m}",
    "{s}[j] += {p}[i,j];  {o}[i,j] = {p}[i,j] + {s}[j]",
    "{o}[i,0] = {p}[i,0];  {o}[i,j] = minimum({o}[i,j-1], {p}[i,j])  for j in 1:{m}",
)


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, str]:
    n, m = draw(st.sampled_from([1, 2, 5, 16, 37])), draw(st.sampled_from([2, 3, 4, 8, 21, 64]))
    lines, before = [], "X"
    for number, step in enumerate(draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=4))):
        lines.append(step.format(o=f"T{number}", s=f"S{number}", p=before, n=n, m=m))
        before = f"T{number}"
    if draw(st.booleans()):
        lines.append(f"R[i] = {before}[i,0] + 1")
        lines.append(f"Q[i,j] = {before}[i,j]")
    return ";  ".join(lines), f"{draw(st.sampled_from(['f32', 'f64', 'i32']))}[{n},{m}]"


@given(programs(), st.booleans())
@settings(max_examples=6, deadline=None)
def test_statements_that_run_together_keep_their_values(program: tuple[str, str], every: bool) -> None:
    found = case(program[0], X=program[1])
    with pytest.MonkeyPatch.context() as patch:
        if every:
            patch.setattr(fuse_cost, "GAIN_OF_KIND", -1e9)  # whatever can run together does
        scop, schedule = found.automatic(TINY)
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=True)


@pytest.mark.parametrize("read", ["T[i+r-1,j; pad=0]", "T[i+r,j; pad=0]", "T[2*i+r-1,j; pad=0]"])
@pytest.mark.parametrize("rows", [5, 16])
def test_what_a_common_loop_writes_is_not_copied_with_its_padding_before_it(rows: int, read: str) -> None:
    text = f"T[i,j] = X[i,j] * 2;  O[i,j] += {read} * X[i,r]  for r in 0:4, i in 0:{rows}"
    found = case(text, X=f"f32[{rows},64]")
    scop, schedule = found.automatic(TINY)
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=True)


def together(text: str, machine: Target = TINY, **types: str | int) -> list[str]:
    """Return the notes of what runs together, as the statements' targets."""
    found = case(text, **types)
    scop, schedule = found.automatic(machine)
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=True)
    names = {s.name: scop.program.tensor(s.target).label for s in found.flat.statements()}
    lists = [n.split(": run together")[0].split(", ") for n in map(str, schedule.notes) if "run together" in n]
    return [" ".join(names.get(s, "value") for s in found_list) for found_list in lists]


SOFTMAX = "e[n,c] = exp(X[n,c] - max[j](X[n,j]));  O[n,c] = e[n,c] / sum[j](e[n,j])"


def softmax_like(text: str) -> str:
    """Integers in place of functions that round."""
    return text.replace("exp(", "abs(").replace("/ sum", "- sum")


def test_a_softmax_is_one_loop_over_rows() -> None:
    assert together(softmax_like(SOFTMAX), X="f32[40,48]") == ["max e sum O"]


def test_rows_that_are_short_run_together_by_blocks_of_whole_vectors() -> None:
    found = case(softmax_like(SOFTMAX), X="f32[2000,2]")
    scop, schedule = found.automatic(TINY)
    assert_same(found, scop, schedule, native=True)
    outer = next(iter(loops(schedule.tree)))
    assert outer.label.endswith(".rows")


def promotions(schedule: ScheduleTree) -> list[Promotion]:
    found: list[Promotion] = []
    stack = [schedule.tree]
    while stack:
        node = stack.pop()
        found += node.promotions if isinstance(node, Scope) else ()
        stack += [f.child for f in node.children] if isinstance(node, Sequence) else []
        stack += [node.child] if isinstance(node, (Band, Scope)) else []
    return found


def test_a_part_of_what_no_cache_holds_may_have_half_of_the_last_one() -> None:
    found = case(softmax_like(SOFTMAX), X="f32[4,520]")
    scop, schedule = found.automatic(replace(TINY, caches=(Cache(1024), Cache(2048), Cache(1 << 13))))
    assert_same(found, scop, schedule, native=True)
    sizes = [4 * p.elements() for p in promotions(schedule)]
    assert any(2048 < size <= 1 << 13 for size in sizes)
    _, far = found.automatic(replace(TINY, caches=(Cache(1024), Cache(2048), Cache(1 << 12))))
    assert not any(size > 2048 for size in (4 * p.elements() for p in promotions(far)))


def test_statements_of_small_arrays_run_one_after_another() -> None:
    assert together(softmax_like(SOFTMAX), replace(TINY, caches=(Cache(1 << 20),)), X="f32[40,48]") == []


def test_values_of_a_few_rows_live_in_a_buffer() -> None:
    found = case(softmax_like(SOFTMAX), X="f32[40,48]")
    scop, schedule = found.automatic(TINY)
    scope = schedule.tree.child  # type: ignore[union-attr]
    assert isinstance(scope, Scope)
    held = {scop.program.tensor(p.tensor).label: p.modulo for p in scope.promotions}
    rows = held["e"][0]
    assert held == {"e": (rows, 48), "max": (rows,), "sum": (rows,)}
    assert rows < 40


def test_what_a_later_iteration_reads_is_no_buffer_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "T[i,j] = X[i,j] + 1;  O[i,j] = T[i,j] + T[i-1,j; pad=0]"
    monkeypatch.setattr(fuse_cost, "GAIN_OF_KIND", -1e9)
    found = case(text, X="f32[60,48]")
    scop, schedule = found.automatic(TINY)
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=True)
    assert not isinstance(schedule.tree.child, Scope)  # type: ignore[union-attr]
    assert any("run together" in n for n in map(str, schedule.notes))


@pytest.mark.parametrize(
    "text",
    [
        "T[i,j] = X[i,j] + 1;  O[i,j] = T[59-i,47-j] + T[i,j]",
        "T[i,j] = X[i,j] + 1;  S += T[i,j];  O[i,j] = T[i,j] - S",
    ],
)
def test_what_needs_a_later_iteration_does_not_share_its_loop(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_cost, "GAIN_OF_KIND", -1e9)
    assert not any("T O" in t for t in together(text, X="f32[60,48]"))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("T[i,j] = X[i,j] + 1;  O[i,j] = T[i,j] + T[i+1,j; pad=0] + T[i,j+1; pad=0]", 2),
        ("T[i,j] = X[i,j] + 1;  O[i,j] = T[i+3,j] - T[i,j]  for i in 0:56", 4),
        ("T[i,j] = X[i,j] * 3;  O[i,j] += T[i+r,j]  for r in 0:5", 5),
        (
            "T[i,j] = X[i,j] + 1;  U[i,j] = T[i+2,j] + X[i,j]  for i in 0:58;  O[i,j] = T[i,j] - U[i+1,j]  for i in 0:56",
            4,
        ),
    ],
)
def test_rows_that_a_window_reads_wait_in_a_buffer_as_high_as_it(
    text: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuse_cost, "GAIN_OF_KIND", -1e9)
    found = case(text, X="f32[60,48]")
    scop, schedule = found.automatic(TINY)
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=True)
    assert isinstance(schedule.tree, Scope)
    held = {scop.program.tensor(p.tensor).label: p.modulo[0] for p in schedule.tree.promotions}
    step = loops(schedule.tree).__next__().time("S1").args if "rows" in next(loops(schedule.tree)).label else None
    block = int(step[1].value) if step else 1  # type: ignore[union-attr]
    assert held["T"] == rows + block - 1


def test_a_window_s_buffer_that_is_a_row_short_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_cost, "GAIN_OF_KIND", -1e9)
    scop, schedule = case("T[i,j] = X[i,j] + 1;  O[i,j] = T[i,j] + T[i+2,j; pad=0]", X="f32[60,48]").automatic(TINY)
    scope = schedule.tree
    assert isinstance(scope, Scope)
    (held,) = scope.promotions
    short = replace(scope, promotions=(replace(held, modulo=(held.modulo[0] - 1, *held.modulo[1:])),))
    with pytest.raises(LegalityError, match="two elements that they use share a place"):
        prove(scop, ScheduleTree(short))


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("s[i] += X[i,j];  q[i] += X[i,j] * X[i,j]", True),
        ("s[i] += X[i,j];  t[i] = s[i] + 1;  q[i] max= X[i,j]", True),
        ("s[i] += X[i,j];  q[i] += X[i,j] * s[i]", False),  # needs all of s
        ("s[i] += X[i,j];  q[i] += Y[i,j]", False),  # nothing to share
    ],
)
def test_sums_of_what_is_read_once(text: str, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_cost, "GAIN_OF_KIND", -1e9)
    found = case(text, X="f32[60,96]", **({"Y": "f32[60,96]"} if "Y" in text else {}))
    scop, schedule = found.automatic(replace(TINY, vector_registers=32))
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=True)
    terms = {i for s in found.flat.statements() for i in s.reduced}
    both = [m for m in loops(schedule.tree) if len({i for _, t in m.times for i in indices_of(t)} & terms) > 1]
    assert bool(both) == shared


def test_a_product_of_matrices_keeps_its_tiles() -> None:
    text = "S[q,k] += Q[q,d] * K[d,k];  P[q,k] = S[q,k] - max[j](S[q,j]);  O[q,k] = P[q,k] * P[q,k] + min[j](P[q,j])"
    assert together(text, Q="f32[48,32]", K="f32[32,64]") == ["max P min O"]


def test_no_common_loop_reads_a_part_of_each_cache_line() -> None:
    # In one iteration over k, which both statements have, each line of X would be read for one element.
    text = "T[i,k,r] += X[i,j,k] * B[j,r];  O[k,r] += T[i,k,r] * A[i,r]"
    far = case(text, X="f32[200,180,220]", B="f32[180,32]", A="f32[200,32]").automatic(target("cpu:x86-64-v4"))[1]
    assert not any("run together" in n and " by 1;" in n for n in map(str, far.notes))
    text = text.replace("X[i,j,k]", "X[k,i,j]")
    near = case(text, X="f32[220,200,180]", B="f32[180,32]", A="f32[200,32]").automatic(target("cpu:x86-64-v4"))[1]
    assert any("run together: loops i1 by" in n for n in map(str, near.notes))


def test_what_no_row_needs_is_computed_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_cost, "GAIN_OF_KIND", -1e9)
    text = "c += g[j];  m[i] += X[i,j];  d max= g[j];  O[i,j] = X[i,j] * m[i] + c * d"
    assert together(text, X="f32[10,400]", g="f32[400]") == ["m O"]


@pytest.mark.parametrize("rows", ["S[i,j] + X[i,0,j]", "S[29-i,j] + X[i,0,j]"])
def test_a_start_over_more_elements_than_the_terms_reach_is_kept_apart_from_other_rows(
    rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuse_cost, "GAIN_OF_KIND", -1e9)
    together(f"S[i,j] += X[i,k,j] for k in 0:0;  G[j,i] = {rows}", X="f32[30,4,20]")


def test_the_start_of_a_sum_by_blocks_stays_in_the_common_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "MAX_ACCUMULATED_TERMS", 4)
    text = "m[n] max= X[n,c];  e[n,c] = abs(X[n,c] - m[n]);  s[n] += e[n,c];  O[n,c] = e[n,c] - s[n]"
    assert together(text, X="f32[40,200]") == ["m e s O"]


def test_buffers_of_rows_hold_whole_tiles_so_that_their_elements_need_no_remainder() -> None:
    scop, schedule = case(softmax_like(SOFTMAX), X="f32[40,45]").automatic(TINY)
    text = print_kernel(lowered(scop, schedule).kernel)
    assert "t1_p0[" in text
    assert "%" not in text


def test_an_illegal_common_loop_gives_way_to_a_vector_nest_for_each_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    def prove_once(scop: Scop, schedule: ScheduleTree) -> None:
        if any("run together" in n for n in map(str, schedule.notes)):
            raise failure(BROKEN, kind="flow", tensor="T", source="S0", sink="S1", element="T[0]")
        prove(scop, schedule)

    monkeypatch.setattr(lowering, "prove", prove_once)
    X = np.arange(600 * 700, dtype="f4").reshape(600, 700) % 7
    kernel = pk.op(softmax_like(SOFTMAX)).compile(X)
    shown = generated(kernel, "schedule")
    assert "a plainer schedule is taken" in shown
    assert "vectors of" in shown and "run together" not in shown
    e = abs(X - X.max(1, keepdims=True))
    assert np.array_equal(kernel(X), e - e.sum(1, keepdims=True))


def test_statements_without_instances_share_no_loop() -> None:
    text = "f(A: f32[N], T) -> A:\n    for t in 0:T:\n        B[i] = A[i] for i in 1:N-1\n        A[i] = B[i] for i in 1:N-1"
    found = case(text, A="f32[4]", T=0)
    scop, schedule = found.automatic(TINY)
    assert_same(found, scop, schedule, native=True)


def test_a_tile_is_chosen_once_for_a_statement_in_the_same_loops(monkeypatch):
    from polyker.schedule.fusion import cost as fuse_cost

    asked = []

    def counting(measured, free, reduced, target):
        asked.append((measured.statement, tuple(free), measured.invariant))
        return choose(measured, free, reduced, target)

    choose = fuse_cost.choose
    monkeypatch.setattr(fuse_cost, "choose", counting)
    train = pk.op("T[a,b,c,d] += A[a,x] * B[x,b,y] * C[y,c,z] * D[z,d]")
    train.compile(pk.f32[19, 8], pk.f32[8, 23, 9], pk.f32[9, 17, 8], pk.f32[8, 21])
    assert len(asked) == len(set(asked)) > 3


def test_sizes_that_the_call_refuses_ask_for_no_larger_buffer() -> None:
    # With more than 40 rows of E the subscript 39-y would be negative: the call checks that.
    kernel = pk.op("F[c,q,39-y] = Z[c+y] / E[y,c,q]\nO[y,q,j] = F[y,j,q]").compile(
        E=pk.f32["A", "B", 16], Z=pk.f64["N"], threads=1, target="cpu:x86-64-v3"
    )
    assert " with " in generated(kernel, "schedule")
    assert "plainer" not in generated(kernel, "schedule")
    E, Z = np.ones((40, 4, 16), "f4"), np.arange(60.0)
    reversed_windows = np.stack([Z[c : c + 40][::-1] for c in range(4)])
    np.testing.assert_array_equal(kernel(E=E, Z=Z), np.repeat(reversed_windows[:, :, None], 16, axis=2))


def test_what_a_sum_of_a_fusion_without_loops_begins_with_stays_with_it() -> None:
    # Both sums begin with elements of whole tiles that are set apart, before the buffer that the second result is held in.
    text = """
    S[x,j,y] += L[x,y%4,w] * any[n]((V[n] == argmin[d in 0:1](H[x+d] * G[d]))) for y in 0:3, j in 0:y
    O[x,l,a] += -(L[x,a%4,z] * any[j]((V[j] == argmin[s in 0:1](H[x+s] * G[s])))) for a in 0:3, l in 0:a
    """
    types = {"L": pk.f32[4, 6, 2], "V": pk.f32[2], "H": pk.f32[5], "G": pk.f32[1]}
    kernel = pk.op(text).compile(**types, target="cpu:x86-64-v4", threads=1)
    assert "plainer" not in generated(kernel, "schedule")


@pytest.mark.parametrize(("rows", "together"), [(400, False), (4, True)])
def test_rows_in_memory_are_not_walked_by_short_pieces(rows: int, together: bool) -> None:
    """Running sums down columns: 64 columns at a time would stay in registers, and jump to another page for each line or two."""
    text = "S[0,b] = X[0,b]\nS[t,b] = S[t-1,b] + X[t,b] for t in 1:T"
    _, schedule = case(text, X=f"f32[{rows},20000]", T=rows).automatic(target(SMALL))
    assert any("run together" in note for note in map(str, schedule.notes)) == together


def test_where_no_part_sets_a_thread_s_buffer_the_kernel_still_has_one() -> None:
    # Where N has no extent nothing is written to L beyond U's rows: what isl makes of those extents only reads.
    text = "L: f32[13,2]; L[x,t] = U[x,t]; L[a,r] = N[r,r,a,1-r] for a in 0:12; D[e,b] = e * L[e,b]"
    U, N = np.ones((13, 2), "f4"), np.arange(156, dtype="f4").reshape(2, 2, 13, 3)
    kernel = pk.op(text).compile(U=U, N=N, specialize="never", threads=2)
    rows = np.ones((13, 2))
    rows[:12] = [[N[r, r, a, 1 - r] for r in range(2)] for a in range(12)]
    np.testing.assert_array_equal(kernel(U=U, N=N), np.arange(13)[:, None] * rows)


def test_a_temporary_without_elements_is_held_in_no_buffer() -> None:
    text = """f(A: f64[2], T: f64[a,6,b], I: f64[b], C: f64[c], L: f64[2,7]) -> S:
    S[y,n,k] = logsumexp[s](expm1(logsumexp[m](A[1] + T[m,3*y+n+1,3*n]) * I[n+s] + C[s]) where s + 2 <= y) - L[n,k] for y in 0:2
    """
    types = {"A": pk.f64[2], "T": pk.f64[1, 6, 4], "I": pk.f64[4], "C": pk.f64[3], "L": pk.f64[2, 7]}
    kernel = pk.op(text).compile(**types, target="cpu:x86-64-v3", threads=1)
    assert "plainer" not in generated(kernel, "schedule")
    found = kernel(*(np.ones(t.shape) for t in types.values()))
    assert (found == -np.inf).all()


def test_what_shares_loops_inside_the_text_s_own_copies_nothing_before_them() -> None:
    text = "B[i,j] = logsumexp[p in 0:6](sum[m in i:6](A[p,i] * B[p,j-1; pad=edge] * B[m,j-1; pad=0])) / 4"
    whole = f"f(A: f64[6,6], B: f64[6,6]) -> B:\n    {text} for i in 0:6, j in 0:6"
    A, B = (np.random.default_rng(n).integers(-3, 4, (6, 6)) / 4 for n in (1, 2))
    (want,) = interpret(parse(whole), {"A": A, "B": B.copy()}, {})
    for processor in ("cpu:x86-64-v3", "cpu:x86-64-v4"):
        kernel = pk.op(whole).compile(A=pk.f64[6, 6], B=pk.f64[6, 6], threads=1, target=processor)
        assert "plainer" not in generated(kernel, "schedule")
    np.testing.assert_allclose(pk.op(whole)(A, B), want, rtol=1e-12)


@pytest.mark.parametrize("left_out", ["x < h", "2 * x < h", "x + h != 3"])
@pytest.mark.parametrize("processor", ["cpu:x86-64-v3", "cpu:x86-64-v4"])
def test_what_is_started_ahead_of_common_loops_is_held_in_no_buffer_inside_them(left_out: str, processor: str) -> None:
    """Elements that a condition leaves out are started by a nest of their own, which runs before the statements' common loops."""
    text = f"P[x,h,q] += A[x+2*q,k] * D[k,h] for q in 0:3 where {left_out}; F[e,n,x,m] = P[x,e,n] * G[m]"
    types = {"A": pk.i64[16, 1], "D": pk.i64[1, 16], "G": pk.i64[2]}
    kernel = pk.op(text).compile(**types, target=processor, threads=1)
    assert "plainer" not in generated(kernel, "schedule")
    rng = np.random.default_rng(0)
    A, D, G = (rng.integers(-9, 9, t.shape) for t in types.values())
    (want,) = interpret(parse(text), {"A": A, "D": D, "G": G}, {})
    np.testing.assert_array_equal(pk.op(text)(A, D, G), want)


ROW_SUMS = "Y[i,k] = maximum(X[i,k], 0);  C[i,j] += Y[i,k] * B[j,k];  S[i] += C[i,j]"


@pytest.mark.parametrize(
    ("shape", "shared"),
    [((500, 300, 63), False), ((2048, 64, 63), False), ((512, 129, 63), True), ((80, 40, 63), True)],
)
def test_a_block_of_common_loops_is_made_of_whole_tiles(shape: tuple[int, int, int], shared: bool) -> None:
    i, k, j = shape
    kernel = pk.op(ROW_SUMS).compile(X=pk.f32[i, k], B=pk.f32[j, k], target="cpu:x86-64-v3", threads=1)
    schedule = generated(kernel, "schedule")
    tiles = {(int(b), int(t)) for b, t in re.findall(r"\(i\d+ mod (\d+)\)(?:/| mod )(\d+)", schedule)}
    assert ("run together" in schedule) == shared
    assert all(block % tile == 0 for block, tile in tiles if block > tile)  # a larger tile holds whole blocks
    X, B = (np.random.default_rng(i).integers(-3, 4, s).astype("f4") for s in ((i, k), (j, k)))
    np.testing.assert_array_equal(pk.op(ROW_SUMS)(X, B), (np.maximum(X, 0) @ B.T).sum(1))


def test_a_group_may_begin_with_a_producer_of_a_later_statement() -> None:
    """Layer norm's backward pass: what M runs with reads dD, which has nothing in common with M, so that dD stood apart."""
    norm = pk.op("""M[i] = mean[j](X[i,j])
D[i,j] = X[i,j] - M[i]
R[i] = rsqrt(mean[j](D[i,j]**2) + 1e-5)
Y[i,j] = D[i,j] * R[i] * g[j] + b[j]""")
    backward = norm.vjp_with_residuals()[1]
    shapes = {"X": (1024, 768), "g": (768,), "b": (768,), "sum_1": (1024,), "sum_3": (1024,), "dY": (1024, 768)}
    kernel = backward.compile(**{n: pk.f32[s] for n, s in shapes.items()}, target="cpu:x86-64-v4", threads=1)
    lines = [line.strip() for line in str(kernel.explain()).splitlines() if "run together" in line]
    groups = [set(line.split(": run together")[0].split(", ")) for line in lines]
    assert any({"dD", "dR", "dD#2", "dX"} <= group for group in groups), groups
