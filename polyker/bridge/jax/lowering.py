"""From a call to XLA's custom call: one for all of its arrays, or one a device for their parts where it is split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import jax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from msgspec import Struct

from polyker.bridge.jax.extents import results_of
from polyker.bridge.jax.installed import array_type, check_width
from polyker.bridge.jax.source import JaxSource
from polyker.bridge.jax.targets import target_of
from polyker.bridge.splitting import SplitRule
from polyker.codegen.llvm.jit.own import host_triple
from polyker.errors.base import failure
from polyker.errors.jax import NO_JAX_PLATFORM
from polyker.ir.dtypes import TensorType
from polyker.options import Options

_COMBINE: dict[str, Callable[..., Any]] = {"add": jax.lax.psum, "max": jax.lax.pmax, "min": jax.lax.pmin}


class JaxCall(Struct, frozen=True):
    """A call of an operator: the sizes given by keyword, the options, and the types of its inputs and outputs.

    `symbolic`: extents are expressions of JAX's, which names stand for in the inputs' types.
    """

    source: JaxSource
    sizes: tuple[tuple[str, int], ...]
    chosen: Options
    types: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    symbolic: bool = False

    def __repr__(self) -> str:
        sides = (", ".join(map(str, side)) for side in (self.types, self.results))
        return f"{self.source}({') -> ('.join(sides)})"

    @property
    def rule(self) -> SplitRule | None:
        """How it splits over devices; None where no dimension does."""
        if self.symbolic:
            return None
        shapes = ([tuple(map(int, t.shape)) for t in side] for side in (self.types, self.results))
        found = self.source.rule(*shapes)
        factors = set() if found is None else {f for row in (*found.inputs, *found.outputs) for f in row}
        return found if found is not None and factors > found.whole else None

    def shardings(self, avals: Sequence[Any]) -> list[PartitionSpec]:
        """Return over which axes of a mesh the results are split, of a mesh whose axes the types of arrays speak of."""
        rule = self.rule
        if rule is None:
            return [PartitionSpec()] * len(self.results)
        axes = _axes(rule, avals, ())
        return [PartitionSpec(*(axes.get(f) for f in row)) for row in rule.outputs]


def call_on(source: JaxSource, arrays: Sequence[Any], sizes: Mapping[str, int], chosen: Options) -> JaxCall:
    """Return the call of an operator on arrays or tracers; raises ShapeError and DTypeError as any call does."""
    unknown: dict[Any, str] = {}  # extents, and names for them that no program has

    def named(extent: Any) -> str:
        return unknown.setdefault(extent, f"extent_{len(unknown)}_of_jax")

    given = [array_type(a, name, named) for name, a in zip(source.signature.inputs, arrays, strict=True)]
    for name, found in zip(source.signature.inputs, given, strict=True):
        if not found.weak:
            check_width(name, found)
    if unknown:
        results = results_of(source.symbolic(given, sizes, chosen).record, [a.shape for a in arrays])
        for name, found in zip(source.signature.outputs, results, strict=True):
            check_width(name, found)
        return JaxCall(source, tuple(sizes.items()), chosen, tuple(given), results, symbolic=True)
    types, results = source.results(given, sizes, chosen)
    return JaxCall(source, tuple(sizes.items()), chosen, types, results)


def computed(call: JaxCall, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Return the results of a call, by the custom call of its kernel, which is compiled now."""
    sizes = dict(call.sizes)
    if call.symbolic:
        executable = call.source.symbolic(call.types, sizes, call.chosen).executable()
    else:
        executable = call.source.executable(call.types, sizes, call.chosen)
    if not executable.address:
        raise failure(NO_JAX_PLATFORM, platform=host_triple(), known="Linux")
    target = target_of(executable, checks=call.symbolic)
    scratch = target.temporaries(tuple(a.shape for a in arrays), call.chosen.scratch_bytes)
    outs = [jax.ShapeDtypeStruct(t.shape, t.dtype.numpy) for t in call.results]
    outs += [jax.ShapeDtypeStruct((scratch.size,), "uint8")] * bool(target.record.scratch)
    passed = [jax.lax.convert_element_type(a, dtype.numpy) for a, dtype in zip(arrays, target.inputs, strict=True)]
    aliases = target.aliases or None
    made = jax.ffi.ffi_call(target.name, outs, vmap_method="sequential", input_output_aliases=aliases)
    return tuple(made(*passed, **scratch.attributes)[: len(call.results)])


