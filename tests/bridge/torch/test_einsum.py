"""polyker's einsum on torch's own samples of torch.einsum."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("expecttest", reason="torch's own samples need the package expecttest")

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

import polyker as pk  # noqa: E402

EINSUM = next(o for o in op_db if o.name == "einsum")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.int64], ids=str)
def test_samples_of_torch(dtype: Any) -> None:
    for sample in EINSUM.sample_inputs("cpu", dtype):
        tensors, (text,) = sample.input, sample.args
        want = torch.einsum(text, *tensors)
        torch.testing.assert_close(pk.torch.einsum(text, *tensors), want)
        if "...j -> ij" not in text:  # dimensions of `...` that the output has not: an error of numpy's
            torch.testing.assert_close(pk.einsum(text, *tensors), want)


def test_gradients_of_torch_samples() -> None:
    for sample in EINSUM.sample_inputs("cpu", torch.float64):
        tensors = [t.detach().requires_grad_() for t in sample.input]
        assert torch.autograd.gradcheck(lambda *t, text=sample.args[0]: pk.torch.einsum(text, *t), tensors)
