"""From a program and argument types to compiled code, through the cache in memory; or to the plain interpreter."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from polyker.codegen.artifact import Artifact
from polyker.errors.base import PolykerError, failure
from polyker.errors.calls import BAD_TYPE, INTERNAL, NO_TARGET, TIMEOUT
from polyker.ir.dtypes import DType, TensorType, parse_type
from polyker.ir.layout import Layout
from polyker.ir.program import Program
from polyker.ir.typed import TypedProgram
from polyker.options import Options, environment_target, environment_timeout
from polyker.runtime.arguments import check_apart, check_out
from polyker.runtime.arrays import Array, Operand, operand
from polyker.runtime.cache import Cache, compile_alone
from polyker.runtime.compiled import Compiled

if TYPE_CHECKING:
    from polyker.target.model import Target

T = TypeVar("T")
kernels: Cache[Compiled] = Cache()


def compiled(
    program: Program,
    identity: str,
    types: Sequence[TensorType],
    sizes: Mapping[str, int | str],
    options: Options,
    target: str | None,
) -> Compiled:
    """Return the program bound to types (one an input) and sizes, from the cache if it is there.

    Raises ShapeError, DTypeError, CompileError, CompileTimeout, BackendUnavailable.
    """
    name = target or environment_target() or "cpu"
    key = (identity, tuple(types), tuple(sorted(sizes.items())), name, options.code_key)

    def make() -> Compiled:
        found = target_named(name)
        named = dict(zip(program.inputs, types, strict=True))
        typed = _bound(program, named, sizes, _with_deadline(options))
        return Compiled(typed, lambda layouts: _artifact(program, typed, layouts, found, options), _elsewhere(found))

    return kernels.get(key, make, options.cache_size)


def inferred(
    program: Program, types: Sequence[TensorType], sizes: Mapping[str, int | str], options: Options
) -> tuple[TensorType, ...]:
    """Return the outputs' types without compiling; raises ShapeError and DTypeError as a call would."""
    from polyker.poly.bind import infer

    named = dict(zip(program.inputs, types, strict=True))
    limited = _with_deadline(options)
    found: Mapping[str, TensorType] = _guarded(program, "infer", limited, lambda: infer(program, named, sizes))
    return tuple(found[name] for name in program.outputs)


def _elsewhere(target: Target) -> Exception | None:
    """Return the error of calling code for `target` here, or None if this machine runs it."""
    from polyker.codegen.llvm_build import is_host
    from polyker.target.detect import host

    if not is_host(target):
        return failure(NO_TARGET, target=target.name, reason="it is another machine's code")
    if target.vector_bytes > host().vector_bytes:
        return failure(NO_TARGET, target=target.name, reason="this machine has not its vector instructions")
    return None


def _with_deadline(options: Options) -> Options:
    seconds = environment_timeout() or options.timeout
    return replace(options, timeout=seconds, deadline=time.monotonic() + seconds)


def _bound(
    program: Program, types: Mapping[str, TensorType], sizes: Mapping[str, int | str], options: Options
) -> TypedProgram:
    from polyker.poly.bind import bind

    return _guarded(program, "bind", options, lambda: bind(program, types, sizes, acc=options.acc))


def _artifact(
    program: Program, typed: TypedProgram, layouts: tuple[Layout, ...], target: Target, options: Options
) -> Artifact:
    from polyker.pipeline import compile_typed

    limited = _with_deadline(options)
    return _guarded(program, "compile", limited, lambda: compile_typed(typed, layouts, target, limited))


def _guarded(program: Program, stage: str, options: Options, work: Callable[[], T]) -> T:
    """Run a part of the compiler alone, within its time; what it did not mean to raise is reported as its bug."""

    def late() -> Exception:
        return failure(TIMEOUT, seconds=f"{options.timeout:g}", stage=stage)

    try:
        result = compile_alone(work, options.deadline, late)
    except (PolykerError, MemoryError, NotImplementedError):
        raise
    except Exception as error:
        text = program.source.text if program.source is not None else str(program)
        raise failure(INTERNAL, error=type(error).__name__, reason=error, operator=text) from error
    if options.deadline is not None and time.monotonic() > options.deadline:
        raise late()
    return result


@cache
def target_named(name: str) -> Target:
    """Return the description of a target; raises CompileError or BackendUnavailable where there is none."""
    from polyker.target.detect import target

    return target(name)


def argument_type(value: object, name: str) -> TensorType:
    """Return the type of an array, or a type given as pk.f32[64, "K"] or as text; raises ArgumentError for anything else."""
    if isinstance(value, TensorType):
        return value
    if isinstance(value, str):
        try:
            return parse_type(value)
        except ValueError:
            raise failure(BAD_TYPE, name=name, value=repr(value)) from None
    if isinstance(value, DType):
        raise failure(BAD_TYPE, name=name, value=f"the element type {value} alone")
    return operand(value, name).type


def interpret(
    program: Program,
    operands: Sequence[Operand],
    sizes: Mapping[str, int],
    outs: Sequence[Operand | None],
    options: Options,
) -> list[Array]:
    """Run the plain interpreter and return the results, written to the arrays of `outs` where given."""
    from polyker.ir.dtypes import from_numpy
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
