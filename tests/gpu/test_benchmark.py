"""`python -m benchmarks.gpu` without a GPU, and that its cases mean what torch computes."""

import numpy as np
import pytest

import polyker as pk
from benchmarks import gpu


def test_without_a_device_it_says_that_nothing_is_measured(capsys):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert gpu.main([]) == 2
    assert "nothing is measured" in capsys.readouterr().out


def test_each_case_computes_what_torch_does_at_a_small_size():
    torch = pytest.importorskip("torch")
    found = gpu.cases(torch)
    assert len(found) == 8 + 48
    for case in found[:8]:
        shapes = [tuple(min(n, 12) for n in shape) for shape in case.shapes]
        inputs = [np.random.default_rng(n).normal(size=shape) for n, shape in enumerate(shapes)]
        want = case.torch(*map(torch.from_numpy, inputs)).numpy()
        np.testing.assert_allclose(pk.op(case.text)(*inputs), want, rtol=1e-12, err_msg=case.name)
