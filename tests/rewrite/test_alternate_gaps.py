"""Time loops that copy their steps back, of which some steps do nothing: no turn is taken for those."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk


@pytest.mark.parametrize("steps", ["t != 2", "t >= 1", "t < 4", "t % 2 == 0", "t != 0 and t != 3"])
@pytest.mark.parametrize("last", [1, 4, 5, 6])
def test_steps_that_are_left_out(steps: str, last: int) -> None:
    text = f"""h(A: f64[N], T) -> A:
    for t in 0:T:
        B[i] = A[i] * 2 + t for i in 0:N where {steps}
        A[i] = B[i] for i in 0:N where {steps}
    """
    want = np.ones(3)
    for t in range(last):
        if eval(steps, {"t": t}):
            want = want * 2 + t
    np.testing.assert_array_equal(pk.op(text)(A=np.ones(3), T=last), want)


def test_tensors_that_take_other_steps_each() -> None:
    text = """h(A: f64[N], C: f64[N], T) -> A, C:
    for t in 0:T:
        B[i] = A[i] + 1 for i in 0:N where t < 3
        D[i] = C[i] + 1 for i in 0:N
        A[i] = B[i] for i in 0:N where t < 3
        C[i] = D[i] for i in 0:N
    """
    found = pk.op(text)(A=np.zeros(2), C=np.zeros(2), T=5)
    np.testing.assert_array_equal(found.A, [3, 3])
    np.testing.assert_array_equal(found.C, [5, 5])
