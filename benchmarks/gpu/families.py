"""What a child does for the first parts of the smoke run: what the card is, and one program of each family at small odd sizes.

Results are stored into arrays whose every element was a sign that nothing was stored, dense ones and views between guards, and
compared with NumPy's in f64.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

import polyker as pk
from benchmarks.gpu import libcuda
from benchmarks.gpu.case import TOLERANCES
from benchmarks.gpu.child import Say
from benchmarks.gpu.machine import Skip, compile_now, compiler_versions, gpu_of

_SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
_NORM = (
    "m[n] = mean[c](X[n,c])\nv[n] = mean[c]((X[n,c] - m[n]) ** 2)\nO[n,c] = (X[n,c] - m[n]) * rsqrt(v[n] + 1e-5) * g[c]"
)
_CAUSAL = """S[h,i,j] = 0.25 * sum[d](Q[h,i,d] * K[h,j,d]) where j <= i
m[h,i] max= S[h,i,j] where j <= i
E[h,i,j] = exp(S[h,i,j] - m[h,i]) where j <= i
O[h,i,d] = sum[j](E[h,i,j] * V[h,j,d] where j <= i) / sum[j](E[h,i,j] where j <= i)"""
_PRODUCT = "C[i,j] += A[i,k] * B[k,j]"
_BINS = 37


class Family(Struct, frozen=True):
    """A program, the shapes and types of its inputs (f32 where none is said), and what NumPy computes for the same.

    An input of type `index` has integers below `bound`. `scale`: of errors, the sum of the magnitudes of the terms of an
    element where the result is linear in each input (None), else its largest element (1).
    """

    name: str
    text: str
    shapes: tuple[tuple[int, ...], ...]
    numpy: Callable[..., Any]
    dtypes: tuple[str, ...] = ()
    bound: int = 1
    linear: bool = True

    @property
    def kinds(self) -> tuple[str, ...]:
        """Element types of the inputs."""
        return tuple("i64" if d == "index" else d for d in self.dtypes) or ("f32",) * len(self.shapes)

    @property
    def types(self) -> tuple[Any, ...]:
        """Types to compile for."""
        return tuple(getattr(pk, d)[s] for d, s in zip(self.kinds, self.shapes, strict=True))

    def inputs(self) -> list[np.ndarray]:
        """Return random data; floats in f64, as they are before they are rounded."""
        rng = np.random.default_rng(7)
        return [
            rng.integers(0, self.bound, s) if d == "index" else rng.integers(-9, 10, s).astype("i1") if d == "i8"
            else rng.normal(size=s)
            for d, s in zip(self.dtypes or self.kinds, self.shapes, strict=True)
        ]  # fmt: skip


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _convolution(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, k.shape[2:], (2, 3))
    return np.einsum("nchwrs,fcrs->nfhw", windows, k, optimize=True)


def _norm(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g


def _causal(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    s = 0.25 * q @ k.swapaxes(1, 2)
    return _softmax(np.where(np.tri(s.shape[1], dtype=bool), s, -np.inf)) @ v


def _stencil(x: np.ndarray) -> np.ndarray:
    above, right = np.pad(x, ((1, 0), (0, 0)))[:-1], np.pad(x, ((0, 0), (0, 1)), mode="edge")[:, 1:]
    return x - above + right if (x < 0).any() else x + above + right  # the second: of magnitudes


def _scatter(i: np.ndarray, x: np.ndarray) -> np.ndarray:
    found = np.zeros((_BINS, x.shape[1]))
    np.add.at(found, i, x)
    return found


def families() -> list[Family]:
    """Return one program of each family, and products of each type, at sizes with partial blocks."""
    product = (123, 77), (77, 201)

    def of(dtype: str) -> Family:
        return Family(f"product {dtype}", _PRODUCT, product, np.matmul, (dtype, dtype))

    integers = Family("product i8 to i32", "C[i,j] += i32(A[i,k]) * i32(B[k,j])", product,
                      lambda a, b: a.astype("i4") @ b.astype("i4"), ("i8", "i8"))  # fmt: skip
    reversed_axes = "T[d,c,b,a] = X[a,b,c,d]"
    recurrence = "S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:60"
    prefix = "f(X: [M,N]) -> S:\n    S[i,j] += X[i,k] for i in 0:M, j in 0:N where k <= j"
    image = (2, 3, 27, 31), (5, 3, 3, 3)
    return [
        of("f32"), of("f64"), of("f16"), of("bf16"), integers,
        Family("batched product", "C[b,i,j] += A[b,i,k] * B[b,k,j]", ((5, 33, 65), (5, 65, 70)), np.matmul),
        Family("skinny product", _PRODUCT, ((17, 5003), (5003, 19)), np.matmul),
        Family("convolution", "O[n,f,h,w] += X[n,c,h+r,w+s] * K[f,c,r,s]", image, _convolution),
        Family("row sums", "s[i] += X[i,j]", ((77, 3001),), lambda x: x.sum(1)),
        Family("column sums", "s[j] += X[i,j]", ((3001, 77),), lambda x: x.sum(0)),
        Family("sum", "s += X[i] * X[i]", ((1_000_003,),), lambda x: (x * x).sum()),
        Family("maxima", "m[i] max= X[i,j]", ((5, 10007),), lambda x: x.max(1)),
        Family("softmax", _SOFTMAX, ((131, 517),), _softmax, linear=False),
        Family("layer norm", _NORM, ((67, 1027), (1027,)), _norm, linear=False),
        Family("causal attention", _CAUSAL, ((3, 67, 24),) * 3, _causal, linear=False),
        Family("transpose", "T[j,i] = X[i,j]", ((301, 1027),), np.transpose),
        Family("transpose of rank 4", reversed_axes, ((5, 33, 7, 65),), np.transpose),
        Family("elementwise", "Z[i,j] = relu(X[i,j]) * 2 + Y[j]", ((301, 127), (127,)), lambda x, y: np.maximum(x, 0) * 2 + y),
        Family("recurrence", recurrence, ((300, 60),), lambda x: x.cumsum(1)),
        Family("prefix sums", prefix, ((13, 4099),), lambda x: x.cumsum(1)),
        Family("stencil", "Y[i,j] = X[i,j] - X[i-1,j; pad=0] + X[i,j+1; pad=edge]", ((130, 131),), _stencil),
        Family("gather", "E[b,d] = T[idx[b], d]", ((50, 33), (301,)), lambda t, i: t[i], ("f32", "index"), 50),
        Family("histogram", f"f(idx: i64[N]) -> H:\n    H: i64[{_BINS}]\n    H[idx[i]] += 1", ((10007,),),
               lambda i: np.bincount(i, minlength=_BINS), ("index",), _BINS),
        Family("scatter-add", f"f(idx: i64[N], X: [N,D]) -> H:\n    H: [{_BINS},D]\n    H[idx[i],d] += X[i,d]",
               ((1003,), (1003, 5)), _scatter, ("index", "f32"), _BINS),
    ]  # fmt: skip


def family_named(name: str) -> Family:
    """Return a family."""
    return next(f for f in families() if f.name == name)


def compile_family(_: Any, say: Say, *, name: str, target: str) -> None:
    """Let the machine code of a family be made and kept on disk."""
    family = family_named(name)
    compile_now(pk.op(family.text).compile(*family.types, target=target), target)


def run_family(machine: Any, say: Say, *, name: str) -> dict[str, Any]:
    """Run a family on a dense output and on a view between guards; return the largest relative error."""
    family = family_named(name)
    say({"stage": "it was compiled"})
    inputs = [
        machine.array(x, d if x.dtype.kind == "f" else "") for x, d in zip(family.inputs(), family.kinds, strict=True)
    ]
    kernel = pk.op(family.text).compile(*family.types, target=machine.target)
    say({"stage": "it ran with a new result"})
    fresh = kernel(*inputs)
    kernel.sync()
    say({"stage": "it ran with a dense output"})
    dense = machine.like(fresh)
    kernel(*inputs, out=dense)
    kernel.sync()
    say({"stage": "it ran with a view as its output"})
    whole = machine.empty(tuple(n + 2 for n in fresh.shape) or (3,), machine.dtype(fresh))
    inner = whole[tuple(slice(1, -1) for _ in fresh.shape)] if fresh.shape else whole[1, ...]
    kernel(*inputs, out=inner)
    kernel.sync()
    if not machine.computes:
        return {}
    exact = [machine.numpy(x) for x in inputs]
    errors = {}
    for form, found in (("new", fresh), ("dense", dense), ("view", inner)):
        errors[form] = _error(family, exact, machine.numpy(found), machine.dtype(fresh), form)
    around = machine.numpy(whole)
    guards = np.ones(around.shape, bool)
    guards[tuple(slice(1, -1) for _ in around.shape)] = False
    sign = around[guards]
    untouched = np.isnan(sign) if sign.dtype.kind == "f" else sign == sign.min()
    assert untouched.all(), f"{(~untouched).sum()} elements around the view were overwritten"
    return {"error": max(errors.values())}


def _error(family: Family, inputs: list[np.ndarray], found: np.ndarray, dtype: str, form: str) -> float:
    """Return the largest relative error; raises AssertionError where it is too large."""
    want = np.asarray(family.numpy(*inputs))
    assert found.shape == want.shape, f"{form} result: its shape is {found.shape}, not {want.shape}"
    if want.dtype.kind in "iu":
        wrong = int((found != want).sum())
        assert not wrong, f"{form} result: {wrong} of {want.size} elements differ"
        return 0.0
    sizes = np.abs(want).max()
    if family.linear:
        sizes = np.abs(family.numpy(*(np.abs(x) if x.dtype.kind == "f" else x for x in inputs)))
    errors = np.abs(found - want) / np.maximum(sizes, 1e-300)
    worst, allowed = float(errors.max()), TOLERANCES[dtype]
    stored = int(np.isnan(found).sum())
    assert not stored, f"{form} result: {stored} of {want.size} elements are not numbers"
    wrong = int((errors > allowed).sum())
    assert not wrong, f"{form} result: {wrong} of {want.size} elements are wrong, the largest error is {worst:.2g}"
    return worst


def about(machine: Any, say: Say) -> dict[str, Any]:
    """Return what the driver says of the card beside what polyker's schedules are made for."""
    found: dict[str, Any] = {"device": machine.name, "target": machine.compiled_for, "kind": machine.kind}
    found["compilers"] = compiler_versions()
    found["libraries"] = {name: _version(name) for name in ("torch", "triton", "numpy", "llvmlite", "islpy")}
    target = asdict(gpu_of(machine.compiled_for)[0])  # what is known of such cards without this one
    if machine.kind == "dry":
        return {**found, "facts": [], "exclusive": False}
    cuda = libcuda.library()
    said = cuda.attributes()
    found["driver"] = {"CUDA": cuda.version(), "driver": libcuda.smi("driver_version") or "unknown"}
    pairs = (
        ("architecture", f"sm_{said.get('major')}{said.get('minor')}", target["arch"].removesuffix("a")),
        ("multiprocessors", said.get("multiprocessors"), target["processors"]),
        ("shared bytes a block", said.get("shared bytes a block, asked for"), target["shared"]),
        ("registers", said.get("registers a multiprocessor"), target["registers"]),
        ("threads a block", said.get("threads a block"), target["threads"]),
        ("threads a multiprocessor", said.get("threads a multiprocessor"), target["resident"]),
        ("warp", said.get("warp"), target["warp"]),
        ("L2 bytes", said.get("L2 bytes"), target["l2"]),
    )
    facts = [{"fact": n, "driver": d, "target": t, "differs": d != t} for n, d, t in pairs]
    clock = 1e3 * said.get("clock, kHz", 0)
    memory = 2e3 * said.get("memory clock, kHz", 0) * said.get("memory bus, bits", 0) / 8
    lanes = 256.0 * said.get("multiprocessors", 0)  # 128 multiply-adds a cycle
    for name, rate, expected in (("TFLOP/s", lanes * clock, target["flops"]), ("TB/s", memory, target["bandwidth"])):
        differs = abs(rate - expected) > 0.1 * expected
        facts.append({"fact": name, "driver": rate / 1e12, "target": expected / 1e12, "differs": differs})
    facts.append({"fact": "clock, MHz", "driver": clock / 1e6, "target": None, "differs": False})
    exclusive = said.get("compute mode") == libcuda.EXCLUSIVE
    return {**found, "facts": facts, "attributes": said, "exclusive": exclusive}


def _version(distribution: str) -> str:
    """Return the version of a distribution."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "-"


def skip_unless(condition: object, reason: str) -> None:
    """Raise Skip where a test says nothing."""
    if not condition:
        raise Skip(reason)
