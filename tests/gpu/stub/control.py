"""The stub's own functions, for tests: what it counts and finds, and how it is told to fail."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.gpu.stub.build import build_stub, why_not

HOOK = ctypes.CFUNCTYPE(
    None,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_uint,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


class _Launched(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 128),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("parameters", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("bytes", ctypes.c_uint),
        ("data", ctypes.c_ubyte * 1024),
    ]


class Launched(Struct, frozen=True):
    """A launch that was done; `data`: the first 1024 bytes of its parameters as the kernel has them; `stream` 0: legacy."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    parameters: int
    stream: int
    data: bytes


class Stub:
    """The library at a path: `cuda` are the driver's functions (ctypes takes numbers for C ints), the methods are the stub's own.

    What loads the same path shares its state.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.cuda: Any = ctypes.CDLL(str(path))
        self._hook: Any = None
        own: Any = self.cuda
        number, text, long = ctypes.c_int, ctypes.c_char_p, ctypes.c_long
        wide, numbers = ctypes.c_ulonglong, ctypes.POINTER(ctypes.c_uint)
        for name, result, arguments in (
            ("count", long, [text]),
            ("function", text, [number]),
            ("reset_counts", None, []),
            ("fail", number, [text, number, number]),
            ("attribute", number, [number, number, number]),
            ("total_memory", number, [number, wide]),
            ("poison", number, [ctypes.c_void_p, number]),
            ("reset", None, []),
            ("configure", None, [number, text]),
            ("violations", text, []),
            ("clear_violations", None, []),
            ("lazy", None, [number]),
            ("live", long, [text]),
            ("wrong", text, [wide, wide]),
            ("block", wide, [wide, ctypes.POINTER(wide)]),
            ("parameters", number, [ctypes.c_void_p, numbers, numbers, number]),
            ("on_launch", None, [ctypes.c_void_p]),
            ("launch_fails", None, [number, number]),
            ("launches", long, []),
            ("launched", number, [long, ctypes.POINTER(_Launched)]),
            ("sticky_violations", None, [number]),
            ("fill", None, [number]),
        ):
            function = getattr(own, f"pk_stub_{name}")
            function.restype, function.argtypes = result, arguments

    def reset(self) -> None:
        """Forget everything, as in a new process: contexts, memory, counts, failures; devices are those of the environment."""
        self.cuda.pk_stub_reset()
        self._hook = None

    def configure(self, devices: int = 1, arch: str = "90") -> None:
        """Reset, and let there be so many devices of these architectures ("90,80"; the last one is that of all others)."""
        self.cuda.pk_stub_configure(devices, arch.encode())
        self._hook = None

    def attribute(self, attribute: int, value: int, device: int = 0) -> None:
        """Set an attribute of a device, after `configure` or cuInit."""
        assert not self.cuda.pk_stub_attribute(device, attribute, value)

    def total_memory(self, size: int, device: int = 0) -> None:
        """Set the bytes of memory of a device, after `configure` or cuInit."""
        assert not self.cuda.pk_stub_total_memory(device, size)

    def lazy(self, mode: int = 1) -> None:
        """Put work off until it is waited for or asked after (1), or waited for (2: queries tell 600); 0: do it at once."""
        self.cuda.pk_stub_lazy(mode)

    def fail(self, function: str, status: int, after: int = 0) -> None:
        """Let the call of that number (0: the next; -1: every one) do nothing but return a status; 0 takes it back."""
        assert not self.cuda.pk_stub_fail(function.encode(), status, after), f"{function} is not in the stub"

    def poison(self, status: int = 700, context: Any = None) -> None:
        """Let every later call in a context (default: the thread's current one) return a status; 0 takes it away."""
        assert not self.cuda.pk_stub_poison(context, status), "there is no such context"

    def launch_fails(self, status: int = 700, after: int = 0) -> None:
        """Let the kernel of that number (0: the next) fail on the device: its launch returns 0, later calls tell."""
        self.cuda.pk_stub_launch_fails(status, after)

    def sticky_violations(self, on: bool = True) -> None:
        """Let a violation end its context with error 700, as on a device."""
        self.cuda.pk_stub_sticky_violations(on)

    def fill(self, on: bool = True) -> None:
        """Say whether new memory is filled with 0xFF, which it is until told otherwise."""
        self.cuda.pk_stub_fill(on)

    def count(self, function: str) -> int:
        """Return the number of calls of a function of the driver."""
        found = self.cuda.pk_stub_count(function.encode())
        assert found >= 0, f"{function} is not in the stub"
        return found

    def counts(self) -> dict[str, int]:
        """Return the number of calls of every function that was called."""
        return {name: n for name in self.functions() if (n := self.count(name))}

    def functions(self) -> list[str]:
        """Return the names of the driver's functions that the stub has."""
        found = iter(lambda n=iter(range(1000)): self.cuda.pk_stub_function(next(n)), None)
        return [name.decode() for name in found]

    def reset_counts(self) -> None:
        """Count from 0."""
        self.cuda.pk_stub_reset_counts()

    def live(self, what: str) -> int:
        """Return how much there is of: modules, functions, events, streams, contexts, pools, graphs, executables, allocations,
        bytes (of the devices' memory), pool_bytes, pinned (bytes), queued (pieces of work)."""
        found = self.cuda.pk_stub_live(what.encode())
        assert found >= 0, f"nothing is called {what}"
        return found

    def violations(self) -> list[str]:
        """Return what was done wrong."""
        return self.cuda.pk_stub_violations().decode().splitlines()

    def clear_violations(self) -> None:
        """Forget what was done wrong."""
        self.cuda.pk_stub_clear_violations()

    def wrong(self, address: int, size: int = 1) -> str:
        """Return what is wrong with the use of memory now, "" for nothing."""
        return self.cuda.pk_stub_wrong(address, size).decode()

    def block(self, address: int) -> tuple[int, int]:
        """Return the start and size of the live allocation of an address, (0, 0) where there is none."""
        size = ctypes.c_ulonglong()
        return self.cuda.pk_stub_block(address, ctypes.byref(size)), size.value

    def parameters(self, function: Any) -> list[tuple[int, int]]:
        """Return the size and offset of each parameter of a CUfunction, as its code says them."""
        sizes, offsets = (ctypes.c_uint * 512)(), (ctypes.c_uint * 512)()
        count = self.cuda.pk_stub_parameters(function, sizes, offsets, 512)
        assert count >= 0, "not a function"
        return list(zip(sizes[:count], offsets[:count], strict=True))

    def launches(self) -> int:
        """Return the number of kernels that were done."""
        return self.cuda.pk_stub_launches()

    def launched(self, n: int = -1) -> Launched:
        """Return the launch of that number, one of the last 1024; negative numbers count from the end."""
        found = _Launched()
        assert not self.cuda.pk_stub_launched(n, ctypes.byref(found)), "there is no such launch"
        data = bytes(found.data[: min(found.bytes, 1024)])
        grid, block = tuple(found.grid), tuple(found.block)
        return Launched(found.name.decode(), grid, block, found.shared, found.parameters, found.stream or 0, data)

    def on_launch(self, hook: Callable[[str, tuple, tuple, int, Sequence[int], int], None] | None) -> None:
        """Call a function for each kernel that is done: with its name, grid, block, shared bytes, the addresses of its parameters
        and its stream. It may read and write device memory, whose addresses are good in this process."""

        def called(name: bytes, grid: Any, block: Any, shared: int, places: Any, stream: int | None) -> None:
            assert hook is not None
            hook(name.decode(), tuple(grid[:3]), tuple(block[:3]), shared, places, stream or 0)

        kept, self._hook = self._hook, HOOK(called) if hook else None
        self.cuda.pk_stub_on_launch(ctypes.cast(self._hook, ctypes.c_void_p) if hook else None)
        del kept  # not before the library has let it go

    def environment(self, **variables: str) -> dict[str, str]:
        """Return this process's environment, changed so that a child finds the stub as libcuda.so.1.

        `variables` such as PK_STUB_DEVICES="2", PK_STUB_ARCH="90,80", PK_STUB_LAZY="1".
        """
        places = os.pathsep.join(filter(None, [str(self.path.parent), os.environ.get("LD_LIBRARY_PATH", "")]))
        return {**os.environ, "LD_LIBRARY_PATH": places, **variables}


@pytest.fixture
def stub() -> Iterator[Stub]:
    """A stub without a past: one device of sm_90 that nothing has been asked of."""
    if reason := why_not():
        pytest.skip(reason)
    found = Stub(build_stub())
    found.configure()
    yield found
    found.reset()
