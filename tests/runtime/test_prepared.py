"""Prepared calls on the CPU: checked once, run again on what the arrays hold then."""

import numpy as np
import pytest

import polyker as pk
from polyker.errors import PolykerError

PRODUCT = "C[i,j] += A[i,k] * B[k,j]"


def test_a_prepared_call_reads_what_its_arrays_hold_and_writes_out() -> None:
    a, b, c = np.ones((3, 4)), np.ones((4, 5)), np.zeros((3, 5))
    call = pk.op(PRODUCT).compile(a, b).prepare(a, B=b, out=c)
    for n in range(4):
        a[:] = n
        assert call() is c
        np.testing.assert_array_equal(c, a @ b)


def test_results_that_are_not_given_are_made_once() -> None:
    a, b = np.ones((3, 4)), np.ones((4, 5))
    call = pk.op(PRODUCT).compile(a, b).prepare(a, b)
    first = call()
    a *= 2
    assert call() is first and (first == 8).all()


def test_several_results_keep_their_names() -> None:
    x = np.arange(4.0)
    call = pk.op("Y[i] = X[i] + 1; Z[i] = X[i] * 2").compile(x).prepare(x)
    found = call()
    x += 1
    again = call()
    assert again.Y is found.Y and again.Z is found.Z
    np.testing.assert_array_equal(again.Z, 2 * x)


def test_tensors_of_torch_are_read_and_written_where_they_lie() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.ones(3, 4, dtype=torch.float64), torch.ones(4, 5, dtype=torch.float64)
    call = pk.op(PRODUCT).compile(a, b).prepare(a, b)
    first = call()
    a.mul_(3)
    assert torch.equal(call(), a @ b) and torch.equal(first, a @ b)


def test_an_array_that_has_to_be_repaired_is_read_anew_each_time() -> None:
    a, b = np.ones((3, 4)).astype(">f8"), np.ones((4, 5))
    call = pk.op(PRODUCT).compile(pk.f64[3, 4], pk.f64[4, 5]).prepare(a, b)
    call()
    a *= 2
    assert (call() == 8).all()


def test_what_is_wrong_is_told_when_it_is_prepared() -> None:
    kernel = pk.op(PRODUCT).compile(pk.f64[3, 4], pk.f64[4, 5])
    with pytest.raises(PolykerError, match="`A`"):
        kernel.prepare(np.ones((3, 5)), np.ones((4, 5)))
    with pytest.raises(PolykerError, match="`C`"):
        kernel.prepare(np.ones((3, 4)), np.ones((4, 5)), out=np.zeros((3, 4)))
    with pytest.raises(PolykerError):
        kernel.prepare(np.ones((3, 4)))
