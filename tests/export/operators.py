"""Operators that every target has to have right, with inputs: products, windows, functions, divisions, scans, and more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

import polyker as pk
from polyker.ir.functions import TABLE

Array = NDArray[Any]
_RNG = np.random.default_rng(0)


class Case(Struct, frozen=True):
    """An operator with its inputs, by their labels; `symbolic`: compiled for unknown sizes, which are those of the arrays.

    `start`: of outputs that the operator reads, too. `exact`: no bits may differ. `threads`: those that loops are divided for.
    """

    name: str
    text: str
    inputs: dict[str, Array]
    symbolic: bool = False
    exact: bool = False
    threads: int = 1
    start: dict[str, Array] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of a symbolic case: a name for each length that the arrays have."""
        lengths = dict.fromkeys(n for a in self.inputs.values() for n in a.shape) if self.symbolic else {}
        return dict(zip("MNPQRSTUVW", lengths, strict=False))


def _float(*shape: int, kind: str = "f4") -> Array:
    return _RNG.standard_normal(shape).astype(kind)


def _integers(low: int, high: int, *shape: int, kind: str = "i8") -> Array:
    return _RNG.integers(low, high, shape).astype(kind)


def _complex(*shape: int, kind: str = "c8") -> Array:
    return (_RNG.standard_normal(shape) + 1j * _RNG.standard_normal(shape)).astype(kind)


PRODUCT = "C[i,j] += A[i,k] * B[k,j]"
SOFTMAX = "M[i] max= X[i,j]; E[i,j] = exp(X[i,j] - M[i]); O[i,j] = E[i,j] / sum[k](E[i,k])"


def _products() -> Iterator[Case]:
    for name, kind in (("f32", "f4"), ("f64", "f8"), ("f16", "f2")):
        yield Case(f"product {name}", PRODUCT, {"A": _float(37, 29, kind=kind), "B": _float(29, 41, kind=kind)})
        yield Case(
            f"symbolic product {name}", PRODUCT, {"A": _float(37, 29, kind=kind), "B": _float(29, 41, kind=kind)}, True
        )
    for kind in ("c8", "c16"):
        yield Case(f"product {kind}", PRODUCT, {"A": _complex(9, 7, kind=kind), "B": _complex(7, 5, kind=kind)})
    narrow = {"A": _integers(0, 200, 17, 29, kind="u1"), "B": _integers(-100, 100, 29, 21, kind="i1")}
    yield Case("product u8 i8", "C[i,j] += i32(A[i,k]) * i32(B[k,j])", narrow, exact=True)
    yield Case("product i64", PRODUCT, {"A": _integers(-9, 9, 9, 7), "B": _integers(-9, 9, 7, 5)}, exact=True)
    yield Case("row by matrix", "y[j] += x[k] * B[k,j]", {"x": _float(50), "B": _float(50, 70)}, True)
    yield Case("dot f64", "s += x[k] * y[k]", {"x": _float(1001, kind="f8"), "y": _float(1001, kind="f8")})
    yield Case("threads", PRODUCT, {"A": _float(300, 120), "B": _float(120, 200)}, threads=2)


def _windows() -> Iterator[Case]:
    image = {"X": _float(1, 5, 18, 17), "K": _float(7, 5, 3, 3)}
    yield Case("convolution", "O[n,f,h,w] += X[n,c,h+r,w+s] * K[f,c,r,s]", image)
    strided = {"X": _float(2, 4, 21, 19), "K": _float(6, 4, 3, 3)}
    yield Case("strided convolution", "O[n,f,h,w] += X[n,c,2*h+r,2*w+s] * K[f,c,r,s]", strided)
    yield Case("max pool", "O[n,h,w] max= X[n,2*h+r,2*w+s] for r in 0:2, s in 0:2", {"X": _float(3, 20, 18)})


