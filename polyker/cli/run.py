"""`polyker run`: arrays from files and numbers, through an operator, to files, to a JSON object, or printed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
from msgspec.structs import asdict

import polyker as pk
from polyker.cli.files import Array, check_output, expected, is_archive, json_values, read_array, write_arrays
from polyker.cli.given import INTEGER, STANDARD, KernelOptions, called
from polyker.cli.status import print_text
from polyker.einsum_frontend.names import did_you_mean
from polyker.errors.base import escape
from polyker.explain.report import MeasuredRun
from polyker.ir.dtypes import from_numpy
from polyker.ir.program import Program


def run_operator(
    text: str,
    arguments: Mapping[str, str],
    targets: Sequence[str],
    options: KernelOptions,
    *,
    timed: bool,
    as_json: bool,
) -> None:
    """Run an operator on files and numbers; write the outputs to `targets`, or print them where there are none.

    `timed`: measure it, too. Raises click.ClickException, and what the operator raises.
    """
    operator = pk.op(text)
    files = destinations(targets, operator.program.outputs)
    if as_json and STANDARD in files:
        raise click.UsageError("--json and -o - both write to standard output")
    values = {name: _value(operator.program, name, given) for name, given in arguments.items()}
    positional, keyword = called(operator, values)
    kernel = options.kernel(operator, values) if options.compiles or timed else None
    with options.in_force():
        result = (operator if kernel is None or not options.compiles else kernel)(*positional, **keyword)
    several = isinstance(result, tuple)
    outputs = dict(zip(operator.program.outputs, map(np.asarray, result if several else (result,)), strict=True))
    for path, names in files.items():
        write_arrays(path, {name: outputs[name] for name in names})
    measured = kernel.measure(*positional, **keyword).measured if kernel is not None and timed else None
    paths = {name: path for path, names in files.items() for name in names}
    if as_json:
        print_text(json.dumps(_as_json(operator, outputs, paths, measured), indent=1, allow_nan=False))
        return
    for name, value in outputs.items():
        if not files:
            print_text(f"{name} = {_described(value)}\n{np.array2string(value, threshold=200)}")
        elif paths.get(name, STANDARD) != STANDARD:
            click.echo(f"{name} = {_described(value)} -> {paths[name]}", err=STANDARD in files)
    if measured is not None:
        click.echo(str(measured), err=STANDARD in files)


def _described(value: Array) -> str:
    return f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"


def _as_json(
    operator: pk.Operator, outputs: Mapping[str, Array], paths: Mapping[str, str], measured: MeasuredRun | None
) -> dict[str, Any]:
    """Return what a run gave; values of outputs where none goes to a file."""
    told: list[dict[str, Any]] = []
    for name, value in outputs.items():
        dtype = from_numpy(value.dtype)
        told.append({"name": name, "type": None if dtype is None else str(dtype[value.shape])})
        if not paths:
            told[-1]["value"] = json_values(value)
        else:
            told[-1]["file"] = paths.get(name)
    return {
        "operator": str(operator.program),
        "outputs": told,
        "measured": None if measured is None else asdict(measured),
    }


def _value(program: Program, name: str, given: str) -> Any:
    """Return a number where the text is one, else the array in the file."""
    if INTEGER.fullmatch(given):
        return int(given)
    try:
        return float(given)
    except ValueError:
        return read_array(name, given, expected(program, name))


def destinations(targets: Sequence[str], outputs: Sequence[str]) -> dict[str, list[str]]:
    """Return the outputs that go to each path; raises click.UsageError for names and paths that do not fit, or come twice.

    A path without a name takes the only output, or all of them where it is a .npz file.
    """
    files: dict[str, list[str]] = {}
    for target in targets:
        name, equals, path = target.partition("=")
        if not equals or not name.isidentifier():
            path, names = target, list(outputs)
        elif name in outputs:
            names = [name]
        else:
            hint = did_you_mean(name, outputs)
            known = f"the outputs are {', '.join(outputs)}" + (f"; {hint}" if hint else "")
            raise click.UsageError(f"-o {escape(target)}: {escape(name)} is no output; {known}")
        if not path:
            raise click.UsageError(f"-o {escape(target)}: no file")
        check_output(path)
        if len(names) > 1 and not is_archive(path):
            known = f"NAME is one of {', '.join(outputs)}"
            raise click.UsageError(f"-o {escape(target)}: write NAME=FILE, where {known}; or one .npz file for all")
        if any(n in names for taken in files.values() for n in taken) or (path in files and not is_archive(path)):
            raise click.UsageError(f"-o {escape(target)}: given twice")
        files.setdefault(path, []).extend(names)
    return files
