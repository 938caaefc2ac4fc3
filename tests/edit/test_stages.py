"""The stages of a kernel are printed in the user's names."""

from __future__ import annotations

import re

import pytest

import polyker as pk

GENERATED = re.compile(r"(?<![\w.])(?:[Stn]\d+|i\d+(?!\())\b")
PROGRAMS = {
    "product": ("C[i,j] += A[i,k] * B[k,j]", {"A": pk.f32[60, 48], "B": pk.f32[48, 64]}),
    "symbolic": ("C[i,j] += A[i,k] * B[k,j]", {"A": pk.f32["N", "K"], "B": pk.f32["K", "M"]}),
    "joined": ("O[i,j] = A[i,j] + 1", {"A": pk.f32[64, 64]}),
    "joined, symbolic": ("O[row,col] = A[row,col] + 1", {"A": pk.f32["N", "M"]}),
    "softmax": ("P[i,j] = exp(X[i,j]) / sum[l](exp(X[i,l]))", {"X": pk.f32[8, 20]}),
    "in time": (
        "f(A: f64[N], steps) -> A:\n for t in 0:steps:\n  B[i] = A[i-1] + A[i+1] for i in 1:N-1\n  A[i] = B[i] for i in 1:N-1",
        {"A": pk.f64[400]},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", ["cpu", "cuda-sim"])
def test_no_stage_shows_a_generated_name(name: str, target: str) -> None:
    text, types = PROGRAMS[name]
    kernel = pk.op(text).compile(**types, target=target)
    for stage in ("program", "isl", "schedule", "loops"):
        shown = re.sub(r"\bi(?:8|16|32|64)\(", "(", str(kernel.source(stage)))
        assert not GENERATED.search(shown), shown
    assert not GENERATED.search(str(kernel.schedule))


def test_the_stages_name_statements_tensors_and_indices() -> None:
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32[60, 48], pk.f32[48, 64], threads=1)
    sets = kernel.source("isl").splitlines()
    assert "read { C[i, j, k] -> A[i, k] : 0 <= i <= 59 and 0 <= j <= 63 and 0 <= k <= 47 }" in sets
    assert re.search(r"^ *for k  \{C: k\}$", kernel.source("schedule"), re.MULTILINE)
    loops = kernel.source("loops")
    assert loops.startswith("def kernel(A, B, C; ):")
    assert re.search(r"for v\d+ in range\(0, 48\):  # k$", loops, re.MULTILINE)
    assert re.search(r"# vector\(\d+\) j\.\w+$", loops, re.MULTILINE)
    found = re.findall(r"for v\d+ in range\([^#]*(#.*)?", loops)
    assert found and all(found)  # each loop has a comment


def test_loops_that_a_schedule_moved_have_the_names_of_its_print() -> None:
    text = "f(A: f64[N,N]) -> A:\n A[i,j] = A[i-1,j] + A[i-1,j+1]  for i in 1:N, j in 0:N-1"
    s = pk.op(text).schedule(pk.f64[20, 20], auto=False).skew(j="i").interchange("j'", "i")
    kernel = pk.op(text).compile(schedule=s)
    assert [line.split("# ")[1] for line in kernel.source("loops").splitlines() if "for v" in line] == ["j'", "i"]
    assert kernel.source("schedule").startswith("for j'  {A: ")


def test_joined_indices_are_called_by_both_names() -> None:
    kernel = pk.op("O[i,j] = A[i,j] + 1").compile(pk.f32[64, 64])
    assert "domain { O[i_j] : 0 <= i_j <= 4095 }" in kernel.source("isl")
    assert str(kernel.schedule).startswith("for i_j.tile")
    kernel = pk.op("O[i,j] = A[i,j] + i_j[i]").compile(A=pk.f32[64, 64], i_j=pk.f32[64])
    assert "i_j" not in re.sub(r"i_j\[", "", str(kernel.source("schedule")))


def test_a_user_s_name_that_looks_generated_stays_what_it_is() -> None:
    kernel = pk.op("S1[i1,t0] = n0[t0,i1] * 2").compile(n0=pk.f32[8, 9])
    assert "read { S1[i1, t0] -> n0[t0, i1] : 0 <= i1 <= 8 and 0 <= t0 <= 7 }" in kernel.source("isl")
    assert kernel.source("loops").startswith("def kernel(n0, S1; ):")
