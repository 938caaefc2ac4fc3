"""From a program and argument types to compiled code, through the cache in memory; or to the plain interpreter."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import numpy as np

from polyker.codegen.artifact import Artifact
from polyker.errors.base import CompileTimeout, PolykerError, failure
from polyker.errors.calls import BAD_TYPE, INTERNAL, NO_TARGET, TIMEOUT
from polyker.errors.given import printed
from polyker.ir.dtypes import DType, TensorType, parse_type
from polyker.ir.expr import Literal, SizeExpr
from polyker.ir.layout import Layout
from polyker.ir.program import Program
from polyker.ir.typed import MAX_EXACT_SIZE, TypedProgram
from polyker.machine.model import Target
from polyker.options import Options, checked_flag, environment_target, environment_timeout
from polyker.process.jobs import load, once, run_exclusively, uninterrupted
from polyker.runtime.arguments import check_apart, check_out
from polyker.runtime.arrays import Operand, operand
from polyker.runtime.cache import KernelCache
from polyker.runtime.compiled import Compiled
from polyker.runtime.kinds import Array
from polyker.runtime.size_class import Likely, least
from polyker.schedule.tree.nodes import ScheduleTree

if TYPE_CHECKING:  # islpy comes with it
    from polyker.poly.binding.ranges_text import RangeText

T = TypeVar("T")
GivenSchedule: TypeAlias = (
    "tuple[str, TypedProgram, ScheduleTree]"  # a schedule: a text that tells it from others, its program, its tree
)
kernels: KernelCache[Compiled] = KernelCache()
_COMPILER = (
    "polyker.pipeline.compile", "polyker.poly.binding.bind", "polyker.poly.checks", "polyker.codegen.llvm.jit.build",
    "polyker.codegen.llvm.jit.detect", "polyker.runtime.entry.tables", "polyker.runtime.foreign", "polyker.runtime.cuda.arrays",
)  # fmt: skip


@once
def load_compiler() -> None:
    """Import what compiles programs and what calls need then."""
    for name in _COMPILER:
        import_module(name)


def clear_cache(*, disk: bool = False) -> None:
    """Free the compiled kernels that nothing else holds on to, and the memory of the GPU that is kept between calls.

    `disk`: the machine code for GPUs that is kept in the user's cache folder, too.
    """
    everywhere = checked_flag("disk", disk)
    kernels.clear()
    if "polyker.codegen.llvm.jit.build" in sys.modules:
        load("polyker.codegen.llvm.jit.build").free_dropped()
    if "polyker.runtime.cuda.driver" in sys.modules:
        load("polyker.runtime.cuda.driver").release_device_memory()
    if everywhere:
        load("polyker.codegen.cuda.cache").clear_folder()


@dataclass(frozen=True, slots=True)
class CompileKey:
    """What an operator is compiled for: types, the sizes known, all sizes (symbols by their names), options, target."""

    types: tuple[TensorType, ...]
    known: Mapping[str, int]
    sizes: Mapping[str, int | str]
    options: Options
    target: str

    @property
    def key(self) -> tuple[tuple[TensorType, ...], Mapping[str, int | str], Options, str]:
        """The arguments of a compile."""
        return self.types, self.sizes, self.options, self.target


def compiled(
    program: Program,
    identity: str,
    types: Sequence[TensorType],
    sizes: Mapping[str, int | str],
    options: Options,
    target: str | None,
    given: GivenSchedule | None = None,
) -> Compiled:
    """Return the program bound to types (one an input) and sizes, from the cache if it is there.

    `given`: a schedule to compile it by, as a text that tells it from others, the program that it orders, and its tree.
    Raises ShapeError, DTypeError, CompileError, CompileTimeout, BackendUnavailable.
    """
    name = target or environment_target() or "cpu"
    key = (identity, tuple(types), tuple(sorted(sizes.items())), name, options.code_key, given and given[0])
    ordered = None if given is None else given[1:]

    def make() -> Compiled:
        load_compiler()
        found = target_named(name)
        named = dict(zip(program.inputs, types, strict=True))
        typed = _bound(program, named, sizes, with_deadline(options))

        def build(layouts: tuple[Layout, ...], likely: Likely) -> Artifact:
            bound = _of_class(program, typed, named, sizes, likely, options)
            return _artifact(program, bound, layouts, found, options, ordered)

        classes = options.specialize != "never" and given is None
        return Compiled(typed, build, _elsewhere(found), classes=classes)

    return kernels.get(key, lambda: uninterrupted(make), options.cache_size)


def inferred(
    program: Program, types: Sequence[TensorType], sizes: Mapping[str, int | str], options: Options
) -> tuple[TensorType, ...]:
    """Return the outputs' types without compiling; raises ShapeError and DTypeError as a call would."""
    load_compiler()
    from polyker.poly.binding.bind import infer

    named = dict(zip(program.inputs, types, strict=True))
    limited = with_deadline(options)
    found: Mapping[str, TensorType] = guarded(program, "infer", limited, lambda: infer(program, named, sizes))
    return tuple(found[name] for name in program.outputs)


