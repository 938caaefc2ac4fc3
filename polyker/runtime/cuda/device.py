"""What the run time asks of a CUDA device, and of the driver that knows them; tests have others than CUDA's own."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

from msgspec import Struct

_MAX_STREAMS = 256  # that are remembered when nothing is left to wait for on them (chosen)


class DeviceFunction(Struct, frozen=True):
    """A kernel on a device: its handle, its name in errors, and the bytes of shared memory that it asks for."""

    handle: Any
    title: str
    shared: int


class Module(Struct, frozen=True, eq=False):
    """Loaded machine code and its kernels by name."""

    handle: Any
    functions: Mapping[str, DeviceFunction]


class Flag:
    """Bytes of the host to which the kernels of a module write that a guard did not hold; `address`: on the device."""

    SIZE: ClassVar[int] = 4

    def __init__(self, host: int, address: int) -> None:
        self.address, self._found = address, ctypes.c_int32.from_address(host)

    def is_set(self) -> bool:
        """Return whether a guard is known not to have held, without waiting."""
        return self._found.value != 0

    def take(self) -> int:
        """Return the code of the guard, 0 for none, and forget it."""
        code, self._found.value = self._found.value, 0
        return code


class QueuedWork:
    """The streams on which the kernels of a module were queued, and how far somebody has waited. Many threads may use it."""

    def __init__(self) -> None:
        self._queued: dict[int, object] = {}  # the last work of each stream
        self._done: dict[int, object] = {}

    def queued(self, stream: int) -> None:
        """Note that work was queued on a stream."""
        self._queued[stream] = object()
        if len(self._queued) > _MAX_STREAMS:
            for old, work in list(self._queued.items()):
                if self._done.get(old) is work:
                    self._queued.pop(old, None)
                    self._done.pop(old, None)

    def pending(self) -> list[tuple[int, object]]:
        """Return the streams that nobody has waited for to the end, and their work."""
        return [(s, work) for s, work in list(self._queued.items()) if self._done.get(s) is not work]

    def done(self, stream: int, work: object) -> None:
        """Note that a stream's work, and what came before it, is done."""
        self._done[stream] = work


class Device(Protocol):
    """A context of a device. Every method raises InternalError where CUDA reports an error."""

    number: int

    def enter(self) -> bool: ...  # noqa: D102
    def leave(self) -> None: ...  # noqa: D102
    def is_current(self) -> bool: ...  # noqa: D102
    def arch(self) -> str: ...  # noqa: D102
    def attributes(self) -> Mapping[str, int]: ...  # noqa: D102
    def load(self, image: bytes, shared: Mapping[str, int], about: str) -> Module: ...  # noqa: D102
    def drop(self, module: Module, flag: Flag | None, work: QueuedWork) -> None: ...  # noqa: D102
    def flag(self) -> Flag: ...  # noqa: D102
    def allocate(self, size: int, stream: int) -> int: ...  # noqa: D102
    def free(self, address: int, stream: int) -> None: ...  # noqa: D102
    def release(self) -> None: ...  # noqa: D102
    def copy_in(self, address: int, host: int, size: int, stream: int) -> None: ...  # noqa: D102
    def write(self, address: int, data: bytes, stream: int) -> None: ...  # noqa: D102
    def copy_out(self, host: int, address: int, size: int, stream: int) -> None: ...  # noqa: D102
    def copy_device(self, target: int, source: int, size: int, stream: int) -> None: ...  # noqa: D102
    def launch(  # noqa: D102
        self,
        function: DeviceFunction,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        places: Any,
        stream: int,
    ) -> None: ...
    def is_capturing(self, stream: int) -> bool: ...  # noqa: D102
    def follow(self, stream: int, earlier: int) -> None: ...  # noqa: D102
    def synchronize(self, stream: int) -> None: ...  # noqa: D102


class Driver(Protocol):
    """The devices of this machine."""

    def count(self) -> int:
        """Return how many devices there are."""
        ...

    def device(self, number: int | None = None) -> Device:
        """Return a device in its primary context; None: the calling thread's current context, else device 0's."""
        ...

    def device_of(self, address: int) -> Device:
        """Return the device, and of its contexts the one, in whose memory an address lies."""
        ...

    def has_several(self) -> bool:
        """Return whether arrays may lie in more than one context."""
        ...

    def devices(self) -> Iterator[Device]:
        """Yield the devices, in each context, that calls were made on."""
        ...
