"""What is measured: this machine's GPU through torch; the simulator in its place (a dry run); or a bare driver, without torch.

One interface for all. All that is known of polyker's run time beyond its public calls stands here.
"""

from __future__ import annotations

import ctypes
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from benchmarks.gpu import libcuda

KINDS = ("cuda", "dry", "stub")
NAMES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32", "i8": "int8",
}  # fmt: skip
_SHORT = {name: short for short, name in NAMES.items()}
_FLUSH = (
    1 << 28
)  # elements of f32 that are written between two runs: more than any L2, and time for the host to run ahead
_COPY = 1 << 28
_SIDE = 8192  # of matrices
# As many independent sums as hide the latency of a multiply-add.
_SUMS, _TURNS = 16, 20000
FMA_TEXT = f"""
extern "C" __global__ void __launch_bounds__(256) fma_rate(float *out, int turns) {{
  float x[{_SUMS}], a = 1.0f + 1e-7f * threadIdx.x;
  for (int i = 0; i < {_SUMS}; i++) x[i] = i;
#pragma unroll 16
  for (int t = 0; t < turns; t++)
#pragma unroll
    for (int i = 0; i < {_SUMS}; i++) x[i] = fmaf(x[i], a, 0.5f);
  float sum = 0;
  for (int i = 0; i < {_SUMS}; i++) sum += x[i];
  if (sum == 1.25f) out[0] = sum;
}}
"""


class Unavailable(RuntimeError):
    """What is to be measured is not there."""


class Skip(Exception):
    """A test that says nothing on this machine."""


class Timed(Struct, frozen=True):
    """Median seconds of a run on the device, and those that the host is busy with it."""

    device: float
    host: float


def gpu_of(target: str) -> Any:
    """Return the GPU that a target's name stands for, with the name that it is compiled for."""
    from polyker.api.targets import target_named

    found = target_named(target)
    return found.gpu, found.name


def compiler_versions() -> dict[str, str]:
    """Return what compiles CUDA text here, and its versions."""
    found = {"nvcc": "not found", "NVRTC": "not found"}
    path = shutil.which("nvcc")
    if path is not None:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
        found["nvcc"] = next((x.split("release ")[1] for x in done.stdout.splitlines() if "release " in x), "?")
    try:
        from polyker.codegen.cuda import nvrtc

        if nvrtc.library() is not None:
            found["NVRTC"] = str(nvrtc.version()).removeprefix("nvrtc ")
    except Exception as error:  # a broken library is a fact of this machine
        found["NVRTC"] = f"{type(error).__name__}: {error}"
    return found


def compile_now(kernel: Any, target: str) -> None:
    """Let a kernel's machine code be made and kept on disk."""
    if target == "cuda-sim":
        kernel.source("cuda")
    else:
        kernel.cubin()


class _WithTorch:
    """Arrays of torch."""

    computes = True
    device: str

    @cached_property
    def torch(self) -> Any:
        """The library, imported when it is needed."""
        try:
            import torch
        except ImportError as error:
            raise Unavailable(str(error)) from error
        return torch

    def _kind(self, dtype: str) -> Any:
        return getattr(self.torch, NAMES[dtype])

    def random(self, shape: tuple[int, ...], dtype: str = "f32") -> Any:
        """Return normally distributed numbers."""
        return self.torch.randn(shape, device=self.device, dtype=self._kind(dtype))

    def indices(self, shape: tuple[int, ...], bound: int) -> Any:
        """Return indices below a bound."""
        return self.torch.randint(0, bound, shape, device=self.device)

    def array(self, values: np.ndarray, dtype: str = "") -> Any:
        """Return a copy on the device, rounded to an element type if one is given."""
        found = self.torch.from_numpy(np.array(values))
        return (found.to(self._kind(dtype)) if dtype else found).to(self.device)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array for a result, every element of which is a sign that nothing was stored: not a number, or the least."""
        return self.poisoned(self.torch.empty(shape, dtype=self._kind(dtype), device=self.device))

    def like(self, array: Any) -> Any:
        """Return such an array of another one's shape and type."""
        return self.poisoned(self.torch.empty_like(array))

    def poisoned(self, array: Any) -> Any:
        """Fill an array with what no result is."""
        return array.fill_(float("nan") if array.is_floating_point() else self.torch.iinfo(array.dtype).min)

    def dtype(self, array: Any) -> str:
        """Return the short name of an array's element type."""
        return _SHORT[str(array.dtype).removeprefix("torch.")]

    def numpy(self, array: Any) -> np.ndarray:
        """Return a copy on the host, in f64 unless it has integers."""
        found = array.detach().cpu()
        return (found.double() if found.is_floating_point() else found).numpy()


