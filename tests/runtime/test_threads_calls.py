"""Operators on several threads: how many, what a call finds, errors in regions, callers in several threads, memory."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ArgumentError, GatherError, ShapeError
from polyker.options import available_cores
from polyker.runtime.threads import pool

PRODUCT = "C[i,j] += A[i,k] * B[k,j]"


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    yield
    pk.set_num_threads(None)


def operands(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.integers(-3, 4, (n, n)).astype("f4"), rng.integers(-3, 4, (n, n)).astype("f4")


def test_the_number_of_threads_is_that_of_options_then_the_environments_then_of_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("POLYKER_NUM_THREADS", raising=False)
    assert pk.get_num_threads() == available_cores()
    monkeypatch.setenv("POLYKER_NUM_THREADS", "5")
    assert pk.get_num_threads() == 5
    pk.set_num_threads(3)
    assert pk.get_num_threads() == 3
    with pk.options(threads=2):
        assert pk.get_num_threads() == 2
    assert pk.get_num_threads() == 3


@pytest.mark.parametrize("text", ["many", "0", "-1", "1.5", "257", "\u0663"])
def test_an_environment_that_says_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYKER_NUM_THREADS", text)
    with pytest.raises(ArgumentError, match="POLYKER_NUM_THREADS"):
        pk.get_num_threads()


@pytest.mark.parametrize("count", [0, 257, True, 2.0])
def test_a_number_of_threads_is_one_from_1_to_256(count: object) -> None:
    with pytest.raises(ArgumentError):
        pk.set_num_threads(count)  # type: ignore[arg-type]


def test_a_new_number_counts_from_the_next_call_on() -> None:
    a, b = operands()
    multiply = pk.op(PRODUCT)
    expected = a @ b
    pk.set_num_threads(2)
    for _ in range(8):
        assert np.array_equal(multiply(a, b), expected)
    before = pool().workers
    pk.set_num_threads(before + 3)
    assert np.array_equal(multiply(a, b), expected)
    assert pool().workers == before + 2
    pk.set_num_threads(1)
    assert np.array_equal(multiply(a, b), expected)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 63, 250])
def test_symbolic_kernels_run_small_and_large_sizes(threads: int, n: int) -> None:
    with pk.options(threads=threads):
        kernel = pk.op(PRODUCT).compile(A=pk.f32["M", "K"], B=pk.f32["K", "N"])
    a, b = operands(n)
    assert np.array_equal(kernel(a, b), a @ b)


def test_the_first_index_out_of_range_is_the_error_of_a_call_on_threads() -> None:
    text = "O[i,j] = X[rows[i],j] + Y[columns[i],j]"
    x = np.ones((50, 400), "f4")
    for place, wrong in ((700, "rows"), (100, "columns")):
        rows, columns = np.zeros(1000, np.int64), np.zeros(1000, np.int64)
        (rows if wrong == "rows" else columns)[place] = 50
        (columns if wrong == "rows" else rows)[place + 200] = 77
        with pk.options(threads=4):
            with pytest.raises(GatherError) as caught:
                pk.op(text)(X=x, rows=rows, Y=x, columns=columns)
        named = "X" if wrong == "rows" else "Y"
        assert f"`{named}`" in str(caught.value)
    with pk.options(threads=4):
        zeros = np.zeros(1000, np.int64)
        assert (pk.op(text)(X=x, rows=zeros, Y=x, columns=zeros) == 2).all()


def test_sixteen_threads_compile_and_call() -> None:
    failures: list[BaseException] = []

    def call(seed: int) -> None:
        try:
            a, b = operands(150 + seed % 4)
            expected = a @ b
            multiply = pk.op(PRODUCT)
            for _ in range(30):
                if not np.array_equal(multiply(a, b), expected):
                    raise AssertionError("a wrong product")
        except BaseException as error:
            failures.append(error)

    pk.set_num_threads(3)
    callers = [threading.Thread(target=call, args=(n,)) for n in range(16)]
    for c in callers:
        c.start()
    for c in callers:
        c.join(120)
        assert not c.is_alive()
    assert not failures, failures[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_calls_what_its_parent_compiled_and_compiles() -> None:
    a, b = operands()
    multiply, expected = pk.op(PRODUCT), operands()[0] @ operands()[1]
    pk.set_num_threads(3)
    for _ in range(5):
        multiply(a, b)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(30)
                good = np.array_equal(multiply(a, b), expected)
                pk.set_num_threads(2)
                good &= np.array_equal(multiply(a, b), expected)
                status = 0 if good else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


def test_where_one_thread_has_memory_enough_so_have_several() -> None:
    text = "T[i,j] = exp(X[i,j]); O[i,j] = T[i,j] / sum[k](T[i,k])"
    x = np.random.default_rng(1).standard_normal((64, 20000)).astype("f4")

    def result(threads: int, most: int) -> np.ndarray | None:
        with pk.options(threads=threads, scratch_bytes=most):
            try:
                return pk.op(text)(x)
            except ShapeError:
                return None

    enough = next(n for n in (1 << k for k in range(10, 30)) if result(1, n) is not None)
    for most in (enough, 4 * enough):
        np.testing.assert_array_equal(result(8, most), result(1, most))


def test_a_compile_takes_its_threads_and_whether_they_may_be_seen_in_the_bits() -> None:
    a, b = np.ones((256, 256), "f4"), np.ones((256, 256), "f4")
    multiply = pk.op(PRODUCT)
    one, two = (multiply.compile(a, b, threads=n, deterministic=True) for n in (1, 2))
    assert "parallel(2)" in two.source("schedule")
    assert "parallel" not in one.source("schedule")
    np.testing.assert_array_equal(one(a, b), two(a, b))


def test_a_thousand_calls_give_the_same_bits() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((130, 120)).astype("f4"), rng.standard_normal((120, 140)).astype("f4")
    results = set()
    for threads in (1, 2, 3, 8):
        with pk.options(threads=threads, deterministic=True):
            multiply = pk.op(PRODUCT)
            results |= {multiply(a, b).tobytes() for _ in range(250)}
    assert len(results) == 1
