"""Models of the kinds that people train: small, with inputs."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional as f


class GptBlock(nn.Module):
    """Attention with a causal mask, then a perceptron, each after a layer norm."""

    def __init__(self, width: int = 16, heads: int = 2, *, fused: bool = False) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        if self.fused:
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5
            mask = torch.ones(t, t, dtype=torch.bool).tril()
            y = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.down(f.gelu(self.up(self.second(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Embeddings, blocks, and a head for the next token."""

    def __init__(self, layers: int, width: int, heads: int, words: int, length: int, *, fused: bool = True) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads, fused=fused) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class ResNetBlock(nn.Module):
    """Two convolutions with batch norm beside a shortcut, then pooling and a classifier."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.a = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.b = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.m, self.n = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.out = nn.Linear(channels, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.m(self.a(x)))
        y = torch.relu(self.n(self.b(y)) + x)
        return self.out(f.max_pool2d(y, 2).mean((2, 3)))


class Lstm(nn.Module):
    """One layer of an LSTM, and a classifier of its last state."""

    def __init__(self, width: int = 8, hidden: int = 8) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(width, hidden, batch_first=True), nn.Linear(hidden, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x)[0][:, -1])


class Mlp(nn.Module):
    """Two linear layers, an activation and a layer norm."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.down(f.gelu(self.up(x))))


class VitBlock(nn.Module):
    """Patches by a convolution, a class token, and one encoder block."""

    def __init__(self, width: int = 8, heads: int = 2, patch: int = 4, side: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width))
        self.block = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.out = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(len(x), -1, -1), y], dim=1) + self.places
        return self.out(self.block(y)[:, 0])


class MambaBlock(nn.Module):
    """A selective scan in plain torch, between a causal convolution and a gate."""

    def __init__(self, width: int = 8, state: int = 4) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.conv = nn.Conv1d(width, width, 3, groups=width, padding=2)
        self.step, self.b, self.c = nn.Linear(width, width), nn.Linear(width, state), nn.Linear(width, state)
        self.a = nn.Parameter(torch.rand(width, state))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, gate = self.into(x).chunk(2, dim=-1)
        u = f.silu(self.conv(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step, b, c = f.softplus(self.step(u)), self.b(u), self.c(u)
        keep = torch.exp(-step[..., None] * self.a)
        add = (step * u)[..., None] * b[:, :, None]
        h, found = torch.zeros_like(add[:, 0]), []
        for t in range(x.shape[1]):
            h = keep[:, t] * h + add[:, t]
            found.append((h * c[:, t, None]).sum(-1))
        return self.out(torch.stack(found, dim=1) * f.silu(gate))


MODELS = {
    "gpt": (partial(GptBlock, fused=True), (2, 6, 16)),
    "resnet": (ResNetBlock, (2, 4, 6, 6)),
    "lstm": (Lstm, (2, 3, 8)),
    "mlp": (Mlp, (5, 16)),
    "vit": (VitBlock, (2, 3, 8, 8)),
    "mamba": (MambaBlock, (2, 2, 8)),
}