def _rows() -> Iterator[Case]:
    yield Case("softmax", SOFTMAX, {"X": _float(13, 37)})
    yield Case("symbolic softmax", SOFTMAX, {"X": _float(13, 37)}, True)
    yield Case("argmax", "O[i] = argmax[j](X[i,j])", {"X": _float(9, 53)}, exact=True)
    yield Case("scan", "S[b,0] = X[b,0]; S[b,t] = S[b,t-1] + X[b,t] for t in 1:67", {"X": _float(5, 67)})
    yield Case("maximum f64", "O[i] max= X[i,j]", {"X": _float(7, 61, kind="f8")}, exact=True)
    yield Case("triangle", "L[i,j] += A[i,k] * A[j,k] where j <= i", {"A": _float(21, 33)})
    yield Case("transpose", "O[j,i] = X[i,j]", {"X": _float(33, 45)}, True, exact=True)
    rows = {"X": _float(11, 7), "I": _integers(0, 11, 9)}
    yield Case("gather", "O[i,j] = X[I[i],j]", rows, exact=True)
    heat = """smooth(X) -> X:
    for t in 0:9:
        Y[i] = 0.25 * X[i-1] + 0.5 * X[i] + 0.25 * X[i+1]  for i in 1:63
        X[i] = Y[i]  for i in 1:63"""
    yield Case("time loop", heat, {}, start={"X": _float(64)})


def _integer_operators() -> Iterator[Case]:
    wide = {"X": _integers(-(10**12), 10**12, 301), "Y": _integers(-99, 99, 301)}
    ends = [-(2**63), 2**63 - 1, -1, 0, 1, 1 << 32, (1 << 32) - 1, -(1 << 40)]
    wide = {"X": np.append(wide["X"], np.repeat(ends, 8)), "Y": np.append(wide["Y"], np.tile(ends, 8))}
    yield Case("divide i64", "O[i] = X[i] // Y[i] + X[i] % Y[i]", wide, exact=True)
    unsigned = {"X": _integers(0, 1 << 62, 301, kind="u8"), "Y": _integers(1, 1 << 40, 301, kind="u8")}
    yield Case("divide u64", "O[i] = X[i] // Y[i] - X[i] % Y[i]", unsigned, exact=True)
    narrow = {"X": _integers(-999, 999, 301, kind="i4"), "Y": _integers(-9, 9, 301, kind="i4")}
    yield Case("divide i32", "O[i] = X[i] // Y[i] + X[i] % Y[i] * fmod(X[i], Y[i])", narrow, exact=True)
    yield Case("power i64", "O[i] = X[i] ** Y[i]", {"X": _integers(-9, 9, 99), "Y": _integers(0, 9, 99)}, exact=True)
    bits = {"X": _integers(-(1 << 60), 1 << 60, 99), "Y": _integers(0, 63, 99)}
    yield Case("bits", "O[i] = (X[i] >> Y[i]) ^ (X[i] << 3) & ~Y[i]", bits, exact=True)
    signed = np.concatenate(
        (bits["X"], bits["X"] >> 37, np.int64([0, -1, 2**63 - 1, -(2**63), (1 << 54) + 3, -(1 << 25) - 1]))
    )
    yield Case("convert", "O[i] = f32(X[i]); P[i] = f64(X[i])", {"X": signed}, exact=True)
    yield Case("convert unsigned", "O[i] = f32(X[i]); P[i] = f64(X[i])", {"X": signed.astype("u8")}, exact=True)
    yield Case("truncate", "O[i] = i64(X[i] * 1e6) + i64(u64(abs(X[i])))", {"X": _float(99, kind="f8")}, exact=True)
    yield Case("remainder f32", "O[i] = X[i] // Y[i] + X[i] % Y[i]", {"X": 1e3 * _float(301), "Y": _float(301)})
    doubles = {"X": 1e9 * _float(301, kind="f8"), "Y": _float(301, kind="f8")}
    yield Case("remainder f64", "O[i] = X[i] // Y[i] + X[i] % Y[i] + fmod(X[i], Y[i])", doubles)


_OPEN, _ABOVE_ONE = ("asin", "acos", "atanh", "erfinv"), ("acosh",)
_POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "lgamma", "digamma")


