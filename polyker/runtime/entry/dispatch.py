"""The quick way into a kernel: a call with operands like those of an earlier one repeats its plan, unchecked.

What is looked at anew are the things that may change between two calls with equal types, shapes and strides: the data
pointers (their alignment, and overlap of `out` with an operand), and whether `out` can be written.

A call met often is adopted by the caller's table for the emitted entry (polyker.runtime.entry.tables), which does the same
without Python; what stays here is what that leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
from msgspec import Struct

from polyker.errors.given import is_a
from polyker.ir.dtypes import bf16
from polyker.runtime.arrays import NUMBERS, Operand, Views, note_written, wrap
from polyker.runtime.calls import CallPlan, start
from polyker.runtime.kinds import Array, kind_of
from polyker.runtime.memory import address

# Most plans of calls that are kept (chosen).
_MAX_PLANS = 512
# The call of a kind after which the emitted entry is asked to serve it, and calls until it is asked again, for it may have
# dropped it (chosen).
_FIRST_CALL, _CALLS_PER_OFFER = 2, 64
Adopt = Callable[[CallPlan, tuple[Hashable, ...], Sequence[Any]], None]
_ndarray, _empty = np.ndarray, np.empty


class _Number(Struct, frozen=True):
    """A Python number among the operands: its position, the type the kernel takes, the largest magnitude that fits."""

    position: int
    dtype: np.dtype[Any]
    limit: float
    within: tuple[int, int] | None  # of integers: the least and the greatest


class _DispatchEntry(Struct):
    plan: ReferenceType[CallPlan]
    numbers: tuple[_Number, ...]
    calls: int = 0
    tensor_calls: int = 0  # those on views of tensors of other libraries


def _numbers(operands: Sequence[Operand], plan: CallPlan) -> tuple[_Number, ...]:
    call = plan.executable.record.call
    found = []
    for i, (name, value) in enumerate(zip(call.inputs, operands, strict=True)):
        if value.type.weak:
            dtype, within = call.tensor(name).dtype, call.tensor(name).limits
            limit = float(np.finfo(dtype.real.numpy).max) if dtype.kind in "fc" and dtype != bf16 else 1e38
            found.append(_Number(i, dtype.numpy, limit, within))
    return tuple(found)


def _converted(inputs: Sequence[Any], numbers: tuple[_Number, ...]) -> list[Any] | None:
    """Return the inputs with the numbers among them as arrays; None where one has to be looked at more closely."""
    values = list(inputs)
    for number in numbers:
        try:
            value = values[number.position]
            if not abs(value) <= number.limit:
                return None
            if number.within is not None and not number.within[0] <= value <= number.within[1]:
                return None
            values[number.position] = np.array(value, number.dtype)
        except (OverflowError, TypeError):
            return None
    return values


class Dispatch:
    """Plans of earlier calls by context, element types, shapes and strides; it keeps no plan alive."""

    __slots__ = ("_plans", "_tuple")

    def __init__(self, result_tuple: Any) -> None:
        self._plans: dict[Hashable, _DispatchEntry] = {}
        self._tuple = result_tuple

    # One function, since each call made here is time of every quick call.
    def attempt(self, context: tuple[Hashable, ...], inputs: Sequence[Any], out: Any, adopt: Adopt) -> Any:  # noqa: C901
        """Return the results of a call that is like an earlier one, or None; `adopt` is told of plans used often."""
        given = self._given(out)
        key = _key(context, inputs, given)
        if key is None:
            return None
        found = self._plans.get(key)
        if found is None:
            return None
        plan = found.plan()
        if plan is None:
            return None
        found.calls += 1
        if found.calls == _FIRST_CALL or found.calls % _CALLS_PER_OFFER == 0:
            adopt(plan, context, inputs)
        if any(type(v) in NUMBERS for v in inputs):
            inputs = [np.asarray(v) if type(v) in NUMBERS else v for v in inputs]
        if found.numbers:
            converted = _converted(inputs, found.numbers)
            if converted is None:
                return None
            inputs = converted
        pointers = []
        bits = 0
        for i in plan.inputs:
            pointer = address(inputs[i])
            bits |= pointer
            pointers.append(pointer)
        if out is None:
            outs = [_empty(shape, dtype) for shape, dtype in plan.results]
            for result in outs:
                pointers.append(address(result))
        else:
            if len(plan.copies) > 1:
                return None  # one could lie on another's argument, and be filled before that is read
            outs = list(given)
            for result in outs:
                pointer = address(result)
                bits |= pointer
                if _near(pointer, pointers, plan.bounds):
                    return None
                pointers.append(pointer)
        if bits & plan.misaligned:
            return None
        for k, i in plan.copies:
            if outs[k] is not inputs[i]:
                np.copyto(outs[k], inputs[i])
        plan.mark.used = True
        start(plan, pointers)
        if self._tuple is None:
            result = outs[0]
            return result if result.ndim or out is not None else result[()]
        return self._tuple(*(r if r.ndim or out is not None else r[()] for r in outs))

    def offer(self, context: tuple[Hashable, ...], views: Views, inputs: Sequence[Any], adopt: Adopt) -> None:
        """Tell `adopt` of a call on views of these inputs, tensors of another library, once such calls are met often."""
        key = _key(context, views.inputs, self._given(views.out))
        found = None if key is None else self._plans.get(key)
        plan = None if found is None else found.plan()
        if found is None or plan is None:
            return
        found.tensor_calls += 1
        if found.tensor_calls == _FIRST_CALL or found.tensor_calls % _CALLS_PER_OFFER == 0:
            adopt(plan, context, inputs)

    def _given(self, out: Any) -> tuple[Any, ...]:
        """Return the outputs that a caller gives, () for none; whatever else they may be is looked at more closely."""
        if out is None:
            return ()
        several = self._tuple is not None and type(out) in (tuple, self._tuple) and out  # () is not what None is
        return tuple(out) if several else (out,)

    def remember(
        self,
        context: tuple[Hashable, ...],
        inputs: Sequence[Any],
        operands: Sequence[Operand],
        results: Sequence[Array],
        out: Any,
        plan: CallPlan,
    ) -> None:
        """Keep the plan of a call for calls like it, where arrays went in and came out as they were."""
        for value, operand in zip(inputs, operands, strict=True):
            if value is not operand.array and not operand.type.weak and type(value) not in NUMBERS:
                return
        call = plan.executable.record.call
        if any(
            call.tensor(n).limits is not None and not o.type.weak for n, o in zip(call.inputs, operands, strict=True)
        ):
            return  # its value has to be looked at in each call
        given = self._given(out)
        if any(value is not result for value, result in zip(given, results, strict=bool(given))):
            return
        key = _key(context, inputs, given)
        if key is not None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[key] = _DispatchEntry(ref(plan), _numbers(operands, plan))


def _key(context: tuple[Hashable, ...], inputs: Sequence[Any], outs: tuple[Any, ...]) -> Hashable | None:
    """Return what a plan is found by, or None where an operand is neither a plain numpy array nor a number."""
    parts: list[Any] = [context]
    for a in inputs:
        if type(a) is _ndarray:
            parts += (a.dtype, a.shape, a.strides)
        elif type(a) in (int, float, complex) or type(a) in NUMBERS:
            parts.append(type(a))
        else:
            return None
    for out in outs:
        if type(out) is not _ndarray or not out.flags.writeable:
            return None
        parts += (out.dtype, out.shape, out.strides)
    return tuple(parts)


def _near(out: int, operands: list[int], bounds: tuple[tuple[int, int], ...]) -> bool:
    """Whether the range of addresses of the output behind these operands meets that of one of them."""
    low, high = bounds[len(operands)]
    low += out
    high += out
    return any(pointer + lo < high and low < pointer + hi for pointer, (lo, hi) in zip(operands, bounds, strict=False))


def finished(
    arrays: Sequence[Array],
    outs: Sequence[Any],
    out: Any,
    kind: str,
    inputs: Sequence[Any],
    result_tuple: Any,
) -> Any:
    """Return results as the caller gets them: the arrays of `outs` themselves where given, else arrays of `kind`."""
    if kind == "torch":
        note_written(outs)
    like = next((v for v in (*inputs, *outs) if kind_of(v) == kind), None)
    results = [wrap(a, kind, like) if given is None else given for a, given in zip(arrays, outs, strict=True)]
    if result_tuple is None:
        return out if out is not None and not is_a(out, (tuple, list, dict)) else results[0]
    return result_tuple(*results)
