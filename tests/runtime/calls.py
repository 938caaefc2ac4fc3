"""Kernels called through the emitted entry and through Python, and what a call comes to, to compare."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.runtime.entry.native import Native, native
from tests.runtime.support import coded

MATMUL = "C[i,j] += A[i,k] * B[k,j]"
BUILTIN = type(len)

NEEDS_ENTRY = pytest.mark.skipif(not isinstance(native(), Native), reason="this interpreter has no emitted entry")


def f32(*shape: int, salt: int = 1) -> np.ndarray:
    return coded(shape, np.float32, salt)


def both(text: str, *args: Any, outs: tuple[Any, ...] = (), sizes: dict[str, int] | None = None) -> tuple[Any, Any]:
    """Return a kernel whose calls like these go through the entry, and the way through Python of another such kernel."""
    operator, sizes = pk.op(text), sizes or {}
    fast, slow = operator.compile(*args), operator.compile(*args).func
    for out in (None, *outs):
        for _ in range(4):
            fast(*args, out=out, **sizes)
    assert type(fast.func) is BUILTIN
    assert type(slow) is not BUILTIN
    return fast, slow


def through_python(operator: pk.Operator) -> Callable[..., Any]:
    """Return calls of an operator that all take the way through Python, as where the environment names a target."""

    def call(*args: Any, **named: Any) -> Any:
        os.environ["POLYKER_TARGET"] = "cpu"
        try:
            return operator(*args, **named)
        finally:
            del os.environ["POLYKER_TARGET"]

    return call


@contextmanager
def no_python() -> Iterator[None]:
    """Let a call fail the test that takes the way through Python."""

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.endswith(("api/kernel.py", "entry/dispatch.py")):
            raise AssertionError("this call went through Python")

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)


def outcome(call: Callable[..., Any], make: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]) -> Any:
    """Return what a call comes to, in a form to compare: result and written arguments, or the error."""
    args, named = make()
    try:
        result = call(*args, **named)
    except Exception as error:
        return type(error), str(error), shown(args), shown(named)
    mine = next((i for i, v in enumerate((*args, *named.values())) if v is result), None)
    return shown(result), mine, shown(args), shown(named)


def shown(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return type(value), value.dtype.str, value.shape, value.strides, value.flags.writeable, value.tobytes()
    if isinstance(value, dict):
        return {name: shown(v) for name, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [shown(v) for v in value]
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
    return type(value), repr(value) if isinstance(value, (int, float, complex, str, type(None))) else ""


class Sub(np.ndarray):
    pass


def misaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    view = memory[: array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array