def inferred_ranges(
    program: Program, types: Mapping[str, TensorType], sizes: Mapping[str, int | str], options: Options
) -> list[list[RangeText]]:
    """Return the inferred ranges of each statement's indices.

    Raises PolykerError where they cannot be told for these extents.
    """
    load_compiler()
    from polyker.poly.binding.bind import infer_ranges

    return guarded(program, "ranges", with_deadline(options), lambda: infer_ranges(program, types, sizes))


def _elsewhere(target: Target) -> Exception | None:
    """Return the error of calling code for `target` here, or None if this machine runs it."""
    from polyker.codegen.llvm.jit.build import is_host
    from polyker.codegen.llvm.jit.detect import host

    if target.gpu is not None:
        from polyker.runtime.cuda.driver import why_not

        reason = "" if target.gpu.simulated else why_not()
        return failure(NO_TARGET, target=target.name, reason=f"no CUDA device ({reason})") if reason else None
    if not is_host(target):
        return failure(NO_TARGET, target=target.name, reason="it is another machine's code")
    if target.vector_bytes > host().vector_bytes:
        return failure(NO_TARGET, target=target.name, reason="this machine has not its vector instructions")
    return None


def with_deadline(options: Options) -> Options:
    """Return the options with the moment until which a compile that begins now may take."""
    seconds = environment_timeout() or options.timeout
    return replace(options, timeout=seconds, deadline=time.monotonic() + seconds)


def _bound(
    program: Program, types: Mapping[str, TensorType], sizes: Mapping[str, int | str], options: Options
) -> TypedProgram:
    from polyker.poly.binding.bind import bind

    return guarded(program, "bind", options, lambda: bind(program, types, sizes, acc=options.acc))


def _of_class(
    program: Program,
    typed: TypedProgram,
    types: Mapping[str, TensorType],
    sizes: Mapping[str, int | str],
    likely: Likely,
    options: Options,
) -> TypedProgram:
    """Return the program for a class of sizes: those that are the same in all calls of it are constants, others expected so.

    Its context holds what is true of all sizes of the class.

    A constant takes no code for what it leaves over of a tile, which is most of a small kernel's.
    """
    from polyker.poly.isl import narrowed

    labels = dict(typed.sizes)
    values = {labels[name]: value for name, value in likely}
    known = {label: value for label, value in values.items() if value <= MAX_EXACT_SIZE}
    if known:
        fixed = {
            name: replace(t, shape=tuple(known.get(n, n) if isinstance(n, str) else n for n in t.shape))
            for name, t in types.items()
        }
        given = {name: known.get(value, value) if isinstance(value, str) else value for name, value in sizes.items()}
        try:
            typed = _bound(program, fixed, given, with_deadline(options))
        except CompileTimeout:
            raise
        except PolykerError:
            pass  # where some sizes are symbols others had to be, too
    kept = [(name, values[label]) for name, label in typed.sizes if label in values]
    bounds = [f"{least(value)} <= {name}" for name, value in kept if value > MAX_EXACT_SIZE]
    likely = tuple((name, max(1, value)) for name, value in kept)
    return replace(typed, context=narrowed(typed.context, bounds), likely=likely)


def _artifact(
    program: Program,
    typed: TypedProgram,
    layouts: tuple[Layout, ...],
    target: Target,
    options: Options,
    given: tuple[TypedProgram, ScheduleTree] | None,
) -> Artifact:
    from polyker.pipeline.compile import compile_typed

    limited = with_deadline(options)
    return guarded(program, "compile", limited, lambda: compile_typed(typed, layouts, target, limited, given))


def start_to_edit(
    program: Program, bound: CompileKey, *, auto: bool
) -> tuple[TypedProgram, TypedProgram, ScheduleTree]:
    """Return the program bound to types and sizes, and what a user's schedule of it starts from; raises as `compiled`."""
    load_compiler()
    from polyker.pipeline.compile import start_to_edit as start

    found, limited = target_named(bound.target), with_deadline(bound.options)
    typed = _bound(program, dict(zip(program.inputs, bound.types, strict=True)), bound.sizes, limited)
    return typed, *guarded(program, "schedule", limited, lambda: start(typed, found, limited, auto=auto))


