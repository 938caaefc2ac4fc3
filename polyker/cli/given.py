"""What stands on the command line: an operator's text, values and types by name, and how a kernel is made."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import takewhile
from typing import Any, BinaryIO

import click
from msgspec import Struct

import polyker as pk
from polyker.errors.base import escape
from polyker.ir.dtypes import TensorType, parse_type
from polyker.structs import replace

INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
STANDARD = "-"  # standard input or output, in the place of a file
MAX_TEXT_BYTES, MAX_SCHEDULE_BYTES = 1 << 20, 1 << 24


def read_text(text: str) -> str:
    """Return the operator's text: from the file where it is `@FILE`, from standard input where it is `-`.

    Raises click.ClickException where that is no text, OSError where there is no such file.
    """
    if text == STANDARD:
        return _decoded("standard input", standard_input().read(MAX_TEXT_BYTES + 1), MAX_TEXT_BYTES)
    return read_utf8(text[1:], MAX_TEXT_BYTES) if text.startswith("@") else text


def read_utf8(path: str, limit: int) -> str:
    """Return what a file of text holds; raises click.ClickException where it is no text, or is over `limit` bytes."""
    with open(path, "rb") as file:
        return _decoded(escape(path), file.read(limit + 1), limit)


def _decoded(where: str, data: bytes, limit: int) -> str:
    if len(data) > limit:
        raise click.ClickException(f"{where}: a text is not over {limit} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise click.ClickException(f"{where}: not a text in UTF-8") from None


def standard_input() -> BinaryIO:
    """Return standard input, of bytes; raises click.ClickException where it is closed."""
    if sys.stdin is None:
        raise click.ClickException("standard input is closed")
    return sys.stdin.buffer


def check_standard_input(given: Iterable[str]) -> None:
    """Check that standard input stands for one thing; raises click.UsageError."""
    if list(given).count(STANDARD) > 1:
        raise click.UsageError("standard input (-) can be read once: give files for the others")


def split_assignments(arguments: Sequence[str]) -> dict[str, str]:
    """Return `NAME=VALUE` arguments as a dictionary; raises click.UsageError on others and on a name given twice."""
    result: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name or not value:
            raise click.UsageError(f"{escape(argument)!r} is not NAME=VALUE")
        if name in result:
            raise click.UsageError(f"{escape(name)!r} is given twice")
        result[name] = value
    return result


def read_type(name: str, given: str) -> TensorType | int:
    """Return a type, or a size, that stands on the command line; raises click.ClickException."""
    if INTEGER.fullmatch(given):
        return int(given)
    try:
        return parse_type(given)
    except ValueError as error:
        raise click.ClickException(f"{escape(name)}: {escape(str(error))}, or 5 for a size") from None


def with_sizes(operator: pk.Operator, given: Mapping[str, TensorType | int]) -> dict[str, TensorType | int]:
    """Return types and sizes by name, with the numbers in the types of those symbols that have one."""
    numbers = {name: value for name, value in given.items() if isinstance(value, int)}
    found: dict[str, TensorType | int] = {}
    used: set[str] = set()
    for name, value in given.items():
        if isinstance(value, TensorType):
            used |= {*value.shape} & {*numbers}  # type: ignore[arg-type]
            value = replace(value, shape=tuple(numbers.get(n, n) if isinstance(n, str) else n for n in value.shape))
        found[name] = value
    own = (*operator.program.parameters, *operator.program.sizes)
    return {name: value for name, value in found.items() if name in own or name not in used}


def called(operator: pk.Operator, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return values as positional and keyword arguments: by position where possible, as `out` is a fine tensor name."""
    given = list(takewhile(values.__contains__, operator.program.parameters))
    return [values[name] for name in given], {name: v for name, v in values.items() if name not in given}


class KernelOptions(Struct, frozen=True):
    """How a kernel is made: its target, the most threads that run it, the file of its schedule; None for polyker's choice."""

    target: str | None = None
    threads: int | None = None
    schedule: str | None = None

    @property
    def compiles(self) -> bool:
        """Whether they ask for a kernel of its own, not for what a call of the operator runs."""
        return self.target is not None or self.schedule is not None

    def in_force(self) -> AbstractContextManager[object]:
        """Return the block of code in which kernels are made for that many threads."""
        return pk.options() if self.threads is None else pk.options(threads=self.threads)

    def kernel(self, operator: pk.Operator, values: Mapping[str, Any]) -> pk.Kernel:
        """Return an operator's kernel for arrays, types and sizes by name; raises as `Operator.compile` does."""
        positional, keyword = called(operator, values)
        with self.in_force():
            schedule = None if self.schedule is None else self._schedule(operator, positional, keyword)
            return operator._kernel(positional, {"target": self.target, "schedule": schedule}, keyword)

    def _schedule(self, operator: pk.Operator, types: Sequence[Any], named: Mapping[str, Any]) -> pk.Schedule:
        """Return the schedule that a file tells, proven for these types, or for its own where none are given."""
        text: Any = read_utf8(str(self.schedule), MAX_SCHEDULE_BYTES)
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None  # which `from_json` tells better
        if isinstance(said, dict) and isinstance(said.get("schedule"), dict):  # what `polyker show --json` printed
            text = said["schedule"]
        target = {} if self.target is None or "target" in named else {"target": self.target}
        return pk.Schedule.from_json(text, operator, *types, **named, **target)
