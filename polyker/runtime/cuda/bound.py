"""Calls of a kernel with arrays on a device that are bound: checked, planned, and ready to be queued, once or many times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from polyker.errors.base import failure
from polyker.errors.calls import NOT_READABLE
from polyker.errors.codegen import OVERLAPS
from polyker.runtime.arguments import check_apart, check_out
from polyker.runtime.arrays import Operand, note_written
from polyker.runtime.calls import CallPlan, meaning
from polyker.runtime.compiled import Compiled
from polyker.runtime.cuda.arrays import device_operand, first_on_device, new_arrays
from polyker.runtime.cuda.call import place_of_call
from polyker.runtime.cuda.device import Device
from polyker.runtime.cuda.driver import driver
from polyker.runtime.cuda.streams import current_stream, keep_until_done
from polyker.runtime.kinds import Array, kind_of
from polyker.runtime.memory import address, overlap


class BoundCall(Struct, frozen=True):
    """A call on a device: the addresses of its arguments, which of them lie there (None: all), and what is copied before.

    `copies`: target, source and bytes for each in-out tensor that does not start where it ends. `values`: the caller's arrays and
    numbers; `results`: the outputs, of which the caller gave `outs`; `kept`: what the addresses are of.
    """

    device: Device
    plan: CallPlan
    pointers: tuple[int, ...]
    resident: tuple[bool, ...] | None
    copies: tuple[tuple[int, int, int], ...]
    values: tuple[Any, ...]
    outs: tuple[Any, ...]
    results: tuple[Any, ...]
    kept: tuple[Any, ...]

    def run(self, stream: int) -> None:
        """Queue it on a stream; raises what the guards of an earlier call found."""
        for target, source, size in self.copies:
            self.device.copy_device(target, source, size, stream)
        run: Any = self.plan.function
        status = run.on_device(self.device, stream, self.pointers, self.resident)
        if status:
            raise meaning(self.plan.executable.record.failures, status)


def bound_call(
    compiled: Compiled,
    labels: tuple[Sequence[str], Sequence[str]],
    operands: Sequence[Operand],
    given: Mapping[str, int],
    inputs: Sequence[Any],
    outs: Sequence[Any],
    scratch_limit: int | None,
) -> BoundCall:
    """Return the call of a kernel on arrays of the running call's device.

    Its outputs are those of `outs`, else new ones of the library of the first array. `labels`: the names of inputs and outputs.
    `operands`: of the inputs, by `device_operands`. Raises as a call on the host does.
    """
    where, record = place_of_call.get(), compiled.record
    values = compiled.sizes(operands, given)
    compiled.check(values)
    arrays, results = compiled.converted(operands), compiled.results(values)
    empty = None if all(out is not None for out in outs) else new_arrays(first_on_device((*inputs, *outs)))
    found = [empty(*result) if empty and out is None else out for out, result in zip(outs, results, strict=True)]
    places = [device_operand(v, n, n) for n, v in zip(labels[1], found, strict=True)]
    own = {k: record.inputs.index(n) for k, n in enumerate(record.outputs) if n in record.inputs}
    for k, (name, place, tensor) in enumerate(zip(labels[1], places, record.outputs, strict=True)):
        check_out(name, place, results[k][0], record.tensor(tensor).dtype)
        for i, array in enumerate(arrays):
            same = i == own.get(k) and address(array) == address(place.array) and array.strides == place.array.strides
            if overlap(place.array, array) and not same:
                raise failure(OVERLAPS, name=name, other=labels[0][i])
    targets = [p.array for p in places]
    check_apart(labels[1], targets)
    plan = compiled.plan(values, arrays, results, targets, scratch_limit)
    copies = [_copy(targets[k], arrays[i], labels[1][k]) for k, i in plan.copies]
    pointers = [address(arrays[i]) for i in plan.inputs] + [address(t) for t in targets]
    resident = [operands[i].kind is not None for i in plan.inputs] + [True] * len(targets)
    return BoundCall(
        where.device or driver().device(),
        plan,
        tuple(pointers),
        None if all(resident) else tuple(resident),
        tuple(c for c in copies if c is not None),
        (*inputs, *outs),
        tuple(outs),
        tuple(found),
        (*arrays, *targets),
    )


def _copy(target: Array, source: Array, name: str) -> tuple[int, int, int] | None:
    """Return the copy by which an in-out tensor starts from its argument, None where it lies there."""
    if address(target) == address(source):
        return None
    if not (target.flags.c_contiguous and source.flags.c_contiguous):
        raise failure(
            NOT_READABLE, name=name, type="array", reason="an in-out array that is copied on a device has to be dense"
        )
    return address(target), address(source), source.nbytes


def run_bound(call: BoundCall, stream: int) -> None:
    """Run a bound call for the first time; torch is told what it uses, and what it writes."""
    call.run(stream)
    keep_until_done(call.values, stream)
    note_written(call.outs)


class DeviceCall:
    """A prepared call on arrays of a device; calling it queues the kernel on them again, and returns the results.

    `stream`: None for the current one of the arrays' library, whenever it is called.
    """

    def __init__(self, call: BoundCall, result: Any, stream: int | None) -> None:
        self._call, self._run, self._result, self._stream = call, call.run, result, stream
        first = first_on_device((*call.values, *call.results))
        self._current = partial(current_stream, kind_of(first), first)
        # torch keeps count of what is written to a tensor that the caller gave.
        self._tensors = tuple(out for out in call.outs if kind_of(out) == "torch")

    def __call__(self) -> Any:
        """Run it."""
        stream = self._stream
        if stream is None:
            self._run(self._current())
        else:
            self._run(stream)
            keep_until_done(self._call.values, stream)
        if self._tensors:
            note_written(self._tensors)
        return self._result
