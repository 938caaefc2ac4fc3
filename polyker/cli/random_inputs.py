"""Random inputs of a kernel, to measure it without data."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

import polyker as pk
from polyker.errors.base import escape
from polyker.ir.dtypes import DType
from polyker.ir.expr import Expr, Literal, Read, walk
from polyker.ir.typed import TypedProgram

INTEGERS = 10  # of inputs that subscript nothing: from 0 up to it


def random_inputs(kernel: pk.Kernel) -> dict[str, Any]:
    """Return arrays of a kernel's types by name: floats from 0 to 1, integers that subscript a tensor inside of it.

    Raises click.UsageError where a size has no number.
    """
    names = dict.fromkeys(n for t in kernel.types for n in t.shape if isinstance(n, str))
    names |= dict.fromkeys(n for n in kernel.program.sizes if n not in kernel.fixed)
    unknown = [n for n in names if n not in kernel.fixed]
    if unknown:
        shown = " ".join(f"{escape(n)}=100" for n in unknown)
        raise click.UsageError(f"--time needs a number for each size; write for example {shown}")
    rng = np.random.default_rng(0)
    limits = gather_limits(kernel._compiled.typed)
    inputs = zip(kernel.program.inputs, kernel.types, strict=True)
    return {name: _random(rng, t.dtype, t.shape, limits.get(name, INTEGERS)) for name, t in inputs}


def gather_limits(typed: TypedProgram) -> dict[str, int]:
    """Return of each tensor that subscripts others, by the user's name, the least extent that it subscripts."""
    found: dict[str, int] = {}

    def note(tensor: str, subscripts: tuple[Expr, ...]) -> None:
        for subscript, extent in zip(subscripts, typed.tensor(tensor).shape, strict=True):
            for read in (e for e in walk(subscript) if isinstance(e, Read)):
                name = typed.tensor(read.tensor).label
                if isinstance(extent, Literal) and isinstance(extent.value, int):
                    found[name] = min(found.get(name, extent.value), extent.value)

    for statement in typed.statements():
        note(statement.target, statement.subscripts)
        for read in statement.reads():
            note(read.tensor, read.subscripts)
    return found


def _random(rng: np.random.Generator, dtype: DType, shape: Any, limit: int) -> Any:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        highest = min(max(1, limit), int(np.iinfo(dtype.numpy).max) + 1)
        return rng.integers(0, highest, shape, dtype=dtype.numpy.type)
    if dtype.itemsize >= 4 and dtype.is_float:
        return rng.random(shape, dtype=dtype.numpy.type)
    values = rng.random(shape, np.float32)
    return (values + 1j * rng.random(shape, np.float32) if dtype.is_complex else values).astype(dtype.numpy)