def _argument(name: str, kind: str) -> Array:
    if TABLE[name].takes == "integer":
        return _integers(-999, 999, 301)
    x = _float(301, kind=kind) * 3
    if name in _OPEN:
        return np.asarray(np.tanh(x), dtype=kind)
    return np.abs(x) + {True: 1}.get(name in _ABOVE_ONE, 0) if name in (*_POSITIVE, *_ABOVE_ONE) else x


def functions(kind: str) -> Iterator[Case]:
    """Yield one operator a function of the notation, on real arguments of a type."""
    for name, known in TABLE.items():
        arguments = {t: _argument(name, kind) for t in "XYZ"[: known.arity]}
        if name == "where":
            pair = {"X": arguments["X"], "Y": arguments["X"][::-1].copy()}
            yield Case(f"where {kind}", "O[i] = where(X[i] < Y[i], Y[i], X[i])", pair)
            continue
        yield Case(f"{name} {kind}", f"O[i] = {name}({', '.join(f'{t}[i]' for t in arguments)})", arguments)


def together(kind: str, count: int = 9) -> Iterator[Case]:
    """Yield the functions of `functions`, some in one operator each, as several outputs."""
    cases = [c for c in functions(kind) if c.text.startswith("O[i] = ")]
    for at in range(0, len(cases), count):
        inputs: dict[str, Array] = {}
        texts = []
        for n, case in enumerate(cases[at : at + count]):
            text = case.text.replace("O[i]", f"O{n}[i]")
            for label, array in case.inputs.items():
                text = text.replace(f"{label}[i]", f"{label}{n}[i]")
                inputs[f"{label}{n}"] = array
            texts.append(text)
        yield Case(f"functions {kind} {at // count}", "; ".join(texts), inputs)


def pow_and_complex() -> Iterator[Case]:
    """Yield powers, and functions of complex numbers."""
    for kind in ("f4", "f8"):
        yield Case(
            f"power {kind}", "O[i] = X[i] ** Y[i]", {"X": abs(_float(301, kind=kind)), "Y": _float(301, kind=kind)}
        )
    yield Case("complex functions", "O[i] = exp(X[i]) / sqrt(Y[i]) + abs(X[i])", {"X": _complex(99), "Y": _complex(99)})
    yield Case("half functions", "O[i] = gelu(X[i])", {"X": _float(301, kind="f2")})


def _layers(count: int = 13) -> Iterator[Case]:
    """Yield a program that is compiled in parts."""
    lines, inputs = [], {"H0": _float(5, 7)}
    for k in range(count):
        lines += [f"P{k}[i,j] += H{k}[i,k] * W{k}[k,j]", f"H{k + 1}[i,j] = tanh(P{k}[i,j] + B{k}[j])"]
        inputs |= {f"W{k}": _float(7, 7), f"B{k}": _float(7)}
    yield Case("layers", "\n".join(lines), inputs)
    yield Case("symbolic layers", "\n".join(lines), inputs, True)


CASES = {
    c.name: c
    for c in (
        *_products(), *_windows(), *_rows(), *_integer_operators(), *pow_and_complex(), *together("f4"), *together("f8"),
        *_layers(),
    )
}  # fmt: skip
# Of each kind one: what tests take of every target.
FEW = (
    "product f32", "symbolic product f64", "product f16", "product u8 i8", "convolution", "layers", "softmax", "divide i64",
    "gather", "time loop", "remainder f32", "functions f4 2", "functions f8 3", "scan", "argmax", "threads",
)  # fmt: skip


def kernel(case: Case, target: str) -> Any:
    """Return the kernel of a case for a target."""
    names = {n: label for label, n in case.sizes.items()}
    types = {
        label: DTYPE[a.dtype][tuple(names.get(n, n) for n in a.shape)]
        for label, a in (case.inputs | case.start).items()
    }
    return pk.op(case.text).compile(**types, target=target, threads=case.threads)


DTYPE = {np.dtype(d.numpy): d for d in (pk.f16, pk.f32, pk.f64, pk.i8, pk.u8, pk.i32, pk.i64, pk.u64, pk.c64, pk.c128)}
