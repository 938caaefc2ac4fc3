"""`polyker cc`: operators in files become a library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

import polyker as pk
from polyker.api.compiling import declared_type
from polyker.cli.files import read_array
from polyker.cli.given import called, read_type
from polyker.errors.base import escape
from polyker.export.names import name_of
from polyker.ir.dtypes import TensorType, from_numpy


def export_files(
    files: Mapping[str, str],
    arguments: Mapping[str, str],
    output: str,
    options: Mapping[str, Any],
    constants: Mapping[str, str],
) -> Iterator[str]:
    """Compile operators, by the paths of their files, and write the library; yield a line for each file written.

    `arguments`: types and sizes by name, of whichever operators have them. `options`: target, threads, level, static_scratch.
    """
    given = {name: read_type(name, value) for name, value in arguments.items()}
    arrays = {name: read_array(name, path) for name, path in constants.items()}
    for name, array in arrays.items():
        dtype = from_numpy(array.dtype)
        if dtype is None:
            raise click.ClickException(f"{escape(name)}: an array of {array.dtype}, which is no element type")
        given[name] = dtype[array.shape]
    web = Path(output).suffix in (".wasm", ".html")
    target = "wasm32" if options["target"] is None and web else options["target"]
    kernels = {}
    used: set[str] = set()
    for path, text in files.items():
        operator = pk.op(text)
        own = {n: v for n, v in given.items() if n in (*operator.program.parameters, *operator.program.sizes)}
        used |= set(own)
        positional, keyword = called(operator, own | _declared(operator, own) if own else {})
        chosen = {"target": target, "threads": options["threads"]}
        name = operator.program.name or name_of(path)
        if name in kernels:
            raise click.UsageError(f"two operators are called `{name}`: name one in its text or by its file")
        kernels[name] = operator._kernel(positional, chosen, keyword)
    unused = [n for n in given if n not in used]
    if unused:
        raise click.UsageError(f"no operator has {', '.join(unused)}")
    written = pk.export_library(
        output,
        kernels,
        constants=arrays,
        static_scratch=options["static_scratch"],
        level=options["level"],
        abi=options["abi"],
    )
    for file in written:
        yield f"{file}: {file.stat().st_size:,} bytes"


def _declared(operator: pk.Operator, given: Mapping[str, Any]) -> dict[str, TensorType]:
    """Return the types of other inputs as the text declares them, with the values that given types have for their sizes."""
    signature, known = operator.signature, dict(given)
    for declared in signature.declared:
        if declared.name in given and declared.shape is not None:
            known |= dict(zip((str(n) for n in declared.shape), given[declared.name].shape, strict=False))
    types = {n: declared_type(signature, n, known, symbols=True) for n in signature.inputs if n not in given}
    return {n: t for n, t in types.items() if t is not None}


def read_files(paths: Sequence[str], read: Any) -> dict[str, str]:
    """Return the texts of files by their paths; raises click.UsageError for a path given twice."""
    found: dict[str, str] = {}
    for path in paths:
        if path in found:
            raise click.UsageError(f"{path} is given twice")
        found[path] = read(f"@{path}")
    if not found:
        raise click.UsageError("no file of an operator is given")
    return found


def split_files(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return paths and NAME=TYPE arguments: what is a file, or has no `=`, is a path."""
    paths = [g for g in given if "=" not in g or Path(g).exists()]
    return paths, [g for g in given if g not in paths]
