"""Classes of tensors with the C exchange API of DLPack, of whatever library, in calls through the emitted entry."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.call_table import ClassWord
from polyker.runtime.exchange.classes import exchange_class
from tests.runtime import lent
from tests.runtime.calls import NEEDS_ENTRY, no_python
from tests.runtime.lent import Lent, functions, lending, raising

pytestmark = NEEDS_ENTRY

TEXT = "y[i,j] = x[i,j] + x[i,j]"
Tensor = lending(functions())
X = np.arange(12.0).reshape(3, 4)


def warm(value: Any, **named: Any) -> Any:
    kernel = pk.op(TEXT).compile(value.array)
    for _ in range(4):
        kernel(value, **named)
    return kernel


def test_any_class_with_the_api_goes_straight_and_gets_its_own_tensors() -> None:
    for array in (X, X.T, X[::-1, ::2], np.broadcast_to(X[0], (3, 4)), X.astype("f2"), X[1:2, 3:]):
        value = Tensor(array, offset=16)
        kernel = pk.op(TEXT).compile(array)
        for _ in range(4):
            found = kernel(value)
            assert (
                type(found) is Lent and np.array_equal(found.array, array + array) and found.array.dtype == array.dtype
            )
        with no_python():
            found = kernel(value)
        assert type(found) is Lent and np.array_equal(found.array, array + array)
        operator = pk.op(TEXT)
        assert all(np.array_equal(operator(value).array, array + array) for _ in range(6))
        del found
        gc.collect()


def test_an_out_is_looked_at_as_an_array_is_written() -> None:
    value, out = Tensor(X), Tensor(np.zeros((3, 4)))
    kernel = warm(value, out=out)
    assert kernel(value, out=out) is out and np.array_equal(out.array, X + X)
    out.array.flags.writeable = False
    with pytest.raises(pk.ArgumentError, match="read-only"):
        kernel(value, out=out)


def test_kinds_are_not_mixed() -> None:
    pair, other = pk.op("z[i,j] = x[i,j] + y[i,j]"), lending(functions(make=lent.address_of(lent.VIEW)))
    kernel = pair.compile(X, X)
    for _ in range(4):
        kernel(Tensor(X), Tensor(X))
    with pytest.raises(pk.ArgumentError, match="`y` a numpy array"):
        kernel(Tensor(X), X)
    assert exchange_class(other) is not None
    assert np.array_equal(np.asarray(pair(Tensor(X), Tensor(X)).array), X + X)


def test_what_the_api_cannot_show_is_read_in_another_way() -> None:
    kernel = warm(Tensor(X))
    elsewhere = Tensor(X, device=2)
    with pytest.raises(pk.ArgumentError, match="CUDA"):
        kernel(elsewhere)
    failing = lending(functions(show=raising(ValueError)))
    assert np.array_equal(warm(failing(X))(failing(X)).array, X + X)
    # One whose function fails only now and then.
    both = pk.op("z[i,j] = x[i,j] + y[i,j]").compile(X, X)
    for _ in range(4):
        assert np.array_equal(both(Tensor(X), Tensor(X)).array, X + X)


class Fickle(Lent):
    """Tensors whose class changes what its API does after rows are made for it."""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_errors_of_a_view_are_cleared_or_go_on(error: type[BaseException]) -> None:
    fickle = lending(functions(), Fickle)
    found = exchange_class(fickle)
    assert found is not None
    kernel = warm(fickle(X))
    found.words[ClassWord.VIEW] = raising(error)
    if error is ValueError:
        assert np.array_equal(kernel(fickle(X)).array, X + X)
    else:
        with pytest.raises(KeyboardInterrupt):
            kernel(fickle(X))


def test_errors_of_a_maker_go_on() -> None:
    broken = lending(functions(make=raising(ZeroDivisionError)))
    kernel = pk.op(TEXT).compile(X)
    for _ in range(4):
        with pytest.raises(pk.ArgumentError):  # Python's way says that the library makes no tensor
            kernel(broken(X))
    fickle, kernel = lending(functions()), pk.op("y[i,j] = x[i,j] * 5").compile(X)
    for _ in range(4):
        kernel(fickle(X))
    found = exchange_class(fickle)
    assert found is not None
    found.words[ClassWord.MAKE] = raising(ZeroDivisionError)
    with pytest.raises(ZeroDivisionError), no_python():
        kernel(fickle(X))


def test_versions_and_classes_that_are_not_taken() -> None:
    assert exchange_class(lending(functions(major=2))) is None
    assert exchange_class(lending(functions(major=2, older=functions()))) is not None
    assert exchange_class(lending(functions(show=0))) is None and exchange_class(lending(functions(make=0))) is None
    assert exchange_class(Lent) is None and exchange_class(np.ndarray) is None and exchange_class(int) is None

    class Overriding(Tensor):  # type: ignore[misc,valid-type]
        def __dlpack__(self, **named: Any) -> Any:
            return (self.array + 1).__dlpack__(**named)

    assert exchange_class(Overriding) is None
    kernel = warm(Tensor(X))
    assert np.array_equal(kernel(Overriding(X)), 2 * (X + 1))

    class Recording(Tensor):  # type: ignore[misc,valid-type]
        requires_grad = True

    assert exchange_class(Recording) is None
    with pytest.raises(pk.ArgumentError, match="requires grad"):
        kernel(Recording(X))
    assert exchange_class(type("Odd", (), {"__dlpack_c_exchange_api__": 7})) is None


def test_classes_come_and_go() -> None:
    kernel = pk.op(TEXT).compile(X)
    for _ in range(8):  # more than a table knows
        passing = lending(functions())
        for _ in range(5):
            assert np.array_equal(kernel(passing(X)).array, X + X)
        del passing
        gc.collect()
