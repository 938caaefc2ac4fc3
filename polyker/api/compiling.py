"""From an operator and argument types to compiled code, through the cache in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import Struct

from polyker.api.binding import Binding, GivenSchedule, KeptKernel
from polyker.api.definition import Definition
from polyker.errors.base import PolykerError, failure
from polyker.errors.calls import BAD_TYPE
from polyker.errors.given import exact_text, is_a, printed
from polyker.errors.tracebacks import api_boundary
from polyker.ir.dtypes import DType, TensorType, dtype_of, meant_type, parse_type, type_of_json
from polyker.options import Options, checked_flag, environment_target
from polyker.process.jobs import load, uninterrupted
from polyker.record.records import Signature
from polyker.runtime.arguments import given_outs
from polyker.runtime.arrays import operand
from polyker.runtime.cache import KernelCache
from polyker.runtime.compiled import Compiled
from polyker.store import disk as stored

if TYPE_CHECKING:  # the front end's own data
    from polyker.ir.program import Program

kernels: KernelCache[Compiled] = KernelCache()


@api_boundary
def clear_cache(*, disk: bool = False) -> None:
    """Free the compiled kernels that nothing else holds on to, and the memory of the GPU that is kept between calls.

    `disk`: delete what is kept in the user's cache folder, too.
    """
    everywhere = checked_flag("disk", disk)
    kernels.clear()
    if "polyker.codegen.llvm.jit.own" in sys.modules:
        load("polyker.codegen.llvm.jit.own").free_dropped()
    if "polyker.runtime.cuda.driver" in sys.modules:
        load("polyker.runtime.cuda.driver").release_device_memory()
    if everywhere:
        stored.clear()


class CompileKey(Struct, frozen=True):
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
    definition: Definition,
    types: Sequence[TensorType],
    sizes: Mapping[str, int | str],
    options: Options,
    target: str | None,
    given: GivenSchedule | None = None,
    pickled: Iterable[KeptKernel] = (),
) -> Compiled:
    """Return the program bound to types (one an input) and sizes, from the cache in memory or on disk if it is there.

    `given`: a schedule to compile it by, as a text that tells it from others, the program that it orders, and its tree.
    `pickled`: kernels of such a program that another process compiled.
    Raises ShapeError, DTypeError, CompileError, CompileTimeout, BackendUnavailable.
    """
    name = target or environment_target() or "cpu"
    bound = Binding(definition, tuple(types), dict(sizes), options, name, given)
    found = kernels.get(bound.key, lambda: uninterrupted(bound.compiled), options.cache_size)
    if pickled:
        uninterrupted(lambda: bound.adopt(found, pickled))
    return found


def argument_type(value: object, name: str) -> TensorType:
    """Return the type of an array, or a type given as pk.f32[64, "K"], text or JSON; raises ArgumentError for any other."""
    if type(value) is TensorType:
        return value
    if issubclass(type(value), str):
        try:
            return parse_type(str.__str__(cast(str, value)))
        except ValueError:
            if (element := dtype_of(value)) is None:
                raise failure(
                    BAD_TYPE, name=name, value=printed(value), hint=_mended(exact_text(value) or "")
                ) from None
            raise _alone(name, element) from None
    if type(value) is not np.ndarray and (element := dtype_of(value)) is not None:
        raise _alone(name, element)
    if is_a(value, Mapping):
        try:
            return type_of_json(value)
        except ValueError:
            raise failure(BAD_TYPE, name=name, value=printed(value)) from None
    if type(value) is not np.ndarray and (arrays := load("polyker.runtime.cuda.arrays")).lies_on_device(value):
        found: TensorType = arrays.device_type(value, name)
        return found
    return operand(value, name).type


def _alone(name: str, element: DType) -> PolykerError:
    """Return the error for an element type where a type with a shape is wanted."""
    hint = f'give its shape, too: pk.{element}[64, 32], pk.{element}["M", "K"] for any sizes, pk.{element}[()] for a number'
    return failure(BAD_TYPE, name=name, value=f"the element type {element} alone", hint=hint)


def check_shape_alone(program: Program, name: str, value: object) -> None:
    """Raise ArgumentError for a tuple of extents where a type is wanted, of a tensor with so many dimensions."""
    extents = all(is_a(d, int) or exact_text(d) is not None for d in value) if type(value) is tuple else False
    if type(value) is tuple and extents and len(value) > 1:
        load("polyker.poly.binding.declaring")
        from polyker.poly.binding.declaring import rank_of

        if rank_of(program, name) == len(value):
            hint = f"give its element type, too: pk.f32[{', '.join(map(repr, value))}]"
            raise failure(BAD_TYPE, name=name, value=f"the shape {value} alone", hint=hint)


def _mended(text: str) -> str | None:
    """Return a hint with a type as polyker writes it, for one whose element type is spelt in another way."""
    head, bracket, rest = text.partition("[")
    found = meant_type(head)
    return f'write "{found}[{rest}", as types are called by their bits' if found and bracket else None


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


def lies_on_gpu(signature: Signature, inputs: Sequence[Any], out: Any) -> bool:
    """Whether an array of a call lies on a GPU."""
    if all(type(v) is np.ndarray for v in inputs) and (out is None or type(out) is np.ndarray):
        return False
    arrays = load("polyker.runtime.cuda.arrays")
    return arrays.first_on_device((*inputs, *given_outs(signature.outputs, out))) is not None


def declared_type(signature: Signature, name: str, sizes: Mapping[str, object], *, symbols: bool) -> TensorType | None:
    """Return the type that an input is declared to have, None where its text leaves something open.

    `sizes`: those that are known; `symbols`: others may stay symbols.
    """
    declared = signature.declaration(name)
    if declared is None or declared.dtype is None or declared.shape is None:
        return None
    shape: list[int | str] = []
    for extent in declared.shape:
        known = sizes.get(extent) if isinstance(extent, str) else extent
        if isinstance(known, int):
            shape.append(known)
        elif symbols and isinstance(extent, str):
            shape.append(extent)
        else:
            return None
    return TensorType(declared.dtype, tuple(shape))


def tune(*args: Any, **kwargs: Any) -> Any:
    """Not made yet: measure schedules and keep the best."""
    raise NotImplementedError("polyker.tune is not made yet")
