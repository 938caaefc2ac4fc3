"""Coverage: what is written, in which order it is read, and what a reduction leaves at its identity."""

from __future__ import annotations

import numpy as np
import pytest

from polyker.einsum_frontend import parse
from polyker.errors import CompileError, ShapeError
from polyker.ir.dtypes import f32, f64, i32, i64
from polyker.poly.binding import bind as bind_module
from polyker.poly.binding.bind import bind
from tests.poly.simulate import simulate
from tests.poly.sizes import evaluate_checks


def refused(text: str, code: str, sizes=None, **types) -> str:
    with pytest.raises(ShapeError) as caught:
        bind(parse(text), types, sizes or {})
    assert caught.value.code == code, caught.value
    return caught.value.message


def accepted(text: str, sizes=None, **types):
    return bind(parse(text), types, sizes or {})


def test_elements_that_for_or_where_left_out_of_a_reduction_hold_the_identity():
    ones = {"X": np.arange(1, 6)}
    assert list(simulate(accepted("O[i] += X[i] for i in 2:5", X=i64[5]), ones, {})[0]) == [0, 0, 3, 4, 5]
    triangle = simulate(accepted("O[i,j] += X[i] * X[j] where j < i", X=i64[5]), ones, {})[0]
    assert triangle.shape == (5, 4)
    assert triangle[0].tolist() == [0, 0, 0, 0]
    assert triangle[4].tolist() == [5, 10, 15, 20]


def test_elements_that_inference_left_out_are_an_error():
    assert "O[0] and O[1]" in refused("O[i] += X[i-r] * K[r]", "PK304", X=f32[9], K=f32[3])
    assert "O[1]" in refused("O[2*i] += X[i]", "PK304", X=f32[2])
    refused("O[i,i] += X[i]", "PK304", X=f32[2])
    accepted("O[i,i] += X[i]", X=f32[1])


def test_an_assignment_has_to_write_every_element():
    refused("O[i] = X[i] for i in 1:5", "PK304", X=f32[5])
    refused("O[i,j] = X[i] * X[j] where j <= i", "PK304", X=f32[3])
    accepted("O[i,j] = X[i] * X[j] where j <= i; O[i,j] = 0 for i in 0:3, j in i+1:3", X=f32[3])


def test_interleaved_assignments_cover_together():
    accepted("O[2*i] = X[i]; O[2*i+1] = Y[i]", X=f32[3], Y=f32[3])
    assert "O[5]" in refused("O[2*i] = X[i]; O[2*i+1] = Y[i]; O[6] = 1", "PK304", X=f32[3], Y=f32[2])
    typed = accepted("O[2*i] = X[i]; O[2*i+1] = Y[i]", X=f32["N"], Y=f32["M"])
    for n, m in ((0, 0), (1, 0), (4, 4), (4, 3), (3, 4), (0, 1)):
        if m in (n, n - 1):
            evaluate_checks(typed, {"n0": n, "n1": m})
        else:
            with pytest.raises(ShapeError, match="no statement writes"):
                evaluate_checks(typed, {"n0": n, "n1": m})


def test_a_statement_in_a_loop_that_may_not_run_covers_nothing():
    text = "f(X: f32[N], steps) -> O:\n    for t in 0:steps:\n        O[i] = X[i] + t"
    assert "O[0], O[1], O[2] and 1 more" in refused(text, "PK304", {"steps": 0}, X=f32[4])
    accepted(text, {"steps": 1}, X=f32[4])
    typed = accepted(text, {"steps": "steps"}, X=f32[4])
    with pytest.raises(ShapeError, match="for steps = 0"):
        evaluate_checks(typed, {"n0": 0})


def test_a_read_comes_after_a_write_in_the_order_of_execution():
    refused("S[t] = S[t-1] + X[t] for t in 1:5; S[0] = X[0]", "PK305", X=f32[5])
    accepted("S[0] = X[0]; S[t] = S[t-1] + X[t] for t in 1:5", X=f32[5])
    refused("S[4] = X[4]; S[t] = S[t+1] + X[t] for t in 0:4", "PK305", X=f32[5])
    accepted("S[4] = X[4]; S[3-t] = S[4-t] + X[3-t] for t in 0:4", X=f32[5])


def test_the_order_of_for_decides_a_recurrence_over_two_indices():
    text = "S[i,0] = X[i]; S[0,j] = X[j] for j in 1:4; S[i,j] = S[i-1,j+1] + 1 for {} where i + j < 4"
    accepted(text.format("i in 1:4, j in 1:4") + "; S[i,j] = 0 for i in 1:4, j in 4-i:4", X=f32[4])
    refused(text.format("j in 1:4, i in 1:4") + "; S[i,j] = 0 for i in 1:4, j in 4-i:4", "PK305", X=f32[4])


def test_loops_carry_values_from_one_iteration_to_the_next():
    text = """f(X: f64[N], steps) -> O:
    A[i] = X[i]
    for t in 0:steps:
        B[i] = A[i] * 2
        A[i] = B[i] + t
    O[i] = A[i]
"""
    accepted(text, {"steps": "steps"}, X=f64["N"])
    swapped = text.replace("    A[i] = X[i]\n", "").replace("B[i] = A[i] * 2", "B[i] = A[i] + X[i]")
    assert "`A[i]` reads" in refused(swapped, "PK305", {"steps": 2}, X=f64[3])


