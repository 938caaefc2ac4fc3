"""Operators registered in torch: opcheck, gradients, gradients of gradients, vmap, tracing, errors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import polyker as pk  # noqa: E402
from tests.bridge.torch.operators import CASES, check_operator, r  # noqa: E402

# Second derivatives of these take long to compile; `python -m tests.bridge.torch.operators` checks them, too.
LONG = ("softmax", "attention", "layer_norm", "logsumexp", "recurrence", "conv", "in_out", "pool")


@pytest.mark.parametrize("name", CASES)
def test_torch_checks_an_operator(name: str) -> None:
    torch._dynamo.reset()
    check_operator(name, twice=name not in LONG)


def test_what_has_no_gradient_says_so_at_backward_with_its_place() -> None:
    put = pk.torch.op("q: f64[4]\nq[p[i]] = x[i] * 2.0")
    x = r(4).requires_grad_()
    y = put(p=torch.arange(4), x=x)
    with pytest.raises(pk.GradientError, match=r"gathered places[\s\S]*\^\^\^\^"):
        y.sum().backward()


def test_a_graph_has_one_node_for_it_at_all_sizes() -> None:
    made = pk.torch.op("C[i,j] += A[i,k] * B[k,j]", "mm")
    counted: list[list[str]] = []

    def backend(gm, inputs):
        counted.append([n.name for n in gm.graph.nodes if n.op == "call_function"])
        return gm.forward

    call = torch.compile(lambda a, b: made(a, b) + 1, backend=backend, dynamic=True, fullgraph=True)
    for n in (3, 4, 5):
        a, b = r(n, 2), r(2, n)
        torch.testing.assert_close(call(a, b), a @ b + 1)
    assert [len(names) for names in counted] == [2]


def test_gradients_of_some_inputs_and_of_integers() -> None:
    made = pk.torch.op("Y[i] = A[i] * w[I[i]]; N[i] = I[i] + 1")
    a, w, at = r(3), r(5).requires_grad_(), torch.tensor([4, 0, 4])
    y, n = made(a, w, at)
    assert not n.requires_grad
    (y * y).sum().backward()
    want = torch.zeros(5, dtype=torch.float64).index_add(0, at, 2 * a * a * w.detach()[at])
    torch.testing.assert_close(w.grad, want)


def test_the_forward_pass_keeps_residuals_where_a_gradient_is_needed() -> None:
    made = pk.torch.op("Y[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k]))); S[i] += X[i,j]")
    x, w, u = r(3, 4).requires_grad_(), r(3, 4), r(3)
    y, s = made(x)
    assert "forward" in str(y.grad_fn) and "forward" not in str(made(x.detach())[0].grad_fn)
    (both,) = torch.autograd.grad([y, s], [x], [w, u])
    want = [torch.autograd.grad(f(x), [x], g)[0] for f, g in ((lambda x: x.softmax(1), w), (lambda x: x.sum(1), u))]
    torch.testing.assert_close(both, want[0] + want[1])
    y, s = made(x)  # the gradient by one of the two
    torch.testing.assert_close(torch.autograd.grad(y, [x], w)[0], want[0])


def test_an_operator_is_registered_once() -> None:
    text = "Y[i] = X[i] + 1.0"
    assert pk.torch.op(text) is pk.torch.op(text)
    assert pk.torch.op(pk.op(text)) is pk.torch.op(text)
    assert pk.torch.op(text, "other") is not pk.torch.op(text)
    with pytest.raises(pk.ArgumentError, match="letters"):
        pk.torch.op(text, "no name")


def test_numbers_and_parameters_are_taken() -> None:
    made = pk.torch.op("Y[i] = a * X[i]")
    x = torch.nn.Parameter(torch.ones(3))
    y = made(2.0, x)
    y.sum().backward()
    assert y.dtype == torch.float32
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
