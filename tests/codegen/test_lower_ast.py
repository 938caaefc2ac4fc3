"""Loops that isl made are held against what they are to run."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.errors import CompileError


def test_loops_that_miss_instances_are_refused() -> None:
    """isl 0.27 loses every second instance of the copy here."""
    operator = pk.op("Q[k] = J[k%4,k]")
    J = np.arange(5 * 33, dtype="f4").reshape(5, 33)
    s = operator.schedule(J, auto=False).vectorise(k=2)["Q"].promote("J", at="k.tile")["J.packed"].unroll(k=8)
    assert np.array_equal(operator.compile(J, schedule=s)(J), operator(J))
    s = s["J.packed"].skew(3, **{"k.tile": "k.point"})
    with pytest.raises(CompileError) as caught:
        operator.compile(J, schedule=s)
    assert caught.value.code == "PK611"
