"""Hints that name a size by a declaration: the program that they show is accepted, with the very types that were refused."""

from __future__ import annotations

import re

import pytest

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import TensorType, f64, i64
from polyker.poly.binding.bind import bind

ROW, MATRIX = f64[7], f64[3, 7]

# A text, the types of its arguments, and the header in the hint.
SIZES = [
    ("S[b,0] = X[b,0]; S[b,t] = S[b,t-1] + X[b,t] for t in 1:N", (MATRIX,), "f(X: [M, N]) -> S:"),
    ("O[h] += X[h+r-1; pad=0] * K[r] for h in 0:H", (ROW, f64[3]), "f(X: [H], K) -> O:"),
    ("R[i] = X[N-1-i]", (ROW,), "f(X: [N]) -> R:"),
    ("O[i] = A[i] for i in 0:N", (ROW,), "f(A: [N]) -> O:"),
    ("O[i,j] = A[i] * A[j] where i < M and j < M", (ROW,), "f(A: [M]) -> O:"),
    ("O[i] = sum[k in 0:N](A[i,k])", (MATRIX,), "f(A: [M, N]) -> O:"),
    ("O[i] = sum[k](A[i,k] where k < N)", (MATRIX,), "f(A: [M, N]) -> O:"),
    ("f(a: f64, B) -> O:\n    O[i] = a + B[i] for i in 0:N", (f64[()], ROW), "f(a: f64, B: [N]) -> O:"),
    ("E[b,d] += T[I[b,l],d] where l < L", (MATRIX, i64[2, 3]), "f(T, I: [N, L]) -> E:"),
    ("S[0] = 0\nfor t in 0:T:\n    S[t+1] = S[t] + X[t]", (ROW,), "f(X: [T]) -> S:"),
    # Numbers that are called as sizes are, or divide a sum.
    ("m[j] = sum[i](A[i,j]) / N", (MATRIX,), "f(A: [N, M]) -> m:"),
    ("m[j] += A[i,j] / count", (MATRIX,), "f(A: [count, N]) -> m:"),
    ("v = sum[i]((X[i] - sum[j](X[j]) / N) ** 2) / N", (ROW,), "f(X: [N]) -> v:"),
]
ENDS = [
    ("O[i] = A[i,-1]", (MATRIX,), "O[i] = A[i, N - 1]"),
    ("o = A[-2]", (ROW,), "o = A[N - 2]"),
    ("O[i] = A[i] - A[-1]", (ROW,), "O[i] = A[i] - A[N - 1]"),
    ("f(A: [M,K]) -> O:\n    O[i] = A[i,-1]", (MATRIX,), "O[i] = A[i, K - 1]"),
    ("O[i] = A[-i]", (ROW,), "O[i] = A[N - 1 - i]"),
    ("O[i] = A[-i-1]", (ROW,), "O[i] = A[N - i - 1]"),
    ("o = A[-1]", (f64["L"],), "o = A[N - 1]"),
]


def refused(text: str, types: tuple[TensorType, ...]) -> pk.PolykerError:
    program = parse(text)
    with pytest.raises(pk.PolykerError) as found:
        pk.op(text).infer(*types)  # names the argument that is missing, and takes sizes as symbols
        bind(program, dict(zip(program.inputs, types, strict=True)))
    return found.value


def suggested(error: pk.PolykerError) -> str:
    found = re.search(r"`(\w+\(.*)`", error.hint or "", re.DOTALL)
    assert found is not None, error
    return found.group(1)


@pytest.mark.parametrize(("text", "types", "header"), SIZES)
def test_a_size_is_taken_from_the_extent_that_it_bounds(text: str, types: tuple[TensorType, ...], header: str) -> None:
    error = refused(text, types)
    made = suggested(error)
    assert made.partition("\n")[0] == header
    assert error.code == "PK701" or (error.span is not None and error.code == "PK311")
    program = parse(made)
    bind(program, dict(zip(program.inputs, types, strict=True)))


@pytest.mark.parametrize(("text", "types", "statement"), ENDS)
def test_an_element_counted_from_the_end_has_a_size_in_its_subscript(
    text: str, types: tuple[TensorType, ...], statement: str
) -> None:
    error = refused(text, types)
    assert "from the end" in (error.hint or "")
    made = suggested(error)
    assert statement in made
    program = parse(made)
    bind(program, dict(zip(program.inputs, types, strict=True)))


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("y[i] = alpha * sum[j](A[i,j])", (MATRIX,)),
        ("for t in 0:steps:\n    A[i] = B[i] for i in 0:3", (ROW,)),
        ("O[...,i] = X[...,i] for i in 0:N", (MATRIX,)),
        ("f(X: [K]) -> O:\n    O[i] = X[i] for i in 0:N", (ROW,)),
    ],
)
def test_no_declaration_is_made_up(text: str, types: tuple[TensorType, ...]) -> None:
    assert "->" not in (refused(text, types).hint or "")


def test_a_long_program_is_shown_by_its_header() -> None:
    text = "\n".join(f"O{k}[i] = X[i] + {k} for i in 0:N" for k in range(9))
    outputs = ", ".join(f"O{k}" for k in range(9))
    assert suggested(refused(text, (ROW,))) == f"f(X: [N]) -> {outputs}:"
