"""A call of kernels on a GPU: what lies on the host is copied over, the launches queued in order, results copied back.

A call with arrays of the host waits for its results. One whose arrays all lie on the device only queues its work. What its
guards find (a gathered index outside) the kernels write to the host's memory: the next call that sees it, or `Kernel.sync`,
raises it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from itertools import accumulate
from typing import Any

from msgspec import Struct

from polyker.errors.base import PolykerError
from polyker.record.forms import value
from polyker.record.host_code import HostBranch, HostLoop, HostStep, LaunchRecord
from polyker.runtime.cuda.device import Device, DeviceFunction
from polyker.runtime.cuda.driver import driver
from polyker.runtime.cuda.loaded import Loaded, host_of, loaded_on
from polyker.runtime.executable import Executable


class CallPlace(Struct, frozen=True):
    """Where a call runs: the device of its arrays, None where they lie on the host; the stream; the device for the latter."""

    device: Device | None
    stream: int
    home: Device | None = None


_NOWHERE = CallPlace(None, 0)
place_of_call: ContextVar[CallPlace] = ContextVar("polyker_place", default=_NOWHERE)  # of the running call

_ALIGNMENT_BYTES = 512  # of the parts of a call's memory: twice what cuMemAlloc aligns to
_MAX_NUMBER_BYTES = 16  # of a c128
# Launches of a call that are made ready once (chosen); of longer loops each is made ready as it comes.
_MAX_PREPARED_LAUNCHES = 4096


class PreparedLaunch:
    """A launch that is ready but for the addresses of its arrays."""

    __slots__ = ("_block", "_buffers", "_count", "_fixed", "_function", "_grid", "_spare")

    def __init__(
        self,
        function: DeviceFunction,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        buffers: tuple[int, ...],
        fixed: tuple[int, ...],
    ) -> None:
        self._function, self._grid, self._block, self._buffers, self._fixed = function, grid, block, buffers, fixed
        self._count = len(buffers)
        self._spare: list[tuple[Any, Any]] = []  # a call of another thread at the same time takes others

    def _arguments(self) -> tuple[Any, Any]:
        """Return the arguments, all of 8 bytes, and pointers to them."""
        values = (ctypes.c_int64 * (self._count + len(self._fixed)))(*(0,) * self._count, *self._fixed)
        start = ctypes.addressof(values)
        return values, (ctypes.c_void_p * max(1, len(values)))(*range(start, start + 8 * len(values), 8))

    def launch(self, device: Device, addresses: Sequence[int], stream: int) -> None:
        """Queue it; `addresses`: of all arrays of the kernel."""
        try:
            values, places = arguments = self._spare.pop()
        except IndexError:
            values, places = arguments = self._arguments()
        for n, buffer in enumerate(self._buffers):
            values[n] = addresses[buffer]
        device.launch(self._function, self._grid, self._block, places, stream)
        self._spare.append(arguments)


class _Copy(Struct, frozen=True):
    """An argument that the kernel gets a copy of: its number, its address, and the bytes from `low` beside it on."""

    number: int
    address: int
    low: int
    size: int
    on_host: bool

    def bring(self, device: Device, place: int, stream: int, *, capturing: bool) -> None:
        """Copy it to a place on the device."""
        source = self.address + self.low
        if not self.size:
            return
        if not self.on_host:
            device.copy_device(place, source, self.size, stream)
        elif capturing and self.size <= _MAX_NUMBER_BYTES:  # the graph keeps its value, not its address
            device.write(place, ctypes.string_at(source, self.size), stream)
        else:
            device.copy_in(place, source, self.size, stream)

    def take_back(self, device: Device, place: int, stream: int) -> None:
        """Copy what the kernel has written to where the argument lies."""
        if self.size:
            (device.copy_out if self.on_host else device.copy_device)(self.address + self.low, place, self.size, stream)


class GpuCall:
    """Runs a kernel's launches; called as a kernel on the CPU is: addresses of the arrays, then the integers.

    `bounds`: bytes around the pointer that each argument covers. `fresh`: whether the kernel writes all of these bytes, and
    reads none that it has not written.
    """

    def __init__(
        self,
        executable: Executable,
        bounds: tuple[tuple[int, int], ...],
        fresh: tuple[bool, ...],
        integers: Sequence[int],
    ) -> None:
        self._executable, self._bounds, self._fresh = executable, bounds, fresh
        self._host = host_of(executable.record)
        self._env = dict(zip(self._host.integers, integers, strict=False))
        buffers = self._host.buffers
        self._arguments = tuple(b for b in buffers if b.is_argument)
        self._aligned = tuple((n, b.alignment) for n, b in enumerate(self._arguments) if b.alignment > 1)
        self._offsets, self._total = _laid_out([value(b.size, self._env) for b in buffers[len(self._arguments) :]])
        self._ready: dict[Device, tuple[Loaded, tuple[PreparedLaunch, ...] | None]] = {}

    def __call__(self, pointers: Sequence[int | None], integers: Sequence[int]) -> int:
        """Run on arrays of the host; return the status of the kernels: 0, or the code of a guard that did not hold."""
        place, here = place_of_call.get(), (False,) * len(self._arguments)
        device = place.device or place.home or driver().device()
        return self.on_device(device, place.stream, [p or 0 for p in pointers], here)

    def on_device(
        self, device: Device, stream: int, pointers: Sequence[int], resident: Sequence[bool] | None = None
    ) -> int:
        """Run on arrays of which the `resident` ones (None: all) lie on the device; return the status.

        Where no result is copied back it does not wait. The status may be an earlier call's: then nothing is run.
        """
        ready = self._ready.get(device)
        loaded, steps = self._made_ready(device) if ready is None else ready
        waits = resident is not None and self._waits(resident)
        capturing, entered = False, device.enter()
        try:
            capturing = device.is_capturing(stream)
            if loaded.found() and (status := loaded.taken() if capturing else loaded.sync()):
                return status  # which no other thread has raised meanwhile
            self._queue(loaded, steps, stream, pointers, resident, capturing=capturing)
        finally:
            # After the launches: whoever waits from now on waits for them. To wait for a captured stream spoils its graph.
            if waits or not capturing:
                loaded.queued(stream)
            if entered:
                device.leave()
        return loaded.sync() if waits else 0

    def _queue(
        self,
        loaded: Loaded,
        ready: tuple[PreparedLaunch, ...] | None,
        stream: int,
        pointers: Sequence[int],
        resident: Sequence[bool] | None,
        *,
        capturing: bool,
    ) -> None:
        """Queue the launches, and the copies around them, in the context that is entered."""
        device = loaded.device
        if capturing:
            loaded.keep()
        steps = self._steps(loaded, self._host.body, self._env) if ready is None else ready
        if self._has_others(pointers, resident):
            self._with_copies(device, steps, stream, pointers, resident, capturing=capturing)
        elif not self._total:
            for step in steps:
                step.launch(device, pointers, stream)
        else:
            memory = device.allocate(self._total, stream)
            try:
                addresses = [*pointers, *[memory + offset for offset in self._offsets]]
                for step in steps:
                    step.launch(device, addresses, stream)
            except BaseException:
                with suppress(PolykerError):  # the first error is the one to tell
                    device.free(memory, stream)
                raise
            device.free(memory, stream)

    def _waits(self, resident: Sequence[bool]) -> bool:
        """Return whether results are copied back, or nothing is left on the device that tells when they are there."""
        back = any(b.is_writable and not there for b, there in zip(self._arguments, resident, strict=True))
        return back or not any(resident)

    def _has_others(self, pointers: Sequence[int], resident: Sequence[bool] | None) -> bool:
        """Return whether an array lies on the host, or at an address that the kernel cannot use."""
        if resident is not None and not all(resident):
            return True
        return any(pointers[n] % size for n, size in self._aligned)

    def _with_copies(
        self,
        device: Device,
        steps: Iterable[PreparedLaunch],
        stream: int,
        pointers: Sequence[int],
        resident: Sequence[bool] | None,
        *,
        capturing: bool,
    ) -> None:
        """Run with copies of arrays of the host, and of those that lie at odd addresses."""
        copies: list[_Copy] = []
        for n, buffer in enumerate(self._arguments):
            low, high = self._bounds[n]
            if resident is not None and not resident[n]:
                copies.append(_Copy(n, pointers[n], low, high - low, on_host=True))
            elif buffer.alignment > 1 and pointers[n] % buffer.alignment:  # it is dense
                copies.append(_Copy(n, pointers[n], 0, high, on_host=False))
        offsets, total = _laid_out([c.size for c in copies])
        memory = device.allocate(self._total + total, stream)
        try:
            addresses = [*pointers[: len(self._arguments)], *[memory + offset for offset in self._offsets]]
            for copy, offset in zip(copies, offsets, strict=True):
                place = memory + self._total + offset
                addresses[copy.number] = place - copy.low
                # What lies between the elements of an output is copied, too, and comes back as it was.
                if not self._fresh[copy.number]:
                    copy.bring(device, place, stream, capturing=capturing)
            for step in steps:
                step.launch(device, addresses, stream)
            for copy, offset in zip(copies, offsets, strict=True):
                if self._arguments[copy.number].is_writable:
                    copy.take_back(device, memory + self._total + offset, stream)
        except BaseException:
            with suppress(PolykerError):  # nothing may be written to arrays that the caller has again
                device.synchronize(stream)
            with suppress(PolykerError):
                device.free(memory, stream)
            raise
        device.free(memory, stream)

    def _made_ready(self, device: Device) -> tuple[Loaded, tuple[PreparedLaunch, ...] | None]:
        loaded = loaded_on(device, self._executable)
        steps: list[PreparedLaunch] = []
        for step in self._steps(loaded, self._host.body, self._env):
            if len(steps) == _MAX_PREPARED_LAUNCHES:
                break
            steps.append(step)
        else:
            self._ready[device] = loaded, tuple(steps)
            return self._ready[device]
        self._ready[device] = loaded, None
        return self._ready[device]

    def _steps(self, loaded: Loaded, block: tuple[HostStep, ...], env: dict[str, int]) -> Iterator[PreparedLaunch]:
        """Yield the launches in order; equal ones of a time loop are one."""
        yield from self._walk(loaded, block, env, {})

    def _walk(
        self, loaded: Loaded, block: tuple[HostStep, ...], env: dict[str, int], known: dict[Any, PreparedLaunch]
    ) -> Iterator[PreparedLaunch]:
        for step in block:
            match step:
                case LaunchRecord(kernel=name, grid=(x, y, z)):
                    grid = value(x, env), value(y, env), value(z, env)
                    fixed = tuple(env[n] for n in step.integers)
                    ready = known.get((name, grid, fixed))
                    if ready is None:
                        flag = (loaded.flag.address,) if step.fails and loaded.flag is not None else ()
                        ready = PreparedLaunch(loaded.functions[name], grid, step.block, step.arrays, (*fixed, *flag))
                        if len(known) < _MAX_PREPARED_LAUNCHES:
                            known[name, grid, fixed] = ready
                    yield ready
                case HostLoop(variable=name, body=body):
                    for at in range(value(step.lo, env), value(step.hi, env), step.step):
                        yield from self._walk(loaded, body, {**env, name: at}, known)
                case HostBranch(condition=condition, body=body, orelse=orelse):
                    yield from self._walk(loaded, body if value(condition, env) else orelse, env, known)


def _laid_out(sizes: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return where parts of so many bytes begin in one block of memory, and its size.

    >>> _laid_out([4, 0, 513])
    ((0, 512, 1024), 2048)
    """
    ends = list(accumulate((-(-max(1, size) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for size in sizes), initial=0))
    return tuple(ends[:-1]), ends[-1]
