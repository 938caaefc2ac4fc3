"""Every public callable, given values that make no sense for each of its arguments: a result, or an error of the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.errors import CATALOGUE, InternalError, PolykerError
from tests.runtime.junk import calls, values


@pytest.fixture(autouse=True)
def options_as_they_were() -> Any:
    with pk.options(threads=1):
        yield


CALLS = list(calls())


@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
@pytest.mark.filterwarnings("ignore")
def test_what_makes_no_sense_is_refused_by_an_error_of_the_catalogue(call: Callable[[Any], Any]) -> None:
    wrong = []
    for name, value in values().items():
        try:
            call(value)
        except PolykerError as error:
            if error.code not in CATALOGUE or isinstance(error, InternalError) or not str(error):
                wrong.append(f"{name}: {error}")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    assert not wrong


def test_an_empty_tuple_of_outputs_is_refused_after_calls_without_outputs() -> None:
    """What is looked up for `out=None` must not be found for `out=()`, which gives the kernel no outputs to write to."""
    two, x = pk.op("s[i] = x[i]; t[i] = x[i] + 1"), np.ones(2)
    for call in (two, two.compile(x)):
        for _ in range(4):
            assert call(x).t.tolist() == [2.0, 2.0]
            for out in ((), [], {"u": x}):
                with pytest.raises(PolykerError) as caught:
                    call(x, out=out)
                assert caught.value.code == "PK726"


@pytest.mark.parametrize("two", [np.int64(2), np.uint8(2), np.array(2), np.int16([2])[0]])
def test_numpy_s_integers_are_integers_wherever_python_s_are(two: Any) -> None:
    with pk.options(threads=two, cache_size=two, scratch_bytes=two, timeout=two) as chosen:
        assert (chosen.threads, chosen.cache_size, chosen.scratch_bytes, chosen.timeout) == (2, 2, 2, 2.0)
        assert all(type(v) in (int, float) for v in (chosen.threads, chosen.cache_size, chosen.timeout))
    try:
        pk.set_num_threads(two)
        assert pk.get_num_threads() == 2
    finally:
        pk.set_num_threads(None)
    fixed = pk.op("y[i] = x for i in 0:N", N=two)
    assert fixed(1.0).tolist() == [1.0, 1.0]
    assert pk.op("y[i] = x for i in 0:N")(1.0, N=two).tolist() == [1.0, 1.0]
    assert pk.op("y[i] = x[i]").compile(pk.f32[two], threads=two, timeout=two).types == (pk.f32[2],)
    plain = pk.op("B[i,j] = A[j,i]").schedule(pk.f32[8, 8], auto=np.bool_(False))
    assert plain == pk.op("B[i,j] = A[j,i]").schedule(pk.f32[8, 8], auto=False)
    for step in (lambda n: plain.tile(i=n), lambda n: plain.parallel("i", threads=n), lambda n: plain.skew(n, j="i")):
        assert step(two).steps == step(2).steps
        assert step(two).to_json() == step(2).to_json()
    assert pk.einsum(np.eye(3), [two, two]) == 3.0
    assert pk.einsum("ij,jk,kl", *[np.eye(2)] * 3, optimize=["einsum_path", (np.int64(0), 1), (0, 1)]).shape == (2, 2)


@pytest.mark.parametrize("wrong", [True, np.True_, np.array(True), 2.0, np.float32(2), "2", np.array([2]), None])
def test_bools_and_floats_are_no_integers(wrong: Any) -> None:
    plain = pk.op("B[i,j] = A[j,i]").schedule(pk.f32[8, 8], auto=False)
    for call in (
        lambda: pk.options(cache_size=wrong).__enter__(),
        lambda: pk.op("y[i] = x for i in 0:N", N=wrong),
        lambda: pk.op("y[i] = x for i in 0:N")(1.0, N=wrong),
        lambda: pk.f32[wrong],
        lambda: plain.tile(i=wrong),
    ):
        with pytest.raises(PolykerError):
            call()


def test_a_loop_called_factor_leans_on_another() -> None:
    text = "f(A: f64[N,N]) -> A:\n A[i,factor] = A[i-1,factor] + A[i-1,factor+1]  for i in 1:N, factor in 0:N-1"
    plain = pk.op(text).schedule(pk.f64[8, 8], auto=False)
    assert plain.skew(factor="i").steps == plain.skew(1, factor="i").steps
    assert str(plain.skew(2, factor="i").steps[0]) == 's.skew({"factor": "i"}, factor=2)'
