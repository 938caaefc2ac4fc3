"""Compute layers of recurrent networks by operators with a time loop, in graphs that torch.compile captures.

Graphs have one node for all layers, and torch traces it step by step or as a call of oneDNN that has no gradient there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.fx import GraphModule, Node

from polyker.bridge.torch.custom import TorchOperator, op

# What a step computes of the gates' shares of the input, `g`, and of the state before, `r`.
_STEPS = {
    "lstm": (
        "s[{now},b,f] = g[{now},b,f] + r[{now},b,f]",
        "a[{now},b,j] = sigmoid(s[{now},b,j]) * tanh(s[{now},b,j+2*H]) for j in 0:H",
        "c[{after},b,j] = sigmoid(s[{now},b,j+H]) * c[{before},b,j] + a[{now},b,j] for j in 0:H",
        "h[{after},b,j] = sigmoid(s[{now},b,j+3*H]) * tanh(c[{after},b,j]) for j in 0:H",
    ),
    "gru": (
        "u[{now},b,j] = sigmoid(g[{now},b,j+H] + r[{now},b,j+H]) for j in 0:H",
        "q[{now},b,j] = sigmoid(g[{now},b,j] + r[{now},b,j]) for j in 0:H",
        "n[{now},b,j] = tanh(g[{now},b,j+2*H] + q[{now},b,j] * r[{now},b,j+2*H]) for j in 0:H",
        "h[{after},b,j] = n[{now},b,j] + u[{now},b,j] * (h[{before},b,j] - n[{now},b,j]) for j in 0:H",
    ),
    "rnn_tanh": ("h[{after},b,f] = tanh(g[{now},b,f] + r[{now},b,f])",),
    "rnn_relu": ("h[{after},b,f] = relu(g[{now},b,f] + r[{now},b,f])",),
}
_GATES = {"lstm": "4*H", "gru": "3*H", "rnn_tanh": "H", "rnn_relu": "H"}
_FUNCTIONS = {getattr(torch, kind): kind for kind in _STEPS}


@cache
def layer(kind: str, *, bias: bool, backwards: bool) -> TorchOperator:
    """Return the operator of one direction of a layer: states of all steps, the first of which is given.

    It takes x[T,B,I], weights W[F,I] and U[F,H] of all gates, biases p and v [F] where there are any, and h0[B,H], of an LSTM
    c0[B,H], too; it returns h[T+1,B,H], of an LSTM c, too, the first at T where it goes `backwards`.
    """
    first, now, before, after = ("T", "T-1-t", "T-t", "T-1-t") if backwards else ("0", "t", "t", "t+1")
    cells, size = ["h", "c"] if kind == "lstm" else ["h"], _GATES[kind]
    parameters = ["x: [T,B,I]", f"W: [{size},I]", f"U: [{size},H]", *([f"p: [{size}]", f"v: [{size}]"] if bias else [])]
    parameters += [f"{c}0: [B,H]" for c in cells]
    lines = [
        *(f"{c}[{first},b,j] = {c}0[b,j]" for c in cells),
        f"g[t,b,f] = sum[i](x[t,b,i] * W[f,i]){' + p[f]' if bias else ''}",
        "V[k,f] = U[f,k]",  # once for all steps, so that they read vectors along f
        "for t in 0:T:",
        f"    r[{now},b,f] = sum[k](V[k,f] * h[{before},b,k]){' + v[f]' if bias else ''}",
        *(f"    {line.format(now=now, before=before, after=after)}" for line in _STEPS[kind]),
    ]
    head = f"{kind}({', '.join(parameters)}) -> {', '.join(f'{c}: [T+1,B,H]' for c in cells)}:"
    return op("\n    ".join([head, *lines]), kind)


def run(  # noqa: PLR0913 (the arguments of torch.lstm)
    kind: str,
    x: Any,
    states: Sequence[Any],
    weights: Sequence[Any],
    bias: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, ...]:
    """Return what `torch.lstm` and its kin do: the last layer's results, and for each kind of state those at the end."""
    x = x.transpose(0, 1) if batch_first else x
    each, directions = 4 if bias else 2, 2 if bidirectional else 1
    ends: list[list[Any]] = []
    for k in range(layers):
        made = []
        for d in range(directions):
            place = k * directions + d
            own = weights[place * each : (place + 1) * each]
            found = layer(kind, bias=bias, backwards=d == 1)(x, *own, *(s[place] for s in states))
            cells = found if kind == "lstm" else (found,)
            made.append(cells[0][:-1] if d == 1 else cells[0][1:])
            ends.append([c[0] if d == 1 else c[-1] for c in cells])
        x = torch.cat(made, 2) if bidirectional else made[0]
        if dropout and train and k < layers - 1:
            x = torch.nn.functional.dropout(x, dropout)
    return (x.transpose(0, 1) if batch_first else x), *(torch.stack(list(c)) for c in zip(*ends, strict=True))


def by_operators(gm: GraphModule) -> int:
    """Let the recurrent layers of a graph be computed so where operators can, and return how many."""
    count = 0
    for node in gm.graph.nodes:
        kind = _FUNCTIONS.get(node.target) if node.op == "call_function" else None
        if kind is not None and _can(node, kind):
            node.target = _RUNS[kind]
            count += 1
    if count:
        gm.recompile()
    return count


def _can(node: Node, kind: str) -> bool:
    """Whether operators compute what a node does: of a batch of sequences of one length, without projections, on a CPU."""
    if len(node.args) != 9 or node.kwargs:
        return False
    x, states, weights, bias, layers, _, _, bidirectional, _ = node.args
    states = states if isinstance(states, (tuple, list)) else (states,)
    if not isinstance(weights, (tuple, list)) or len(states) != (2 if kind == "lstm" else 1):
        return False
    if len(weights) != (4 if bias else 2) * layers * (2 if bidirectional else 1):
        return False
    values = [n.meta.get("example_value") for n in (x, *states, *weights) if isinstance(n, Node)]
    return len(values) == 1 + len(states) + len(weights) and all(
        isinstance(v, torch.Tensor) and v.device.type == "cpu" and v.dtype in (torch.float32, torch.float64)
        for v in values
    )


def _runner(kind: str) -> Callable[..., Any]:
    def computed(x: Any, states: Any, *rest: Any) -> tuple[Any, ...]:
        return run(kind, x, states if isinstance(states, (tuple, list)) else (states,), *rest)

    return computed


_RUNS = {kind: _runner(kind) for kind in _STEPS}


@contextmanager
def traced_by_steps() -> Iterator[None]:
    """Let torch trace recurrent layers that stay its own step by step, not as calls of oneDNN, where gradients are needed."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(before and not torch.is_grad_enabled())
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)
