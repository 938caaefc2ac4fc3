"""The GPU that is measured, with its clock and its two roofs; and a stand-in of the same interface for machines without one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_FLUSH = 1 << 28  # cells of f32 that are written between two runs: more than any L2, and time for the host to run ahead
_COPY = 1 << 28
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


@dataclass(frozen=True, slots=True)
class Timed:
    """Median seconds of a run on the device, and those that the host is busy with it."""

    device: float
    host: float


class Cuda:
    """This machine's GPU, through torch."""

    def __init__(self, torch: Any, target: Any) -> None:
        self.torch, self._target = torch, target
        self.name, self.target = torch.cuda.get_device_name(), target.name
        self.l2: int = torch.cuda.get_device_properties(0).L2_cache_size
        self._flush = torch.empty(_FLUSH, device="cuda")

    def random(self, shape: tuple[int, ...]) -> Any:
        """Return normally distributed numbers."""
        return self.torch.randn(shape, device="cuda")

    def rows(self, shape: tuple[int, ...], bound: int) -> Any:
        """Return numbers of rows of a table."""
        return self.torch.randint(0, bound, shape, device="cuda")

    def empty(self, shape: tuple[int, ...]) -> Any:
        """Return an array for a result."""
        return self.torch.empty(shape, device="cuda")

    def timed(self, work: Callable[[int], Any], rounds: int) -> Timed:
        """Return the median times of `work`, which is told the number of the run, to rotate its buffers."""
        torch = self.torch
        for n in range(3):
            work(n)
        torch.cuda.synchronize()
        events, host = [], []
        for n in range(rounds):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._flush.zero_()
            begin.record()
            start = time.perf_counter()
            work(n)
            host.append(time.perf_counter() - start)
            end.record()
            events.append((begin, end))
            if n % 8 == 7:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        return Timed(statistics.median(b.elapsed_time(e) for b, e in events) / 1e3, statistics.median(host))

    def copy_rate(self, rounds: int) -> float:
        """Return the bytes a second that a copy of 1 GiB reads and writes."""
        source, sink = (self.torch.empty(_COPY, device="cuda") for _ in range(2))
        return 2 * 4 * _COPY / self.timed(lambda _: sink.copy_(source), rounds).device

    def fma_rate(self, rounds: int) -> float:
        """Return the operations a second of multiply-adds between registers."""
        import ctypes

        from polyker.codegen.cuda_build import cubin
        from polyker.runtime.cuda_driver import driver

        cuda, blocks = driver(), 32 * self._target.gpu.processors
        kernel = cuda.load(cubin(FMA_TEXT, self._target)[0], ["fma_rate"])["fma_rate"]
        arguments = [ctypes.c_void_p(self._flush.data_ptr()), ctypes.c_int32(_TURNS)]
        stream = self.torch.cuda.current_stream().cuda_stream

        def work(_: int) -> None:
            cuda.launch(kernel, "fma_rate", (blocks, 1, 1), (256, 1, 1), arguments, stream)

        return 2.0 * _SUMS * _TURNS * 256 * blocks / self.timed(work, rounds).device


class DryRun:
    """The simulator in the place of a GPU: that everything runs and is right can be seen, its times say nothing."""

    name, target, l2 = "no GPU: a dry run on the simulator, whose times say nothing", "cuda-sim", 1 << 12

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def random(self, shape: tuple[int, ...]) -> Any:
        """Return normally distributed numbers."""
        return self.torch.randn(shape)

    def rows(self, shape: tuple[int, ...], bound: int) -> Any:
        """Return numbers of rows of a table."""
        return self.torch.randint(0, bound, shape)

    def empty(self, shape: tuple[int, ...]) -> Any:
        """Return an array for a result."""
        return self.torch.empty(shape)

    def timed(self, work: Callable[[int], Any], rounds: int) -> Timed:
        """Return the median time of `work` on the host."""
        spans = []
        for n in range(rounds):
            start = time.perf_counter()
            work(n)
            spans.append(time.perf_counter() - start)
        return Timed(statistics.median(spans), statistics.median(spans))

    def copy_rate(self, _: int) -> float:
        """Return infinity: there is no roof to be compared with."""
        return float("inf")

    fma_rate = copy_rate
