"""The quick way into a kernel on a GPU: a call with arrays that lie as those of an earlier one repeats its plan.

What is looked at anew is what may change between two such calls: the addresses (their alignment, and whether an output comes near
another array) and the stream that an array names. Whatever is doubtful takes the long way, which tells what is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from operator import index
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
from msgspec import Struct

from polyker.runtime.calls import CallPlan, meaning
from polyker.runtime.cuda.arrays import Maker, maker_of
from polyker.runtime.cuda.bound import BoundCall
from polyker.runtime.cuda.device import Device
from polyker.runtime.cuda.driver import driver
from polyker.runtime.cuda.streams import current_of_torch, current_stream, keep_until_done, stream_handle
from polyker.runtime.kinds import kind_of

_MAX_ENTRIES = 256  # kinds of calls that are kept, at most (chosen)
_PRIMARY = ("cupy", "numba")  # libraries whose arrays lie in the primary contexts of devices


def glance(value: Any) -> tuple[Hashable, int, int | None] | None:
    """Return how an array on a device lies, its address, and the stream that it names; None for anything that has to be looked at
    more closely."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            return _of_torch(torch, value) if type(value) is torch.Tensor else None
        if isinstance(value, np.ndarray):
            return None
        found = _by_interface(value)
        hash(found)
    except Exception:  # an array of the host, or of a library that has it not, or that says what it must not
        return None
    return found


def _of_torch(torch: Any, value: Any) -> tuple[Hashable, int, None] | None:
    if not value.is_cuda or value.requires_grad or value.is_conj() or value.is_neg():
        return None
    if torch.autograd.forward_ad._current_level >= 0:
        return None
    return (value.dtype, value.shape, value.stride(), value.get_device()), value.data_ptr(), None


def _by_interface(value: Any) -> tuple[Hashable, int, int | None] | None:
    interface: Mapping[str, Any] = value.__cuda_array_interface__
    ask = interface.get
    if ask("mask") is not None:
        return None
    pointer, read_only = interface["data"]
    lies = type(value), interface["typestr"], interface["shape"], ask("strides"), read_only
    stream = ask("stream")
    return lies, index(pointer or 0), None if stream is None else stream_handle(stream)


class _DeviceCall(Struct, frozen=True):
    """A plan, the device, the library of the arrays, and what makes the outputs that are not given."""

    plan: ReferenceType[CallPlan]
    device: Device
    library: str
    makers: tuple[Maker | None, ...]

    @property
    def makes(self) -> bool:
        """Whether an output is not given."""
        return any(self.makers)

    def current_stream(self, inputs: Sequence[Any], outs: Sequence[Any]) -> int:
        """Return the handle of the current stream of the arrays' library."""
        if self.library == "torch":
            return current_of_torch(sys.modules["torch"], self.device.number)
        if self.library == "cupy":
            return current_stream("cupy", next(v for v in (*inputs, *outs) if v is not None))
        return 0


class DeviceCallCache:
    """Plans of earlier calls by how their arrays lay; it keeps no plan alive."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _DeviceCall] = {}

    # One function, since each call made here is time of every quick call.
    def attempt(  # noqa: C901
        self, context: Hashable, inputs: Sequence[Any], outs: Sequence[Any], given_stream: object
    ) -> list[Any] | None:
        """Return the outputs of a call that is like an earlier one; None where it has to take the long way.

        `given_stream`: the one that was asked for, None for the current one of the arrays' library.
        """
        key: list[Hashable] = [context]
        seen: list[int] = []
        named: list[int] = []
        for value in (*inputs, *outs):
            if value is None:  # an output that is not given
                key.append(None)
                seen.append(0)
                continue
            found = glance(value)
            if found is None:
                return None
            key.append(found[0])
            seen.append(found[1])
            if found[2] is not None:
                named.append(found[2])
        entry = self._entries.get(tuple(key))
        plan = None if entry is None else entry.plan()
        if plan is None or entry is None:
            return None
        if given_stream is None:
            stream = entry.current_stream(inputs, outs)
        elif entry.makes:
            return None  # they have to belong to that stream
        else:
            stream = stream_handle(given_stream)
        if any(other != stream for other in named):
            return None  # it has to wait for that one
        pointers, made, given = [seen[i] for i in plan.inputs], list(outs), []
        for k, make in enumerate(entry.makers):
            if make is None:
                given.append(len(pointers))
                pointers.append(seen[len(inputs) + k])
                continue
            made[k] = make(*plan.results[k])
            new = glance(made[k])
            if new is None:
                return None
            pointers.append(new[1])
        bits = 0
        for pointer in pointers:
            bits |= pointer
        # Without an address are arrays without elements, and tensors whose memory was freed.
        if bits & plan.misaligned or not all(pointers) or (given and _near(pointers, given, plan)):
            return None
        is_torch = entry.library == "torch"  # whose tensors say on which device they lie
        if not is_torch and not _lie_on(entry, pointers):
            return None
        plan.mark.used = True
        status = plan.function.on_device(entry.device, stream, pointers)  # type: ignore[attr-defined]
        if status:
            raise meaning(plan.executable.record.failures, status)
        if is_torch:
            if given_stream is not None:
                keep_until_done((*inputs, *outs), stream)
            if given:
                sys.modules["torch"].autograd.graph.increment_version([out for out in outs if out is not None])
        return made

    def remember(self, context: Hashable, inputs: Sequence[Any], outs: Sequence[Any], call: BoundCall) -> None:
        """Keep the plan of a call for calls like it."""
        plan, device = call.plan, call.device
        arrays = [v for v in (*inputs, *outs) if v is not None]
        libraries = {kind_of(v) for v in arrays}
        if plan.copies or len(libraries) != 1 or "jax" in libraries:  # whose arrays must not be written
            return
        seen = [(None, 0, None) if v is None else glance(v) for v in (*inputs, *outs)]
        if any(s is None for s in seen):
            return
        makers = tuple(None if out is not None else maker_of(arrays[0]) for out in outs)
        if len(self._entries) >= _MAX_ENTRIES:
            self._entries.clear()
        key = context, *(s[0] for s in seen if s is not None)
        self._entries[key] = _DeviceCall(ref(plan), device, libraries.pop(), makers)


def _lie_on(entry: _DeviceCall, pointers: Sequence[int]) -> bool:
    """Return whether addresses lie in the context of a call's device: of libraries that know but one, they do."""
    found = driver()
    if entry.library in _PRIMARY and not found.has_several():
        return True
    return all(found.device_of(p) is entry.device for p in pointers if p)


def _near(pointers: Sequence[int], given: Sequence[int], plan: CallPlan) -> bool:
    """Return whether the addresses of an output that was given meet those of another array."""
    bounds = plan.bounds
    for k in given:
        low, high = pointers[k] + bounds[k][0], pointers[k] + bounds[k][1]
        for n, p in enumerate(pointers):
            if n != k and low < p + bounds[n][1] and p + bounds[n][0] < high:
                return True
    return False
