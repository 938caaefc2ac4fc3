"""A call of kernels on a GPU with arrays of the host: copied over, the launches in order, results copied back."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from polyker.codegen.artifact import Artifact
from polyker.codegen.cuda_build import CudaCode, cubin
from polyker.codegen.host import evaluate
from polyker.codegen.kernel import Block, For, Guard, If, Kernel, Launch, Space
from polyker.codegen.launch import arguments_of
from polyker.codegen.walk import statements
from polyker.runtime.cuda_driver import Driver, driver

FAILED = 4  # bytes of the status


def gpu_function(artifact: Artifact, bounds: tuple[tuple[int, int], ...]) -> GpuCall:
    """Return what runs an artifact's kernels on this machine's GPU, its text compiled by nvcc at the first use.

    Raises BackendUnavailable without a driver or nvcc.
    """
    code, device = artifact.code, driver()
    assert isinstance(code, CudaCode)
    if code.functions is None:
        names = [s.name for s in statements(artifact.kernel.body) if isinstance(s, Launch)]
        code.functions = device.load(cubin(code.text, code.target)[0], names)
    return GpuCall(artifact.kernel, code.functions, device, bounds)


@dataclass(slots=True)
class GpuCall:
    """Runs a kernel's launches; called as a kernel on the CPU is: addresses of the arrays, then the integers.

    `bounds`: bytes around the pointer that each argument covers. `functions`: the device's kernels by name.
    """

    kernel: Kernel
    functions: Mapping[str, Any]
    driver: Driver
    bounds: tuple[tuple[int, int], ...]

    def __call__(self, pointers: Sequence[int | None], integers: Sequence[int]) -> int:
        """Run on arrays of the host; return the status of the kernels: 0, or the code of a guard that did not hold."""
        return self.on_device(pointers, integers, ())

    def on_device(self, pointers: Sequence[int | None], integers: Sequence[int], resident: Sequence[bool]) -> int:
        """Run on arrays of which the `resident` ones (in the order of the arguments) lie on the device; return the status."""
        device, env = self.driver, dict(zip(self.kernel.integers, integers, strict=False))
        places: dict[str, int] = {}
        taken: list[int] = []
        copies: list[tuple[int, int, int]] = []
        try:
            # Without guards there is nothing to wait for.
            guarded = any(isinstance(s, Guard) for s in statements(self.kernel.body))
            failed = device.allocate(FAILED) if guarded else 0
            if guarded:
                taken.append(failed)
                device.clear(failed, FAILED)
            for n, buffer in enumerate(self.kernel.buffers):
                if buffer.space is Space.ARGUMENT and n < len(resident) and resident[n]:
                    places[buffer.name] = pointers[n] or 0
                    continue
                if buffer.space is Space.ARGUMENT:
                    low, high = self.bounds[n]
                    memory = device.allocate(max(1, high - low))
                    host = (pointers[n] or 0) + low
                    # What lies between the elements of an output is copied, too, and comes back as it was.
                    if high > low:
                        device.copy_in(memory, host, high - low)
                        copies += [(host, memory, high - low)] * buffer.writable
                    places[buffer.name] = memory - low
                else:
                    size = prod(max(0, evaluate(s, env)) for s in buffer.shape) * buffer.dtype.itemsize
                    memory = places[buffer.name] = device.allocate(max(1, size))
                taken.append(memory)
            self._run(self.kernel.body, env, places, failed)
            status = ctypes.c_int32()
            if guarded:
                device.copy_out(ctypes.addressof(status), failed, FAILED)
            for host, memory, size in copies:
                device.copy_out(host, memory, size)
            return status.value
        finally:
            for memory in taken:
                device.free(memory)

    def _run(self, block: Block, env: dict[str, int], places: Mapping[str, int], failed: int) -> None:
        for stmt in block:
            match stmt:
                case Launch(name=name, grid=(x, y, z)):
                    buffers, numbers, fails = arguments_of(self.kernel, stmt)
                    values: list[Any] = [ctypes.c_void_p(places[b.name]) for b in buffers]
                    values += [ctypes.c_int64(env[n]) for n in numbers]
                    values += [ctypes.c_void_p(failed)] if fails else []
                    grid = evaluate(x, env), evaluate(y, env), evaluate(z, env)
                    self.driver.launch(self.functions[name], name, grid, stmt.block, values)
                case For(var=var, lo=lo, hi=hi, step=step, body=body):
                    for value in range(evaluate(lo, env), evaluate(hi, env), step):
                        self._run(body, {**env, var: value}, places, failed)
                case If(condition=condition, body=body, orelse=orelse):
                    self._run(body if evaluate(condition, env) else orelse, env, places, failed)
                case _:
                    raise AssertionError("only loops and launches run on the host")