class Cuda(_WithTorch):
    """This machine's GPU, through torch."""

    kind, device, target = "cuda", "cuda", "cuda"

    def __init__(self) -> None:
        torch = self.torch
        if not torch.cuda.is_available():
            raise Unavailable("torch finds no CUDA device")
        self.gpu, self.compiled_for = gpu_of("cuda")
        self.name = torch.cuda.get_device_name()
        self.l2: int = torch.cuda.get_device_properties(0).L2_cache_size
        self.tf32(allowed=False)
        torch.zeros(1, device=self.device)
        self._flush: Any = None

    def tf32(self, *, allowed: bool) -> None:
        """Let torch round the operands of products of f32, or not."""
        self.torch.backends.cuda.matmul.allow_tf32 = self.torch.backends.cudnn.allow_tf32 = allowed

    def sync(self) -> None:
        """Wait for all that was queued; raises what went wrong."""
        self.torch.cuda.synchronize()

    def forget(self) -> None:
        """Give torch's unused memory back."""
        self.torch.cuda.empty_cache()

    def timed(self, works: Mapping[str, Callable[[int], Any]], rounds: int, seconds: float = 6.0) -> dict[str, Timed]:
        """Return the median times of contestants that take turns, each told the number of the run, to rotate its buffers.

        Fewer rounds, three at least, where all would take more than so many seconds.
        """
        torch, spent = self.torch, 0.0
        if self._flush is None:
            self._flush = torch.empty(_FLUSH, device=self.device)
        for work in works.values():
            for n in range(3):
                start = time.perf_counter()
                work(n)
                torch.cuda.synchronize()
                last = time.perf_counter() - start
                if last > 0.2:
                    break
            spent += last
        rounds = min(rounds, max(3, int(seconds / spent))) if spent else rounds
        events: dict[str, list[Any]] = {name: [] for name in works}
        host: dict[str, list[float]] = {name: [] for name in works}
        for n in range(rounds):
            for name, work in works.items():
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                self._flush.zero_()
                begin.record()
                start = time.perf_counter()
                work(n)
                host[name].append(time.perf_counter() - start)
                end.record()
                events[name].append((begin, end))
            if n % 4 == 3:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        return {
            name: Timed(statistics.median(b.elapsed_time(e) for b, e in events[name]) / 1e3, statistics.median(host[name]))
            for name in works
        }  # fmt: skip

    def copy_rate(self, rounds: int) -> float:
        """Return the bytes a second that a copy of 1 GiB reads and writes."""
        source, sink = (self.torch.empty(_COPY, device=self.device) for _ in range(2))
        return 2 * 4 * _COPY / self.timed({"copy": lambda _: sink.copy_(source)}, rounds)["copy"].device

    def fma_rate(self, rounds: int) -> float:
        """Return the operations a second of multiply-adds between registers."""
        blocks, out = 32 * self.gpu.processors, self.torch.empty(1, device=self.device)
        launch = self._fma(out, blocks)
        return 2.0 * _SUMS * _TURNS * 256 * blocks / self.timed({"fma": lambda _: launch()}, rounds)["fma"].device

    def _fma(self, out: Any, blocks: int) -> Callable[[], Any]:
        """Return what launches the multiply-adds: by torch where it can compile a kernel, else by the driver."""
        try:
            kernel = self.torch.cuda._compile_kernel(FMA_TEXT, "fma_rate")
            kernel(grid=(blocks, 1, 1), block=(256, 1, 1), args=[out, 1])
            return lambda: kernel(grid=(blocks, 1, 1), block=(256, 1, 1), args=[out, _TURNS])
        except Exception:  # an earlier torch, or one whose compiler does not know the device
            return _bare_fma(self.target, out.data_ptr(), blocks)

    def matmul_rate(self, dtype: str, rounds: int) -> float:
        """Return the operations a second of torch's product of 8192^3; tf32 is f32 whose operands torch may round."""
        n = _SIDE
        self.tf32(allowed=dtype == "tf32")
        try:
            a, b = (self.random((n, n), "f32" if dtype == "tf32" else dtype) for _ in range(2))
            return 2.0 * n**3 / self.timed({"product": lambda _: a @ b}, rounds)["product"].device
        finally:
            self.tf32(allowed=False)


