"""Convolutions and pooling: ResNet-50, MobileNet, WaveNet, grouped, strided, padded, one-dimensional."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.case import Case, Operand, Problem

# channels, filters, extent of the image, extent of the filter, stride, padding: each layer of ResNet-50 (v1.5) once
RESNET = (
    (3, 64, 224, 7, 2, 3),
    (64, 64, 56, 1, 1, 0), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 0), (256, 64, 56, 1, 1, 0),
    (256, 128, 56, 1, 1, 0), (128, 128, 56, 3, 2, 1), (256, 512, 56, 1, 2, 0),
    (128, 512, 28, 1, 1, 0), (512, 128, 28, 1, 1, 0), (128, 128, 28, 3, 1, 1),
    (512, 256, 28, 1, 1, 0), (256, 256, 28, 3, 2, 1), (512, 1024, 28, 1, 2, 0),
    (256, 1024, 14, 1, 1, 0), (1024, 256, 14, 1, 1, 0), (256, 256, 14, 3, 1, 1),
    (1024, 512, 14, 1, 1, 0), (512, 512, 14, 3, 2, 1), (1024, 2048, 14, 1, 2, 0),
    (512, 2048, 7, 1, 1, 0), (2048, 512, 7, 1, 1, 0), (512, 512, 7, 3, 1, 1),
)  # fmt: skip
CHANNELS_LAST = ((64, 64, 56, 3, 1, 1), (128, 512, 28, 1, 1, 0), (256, 256, 14, 3, 1, 1))
BATCHED = ((64, 64, 56, 3, 1, 1), (256, 1024, 14, 1, 1, 0))
OTHER = ((3, 64, 224, 11, 4, 2), (64, 192, 27, 5, 1, 2), (32, 32, 120, 3, 1, 0), (1, 8, 256, 5, 1, 0))
POINTWISE = (  # of MobileNet: channels, filters, extent
    (32, 64, 112), (64, 128, 56), (128, 128, 56), (128, 256, 28), (256, 256, 28), (512, 512, 14), (1024, 1024, 7),
)  # fmt: skip
DEPTHWISE = (  # of MobileNet: channels, extent, stride
    (32, 112, 1), (64, 112, 2), (128, 56, 1), (128, 56, 2), (256, 28, 1), (512, 14, 1), (512, 14, 2), (1024, 7, 1),
)  # fmt: skip
GROUPED = ((32, 4, 4, 56), (32, 8, 8, 28), (32, 16, 16, 14), (4, 32, 32, 28))  # groups, channels, filters, extent
WAVENET = ((32, 32, 1), (32, 32, 16), (32, 32, 512), (64, 128, 4), (16, 16, 2))  # channels, filters, dilation
SAMPLES = 7488


def _subscript(index: str, offset: str, stride: int, pad: int, step: int = 1) -> str:
    first = index if stride == 1 else f"{stride}*{index}"
    second = offset if step == 1 else f"{step}*{offset}"
    return f"{first}+{second}" + (f"-{pad}" if pad else "")


def _out(extent: int, filter_: int, stride: int, pad: int) -> int:
    return (extent + 2 * pad - filter_) // stride + 1


def _windows(x: Any, r: int, stride: int, pad: int, value: float = 0.0) -> Any:
    """Return the windows of the last two axes, as views of a padded copy."""
    if pad:
        x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(pad, pad)] * 2, constant_values=value)
    return sliding_window_view(x, (r, r), axis=(-2, -1))[..., ::stride, ::stride, :, :]


def _clause(oh: int, ow: int, pad: int) -> tuple[str, str]:
    return ("; pad=0", f"  for h in 0:{oh}, w in 0:{ow}") if pad else ("", "")


def conv2d(*, N: int, C: int, F: int, H: int, W: int, R: int, stride: int, pad: int) -> Problem:
    """Return a 2-d convolution of images in NCHW order."""
    oh, ow = _out(H, R, stride, pad), _out(W, R, stride, pad)
    padding, domain = _clause(oh, ow, pad)
    rows, columns = _subscript("h", "r", stride, pad), _subscript("w", "s", stride, pad)

    def numpy(np: Any, X: Any, K: Any, out: Any) -> Any:
        if R == 1:
            X = np.ascontiguousarray(X[:, :, ::stride, ::stride])
            np.matmul(K.reshape(F, C), X.reshape(N, C, oh * ow), out=out.reshape(N, F, oh * ow))
            return out
        patches = _windows(X, R, stride, pad).transpose(0, 1, 4, 5, 2, 3).reshape(N, C * R * R, oh * ow)
        np.matmul(K.reshape(F, C * R * R), patches, out=out.reshape(N, F, oh * ow))
        return out

    return Problem(
        text=f"O[n,f,h,w] += X[n,c,{rows},{columns}{padding}] * K[f,c,r,s]{domain}",
        inputs=(Operand("X", "f32", (N, C, H, W)), Operand("K", "f32", (F, C, R, R))),
        output=Operand("O", "f32", (N, F, oh, ow)),
        flops=2 * N * F * oh * ow * C * R * R,
        reference=lambda X, K: numpy(np, X, K, np.empty((N, F, oh, ow))),
        spellings={
            "numpy": numpy,
            "torch": lambda torch, X, K, out: torch.nn.functional.conv2d(X, K, stride=stride, padding=pad),
            "jax": lambda jax, X, K, out: jax.lax.conv_general_dilated(X, K, (stride, stride), [(pad, pad)] * 2),
        },
        terms=C * R * R,
    )


def conv2d_channels_last(*, N: int, C: int, F: int, H: int, W: int, R: int, stride: int, pad: int) -> Problem:
    """Return a 2-d convolution of images in NHWC order, filters RSCF."""
    oh, ow = _out(H, R, stride, pad), _out(W, R, stride, pad)
    padding, domain = _clause(oh, ow, pad)
    rows, columns = _subscript("h", "r", stride, pad), _subscript("w", "s", stride, pad)

    def numpy(np: Any, X: Any, K: Any, out: Any) -> Any:
        windows = _windows(X.transpose(0, 3, 1, 2), R, stride, pad)  # n c h w r s
        patches = windows.transpose(0, 2, 3, 4, 5, 1).reshape(N * oh * ow, R * R * C)
        np.matmul(patches, K.reshape(R * R * C, F), out=out.reshape(N * oh * ow, F))
        return out

    def torch(torch: Any, X: Any, K: Any, out: Any) -> Any:
        y = torch.nn.functional.conv2d(X.permute(0, 3, 1, 2), K.permute(3, 2, 0, 1), stride=stride, padding=pad)
        return y.permute(0, 2, 3, 1).contiguous()

    def jax(jax: Any, X: Any, K: Any, out: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(X, K, (stride, stride), [(pad, pad)] * 2, dimension_numbers=layout)

    return Problem(
        text=f"O[n,h,w,f] += X[n,{rows},{columns},c{padding}] * K[r,s,c,f]{domain}",
        inputs=(Operand("X", "f32", (N, H, W, C)), Operand("K", "f32", (R, R, C, F))),
        output=Operand("O", "f32", (N, oh, ow, F)),
        flops=2 * N * F * oh * ow * C * R * R,
        reference=lambda X, K: numpy(np, X, K, np.empty((N, oh, ow, F))),
        spellings={"numpy": numpy, "torch": torch, "jax": jax},
        terms=C * R * R,
    )


def depthwise(*, N: int, C: int, H: int, W: int, R: int, stride: int, pad: int) -> Problem:
    """Return a convolution of each channel by itself."""
    oh, ow = _out(H, R, stride, pad), _out(W, R, stride, pad)
    padding, domain = _clause(oh, ow, pad)
    rows, columns = _subscript("h", "r", stride, pad), _subscript("w", "s", stride, pad)

    def numpy(np: Any, X: Any, K: Any, out: Any) -> Any:
        return np.einsum("nchwrs,crs->nchw", _windows(X, R, stride, pad), K, out=out)

    def jax(jax: Any, X: Any, K: Any, out: Any) -> Any:
        return jax.lax.conv_general_dilated(
            X, K[:, None], (stride, stride), [(pad, pad)] * 2, feature_group_count=C
        )  # fmt: skip

    return Problem(
        text=f"O[n,c,h,w] += X[n,c,{rows},{columns}{padding}] * K[c,r,s]{domain}",
        inputs=(Operand("X", "f32", (N, C, H, W)), Operand("K", "f32", (C, R, R))),
        output=Operand("O", "f32", (N, C, oh, ow)),
        flops=2 * N * C * oh * ow * R * R,
        reference=lambda X, K: numpy(np, X, K, np.empty((N, C, oh, ow))),
        spellings={
            "numpy": numpy,
            "torch": lambda torch, X, K, out: torch.nn.functional.conv2d(
                X, K[:, None], stride=stride, padding=pad, groups=C
            ),
            "jax": jax,
        },
        terms=R * R,
    )


def grouped(*, G: int, C: int, F: int, H: int, W: int, R: int, pad: int) -> Problem:
    """Return a convolution in groups of channels."""
    oh, ow = _out(H, R, 1, pad), _out(W, R, 1, pad)
    padding, domain = _clause(oh, ow, pad)
    rows, columns = _subscript("h", "r", 1, pad), _subscript("w", "s", 1, pad)

    def numpy(np: Any, X: Any, K: Any, out: Any) -> Any:
        patches = _windows(X, R, 1, pad).transpose(0, 1, 2, 5, 6, 3, 4).reshape(1, G, C * R * R, oh * ow)
        np.matmul(K.reshape(G, F, C * R * R), patches, out=out.reshape(1, G, F, oh * ow))
        return out

    def torch(torch: Any, X: Any, K: Any, out: Any) -> Any:
        x, k = X.reshape(1, G * C, H, W), K.reshape(G * F, C, R, R)
        return torch.nn.functional.conv2d(x, k, padding=pad, groups=G).reshape(1, G, F, oh, ow)

    def jax(jax: Any, X: Any, K: Any, out: Any) -> Any:
        x, k = X.reshape(1, G * C, H, W), K.reshape(G * F, C, R, R)
        y = jax.lax.conv_general_dilated(x, k, (1, 1), [(pad, pad)] * 2, feature_group_count=G)
        return y.reshape(1, G, F, oh, ow)

    return Problem(
        text=f"O[n,g,f,h,w] += X[n,g,c,{rows},{columns}{padding}] * K[g,f,c,r,s]{domain}",
        inputs=(Operand("X", "f32", (1, G, C, H, W)), Operand("K", "f32", (G, F, C, R, R))),
        output=Operand("O", "f32", (1, G, F, oh, ow)),
        flops=2 * G * F * oh * ow * C * R * R,
        reference=lambda X, K: numpy(np, X, K, np.empty((1, G, F, oh, ow))),
        spellings={"numpy": numpy, "torch": torch, "jax": jax},
        terms=C * R * R,
    )


def dilated(*, C: int, F: int, length: int, R: int, step: int) -> Problem:
    """Return a dilated convolution over time, as WaveNet has it, without padding."""

    def numpy(np: Any, X: Any, K: Any, out: Any) -> Any:
        np.matmul(K[:, :, 0], X[0, :, :length], out=out[0])
        for r in range(1, R):
            out[0] += K[:, :, r] @ X[0, :, r * step : r * step + length]
        return out

    def jax(jax: Any, X: Any, K: Any, out: Any) -> Any:
        return jax.lax.conv_general_dilated(X, K, (1,), [(0, 0)], rhs_dilation=(step,))

    return Problem(
        text=f"O[n,f,t] += X[n,c,{_subscript('t', 'r', 1, 0, step)}] * K[f,c,r]",
        inputs=(Operand("X", "f32", (1, C, length + step * (R - 1))), Operand("K", "f32", (F, C, R))),
        output=Operand("O", "f32", (1, F, length)),
        flops=2 * F * length * C * R,
        reference=lambda X, K: numpy(np, X, K, np.empty((1, F, length))),
        spellings={
            "numpy": numpy,
            "torch": lambda torch, X, K, out: torch.nn.functional.conv1d(X, K, dilation=step),
            "jax": jax,
        },
        terms=C * R,
    )


def filter1d(*, length: int, R: int) -> Problem:
    """Return a long signal under a short filter."""
    return Problem(
        text="O[t] += X[t+r] * K[r]",
        inputs=(Operand("X", "f32", (length + R - 1,)), Operand("K", "f32", (R,))),
        output=Operand("O", "f32", (length,)),
        flops=2 * length * R,
        reference=lambda X, K: np.correlate(X, K, mode="valid"),
        spellings={
            "numpy": lambda np, X, K, out: np.correlate(X, K, mode="valid"),
            "torch": lambda torch, X, K, out: torch.nn.functional.conv1d(X[None, None], K[None, None])[0, 0],
            "jax": lambda jax, X, K, out: jax.numpy.correlate(X, K, mode="valid"),
            "numba": lambda loops, X, K, out: loops.filter1d(X, K, out),
        },
        terms=R,
    )


def pool(kind: str, *, C: int, H: int, W: int, R: int, stride: int, pad: int) -> Problem:
    """Return max or mean pooling; a mean counts padded elements, as torch's does."""
    oh, ow = _out(H, R, stride, pad), _out(W, R, stride, pad)
    rows, columns = _subscript("h", "r", stride, pad), _subscript("w", "s", stride, pad)
    value = "-inf" if kind == "max" else "0"
    padding = f"; pad={value}" if pad else ""
    read = f"X[n,c,{rows},{columns}{padding}]"
    # Nothing but the reduced indices' own ranges says how large a window is.
    ranges = f"  for h in 0:{oh}, w in 0:{ow}, r in 0:{R}, s in 0:{R}"
    mean = f"O[n,c,h,w] = sum[r in 0:{R}, s in 0:{R}]({read}) / {R * R}  for h in 0:{oh}, w in 0:{ow}"

    def numpy(np: Any, X: Any, out: Any) -> Any:
        """Combine shifted views: quicker in numpy than a reduction over windows."""
        windows = _windows(X, R, stride, pad, float(value))
        np.copyto(out, windows[..., 0, 0])
        for n in range(1, R * R):
            (np.maximum if kind == "max" else np.add)(out, windows[..., n // R, n % R], out=out)
        return out if kind == "max" else np.divide(out, R * R, out=out)

    def torch(torch: Any, X: Any, out: Any) -> Any:
        run = torch.nn.functional.max_pool2d if kind == "max" else torch.nn.functional.avg_pool2d
        return run(X, R, stride=stride, padding=pad)

    def jax(jax: Any, X: Any, out: Any) -> Any:
        start, step = (-np.inf, jax.lax.max) if kind == "max" else (0.0, jax.lax.add)
        border = [(0, 0), (0, 0), (pad, pad), (pad, pad)]
        y = jax.lax.reduce_window(X, np.float32(start), step, (1, 1, R, R), (1, 1, stride, stride), border)
        return y if kind == "max" else y / (R * R)

    return Problem(
        text=f"O[n,c,h,w] max= {read}{ranges}" if kind == "max" else mean,
        inputs=(Operand("X", "f32", (1, C, H, W)),),
        output=Operand("O", "f32", (1, C, oh, ow)),
        flops=None,
        reference=lambda X: numpy(np, X, np.empty((1, C, oh, ow))),
        spellings={"numpy": numpy, "torch": torch, "jax": jax},
        terms=R * R,
        rule="scaled",
    )


def _image(make: Any, group: str, layer: tuple[int, ...], *, label: str = "", N: int = 1) -> Case:
    c, f, extent, r, stride, pad = layer
    name = f"conv/{group}/{label}{c}-{f}-{extent}x{extent}-{r}x{r}-s{stride}"
    sizes = {"N": N, "C": c, "F": f, "H": extent, "W": extent, "R": r}
    return Case(name, "conv", group, make, sizes, {"stride": stride, "pad": pad})


def cases() -> Iterator[Case]:
    """Yield the family."""
    for layer in RESNET:
        yield _image(conv2d, "resnet", layer)
    for layer in CHANNELS_LAST:
        yield _image(conv2d_channels_last, "resnet", layer, label="nhwc-")
    for layer in BATCHED:
        yield _image(conv2d, "resnet", layer, label="batch4-", N=4)
    for layer in OTHER:
        yield _image(conv2d, "strided-padded", layer)
    for c, f, extent in POINTWISE:
        yield _image(conv2d, "pointwise", (c, f, extent, 1, 1, 0))
    for c, extent, stride in DEPTHWISE:
        sizes, settings = {"N": 1, "C": c, "H": extent, "W": extent}, {"R": 3, "stride": stride, "pad": 1}
        name = f"conv/depthwise/{c}-{extent}x{extent}-s{stride}"
        yield Case(name, "conv", "depthwise", depthwise, sizes, settings)
    for g, c, f, extent in GROUPED:
        sizes = {"G": g, "C": c, "F": f, "H": extent, "W": extent}
        yield Case(f"conv/grouped/{g}x{c}-{f}-{extent}x{extent}", "conv", "grouped", grouped, sizes, {"R": 3, "pad": 1})
    for c, f, step in WAVENET:
        sizes, settings = {"C": c, "F": f, "length": SAMPLES}, {"R": 2, "step": step}
        yield Case(f"conv/wavenet/{c}-{f}-d{step}", "conv", "wavenet", dilated, sizes, settings)
    for r in (5, 31):
        yield Case(f"conv/one-dimensional/{r}", "conv", "one-dimensional", filter1d, {"length": 100000}, {"R": r})
    for kind, c, extent, r, stride, pad in (
        ("max", 64, 112, 3, 2, 1), ("max", 64, 56, 2, 2, 0), ("mean", 64, 56, 2, 2, 0),
        ("mean", 192, 28, 3, 1, 1), ("mean", 2048, 7, 7, 1, 0),
    ):  # fmt: skip
        sizes, settings = {"C": c, "H": extent, "W": extent}, {"R": r, "stride": stride, "pad": pad}
        name = f"conv/pooling/{kind}-{c}-{extent}x{extent}-{r}x{r}-s{stride}"
        yield Case(name, "conv", "pooling", partial(pool, kind), sizes, settings)
