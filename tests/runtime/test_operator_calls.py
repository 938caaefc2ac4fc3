"""Calls of operators through the emitted entry: they follow the options in force and the environment, as calls through Python."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import polyker as pk
from tests.artifacts import entry_of, table_of
from tests.runtime.calls import BUILTIN, NEEDS_ENTRY, no_python

pytestmark = NEEDS_ENTRY

X = np.array([1e4, 1.0, -1e4, 1.0], np.float16)


def summed() -> Any:
    """Return an operator whose result shows the type that it accumulates in."""
    return pk.op("s += X[i] * Y[i]")


def warm(operator: Any, *args: Any) -> Any:
    for _ in range(4):
        found = operator(*args)
    assert type(entry_of(operator)) is BUILTIN
    return found


def test_options_in_force_decide() -> None:
    operator, wide = summed(), np.full(4, 300, np.float16)
    assert np.isinf(warm(operator, wide, wide))
    with no_python():
        operator(wide, wide)
    with pk.options(acc="f32"):
        first = operator(wide, wide)
        for _ in range(4):
            assert operator(wide, wide) == first
        with no_python():
            operator(wide, wide)
        with pk.options(acc="f64"):
            operator(wide, wide)
        assert operator(wide, wide) == first
    for _ in range(70):
        assert np.isinf(operator(wide, wide))
    with no_python():
        operator(wide, wide)
    assert table_of(operator) is not None


def test_the_default_of_the_process_decides() -> None:
    a = np.ones((3, 3), np.float32)
    operator = pk.op("C[p,q] += A[p,r] * B[r,q]")
    warm(operator, a, a)
    before = pk.options.acc
    try:
        pk.options.acc = "f64"
        with pytest.raises(AssertionError, match="through Python"), no_python():
            operator(a, a)
        warm(operator, a, a)
    finally:
        pk.options.acc = before
    assert np.array_equal(operator(a, a), a @ a)


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, x = pk.op("y[i] = x[i] * 2"), np.arange(5.0)
    warm(operator, x)
    for name, value in (("POLYKER_TARGET", "nowhere"), ("POLYKER_INTERPRET", "1")):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            if name == "POLYKER_TARGET":
                with pytest.raises(pk.PolykerError, match="nowhere"):
                    operator(x)
            else:
                with pytest.raises(AssertionError, match="through Python"), no_python():
                    operator(x)
                assert np.array_equal(operator(x), 2 * x)
        with no_python():
            assert np.array_equal(operator(x), 2 * x)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(AssertionError, match="through Python"), no_python():
        operator(x)
    assert np.array_equal(operator(x), 2 * x)


def test_options_beyond_those_that_have_tables_are_right() -> None:
    operator, x = pk.op("y[i] = x[i] + 3"), np.arange(4.0)
    for n in range(11):
        with pk.options(timeout=100.0 + n):
            for _ in range(4):
                assert np.array_equal(operator(x), x + 3)
    for _ in range(130):
        assert np.array_equal(operator(x), x + 3)


def test_threads_with_options_of_their_own() -> None:
    operator, x = (
        pk.op("y[i,j] = x[i,j] * 2 + 1"),
        np.arange(400_000.0).reshape(2, -1),
    )  # the lock is given away around it
    failures: list[int] = []

    def work(number: int) -> None:
        for k in range(60):
            with pk.options(timeout=200.0 + (number + k) % 3):
                for _ in range(3):
                    if not np.array_equal(operator(x[:, : 100_000 + number]), x[:, : 100_000 + number] * 2 + 1):
                        failures.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_operators_go_when_nobody_holds_them() -> None:
    gc.collect()
    gc.disable()
    try:
        operator = pk.op("y[i] = x[i] - 7")
        warm(operator, np.arange(3.0))
        weak = weakref.ref(operator)
        del operator
        assert weak() is None  # at once: nothing in it leads back
    finally:
        gc.enable()
    assert np.array_equal(pk.op("y[i] = x[i] - 7")(np.arange(3.0)), np.arange(3.0) - 7)


def test_operators_are_callables_as_others() -> None:
    operator, x = pk.op("y[i] = a * x[i]"), np.arange(3.0)
    for _ in range(2):
        bound = functools.partial(operator, 2.0)
        assert np.array_equal(bound(x), 2 * x) and np.array_equal(next(map(bound, [x])), 2 * x)
        assert callable(operator) and "out" in inspect.signature(operator).parameters
        assert "y[i] = a*x[i]" in repr(operator).replace(" * ", "*")
        warm(operator, 2.0, x)
    assert np.array_equal(operator(x=x, a=3.0), 3 * x)
    with pytest.raises(pk.PolykerError):
        operator(x)
    names = pk.op("y[i] = self[i] + args[i] + named[i]")
    for _ in range(5):
        assert np.array_equal(names(self=x, args=x, named=x), 3 * x)
