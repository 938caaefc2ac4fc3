"""Targets of XLA's custom calls: each kernel's handler is loaded and registered once, and stays for the life of the process."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import jax
import numpy as np
from msgspec import Struct

from polyker.bridge.jax.extents import bytes_in_order, sizes_of
from polyker.bridge.jax.handler import MAJOR, MINOR, SCRATCH_ALIGNMENT, HandlerWord, handler_text
from polyker.codegen.llvm.jit.own import host_triple, own_library
from polyker.errors.base import failure
from polyker.errors.calls import SCRATCH
from polyker.errors.jax import FFI_REFUSED
from polyker.export.entry import scratch_bytes
from polyker.ir.dtypes import DType
from polyker.process.jobs import run_exclusively
from polyker.record.forms import extents
from polyker.record.records import KernelRecord
from polyker.runtime.executable import Executable
from polyker.runtime.memory import arena, physical_memory
from polyker.runtime.threads import runtime

PLATFORM = "cpu"
# What marks a kernel's target among those of others.
PREFIX = "polyker_"


class HandlerTarget(Struct, frozen=True):
    """A registered handler: its name in XLA, and the record of its kernel; `checks`: it checks the sizes of each call."""

    name: str
    record: KernelRecord
    checks: bool = False

    @property
    def aliases(self) -> dict[int, int]:
        """Places of the in-out tensors among the inputs, with those among the outputs."""
        call = self.record.call
        return {call.inputs.index(n): k for k, n in enumerate(call.outputs) if n in call.inputs}

    @property
    def inputs(self) -> tuple[DType, ...]:
        """The element types that the kernel takes."""
        return tuple(self.record.call.tensor(n).dtype for n in self.record.call.inputs)

    def temporaries(self, shapes: Sequence[Sequence[Any]], limit: int | None) -> HandlerScratch:
        """Return what a call on inputs of these shapes needs for temporaries; raises ShapeError where it is over the limit."""
        fixed = scratch_bytes(self.record)
        if not self.record.scratch:
            return HandlerScratch(0)
        if fixed is not None:
            found = HandlerScratch(fixed[1] + SCRATCH_ALIGNMENT - 1)
        elif self.checks:
            return HandlerScratch(bytes_in_order(self.record, self._sizes(shapes)) + SCRATCH_ALIGNMENT - 1)
        else:
            values = self._sizes(shapes)
            sizes = [prod(extents(t.shape, values)) * t.dtype.itemsize for t in self.record.scratch]
            disjoint, in_place = (set(map(frozenset, p)) for p in (self.record.disjoint_in_time, self.record.in_place))
            offsets, total = arena(sizes, disjoint, in_place, self.record.lifetimes)
            found = HandlerScratch(total + SCRATCH_ALIGNMENT - 1, offsets)
        allowed = physical_memory() // 4 if limit is None else limit
        if found.size - SCRATCH_ALIGNMENT >= allowed:
            names = ", ".join(f"`{t.label}`" for t in self.record.scratch)
            raise failure(SCRATCH, names=names, bytes=found.size - SCRATCH_ALIGNMENT + 1, limit=allowed)
        return found

    def _sizes(self, shapes: Sequence[Sequence[Any]]) -> Mapping[str, Any]:
        values = sizes_of(self.record.call, shapes)
        for name, (a, b) in self.record.products:
            values[name] = values[a] * values[b]
        return values


class HandlerScratch(Struct, frozen=True):
    """The bytes of one more result, in which temporaries lie; their offsets in it where the handler does not know them."""

    size: Any  # an int, or an expression of JAX's
    offsets: tuple[int, ...] | None = None

    @property
    def attributes(self) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """What the handler is told of them."""
        return {} if self.offsets is None else {"offsets": np.array(self.offsets, np.int64)}


_registered: dict[str, HandlerTarget] = {}


def target_of(executable: Executable, *, checks: bool = False) -> HandlerTarget:
    """Return the registered handler of a kernel; raises BackendUnavailable where JAX speaks another version.

    `checks`: one for any sizes, which it checks and places temporaries for.
    """
    name = f"{PREFIX}{executable.key[:40] or hex(id(executable))}{'_any' * checks}"

    def registered() -> HandlerTarget:
        if name not in _registered:
            _register(name, executable, checks=checks)
            _registered[name] = HandlerTarget(name, executable.record, checks)
        return _registered[name]

    return _registered.get(name) or run_exclusively(registered)


def _register(name: str, executable: Executable, *, checks: bool) -> None:
    """Load the handler of a kernel and register it."""
    # Straight loads and stores: more effort would save nothing.
    library = own_library(handler_text(executable.record, host_triple(), checks=checks), "table", 0, ("memcpy",))
    # XLA's threads may call it until the process ends.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object((library, executable)))
    words = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p))(library.address)()
    words[HandlerWord.KERNEL] = executable.address
    if executable.record.parallel:
        words[HandlerWord.RUNTIME] = runtime()
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = make(words[HandlerWord.HANDLER], None, None)
    try:
        jax.ffi.register_ffi_target(name, capsule, platform=PLATFORM, api_version=1)
    except Exception as error:  # whatever class XLA raises
        raise failure(FFI_REFUSED, reason=error, version=f"{MAJOR}.{MINOR}") from error
