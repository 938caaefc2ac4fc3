"""What a child does for the smoke run besides families: single things that only a GPU shows, each in a child of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import polyker as pk
from benchmarks.gpu import libcuda
from benchmarks.gpu.child import Say
from benchmarks.gpu.families import skip_unless
from benchmarks.gpu.machine import Skip

_AFFINE = "Y[i] = X[i] * 2 + 1"
_SUM = "s += X[i] * X[i]"
_SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
_PRODUCT = "C[i,j] += A[i,k] * B[k,j]"
_LONG = 1_000_003

Single = Callable[[Any], Any]
SINGLES: dict[str, Single] = {}


def single(name: str) -> Callable[[Single], Single]:
    """Return what notes a function as a test of that name."""

    def note(work: Single) -> Single:
        SINGLES[name] = work
        return work

    return note


def run_single(machine: Any, say: Say, *, name: str) -> dict[str, Any]:
    """Run a test; it raises Skip where it says nothing here."""
    found = SINGLES[name](machine)
    return {"note": found} if isinstance(found, str) else {}


def equal(machine: Any, found: Any, want: np.ndarray, tolerance: float = 0.0) -> None:
    """Raise AssertionError where a result is not what it should be; nothing is computed on a stub."""
    if not machine.computes:
        return
    values = found if isinstance(found, np.ndarray) else machine.numpy(found)
    assert values.shape == want.shape, f"its shape is {values.shape}, not {want.shape}"
    error = np.abs(values - want)
    wrong = int((~(error <= tolerance * np.maximum(np.abs(want).max(initial=0), 1e-30))).sum())
    assert not wrong, f"{wrong} of {want.size} elements are wrong, such as {values[~(error <= 0)].flat[0]}"


def _rows(machine: Any, elements: int) -> str:
    """Run a kernel whose blocks have a row of so many elements in shared memory."""
    text = f"f(X: f32[2,{elements}]) -> O:\n    O[b,i] = X[b,i] + X[b,{elements}-1-i] for b in 0:2, i in 0:{elements}"
    op, types = pk.op(text), {"X": pk.f32[2, elements]}
    schedule = op.schedule(**types, target=machine.target, auto=False).map(b="block.x").tile(i=256)
    schedule = schedule.map({"i.point": "thread.x"}).promote("X", at="b", memory="shared")
    kernel = op.compile(**types, schedule=schedule)
    x = np.random.default_rng(0).normal(size=(2, elements)).astype("f4")
    out = machine.empty((2, elements), "f32")
    kernel(machine.array(x), out=out)
    kernel.sync()
    equal(machine, out, x + x[:, ::-1])
    return f"{4 * elements} bytes"


@single("more than 48 KB of shared memory")
def more_shared_memory(machine: Any) -> str:
    """Run a kernel that has to ask for its shared memory."""
    return _rows(machine, 20_000)


@single("all of a block's shared memory")
def all_shared_memory(machine: Any) -> str:
    """Run a kernel that asks for exactly as much as a block may have."""
    return _rows(machine, machine.gpu.shared // 4)


@single("misaligned view")
def misaligned(machine: Any) -> None:
    """Run on x[1:], whose elements do not begin at a multiple of 16 bytes, as an input and as an output."""
    n = 4096
    kernel = pk.op(_AFFINE).compile(pk.f32[n], target=machine.target)
    x = np.random.default_rng(0).normal(size=n + 1).astype("f4")
    given, out = machine.array(x), machine.empty((n + 3,), "f32")
    kernel(given[1:], out=out[1:-2])
    kernel.sync()
    equal(machine, out[1:-2], x[1:] * 2 + 1)
    if machine.computes:
        assert np.isnan(machine.numpy(out)[[0, -2, -1]]).all(), "elements around the view were overwritten"


@single("strided and transposed views")
def strided(machine: Any) -> None:
    """Run a product on every second row and on a transpose, into every second column."""
    skip_unless(machine.torch is not None, "needs torch's views")
    rng = np.random.default_rng(1)
    a, b = rng.integers(-4, 5, (80, 30)).astype("f4"), rng.integers(-4, 5, (50, 40)).astype("f4")
    out = machine.empty((30, 100), "f32")
    product = pk.op(_PRODUCT)
    kernel = product.compile(pk.f32[30, 40], pk.f32[40, 50], target=machine.target)
    kernel(machine.array(a)[::2].T, machine.array(b).T, out=out[:, ::2])
    kernel.sync()
    equal(machine, out[:, ::2], a[::2].T @ b.T)
    if machine.computes:
        assert np.isnan(machine.numpy(out)[:, 1::2]).all(), "elements between those of the view were overwritten"


@single("arrays of the host")
def of_the_host(machine: Any) -> None:
    """Run on NumPy arrays: dense, strided, transposed, of negative strides, read in place and written in place."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(-4, 5, (60, 80)).astype("f4"), rng.integers(-4, 5, (50, 40)).astype("f4")
    kernel = pk.op(_PRODUCT).compile(pk.f32[30, 40], pk.f32[40, 50], target=machine.target)
    left, right = a[::-2, ::2], b[::-1].T
    equal(machine, kernel(left, right), left @ right)
    whole = np.full((30, 100), 7.0, "f4")
    kernel(left, right, out=whole[::-1, 1::2])
    equal(machine, whole[::-1, 1::2], left @ right)
    assert (whole[:, ::2] == 7).all(), "elements between those of the view were overwritten"


