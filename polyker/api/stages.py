"""The parts of a compile, each run alone and within its time; and the plain interpreter."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from polyker.api.definition import STEPS_KEPT
from polyker.api.targets import load_compiler, target_named
from polyker.errors.base import PolykerError, failure
from polyker.errors.calls import BAD_ARGUMENT, INTERNAL, TIMEOUT
from polyker.errors.given import is_a
from polyker.ir.dtypes import TensorType
from polyker.options import Options, environment_timeout, options
from polyker.process.jobs import load, run_exclusively
from polyker.runtime.arguments import check_apart, check_out
from polyker.runtime.arrays import Operand
from polyker.runtime.kinds import Array
from polyker.structs import replace

if TYPE_CHECKING:  # the compiler's own data
    from polyker.exchange.polyhedra import Polyhedra
    from polyker.ir.program import Program
    from polyker.ir.typed import TypedProgram
    from polyker.poly.binding.ranges_text import RangeText
    from polyker.schedule.tree.nodes import ScheduleTree

T = TypeVar("T")

# Statements for which a compile has the time that the options name; one of more has more, in proportion.
TIMED_STATEMENTS = 64


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


def polyhedra(
    program: Program, types: Sequence[TensorType], sizes: Mapping[str, int | str], options: Options
) -> Polyhedra:
    """Return the domains and accesses of a program bound to types and sizes; raises as a compile does."""
    load_compiler()
    load("polyker.exchange.polyhedra")
    from polyker.exchange.polyhedra import polyhedra_of

    limited = with_deadline(options)
    typed = bound_program(program, dict(zip(program.inputs, types, strict=True)), sizes, limited)
    return guarded(program, "polyhedra", limited, lambda: polyhedra_of(typed))


def with_deadline(options: Options, statements: int = 1) -> Options:
    """Return the options with the moment until which a compile that begins now, of so many statements, may take."""
    seconds = (environment_timeout() or options.timeout) * max(1.0, statements / TIMED_STATEMENTS)
    return replace(options, timeout=seconds, deadline=time.monotonic() + seconds)


def bound_program(
    program: Program, types: Mapping[str, TensorType], sizes: Mapping[str, int | str], options: Options
) -> TypedProgram:
    """Return a program bound to types and sizes; raises ShapeError, DTypeError, CompileError."""
    load_compiler()
    from polyker.poly.binding.bind import bind

    return guarded(program, "bind", options, lambda: bind(program, types, sizes, acc=options.acc))


def start_to_edit(
    program: Program,
    types: Sequence[TensorType],
    sizes: Mapping[str, int | str],
    options: Options,
    target: str,
    *,
    auto: bool,
) -> tuple[TypedProgram, TypedProgram, ScheduleTree]:
    """Return the program bound to types and sizes, and what a user's schedule of it starts from; raises as a compile does."""
    load_compiler()
    from polyker.pipeline.compile import start_to_edit as start

    found, limited = target_named(target), with_deadline(options)
    typed = bound_program(program, dict(zip(program.inputs, types, strict=True)), sizes, limited)
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


def derived(
    kind: str,
    program: Program,
    fixed: Mapping[str, int],
    wrt: str | Iterable[str] | None,
    of: str | Iterable[str] | None,
    memory: int | None = STEPS_KEPT,
) -> tuple[tuple[str, dict[str, int]], ...]:
    """Return the text of a derivative, "vjp", "grad" or "jvp", of a program, and of the fixed sizes those that it has.

    Of "residuals" these are two: the forward pass that returns what it keeps, and the backward pass that reads it.
    It is by inputs and of outputs, None for all of floats; `memory`: how many steps' values of a loop are kept.
    """
    if memory is not None and (not isinstance(memory, int) or isinstance(memory, bool) or memory < 4):
        raise failure(
            BAD_ARGUMENT, name="memory", type=type(memory).__name__, wanted="an integer of 4 or more, or None"
        )
    inputs, outputs = _names("wrt", wrt), _names("of", of)
    load_compiler()
    load("polyker.grad.derive")
    from polyker.grad.derive import derivative_texts

    limited = with_deadline(options.current)
    texts = guarded(
        program, "differentiate", limited, lambda: derivative_texts(kind, program, fixed, inputs, outputs, memory)
    )
    return tuple(
        (text, {name: value for name, value in fixed.items() if re.search(rf"\b{name}\b", text)}) for text in texts
    )


def varied(program: Program, fixed: Mapping[str, int]) -> Mapping[str, frozenset[str]]:
    """Return of each output of floats the inputs that it changes with; raises GradientError where there is no derivative."""
    load_compiler()
    load("polyker.grad.derive")
    from polyker.grad.derive import varied as found

    limited = with_deadline(options.current)
    return guarded(program, "differentiate", limited, lambda: found(program, fixed))


def _names(what: str, given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Return names that are given one by one or alone; raises ArgumentError."""
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given) if is_a(given, Iterable) else (None,)
    texts = tuple(name for name in names if isinstance(name, str))
    if len(texts) < len(names):
        raise failure(BAD_ARGUMENT, name=what, type=type(given).__name__, wanted="a name or names")
    return texts
