"""Forms of pk.torch.einsum that torch.einsum has."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import polyker as pk  # noqa: E402


def test_lists_of_subscripts_and_three_operands() -> None:
    a, b, c = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (4, 2), (2, 5)))
    torch.testing.assert_close(pk.torch.einsum(a, [0, 1], b, [1, 2], [2, 0]), torch.einsum("ij,jk->ki", a, b))
    got, want = pk.torch.einsum("ij,jk,kl->il", a, b, c), torch.einsum("ij,jk,kl->il", a, b, c)
    torch.testing.assert_close(got, want)
    mine, theirs = (torch.autograd.grad((y * y).sum(), (a, b, c)) for y in (got, want))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("text", ["ij,jk->", "ij->ji", "ii->i", "...i,i...->..."])
def test_subscripts(text: str) -> None:
    shapes = {"ij,jk->": ((2, 3), (3, 2)), "ij->ji": ((2, 3),), "ii->i": ((3, 3),), "...i,i...->...": ((2, 3), (3, 2))}
    tensors = [torch.randn(*s) for s in shapes[text]]
    torch.testing.assert_close(pk.torch.einsum(text, *tensors), torch.einsum(text, *tensors))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="einsum"):
        pk.torch.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(4, 2))
    with pytest.raises(TypeError, match="needs subscripts"):
        pk.torch.einsum(torch.ones(2))
