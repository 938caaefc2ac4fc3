"""`polyker run` and `polyker show`: arrays from files, types from text, and results back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import click
import numpy as np

import polyker as pk
from polyker.errors.base import escape
from polyker.ir.dtypes import TensorType, parse_type

INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def run_operator(text: str, arguments: Mapping[str, str], targets: Sequence[str]) -> Iterator[str]:
    """Run an operator on files and numbers; write the outputs to `targets`, or yield them as text without any."""
    operator = pk.op(text)
    positional, keyword = called(operator, {name: _value(name, given) for name, given in arguments.items()})
    result = operator(*positional, **keyword)
    outputs = result if isinstance(result, tuple) else (result,)
    named = {name: np.asarray(v) for name, v in zip(operator.program.outputs, outputs, strict=True)}
    if not targets:
        for name, value in named.items():
            yield f"{name} = {_described(value)}\n{np.array2string(value, threshold=200)}"
        return
    for name, path in _paths(targets, list(named)).items():
        _write(path, named[name])
        yield f"{name} = {_described(named[name])} -> {path}"


def called(operator: pk.Operator, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return values as positional and keyword arguments: by position where possible, as `out` is a fine tensor name."""
    given = list(takewhile(values.__contains__, operator.program.parameters))
    return [values[name] for name in given], {name: v for name, v in values.items() if name not in given}


def _described(value: np.ndarray[Any, Any]) -> str:
    return f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"


def _value(name: str, given: str) -> Any:
    """Return a number where the text is one, else the array in the file."""
    if INTEGER.fullmatch(given):
        return int(given)
    try:
        return float(given)
    except ValueError:
        return read_array(name, given)


def read_array(name: str, path: str) -> np.ndarray[Any, Any]:
    """Return the array of a .npy file; raises click.ClickException, which names the argument."""
    where = f"{escape(name)}={escape(path)}"
    if not path.endswith(".npy"):
        raise click.ClickException(f"{where}: neither a number nor a .npy file")
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise click.ClickException(f"{where}: there is no such file") from None
    except (ValueError, EOFError):
        raise click.ClickException(f"{where}: not a .npy file of numbers (pickled objects are not read)") from None
    except OSError as error:
        raise click.ClickException(f"{where}: {error.strerror}") from None
    if not isinstance(array, np.ndarray):
        raise click.ClickException(f"{where}: an archive of several arrays, not one array")
    return array


def _paths(targets: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return output -> path; a path without a name is allowed where there is one output."""
    paths: dict[str, str] = {}
    for target in targets:
        name, equals, path = target.partition("=")
        if equals and name in names:
            pass
        elif len(names) == 1 and len(targets) == 1:
            name, path = names[0], target
        else:
            raise click.UsageError(f"-o {escape(target)}: write NAME=FILE, where NAME is one of {', '.join(names)}")
        if name in paths or not path:
            raise click.UsageError(f"-o {escape(target)}: {'given twice' if path else 'no file'}")
        paths[name] = path
    return paths


def _write(path: str, array: np.ndarray[Any, Any]) -> None:
    # Through an open file: np.save would append .npy to the name, and only the path given is to be written.
    with open(path, "wb") as file:
        np.save(file, array, allow_pickle=False)


def show_operator(text: str, arguments: Mapping[str, str], stage: str, target: str | None) -> str:
    """Return an operator's printed form at a stage; only `program` can be shown without types."""
    operator = pk.op(text)
    if not arguments and stage == "program":
        return str(operator)
    types = {name: read_type(name, given) for name, given in arguments.items()}
    positional, keyword = called(operator, types)
    kernel = operator._kernel(positional, {"target": target}, keyword)  # a size may be called `target`
    return str(kernel.explain() if stage == "explain" else kernel.source(stage)).rstrip("\n")


def read_type(name: str, given: str) -> TensorType | int:
    """Return a type, or a size, that stands on the command line; raises click.ClickException."""
    if INTEGER.fullmatch(given):
        return int(given)
    try:
        return parse_type(given)
    except ValueError as error:
        raise click.ClickException(f"{escape(name)}: {escape(str(error))}, or 5 for a size") from None
