"""The examples of the README run as they stand there."""

import re
from pathlib import Path

import numpy as np
import pytest

import polyker

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_readmes_python_runs_and_gives_numpys_result(capsys):
    first, second, _ = EXAMPLES
    rng = np.random.default_rng(0)
    names = {"X": rng.random((2, 3, 4)), "Y": rng.random((2, 4, 5))}
    exec(first, names)
    np.testing.assert_allclose(names["C"], names["A"] @ names["B"], rtol=1e-12)
    names["A"], names["B"], names["C"] = rng.random((4, 3)), rng.random((3, 5)), np.empty((4, 5))
    exec(second, names)
    np.testing.assert_allclose(names["C"], names["A"] @ names["B"], rtol=1e-12)
    assert "C[i,j] += A[i,k] * B[k,j]" in capsys.readouterr().out.replace(", ", ",")

    X, K, bias = rng.random((2, 3, 6, 7)), rng.random((4, 3, 3, 3)), rng.random(4)
    windows = np.lib.stride_tricks.sliding_window_view(X, (3, 3), axis=(2, 3))
    expected = np.maximum(np.einsum("nchwrs,fcrs->nfhw", windows, K) + bias[:, None, None], 0)
    np.testing.assert_allclose(names["conv"](X, K, bias), expected, rtol=1e-12)

    Q, K, V = rng.random((5, 8)), rng.random((6, 8)), rng.random((6, 8))
    P = np.exp(Q @ K.T / 8)
    np.testing.assert_allclose(names["attention"](Q, K, V), P @ V / P.sum(1, keepdims=True), rtol=1e-12)


def test_the_readmes_lines_for_torch_and_jax_run():
    torch = pytest.importorskip("torch", reason="torch is an extra, and not installed")
    pytest.importorskip("jax", reason="jax is an extra, and not installed")
    names = {"pk": polyker, "mm": polyker.op("C[i,j] += A[i,k] * B[k,j]")}
    exec(EXAMPLES[2], names)
    X = torch.rand(8, 16)
    torch.testing.assert_close(names["fast"](X), names["model"](X))


def test_the_readmes_error_is_what_is_raised():
    import polyker as pk

    shown = re.search(r"```\n(ShapeError: .*?)```", README, re.DOTALL)[1]
    try:
        pk.op("C[i,j] = A[i,k] * B[k,j]")
    except pk.ShapeError as error:
        assert f"ShapeError: {error}".splitlines()[:4] == shown.splitlines()[:4]
    else:
        raise AssertionError("no error")
