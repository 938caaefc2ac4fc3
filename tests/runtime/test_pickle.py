"""Operators, schedules, options, errors and results go through pickle, as multiprocessing and joblib need it."""

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.api.compiling import kernels
from polyker.errors import PolykerError
from polyker.structs import replace
from tests.artifacts import compiled_of

PRODUCT = "C[i,j] += A[i,k] * B[k,j]"
TWO = "Y[i] = X[i] + 1; Z[i] = X[i] * 2"


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_an_operator_goes_as_its_text_and_fixed_sizes_however_often_it_was_called() -> None:
    strided = pk.op("O[i] += X[s*i+r] * W[r]", s=2)
    x, w = np.arange(9.0), np.arange(3.0)
    for calls in (0, 1, 5):
        for _ in range(calls):
            strided(x, w)
        other = again(strided)
        assert other.identity == strided.identity and str(other) == str(strided)
        np.testing.assert_array_equal(other(x, w), strided(x, w))
    np.testing.assert_array_equal(copy.deepcopy(strided)(x, w), strided(x, w))


def test_a_built_operator_goes_as_its_program() -> None:
    (i,), (a, b) = pk.indices("i"), pk.tensors("A B")
    built = pk.op(b[i].set(a[i] * 2))
    built(np.ones(3))
    np.testing.assert_array_equal(again(built)(np.arange(3.0)), [0, 2, 4])


@pytest.mark.parametrize("auto", [True, False])
def test_a_schedule_goes_with_its_steps(auto: bool) -> None:
    product = pk.op(PRODUCT)
    schedule = product.schedule(pk.f32[16, 16], pk.f32[16, 16], auto=False).tile(i=4, j=4)
    schedule = schedule if not auto else product.schedule(pk.f32[16, 16], pk.f32[16, 16])
    other = again(schedule)
    assert other == schedule and str(other) == str(schedule)
    a = np.ones((16, 16), np.float32)
    np.testing.assert_array_equal(product.compile(schedule=other)(a, a), a @ a)


def test_several_results_keep_their_names() -> None:
    found = pk.op(TWO)(np.arange(3.0))
    other = again(found)
    assert type(other).__name__ == "Results" and other._fields == ("Y", "Z")
    np.testing.assert_array_equal(other.Z, found.Z)


def test_errors_keep_code_place_and_hint() -> None:
    with pytest.raises(PolykerError) as caught:
        pk.op("Y[i] = X[j]")
    error = again(caught.value)
    assert type(error) is type(caught.value) and str(error) == str(caught.value)
    assert (error.code, error.hint, error.span) == (caught.value.code, caught.value.hint, caught.value.span)
    with pytest.raises(PolykerError) as caught:
        pk.op(PRODUCT)(np.ones(3), object())
    assert str(again(caught.value)) == str(caught.value)


def test_options_and_types_go() -> None:
    with pk.options(acc=pk.f64, timeout=7.0):
        assert again(pk.options.current) == pk.options.current
    assert again(pk.options) is pk.options and copy.deepcopy(pk.options) is pk.options
    assert again(pk.f32["M", 3]) == pk.f32["M", 3] and again(pk.bf16) is pk.bf16


def test_a_kernel_goes_with_its_machine_code() -> None:
    product, a = pk.op(PRODUCT), np.arange(16.0).reshape(4, 4)
    for types in ((pk.f64[4, 4], pk.f64[4, 4]), (pk.f64["M", "K"], pk.f64["K", "N"])):
        kernel = product.compile(*types)
        for value in (a, a.T, a[::2]):
            kernel(value if types[0].shape[0] == "M" else a, a)
        kernels.clear()
        state = pickle.dumps(kernel)
        del kernel
        kernels.clear()
        other = pickle.loads(state)
        made = compiled_of(other).executables
        assert made and all(e.from_disk for e in made.values())
        np.testing.assert_array_equal(other(a, a), a @ a)
        assert other.source("llvm") == product.compile(*types).source("llvm") and str(other.schedule)


def test_a_kernel_of_a_schedule_goes_with_it() -> None:
    product, types, a = pk.op(PRODUCT), (pk.f32[16, 16], pk.f32[16, 16]), np.ones((16, 16), np.float32)
    schedule = product.schedule(*types, auto=False).tile(i=4, j=4)
    other = again(product.compile(*types, schedule=schedule))
    assert other.schedule == schedule
    np.testing.assert_array_equal(other(a, a), a @ a)


def test_a_kernel_of_another_machine_or_version_is_compiled_anew() -> None:
    kernel = pk.op(PRODUCT).compile(pk.f32[3, 3], pk.f32[3, 3])
    restore, (definition, bound, schedule, kept) = kernel.__reduce__()
    kernels.clear()
    other = restore(definition, bound, schedule, [replace(k, key="0" * 64, image=b"nonsense") for k in kept])
    a = np.ones((3, 3), np.float32)
    np.testing.assert_array_equal(other(a, a), a @ a)
    assert not any(e.from_disk for e in compiled_of(other).executables.values())


def test_kernels_of_other_targets_go_too() -> None:
    for target in ("cpu:x86-64-v2", "wasm32", "cuda:sm_80"):
        kernel = pk.op(PRODUCT).compile(pk.f32[4, 4], pk.f32[4, 4], target=target)
        assert again(kernel).source("loops") == kernel.source("loops")


def work(operator: Any, x: Any) -> Any:
    return operator(x)


def test_a_pool_of_processes_takes_operators_and_gives_results_and_errors() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(work, pk.op(TWO), np.arange(3.0)).result(60).Z.tolist() == [0, 2, 4]
        with pytest.raises(PolykerError, match="`X`"):
            pool.submit(work, pk.op(TWO), object()).result(60)
