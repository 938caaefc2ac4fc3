"""Kernels: a program compiled for given types, on a given target."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from polyker.api.binding import KeptKernel
from polyker.api.compiling import CompileKey, compiled
from polyker.api.definition import Definition
from polyker.errors.base import PolykerError, escape, failure
from polyker.errors.calls import BAD_ARGUMENT, BAD_OPTION, NO_STAGE, SIZE_CONFLICT
from polyker.errors.codegen import NO_RESOURCES
from polyker.errors.given import exact_text, is_a, printed
from polyker.errors.spelling import suggestion
from polyker.errors.tracebacks import api_boundary, api_class, hide_frames
from polyker.options import checked_seconds, default_of, is_given, split_keywords
from polyker.process.jobs import load
from polyker.record.codec import encode
from polyker.runtime.arguments import given_outs, operands_of, result_tuple, size_value
from polyker.runtime.arrays import Operand, on_views, operand, views_of
from polyker.runtime.calls import CallPlan
from polyker.runtime.compiled import Compiled
from polyker.runtime.entry.direct import Direct
from polyker.runtime.entry.dispatch import Dispatch, finished
from polyker.runtime.memory import address

if TYPE_CHECKING:  # islpy and llvmlite come with the first, what a GPU needs with the others
    from polyker.api.explained import ExplainedKernel
    from polyker.api.schedule_object import Schedule
    from polyker.codegen.cuda.build import CudaCode, Resources
    from polyker.explain.report import Explanation
    from polyker.ir.program import Program
    from polyker.runtime.cuda.bound import BoundCall

SECONDS = default_of("0.5")  # where it is not given: a tensor may be called so
STAGES = ("program", "isl", "passes", "schedule", "loops", "llvm", "cuda", "ptx", "asm")


@api_class
class Kernel(Direct):
    """A compiled program. Made by `Operator.compile`; call it on arrays of its types, with any strides.

    A call takes what a call of the operator takes, `out` and inputs and sizes by name included, and returns what that returns.
    `stream` (kernels of a GPU): where the work is queued, a handle or a stream of a library's; else the current stream of the
    arrays' library. With arrays on the GPU the call does not wait: what it cannot raise, `sync` or a later call does.
    A keyword that is a name of the program is the program's, until that is given by position.
    Raises ShapeError where extents are others, DTypeError, ArgumentError, GatherError.
    """

    def __init__(
        self, definition: Definition, compiled: Compiled, bound: CompileKey, schedule: Schedule | None = None
    ) -> None:
        self._definition, self._bound_to, self._given = definition, bound, schedule
        self.types, self.target, self.fixed = tuple(bound.types), bound.target, dict(bound.known)
        self._compiled, self._options = compiled, bound.options
        self.__signature__ = definition.call_signature(self.fixed)
        self._schedule: Schedule | Text | None = schedule
        if not compiled.by_class:
            compiled.executable()  # so that what can go wrong does so now, not at the first call
        self._calls = _Calls(self)
        self.hand_on_to(self._calls.call)

    @property
    def program(self) -> Program:
        """The program of its operator."""
        return self._definition.program

    @property
    def acc(self) -> str:
        """The types that the statements accumulate in."""
        return ", ".join(self._compiled.record.acc)

    @property
    def fastmath(self) -> tuple[str, ...]:
        """LLVM's flags that its arithmetic may use."""
        return self._options.fastmath

    def source(self, stage: str | None = None) -> str:
        """Return a stage of the compile as text: program, isl, passes, schedule, loops; then llvm, or cuda and ptx; and asm.

        `passes`: the passes that changed something, with what each changed; `after:NAME`: what the pass of that name made. Both
        compile once more. Raises ArgumentError, which lists the stages, for any other, and without one.
        """
        artifact = self._compiled.artifact()
        name = exact_text(stage)
        if name == "asm" and "ptx" not in artifact.stages:
            return artifact.code.assembly()
        if name is None or name not in artifact.stages:
            stages = [s for s in STAGES if s in artifact.stages or (s == "asm" and "ptx" not in artifact.stages)]
            shown = printed(stage) if name is None else name
            meant = suggestion(shown, stages)
            raise failure(NO_STAGE, stage=shown, target=self.target, meant=meant, stages=", ".join(stages))
        return artifact.stages[name]

    def prepare(self, /, *args: Any, out: Any = None, **named: Any) -> Callable[[], Any]:
        """Return a call on these arrays, by which the kernel runs on what they hold then, as often as it is called.

        It takes what a call takes. All is checked here, once; on a GPU that leaves the launch. Results are in `out`, or in arrays
        that are made once and written again by each call (new ones in libraries whose arrays never change). The arrays have to
        stay as they are: not resized, not freed.
        """
        return self._calls.prepare(args, out, named)

    def sync(self) -> None:
        """Wait for the calls with arrays on the GPU, and raise what they found: GatherError, or what CUDA reports."""
        self._compiled.sync()

    def resources(self) -> Resources:
        """Return what each kernel of the GPU takes by ptxas, by name; it prints as a table. Raises BackendUnavailable
        without nvcc and NVRTC, ArgumentError where the target is no GPU.

        Registers are of a thread, bytes of shared memory of a block, bytes of the stack and bytes spilled of a thread.
        """
        return self._cuda_code().resources()

    def cubin(self) -> bytes:
        """Return the machine code for the GPU; raises as `resources`."""
        return self._cuda_code().cubin()

    def _cuda_code(self) -> CudaCode:
        load("polyker.codegen.cuda.build")
        from polyker.codegen.cuda.build import CudaCode

        code = self._compiled.artifact().code
        if not isinstance(code, CudaCode):
            raise failure(NO_RESOURCES, target=self.target)
        return code

    @property
    def schedule(self) -> Schedule | Text:
        """The schedule that it was compiled by, to print and to edit; only to print where the compiler joined indices in one."""
        if self._schedule is None:
            load("polyker.api.schedule_object")
            from polyker.api.schedule_object import compiled_by

            artifact, definition = self._compiled.artifact(), self._definition
            made = compiled_by(definition.program, definition.identity, self._bound_to, artifact)
            self._schedule = Text(self.source("schedule")) if made is None else made
        return self._schedule

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as its text, types and options, with its machine code for machines and versions like this one's."""
        kept = [
            KeptKernel(*place, encode(e.record, self._definition.text), e.image, e.key)
            for place, e in list(self._compiled.executables.items())
            if e.key
        ]
        return _unpickled, (self._definition, self._bound_to, self._given, kept)

    def export(
        self,
        file: str | PathLike[str],
        *,
        name: str | None = None,
        constants: Mapping[str, Any] | None = None,
        static_scratch: bool = False,
        level: int = 3,
        abi: str = "c",
    ) -> list[Path]:
        """Write it as a library for programs without Python, with a C header, a manifest and files for pkg-config and CMake.

        The end of the file's name says what it is: .o, .a, .so, .dylib, .dll, .ll, .cu, .wasm (with JavaScript), or .html, a page
        that runs it. `name`: of the function, by default the file's. `constants`: values of inputs that become part of the
        library. `static_scratch`: so do the temporaries, and one call at a time may run. `level`: LLVM's effort, 0 to 3. `abi`:
        "c", or "dlpack" or "tvm-ffi" for an entry by tensors beside that of C. Returns the files. Arguments are dense there, row
        by row.
        Raises ArgumentError, ShapeError, BackendUnavailable where a linker is missing, OSError.
        """
        load("polyker.export.names")
        from polyker.export.names import name_of

        return export_library(
            file,
            {name or name_of(file): self},
            constants=constants,
            static_scratch=static_scratch,
            level=level,
            abi=abi,
        )

    def explain(self, /, **sizes: int) -> Explanation:
        """Return what it computes and moves, the floor that the machine sets, and what was decided and why; nothing is run.

        With symbolic sizes amounts are sympy expressions in them; sizes given by keyword are put in. Raises ArgumentError for
        names that are no sizes of the kernel.
        """
        load("polyker.api.explained")
        from polyker.api.explained import explained

        return explained(self._subject(), sizes)

    def measure(self, /, *args: Any, seconds: float = SECONDS, **named: Any) -> Explanation:
        """Run on arrays for about so many seconds (0.5); return the explanation with the median time and the floor's share of it.

        Where `polyker doctor --measure` has not stored the rates of this machine, they are measured first, for a second.
        Raises as a call does.
        """
        load("polyker.api.explained")
        from polyker.api.explained import measured

        if is_given(seconds):
            named["seconds"] = seconds
        chosen, values = split_keywords(self._definition.signature.own_names(len(args)), named, ["seconds"])
        return measured(self._subject(), args, values, checked_seconds(chosen.get("seconds", 0.5)))

    def _subject(self) -> ExplainedKernel:
        load("polyker.api.explained")
        from polyker.api.explained import ExplainedKernel

        return ExplainedKernel(self, self._definition.signature, self.fixed, self._compiled, self.target, self._title)

    @property
    def _title(self) -> str:
        signature = self._definition.signature
        inputs = ", ".join(f"{escape(n)}: {t}" for n, t in zip(signature.inputs, self.types, strict=True))
        sizes = "".join(f", {escape(n)}={v}" for n, v in self.fixed.items())
        return f"({escape(inputs, 2000)}{sizes}) -> {', '.join(map(escape, signature.outputs))}, target={escape(self.target)}"

    def __repr__(self) -> str:
        fastmath = "{" + ", ".join(self.fastmath) + "}" if self.fastmath else "none"
        return f"<polyker.Kernel {self._title}, acc={self.acc}, fastmath={fastmath}>"


