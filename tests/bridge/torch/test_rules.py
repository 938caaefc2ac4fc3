"""Rules of ATen operators: what their kernels compute is what torch computes, in shapes and types of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional as f  # noqa: E402

import polyker as pk  # noqa: E402
from polyker.bridge.torch.graphs import compile_graph, decompositions  # noqa: E402

aten = torch.ops.aten


def tensor(*shape: int, dtype: Any = torch.float32, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(-5, 6, shape, generator=generator).to(dtype)


def strides(t: Any) -> list[int]:
    """Return the strides that matter."""
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1]


def compiled(function: Callable[..., Any], args: Sequence[Any]) -> tuple[list[Any], Any]:
    """Return what the compiled graph of a function gives, and what is reported of it."""
    graph = make_fx(lambda *a: [*function(*a)], decomposition_table=decompositions(), tracing_mode="fake")(*args)
    run = compile_graph(graph, args, kind="inference", given={}, limit=4)
    return run([a.clone() for a in args]), pk.torch.report().graphs[-1]


def check(function: Callable[..., Any], *args: Any, stays: Sequence[str] = (), rtol: float = 2e-5) -> None:
    """Check a function that gives a sequence of tensors; `stays`: operators among them that stay torch's."""
    got, said = compiled(function, args)
    want = [*function(*args)]
    assert not [p.refused for p in said.parts if p.refused], said
    assert {name for name, _ in said.stayed} == set(stays), said
    assert len(got) == len(want)
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        assert (a.dtype, a.shape, strides(a)) == (b.dtype, b.shape, strides(b)), k
        scale = float(b.double().abs().nan_to_num(0, 0, 0).max()) if b.numel() else 1.0
        loose = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}.get(b.dtype, rtol)
        torch.testing.assert_close(
            a,
            b,
            rtol=loose,
            atol=loose * max(scale, 1e-30),
            equal_nan=True,
            msg=lambda said, k=k: f"result {k}: {said}",
        )


UNARY = [
    torch.abs,
    torch.acos,
    torch.acosh,
    torch.asin,
    torch.asinh,
    torch.atan,
    torch.atanh,
    torch.ceil,
    torch.cos,
    torch.cosh,
    torch.erf,
    torch.erfc,
    torch.erfinv,
    torch.exp,
    torch.exp2,
    torch.expm1,
    torch.floor,
    torch.lgamma,
    torch.log,
    torch.log10,
    torch.log1p,
    torch.log2,
    torch.neg,
    torch.reciprocal,
    torch.relu,
    torch.round,
    torch.rsqrt,
    torch.sigmoid,
    torch.sign,
    torch.sin,
    torch.sinh,
    torch.sqrt,
    torch.square,
    torch.tan,
    torch.tanh,
    torch.trunc,
    torch.isnan,
    torch.isinf,
    f.silu,
    lambda x: f.gelu(x.clamp(-9, 9)),
    f.softplus,
    f.elu,
    f.leaky_relu,
    f.hardtanh,
    f.hardsigmoid,
    f.hardswish,
    f.relu6,
    f.mish,
    f.logsigmoid,
    lambda x: f.gelu(x, approximate="tanh"),
    lambda x: x**2,
    lambda x: x**3,
    lambda x: x.abs() ** 0.5,
    lambda x: 2.0**x,
    lambda x: x.clamp(-0.5, 0.7),
    lambda x: x.clamp_min(0.1),
    lambda x: x.clamp_max(0.1),
    lambda x: 1 - x,
    lambda x: x * 2,
    lambda x: x + 3,
    lambda x: x / 4,
    lambda x: x > 0.5,
    lambda x: x <= 0,
    lambda x: x.to(torch.float64),
    lambda x: x.to(torch.int32),
    lambda x: x.clone(),
    lambda x: x.half(),
    lambda x: x.to(torch.bool),
    lambda x: torch.logical_not(x),
    lambda x: x.frac(),
    lambda x: x.nan_to_num(),
]


@pytest.mark.parametrize("part", range(3))
def test_functions_of_one_tensor(part: int) -> None:
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 0.5])
    x = torch.cat([special, tensor(8)]).reshape(4, 4)
    check(lambda x: [g(x) for g in UNARY[part::3]], x)


