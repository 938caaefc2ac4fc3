"""A program bound to types, with its machine code for each class of layouts that calls came with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyker.codegen.artifact import Artifact
from polyker.errors.base import failure
from polyker.errors.calls import KERNEL_DTYPE, KERNEL_SHAPE, SCALAR_RANGE, SIZE_CONFLICT, SIZE_MISSING
from polyker.ir.expr import Expr, Literal, SizeExpr
from polyker.ir.layout import DENSE, Layout
from polyker.ir.typed import TypedProgram, TypedTensor
from polyker.process.jobs import run_exclusively
from polyker.runtime.arguments import check_apart, check_out
from polyker.runtime.arrays import Operand, scalar_as
from polyker.runtime.calls import Arguments, CallPlan, Mark, check_bytes, execute, extents, make_plan, meaning, places
from polyker.runtime.kinds import Array
from polyker.runtime.memory import layout_of
from polyker.runtime.size_class import Likely, size_class

STRIDED = Layout(dense=False, unit=None)
_MAX_LAYOUTS = 8  # layout classes a program is compiled for before one kernel for all layouts takes the rest (chosen)
_MAX_SIZE_CLASSES = 16  # classes of sizes before one kernel for all sizes takes the rest (chosen)
_MAX_PLANS = 256  # plans kept for a program (chosen)


def evaluate(expr: Expr, values: Mapping[str, int]) -> int:
    """Return the value of a quasi-affine expression of the sizes."""
    from polyker.poly.checks import evaluate_shape

    value: int = evaluate_shape(expr, values)
    return value


@dataclass(slots=True)
class HostCall:
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
    """A typed program and its kernels.

    `build` compiles it for one layout an argument, and for a class of sizes where `classes` are told apart (none: for all
    sizes alike); `elsewhere` is raised by a call where this machine cannot run it.
    """

    def __init__(
        self,
        typed: TypedProgram,
        build: Callable[[tuple[Layout, ...], Likely], Artifact],
        elsewhere: Exception | None = None,
        *,
        classes: bool = False,
    ) -> None:
        self.typed, self._elsewhere = typed, elsewhere
        self._mark = Mark()
        self._build, self._classes = build, classes and bool(typed.sizes)
        self.artifacts: dict[tuple[tuple[Layout, ...], Likely], Artifact] = {}
        self.plans: dict[Hashable, CallPlan] = {}
        self._labels = {t.name: t.label for t in typed.tensors}
        self._own = {k: typed.inputs.index(n) for k, n in enumerate(typed.outputs) if n in typed.inputs}

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
        return *(n for n in self.typed.inputs if n not in self.typed.outputs), *self.typed.outputs

    def artifact(self, layouts: tuple[Layout, ...] | None = None, sizes: Mapping[str, int] | None = None) -> Artifact:
        """Return the code for these layouts (row-major if None) and sizes (None: none in particular), compiled if it is not."""
        wanted = (DENSE,) * len(self.arguments) if layouts is None else layouts
        likely = () if sizes is None or not self._classes else size_class(self.typed, sizes)

        def found() -> Artifact:
            laid = {key[0] for key in self.artifacts}
            chosen = wanted if wanted in laid or len(laid) < _MAX_LAYOUTS else (STRIDED,) * len(wanted)
            full = sum(bool(c) for at, c in self.artifacts if at == chosen) >= _MAX_SIZE_CLASSES
            key = chosen, () if full and (chosen, likely) not in self.artifacts else likely
            if key not in self.artifacts:
                self.artifacts[key] = self._build(*key)
            return self.artifacts[key]

        known = self.artifacts.get((wanted, likely))
        return run_exclusively(found) if known is None else known

    def sizes(self, operands: Sequence[Operand], given: Mapping[str, int]) -> dict[str, int]:
        """Return the values of the symbolic sizes by generated name; raises ShapeError where they disagree.

        `given` holds sizes by the user's name.
        """
        typed = self.typed
        values: dict[str, int] = {}
        place: dict[str, str] = {}
        for name, label in typed.sizes:
            if label in given:
                values[name], place[name] = given[label], "the call"
        pending = []
        for tensor, value in zip(map(typed.tensor, typed.inputs), operands, strict=True):
            shape = value.array.shape
            if len(shape) != len(tensor.shape):
                raise self._mismatch(tensor, shape)
            for d, (extent, actual) in enumerate(zip(tensor.shape, shape, strict=True)):
                match extent:
                    case Literal(value=wanted) if int(wanted.real) != actual:
                        raise self._mismatch(tensor, shape)
                    case SizeExpr(name=name) if name not in values:
                        values[name], place[name] = actual, f"dimension {d} of `{tensor.label}`"
                    case SizeExpr(name=name) if values[name] != actual:
                        raise failure(
                            SIZE_CONFLICT,
                            size=dict(typed.sizes)[name],
                            first=values[name],
                            first_place=place[name],
                            second=actual,
                            second_place=f"dimension {d} of `{tensor.label}`",
                        )
                    case SizeExpr() | Literal():
                        pass
                    case _:
                        pending.append((tensor, extent, shape, actual))
        for name, label in typed.sizes:
            if name not in values:
                raise failure(SIZE_MISSING, size=label)
        for tensor, extent, shape, actual in pending:
            if evaluate(extent, values) != actual:
                raise self._mismatch(tensor, shape)
        return values

    def _mismatch(self, tensor: TypedTensor, shape: tuple[int, ...]) -> Exception:
        from polyker.ir.dtypes import TensorType

        labels = dict(self.typed.sizes)
        dims = tuple(
            int(e.value.real) if isinstance(e, Literal) else labels.get(e.name, "?") if isinstance(e, SizeExpr) else "?"
            for e in tensor.shape
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
        for name in self.typed.outputs:
            tensor = self.typed.tensor(name)
            shape, dtype = extents(tensor.shape, values, evaluate), tensor.dtype.numpy
            check_bytes(tensor.label, shape, dtype)
            found.append((shape, dtype))
        return tuple(found)

    def converted(self, operands: Sequence[Operand]) -> list[Array]:
        """Return the operands' arrays in the program's types: numbers are converted; raises DTypeError for arrays of others."""
        arrays = []
        for name, value in zip(self.typed.inputs, operands, strict=True):
            tensor = self.typed.tensor(name)
            if value.type.dtype != tensor.dtype and not value.type.weak:
                raise failure(KERNEL_DTYPE, name=tensor.label, given=value.type, wanted=tensor.dtype)
            array = scalar_as(value, tensor.dtype, tensor.label) if value.type.weak else value.array
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
        typed = self.typed
        if self._elsewhere is not None:
            raise self._elsewhere.with_traceback(None)
        values = self.sizes(operands, given)
        self.check(values)
        arrays = self.converted(operands)
        results = self.results(values)
        labels = [self._labels[name] for name in typed.outputs]
        for label, out, name, (shape, _) in zip(labels, outs, typed.outputs, results, strict=True):
            if out is not None:
                check_out(label, out, shape, typed.tensor(name).dtype)
        wanted = [None if out is None else out.original for out in outs]
        check_apart(labels, wanted)
        targets = places(arrays, wanted, results, self._own)
        plan = self.plan(values, arrays, results, targets, scratch_limit)
        return HostCall(plan, arrays, targets, wanted)

    def sync(self) -> None:
        """Wait for what calls have queued on a GPU; raises what their guards found, and what the device reports."""
        for artifact in list(self.artifacts.values()):
            for loaded in list(getattr(artifact.code, "loaded", {}).values()):
                status = loaded.sync()
                if status:
                    raise meaning(artifact.guards, status)

    def check(self, values: Mapping[str, int]) -> None:
        """Raise what the program's conditions on the sizes mean, where one does not hold."""
        if self.typed.checks:
            from polyker.poly.checks import evaluate_checks

            evaluate_checks(self.typed, values)

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
            passed = [a for a, name in zip(arrays, self.typed.inputs, strict=True) if name not in self.typed.outputs]
            layouts = tuple(layout_of(a.shape, a.strides, a.itemsize) for a in (*passed, *targets))
            artifact = self.artifact(layouts, values)
            labelled = {label: values[name] for name, label in self.typed.sizes}
            arguments = Arguments(arrays, results, targets)
            plan = make_plan(artifact, labelled, arguments, evaluate, scratch_limit, self._mark)
            if len(self.plans) >= _MAX_PLANS:
                self.plans.clear()
            self.plans[key] = plan
        return plan