def test_a_temporary_of_a_loop_is_not_defined_after_a_loop_that_may_not_run():
    text = "f(X: f64[N], steps) -> O:\n    for t in 0:steps:\n        B[i] = X[i]\n    O[i] = B[i]"
    assert "`B[i]` reads" in refused(text, "PK305", {"steps": 0}, X=f64[3])
    typed = accepted(text, {"steps": "steps"}, X=f64["N"])
    evaluate_checks(typed, {"n0": 3, "n1": 1})
    with pytest.raises(ShapeError):
        evaluate_checks(typed, {"n0": 3, "n1": 0})


def test_padding_reads_only_what_is_written():
    accepted("T[i] = X[i]; O[i] = T[i-1; pad=0] + T[i+1; pad=edge] for i in 0:4", X=f32[4])
    holes = "T[i] = X[i] for i in 1:4; O[i] = T[i+1; pad={}] for i in 0:{}"
    accepted(holes.format("0", 9), X=f32[4])
    accepted(holes.format("edge", 9), X=f32[4])
    assert "T[0]" in refused(holes.format("wrap", 9), "PK305", X=f32[4])
    accepted(holes.format("reflect", 5), X=f32[4])
    assert "T[0]" in refused(holes.format("reflect", 6), "PK305", X=f32[4])


def test_a_gather_may_read_every_element():
    accepted("T[i] = X[i]; O[i] = T[idx[i]]", X=f32[4], idx=i32[4])
    assert "T[0]" in refused("T[i] = X[i] for i in 1:4; O[i] = T[idx[i]]", "PK305", X=f32[4], idx=i32[4])


def test_a_scatter_defines_its_whole_target():
    text = "f(X: f32[N], idx: i32[N], M) -> O:\n    H: f32[M]\n    H[idx[i]] += X[i]\n    O[j] = H[j]"
    accepted(text, {"M": 7}, X=f32[4], idx=i32[4])


def test_two_instances_that_write_one_element_are_shown():
    assert "O[0]: i = 0 and i = 1" in refused("O[i//2] = X[i]", "PK306", X=f32[4])
    assert "O[1]: i = 0, j = 1 and i = 1, j = 0" in refused("O[i+j] = X[i] * X[j]", "PK306", X=f32[3])
    accepted("O[i//2] += X[i]", X=f32[4])
    accepted("O[2*i+j] = X[i,j]", X=f32[3, 2])
    refused("O[2*i+j] = X[i,j]", "PK306", X=f32[3, 3])


def test_a_row_major_flattening_is_one_to_one_for_all_sizes_that_pass():
    typed = accepted("O[4*i+j] = X[i,j]", X=f32["N", "M"])
    evaluate_checks(typed, {"n0": 3, "n1": 4})
    for n, m in ((3, 5), (3, 3)):
        with pytest.raises(ShapeError):
            evaluate_checks(typed, {"n0": n, "n1": m})


def test_argmax_over_a_triangle_has_to_have_something_to_choose():
    accepted("O[i] = argmax[k in 0:i+1](X[k]) for i in 0:4", X=f32[4])
    assert "argmax" in refused("O[i] = argmax[k in 0:i](X[k]) for i in 0:4", "PK313", X=f32[4])
    typed = accepted("O[i] = argmax[k](X[i,k] where k < N)", {"N": "N"}, X=f32["A", "B"])
    evaluate_checks(typed, {"n0": 3, "n1": 2, "n2": 1})
    with pytest.raises(ShapeError, match="argmax"):
        evaluate_checks(typed, {"n0": 3, "n1": 2, "n2": 0})
    evaluate_checks(typed, {"n0": 0, "n1": 2, "n2": 0})


def test_each_element_starts_at_the_identity_of_the_first_reduction_that_defines_it():
    text = "T[i] max= A[i]; T[j] += B[j]"
    first, _ = accepted(text, A=i64["N"], B=i64["M"]).statements()
    assert first.defines is not None
    typed = accepted(text, A=i64[2], B=i64[4])
    assert list(simulate(typed, {"A": np.array([5, 7]), "B": np.array([1, 2, 3, 4])}, {})[0]) == [6, 9, 3, 4]
    typed = accepted("T[i] max= A[i] for i in 1:4; T[j] += B[j]", A=i64[4], B=i64[4])
    assert [s.defines for s in typed.statements()] == [None, None]  # `for` left T[0] at the least value


def test_conditions_on_sizes_that_grow_beyond_use_are_given_up(monkeypatch):
    # Each dimension of G is the largest of four extents, and any of the statements may fill a part of it.
    text = "G[i,j,k] = R[i,j,k]; G[i,j,k] *= V[i,j,k]; G[i,j,k] max= D[i,j,k]; G[i,j,k] *= P[i,j,k]"
    shapes = {n: f32[f"{n}1", f"{n}2", f"{n}3"] for n in "RVDP"}
    monkeypatch.setattr(bind_module, "BIND_ISL_OPERATIONS", 1_000_000)
    with pytest.raises(CompileError) as caught:
        accepted(text, **shapes)
    assert caught.value.code == "PK391"
    assert "sizes as numbers" in (caught.value.hint or "")
    accepted(text, **dict.fromkeys("RVDP", f32[3, 3, 17]))
    accepted(text, **dict.fromkeys("RVDP", f32["A", "B", "C"]))


def test_a_reduction_reads_its_own_target_once_it_is_defined():
    typed = accepted("S[0] += X[0]; S[t] += S[t-1] * X[t] for t in 1:4", X=i64[4])
    assert list(simulate(typed, {"X": np.arange(1, 5)}, {})[0]) == [1, 2, 6, 24]