def test_functions_of_halves_round_once() -> None:
    chosen = [
        torch.exp,
        torch.tanh,
        f.gelu,
        f.silu,
        torch.sigmoid,
        lambda x: x * 0.1 + 0.3,
        lambda x: x.mean(),
        lambda x: x.sum(1),
    ]
    for dtype in (torch.float16, torch.bfloat16):
        check(lambda x: [g(x) for g in chosen], tensor(3, 5, dtype=dtype))
        check(
            lambda x, y: [x @ y, torch.softmax(x, 1), f.layer_norm(x, (5,))],
            tensor(3, 5, dtype=dtype),
            tensor(5, 2, dtype=dtype),
        )


def test_functions_of_two_tensors_are_broadcast() -> None:
    check(
        lambda x, y, z: [
            x + y,
            x - y,
            x * z,
            x / z,
            torch.add(x, y, alpha=2),
            torch.sub(x, z, alpha=0.5),
            torch.maximum(x, y),
            torch.minimum(x, y),
            torch.atan2(x, y),
            torch.hypot(x, y),
            torch.copysign(x, y),
            torch.fmod(x, y),
            torch.remainder(x, y),
            x > y,
            x == z,
            x != y,
            x.abs() ** y,
            torch.where(x > y, x, z),
            torch.lerp(x, y, 0.3),
            torch.addcmul(x, y, z, value=2),
            torch.addcdiv(x, y, z),
            torch.div(x, y, rounding_mode="floor"),
            torch.div(x, y, rounding_mode="trunc"),
            x.masked_fill(y > 0, -1.5),
            torch.logical_and(x > 0, y > 0),
            torch.logical_or(x > 0, y > 0),
            torch.logical_xor(x > 0, y > 0),
            torch.rsub(x, 2.0),
        ],
        tensor(3, 1, 4),
        tensor(2, 4),
        tensor(1),
    )


def test_integers_and_types_that_mix() -> None:
    i, x, b = tensor(3, 4, dtype=torch.int32), tensor(3, 4), tensor(3, 4, dtype=torch.bool)
    check(
        lambda i, x, b: [
            i + 1,
            i * 2.5,
            i / 2,
            i + x,
            i // 3,
            i % 3,
            i & 6,
            i | 1,
            i ^ 3,
            ~i,
            b & (x > 0),
            ~b,
            b + i,
            i > 1.5,
            x == i,
            i.sum(),
            i.float().mean(),
            b.sum(),
            i.to(torch.int64) * 3,
            torch.where(b, i, 7),
            i.abs(),
            i.sign(),
            i.relu(),
            i.clamp(-1, 2),
            b.any(),
            b.all(1),
            i.amax(0),
            i.prod(1),
            i.argmax(1),
            i**2,
            b.to(torch.float32) * x,
            i.double(),
            i.floor(),
        ],
        i,
        x,
        b,
    )


def test_reductions() -> None:
    check(
        lambda x: [
            x.sum(),
            x.sum(1),
            x.sum((0, -1), keepdim=True),
            x.mean(-1),
            x.mean((1, 2), keepdim=True),
            x.amax(1),
            x.amin((0, 2)),
            x.prod(1),
            x.var(1),
            x.var((0, 2), correction=0),
            x.std(2),
            torch.var_mean(x, 1)[1],
            x.argmax(1),
            x.argmin(-1, keepdim=True),
            x.argmax(),
            torch.softmax(x, 1),
            torch.log_softmax(x, -1),
            x.logsumexp(1),
            x.norm(dim=1),
            (x > 0).any(1),
            (x > -2).all(2, keepdim=True),
            x.cumsum(1),
            x.max(),
            x.min(),
            torch.linalg.vector_norm(x),
        ],
        tensor(3, 4, 5),
    )


