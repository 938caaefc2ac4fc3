"""The run time on the stub of the driver's library: arrays in its memory, and kernels that run in the simulator."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from polyker.api.compiling import clear_cache
from polyker.api.targets import target_named
from polyker.codegen.cuda import nvrtc
from polyker.codegen.cuda.sim_build import compile_cxx, run_time, sim_text
from polyker.runtime.cuda import driver as cuda_driver
from polyker.runtime.cuda.driver import LibCuda
from tests.artifacts import compiled_to
from tests.gpu.device import HOOK_TEXT, MOST, Dim, OnDevice
from tests.gpu.stub.calls import Cuda
from tests.gpu.support import HAS_COMPILER


class Card:
    """A stub that polyker runs on, its functions, and what makes arrays in its memory."""

    def __init__(self, stub):
        self.stub, self.cuda = stub, Cuda(stub, start=False)
        self.cuda.Init(0)
        self.driver = LibCuda(ctypes.CDLL(str(stub.path)))
        self._folder = Path(tempfile.mkdtemp())

    def array(self, values, context=None, gap=0):
        """Return an array in the memory of a context (None: the current one), `gap` bytes behind the start of a block."""
        values = np.asarray(values)
        with self.within(context):
            address = self.cuda.MemAlloc_v2(max(1, values.nbytes) + gap) + gap
        found = np.ndarray(values.shape, values.dtype, (ctypes.c_char * max(1, values.nbytes)).from_address(address))
        found[...] = values
        return OnDevice(found)

    @contextmanager
    def within(self, context):
        """Make a context the thread's current one."""
        if context is not None:
            self.cuda.CtxPushCurrent_v2(context)
        try:
            yield
        finally:
            if context is not None:
                self.cuda.CtxPopCurrent_v2()

    def run(self, kernel):
        """Let the launches of a kernel compute."""
        text = kernel.source("cuda") + HOOK_TEXT
        output = self._folder / (hashlib.sha256(text.encode()).hexdigest()[:16] + ".so")
        if not output.exists():
            compile_cxx(sim_text(text), output, "-O1", "-DPK_SIM", "-fvisibility=default", "-shared", str(run_time()))
        library, lock = ctypes.CDLL(str(output)), threading.Lock()

        def launched(name, grid, block, shared, places, stream):
            count = kernel_parameters(kernel, name)
            values = (ctypes.c_int64 * MOST)(*(ctypes.c_int64.from_address(places[n]).value for n in range(count)))
            with lock:  # the simulator runs one kernel at a time
                library.pk_start_for_tests(name.encode(), Dim(*grid), Dim(*block), getattr(library, name), values)

        self.stub.on_launch(launched)


def kernel_parameters(kernel, name):
    """Return how many parameters a launch of a kernel has."""
    from polyker.codegen.ir.kernel import Launch
    from polyker.codegen.ir.walk import statements
    from polyker.codegen.passes.gpu.launch import arguments_of

    made = compiled_to(kernel).kernel
    launch = next(s for s in statements(made.body) if isinstance(s, Launch) and s.name == name)
    buffers, numbers, fails = arguments_of(made, launch)
    return len(buffers) + len(numbers) + fails


@pytest.fixture
def card(stub, library, monkeypatch):
    """A card that nothing has been asked of; at the end nothing was done wrong on it."""
    if not HAS_COMPILER:
        pytest.skip("no C++ compiler for the simulator")
    if nvrtc.library() is None and shutil.which("nvcc") is None:
        pytest.skip("neither NVRTC nor nvcc is installed")
    found = Card(stub)
    monkeypatch.setattr(cuda_driver, "found_driver", lambda: (found.driver, ""))
    monkeypatch.setattr(cuda_driver, "in_use", [found.driver])
    monkeypatch.setattr(
        sys.modules[OnDevice.__module__], "empty", lambda shape, dtype: found.array(np.empty(shape, dtype))
    )
    target_named.cache_clear()
    clear_cache()
    yield found
    stub.on_launch(None)
    assert stub.violations() == []
    stub.clear_violations()
    clear_cache()
    target_named.cache_clear()
