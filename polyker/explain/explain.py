"""Put an explanation together from a compiled program: what was written, what was made of it, and the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from polyker.codegen.artifact import Artifact, ScheduledPart
from polyker.codegen.ir.kernel import For, KernelIR, LoopKind
from polyker.codegen.ir.walk import statements
from polyker.cost.memory import passed
from polyker.edit.names import ShownNames, named
from polyker.explain import operations
from polyker.explain.amounts import Amounts
from polyker.explain.decisions import decisions_of
from polyker.explain.intermediates import arena_bytes, intermediates_of, whole_bytes
from polyker.explain.levels import levels_of
from polyker.explain.rates import Rates, names
from polyker.explain.report import Amount, Explanation, Intermediate, LeastTime, LevelTraffic, PassTime
from polyker.explain.traffic import moved_bytes
from polyker.ir.decision import Decision, PassRun
from polyker.ir.typed import Role, TypedProgram
from polyker.machine.model import Gpu, Target
from polyker.poly.isl import isl_job
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.structs import replace


def explain(
    artifact: Artifact, target: Target, values: Mapping[str, int], rates: Rates | None, title: str
) -> Explanation:
    """Return the explanation of a compiled program.

    `values`: symbolic sizes that are known, by generated name. `rates`: those of this machine, where they were measured.
    """
    typed, parts = artifact.typed, _parts_of(artifact)
    with isl_job("explain"):
        whole = written, shown = named(typed, extract_reductions(typed))
        labels = _labels(written)
        amounts = Amounts(written, values)
        work = operations.work_of(written, amounts, shown.statements, labels)
        moved = moved_bytes(written, amounts, labels)
        flops: Amount = sum((w.flops for w in work), 0)
        total: Amount = sum((m.read + m.written for m in moved), 0)
        arithmetic = operations.cycles(written, amounts, target)
        told = [
            _told(
                part,
                whole if part.typed is typed else named(part.typed, extract_reductions(part.typed)),
                values,
                target,
            )
            for part in parts
        ]
        scheduled: Amount = sum((part.calls * one.flops for part, one in zip(parts, told, strict=True)), 0)
        if amounts.fixed:
            arithmetic = min(arithmetic, sum(p.calls * one.cycles for p, one in zip(parts, told, strict=True)))
        levels = _summed([(part.calls, one.levels) for part, one in zip(parts, told, strict=True)])
        found = tuple(i for one in told for i in one.intermediates) + _between(artifact, written, amounts, labels)
        peak = arena_bytes(artifact.kernel, values) if amounts.fixed else _sum_of(found)
    chosen, refused = (
        tuple(dict.fromkeys(d for one in told for d in getattr(one, which))) for which in ("chosen", "refused")
    )
    if artifact.parts:
        chosen = (*map(_cut, artifact.parts), *chosen)
    return Explanation(
        title=title,
        statements=tuple(work),
        flops=flops,
        scheduled_flops=scheduled,
        arguments=tuple(moved),
        bytes=total,
        intensity=flops / total if not isinstance(total, int) or total else 0.0,
        levels=levels,
        intermediates=found,
        peak_bytes=peak,
        floor=_floor(arithmetic, total, target, rates, max(_threads(part.kernel) for part in parts)),
        decisions=chosen,
        refused=refused,
        passes=_passes(artifact.steps),
    )


class _Told(Struct, frozen=True, eq=False):
    """What is told of one schedule: fields as of an Explanation."""

    flops: Amount
    cycles: float
    levels: tuple[LevelTraffic, ...]
    intermediates: tuple[Intermediate, ...]
    chosen: tuple[Decision, ...]
    refused: tuple[Decision, ...]


def _parts_of(artifact: Artifact) -> tuple[ScheduledPart, ...]:
    """Return the parts of a kernel; one that is compiled as a whole is its only part."""
    if artifact.scheduled is None:
        return artifact.parts
    sizes = {name: name for name, _ in artifact.typed.sizes}
    loops = artifact.loops or artifact.kernel
    return (ScheduledPart(artifact.typed, artifact.scheduled, artifact.kernel, loops, 1, sizes),)


def _told(
    part: ScheduledPart, as_written: tuple[TypedProgram, ShownNames], values: Mapping[str, int], target: Target
) -> _Told:
    """Return what is to be told of a part; `as_written`: its program with inline reductions as statements, with its names."""
    typed, (program, schedule) = part.typed, part.scheduled
    known = {own: values[whole] for own, whole in part.sizes.items() if whole in values}
    written, shown = as_written
    program, own = named(typed, program)
    labels = _labels(program) | _labels(written)
    amounts, later = Amounts(written, known), Amounts(program, known)
    levels: tuple[LevelTraffic, ...] = ()
    if amounts.fixed and target.gpu is None:
        kept = [t.name for t in typed.tensors if t.role is Role.INOUT]
        levels = levels_of(part.loops, later.values, target, kept)
    found = tuple(intermediates_of(written, program, schedule, part.kernel, (amounts, later), labels))
    users = {**labels, **shown.indices, **own.indices, **shown.statements, **own.statements}
    chosen, refused = decisions_of(schedule, users)
    cycles = operations.cycles(program, later, target) if amounts.fixed else 0.0
    return _Told(operations.total_flops(program, later), cycles, levels, found, chosen, refused)


def _summed(levels: Sequence[tuple[int, tuple[LevelTraffic, ...]]]) -> tuple[LevelTraffic, ...]:
    """Return what all calls of all parts move between the levels."""
    if not all(found for _, found in levels):
        return ()
    return tuple(
        LevelTraffic(
            same[0].near,
            same[0].far,
            sum(n * one.read for (n, _), one in zip(levels, same, strict=True)),
            sum(n * one.written for (n, _), one in zip(levels, same, strict=True)),
        )
        for same in zip(*(found for _, found in levels), strict=True)
    )


def _between(
    artifact: Artifact, written: TypedProgram, amounts: Amounts, labels: Mapping[str, str]
) -> tuple[Intermediate, ...]:
    """Return the temporaries that parts pass to each other."""
    if not artifact.parts:
        return ()
    names = {t.name for t in written.tensors}
    found = []
    for tensor in artifact.scratch:
        if tensor.name in names:
            whole = whole_bytes(written, tensor.name, tensor.dtype, amounts)
            found.append(Intermediate(labels[tensor.name], whole, "memory", whole, True, "between kernels"))
    return tuple(found)


def _cut(part: ScheduledPart) -> Decision:
    """Return the decision that made a part."""
    labels = {t.name: t.label for t in part.typed.tensors}
    targets = list(dict.fromkeys(labels[s.target] for s in part.typed.statements()))
    shown = ", ".join(targets[:4]) + (f" and {len(targets) - 4} more" if len(targets) > 4 else "")
    calls = "" if part.calls == 1 else f", which is called {part.calls} times, for statements alike"
    return Decision("", f"{shown}: a kernel of its own{calls}", made_by="parts")


def _passes(steps: tuple[PassRun, ...]) -> tuple[PassTime, ...]:
    """Return the passes that changed something or took a millisecond, each once, in the order of their first run."""
    found: dict[str, PassTime] = {}
    for s in steps:
        known = found.get(s.name, PassTime(s.name, s.level, 0.0, False))
        changed = known.changed or (s.changed and not s.given_up)
        found[s.name] = PassTime(s.name, s.level, known.seconds + s.seconds, changed)
    return tuple(p for p in found.values() if p.changed or p.seconds >= 1e-3)


def _labels(program: TypedProgram) -> dict[str, str]:
    return {t.name: t.label for t in program.tensors} | dict(program.sizes) | dict(program.labels)


def _sum_of(found: tuple[Intermediate, ...]) -> Amount:
    """Return the bytes of the temporaries in memory as if none shared it: at most so many are needed."""
    return sum((t.bytes for t in found if t.place == "memory"), 0)


def _threads(kernel: KernelIR) -> int:
    """Return the threads on which its parallel loops run."""
    found = (s.lanes for s in statements(kernel.body) if isinstance(s, For) and s.kind is LoopKind.PARALLEL)
    return max(found, default=1)


def _floor(arithmetic: Amount, total: Amount, target: Target, rates: Rates | None, threads: int) -> LeastTime:
    """Return the floor: of so many cores that have the bandwidth of one each; with symbolic sizes, of bytes from memory."""
    if target.gpu is not None:
        return _gpu_floor(arithmetic, total, target, target.gpu)
    arithmetic, share = arithmetic / threads, total / threads
    levels = names(target)
    level = levels[-1]
    cycles = share * _per_byte(target, len(target.caches))
    if isinstance(total, int):
        number = next((n for n, c in enumerate(target.caches) if total <= c.usable), len(target.caches))
        level, cycles = levels[number], share * _per_byte(target, number)
    if rates is None or not isinstance(total, int):
        return LeastTime(arithmetic, cycles, level, threads)
    second = rates.flops["f32"] / (2 * target.lanes(4) * target.fma_per_cycle)  # cycles of the model's
    return LeastTime(arithmetic, cycles, level, threads, float(arithmetic) / second, share / rates.bandwidth[level])


def _gpu_floor(arithmetic: Amount, total: Amount, target: Target, gpu: Gpu) -> LeastTime:
    """Return the floor of a GPU, from its published figures."""
    floor = LeastTime(arithmetic / target.cores, total * gpu.clock / gpu.bandwidth, "memory", target.cores)
    if not isinstance(total, int):
        return floor
    return replace(floor, arithmetic_seconds=floor.arithmetic / gpu.clock, memory_seconds=total / gpu.bandwidth)


def _per_byte(target: Target, level: int) -> float:
    """Return the cycles a byte from a level, 0 the first cache: two loads a cycle there; as exactly as rates are known."""
    size = target.caches[level - 1].size if level else 0
    return max(1 / (2 * target.vector_bytes), float(f"{passed(target, size):.2g}"))
