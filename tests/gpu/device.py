"""A driver whose memory is the host's and whose launches run in the simulator, each stream's work when it is waited for."""

import ctypes
import os
import sys
from types import ModuleType

import numpy as np
import pytest

from polyker.api.compiling import clear_cache
from polyker.api.targets import target_named
from polyker.codegen.cuda.sim_build import compile_cxx, run_time, sim_text
from polyker.errors.base import failure
from polyker.errors.codegen import NO_DEVICE
from polyker.runtime.cuda import driver as cuda_driver
from polyker.runtime.cuda import loaded
from polyker.runtime.cuda.device import DeviceFunction, Flag, Module


class Dim(ctypes.Structure):
    _fields_ = [(a, ctypes.c_uint) for a in "xyz"]


class SimulatedDriver:
    """A driver of one device, which is itself. Nothing is done before it is waited for; `launches` notes what was queued;
    everything allocated has to be freed."""

    number = 0

    def __init__(self, folder):
        self.folder, self.memory, self.launches, self.taken, self.host = folder, {}, [], 0, []
        self.queues, self.synchronised, self.followed, self.shared, self.dropped = {}, [], [], [], []

    def count(self):
        return 1

    def device(self, number=None):
        if number:
            raise failure(NO_DEVICE, device=number, count=1)
        return self

    def device_of(self, address):
        return self

    def enter(self):
        return False

    def is_current(self):
        return True

    def has_several(self):
        return False

    def devices(self):
        yield self

    def arch(self):
        return "sm_90"

    def attributes(self):
        return {}

    def load(self, image, shared, about):
        output = self.folder / f"kernels{len(os.listdir(self.folder))}.so"
        text = sim_text(image.decode())
        compile_cxx(text, output, "-O1", "-DPK_SIM", "-fvisibility=default", "-shared", str(run_time()))
        library = ctypes.CDLL(str(output))
        # The run time's own names are hidden: this one is called through the text's.
        functions = {
            n: DeviceFunction((library, getattr(library, n), n), f"{n} of {about}", size) for n, size in shared.items()
        }
        return Module(library, functions)

    def drop(self, module, flag, work):
        self.dropped.append(module)

    def flag(self):
        self.host.append(ctypes.create_string_buffer(Flag.SIZE))
        place = ctypes.addressof(self.host[-1])
        return Flag(place, place)

    def allocate(self, size, stream):
        block = ctypes.create_string_buffer(size + 512)
        ctypes.memset(block, 0xFF, size + 512)
        address = -(-ctypes.addressof(block) // 512) * 512
        self.memory[address] = block
        self.taken += 1
        return address

    def free(self, address, stream):
        """Free the memory when the stream has come so far."""
        block = self.memory.pop(address)
        self.queue(stream, lambda: ctypes.memset(block, 0xEE, len(block)))

    def release(self):
        pass

    def copy_in(self, address, host, size, stream):
        data = ctypes.string_at(host, size)
        self.queue(stream, lambda: ctypes.memmove(address, data, size))

    def copy_out(self, host, address, size, stream):
        self.queue(stream, lambda: ctypes.memmove(host, address, size))

    def copy_device(self, target, source, size, stream):
        self.queue(stream, lambda: ctypes.memmove(target, source, size))

    def launch(self, function, grid, block, places, stream):
        library, kernel, name = function.handle
        self.launches.append((name, grid, block))
        self.shared.append(function.shared)
        values = (ctypes.c_int64 * MOST)(*(ctypes.c_int64.from_address(p).value for p in places if p))
        start = library.pk_start_for_tests
        self.queue(stream, lambda: start(name.encode(), Dim(*grid), Dim(*block), kernel, values))

    def is_capturing(self, stream):
        return False

    def follow(self, stream, earlier):
        self.followed.append((stream, earlier))
        self.queue(stream, lambda: self.drain(earlier))

    def synchronize(self, stream):
        self.synchronised.append(stream)
        self.drain(stream)

    def queue(self, stream, work):
        self.queues.setdefault(stream, []).append(work)

    def drain(self, stream):
        while self.queues.get(stream):
            self.queues[stream].pop(0)()


MOST = 32  # arguments of a kernel, all of 8 bytes: those that it has not are passed, too
HOOK_TEXT = f"""#ifdef PK_SIM
extern "C" __attribute__((visibility("default")))
void pk_start_for_tests(const char *name, pk_dim grid, pk_dim block, void *function, long long *a) {{
  typedef void (*kernel)({", ".join(["long long"] * MOST)});
  pk_start(name, grid, block, 1, [=] {{ ((kernel)function)({", ".join(f"a[{n}]" for n in range(MOST))}); }});
}}
#endif
"""


@pytest.fixture
def device(tmp_path, monkeypatch):
    """A driver; the text takes the way of the cubin."""
    found = SimulatedDriver(tmp_path)
    monkeypatch.setattr(cuda_driver, "found_driver", lambda: (found, ""))
    monkeypatch.setattr(loaded, "cubin", lambda text, target: ((text + HOOK_TEXT).encode(), {}))
    target_named.cache_clear()
    clear_cache()
    yield found
    target_named.cache_clear()
    clear_cache()
    assert not found.memory


class OnDevice:
    """An array on the simulated device, whose memory is the host's; `stream` as in its interface."""

    def __init__(self, array, stream=None):
        self.array, self.stream = array, stream

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__array_interface__, "version": 3, "stream": self.stream}


@pytest.fixture
def library(monkeypatch):
    """A library of such arrays."""
    module = ModuleType("arrays_on_a_device")
    module.empty = lambda shape, dtype: OnDevice(np.empty(shape, dtype))
    monkeypatch.setattr(OnDevice, "__module__", module.__name__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
