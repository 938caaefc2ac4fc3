"""The kernels of an artifact on one device, and what their guards have found there."""

from __future__ import annotations

import weakref
from typing import Any

from polyker.codegen.cuda.build import CudaCode, cubin
from polyker.process.jobs import run_exclusively
from polyker.record.host_code import HostCode
from polyker.record.records import KernelRecord
from polyker.runtime.cuda.device import Device, QueuedWork
from polyker.runtime.executable import Executable


class Loaded:
    """A module with its kernels; it is unloaded when nothing holds on to this, unless a graph may run it again."""

    def __init__(self, device: Device, record: KernelRecord, image: bytes) -> None:
        self.device = device
        launches = tuple(host_of(record).launches())
        names = ", ".join(record.call.tensor(name).label for name in record.call.outputs)
        module = device.load(image, {s.kernel: s.shared for s in launches}, f"the kernel for {names}")
        self.functions = module.functions
        try:
            self.flag = device.flag() if any(s.fails for s in launches) else None
        except BaseException:
            device.drop(module, None, QueuedWork())
            raise
        self._work = QueuedWork()
        self._end = weakref.finalize(self, device.drop, module, self.flag, self._work)
        self._end.atexit = False  # the process takes all of it along

    def keep(self) -> None:
        """Never unload the module: a graph has captured its kernels."""
        self._end.detach()

    def queued(self, stream: int) -> None:
        """Note that work was queued on a stream."""
        self._work.queued(stream)

    def found(self) -> bool:
        """Return whether a guard is known not to have held, without waiting."""
        return self.flag is not None and self.flag.is_set()

    def sync(self) -> int:
        """Wait for all that was queued; return 0, or the code of a guard that did not hold since the last time."""
        for stream, work in self._work.pending():  # what another thread waits for, too: it may not be done
            self.device.synchronize(stream)
            self._work.done(stream, work)
        return self.taken()

    def taken(self) -> int:
        """Return the code of a guard that is known not to have held, 0 for none, and forget it."""
        return 0 if self.flag is None else self.flag.take()


def host_of(record: KernelRecord) -> HostCode:
    """Return what the host does for a kernel of a GPU."""
    assert record.host is not None
    return record.host


def loaded_on(device: Device, executable: Executable) -> Loaded:
    """Return the kernels of an executable on a device, compiled and loaded if they are not.

    Raises BackendUnavailable without nvcc and NVRTC, and where the device is another one than the code is for.
    """
    code = executable.holder
    assert isinstance(code, CudaCode)
    found: Loaded | None = code.loaded.get(device)
    if found is not None:
        return found

    def load() -> Any:
        if device not in code.loaded:
            code.loaded[device] = Loaded(device, executable.record, cubin(code.text, code.target)[0])
        return code.loaded[device]

    made: Loaded = run_exclusively(load)
    return made