def partitioned(call: JaxCall, arrays: Sequence[Any], alone: Callable[..., Sequence[Any]]) -> tuple[Any, ...]:
    """Return the results of a call that XLA splits over devices as its sharding rule says; `alone`: the call on one device.

    Of the kernel for all of the arrays nothing is compiled where each device has a part.
    """
    rule = call.rule
    if rule is None:
        return computed(call, arrays)

    def every(*arrays: Any) -> tuple[Any, ...]:
        return tuple(alone(*arrays))

    def partition(mesh: Mesh, args: Any, results: Any) -> Any:
        axes = _axes(rule, args, results)
        into, out_of = (
            tuple(NamedSharding(mesh, PartitionSpec(*(axes.get(f) for f in row))) for row in side)
            for side in (rule.inputs, rule.outputs)
        )

        def part(*arrays: Any) -> tuple[Any, ...]:
            own = call_on(call.source, arrays, dict(call.sizes), call.chosen)
            return _combined(rule, axes, computed(own, arrays))

        return mesh, part, out_of, into

    def infer(mesh: Mesh, args: Any, results: Any) -> Any:
        axes = _axes(rule, args, ())
        return tuple(NamedSharding(mesh, PartitionSpec(*(axes.get(f) for f in row))) for row in rule.outputs)

    whole = custom_partitioning(every)
    outputs = {f for row in rule.outputs for f in row}
    order = list(dict.fromkeys(f for row in (*rule.inputs, *rule.outputs) for f in row))  # in which XLA numbers them
    whole.def_partition(
        partition=partition,
        infer_sharding_from_operands=infer,
        sharding_rule=str(rule),
        need_replication_factors=tuple(f for f in order if f in rule.whole),
        reduction_factors=tuple(f for f in order if f in rule.reduced and f not in outputs),
    )
    found: tuple[Any, ...] = whole(*arrays)
    return found


def _combined(rule: SplitRule, axes: Mapping[str, Any], results: Sequence[Any]) -> tuple[Any, ...]:
    """Return results of which parts were computed as the whole ones."""
    made = list(results)
    for factor, ops in rule.reduced.items():
        if axes.get(factor) is not None:
            for place, op in ops.items():
                made[place] = _COMBINE[op](made[place], axes[factor])
    return tuple(made)


def _axes(rule: SplitRule, args: Sequence[Any], results: Sequence[Any]) -> dict[str, Any]:
    """Return the axes of the mesh that each factor is split over; an axis splits one factor, into equal parts."""
    found: dict[str, Any] = {}
    used: set[str] = set()
    for rows, arrays in ((rule.outputs, results), (rule.inputs, args)):
        for row, array in zip(rows, arrays, strict=False):
            sharding = array.sharding
            spec = tuple(sharding.spec) if isinstance(sharding, NamedSharding) else ()
            for factor, extent, axis in zip(row, array.shape, spec, strict=False):
                if axis is None or factor in found or factor in rule.whole:
                    continue
                names = axis if isinstance(axis, tuple) else (axis,)
                if used.isdisjoint(names) and extent % prod(sharding.mesh.shape[n] for n in names) == 0:
                    found[factor] = axis
                    used.update(names)
    return found


def _nothing(array: Any) -> Any:
    return array


def _marker() -> Any:
    """Return what says, among a primitive's parameters, that its lowering needs to know the devices, as a partition does."""
    same = custom_partitioning(_nothing)
    same.def_partition(
        partition=lambda mesh, args, result: (mesh, _nothing, result.sharding, tuple(a.sharding for a in args)),
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
        sharding_rule="->",
    )
    return jax.make_jaxpr(same)(0.0)


PARTITIONED = _marker()
