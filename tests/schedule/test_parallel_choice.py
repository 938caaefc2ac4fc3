"""Which loops the pass puts on several threads, what it leaves alone, and that no result changes by a bit."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.layout import DENSE
from polyker.poly.isl import isl_job
from polyker.poly.scop import build_scop
from polyker.schedule.legality.prove import prove
from polyker.schedule.threads.parallel import parallel_schedule
from polyker.schedule.tree.nodes import Member, MemberKind, loops
from tests.artifacts import generated
from tests.fuzz.threads import whatever_it_wins
from tests.passes import scheduled
from tests.schedule.support import case

ATTENTION = """
    S[b,q,k] = sum[d](Q[b,q,d] * K[b,k,d])
    P[b,q,k] = exp(S[b,q,k] - max[j](S[b,q,j]))
    O[b,q,d] = sum[k](P[b,q,k] * V[b,k,d]) / sum[k](P[b,q,k])"""
HEAT = """heat(A: f64[N,N], steps) -> A:
    for t in 0:steps:
        B[i,j] = A[i,j] + A[i-1,j] + A[i+1,j] + A[i,j-1] + A[i,j+1]  for i in 1:N-1, j in 1:N-1
        A[i,j] = B[i,j]  for i in 1:N-1, j in 1:N-1"""


def chosen(text: str, threads: int = 4, **given: str | int) -> list[Member]:
    """Return the loops that run on several threads, as the pass chooses and the proof accepts them."""
    found = case(text, **given)
    layouts = (DENSE,) * len({*found.typed.inputs, *found.typed.outputs})
    program, schedule, _ = scheduled(found.typed, layouts, target("cpu:x86-64-v3"))
    with isl_job("test"):
        scop = build_scop(program)
        result = parallel_schedule(scop, schedule, threads).schedule
        prove(scop, result)
    return [m for m in loops(result.tree) if m.kind is MemberKind.PARALLEL]


def test_rows_or_blocks_of_a_product() -> None:
    (loop,) = chosen("C[i,j] += A[i,k] * B[k,j]", A="f32[512,512]", B="f32[512,512]")
    assert loop.extent == 4
    assert loop.label.split(".")[0] in ("i0", "i1")


def test_the_heads_of_attention_or_with_one_head_its_rows() -> None:
    shapes = {"Q": "f32[8,128,64]", "K": "f32[8,128,64]", "V": "f32[8,128,64]"}
    assert chosen(ATTENTION, **shapes)
    assert chosen(ATTENTION, **{k: v.replace("[8", "[1") for k, v in shapes.items()})


def test_other_rows_beside_a_scan() -> None:
    text = "S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:N"
    (loop,) = chosen(text, X="f32[400,3000]", N=3000)
    assert loop.label.startswith("i2")


def test_columns_around_rows_that_are_read_one_after_another() -> None:
    (loop,) = chosen("c[j] += a[k] * B[k,j]", a="f64[4096]", B="f64[4096,4096]")
    assert loop.label.endswith(".strip")


def test_elements_around_time() -> None:
    text = "f(A: f64[N], steps) -> A:\n    for t in 0:steps:\n        A[i] = A[i] * A[i] - 1"
    (loop,) = chosen(text, A="f64[20000]", steps=300)
    assert loop.label.endswith(".strip")


def test_waves_of_the_tiles_of_a_stencil() -> None:
    found = chosen(HEAT, A="f64[2000,2000]", steps=60)
    assert [m.label for m in found if m.label.endswith(".tile")]


SEIDEL = """seidel(A: f64[N,N], steps) -> A:
    for t in 0:steps:
        A[i,j] = (A[i-1,j] + A[i,j-1] + A[i,j] + A[i,j+1] + A[i+1,j]) / 5  for i in 1:N-1, j in 1:N-1"""
JACOBI = """jacobi(A: f64[N], steps) -> A:
    B[i] = A[i]
    for t in 0:steps:
        B[i] = 0.3 * (A[i-1] + A[i] + A[i+1])  for i in 1:N-1
        A[i] = 0.3 * (B[i-1] + B[i] + B[i+1])  for i in 1:N-1"""


def test_waves_by_two_where_a_row_needs_the_next_ones_old_values() -> None:
    found = case(SEIDEL, A="f64[400,400]", steps=100)
    program, schedule, _ = scheduled(found.typed, (DENSE,), target("cpu:x86-64-v3"))
    with isl_job("test"):
        result = parallel_schedule(build_scop(program), schedule, 2).schedule
    assert any(m.label.startswith("2*") for m in loops(result.tree))
    assert chosen(SEIDEL, A="f64[400,400]", steps=100)


def test_tiles_of_time_are_no_strips_of_their_own_steps() -> None:
    """A strip of so many steps as a tile has would be one strip in each tile."""
    labels = [m.label for m in chosen(JACOBI, A="f64[500000]", steps=50)]
    assert "i0.tile" in labels
    assert "i0.strip" not in labels


def test_columns_around_rows_of_several_statements_and_what_they_hold_in_a_buffer() -> None:
    text = """
    H[i,j] = (X[i,j] + X[i,j+1] + X[i,j+2]) / 3  for j in 0:W
    O[i,j] = H[i,j] + H[i+1,j] + H[i+2,j]  for i in 0:N-2"""
    (loop,) = chosen(text, X="f32[2048,2050]", N=2048, W=2048)
    assert loop.label.endswith(".strip")
    state = "H[0,n] = X[0,n];  H[t,n] = A[n] * H[t-1,n] + X[t,n] for t in 1:T;  Y[t,n] = C[n] * H[t,n]"
    (loop,) = chosen(state, threads=2, X="f32[2000,6000]", A="f32[6000]", C="f32[6000]", T=2000)
    assert loop.label.endswith(".strip")


def test_parts_of_a_stream_past_the_caches() -> None:
    (loop,) = chosen("O[i] = gelu(X[i])", X="f32[12000000]")
    assert loop.label.endswith(".strip")


def test_what_depends_on_itself_or_is_small_stays_as_it_is() -> None:
    assert not chosen("S[0] = X[0];  S[t] = S[t-1] + X[t] for t in 1:N", X="f32[300000]", N=300000)
    assert not chosen("C[i,j] += A[i,k] * B[k,j]", A="f32[8,8]", B="f32[8,8]")
    assert not chosen("C[i,j] += A[i,k] * B[k,j]", threads=1, A="f32[512,512]", B="f32[512,512]")


def test_one_thread_compiles_the_same_code_as_ever_and_small_kernels_too() -> None:
    text = "C[i,j] += A[i,k] * B[k,j]"
    small = [pk.f32[8, 8]] * 2
    with pk.options(threads=1):
        alone = pk.op(text).compile(*small)
        large = pk.op(text).compile(*[pk.f32[300, 300]] * 2)
    with pk.options(threads=5):
        together = pk.op(text).compile(*small)
        assert "parallel(5)" in generated(pk.op(text).compile(*[pk.f32[300, 300]] * 2), "schedule")
    assert alone.source("llvm") == together.source("llvm")
    assert "participate" not in large.source("llvm")


PROGRAMS: dict[str, tuple[str, tuple[tuple[int, ...], ...], dict[str, int]]] = {
    "product": ("C[i,j] += A[i,k] * B[k,j]", ((130, 70), (70, 95)), {}),
    "long product": ("C[i,j] += A[i,k] * B[k,j]", ((8, 30000), (30000, 9)), {}),
    "attention": (ATTENTION, ((2, 50, 16), (2, 50, 16), (2, 50, 16)), {}),
    "softmax": ("Y[n,j] = exp(X[n,j] - max[k](X[n,k])) / sum[k](exp(X[n,k] - max[m](X[n,m])))", ((301, 77),), {}),
    "convolution": ("O[n,f,h,w] = relu(sum[c,r,s](X[n,c,h+r,w+s] * K[f,c,r,s]))", ((3, 8, 20, 19), (9, 8, 3, 3)), {}),
    "triangle": ("L[i,j] += A[i,k] * A[j,k] where j <= i", ((133, 60),), {}),
    "transpose": ("O[j,i] = X[i,j] * 2", ((301, 203),), {}),
    "everything": ("s += x[i,j] * x[i,j]", ((1501, 703),), {}),
    "row by matrix": ("c[j] += a[k] * B[k,j]", ((3001,), (3001, 703)), {}),
    "elements": (
        "f(A: f32[K], steps) -> A:\n    for t in 0:steps:\n        A[i] = A[i] * A[i] - 1",
        ((2001,),),
        {"steps": 50},
    ),
    "columns": ("s[j] += x[i,j]", ((20001, 33),), {}),
    "most": ("m[i] = max[j](x[i,j])", ((401, 303),), {}),
    "scan": ("S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:N", ((43, 500),), {"N": 500}),
    "chain": ("T[i,j] = X[i,j] + 1;  O[i,j] = T[i,j] * sum[k](T[i,k])", ((203, 301),), {}),
    "seidel": (SEIDEL.replace("f64", "f32"), ((97, 97),), {"steps": 7}),
    "line": (JACOBI.replace("f64", "f32"), ((5001,),), {"steps": 30}),
    "rows in a window": (
        "H[i,j] = X[i,j] + X[i,j+1] for j in 0:400;  O[i,j] = H[i,j] + H[i+1,j] * H[i+2,j] for i in 0:298",
        ((300, 401),),
        {},
    ),
    "heat": (HEAT.replace("N", "M").replace("f64", "f32"), ((150, 150),), {"steps": 11}),
}


UNKNOWN = ("columns", "long product", "row by matrix", "elements")  # for sizes that are not known too


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_number_of_threads_changes_a_bit(name: str) -> None:
    """Also where a region is not worth it: all loops that may run in parallel do."""
    text, shapes, sizes = PROGRAMS[name]
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    for specialize in ("always", "never") if name in UNKNOWN else ("always",):
        results = []
        for threads in (1, 3):
            with whatever_it_wins(), pk.options(threads=threads, specialize=specialize):
                results.append(pk.op(text)(*inputs, **sizes))
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])


def test_rows_shared_out_otherwise_are_contracted_alike() -> None:
    op = pk.op("O[n,f,h,w] += X[n,c,h+r,w+s] * K[f,c,r,s]")
    rng = np.random.default_rng(3)
    X, K = (rng.standard_normal(s).astype(np.float32) for s in ((1, 64, 57, 28), (64, 64, 3, 3)))
    one, two = (op.compile(X=X, K=K, threads=n)(X, K) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("text", "shape"), [("s = sum[i,j](x[i,j])", "f32[2000,1000]"), ("s[j] = sum[i](x[i,j])", "f32[100000,8]")]
)
def test_blocks_of_a_long_sum_are_summed_on_threads_and_then_added(text: str, shape: str) -> None:
    (loop,) = chosen(text, x=shape)
    assert loop.label.endswith(".block")


def test_a_sum_too_short_for_blocks_stays_on_one_thread() -> None:
    assert not chosen("s = sum[i](x[i])", x="f32[200000]")


@pytest.mark.parametrize(
    ("shape", "threads", "iterations"), [((100, 512, 500), 8, 8), ((93, 1024, 90), 2, 16), ((50, 3000, 50), 8, 10)]
)
def test_an_edge_is_an_iteration_of_the_parallel_loop(
    shape: tuple[int, int, int], threads: int, iterations: int
) -> None:
    """Its nests have names of their own for isl, which would run them after the loop, on one thread."""
    m, k, n = shape
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(
        A=pk.f32[m, k], B=pk.f32[k, n], threads=threads, target="cpu:x86-64-v4"
    )
    assert f"in range(0, {iterations}):  # parallel({threads})" in generated(kernel, "loops")
