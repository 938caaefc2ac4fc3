"""A call of kernels on a GPU: what lies on the host is copied over, the launches queued in order, results copied back.

A call with arrays of the host waits for its results. One whose arrays all lie on the device only queues its work. What its
guards find (a gathered index outside) the device then copies to the host by itself: the next call of the kernel that sees it,
or `Kernel.sync`, raises it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from math import prod
from typing import Any

from polyker.codegen.artifact import Artifact
from polyker.codegen.cuda_build import CudaCode, cubin
from polyker.codegen.host import evaluate
from polyker.codegen.kernel import Block, Buffer, For, If, Kernel, Launch, Space
from polyker.codegen.launch import arguments_of, shared_memory
from polyker.codegen.walk import statements
from polyker.process.jobs import run_exclusively
from polyker.runtime.cuda_driver import Driver, driver
from polyker.runtime.gpu_memory import FLAG, memory_of

# The stream of the running call.
stream_of_call: ContextVar[int] = ContextVar("polyker_stream", default=0)


def gpu_function(artifact: Artifact, bounds: tuple[tuple[int, int], ...]) -> GpuCall:
    """Return what runs an artifact's kernels on this machine's GPU, its text compiled at the first use.

    Raises BackendUnavailable without a driver, or without nvcc and NVRTC.
    """
    code = artifact.code
    assert isinstance(code, CudaCode)

    def load() -> None:
        if code.loaded is None:
            device, launches = driver(), [s for s in statements(artifact.kernel.body) if isinstance(s, Launch)]
            handles = device.load(cubin(code.text, code.target)[0], [s.name for s in launches])
            functions = {s.name: _function(artifact.kernel, s, handles[s.name]) for s in launches}
            code.loaded = Loaded(device, functions, any(f.fails for f in functions.values()))

    run_exclusively(load)
    assert code.loaded is not None
    return GpuCall(artifact.kernel, code.loaded, bounds)


def _function(kernel: Kernel, launch: Launch, handle: Any) -> _Function:
    buffers, numbers, fails = arguments_of(kernel, launch)
    return _Function(handle, tuple(b.name for b in buffers), numbers, fails, shared_memory(launch).asked)


@dataclass(frozen=True, slots=True)
class _Function:
    """A kernel on the device, and what it is launched with: arrays, integers, whether where failures go, and the bytes of
    shared memory that it asks for."""

    handle: Any
    buffers: tuple[str, ...]
    numbers: tuple[str, ...]
    fails: bool
    shared: int


class Loaded:
    """The kernels of an artifact on the device; the streams with work that nobody has waited for, and what guards have found."""

    def __init__(self, device: Driver, functions: Mapping[str, _Function], guarded: bool) -> None:
        self.driver, self.functions, self.memory = device, functions, memory_of(device)
        self._guarded, self._flag = guarded, (0, 0)
        self._lock, self._streams = threading.Lock(), dict[int, None]()

    def flag(self, stream: int) -> int:
        """Return the address, on the device, to which guards write."""
        with self._lock:
            if self._guarded and not self._flag[0]:
                self._flag = self.memory.flag(stream)
            return self._flag[0]

    def queued(self, stream: int) -> None:
        """Note that work was queued on a stream, after which the device is to tell what its guards found."""
        if self._guarded:
            self.driver.copy_out(self._flag[1], self._flag[0], FLAG, stream)
        with self._lock:
            self._streams[stream] = None

    def seen(self) -> bool:
        """Return whether a guard is known not to have held, without waiting."""
        return bool(self._flag[1]) and ctypes.c_int32.from_address(self._flag[1]).value != 0

    def sync(self) -> int:
        """Wait for all that was queued; return 0, or the code of a guard that did not hold since the last time."""
        with self._lock:
            streams, self._streams = list(self._streams), {}
        for stream in streams:
            self.driver.synchronize(stream, ", ".join(self.functions))
        with self._lock:  # one caller finds it
            if not self.seen():
                return 0
            found = ctypes.c_int32.from_address(self._flag[1])
            code, found.value = found.value, 0
        self.driver.clear(self._flag[0], FLAG, 0)
        self.driver.synchronize(0, "")
        return code


@dataclass(slots=True)
class GpuCall:
    """Runs a kernel's launches; called as a kernel on the CPU is: addresses of the arrays, then the integers.

    `bounds`: bytes around the pointer that each argument covers.
    """

    kernel: Kernel
    loaded: Loaded
    bounds: tuple[tuple[int, int], ...]

    def __call__(self, pointers: Sequence[int | None], integers: Sequence[int]) -> int:
        """Run on arrays of the host; return the status of the kernels: 0, or the code of a guard that did not hold."""
        return self.on_device(pointers, integers, ())

    def on_device(self, pointers: Sequence[int | None], integers: Sequence[int], resident: Sequence[bool]) -> int:
        """Run on arrays of which the `resident` ones (in the order of the arguments) lie on the device; return the status.

        Where no result is copied back it does not wait. The status may be an earlier call's: then nothing is run.
        """
        loaded, stream = self.loaded, stream_of_call.get()
        if loaded.seen():
            return loaded.sync()
        device, env = loaded.driver, dict(zip(self.kernel.integers, integers, strict=False))
        places: dict[str, int] = {}
        taken: list[tuple[int, int]] = []
        copies: list[tuple[int, int, int]] = []
        moved: list[tuple[int, int, int]] = []
        try:
            for n, buffer in enumerate(self.kernel.buffers):
                low, high = self.bounds[n] if buffer.space is Space.ARGUMENT else (0, _bytes(buffer, env))
                if buffer.space is Space.ARGUMENT and n < len(resident) and resident[n]:
                    place = places[buffer.name] = pointers[n] or 0
                    if buffer.alignment and place % buffer.alignment:  # it is dense; the kernel gets a copy
                        memory = places[buffer.name] = loaded.memory.take(high, stream)
                        taken.append((memory, high))
                        device.copy_device(memory, place, high, stream)
                        moved += [(place, memory, high)] * buffer.writable
                    continue
                size = max(1, high - low)
                memory = loaded.memory.take(size, stream)
                taken.append((memory, size))
                places[buffer.name] = memory - low
                if buffer.space is Space.ARGUMENT and high > low:
                    host = (pointers[n] or 0) + low
                    # What lies between the elements of an output is copied, too, and comes back as it was.
                    device.copy_in(memory, host, high - low, stream)
                    copies += [(host, memory, high - low)] * buffer.writable
            self._run(self.kernel.body, env, places, loaded.flag(stream), stream)
            for place, memory, size in moved:
                device.copy_device(place, memory, size, stream)
            for host, memory, size in copies:
                device.copy_out(host, memory, size, stream)
            loaded.queued(stream)
            return loaded.sync() if copies or not resident else 0
        finally:
            for memory, size in taken:
                loaded.memory.give(memory, size, stream)

    def _run(self, block: Block, env: dict[str, int], places: Mapping[str, int], failed: int, stream: int) -> None:
        for stmt in block:
            match stmt:
                case Launch(name=name, grid=(x, y, z)):
                    function = self.loaded.functions[name]
                    values: list[Any] = [ctypes.c_void_p(places[b]) for b in function.buffers]
                    values += [ctypes.c_int64(env[n]) for n in function.numbers]
                    values += [ctypes.c_void_p(failed)] if function.fails else []
                    grid = evaluate(x, env), evaluate(y, env), evaluate(z, env)
                    self.loaded.driver.launch(function.handle, name, grid, stmt.block, values, stream, function.shared)
                case For(var=var, lo=lo, hi=hi, step=step, body=body):
                    for value in range(evaluate(lo, env), evaluate(hi, env), step):
                        self._run(body, {**env, var: value}, places, failed, stream)
                case If(condition=condition, body=body, orelse=orelse):
                    self._run(body if evaluate(condition, env) else orelse, env, places, failed, stream)
                case _:
                    raise AssertionError("only loops and launches run on the host")


def _bytes(buffer: Buffer, env: Mapping[str, int]) -> int:
    return prod(max(0, evaluate(size, env)) for size in buffer.shape) * buffer.dtype.itemsize
