"""Tracebacks of polyker's errors end at the caller's line, at every door of the library."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest

import polyker as pk
from polyker.errors.tracebacks import api_boundary
from polyker.viz import instances

A, B = np.ones((4, 5)), np.ones((5, 6))
WRONG = np.ones((3, 3))
i, j, k = pk.indices("i j k")
X, Y = pk.tensors("X Y")


@cache
def product() -> pk.Operator:
    return pk.op("C[i,j] += A[i,k] * B[k,j]")


@cache
def kernel() -> pk.Kernel:
    return product().compile(A, B)


@cache
def gather() -> pk.Operator:
    return pk.op("O[i] = T[I[i]]")


@cache
def schedule() -> pk.Schedule:
    return product().schedule(A, B)


class Raising:
    def __array__(self, *args: object, **kwargs: object) -> object:
        raise RuntimeError("of the caller")


class Calling:
    def __array__(self, *args: object, **kwargs: object) -> object:
        return product()(A, A)


def warm(call: Callable[..., object], *args: object) -> None:
    for _ in range(5):  # until the call goes to machine code with no Python in between
        call(*args)


def gathered() -> None:
    warm(gather(), np.ones(3), np.array([0, 1]))
    gather()(np.ones(3), np.array([0, 7]))


def of_kernel() -> None:
    warm(kernel(), A, B)
    kernel()(A, WRONG)


DOORS: dict[str, Callable[[], object]] = {
    "a text": lambda: pk.op("C[i,j] = A[i,k]"),
    "a text with a repair": lambda: pk.op("C(i,j) += A(i,k) * B(k,j)"),
    "no operator": lambda: pk.op(3),
    "a call": lambda: product()(A, A),
    "a call by name": lambda: product()(A=A, B=A),
    "a call's out": lambda: product()(A, B, out=A),
    "a call's element": gathered,
    "types": lambda: product().compile(pk.f32[2, 3], pk.f32[4, 5]),
    "an option of a compile": lambda: product().compile(A, B, threads=0),
    "infer": lambda: product().infer(pk.f32[2, 3], pk.f32[4, 5]),
    "source": lambda: product().source("object", A, B),
    "check": lambda: product().check(A, A),
    "explain": lambda: product().explain(A, A),
    "grad": lambda: product().grad("Z"),
    "a kernel": of_kernel,
    "a kernel's stage": lambda: kernel().source("object"),
    "a kernel's measure": lambda: kernel().measure(A, A),
    "a prepared call": lambda: kernel().prepare(A, A),
    "a kernel's export": lambda: kernel().export("x.so", abi="java"),
    "a library": lambda: pk.export_library("x.so", {}),
    "a schedule": lambda: schedule().tile(z=3),
    "a schedule's statement": lambda: schedule()["Z"],
    "a statement's step": lambda: schedule()["C"].unroll(z=4),
    "a picture": lambda: instances(schedule(), "Z"),
    "einsum": lambda: pk.einsum("ij,jk->ik", A, A),
    "einsum's text": lambda: pk.einsum("i;j", A),
    "a type": lambda: pk.f32[1.5],
    "options of a block": lambda: pk.options(acc="x"),
    "an option of the process": lambda: setattr(pk.options, "acc", "x"),
    "threads": lambda: pk.set_num_threads(0),
    "a host's loop": lambda: pk.set_parallel_for("x"),
    "indices": lambda: pk.indices(""),
    "an expression": lambda: i + "x",
    "a truth value": lambda: bool(i == j),
    "a tensor": lambda: X.pad("none"),
    "an assignment": lambda: X[i].set("x"),
    "a range": lambda: X[i].set(Y[i]).for_(i=3),  # type: ignore[arg-type]
    "a function": lambda: pk.exp(i, j),
    "a reduction": lambda: pk.sum(i),
    "a loop": lambda: pk.loop(i, 0, 3),
    "a declaration": lambda: pk.declare("f", [3], [X]),  # type: ignore[list-item]
    "statements": lambda: pk.op(X[i].set(Y[j])),
}


def frames(error: BaseException) -> Iterator[tuple[str, str]]:
    return ((f.filename, f.name) for f in traceback.extract_tb(error.__traceback__))


def raised(door: Callable[[], object]) -> pk.PolykerError:
    with pytest.raises(pk.PolykerError) as found:
        door()
    return found.value


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_the_last_frame_is_the_callers(door: Callable[[], object]) -> None:
    error = raised(door)
    assert {file for file, _ in frames(error)} == {__file__}
    assert error.__cause__ is None and error.__context__ is None


def test_the_variable_shows_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYKER_TRACEBACK", "full")
    files = [file for file, _ in frames(raised(DOORS["a call"]))]
    assert files[0] == __file__ and any("polyker" in file and "errors" not in file for file in files[1:])


def test_errors_of_the_callers_own_stay() -> None:
    for argument, cause in ((Raising(), RuntimeError), (Calling(), pk.ShapeError)):
        error = raised(lambda argument=argument: product()(argument, B))  # type: ignore[misc]
        assert isinstance(error.__cause__, cause)
        assert [name for _, name in frames(error.__cause__)] == ["__array__"]
    try:
        raise LookupError("handled by the caller")
    except LookupError as handled:
        assert raised(lambda: product()(A, A)).__context__ is handled


def test_a_bug_keeps_its_frames() -> None:
    @api_boundary
    def broken() -> None:
        raise pk.InternalError("a bug")

    assert [name for _, name in frames(raised(broken))][-2:] == ["bounded", "broken"]
