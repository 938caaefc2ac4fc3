"""Recurrent layers inside torch.compile: computed by operators with a time loop, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import polyker as pk  # noqa: E402


@pytest.fixture(autouse=True)
def _captured() -> Iterator[None]:
    """Let dynamo capture recurrent layers, which it leaves out otherwise."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


def graphs(model: Any, found: list[Any]) -> Any:
    """Return the model compiled by polyker; the operators that graphs call are added to `found`."""

    def backend(gm: Any, inputs: Any, **given: Any) -> Any:
        run = pk.torch.backend(gm, inputs, **given)
        found.extend(n.target for n in gm.graph.nodes if n.op == "call_function")
        return run

    return torch.compile(model, backend=backend)


def with_gradients(call: Any, x: Any, parameters: list[Any]) -> list[Any]:
    y, states = call(x)
    states = states if isinstance(states, tuple) else (states,)
    loss = (y * y).sum() + sum((s**3).sum() for s in states)
    return [y.detach(), *(s.detach() for s in states), *torch.autograd.grad(loss, [x, *parameters])]


LAYERS = {
    "lstm": (torch.nn.LSTM, {}),
    "lstm, both ways": (torch.nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "gru": (torch.nn.GRU, {"num_layers": 2}),
    "gru, both ways": (torch.nn.GRU, {"bidirectional": True, "bias": False}),
    "tanh": (torch.nn.RNN, {"batch_first": True}),
    "relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_their_gradients_are_torchs(name: str) -> None:
    kind, given = LAYERS[name]
    torch.manual_seed(0)
    layer, x, found = kind(4, 5, **given), torch.randn(3, 2, 4, requires_grad=True), list[Any]()
    compiled = graphs(layer, found)
    want, got = (with_gradients(call, x, [*layer.parameters()]) for call in (layer, compiled))
    assert [g.stride() for g in got[:1]] == [w.stride() for w in want[:1]]
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-6)
    assert not {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu} & set(found)


def test_layers_that_stay_torchs_have_gradients() -> None:
    """Of types and projections that no operator computes; oneDNN's node has no gradient in a graph."""
    projecting = torch.nn.LSTM(4, 5, proj_size=3)
    x = torch.randn(3, 2, 4, requires_grad=True)
    found: list[Any] = []
    want, got = (with_gradients(c, x, [*projecting.parameters()]) for c in (projecting, graphs(projecting, found)))
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert torch.lstm in found
    half = torch.nn.LSTM(4, 5, dtype=torch.bfloat16)
    y = torch.compile(half, backend="polyker")(torch.randn(3, 2, 4, dtype=torch.bfloat16))[0]
    y.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in half.parameters())


def test_one_graph_serves_all_batches() -> None:
    layer, found = torch.nn.GRU(4, 5), list[Any]()
    call = graphs(layer, found)
    with torch.no_grad():
        for batch in (2, 3, 4, 5):
            x = torch.randn(3, batch, 4)
            torch.testing.assert_close(call(x)[0], layer(x)[0], rtol=1e-5, atol=1e-6)
    assert sum(getattr(t, "__name__", "") == "computed" for t in found) == 2  # for one size, and for all


def test_dropout_between_layers_is_torchs() -> None:
    layer = torch.nn.RNN(4, 5, num_layers=2, dropout=1.0)
    call = graphs(layer, [])
    x = torch.randn(3, 2, 4)
    torch.testing.assert_close(call(x), layer(x))
    layer.eval()
    torch.testing.assert_close(call(x), layer(x), rtol=1e-5, atol=1e-6)


def test_compiled_graphs_call_operators_without_torchs_dispatcher() -> None:
    layer, x = torch.nn.GRU(4, 5), torch.randn(3, 2, 4)
    call = torch.compile(layer, backend="polyker")
    with torch.no_grad():
        call(x)
        with torch.profiler.profile() as seen:
            call(x)
    assert not [e.name for e in seen.events() if e.name.startswith("polyker::")]
