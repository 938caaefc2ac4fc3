"""A program bound to types, with its machine code for each class of layouts that calls came with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import numpy as np
from msgspec import Struct

from polyker.errors.base import failure
from polyker.errors.calls import KERNEL_DTYPE, KERNEL_SHAPE, SCALAR_RANGE, SIZE_CONFLICT, SIZE_MISSING
from polyker.ir.layout import DENSE, Layout
from polyker.process.jobs import run_exclusively
from polyker.record.checks import check_sizes
from polyker.record.forms import extents, value
from polyker.record.records import CallRecord, TensorRecord
from polyker.runtime.arguments import check_apart, check_out
from polyker.runtime.arrays import Operand, scalar_as
from polyker.runtime.calls import Arguments, CallPlan, Mark, check_bytes, execute, make_plan, meaning, places
from polyker.runtime.executable import Executable
from polyker.runtime.kinds import Array
from polyker.runtime.memory import layout_of
from polyker.runtime.size_class import Likely, size_class

if TYPE_CHECKING:  # the compiler's own data
    from polyker.codegen.artifact import Artifact
    from polyker.ir.typed import TypedProgram

MAX_KEPT_CALLS = 64  # programs that unfinished calls of one operator keep alive (chosen)
STRIDED = Layout(dense=False, unit=None)
_MAX_LAYOUTS = 8  # layout classes a program is compiled for before one kernel for all layouts takes the rest (chosen)
_MAX_SIZE_CLASSES = 16  # classes of sizes before one kernel for all sizes takes the rest (chosen)
_MAX_PLANS = 256  # plans kept for a program (chosen)


class HostCall(Struct):
    """A call with arrays of the host, checked: where results are computed, and where the caller wants them."""

    plan: CallPlan
    arrays: list[Array]
    targets: list[Array]
    wanted: list[Array | None]

    def run(self) -> None:
        """Run it; raises what the kernel's guards mean."""
        execute(self.plan, self.arrays, self.targets)
        for wanted, target in zip(self.wanted, self.targets, strict=True):
            if wanted is not None and target is not wanted:
                np.copyto(wanted, target)