def guarded(program: Program, stage: str, options: Options, work: Callable[[], T]) -> T:
    """Run a part of the compiler alone, within its time; what it did not mean to raise is reported as its bug."""

    def late() -> Exception:
        return failure(TIMEOUT, seconds=f"{options.timeout:g}", stage=stage)

    def known() -> T:
        # Here, not around the job: what a signal handler raises in the waiting thread is the caller's, whatever its class.
        try:
            return work()
        except (PolykerError, MemoryError, NotImplementedError):
            raise
        except Exception as error:
            text = program.source.text if program.source is not None else str(program)
            raise failure(INTERNAL, error=type(error).__name__, reason=error, operator=text) from error

    result = run_exclusively(known, options.deadline, late)
    if options.deadline is not None and time.monotonic() > options.deadline:
        raise late()
    return result


@cache
def target_named(name: str | Target) -> Target:
    """Return the description of a target, which may be one itself; raises CompileError or BackendUnavailable where there is none.

    `cuda:1` and so on are this machine's GPUs, `cuda` the first of them.
    """
    from polyker.codegen.llvm.jit.detect import target

    if not isinstance(name, str):
        return target(name)
    family, _, number = name.partition(":")
    is_number = name == "cuda" or (family == "cuda" and number.isdecimal() and len(number) < 4)
    return _gpu(int(number or "0")) if is_number else target(name)


def _gpu(number: int) -> Target:
    """Return a GPU of this machine as a target; raises BackendUnavailable where there is none or it is not known."""
    from polyker.errors.codegen import NO_CUDA
    from polyker.machine.device import name_of, with_device
    from polyker.machine.known import GPUS
    from polyker.runtime.cuda.driver import driver

    device = driver().device(number)
    arch = device.arch()
    found = name_of(arch)
    if found is None:
        raise failure(NO_CUDA, reason=f"it is {arch}", known=", ".join(GPUS))
    return with_device(GPUS[found], device.attributes())


def argument_type(value: object, name: str) -> TensorType:
    """Return the type of an array, or a type given as pk.f32[64, "K"] or as text; raises ArgumentError for anything else."""
    if type(value) is TensorType:
        return value
    if issubclass(type(value), str):
        try:
            return parse_type(str.__str__(cast(str, value)))
        except ValueError:
            raise failure(BAD_TYPE, name=name, value=printed(value)) from None
    if type(value) is DType:
        raise failure(BAD_TYPE, name=name, value=f"the element type {value} alone")
    if type(value) is not np.ndarray and (arrays := load("polyker.runtime.cuda.arrays")).lies_on_device(value):
        found: TensorType = arrays.device_type(value, name)
        return found
    return operand(value, name).type


def home_of(values: Iterable[object]) -> str | None:
    """Return the target of the GPU that the first array among values lies on, None where none lies on one."""
    others = [v for v in values if type(v) not in (np.ndarray, TensorType, str, int, float)]
    if not others:
        return None
    arrays = load("polyker.runtime.cuda.arrays")
    first = arrays.first_on_device(others)
    if first is None:
        return None
    number: int = arrays.device_of(first).number
    return f"cuda:{number}" if number else "cuda"


def declared_type(program: Program, name: str, sizes: Mapping[str, object], *, symbols: bool) -> TensorType | None:
    """Return the type that an input is declared to have, None where its text leaves something open.

    `sizes`: those that are known; `symbols`: others may stay symbols.
    """
    declared = program.declaration(name) if name in program.inputs else None
    if declared is None or declared.dtype is None or declared.shape is None:
        return None
    shape: list[int | str] = []
    for extent in declared.shape:
        match extent:
            case Literal(value=int(value)):
                shape.append(value)
            case SizeExpr(name=size) if isinstance(sizes.get(size), int):
                shape.append(cast(int, sizes[size]))
            case SizeExpr(name=size) if symbols:
                shape.append(size)
            case _:
                return None
    return TensorType(declared.dtype, tuple(shape))


def interpret(
    program: Program,
    operands: Sequence[Operand],
    sizes: Mapping[str, int],
    outs: Sequence[Operand | None],
    options: Options,
) -> list[Array]:
    """Run the plain interpreter and return the results, written to the arrays of `outs` where given."""
    from polyker.ir.dtypes import from_numpy

    load("polyker.reference")
    from polyker.reference import interpret as run

    values = [o.array.item() if o.type.weak else o.array for o in operands]
    arrays = dict(zip(program.inputs, values, strict=True))
    results = [np.asarray(r) for r in run(program, arrays, sizes, acc=options.acc)]
    for name, out, result in zip(program.outputs, outs, results, strict=True):
        dtype = from_numpy(result.dtype)
        if out is not None and dtype is not None:
            check_out(name, out, result.shape, dtype)
    check_apart(program.outputs, [None if out is None else out.original for out in outs])
    for out, result in zip(outs, results, strict=True):
        if out is not None:
            np.copyto(out.original, result)
    return results
