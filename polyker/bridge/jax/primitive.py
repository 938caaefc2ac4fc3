"""The primitives by which JAX's transformations see operators: types, derivatives in both modes, transposition and batching.

`operator_p` is an operator on all its inputs. `tangent_p` is forward mode of one: linear in its last operands, and transposed by
the operator's own reverse mode, which computes less than the transposed forward mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from polyker.bridge.jax.lowering import PARTITIONED, JaxCall, call_on, computed, partitioned
from polyker.bridge.jax.source import JaxSource
from polyker.bridge.jax.targets import PLATFORM
from polyker.errors.base import PolykerError, failure
from polyker.errors.jax import NO_JAX_PLATFORM
from polyker.ir.dtypes import TensorType
from polyker.options import Options

_MOST_CALLS = 1024  # calls outside of jit whose code is kept (chosen)

operator_p = Primitive("polyker")
operator_p.multiple_results = True
tangent_p = Primitive("polyker_tangent")
tangent_p.multiple_results = True


def apply(source: JaxSource, arrays: Sequence[Any], sizes: Mapping[str, int], chosen: Options) -> list[Any]:
    """Return the results of an operator on arrays or tracers; raises ShapeError and DTypeError."""
    call = call_on(source, arrays, sizes, chosen)
    marked = {"needs_devices": PARTITIONED} if call.rule is not None else {}
    made: list[Any] = operator_p.bind(*_varying(arrays), call=call, **marked)
    return made


def _varying(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays that vary over the same axes of a mesh inside of shard_map, which tells those apart that do not."""
    axes = [_axes(a) for a in arrays]
    every = frozenset[str]().union(*axes)
    return [
        a if own == every else jax.lax.pcast(a, tuple(sorted(every - own)), to="varying")
        for a, own in zip(arrays, axes, strict=True)
    ]


def _axes(array: Any) -> frozenset[str]:
    kind = getattr(jax.typeof(array), "manual_axis_type", None)
    return frozenset() if kind is None else frozenset(kind.varying)


def _results(call: JaxCall, avals: Sequence[Any]) -> list[Any]:
    """Return the types of results as JAX has them: where they are not of the operator's, as those of the operands."""
    if not avals:
        return [jax.core.ShapedArray(t.shape, t.dtype.numpy) for t in call.results]
    like, specs = avals[0], call.shardings(avals)
    return [
        like.update(shape=t.shape, dtype=t.dtype.numpy, weak_type=False, sharding=like.sharding.update(spec=spec))
        for t, spec in zip(call.results, specs, strict=True)
    ]


def _operator_types(*avals: Any, call: JaxCall, **_: Any) -> list[Any]:
    return _results(call, avals)


def _tangent_types(*avals: Any, call: JaxCall, of: Sequence[str], **_: Any) -> list[Any]:
    found = dict(zip(call.source.signature.outputs, _results(call, avals[: len(call.types)]), strict=True))
    return [found[name] for name in of]


def _types(call: JaxCall) -> dict[str, TensorType]:
    return dict(zip(call.source.signature.outputs, call.results, strict=True))


operator_p.def_abstract_eval(_operator_types)
tangent_p.def_abstract_eval(_tangent_types)


# Evaluation and lowering.


