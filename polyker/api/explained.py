"""The explanation of a kernel: for sizes by name, or for a run on arrays, which is timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct

from polyker.api.targets import target_named
from polyker.errors.base import failure
from polyker.errors.calls import NO_SUCH_SIZE
from polyker.errors.spelling import suggestion
from polyker.explain.explain import explain
from polyker.explain.rates import measured as measured_rates
from polyker.explain.rates import stored
from polyker.explain.report import Explanation
from polyker.process.jobs import run_exclusively
from polyker.record.records import Signature
from polyker.runtime.arguments import matched, size_value
from polyker.runtime.arrays import operand
from polyker.runtime.compiled import Compiled
from polyker.structs import replace

LEAST_RUNS, MOST_RUNS = 5, 10_000


def explained(subject: ExplainedKernel, sizes: Mapping[str, int]) -> Explanation:
    """Return the explanation of a compiled program; `sizes`: values of its symbolic sizes by their labels.

    Raises ArgumentError for a name that is none of them.
    """
    symbols = {label: name for name, label in subject.compiled.typed.sizes}
    values = {}
    for name, value in sizes.items():
        if name not in symbols:
            meant, known = suggestion(name, symbols), ", ".join(symbols) or "none"
            raise failure(NO_SUCH_SIZE, name=name, meant=meant, sizes=known)
        values[symbols[name]] = size_value(name, value)
    return _explained(subject, values)


def _explained(subject: ExplainedKernel, values: Mapping[str, int]) -> Explanation:
    executable, target = subject.compiled.executable(), target_named(subject.target)
    artifact = executable.artifact()
    rates = stored() if subject.target == "cpu" else None
    found = run_exclusively(lambda: explain(artifact, target, values, rates, subject.title))
    return replace(found, origin=executable.origin)


class ExplainedKernel(Struct, frozen=True):
    """A kernel: the function that calls it, its signature, the sizes that it fixes, its target."""

    call: Callable[..., Any]
    signature: Signature
    fixed: Mapping[str, int]
    compiled: Compiled
    target: str
    title: str


def measured(subject: ExplainedKernel, args: Sequence[Any], named: Mapping[str, Any], seconds: float) -> Explanation:
    """Return the explanation of a kernel with the median time of calls on these arrays, repeated for about so many seconds."""
    kernel, owns_out = subject.call, "out" in subject.signature.own_names(len(args))
    out = {"out": named["out"]} if named.get("out") is not None and not owns_out else {}
    others = {n: v for n, v in named.items() if n not in out and (n != "out" or owns_out)}
    result = kernel(*args, **named)
    if (
        not out
        and not owns_out
        and not isinstance(result, (int, float, complex))
        and getattr(result, "shape", True) != ()
    ):
        out = {"out": result}  # so that no call waits for fresh memory
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST_RUNS or (time.perf_counter() < end and len(times) < MOST_RUNS):
        start = time.perf_counter()
        kernel(*args, **out, **others)
        times.append(time.perf_counter() - start)
    if stored() is None:
        measured_rates()
    inputs, given = _matched(subject.signature, args, {**subject.fixed, **others})
    operands = [operand(v, n) for n, v in zip(subject.signature.inputs, inputs, strict=True)]
    values = subject.compiled.sizes(operands, given)
    return _explained(subject, values).with_run(median(times), len(times))


def _matched(signature: Signature, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, int]]:
    first = signature.parameters[: len(args)]
    inputs, sizes = matched(signature, args, {n: v for n, v in named.items() if n not in first})
    return inputs, {n: size_value(n, v) for n, v in sizes.items()}
