"""Operands of other types than the sum's are converted once, where they are used often; the values stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from tests.artifacts import compiled_to

NOTE = "is converted once"


def notes(text: str, **operands: object) -> list[str]:
    kernel = pk.op(text).compile(**operands, threads=1)
    return [line for line in kernel.source("schedule").splitlines() if NOTE in line]


def test_rows_that_each_step_would_convert_are_converted_before() -> None:
    product = "C[i,j] += A[i,k] * B[k,j]"
    assert [n.split(": ")[1].split()[0] for n in notes(product, A=pk.f32[200, 200], B=pk.f64[200, 200])] == ["A"]
    assert len(notes(product, A=pk.f16[256, 256], B=pk.f16[256, 256])) >= 1
    assert notes(product, A=pk.f32[200, 200], B=pk.f32[200, 200]) == []
    # One copy for two reads.
    assert len(notes("C[i,j] += A[i,k] * A[j,k] * f64(2)", A=pk.f16[150, 150])) <= 1
    # The results are started in registers all the same.
    program, _ = compiled_to(pk.op(product).compile(A=pk.f16[200, 200], B=pk.f16[200, 200])).scheduled
    assert not any(s.reads_own for s in program.statements())
    symbolic = pk.op(product).compile(A=pk.f32["M", "K"], B=pk.f64["K", "N"], threads=1)
    A, B = np.ones((70, 80), "f4"), np.full((80, 90), 0.5)
    assert np.array_equal(symbolic(A=A, B=B), np.full((70, 90), 40.0))


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        # Each element is used once or a few times; few elements are read; what is read is gathered, padded or made by the
        # program.
        ("y[i] += A[i,k] * x[k]", {"A": pk.f16[400, 400], "x": pk.f32[(400,)]}),
        ("C[i,j] += A[i,k] * B[k,j]", {"A": pk.f16[300, 300], "B": pk.f32[300, 2]}),
        ("C[i,j] += A[i,k] * B[k,j] for i in 0:20, k in 0:20", {"A": pk.f16[3000, 3000], "B": pk.f32[20, 300]}),
        ("C[i,j] += A[N[i],k] * B[k,j]", {"A": pk.f16[300, 300], "N": pk.i64[(300,)], "B": pk.f32[300, 300]}),
        ("C[i,j] += A[i,k] * B[k,j]", {"A": pk.f16[8, 8], "B": pk.f32[8, 8]}),
        ("s += i32(A[k]) * i32(B[k])", {"A": pk.i8[(10000,)], "B": pk.i8[(10000,)]}),
        ("C[i,j] += i32(A[i,k]) * i32(B[k,j])", {"A": pk.i8[200, 200], "B": pk.i8[200, 200]}),
        ("C[i,j] any= A[i,k] and B[k,j]", {"A": pk.bool_[200, 200], "B": pk.bool_[200, 200]}),
    ],
)
def test_other_operands_stay(text: str, operands: dict[str, object]) -> None:
    assert notes(text, **operands) == []


@given(
    types=st.tuples(
        st.sampled_from(("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "u8")),
        st.sampled_from(("bf16", "f32", "f64", "i32")),  # sums of narrow integers wrap
    ),
    shape=st.tuples(st.integers(60, 90), st.integers(60, 90), st.integers(60, 90)),
    text=st.sampled_from(
        (
            "C[i,j] += A[i,k] * B[k,j]",
            "C[i,j] += abs(A[i,k] - B[k,j])",
            "C[i,j] max= A[i,k] + B[k,j]",
            "f(A, B) -> C, D:\n    C[i,j] += A[i,k] * B[k,j]\n    D[i,j] += A[i,k] * B[k,j] * 2",
        )
    ),
    strided=st.booleans(),
    threads=st.sampled_from((1, 2)),
)
@settings(max_examples=6, deadline=None)
def test_values_are_those_of_the_text(
    types: tuple[str, str], shape: tuple[int, int, int], text: str, strided: bool, threads: int
) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * n)

    def elements(name: str, rows: int, columns: int) -> np.ndarray:
        low = 0 if name == "u8" else -3
        found = rng.integers(low, 4, (rows * 2, columns)).astype(getattr(pk, name).numpy)
        return found[::-2] if strided else np.ascontiguousarray(found[::2])

    A, B = elements(types[0], m, k), elements(types[1], k, n)
    found = pk.op(text).compile(A=A, B=B, threads=threads)(A=A, B=B)
    x, y = A.astype("f8")[:, :, None], B.astype("f8")[None]
    want = (abs(x - y) if "abs" in text else x * y).sum(1) if "max" not in text else (x + y).max(1)
    results = found if isinstance(found, tuple) else (found,)
    assert np.array_equal(results[0].astype("f8"), want.astype(results[0].dtype).astype("f8"))
    assert all(np.array_equal(r.astype("f8"), (2 * want).astype(r.dtype).astype("f8")) for r in results[1:])
