"""Call a compiled kernel: plan operands of certain types, shapes and strides, and execute the plan."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct, field

from polyker.errors.base import failure
from polyker.errors.calls import HOST_RETURNED, KERNEL_STATUS, PARTS, SCRATCH, TOO_LARGE
from polyker.process.jobs import load
from polyker.record.checks import error_of
from polyker.record.forms import extents
from polyker.record.records import Failure, KernelRecord
from polyker.record.status import host_status
from polyker.runtime.arrays import is_usable
from polyker.runtime.executable import Executable
from polyker.runtime.kinds import EXTENT_LIMIT, Array
from polyker.runtime.memory import address, aligned_block, arena, overlap, physical_memory, reach
from polyker.runtime.threads import runtime

# int64_t kernel(void **pointers, int64_t *integers); ctypes releases the interpreter's lock around the call.
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


class Mark:
    """Whether a program was used of late; shared by it and its plans, which therefore need not point back at it.

    It is one byte at `address`, for the emitted entry to set.
    """

    __slots__ = ("_byte", "address")

    def __init__(self) -> None:
        self._byte = ctypes.c_uint8(0)
        self.address = ctypes.addressof(self._byte)

    @property
    def used(self) -> bool:
        """Whether a call was made since this was last set to False."""
        return self._byte.value != 0

    @used.setter
    def used(self, value: bool) -> None:
        self._byte.value = value


class CallPlan(Struct, eq=False, weakref=True):
    """Everything of a call that follows from the operands' types, shapes and strides alone.

    `inputs`: positions of the operands passed by pointer; `results`: shape and numpy dtype of each output; `copies`:
    for an in-out tensor (position of the output, position of the operand). `integers`: sizes and strides as the kernel
    takes them. `strides`: of each output, in bytes. `bounds`: bytes around the pointer that each operand passed and then
    each output covers. `alignments`: bytes that each of these pointers is a multiple of, else the
    array is copied. `misaligned`: bits that no pointer may have set. `scratch`: byte offsets of the temporaries in a
    block of `scratch_size` bytes. `rows`: of call tables (runtime.entry.tables), with what they point to: whoever holds the plan
    may read them.
    """

    executable: Executable
    function: Callable[[Any, Any], int]
    pointers: Any
    integers: Any
    inputs: tuple[int, ...]
    results: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    copies: tuple[tuple[int, int], ...]
    alignments: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    bounds: tuple[tuple[int, int], ...]
    misaligned: int
    scratch: tuple[int, ...]
    scratch_size: int
    mark: Mark
    rows: dict[Any, Any] = field(default_factory=dict)


def check_bytes(name: str, shape: tuple[int, ...], dtype: Any) -> None:
    """Refuse a result of 2^62 bytes or more before anything is allocated."""
    size = prod(shape) * dtype.itemsize
    if size >= EXTENT_LIMIT or any(n >= EXTENT_LIMIT for n in shape):
        shown = size if size < 1 << 128 else f"2^{size.bit_length() - 1}"
        raise failure(TOO_LARGE, name=name, shape=shape, dtype=dtype, bytes=shown)


class Arguments(Struct, frozen=True):
    """The arrays of a call: an operand for each program input, in order, and outputs of `results` (shape and type of each), laid
    out as `outs`."""

    operands: Sequence[Array]
    results: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    outs: Sequence[Array]


def make_plan(
    executable: Executable,
    values: Mapping[str, int],
    arguments: Arguments,
    scratch_limit: int | None,
    mark: Mark,
) -> CallPlan:
    """Return the plan of calls with arguments that lie as these; `values` of sizes are by label."""
    operands, results, outs = arguments.operands, arguments.results, arguments.outs
    record = executable.record
    typed = record.call
    values = {name: values[label] for name, label in typed.sizes}
    for name, (a, b) in record.products:
        values = {**values, name: values[a] * values[b]}
    position = {name: i for i, name in enumerate(typed.inputs)}
    passed = tuple(position[name] for name in record.arguments if name not in typed.outputs)
    strides: dict[str, tuple[int, ...]] = {}
    bounds = []
    for i in passed:
        array = operands[i]
        strides[typed.inputs[i]] = tuple(s // array.itemsize for s in array.strides)
        bounds.append(reach(array.shape, array.strides, array.itemsize))
    for k, name in enumerate(typed.outputs):
        shape, dtype = results[k]
        strides[name] = tuple(s // dtype.itemsize for s in outs[k].strides)
        bounds.append(reach(shape, outs[k].strides, dtype.itemsize))
    integers = [values[x.name] if x.dimension is None else strides[x.name][x.dimension] for x in record.integers]
    if record.parallel:
        integers.append(runtime())
    offsets, total = _scratch(record, values, scratch_limit)
    count = len(record.arguments) + len(offsets)
    here = bool(executable.address)  # elsewhere a call sees to it by itself
    own = [operands[i].dtype.alignment for i in passed] + [dtype.alignment for _, dtype in results]
    asked = [bytes_ if here else 0 for bytes_ in record.alignments]
    alignments = tuple(map(max, own, asked))
    return CallPlan(
        executable=executable,
        function=_PROTOTYPE(executable.address) if here else _elsewhere(executable, tuple(bounds), results, integers),
        pointers=ctypes.c_void_p * count,
        integers=(ctypes.c_int64 * max(1, len(integers)))(*integers),
        inputs=passed,
        results=results,
        copies=tuple((k, position[name]) for k, name in enumerate(typed.outputs) if name in position),
        alignments=alignments if any(asked) else (),
        strides=tuple(out.strides for out in outs),
        bounds=tuple(bounds),
        misaligned=max(alignments, default=1) - 1,
        scratch=offsets,
        scratch_size=total,
        mark=mark,
    )


def _elsewhere(
    executable: Executable,
    bounds: tuple[tuple[int, int], ...],
    results: Sequence[tuple[tuple[int, ...], np.dtype[Any]]],
    integers: Sequence[int],
) -> Callable[[Any, Any], int]:
    """Return what runs kernels on a GPU."""
    load("polyker.runtime.cuda.call")
    from polyker.runtime.cuda.call import GpuCall

    typed = executable.record.call
    sizes = [prod(shape) * dtype.itemsize for shape, dtype in results]
    # A kernel writes all elements of an output; what is no in-out tensor starts from nothing.
    whole = [
        name not in typed.inputs and high - low == size
        for name, size, (low, high) in zip(typed.outputs, sizes, bounds[len(bounds) - len(sizes) :], strict=True)
    ]
    return GpuCall(executable, bounds, (*(False,) * (len(bounds) - len(sizes)), *whole), integers)


def _scratch(record: KernelRecord, values: Mapping[str, int], limit: int | None) -> tuple[tuple[int, ...], int]:
    """Return the offsets of the temporaries and their total size; raises ShapeError over the limit."""
    sizes = [prod(extents(t.shape, values)) * t.dtype.itemsize for t in record.scratch]
    disjoint, in_place = (set(map(frozenset, pairs)) for pairs in (record.disjoint_in_time, record.in_place))
    offsets, total = arena(sizes, disjoint, in_place, record.lifetimes)
    allowed = physical_memory() // 4 if limit is None else limit
    if total > allowed:
        names = ", ".join(f"`{t.label}`" for t in record.scratch)
        raise failure(SCRATCH, names=names, bytes=total, limit=allowed)
    return offsets, total


def execute(plan: CallPlan, operands: Sequence[Array], outs: Sequence[Array]) -> None:
    """Run the kernel. `outs` overlap no operand but the one they are copied from; all lie as the plan says."""
    for k, i in plan.copies:
        if outs[k] is not operands[i]:
            np.copyto(outs[k], operands[i])
    pointers = [address(operands[i]) for i in plan.inputs]
    pointers += [address(out) for out in outs]
    moved = [
        (n, p, high, *aligned_block(high))
        for n, (p, need, (_, high)) in enumerate(zip(pointers, plan.alignments, plan.bounds, strict=False))
        if p % need
    ]  # dense arrays: they begin at their pointers
    for n, place, size, _, base in moved:
        ctypes.memmove(base, place, size)
        pointers[n] = base
    start(plan, pointers)
    for n, place, size, _, base in moved:
        if n >= len(plan.inputs):
            ctypes.memmove(place, base, size)


def start(plan: CallPlan, pointers: list[int]) -> None:
    """Run the kernel on the addresses of its arguments; raises what a guard of the kernel means."""
    if plan.scratch:
        block, base = aligned_block(plan.scratch_size)
        pointers += [base + offset for offset in plan.scratch]
        status = plan.function(plan.pointers(*pointers), plan.integers)
        del block
    else:
        status = plan.function(plan.pointers(*pointers), plan.integers)
    if status:
        raise told(plan, status, pointers)


def told(plan: CallPlan, status: int, pointers: Sequence[int]) -> Exception:
    """Return the error that the status of a call on these addresses of the host stands for."""
    if status in plan.executable.record.failures:
        load("polyker.runtime.gathers")
        from polyker.runtime.gathers import out_of_range

        found = out_of_range(plan.executable.artifact(), pointers, plan.integers, status)
        if found is not None:
            return found
    return meaning(plan.executable.record.failures, status)


def meaning(guards: Mapping[int, Failure], status: int) -> Exception:
    """Return the error that a kernel's status stands for."""
    guard = guards.get(status)
    if guard is not None:
        return error_of(guard)
    said = host_status(status)
    if said is None:
        return failure(KERNEL_STATUS, status=status)
    if said.returned is not None:
        return failure(HOST_RETURNED, status=said.returned)
    more = f", and {said.more} more calls were made" if said.more else ""
    return failure(PARTS, left=said.left, participants=said.participants, more=more)


def places(
    operands: Sequence[Array],
    outs: Sequence[Array | None],
    results: Sequence[tuple[tuple[int, ...], np.dtype[Any]]],
    own: Mapping[int, int],
) -> list[Array]:
    """Return where each output is computed: the array given if that is as good as fresh memory, else fresh memory.

    `own`: for an in-out output, the position of the operand that it starts from, which it may overlap in any way.
    """
    found = []
    for k, (out, (shape, dtype)) in enumerate(zip(outs, results, strict=True)):
        fresh = (
            out is None
            or out.dtype != dtype
            or not is_usable(out)
            or any(overlap(out, operand) for i, operand in enumerate(operands) if i != own.get(k))
        )
        found.append(np.empty(shape, dtype) if fresh or out is None else out)
    return found