class Compiled:
    """A program bound to types and sizes, as what its calls are checked by, and its kernels.

    `build` returns the kernel for one layout an argument, and for a class of sizes where `classes` are told apart (none: for all
    sizes alike); `bound` the typed program; `elsewhere` is raised by a call where this machine cannot run it.
    """

    def __init__(
        self,
        record: CallRecord,
        build: Callable[[tuple[Layout, ...], Likely], Executable],
        bound: Callable[[], TypedProgram],
        elsewhere: Exception | None = None,
        *,
        classes: bool = False,
    ) -> None:
        self.record, self._elsewhere = record, elsewhere
        self._mark = Mark()
        self._build, self._classes = build, classes and bool(record.sizes)
        self._bound = bound
        self.executables: dict[tuple[tuple[Layout, ...], Likely], Executable] = {}
        self.plans: dict[Hashable, CallPlan] = {}
        self._own = {k: record.inputs.index(n) for k, n in enumerate(record.outputs) if n in record.inputs}

    @property
    def typed(self) -> TypedProgram:
        """The typed program, bound once more where the record came from the disk."""
        return self._bound()

    @property
    def by_class(self) -> bool:
        """Whether each class of sizes has code of its own, which the first call with such sizes makes."""
        return self._classes

    @property
    def used(self) -> bool:
        """Whether it was called since the cache last asked."""
        return self._mark.used

    @used.setter
    def used(self, value: bool) -> None:
        self._mark.used = value

    @property
    def arguments(self) -> tuple[str, ...]:
        """The tensors that the kernel takes: inputs that are no outputs, then outputs."""
        return *(n for n in self.record.inputs if n not in self.record.outputs), *self.record.outputs

    def artifact(self, layouts: tuple[Layout, ...] | None = None, sizes: Mapping[str, int] | None = None) -> Artifact:
        """Return what explains the kernel for these layouts and sizes, given as for `executable`."""
        return self.executable(layouts, sizes).artifact()

    def executable(
        self, layouts: tuple[Layout, ...] | None = None, sizes: Mapping[str, int] | None = None
    ) -> Executable:
        """Return the kernel for these layouts (row-major if None) and sizes (None: none in particular), compiled if it is not."""
        wanted = (DENSE,) * len(self.arguments) if layouts is None else layouts
        likely = () if sizes is None or not self._classes else size_class(self.record, sizes)

        def found() -> Executable:
            laid = {key[0] for key in self.executables}
            chosen = wanted if wanted in laid or len(laid) < _MAX_LAYOUTS else (STRIDED,) * len(wanted)
            full = sum(bool(c) for at, c in self.executables if at == chosen) >= _MAX_SIZE_CLASSES
            key = chosen, () if full and (chosen, likely) not in self.executables else likely
            if key not in self.executables:
                self.executables[key] = self._build(*key)
            return self.executables[key]

        known = self.executables.get((wanted, likely))
        return run_exclusively(found) if known is None else known

    def sizes(self, operands: Sequence[Operand], given: Mapping[str, int]) -> dict[str, int]:
        """Return the values of the symbolic sizes by generated name; raises ShapeError where they disagree.

        `given` holds sizes by the user's name.
        """
        record = self.record
        values: dict[str, int] = {}
        place: dict[str, str] = {}
        for name, label in record.sizes:
            if label in given:
                values[name], place[name] = given[label], "the call"
        pending = []
        for tensor, given_value in zip(map(record.tensor, record.inputs), operands, strict=True):
            shape = given_value.array.shape
            if len(shape) != len(tensor.shape):
                raise self._mismatch(tensor, shape)
            for d, (extent, actual) in enumerate(zip(tensor.shape, shape, strict=True)):
                if isinstance(extent, tuple):
                    pending.append((tensor, extent, shape, actual))
                elif isinstance(extent, str) and extent not in values:
                    values[extent], place[extent] = actual, f"dimension {d} of `{tensor.label}`"
                elif isinstance(extent, str) and values[extent] != actual:
                    raise failure(
                        SIZE_CONFLICT,
                        size=dict(record.sizes)[extent],
                        first=values[extent],
                        first_place=place[extent],
                        second=actual,
                        second_place=f"dimension {d} of `{tensor.label}`",
                    )
                elif isinstance(extent, int) and extent != actual:
                    raise self._mismatch(tensor, shape)
        for name, label in record.sizes:
            if name not in values:
                raise failure(SIZE_MISSING, size=label)
        for tensor, extent, shape, actual in pending:
            if value(extent, values) != actual:
                raise self._mismatch(tensor, shape)
        return values

    def _mismatch(self, tensor: TensorRecord, shape: tuple[int, ...]) -> Exception:
        from polyker.ir.dtypes import TensorType

        labels = dict(self.record.sizes)
        dims = tuple(
            e if isinstance(e, int) else labels.get(e, "?") if isinstance(e, str) else "?" for e in tensor.shape
        )
        symbols = tuple(f"N{d}" for d in range(len(dims)))
        dtype = tensor.dtype.name
        symbolic = f"pk.{dtype}[" + ", ".join(f'"{s}"' for s in symbols) + "]"
        return failure(
            KERNEL_SHAPE, name=tensor.label, shape=shape, wanted=TensorType(tensor.dtype, dims), symbolic=symbolic
        )

    def results(self, values: Mapping[str, int]) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """Return shape and numpy dtype of each output; raises ShapeError from 2^62 bytes on."""
        found = []
        for tensor in map(self.record.tensor, self.record.outputs):
            shape, dtype = extents(tensor.shape, values), tensor.dtype.numpy
            check_bytes(tensor.label, shape, dtype)
            found.append((shape, dtype))
        return tuple(found)

    def converted(self, operands: Sequence[Operand]) -> list[Array]:
        """Return the operands' arrays in the program's types: numbers are converted; raises DTypeError for arrays of others."""
        arrays = []
        for tensor, given in zip(map(self.record.tensor, self.record.inputs), operands, strict=True):
            if given.type.dtype != tensor.dtype and not given.type.weak:
                raise failure(KERNEL_DTYPE, name=tensor.label, given=given.type, wanted=tensor.dtype)
            array = scalar_as(given, tensor.dtype, tensor.label) if given.type.weak else given.array
            if tensor.limits is not None and not tensor.limits[0] <= int(array) <= tensor.limits[1]:
                low, high = tensor.limits
                raise failure(SCALAR_RANGE, name=tensor.label, value=int(array), low=low, high=high)
            arrays.append(array)
        return arrays

    def run(
        self,
        operands: Sequence[Operand],
        given: Mapping[str, int],
        outs: Sequence[Operand | None],
        scratch_limit: int | None = None,
    ) -> tuple[list[Array], CallPlan]:
        """Check a call, run it, and return the results with the plan that equal calls may repeat.

        Raises ShapeError, DTypeError, ArgumentError, and what the kernel's guards mean.
        """
        call = self.planned(operands, given, outs, scratch_limit)
        call.run()
        return call.targets, call.plan

    def planned(
        self,
        operands: Sequence[Operand],
        given: Mapping[str, int],
        outs: Sequence[Operand | None],
        scratch_limit: int | None = None,
    ) -> HostCall:
        """Check a call with arrays of the host and return it; raises as `run`."""
        if self._elsewhere is not None:
            raise self._elsewhere.with_traceback(None)
        values = self.sizes(operands, given)
        self.check(values)
        arrays = self.converted(operands)
        results = self.results(values)
        outputs = [self.record.tensor(name) for name in self.record.outputs]
        labels = [tensor.label for tensor in outputs]
        for tensor, out, (shape, _) in zip(outputs, outs, results, strict=True):
            if out is not None:
                check_out(tensor.label, out, shape, tensor.dtype)
        wanted = [None if out is None else out.original for out in outs]
        check_apart(labels, wanted)
        targets = places(arrays, wanted, results, self._own)
        plan = self.plan(values, arrays, results, targets, scratch_limit)
        return HostCall(plan, arrays, targets, wanted)

    def sync(self) -> None:
        """Wait for what calls have queued on a GPU; raises what their guards found, and what the device reports."""
        for executable in list(self.executables.values()):
            for loaded in list(getattr(executable.holder, "loaded", {}).values()):
                status = loaded.sync()
                if status:
                    raise meaning(executable.record.failures, status)

    def check(self, values: Mapping[str, int]) -> None:
        """Raise what the program's conditions on the sizes mean, where one does not hold."""
        check_sizes(self.record, values)

    def plan(
        self,
        values: Mapping[str, int],
        arrays: Sequence[Array],
        results: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...],
        targets: Sequence[Array],
        scratch_limit: int | None,
    ) -> CallPlan:
        """Return the plan of calls with arrays that lie so."""
        key = (
            tuple(values.items()),
            tuple((a.shape, a.strides) for a in arrays),
            tuple(t.strides for t in targets),
            scratch_limit,
        )
        plan = self.plans.get(key)
        if plan is None:
            record = self.record
            passed = [a for a, name in zip(arrays, record.inputs, strict=True) if name not in record.outputs]
            layouts = tuple(layout_of(a.shape, a.strides, a.itemsize) for a in (*passed, *targets))
            labelled = {label: values[name] for name, label in record.sizes}
            arguments = Arguments(arrays, results, targets)
            plan = make_plan(self.executable(layouts, values), labelled, arguments, scratch_limit, self._mark)
            if len(self.plans) >= _MAX_PLANS:
                self.plans.clear()
            self.plans[key] = plan
        return plan


class UnfinishedCalls:
    """What an operator has called with arrays on a GPU since it last waited; as much as comes first is kept alive until then."""

    __slots__ = ("_called", "_kept")

    def __init__(self) -> None:
        self._kept: dict[int, Compiled] = {}  # the cache may let go of them
        self._called: dict[int, ReferenceType[Compiled]] = {}

    def note(self, compiled: Compiled) -> None:
        """Note that a program was called."""
        self._called[id(compiled)] = ref(compiled)
        if len(self._kept) < MAX_KEPT_CALLS:
            self._kept[id(compiled)] = compiled

    def sync(self) -> None:
        """Wait for all calls; raises what they found."""
        kept, self._kept = self._kept, {}
        for identity, found in list(self._called.items()):  # other threads may add to it
            made = found()
            if made is None:
                self._called.pop(identity, None)
            else:
                made.sync()
        del kept
