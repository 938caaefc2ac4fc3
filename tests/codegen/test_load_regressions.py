"""Masked loads that LLVM once got wrong: of complex elements on AVX2, where the mask's upper half was taken for undefined."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.reference import interpret
from tests.runtime.support import Guarded, coded

TEXTS = (
    "O[i] = (sigmoid(real(X[i])) + conj(Y[i])) * imag(X[i])",
    "O[i] = real(X[i]) * Y[i] + conj(Y[i])",
    "O[i] = abs(X[i]) + imag(Y[i])",
    "O[{n}-1-i] = X[i] / 3 - Y[i]",
)


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", None])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("at_end", [True, False])
def test_a_masked_load_of_complex_elements_reads_no_further(
    text: str, dtype: type, at_end: bool, target: str | None
) -> None:
    for n in range(1, 10):
        x, y = Guarded(coded((n,), dtype), at_end), Guarded(coded((n,), dtype, 2), at_end)
        operator = pk.op(text.format(n=n))
        made = operator.compile(x.array, y.array, target=target, threads=1)
        wanted = interpret(operator.program, {"X": x.array.copy(), "Y": y.array.copy()}, {})[0]
        np.testing.assert_allclose(made(x.array, y.array), wanted, rtol=1e-5)
        x.release()
        y.release()
