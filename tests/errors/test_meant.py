"""Misspelt keywords, options, targets and types: the hint names what was probably meant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import polyker as pk
from polyker.errors.spelling import meant_name
from polyker.ir.dtypes import DTYPES, dtype_of, meant_type
from polyker.options import NAMES

A, B = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
mm = pk.op("C[i,j] += A[i,k] * B[k,j]")
strided = "O[i] += X[stride*i+r] * W[r]"

MEANT: list[tuple[Callable[[], object], str]] = [
    (lambda: mm(A, B, oot=A), "did you mean `out`?"),
    (lambda: mm(A, b=B), "did you mean `B`?"),
    (lambda: mm(A, B, output=A), "did you mean `out`?"),
    (lambda: mm.compile(A, B, treads=2), "did you mean `threads`?"),
    (lambda: mm.compile(A, B, num_threads=2), "did you mean `threads`?"),
    (lambda: mm.compile(A, B, Fast_Math=True), "did you mean `fastmath`?"),
    (lambda: mm.compile(A, B, device="cuda"), "did you mean `target`?"),
    (lambda: mm.compile(A, B, tagret="cpu"), "did you mean `target`?"),
    (lambda: mm.compile(A, B, target="gpu"), "did you mean `cuda`?"),
    (lambda: mm.compile(A, B, target="cup"), "did you mean `cpu`?"),
    (lambda: mm.compile(A, B, shedule=None), "did you mean `schedule`?"),
    (lambda: mm.schedule(A, B, atuo=False), "did you mean `auto`?"),
    (lambda: mm.infer(A, B, tiemout=3), "did you mean `timeout`?"),
    (lambda: mm.check(A, B, accumulate="f64"), "did you mean `acc`?"),
    (lambda: pk.op(strided.replace("stride*", "2*"), Stride=2), "sizes: none"),
    (lambda: pk.op("O[i] = X[i] for i in 0:N", n=2), "did you mean `N`?"),
    (lambda: pk.op("O[i] = X[i] for i in 0:width", widht=2), "did you mean `width`?"),
    (lambda: pk.options(thread=2), "did you mean `threads`?"),
    (lambda: setattr(pk.options, "determinstic", True), "did you mean `deterministic`?"),
    (lambda: pk.einsum("ij,jk->ik", A, B, optimise=True), "did you mean `optimize`?"),
    (lambda: mm.compile(A, B, dtype="f64"), "did you mean `acc`?"),
    (lambda: pk.op("Y[i] = where(X[i] > 0, X[i], NaN)").infer(pk.f32[3]), "written `nan`"),
    (lambda: pk.op("Y[i] = X[i] and true").infer(X=pk.f32[3]), "written `True`"),
    # Types.
    (lambda: mm.compile(A=np.float32, B=B), "pk.f32[64, 32]"),
    (lambda: mm.compile(A=pk.f32, B=B), 'pk.f32["M", "K"]'),
    (lambda: mm.compile(A="f32", B=B), "pk.f32[()]"),
    (lambda: mm.compile(A=np.dtype("f8"), B=B), "pk.f64[64, 32]"),
    (lambda: mm.compile(A=float, B=B), "pk.f64[64, 32]"),
    (lambda: mm.compile(A="float32", B=B), "pk.f32[64, 32]"),
    (lambda: mm.compile(A="float32[2,3]", B=B), 'write "f32[2,3]"'),
    (lambda: mm.compile(A="<f4[2, K]", B=B), 'write "f32[2, K]"'),
    (lambda: mm.compile(A="'u8'[2,3]", B=B), 'write "u64[2,3]"'),
    (lambda: mm.compile((2, 3), (3, 4)), "pk.f32[2, 3]"),
    (lambda: mm.infer(A=(2, "K"), B=("K", 4)), "pk.f32[2, 'K']"),
    (lambda: pk.op(3), 'pk.op("C[i,j] += A[i,k] * B[k,j]")'),
    (lambda: pk.op("C[i] = A[i]", "D[i] = C[i]"), "one text"),
    (lambda: pk.op([["C[i] = A[i]"]]), "a list holds statements of the builder"),
    (lambda: pk.op(pk.tensors("A")[0] + 1), ".set(value)"),
    (lambda: pk.indices("i, j"), "spaces between them"),
    (lambda: pk.tensors(["A"]), "spaces between them"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "hint"), MEANT)
def test_the_hint_names_what_was_meant(call: Callable[[], object], hint: str) -> None:
    with pytest.raises(pk.PolykerError) as found:
        call()
    assert hint in (found.value.hint or "")


def test_attributes_that_are_not_there_name_those_that_are() -> None:
    for thing, name, said in (
        (pk, "einsun", "did you mean `einsum`?"),
        (pk, "float32", "did you mean `f32`?"),
        (pk, "Float64", ""),
        (pk.options, "treads", "did you mean `threads`?"),
    ):
        with pytest.raises(AttributeError) as found:
            getattr(thing, name)
        assert said in str(found.value)


def test_a_name_that_is_right_or_like_none_is_not_corrected() -> None:
    assert all(meant_name(name, NAMES) is None for name in (*NAMES, "x", "banana"))
    with pytest.raises(pk.ArgumentError) as found:
        mm(A, B, threads=2)
    assert "did you mean" not in str(found.value)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (pk.u8, "u8"), ("u8", "u8"), ("float32", "f32"), ("bfloat16", "bf16"), (np.float32, "f32"), (np.dtype("<i4"), "i32"),
        (bool, "bool"), (int, "i64"), (float, "f64"), (complex, "c128"), (np.bool_, "bool"),
    ],
)  # fmt: skip
def test_objects_that_stand_for_an_element_type(given: object, name: str) -> None:
    assert dtype_of(given) is DTYPES[name]


def test_objects_that_stand_for_none() -> None:
    assert all(
        dtype_of(v) is None for v in (None, 3, "f4", "<f4", str, object, np.datetime64, np.dtype(">f4"), np.ones(2))
    )
    assert all(meant_type(t) is None for t in ("f32", "u8", "i8", "A", "", "x y"))
    assert [meant_type(t) for t in ("f8", "'i8'", "|u1", "np.half", "torch.bfloat16")] == [
        "f64",
        "i64",
        "u8",
        "f16",
        "bf16",
    ]


def test_an_option_takes_numpys_types() -> None:
    with pk.options(acc=np.float64) as chosen:
        assert chosen.acc is pk.f64
