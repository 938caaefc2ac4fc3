"""What only a GPU can show: `pytest -m gpu` on a machine with one, nvcc or NVRTC, and for most of it torch."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import polyker as pk
from polyker.errors import GatherError
from polyker.runtime.cuda.driver import why_not
from tests.gpu.operators import CONTRACTIONS, OPERATORS, check

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(why_not()), reason=f"no CUDA device: {why_not()}")]

PRODUCT = "C[i,j] += A[i,k] * B[k,j]"
GATHER = "E[b] = T[idx[b]] + 0.5"
SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
# One text of each family, and shapes with partial blocks.
FAMILIES = {
    "product": (PRODUCT, [(123, 77), (77, 201)]),
    "batched product": ("C[b,i,j] += A[b,i,k] * B[b,k,j]", [(5, 33, 65), (5, 65, 70)]),
    "convolution": ("O[n,f,h,w] += X[n,c,h+r,w+s] * K[f,c,r,s]", [(2, 3, 27, 31), (5, 3, 3, 3)]),
    "row sums": ("s[i] += X[i,j]", [(77, 3001)]),
    "column sums": ("s[j] += X[i,j]", [(3001, 77)]),
    "sum": ("s += X[i] * X[i]", [(1_000_003,)]),
    "maxima": ("m[i] max= X[i,j]", [(5, 10007)]),
    "softmax": (SOFTMAX, [(131, 517)]),
    "transpose": ("T[j,i] = X[i,j]", [(301, 1027)]),
    "transpose of rank 4": ("T[d,c,b,a] = X[a,b,c,d]", [(5, 33, 7, 65)]),
    "elementwise": ("Z[i,j] = relu(X[i,j]) * 2 + Y[j]", [(301, 127), (127,)]),
    "recurrence": ("S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:60", [(300, 60)]),
    "stencil": ("Y[i,j] = X[i,j] - X[i-1,j; pad=0] + X[i,j+1; pad=edge]", [(130, 130)]),
}


def inputs_of(family, dtype="f4"):
    return [np.random.default_rng(n).normal(size=shape).astype(dtype) for n, shape in enumerate(FAMILIES[family][1])]


@pytest.fixture
def torch():
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_arrays_of_the_host_give_what_the_cpu_gives(family):
    operator, inputs = pk.op(FAMILIES[family][0]), inputs_of(family)
    want = operator(*(x.astype("f8") for x in inputs))
    scale = np.abs(want).max()
    for specialize in ("always", "never"):
        kernel = operator.compile(*inputs, target="cuda", specialize=specialize)
        np.testing.assert_allclose(kernel(*inputs), want, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("case", [*OPERATORS, *CONTRACTIONS], ids=lambda c: c.id)
def test_the_operator_gives_numpys_result(case):
    check(case, "cuda")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64", "int32"])
def test_tensors_of_torch_are_used_where_they_lie(torch, dtype):
    kind = getattr(torch, dtype)
    a = (torch.arange(40 * 30, device="cuda") % 7 - 3).reshape(40, 30).to(kind)[::2].T
    b = (torch.arange(25 * 20, device="cuda") % 5 - 2).reshape(25, 20).to(kind).T
    product = pk.op(PRODUCT)
    found = product(a, b)
    assert found.device == a.device and found.dtype == kind
    product.sync()
    want = a.cpu().to(torch.complex128 if "complex" in dtype else torch.float64)
    assert torch.equal(found.cpu().to(want.dtype), want @ b.cpu().to(want.dtype))
    out = torch.empty((30, 50), dtype=kind, device="cuda")[:, ::2]
    assert product(a, b, out=out) is out
    assert torch.equal(out, found)


def test_work_is_queued_behind_torchs_on_its_current_stream(torch):
    kernel = pk.op("Y[i] = X[i] * 2 + 1").compile(pk.f32[1 << 24], target="cuda")
    x = torch.zeros(1 << 24, device="cuda")
    kernel(x)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    results = []
    for n, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            filled = torch.full((1 << 24,), float(n), device="cuda")
            results.append(kernel(filled) + 0)
    for stream in streams:
        stream.synchronize()
    assert [float(r.min()) for r in results] == [float(r.max()) for r in results] == [1.0, 3.0, 5.0]


def test_a_stream_that_is_given_is_taken(torch):
    kernel = pk.op("Y[i] = X[i] * 2 + 1").compile(pk.f32[1 << 20], target="cuda")
    stream = torch.cuda.Stream()
    x = torch.ones(1 << 20, device="cuda")
    y = torch.zeros(1 << 20, device="cuda")
    kernel(x, out=y)  # which loads it
    y.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
    kernel(x, out=y, stream=stream)
    assert not stream.query()
    kernel.sync()
    assert stream.query() and bool((y == 3).all())


def test_temporaries_of_calls_on_several_streams_do_not_meet(torch):
    softmax = pk.op(SOFTMAX).compile(pk.f32[512, 1000], target="cuda")
    streams = [torch.cuda.Stream() for _ in range(4)]
    inputs = [torch.randn(512, 1000, device="cuda") for _ in range(16)]
    torch.cuda.synchronize()
    results = [softmax(x, stream=streams[n % 4]) for n, x in enumerate(inputs)]
    softmax.sync()
    for x, found in zip(inputs, results, strict=True):
        assert torch.allclose(found, torch.softmax(x, 1), rtol=1e-4, atol=1e-7)


def test_a_gathered_index_outside_is_raised_when_it_is_waited_for(torch):
    gather = pk.op(GATHER)
    table = torch.arange(4.0, device="cuda")
    good, bad = (torch.tensor(v, device="cuda") for v in ([3, 0, 1], [3, 4, 1]))
    gather(table, bad)
    with pytest.raises(GatherError):
        gather.sync()
    assert gather(table, good).tolist() == [3.5, 0.5, 1.5]
    gather.sync()
    kernel = gather.compile(pk.f32[4], pk.i64[3], target="cuda")
    kernel(table, bad)
    torch.cuda.synchronize()
    with pytest.raises(GatherError):
        kernel(table, good)
    assert kernel(table, good).tolist() == [3.5, 0.5, 1.5]


def test_arrays_by_dlpack_alone_are_used_where_they_lie(torch):
    class Packed:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    x = torch.randn(64, 33, device="cuda")
    out = torch.empty(33, 64, device="cuda")
    kernel = pk.op("T[j,i] = X[i,j]").compile(pk.f32[64, 33], target="cuda")
    kernel(Packed(x), out=out)
    kernel.sync()
    assert torch.equal(out, x.T)


def test_arrays_of_cupy_are_used_where_they_lie():
    cupy = pytest.importorskip("cupy")
    a, b = cupy.arange(12.0).reshape(3, 4), cupy.arange(20.0).reshape(4, 5)
    with cupy.cuda.Stream():
        found = pk.op(PRODUCT)(a, b)
        assert isinstance(found, cupy.ndarray) and bool((found == a @ b).all())


SUM = "s += X[i] * X[i]"  # two launches, with partial sums in memory between


def test_a_prepared_call_runs_on_what_its_arrays_hold_and_on_the_current_stream(torch):
    a, b, c = (torch.randn(40, 40, device="cuda") for _ in range(3))
    call = pk.op(PRODUCT).compile(a, b).prepare(a, b, out=c)
    for _ in range(3):
        a.normal_()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            assert call() is c
        stream.synchronize()
        assert torch.allclose(c, a @ b, atol=1e-4)
    made = pk.op(SUM).compile(a.reshape(-1)).prepare(a.reshape(-1))
    assert made() is made() and torch.allclose(made(), (a * a).sum(), rtol=1e-4)


def test_example_tensors_of_a_gpu_are_compiled_for_it(torch):
    a = torch.randn(30, 20, device="cuda")
    kernel = pk.op("Y[i,j] = 2 * X[i,j]").compile(a)
    assert kernel.target == "cuda" and torch.equal(kernel(a), 2 * a)


@pytest.mark.parametrize("text", [SUM, "s += x * X[i]"])
def test_a_captured_graph_may_be_replayed_beside_other_calls(torch, text):
    size, number = 1_000_003, ([3] if "x *" in text else [])
    x, y = (torch.randn(size, device="cuda") for _ in range(2))
    kernel = pk.op(text).compile(*([pk.f32[()]] if number else []), pk.f32[size], target="cuda")
    want = (lambda v: 3 * v.double().sum()) if number else (lambda v: (v.double() ** 2).sum())
    out, other = torch.zeros((), device="cuda"), torch.cuda.Stream()
    kernel(*number, x, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(*number, x, out=out)
    for _ in range(10):
        x.normal_()
        torch.cuda.synchronize()
        beside = [kernel(*number, y, stream=other) for _ in range(4)]
        graph.replay()
        torch.cuda.synchronize()
        assert abs(float(out) - float(want(x))) < 0.5
        assert all(abs(float(b) - float(want(y))) < 0.5 for b in beside)


def test_kernels_that_are_dropped_while_they_run_are_unloaded_later(torch):
    x = torch.zeros(1 << 26, device="cuda")
    results = []
    for n in range(20):
        kernel = pk.op(f"Y[i] = X[i] + {n}").compile(pk.f32[1 << 26], target="cuda")
        results.append(kernel(x)[::1000].clone())
        del kernel
        pk.clear_cache()
    torch.cuda.synchronize()
    assert [float(r.min()) for r in results] == [float(r.max()) for r in results] == [float(n) for n in range(20)]


@pytest.mark.parametrize("text", [SUM, GATHER])
def test_a_kernel_that_was_never_called_may_be_captured(torch, text):
    x, index = torch.randn(100_003, device="cuda"), torch.randint(0, 1000, (77,), device="cuda")
    inputs = (x, index) if text is GATHER else (x,)
    kernel = pk.op(text).compile(*inputs)
    out = torch.zeros((77,) if text is GATHER else (), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(*inputs, out=out)
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        want = x[index] + 0.5 if text is GATHER else (x.double() ** 2).sum().float()
        assert torch.allclose(out, want, rtol=1e-4)
    kernel.sync()


def test_kernels_may_be_loaded_and_dropped_while_a_graph_is_captured(torch):
    x, y = torch.ones(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    kernel = pk.op("Y[i] = X[i] * 2").compile(x)
    other, others = torch.cuda.Stream(), torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, out=y)
        for n in range(4):
            dropped = pk.op(f"Y[i] = X[i] + {n}.5").compile(x)
            dropped(x, out=others, stream=other.cuda_stream)
            del dropped
            pk.clear_cache()
    graph.replay()
    torch.cuda.synchronize()
    assert bool((y == 2).all()) and bool((others == 4.5).all())


FAULT = """
import numpy as np, torch, ctypes, polyker as pk
from polyker.codegen.cuda.build import cubin
from polyker.api.targets import target_named
from polyker.runtime.cuda.driver import driver
kernel = pk.op("Y[i] = X[i] * 2").compile(pk.f32[64], target="cuda")
x = torch.ones(64, device="cuda")
kernel(x); kernel.sync()
text = 'extern "C" __global__ void fault(int *p) { *p = 1; }'
function = driver().device(0).load(cubin(text, target_named("cuda"))[0], {"fault": 0}, "a test").functions["fault"]
places = (ctypes.c_void_p * 1)(ctypes.addressof(ctypes.c_int64(0)))
driver().device(0).launch(function, (1, 1, 1), (1, 1, 1), places, 0)
try: torch.cuda.synchronize()
except RuntimeError: pass
try: kernel(x)
except pk.errors.PolykerError as error: print(error.code, error)
"""


def test_after_an_error_that_stays_the_next_call_says_whose_it_was(torch):
    done = subprocess.run([sys.executable, "-c", FAULT], capture_output=True, text=True, timeout=120)
    assert "PK627" in done.stdout and "fault of a test" in done.stdout, done.stdout + done.stderr


PROGRAM = """
import sys, numpy as np, polyker as pk
from tests.gpu.test_on_gpu import FAMILIES, inputs_of
family = sys.argv[1]
inputs = inputs_of(family)
pk.op(FAMILIES[family][0]).compile(*inputs, target="cuda")(*inputs)
"""


@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
@pytest.mark.parametrize("family", FAMILIES)
def test_nvidias_sanitizers_find_nothing(family, tool):
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "66", sys.executable, "-c", PROGRAM, family]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
