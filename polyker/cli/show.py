"""`polyker show`: an operator at a stage of its compilation, as text or as a JSON object, and how long its kernel takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click
from msgspec.structs import asdict

import polyker as pk
from polyker.cli.given import KernelOptions, called, read_type, with_sizes
from polyker.cli.random_inputs import random_inputs
from polyker.explain.report import Explanation


def show_operator(
    text: str, arguments: Mapping[str, str], stage: str, options: KernelOptions, *, timed: bool, as_json: bool
) -> str:
    """Return an operator at a stage; only `program` can be shown without types. `timed`: measured on random inputs, too."""
    operator = pk.op(text)
    if not arguments and stage == "program" and not timed and options.schedule is None:
        return _json(operator, stage, str(operator.program), {}) if as_json else str(operator)
    given = {name: read_type(name, value) for name, value in arguments.items()}
    kernel = options.kernel(operator, with_sizes(operator, given))
    explanation: Explanation | None = None
    if timed:
        positional, keyword = called(operator, {**kernel.fixed, **random_inputs(kernel)})
        try:
            explanation = kernel.measure(*positional, **keyword)
        except pk.GatherError as error:
            advice = "random inputs subscript outside of a tensor: measure on your own, with `polyker run --time`"
            raise click.ClickException(f"{advice}\nGatherError: {error}") from None
    elif stage == "explain":
        explanation = kernel.explain()
    shown = str(explanation) if stage == "explain" else kernel.source(stage).rstrip("\n")
    if as_json:
        return _json(operator, stage, shown, _details(operator, kernel, stage, explanation, options))
    return f"{shown}\n{explanation.measured}" if timed and explanation and stage != "explain" else shown


def _details(
    operator: pk.Operator, kernel: pk.Kernel, stage: str, explanation: Explanation | None, options: KernelOptions
) -> dict[str, Any]:
    """Return what the JSON object of a kernel says beside its text."""
    positional, keyword = called(
        operator, {**kernel.fixed, **dict(zip(kernel.program.inputs, kernel.types, strict=True))}
    )
    found = operator.infer(*positional, **keyword)
    outputs = found if len(operator.program.outputs) > 1 else (found,)
    details: dict[str, Any] = {
        "target": kernel.target,
        "inputs": _typed(kernel.program.inputs, kernel.types),
        "outputs": _typed(kernel.program.outputs, outputs),
        "sizes": kernel.fixed,
        "measured": asdict(explanation.measured) if explanation and explanation.measured else None,
    }
    if stage == "explain" and explanation is not None:
        details["explanation"] = explanation.to_dict()
    elif stage == "passes":
        details["passes"] = [asdict(p) for p in kernel.explain().passes]
    elif stage == "schedule":
        schedule = kernel.schedule
        if not isinstance(schedule, pk.Schedule):  # indices were joined, which steps do not tell: the start of an edit
            with options.in_force():
                schedule = operator._schedule(positional, {"target": kernel.target}, keyword)
        details["schedule"] = json.loads(schedule.to_json())
    return details


def _typed(names: Any, types: Any) -> list[dict[str, str]]:
    return [{"name": name, "type": str(t)} for name, t in zip(names, types, strict=True)]


def _json(operator: pk.Operator, stage: str, shown: str, details: Mapping[str, Any]) -> str:
    program = operator.program
    bare: dict[str, Any] = {
        "stage": stage,
        "operator": str(program),
        "target": None,
        "inputs": [{"name": name, "type": None} for name in program.inputs],
        "outputs": [{"name": name, "type": None} for name in program.outputs],
        "sizes": {},
        "measured": None,
    }
    return json.dumps({**bare, **details, "text": shown}, indent=1, allow_nan=False)