def test_products() -> None:
    a, b, c, v = tensor(3, 4), tensor(4, 5), tensor(2, 3, 4), tensor(4, seed=1)
    check(
        lambda a, b, c, v: [
            a @ b,
            a @ v,
            v @ v,
            c @ b,
            torch.bmm(c, c.transpose(1, 2)),
            torch.addmm(b[:3], a, b),
            f.linear(c, a),
            f.linear(c, a, v[:3]),
            torch.addmm(b[:3], a, b, beta=0.5, alpha=2),
            torch.baddbmm(c[:, :, :3], c, c.mT),
            torch.einsum("bij,kj->bik", c, a),
            torch.outer(v, v),
            torch.addmv(v[:3], a, v),
            torch.mv(a, v),
            torch.dot(v, v),
        ],
        a,
        b,
        c,
        v,
    )


def test_views_are_subscripts() -> None:
    check(
        lambda x: [
            x.view(6, 4) * 2,
            x.permute(2, 0, 1) + 1,
            x.reshape(4, 6).t() * 3,
            x[:, 1:, ::2] * 2,
            x[1] + 1,
            x[:, -1] * 2,
            x.unsqueeze(1) * 2,
            x.flip(0, 2),
            x.roll(1, 1),
            x.expand(5, 2, 3, 4) * 2,
            torch.cat([x, x[:, :1]], 1),
            torch.stack([x, x * 2], -1),
            f.pad(x, (1, 2), value=3.0),
            f.pad(x, (0, 0, 1, 0)),
            x.tril(),
            x.triu(1),
            x.tril(-1),
            x.view(2, 12).view(3, 8).permute(1, 0) * 2,
            x.transpose(0, 2).reshape(-1) * 2,
            *(p * 2 for p in x.split([1, 2], 1)),
            *(p + 1 for p in x.chunk(2, 2)),
            x.squeeze(0) * 2,
            torch.arange(4) + x,
            torch.full((3,), 2.5) * x[0, :, 0],
            torch.ones_like(x) * x,
            torch.zeros(4) + x,
            x.diagonal(0, 1, 2) * 2,
            torch.slice_scatter(x, x[:, :1] * 2, 1, 1, 2),
            torch.select_scatter(x, x[0] * 3, 0, 1),
            x.repeat(2, 1, 1) * 2,
            x.unbind(1)[1] * 2,
            x.contiguous() * 2,
            x.flatten() * 2,
            x.unflatten(2, (2, 2)).sum(1),
            x.movedim(0, 2) * 2,
        ],
        tensor(2, 3, 4),
    )


def test_gathers_and_scatters() -> None:
    table, at = tensor(5, 3), torch.tensor([[1, 4], [0, 1]])
    check(
        lambda t, i: [
            f.embedding(i, t),
            t[i],
            t.index_select(0, i[0]),
            t.gather(0, i),
            t[i[0], i[1] % 3],
            t[-i[0] - 1],
            t[:, i[1] % 3],
            torch.zeros(5, 3).scatter_add(0, i, t[:2, :2]),
            t.scatter(1, i % 3, 9.0),
            t.scatter(0, i[:1], t[:1, :2] * 2),
            aten.embedding_dense_backward(t[:2], i[0], 5, -1, False),
            f.nll_loss(t.log_softmax(1)[:2], i[0] % 3),
            f.cross_entropy(t[:2], i[1] % 3),
            f.one_hot(i, 5) + 1,
        ],
        table,
        at,
        stays=(),
    )
    with pytest.raises(IndexError):
        compiled(lambda t, i: [f.embedding(i, t) * 2], (table, at + 4))