@lru_cache(maxsize=_MOST_CALLS)
def _jitted(primitive: Primitive, params: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(partial(primitive.bind, **dict(params)))


def _run_operator(*arrays: Any, **params: Any) -> Any:
    return _run(operator_p, arrays, params)


def _run_tangent(*arrays: Any, **params: Any) -> Any:
    return _run(tangent_p, arrays, params)


def _run(primitive: Primitive, arrays: Sequence[Any], params: Mapping[str, Any]) -> Any:
    with jax.disable_jit(False):  # there is no other way to run it
        return _jitted(primitive, tuple(params.items()))(*arrays)


operator_p.def_impl(_run_operator)
tangent_p.def_impl(_run_tangent)


def _lower_operator(ctx: Any, *values: Any, call: JaxCall, **marked: Any) -> Any:
    alone = partial(operator_p.bind, call=call)

    def lowered(*arrays: Any) -> Any:
        return partitioned(call, arrays, alone) if marked else computed(call, arrays)

    return mlir.lower_fun(lowered, multiple_results=True)(ctx, *values)


def _lower_nowhere(ctx: Any, *values: Any, **_: Any) -> Any:
    platforms = ctx.platforms or ctx.module_context.platforms
    others = [p for p in platforms if p != PLATFORM]
    raise failure(NO_JAX_PLATFORM, platform=", ".join(others) or "it", known=PLATFORM)


def _lower_tangent(ctx: Any, *values: Any, **params: Any) -> Any:
    return mlir.lower_fun(partial(_forward, **params), multiple_results=True)(ctx, *values)


mlir.register_lowering(operator_p, _lower_operator, platform=PLATFORM)
mlir.register_lowering(operator_p, _lower_nowhere)
mlir.register_lowering(tangent_p, _lower_tangent)


# Forward mode.


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero or getattr(tangent, "dtype", None) == jax.dtypes.float0


def _jvp_operator(primals: Sequence[Any], tangents: Sequence[Any], *, call: JaxCall, **marked: Any) -> Any:
    made = operator_p.bind(*primals, call=call, **marked)
    changing = {n: t for n, t in zip(call.source.signature.inputs, tangents, strict=True) if not _is_zero(t)}
    of, wrt = _active(call, {n for n, t in _types(call).items() if t.dtype.is_float}, {*changing})
    changes: dict[str, Any] = {}
    if of:
        moved = [changing[n] for n in wrt]
        found = tangent_p.bind(*_varying([*primals, *moved]), call=call, wrt=wrt, of=of, needs_devices=PARTITIONED)
        changes = dict(zip(of, found, strict=True))
    names = call.source.signature.outputs
    return made, [changes.get(n, ad.Zero(jax.typeof(a).to_tangent_aval())) for n, a in zip(names, made, strict=True)]


def _active(call: JaxCall, outputs: set[str], inputs: set[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return those of some outputs that change with some inputs, and those of the inputs; raises GradientError."""
    varied = call.source.varied(call.types, call.results)
    signature = call.source.signature
    of = tuple(n for n in signature.outputs if n in outputs and varied.get(n, frozenset()) & inputs)
    wrt = tuple(n for n in signature.inputs if n in inputs and any(n in varied[o] for o in of))
    return of, wrt


def _forward(
    *arrays: Any, call: JaxCall, wrt: Sequence[str], of: Sequence[str], needs_devices: object = None
) -> list[Any]:
    """Return the changes of outputs `of` from those of inputs `wrt`, which come behind all inputs."""
    count, types = len(call.types), _types(call)
    given = dict(zip(call.source.signature.inputs, arrays[:count], strict=True))
    found = _derived(call, "jvp", wrt, of, given, arrays[count:])
    return [f.astype(types[n].dtype.numpy) for n, f in zip(of, found, strict=True)]


def _derived(
    call: JaxCall,
    kind: str,
    wrt: Sequence[str],
    of: Sequence[str],
    given: Mapping[str, Any],
    more: Sequence[Any],
) -> list[Any]:
    """Return the results of a derivative, whose last inputs are `more`."""
    made = call.source.derived(kind, wrt, of)
    names = made.signature.inputs
    last = names[len(names) - len(more) :]
    values = {**given, **dict(zip(last, more, strict=True))}
    sizes = {n: v for n, v in call.sizes if n in made.signature.sizes}
    return apply(made, [values[n] for n in names], sizes, call.chosen)


def _jvp_tangent(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    moving = [k for k, t in enumerate(tangents) if not _is_zero(t)]

    def forward(*values: Any) -> list[Any]:
        arrays = list(primals)
        for k, value in zip(moving, values, strict=True):
            arrays[k] = value
        return _forward(*arrays, **params)

    return jax.jvp(forward, [primals[k] for k in moving], [tangents[k] for k in moving])


ad.primitive_jvps[operator_p] = _jvp_operator
ad.primitive_jvps[tangent_p] = _jvp_tangent


# Transposition.


def _transpose_tangent(cotangents: Sequence[Any], *operands: Any, call: JaxCall, of: Any, wrt: Any, **_: Any) -> Any:
    count = len(call.types)
    given = dict(zip(call.source.signature.inputs, operands[:count], strict=True))
    asked = {n: x.aval for n, x in zip(wrt, operands[count:], strict=True) if ad.is_undefined_primal(x)}
    found = _reverse(call, given, dict(zip(of, cotangents, strict=True)), asked)
    return [None] * count + [found.get(n) for n in wrt]


def _transpose_operator(cotangents: Sequence[Any], *operands: Any, call: JaxCall, **_: Any) -> Any:
    """Transpose an operator that is linear in what is not known: its reverse mode reads no values of that."""
    names = call.source.signature.inputs
    asked = {n: x.aval for n, x in zip(names, operands, strict=True) if ad.is_undefined_primal(x)}
    shapes = {n: jnp.zeros(aval.shape, aval.dtype) for n, aval in asked.items()}
    given = {**dict(zip(names, operands, strict=True)), **shapes}
    found = _reverse(call, given, dict(zip(call.source.signature.outputs, cotangents, strict=True)), asked)
    return [found.get(n) for n in names]


def _reverse(
    call: JaxCall, given: Mapping[str, Any], cotangents: Mapping[str, Any], asked: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the gradients by the inputs that are asked for, of these types."""
    of, wrt = _active(call, {n for n, c in cotangents.items() if not _is_zero(c)}, {*asked})
    gradients: dict[str, Any] = {n: ad.Zero(aval) for n, aval in asked.items()}
    if of:
        found = _derived(call, "vjp", wrt, of, given, [cotangents[n] for n in of])
        gradients |= {n: g.astype(asked[n].dtype) for n, g in zip(wrt, found, strict=True)}
    return gradients


ad.primitive_transposes[operator_p] = _transpose_operator
ad.primitive_transposes[tangent_p] = _transpose_tangent


# Batching.


def _batch_operator(arrays: Sequence[Any], axes: Sequence[int | None], *, call: JaxCall, **marked: Any) -> Any:
    signature = call.source.signature
    named = dict(zip(signature.inputs, axes, strict=True))
    found = call.source.batched({n: a for n, a in named.items() if a is not None})
    size = next(x.shape[a] for x, a in zip(arrays, axes, strict=True) if a is not None)
    if found is not None:
        source, tensors = found
        operands = [
            _in_front(x, named[n], size) if n in tensors and n in signature.outputs else x
            for n, x in zip(signature.inputs, arrays, strict=True)
        ]
        try:
            made = apply(source, operands, dict(call.sizes), call.chosen)
        except PolykerError:
            pass  # a limit that one more dimension goes over
        else:
            typed = [x.astype(t.dtype.numpy) for x, t in zip(made, call.results, strict=True)]
            return typed, [0 if n in tensors else None for n in signature.outputs]
    moving = [k for k, a in enumerate(axes) if a is not None]

    def one(values: Sequence[Any]) -> Any:
        operands = list(arrays)
        for k, value in zip(moving, values, strict=True):
            operands[k] = value
        return operator_p.bind(*operands, call=call, **marked)

    results = jax.lax.map(one, [_in_front(arrays[k], axes[k], size) for k in moving])
    return results, [0] * len(results)


def _in_front(array: Any, axis: int | None, size: int) -> Any:
    """Return an array with the batch as its first dimension."""
    return jnp.broadcast_to(array, (size, *array.shape)) if axis is None else jnp.moveaxis(array, axis, 0)


def _batch_tangent(arrays: Sequence[Any], axes: Sequence[int | None], **params: Any) -> Any:
    made = jax.vmap(partial(_forward, **params), in_axes=tuple(axes))(*arrays)
    return made, [0] * len(made)


batching.primitive_batchers[operator_p] = _batch_operator
batching.primitive_batchers[tangent_p] = _batch_tangent
