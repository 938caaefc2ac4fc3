"""Values that many instances need are computed once: the meaning stays, costly ones are, cheap ones are not."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.cost.temporaries import insist
from polyker.ir.layout import DENSE
from polyker.poly.scop import build_scop
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.rewrite.normalise.start_reductions import start_reductions
from polyker.rewrite.normalise.widen_reductions import widen_reductions
from polyker.rewrite.sharing.compute_once import compute_once
from polyker.schedule.legality.prove import prove
from polyker.schedule.nests.text_order import default_schedule
from tests.schedule.support import assert_same, case

TARGET = target("cpu:x86-64-v4")

ONTO = """f(A: f64[N,M], B: f64[M]) -> A:
    A[i,j] = abs(B[j] - 2) + abs(A[i,0] - 1)"""

CASES = {
    "a factor": case("O[q,d] += abs(S[q,k] - M[q]) * V[k,d]", S="f64[3,4]", M="f64[3]", V="f64[4,5]"),
    "two factors": case("C[i,j] += abs(A[i,k]) * relu(B[k,j])", A="f64[3,4]", B="f64[4,5]"),
    "no product": case("D[i,j] max= abs(A[i,k] * 2) - abs(B[j,k] + 1)", A="f64[3,4]", B="f64[5,4]"),
    "the same value twice": case("O[i,j] += abs(A[i,k]) * B[j,k] + abs(A[i,k])", A="f64[3,4]", B="f64[5,4]"),
    "values of one element's index": case("O[i,j] = abs(A[j] - 1) * B[i,j]", A="f64[4]", B="f64[3,4]"),
    "of a triangle": case("L[i,j] += abs(A[i,k]) * A[j,k] where j <= i and k < i", A="f64[5,5]"),
    "of ranges that begin later": case("O[i,j] += abs(A[k-1]) * B[i,j] for k in 2:5, i in 1:3", A="f64[4]", B="f64[3,4]"),
    "padded": case("O[h,c] += abs(X[h+r-1; pad=3]) * K[r,c] for h in 0:H", X="f64[5]", K="f64[3,2]", H=5),
    "gathered": case("O[b,d] += abs(T[idx[b,l],l]) * W[l,d]", T="f64[3,4]", idx="i64[2,4]", W="f64[4,3]"),
    "of an index": case("O[i,j] += (k * 2 + 1) * A[i,k] * B[k,j]", A="f64[3,4]", B="f64[4,5]"),
    "half precision": case("C[i,j] += abs(A[i,k] + A[i,k]) * B[k,j]", A="f16[3,4]", B="f16[4,5]"),
    "truth": case("C[i,j] any= (A[i,k] > 1) and (B[k,j] < 2)", A="f64[3,4]", B="f64[4,5]"),
    "beside what changes": case(ONTO, A="f64[3,4]", B="f64[4]"),
    "nothing": case("C[i,j] += abs(A[i,k]) * B[k,j]", A="f64[3,0]", B="f64[0,5]"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_computed_once_is_what_each_instance_computed(name: str) -> None:
    found = CASES[name]
    before = extract_reductions(found.typed)
    with insist(0):
        program, notes = compute_once(before, TARGET, lambda _: DENSE)
    assert len(notes) == len(program.tensors) - len(before.tensors) > 0
    program = widen_reductions(start_reductions(program))
    scop, schedule = build_scop(program), default_schedule(program)
    prove(scop, schedule)
    assert_same(found, scop, schedule)


def stored(text: str, **types: str) -> list[str]:
    """Return the temporaries of the values that are computed once."""
    program, notes = compute_once(extract_reductions(case(text, **types).typed), TARGET, lambda _: DENSE)
    made = [s for s in program.statements() if s.target not in {t.name for t in case(text, **types).typed.tensors}]
    assert len(notes) == len(made)
    return [s.target for s in made]


def test_costly_values_that_many_need_are_computed_once() -> None:
    assert len(stored("O[q,d] += exp(S[q,k] - M[q]) * V[k,d]", S="f32[200,300]", M="f32[200]", V="f32[300,64]")) == 1
    assert len(stored("C[i,j] += tanh(A[i,k]) * tanh(B[k,j])", A="f32[128,64]", B="f32[64,128]")) == 2
    assert len(stored("O[b,i] = exp(A[i]) * X[b,i]", A="f32[1000]", X="f32[200,1000]")) == 1
    assert len(stored("F[i,c] += exp(A[i,j]) * x[j,c]", A="f32[1000,1000]", x="f32[1000,3]")) == 1  # three do


def test_others_are_computed_where_they_are_needed() -> None:
    sizes = {"S": "f32[200,300]", "M": "f32[200]", "V": "f32[300,64]"}
    assert stored("O[q,d] += (S[q,k] - M[q]) * V[k,d]", **sizes) == []
    assert stored("C[i] += exp(A[i,k]) * B[k]", A="f32[200,300]", B="f32[300]") == []  # once as it is
    assert stored("O[q,d] += exp(S[q,k] - M[q]) * V[k,d]", S="f32[5,4]", M="f32[5]", V="f32[4,3]") == []
    # LLVM computes it before the loop over j.
    assert stored("O[i,j] = (X[i,j] - M[i]) * rsqrt(V[i] + 1)", X="f32[200,300]", M="f32[200]", V="f32[200]") == []


def test_a_kernel_with_such_a_value_is_right() -> None:
    rng = np.random.default_rng(3)
    S, M, V = rng.standard_normal((70, 90)), rng.standard_normal(70), rng.standard_normal((90, 33))
    kernel = pk.op("O[q,d] += exp(S[q,k] - M[q]) * V[k,d]").compile(S, M, V)
    assert "computed once" in str(kernel.source("schedule"))
    np.testing.assert_allclose(kernel(S, M, V), np.exp(S - M[:, None]) @ V, rtol=1e-11)
    symbolic = pk.op("O[q,d] += exp(S[q,k] - M[q]) * V[k,d]").compile(
        S=pk.f64["Q", "K"], M=pk.f64["Q"], V=pk.f64["K", "D"]
    )
    assert "computed once" in str(symbolic.source("schedule"))
    np.testing.assert_allclose(symbolic(S, M, V), np.exp(S - M[:, None]) @ V, rtol=1e-11)
    np.testing.assert_array_equal(symbolic(S[:, :0], M, V[:0]), np.zeros((70, 33)))
