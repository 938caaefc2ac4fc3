"""Operators of tests.grad.operators in torch, by the same names: whose autograd says the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# From torch, its functional module and the inputs in order to the result or results.
IN_TORCH: dict[str, Callable[..., Any]] = {
    "product": lambda t, f, A, B: A @ B,
    "batched product": lambda t, f, A, B: t.einsum("bik,bjk->bij", A, B),
    "trace": lambda t, f, A, B: (A.diagonal() * B).sum(),
    "three factors": lambda t, f, A, B, C: A @ B @ C,
    "outer": lambda t, f, A, B: t.outer(A, B),
    "bilinear": lambda t, f, X, W, Z: f.bilinear(X, Z, W),
    "Kronecker": lambda t, f, A, B: t.einsum("ij,kl->ijkl", A, B),
    "correlation": lambda t, f, X, W: f.conv1d(X[None, None], W[None, None])[0, 0],
    "convolution": lambda t, f, X, W: f.conv2d(X, W, stride=2),
    "padded convolution": lambda t, f, X, W: f.conv2d(X[None], W, padding=1)[0],
    "transposed convolution": lambda t, f, X, W: f.conv_transpose1d(X[None, None], W[None, None], stride=2)[0, 0],
    "dilated": lambda t, f, X, W: f.conv1d(X[None, None], W[None, None], dilation=2)[0, 0],
    "grouped convolution": lambda t, f, X, W: f.conv1d(X.flatten(1, 2), W.flatten(0, 1), groups=2).unflatten(1, (2, 2)),
    "strided dilated convolution": lambda t, f, X, W: f.conv2d(X[None], W, stride=(2, 3), dilation=(2, 1))[0],
    "depthwise": lambda t, f, X, W: f.conv2d(X[None], W[:, None], groups=3)[0],
    "mean pool": lambda t, f, X: f.avg_pool1d(X[None], 2)[0],
    "max pool": lambda t, f, X: f.max_pool2d(X[None], 2)[0],
    "overlapping max pool": lambda t, f, X: f.max_pool1d(X[None], 3, stride=2)[0],
    "softmax": lambda t, f, X: t.softmax(X, 1),
    "log softmax": lambda t, f, X: t.log_softmax(X, 1),
    "temperature softmax": lambda t, f, X, s: t.softmax(X / s, 1),
    "logsumexp": lambda t, f, X: t.logsumexp(X, 1),
    "cross entropy": lambda t, f, X, at: f.cross_entropy(X, at, reduction="none"),
    "attention": lambda t, f, Q, K, V: t.softmax(Q @ K.T * 0.3, 1) @ V,
    "causal attention": lambda t, f, Q, K, V: f.scaled_dot_product_attention(Q, K, V, is_causal=True, scale=1.0),
    "layer norm": lambda t, f, X, g, b: f.layer_norm(X, (6,), g, b),
    "batch norm": lambda t, f, X, g, b: f.batch_norm(X, None, None, g, b, training=True),
    "rms norm": lambda t, f, X, g: X * t.rsqrt((X**2).mean(1, keepdim=True) + 1e-6) * g,
    "distances": lambda t, f, A, B: t.cdist(A, B),
    "cosine similarity": lambda t, f, A, B: f.cosine_similarity(A[:, None], B[None], dim=2),
    "triangle": lambda t, f, X: t.tril(X**2).sum(1),
    "triangular product": lambda t, f, A, B: t.tril(A) @ t.tril(B),
    "cumulative sum": lambda t, f, X: t.cumsum(X**2, 0),
    "lower triangle": lambda t, f, X: t.tril(X * X.T),
    "stencil": lambda t, f, X: (X[:-2, 1:-1] + X[2:, 1:-1] + X[1:-1, :-2] + X[1:-1, 2:]) * X[1:-1, 1:-1],
    "products": lambda t, f, x: x.prod(1),
    "product of all": lambda t, f, x: (x + 2).prod(),
    "largest": lambda t, f, x: x.amax(1),
    "smallest": lambda t, f, x, y: (x * y).amin(1) * x[:, 0],
    "best sums": lambda t, f, A, B: (A[:, :, None] + B[None]).amax(1),
    "mean": lambda t, f, x: (x**2).mean(1),
    "variance": lambda t, f, x: x.var(correction=0),
    "choice": lambda t, f, X, Z: t.where(X > 0, X.abs().sqrt(), Z * X),
    "bounds": lambda t, f, X, Z: t.minimum(X, Z) * t.clamp(X, min=0.2) + t.clamp(Z, -0.5, 0.5),
    "powers": lambda t, f, X, Z: X.abs() ** Z + X**3 + 2**X + X / Z,
    "two results": lambda t, f, X, Z: (t.outer(X**2, Z), X**2),
    "gather": lambda t, f, X, at: X[at] ** 2,
    "embedding bag": lambda t, f, T, at, w: f.embedding(at, T) * w[:, None],
    "scatter": lambda t, f, at, W: t.zeros(5, dtype=W.dtype).index_add(0, at, W**2),
    "gelu network": lambda t, f, X, A, p, B: f.gelu(X @ A.T + p) @ B.T,
    "gated network": lambda t, f, X, A, B, C: (f.silu(X @ A.T) * (X @ B.T)) @ C.T,
    "declared": lambda t, f, X, w: X @ t.tanh(w),
    "Huber": lambda t, f, X, Z: f.huber_loss(X, Z, delta=0.5),
    "radial kernel": lambda t, f, A, B: t.exp(-0.5 * ((A[:, None] - B[None]) ** 2).sum(2)),
    "mean of some": lambda t, f, x: (x**2 * (x > -2)).sum(1) / (x > -2).sum(1),
    "upsampling": lambda t, f, X: X.repeat_interleave(2, 0).repeat_interleave(3, 1) ** 2,
    "total variation": lambda t, f, X: ((X[1:] - X[:-1]) ** 2 + 0.01).sqrt().sum(),
    "recursive filter": lambda t, f, X, a: t.stack(_filter(X, a), 1),
    "recurrence": lambda t, f, X: t.stack(_recurrence(t, X)),
    "running sum": lambda t, f, X: t.cumsum(X**2, 0),
    "recurrent network": lambda t, f, Z, W, X: t.stack(_network(t, Z, W, X)),
    "triangular solve": lambda t, f, b, L: t.linalg.solve_triangular(L, b[:, None], upper=False)[:, 0],
    "all paths": lambda t, f, E, A: _paths(E, A, lambda x: t.logsumexp(x, 0)),
    "best path": lambda t, f, E, A: _paths(E, A, lambda x: t.amax(x, 0)),
}


def _filter(x: torch.Tensor, a: torch.Tensor) -> list[torch.Tensor]:
    made = [x[:, 0]]
    for n in range(1, x.shape[1]):
        made.append(x[:, n] + a * made[-1])
    return made


def _recurrence(t: Any, x: torch.Tensor) -> list[torch.Tensor]:
    made = [t.zeros((), dtype=x.dtype), t.zeros((), dtype=x.dtype)]
    for term in x:
        made.append(t.tanh(term + 0.5 * made[-1] * made[-2]))
    return made[2:]


def _network(t: Any, z: torch.Tensor, w: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
    made = [z]
    for row in x[:4]:
        made.append(t.tanh(w @ made[-1] + row))
    return made


def _paths(e: torch.Tensor, a: torch.Tensor, over: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    best = e[0]
    for row in e[1:]:
        best = over(best[:, None] + a) + row
    return over(best)
