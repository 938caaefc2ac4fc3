"""A driver whose memory is the host's and whose launches run in the simulator, each stream's work when it is waited for."""

import ctypes
import os
import sys
from types import ModuleType

import numpy as np
import pytest

from polyker.codegen.sim_build import compile_cxx, run_time, sim_text
from polyker.compiling import clear_cache, target_named
from polyker.runtime import cuda_driver, gpu_call
from polyker.runtime.gpu_memory import FLAG


class Dim(ctypes.Structure):
    _fields_ = [(a, ctypes.c_uint) for a in "xyz"]


class SimulatedDriver:
    """Nothing is done before it is waited for; `launches` notes what was queued; everything allocated has to be freed."""

    def __init__(self, folder):
        self.folder, self.memory, self.launches, self.taken, self.host = folder, {}, [], 0, []
        self.queues, self.synchronised, self.followed, self.shared = {}, [], [], []

    def arch(self):
        return "sm_90"

    def load(self, image, names):
        output = self.folder / f"kernels{len(os.listdir(self.folder))}.so"
        text = sim_text(image.decode())
        compile_cxx(text, output, "-O1", "-DPK_SIM", "-fvisibility=default", "-shared", str(run_time()))
        library = ctypes.CDLL(str(output))
        # The run time's own names are hidden: this one is called through the text's.
        return {name: (library, getattr(library, name)) for name in names}

    def allocate(self, size):
        block = ctypes.create_string_buffer(size)
        ctypes.memset(block, 0xFF, size)
        self.memory[ctypes.addressof(block)] = block
        self.taken += 1
        return ctypes.addressof(block)

    def free(self, address):
        for stream in self.queues:
            self.drain(stream)
        del self.memory[address]

    def pinned(self, size):
        self.host.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.host[-1])

    def clear(self, address, size, stream):
        self.queue(stream, lambda: ctypes.memset(address, 0, size))

    def copy_in(self, address, host, size, stream):
        assert len(self.memory[address]) >= size
        data = ctypes.string_at(host, size)
        self.queue(stream, lambda: ctypes.memmove(address, data, size))

    def copy_out(self, host, address, size, stream):
        self.queue(stream, lambda: ctypes.memmove(host, address, size))

    def copy_device(self, target, source, size, stream):
        self.queue(stream, lambda: ctypes.memmove(target, source, size))

    def launch(self, kernel, name, grid, block, arguments, stream, shared=0):
        self.launches.append((name, grid, block))
        self.shared.append(shared)
        library, function = kernel
        values = (ctypes.c_int64 * MOST)(*(a.value or 0 for a in arguments))
        start = library.pk_start_for_tests
        self.queue(stream, lambda: start(name.encode(), Dim(*grid), Dim(*block), function, values))

    def follow(self, stream, earlier):
        self.followed.append((stream, earlier))
        self.queue(stream, lambda: self.drain(earlier))

    def synchronize(self, stream, names):
        self.synchronised.append((stream, names))
        self.drain(stream)

    def queue(self, stream, work):
        self.queues.setdefault(stream, []).append(work)

    def drain(self, stream):
        while self.queues.get(stream):
            self.queues[stream].pop(0)()


MOST = 32  # arguments of a kernel, all of 8 bytes: those that it has not are passed, too
_HOOK = f"""#ifdef PK_SIM
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
    monkeypatch.setattr(cuda_driver, "_found", lambda: (found, ""))
    monkeypatch.setattr(gpu_call, "cubin", lambda text, target: ((text + _HOOK).encode(), {}))
    target_named.cache_clear()
    clear_cache()
    yield found
    target_named.cache_clear()
    clear_cache()
    flags = [block for block in found.memory.values() if len(block) == 1024 * FLAG]
    assert len(found.memory) == len(flags) <= 1


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