@pytest.mark.parametrize(
    ("space", "how"),
    [
        (1, {"stride": 2, "padding": 1}),
        (2, {"padding": 1, "dilation": 2, "groups": 2}),
    ],
)
def test_convolutions_and_their_gradients(space: int, how: dict[str, Any]) -> None:
    conv = (f.conv1d, f.conv2d, f.conv3d)[space - 1]
    transposed = (f.conv_transpose1d, f.conv_transpose2d, f.conv_transpose3d)[space - 1]
    x, k, b = tensor(2, 4, *(5, 6, 4)[:space]), tensor(6, 4 // how.get("groups", 1), *(3, 2, 3)[:space]), tensor(6)

    def both(*args: Any) -> list[Any]:
        x, k, b = (t.detach().requires_grad_() for t in args)
        y = conv(x, k, b, **how)
        grads = torch.autograd.grad((y * y).sum(), (x, k, b))
        return [y.detach(), *grads, transposed(y, k, **how).detach()]

    check(both, x, k, b, rtol=1e-4)


def test_pooling_and_its_gradients() -> None:
    x = tensor(2, 3, 6, 6)

    def both(x: Any) -> list[Any]:
        x = x.detach().requires_grad_()
        ys = [f.max_pool2d(x, 2), f.max_pool2d(x, 3, 2, 1), f.avg_pool2d(x, 2), f.adaptive_avg_pool2d(x, 1)]
        total = sum((y * y).sum() for y in ys[:2])
        return [y.detach() for y in ys] + [torch.autograd.grad(total, x)[0]]

    check(both, x)
    check(lambda x: [f.avg_pool1d(x[0], 3, 2, 1), f.max_pool2d(x, 2, return_indices=True)[1]], x)


def test_norms_and_their_gradients() -> None:
    x, w, b = tensor(2, 4, 5), tensor(4), tensor(4, seed=1)

    def both(x: Any, w: Any, b: Any) -> list[Any]:
        x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
        ys = [
            f.batch_norm(x, None, None, w, b, training=True),
            f.batch_norm(x, w.detach() * 0.1, b.detach() ** 2 + 1, w, b),
            f.group_norm(x, 2, w, b),
            f.layer_norm(x.transpose(1, 2), (4,), w, b),
            f.instance_norm(x),
        ]
        return [y.detach() for y in ys] + [
            g
            for k in (0, 1, 3)
            for g in torch.autograd.grad((ys[k] * ys[k] * ys[k]).sum(), (x, w, b), retain_graph=True)
        ]

    check(both, x, w, b, rtol=1e-4, stays=("full", "empty"))  # of empty tensors


def test_gradients_of_activations() -> None:
    acts = [
        f.gelu,
        lambda x: f.gelu(x, approximate="tanh"),
        f.silu,
        f.elu,
        f.leaky_relu,
        f.hardtanh,
        f.softplus,
        torch.sigmoid,
        torch.tanh,
        torch.relu,
        lambda x: torch.softmax(x, 1),
        lambda x: torch.log_softmax(x, 0),
        f.hardswish,
        f.mish,
        lambda x: x.amax(1),
    ]

    def both(x: Any) -> list[Any]:
        x = x.detach().requires_grad_()
        return [torch.autograd.grad((g(x) ** 2).sum(), x)[0] for g in acts]

    check(both, tensor(3, 4), rtol=1e-4)


def test_random_views_and_strides() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        shape = [int(n) for n in rng.choice([1, 2, 3, 4, 6], 3)]
        x = tensor(*shape)
        order = [int(d) for d in rng.permutation(3)]
        flat = int(np.prod(shape))
        other = next(n for n in (6, 4, 3, 2, 1) if flat % n == 0)
        start = tensor(*(2 * n for n in shape))[tuple(slice(0, 2 * n, 2) for n in shape)]
        check(
            lambda x, y, order=order, other=other: [
                x.permute(order).reshape(other, -1) * 2,
                (x + y).reshape(-1, other).t() + 1,
                y.flip(1).permute(order).sum(1),
                (y.transpose(0, 2) * 2).reshape(other, -1).softmax(1),
            ],
            x,
            start,
        )


@pytest.mark.parametrize(
    ("causal", "queries", "keys"), [(False, 3, 3), (True, 3, 3), (True, 5, 2), (True, 2, 4), (True, 1, 4)]
)
def test_attention_and_its_gradients(causal: bool, queries: int, keys: int) -> None:
    q, k, v = tensor(2, 2, queries, 4), tensor(2, 2, keys, 4, seed=1), tensor(2, 2, keys, 4, seed=2)

    def both(*args: Any) -> list[Any]:
        q, k, v = (t.detach().requires_grad_() for t in args)
        y = f.scaled_dot_product_attention(q, k, v, is_causal=causal)
        # A query that sees one key has a gradient of 0 by all but the value: what is computed there is rounding alone.
        return [y.detach(), *torch.autograd.grad((y * y).sum(), (q, k, v)[2 * (queries == 1) :])]

    check(both, q, k, v)
