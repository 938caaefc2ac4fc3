"""Whether calls can go without Python in this process, and what happens where they cannot."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import polyker as pk
from polyker.cli.doctor import examine
from polyker.codegen.llvm.jit.call_table import Objects
from polyker.runtime.entry import native as module
from polyker.runtime.entry.native import Native, Unavailable, native
from polyker.structs import replace
from tests.artifacts import table_of
from tests.runtime.support import coded


def test_this_interpreter_has_the_entry_or_says_why_not() -> None:
    found = native()
    if sys.implementation.name == "cpython" and sys.byteorder == "little" and sys.platform == "linux":
        assert isinstance(found, Native)
    else:
        assert isinstance(found, Unavailable) and found.reason


@pytest.mark.parametrize("field", Objects.__struct_fields__)
def test_an_object_laid_out_in_another_way_is_noticed(field: str) -> None:
    right = Objects(item=tuple.__basicsize__)
    assert module.layout_fault(right) is None
    # Offsets at which there is a word that can be read, but another one.
    wrong = replace(right, **{field: {"shape": right.strides, "strides": right.shape, "rank": 16}.get(field, 24)})
    if field == "item":
        wrong = replace(right, item=16)
    assert module.layout_fault(wrong) is not None


def test_other_functions_of_numpy_are_noticed() -> None:
    table = module.api_table()
    assert not isinstance(table, Unavailable)
    assert module.are_numpys(table)


def test_without_the_entry_calls_go_through_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyker.runtime.entry.tables.native", lambda: Unavailable("of a test"))
    monkeypatch.setattr("polyker.runtime.entry.native.native", lambda: Unavailable("of a test"))
    operator, a = pk.op("C[i,j] += A[i,k] * B[k,j]"), coded((4, 4))
    kernel = operator.compile(a, a)
    out = np.empty((4, 4), np.float32)
    for _ in range(5):
        np.testing.assert_array_equal(kernel(a, a), a @ a)
        np.testing.assert_array_equal(operator(a, B=a, out=out), a @ a)
    assert table_of(operator) is None and not isinstance(kernel.func, type(len))
    assert any("because of a test" in finding.text for finding in examine())


def test_the_doctor_says_how_calls_go() -> None:
    expected = "straight to machine code" if isinstance(native(), Native) else "through Python"
    assert any(expected in finding.text for finding in examine())