def _unpickled(
    definition: Definition, bound: CompileKey, schedule: Schedule | None, kept: Sequence[KeptKernel]
) -> Kernel:
    """Return a kernel that was pickled."""
    given = None if schedule is None else schedule.given(definition.identity, bound)
    types, sizes, options, target = bound.key
    found = compiled(definition, types, {**sizes, **definition.fixed}, options, target, given, kept)
    return Kernel(definition, found, bound, schedule)


@api_boundary
def export_library(
    file: str | PathLike[str],
    kernels: Mapping[str, Kernel],
    *,
    constants: Mapping[str, Any] | None = None,
    static_scratch: bool = False,
    level: int = 3,
    abi: str = "c",
) -> list[Path]:
    """Write kernels, by the names of their functions, as one library; see Kernel.export. All have one target.

    `constants`: of each kernel that has such inputs.
    """
    if not is_a(kernels, Mapping) or not kernels or not all(is_a(k, Kernel) for k in kernels.values()):
        raise failure(BAD_ARGUMENT, name="kernels", type=type(kernels).__name__, wanted="a dict of kernels by name")
    load("polyker.export.library")
    from polyker.api.targets import target_named
    from polyker.export.library import Export, constant_arrays, write_library
    from polyker.export.tensors import ABIS

    if abi not in ABIS:
        raise failure(BAD_OPTION, name="abi", value=printed(abi), accepted=", ".join(ABIS))

    targets = {k.target for k in kernels.values()}
    if len(targets) > 1:
        raise failure(BAD_ARGUMENT, name="kernels", type="a dict", wanted="of kernels for one target")
    every = [n for kernel in kernels.values() for n in kernel._definition.signature.inputs]
    values = constant_arrays({} if constants is None else constants, list(dict.fromkeys(every)))
    exports = []
    for name, kernel in kernels.items():
        executable, inputs = kernel._compiled.executable(), kernel._definition.signature.inputs
        given = {n: value for n, value in values.items() if n in inputs}
        text = kernel._definition.text or str(kernel.program)
        threads = kernel._options.thread_count > 1
        record, artifact = executable.record, executable.artifact()
        exports.append(Export(name, text, record, artifact, given, static_scratch, threads, abi))
    return write_library(file, exports, target_named(targets.pop()), level)


