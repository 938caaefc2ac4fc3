"""The NumPy spelling of each operator of the demo, as a user of NumPy writes it: the peer in the demo's table.

Each function takes the operator's parameters by name and returns its outputs in order. All work in the element type of
their arguments, so the same spelling on wider arrays is the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Outputs: TypeAlias = Any  # an array, or a tuple of arrays; NumPy types most of its operators as Any


def tmm(A: Array, B: Array) -> Outputs:
    """C[m,n] = sum of A[m,k] B[n,k]."""
    return A @ B.T


def tbmm(X: Array, Y: Array) -> Outputs:
    """A batch of matrix products."""
    return X @ Y


def conv2d(I: Array, W1: Array, Bi: Array) -> Outputs:
    """2-d convolution with bias."""
    windows = sliding_window_view(I, W1.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,mcij->nmhw", windows, W1, optimize=True) + Bi[:, None, None]


def gconv(I: Array, W1: Array, Bi: Array) -> Outputs:
    """Grouped 2-d convolution with bias, by unfolding the windows into the columns of a matrix."""
    windows = sliding_window_view(I, W1.shape[3:], axis=(3, 4))
    n, g, _, h, w = windows.shape[:5]
    columns = windows.transpose(0, 1, 2, 5, 6, 3, 4).reshape(n, g, -1, h * w)
    product = W1.reshape(g, W1.shape[1], -1) @ columns
    return product.reshape(n, g, -1, h, w) + Bi[:, :, None, None]


def kron3_1(X: Array, W2: Array) -> Outputs:
    """The last mode of a three-fold Kronecker product."""
    return X @ W2.T


def kron3_2(XW2: Array, W1: Array) -> Outputs:
    """The middle mode."""
    return W1 @ XW2


def kron3_3(XW2W1: Array, W0: Array) -> Outputs:
    """The first mode."""
    return np.einsum("mncd,an->macd", XW2W1, W0, optimize=True)


def kron3_full(W0: Array, W1: Array, W2: Array, X: Array) -> Outputs:
    """All three modes, with the intermediate results."""
    xw2 = X @ W2.T
    xw2w1 = W1 @ xw2
    return xw2, xw2w1, np.einsum("mncd,an->macd", xw2w1, W0, optimize=True)


def lut1(LUT1: Array, I1: Array) -> Outputs:
    """Embedding lookup, summed."""
    return LUT1[I1].sum(axis=1)


def lut2(LUT1: Array, I1: Array, LUT2: Array, I2: Array) -> Outputs:
    """Two embedding lookups, summed."""
    return LUT1[I1].sum(axis=1), LUT2[I2].sum(axis=1)


def c3(I: Array, W: Array) -> Outputs:
    """A fully connected layer without bias."""
    return I @ W.T


def mlp1(I: Array, W1: Array, B1: Array) -> Outputs:
    """A fully connected layer with bias and relu."""
    return np.maximum(I @ W1 + B1, 0)


def mlp3(I: Array, W2: Array, B2: Array, W3: Array, B3: Array, W4: Array, B4: Array) -> Outputs:
    """Three fully connected layers."""
    hidden = np.maximum(I @ W2.T + B2, 0)
    hidden = np.maximum(hidden @ W3.T + B3, 0)
    return np.maximum(hidden @ W4.T + B4, 0)


def sum_2d_1d(I: Array) -> Outputs:
    """Sums of rows."""
    return I.sum(axis=1)


def mean_2d_1d(I: Array) -> Outputs:
    """Means of rows."""
    return I.mean(axis=1)


def sum_squares_2d_1d(I: Array) -> Outputs:
    """Sums of squares of rows."""
    return np.einsum("nk,nk->n", I, I)


def var_2d_1d(I: Array, mu: Array) -> Outputs:
    """Variances of rows, given the means."""
    return np.einsum("nk,nk->n", I, I) / I.shape[1] - mu * mu


def sum_and_squares_2d_1d(I: Array) -> Outputs:
    """Sums, and sums of squares, of rows."""
    return I.sum(axis=1), np.einsum("nk,nk->n", I, I)


def moments2_2d_1d(I: Array) -> Outputs:
    """Means and variances of rows."""
    mean = I.mean(axis=1)
    return mean, np.einsum("nk,nk->n", I, I) / I.shape[1] - mean * mean


def group_norm(I: Array, gamma: Array, beta: Array) -> Outputs:
    """Group normalisation."""
    mean = I.mean(axis=(2, 3, 4), keepdims=True)
    spread = np.square(I).mean(axis=(2, 3, 4), keepdims=True) - mean * mean
    return gamma[:, :, None, None] * (I - mean) / np.sqrt(spread + 1e-5) + beta[:, :, None, None]


def wavenet1(  # noqa: PLR0913 (the operator's own parameters)
    Data: Array, FilterW: Array, FilterB: Array, GateW: Array, GateB: Array,
    ResW: Array, ResB: Array, SkipW: Array, SkipB: Array, dil: int,
) -> Outputs:  # fmt: skip
    """One layer of WaveNet: dilated causal convolutions, gated, with residual and skip outputs."""
    past = np.zeros_like(Data)
    past[:, :, dil:] = Data[:, :, : Data.shape[2] - dil]
    filtered = FilterW[:, :, 1] @ Data + FilterW[:, :, 0] @ past + FilterB[:, None]
    gate = GateW[:, :, 1] @ Data + GateW[:, :, 0] @ past + GateB[:, None]
    active = np.tanh(filtered) / (1 + np.exp(-gate))
    return Data + ResB[:, None] + ResW @ active, SkipW @ active + SkipB[:, None]


def softmax(I: Array) -> Outputs:
    """Softmax of rows."""
    e = np.exp(I - I.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def concat(A: Array, B: Array) -> Outputs:
    """Two transposed matrices, stacked, in row-major order as the operator writes them (np.stack keeps that of its inputs)."""
    return np.ascontiguousarray(np.stack([A.T, B.T], axis=1))


def gather_rows(input: Array, index: Array) -> Outputs:
    """Rows of a matrix."""
    return input[index]


def inplace_mm(A: Array, B: Array, C: Array) -> Outputs:
    """A matrix product added to a given matrix."""
    return C + A @ B


def strided_conv(I: Array, W1: Array, B: Array, sh: int, sw: int) -> Outputs:
    """2-d convolution with strides and bias."""
    windows = sliding_window_view(I, W1.shape[2:], axis=(2, 3))[:, :, ::sh, ::sw]
    return np.einsum("nchwij,ocij->nohw", windows, W1, optimize=True) + B[:, None, None]


def tensordot(I0: Array, I1: Array) -> Outputs:
    """A contraction over one index, elementwise in the batch and in space."""
    return np.einsum("nachw,nckhw->nakhw", I0, I1)


def layernorm(I: Array) -> Outputs:
    """The layer normalisation of a regression test: divided by the reciprocal square root."""
    centred = I - I.mean(axis=2, keepdims=True)
    variance = np.square(centred).mean(axis=2, keepdims=True)
    return centred * np.sqrt(variance)


def flip_conv(A: Array, K: Array) -> Outputs:
    """1-d convolution, valid part."""
    return np.convolve(K, A, mode="valid")


def spatial_batchnorm(I: Array, rMean: Array, rVar: Array, momentum: Array, eps: Array) -> Outputs:
    """Batch normalisation with running moments."""
    mean = I.mean(axis=(0, 2, 3))
    running = (1 - momentum) * rMean + momentum * mean
    centred = I - running[:, None, None]
    variance = centred * centred
    expected = (variance + eps).mean(axis=(0, 2, 3))
    scale = 1 / np.sqrt((1 - momentum) * rVar + momentum * expected)
    return running, scale, mean, centred, variance, expected, centred * scale[:, None, None]


SPELLINGS: dict[str, Callable[..., Outputs]] = {
    f.__name__: f
    for f in (
        tmm, tbmm, conv2d, gconv, kron3_1, kron3_2, kron3_3, kron3_full, c3, mlp1, mlp3, sum_2d_1d, mean_2d_1d,
        sum_squares_2d_1d, var_2d_1d, sum_and_squares_2d_1d, moments2_2d_1d, group_norm, wavenet1, softmax, concat,
        gather_rows, inplace_mm, strided_conv, tensordot, layernorm, flip_conv, spatial_batchnorm,
    )
} | {"1lut": lut1, "2lut": lut2}  # fmt: skip