def _bare_fma(target: str, out: int, blocks: int) -> Callable[[], Any]:
    """Return what launches the multiply-adds by the driver alone."""
    from polyker.api.targets import target_named
    from polyker.codegen.cuda.build import cubin

    cuda = libcuda.library()
    kernel = cuda.function(cubin(FMA_TEXT, target_named(target))[0], "fma_rate")
    return lambda: cuda.launch(kernel, blocks, 256, [ctypes.c_void_p(out), ctypes.c_int32(_TURNS)])


class _WithoutRoofs:
    """Times by the host's clock, and no rates to compare them with."""

    def sync(self) -> None:
        """Do nothing: every call waits."""

    def forget(self) -> None:
        """Do nothing."""

    def tf32(self, *, allowed: bool) -> None:
        """Do nothing."""

    def timed(self, works: Mapping[str, Callable[[int], Any]], rounds: int, seconds: float = 6.0) -> dict[str, Timed]:
        """Return the median times of the contestants on the host."""
        spans: dict[str, list[float]] = {name: [] for name in works}
        for n in range(rounds):
            for name, work in works.items():
                start = time.perf_counter()
                work(n)
                spans[name].append(time.perf_counter() - start)
        return {name: Timed(statistics.median(found), statistics.median(found)) for name, found in spans.items()}

    def copy_rate(self, rounds: int) -> float | None:
        """Return None: there is no roof to be compared with."""
        return None

    fma_rate = copy_rate

    def matmul_rate(self, dtype: str, rounds: int) -> float | None:
        """Return None."""
        return None


class DryRun(_WithoutRoofs, _WithTorch):
    """The simulator in the place of a GPU: that everything runs and is right can be seen, its times say nothing."""

    kind, device, target, l2 = "dry", "cpu", "cuda-sim", 1 << 12
    name = "no GPU: a dry run on the simulator, whose times say nothing"

    def __init__(self) -> None:
        assert self.torch is not None  # imported before there is a task with a limit
        self.gpu, self.compiled_for = gpu_of("cuda-sim")


class Stub(_WithoutRoofs):
    """A driver without torch, perhaps one that computes nothing: what is called can be seen, results are not compared."""

    kind, target, l2, computes, torch = "stub", "cuda", 1 << 20, False, None

    def __init__(self) -> None:
        try:
            self.name = libcuda.library().name()
            self.gpu, self.compiled_for = gpu_of("cuda")
        except (OSError, RuntimeError) as error:
            raise Unavailable(str(error)) from error

    def random(self, shape: tuple[int, ...], dtype: str = "f32") -> Any:
        """Return an array with nothing in it."""
        return self.empty(shape, dtype)

    def indices(self, shape: tuple[int, ...], bound: int) -> Any:
        """Return an array of indices; zeros where there are few of them."""
        return self.array(np.zeros(shape, "i8")) if prod(shape) < 1 << 20 else self.empty(shape, "i64")

    def array(self, values: np.ndarray, dtype: str = "") -> Any:
        """Return a copy on the device."""
        return libcuda.array(values.astype(_numpy(dtype)) if dtype else values)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array on the device."""
        return libcuda.empty(shape, _numpy(dtype))

    def like(self, array: Any) -> Any:
        """Return an array of another one's shape and type."""
        return libcuda.empty(array.shape, array.dtype)

    def poisoned(self, array: Any) -> Any:
        """Return the array as it is."""
        return array

    def dtype(self, array: Any) -> str:
        """Return the short name of an array's element type."""
        return _SHORT[str(array.dtype)]

    def numpy(self, array: Any) -> np.ndarray:
        """Return a copy on the host."""
        return array.numpy()

    def fma_rate(self, rounds: int) -> None:
        """Launch what would be measured."""
        _bare_fma(self.target, self.empty((1,), "f32").__cuda_array_interface__["data"][0], self.gpu.processors)()


def _numpy(dtype: str) -> str:
    if dtype == "bf16":
        raise Skip("NumPy's interface has no bf16")
    return NAMES[dtype]


def machine_of(kind: str) -> Cuda | DryRun | Stub | None:
    """Return what is measured, None for `none`; raises Unavailable where it is not there."""
    from polyker.errors.base import PolykerError

    if kind == "none":
        return None
    try:
        return {"cuda": Cuda, "dry": DryRun, "stub": Stub}[kind]()
    except PolykerError as error:
        raise Unavailable(str(error)) from error