@single("no elements")
def no_elements(machine: Any) -> None:
    """Run on arrays without elements, and a sum over no terms."""
    kernel = pk.op("Y[i,j] = X[i,j] + 1").compile(pk.f32["M", "N"], target=machine.target)
    for shape in ((0, 5), (5, 0), (0, 0)):
        out = machine.empty(shape, "f32")
        kernel(machine.array(np.zeros(shape, "f4")), out=out)
        kernel.sync()
        equal(machine, out, np.zeros(shape))
    sums = pk.op("s[i] += X[i,j]").compile(pk.f32["M", "N"], target=machine.target)
    out = machine.empty((5,), "f32")
    sums(machine.array(np.zeros((5, 0), "f4")), out=out)
    sums.sync()
    equal(machine, out, np.zeros(5))


@single("one kernel at several sizes")
def several_sizes(machine: Any) -> None:
    """Run kernels for symbolic sizes at sizes below, at and above those of a block."""
    product = pk.op(_PRODUCT).compile(pk.f32["M", "K"], pk.f32["K", "N"], target=machine.target)
    softmax = pk.op(_SOFTMAX).compile(pk.f32["M", "N"], target=machine.target)
    rng = np.random.default_rng(3)
    for m, k, n in ((1, 1, 1), (64, 64, 64), (65, 3, 129), (7, 300, 31), (200, 17, 255)):
        a, b = rng.integers(-4, 5, (m, k)).astype("f4"), rng.integers(-4, 5, (k, n)).astype("f4")
        out = machine.empty((m, n), "f32")
        product(machine.array(a), machine.array(b), out=out)
        product.sync()
        equal(machine, out, a @ b)
        x = rng.normal(size=(m, n)).astype("f4")
        e = np.exp(x - x.max(1, keepdims=True).astype("f8"))
        out = machine.empty((m, n), "f32")
        softmax(machine.array(x), out=out)
        softmax.sync()
        equal(machine, out, e / e.sum(1, keepdims=True), 1e-5)


@single("an array that is read and written")
def read_and_written(machine: Any) -> None:
    """Run a program with an in-out argument: the argument changes only where it is also the output."""
    kernel = pk.op("f(A: f32[N]) -> A:\n    A[i] = A[i] * 2 + 1").compile(pk.f32[1003], target=machine.target)
    a = np.random.default_rng(4).normal(size=1003).astype("f4")
    given = machine.array(a)
    found = kernel(given)
    kernel.sync()
    equal(machine, found, a * 2 + 1)
    equal(machine, given, a)
    kernel(given, out=given)
    kernel(given, out=given)
    kernel.sync()
    equal(machine, given, (a * 2 + 1) * 2 + 1)


@single("gather out of range")
def out_of_range(machine: Any) -> None:
    """Gather an index outside, which is raised when it is waited for; the next call works."""
    from polyker.errors import GatherError

    skip_unless(machine.computes, "needs kernels that run")
    kernel = pk.op("E[b] = T[idx[b]] + 0.5").compile(pk.f32[4], pk.i64[3], target=machine.target)
    table = machine.array(np.arange(4, dtype="f4"))
    bad, good = machine.array(np.array([3, 4, 1])), machine.array(np.array([3, 0, 1]))
    for index in (bad, machine.array(np.array([0, -1, 2]))):
        raised = False
        try:
            kernel(table, index)
            kernel.sync()
        except GatherError:
            raised = True
        assert raised, "no GatherError"
        found = kernel(table, good)
        kernel.sync()
        equal(machine, found, np.array([3.5, 0.5, 1.5]))