class _Calls:
    """Calls of a kernel by way of Python. The kernel holds on to this, which therefore must not hold on to the kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = ref(kernel)
        self._definition, self._compiled, self._options = kernel._definition, kernel._compiled, kernel._options
        self._signature = kernel._definition.signature
        self._fixed = kernel.fixed
        outputs = self._signature.outputs
        self._fields = result_tuple(outputs) if len(outputs) > 1 else None
        self._dispatch = Dispatch(self._fields)
        self._owns_out = "out" in self._signature.own_names(0)
        plain = self._signature.parameters == self._signature.inputs and not self._owns_out
        self._plain = len(self._signature.inputs) if plain else -1
        self._repeats: Any = None  # of runtime.cuda, from the first call on
        family, _, number = str(kernel.target).partition(":")
        self._gpu, self._home = family == "cuda", int(number) if number.isdecimal() else None
        self._adopting = Lock()
        self._table: Any = None  # a weak reference to the CallTable, which leads back here

    def call(self, /, *args: Any, out: Any = None, **named: Any) -> Any:
        """Do what a call of the kernel does, for whatever arguments."""
        if self._owns_out and out is not None and "out" in self._signature.own_names(len(args)):
            named, out = {**named, "out": out}, None
        try:
            if self._gpu:
                return self._on_gpu(args, out, named)
            return self._run(*self._values(args, named), out)
        except PolykerError as error:
            hide_frames(error)
            raise

    def _values(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Sequence[Any], dict[str, int]]:
        return self._matched(args, named) if named or len(args) != self._plain else (args, {})

    def _run(self, inputs: Sequence[Any], given: dict[str, int], out: Any) -> Any:
        """Run on arrays of the host."""
        context = tuple(given.items())
        result = self._dispatch.attempt(context, inputs, out, self._adopt)
        if result is not None:
            return result
        labels = self._signature.inputs
        kernel = self._kernel()
        if kernel is not None and not self._owns_out and (views := views_of(inputs, out)) is not None:
            result = on_views(kernel, () if self._plain >= 0 else labels, given, views, out, self._fields)
            self._dispatch.offer(context, views, inputs, self._adopt)
            return result
        operands, outs, wanted, kind = operands_of(self._signature, inputs, out)
        arrays, plan = self._compiled.run(operands, {**self._fixed, **given}, outs, self._options.scratch_bytes)
        if kind == "numpy":
            self._dispatch.remember(context, inputs, operands, arrays, out, plan)
        return finished(arrays, wanted, out, kind, inputs, self._fields)

    def _on_gpu(self, args: Sequence[Any], out: Any, named: dict[str, Any]) -> Any:
        """Run on the GPU, on arrays that lie there or that are copied over."""
        inputs, given, stream = self._on_gpu_given(args, named)
        outs, context = given_outs(self._signature.outputs, out), tuple(given.items())
        if self._repeats is None:
            self._repeats = load("polyker.runtime.cuda.repeat").DeviceCallCache()
        found = self._repeats.attempt(context, inputs, outs, stream)
        if found is None:
            from polyker.runtime.cuda.arrays import on_stream
            from polyker.runtime.cuda.bound import run_bound

            with on_stream((*inputs, *outs), stream, self._home) as place:
                if place.device is None:
                    return self._run(inputs, given, out)
                bound = self._bound(inputs, given, outs)
                run_bound(bound, place.stream)
                self._repeats.remember(context, inputs, outs, bound)
                found = bound.results
        return found[0] if self._fields is None else self._fields(*found)

    def _on_gpu_given(self, args: Sequence[Any], named: dict[str, Any]) -> tuple[Sequence[Any], dict[str, int], object]:
        """Return the inputs, the sizes and the stream of a call."""
        if not named:
            return *self._values(args, named), None
        chosen, named = split_keywords(self._signature.own_names(len(args)), named, ["stream"])
        return *self._values(args, named), chosen.get("stream")

    def _bound(self, inputs: Sequence[Any], given: Mapping[str, int], outs: Sequence[Any]) -> BoundCall:
        """Return the call on arrays of the running call's device."""
        from polyker.runtime.cuda.arrays import device_operands
        from polyker.runtime.cuda.bound import bound_call

        signature, operands = self._signature, device_operands(self._signature.inputs, inputs)
        labels, sizes = (signature.inputs, signature.outputs), {**self._fixed, **given}
        return bound_call(self._compiled, labels, operands, sizes, inputs, outs, self._options.scratch_bytes)

    def prepare(self, args: Sequence[Any], out: Any, named: dict[str, Any]) -> Callable[[], Any]:
        """Return a call as what runs it again and again."""

        @api_boundary
        def again() -> Any:
            return self.call(*args, out=out, **named)

        if not self._gpu:
            return self._prepared(*self._values(args, named), out, again)
        inputs, given, stream = self._on_gpu_given(args, named)
        outs = given_outs(self._signature.outputs, out)
        load("polyker.runtime.cuda.bound")
        from polyker.runtime.cuda.arrays import on_stream
        from polyker.runtime.cuda.bound import DeviceCall

        with on_stream((*inputs, *outs), stream, self._home) as place:
            if place.device is not None:
                bound = self._bound(inputs, given, outs)
                result = bound.results[0] if self._fields is None else self._fields(*bound.results)
                return DeviceCall(bound, result, None if stream is None else place.stream)
            call = self._prepared(inputs, given, out, again)

        @api_boundary
        def there() -> Any:
            with on_stream((), stream, self._home):
                return call()

        return there

    def _prepared(
        self, inputs: Sequence[Any], given: dict[str, int], out: Any, again: Callable[[], Any]
    ) -> Callable[[], Any]:
        """Return a call with arrays of the host as what runs it again and again; `again`: makes the whole call."""
        operands, places, wanted, kind = operands_of(self._signature, inputs, out)
        call = self._compiled.planned(operands, {**self._fixed, **given}, places, self._options.scratch_bytes)
        changing = kind in ("numpy", "torch") and all(map(_reads_itself, inputs, operands))
        if not changing:  # the kernel reads a copy of an input, or the library's arrays never change
            return again

        def run() -> Any:
            try:
                call.run()
            except PolykerError as error:
                hide_frames(error)
                raise
            return finished(call.targets, wanted, out, kind, inputs, self._fields)

        return run

    def _matched(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, int]]:
        rest = self._signature.parameters[len(args) :]
        known = {n: v for n, v in self._fixed.items() if n in rest and n not in named}
        inputs, sizes = self._definition.matched(args, {**named, **known})
        given = {name: size_value(name, value) for name, value in sizes.items()}
        for name, value in given.items():
            if self._fixed.get(name, value) != value:
                raise failure(
                    SIZE_CONFLICT,
                    size=name,
                    first=self._fixed[name],
                    first_place="the kernel",
                    second=value,
                    second_place="the call",
                )
        return inputs, given

    def _adopt(self, plan: CallPlan, context: tuple[Hashable, ...], inputs: Sequence[Any]) -> None:
        """Let calls like this one go to the kernel without Python, where this process can do that."""
        load("polyker.runtime.entry.tables")
        from polyker.runtime.entry.tables import Callee, adopted

        if self._owns_out:  # which the emitted entry takes for what is written into
            return

        table = self._adopted()
        sizes: dict[str, int] = dict(context)  # type: ignore[arg-type]
        callee = Callee(self._signature, self._fixed, self.call, self._fields)
        found = adopted(table, callee, plan, inputs, sizes)
        kernel = self._kernel()
        if found is None or kernel is None:
            return
        table, function = found
        weak = ref(table)
        # Calls of other threads may be under way through a table that is the kernel's: it is never replaced. Nobody waits for
        # the lock: a child of a fork may find it held by a thread that is not there.
        if self._adopting.acquire(blocking=False):
            try:
                if self._adopted() is None:
                    self._table = weak
                    kernel.hand_on_to(function)
            finally:
                self._adopting.release()

    def _adopted(self) -> Any:
        return None if self._table is None else self._table()


def _reads_itself(value: Any, found: Operand) -> bool:
    """Return whether an operand is the memory of an argument, which gives the same each time, and no copy; or a number."""
    if is_a(value, (bool, int, float, complex, np.generic)):
        return True
    return found.array is found.original and address(operand(value, "").array) == address(found.array)


class Text(str):
    """A text that a notebook shows as it is, with line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