@single("two streams")
def two_streams(machine: Any) -> None:
    """Queue calls of a kernel with temporaries on two streams in turn."""
    skip_unless(machine.kind != "dry", "needs a GPU")
    softmax = pk.op(_SOFTMAX).compile(pk.f32[512, 1000], target=machine.target)
    total = pk.op(_SUM).compile(pk.f32[512_000], target=machine.target)
    torch = machine.torch
    streams = [libcuda.library().stream() if torch is None else torch.cuda.Stream() for _ in range(2)]
    inputs = [np.random.default_rng(n).normal(size=(512, 1000)).astype("f4") for n in range(8)]
    given = [machine.array(x) for x in inputs]
    flat = [machine.array(x.reshape(-1)) for x in inputs]
    machine.sync()
    rows = [softmax(x, stream=streams[n % 2]) for n, x in enumerate(given)]
    sums = [total(x, stream=streams[n % 2]) for n, x in enumerate(flat)]
    softmax.sync()
    total.sync()
    for x, found, one in zip(inputs, rows, sums, strict=True):
        e = np.exp(x - x.max(1, keepdims=True).astype("f8"))
        equal(machine, found, e / e.sum(1, keepdims=True), 1e-5)
        equal(machine, one, (x.astype("f8") ** 2).sum(), 1e-5)


@single("behind torch on its stream")
def behind_torch(machine: Any) -> None:
    """Queue work behind torch's on streams that are still busy, by torch's current stream and by `stream=`."""
    torch = _torch_on_gpu(machine)
    n = 1 << 22
    kernel = pk.op(_AFFINE).compile(pk.f32[n], target=machine.target)
    kernel(torch.zeros(n, device="cuda"))
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    found = []
    for k, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            found.append(kernel(torch.full((n,), float(k), device="cuda")) + 0)
    torch.cuda.synchronize()
    for k, result in enumerate(found):
        equal(machine, result, np.full(n, 2.0 * k + 1))
    x, y = torch.zeros(n, device="cuda"), torch.zeros(n, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(streams[0]):
        torch.cuda._sleep(50_000_000)
        x.fill_(3.0)
    kernel(x, out=y, stream=streams[0])
    kernel.sync()
    equal(machine, y, np.full(n, 7.0))


@single("DLPack alone")
def dlpack(machine: Any) -> None:
    """Run on an object that has nothing but DLPack's methods."""
    skip_unless(machine.kind == "cuda", "needs arrays on a GPU: those of the host may not be of two kinds")

    class Packed:
        def __init__(self, tensor: Any) -> None:
            self._tensor = tensor

        def __dlpack__(self, **options: Any) -> Any:
            return self._tensor.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self._tensor.__dlpack_device__()

    x = np.random.default_rng(5).normal(size=(64, 33)).astype("f4")
    out = machine.empty((33, 64), "f32")
    kernel = pk.op("T[j,i] = X[i,j]").compile(pk.f32[64, 33], target=machine.target)
    kernel(Packed(machine.array(x)), out=out)
    kernel.sync()
    equal(machine, out, x.T)


@single("CUDA graph, one launch")
def graph_of_one(machine: Any) -> None:
    """Capture a kernel with a given output, and replay it beside calls on another stream."""
    _captured(machine, _AFFINE, lambda x: x * 2 + 1)


@single("CUDA graph, temporaries")
def graph_with_scratch(machine: Any) -> None:
    """Capture a kernel of several launches with memory between them."""
    _captured(machine, _SUM, lambda x: np.asarray((x * x).sum()))


def _captured(machine: Any, text: str, want: Callable[[np.ndarray], np.ndarray]) -> None:
    torch = _torch_on_gpu(machine)
    rng = np.random.default_rng(6)
    values = [rng.normal(size=_LONG) for _ in range(4)]
    kernel = pk.op(text).compile(pk.f32[_LONG], target=machine.target)
    given, other = (machine.array(values[0], "f32") for _ in range(2))
    out, beside = machine.like(kernel(given)), machine.like(kernel(other))
    kernel(given, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(given, out=out)
    stream = torch.cuda.Stream()
    for x in values[1:]:
        given.copy_(machine.array(x, "f32"))
        machine.poisoned(out)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(5):
                kernel(other, out=beside)
        graph.replay()
        with torch.cuda.stream(stream):
            for _ in range(5):
                kernel(other, out=beside)
        torch.cuda.synchronize()
        equal(machine, out, want(machine.numpy(given)), 1e-5)
        equal(machine, beside, want(machine.numpy(other)), 1e-5)
    kernel.sync()


@single("several GPUs")
def several_gpus(machine: Any) -> str:
    """Run on arrays of the second GPU: right, or refused by an error that says so."""
    torch = _torch_on_gpu(machine)
    skip_unless(torch.cuda.device_count() > 1, "there is one")
    x = torch.ones(1000, device="cuda:1")
    try:
        found = pk.op(_AFFINE)(x)
        torch.cuda.synchronize(1)
    except pk.PolykerError as error:
        return f"refused: {error.code}"
    equal(machine, found, np.full(1000, 3.0))
    return "used where the arrays lie"


def _torch_on_gpu(machine: Any) -> Any:
    if machine.kind != "cuda":
        raise Skip("needs a GPU and torch")
    return machine.torch
