"""A step as data, in the user's names: checked, printed as the call that makes it, and told in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import Any

from msgspec import Struct

from polyker.edit.calls import unknown_step
from polyker.edit.forms import FORMS, BadArgument, loop_offsets, loop_order, loop_pair, loop_sizes, one_name, refused
from polyker.errors.base import failure
from polyker.errors.given import printed
from polyker.errors.schedules import BAD_STEP


class EditStep(Struct, frozen=True):
    """A step: its name, the statement that it was said of (or None), and its arguments by name, in a fixed order.

    >>> print(EditStep("tile", "C", (("sizes", (("i", 8), ("j", 16))),)))
    s["C"].tile(i=8, j=16)
    """

    name: str
    statement: str | None
    arguments: tuple[tuple[str, Any], ...]

    def __getitem__(self, name: str) -> Any:
        return dict(self.arguments)[name]

    @property
    def is_for_gpu(self) -> bool:
        """Whether it gives loops to blocks and threads of a GPU, or tensors to the memory that they share."""
        return self.name == "map" or (self.name == "promote" and self["memory"] == "shared")

    def __str__(self) -> str:
        who = "s" if self.statement is None else f's["{self.statement}"]'
        return f"{who}.{call_text(self)}"

    def to_json(self) -> dict[str, Any]:
        """Return the step as what JSON holds."""
        said: dict[str, Any] = {"step": self.name}
        if self.statement is not None:
            said["statement"] = self.statement
        for name, value in self.arguments:
            if value is not None:
                said[name] = _plain(value, FORMS[self.name].kinds[name] in (loop_sizes, loop_offsets))
        return said


def call_text(step: EditStep) -> str:
    """Return a step as the method call that makes it."""
    positional: list[str] = []
    keywords: list[str] = []
    for pairs, values in _parts(step):
        if all(loop.isidentifier() and not iskeyword(loop) and loop not in _OPTIONS for loop, _ in pairs):
            keywords += [f"{loop}={_code(value)}" for loop, value in pairs]
        else:
            positional.append("{" + ", ".join(f"{_code(loop)}: {_code(value)}" for loop, value in pairs) + "}")
        positional += [_code(value) for value in values]
    for name, value in step.arguments:
        if name in _OPTIONS and value is not None:
            keywords.append(f"{name}={_code(value)}")
    return f"{step.name}({', '.join(positional + keywords)})"


_OPTIONS = ("factor", "threads", "depth", "at", "memory", "layout", "pad", "swizzle")  # said by keyword


def _parts(step: EditStep) -> Iterator[tuple[Sequence[tuple[str, Any]], Sequence[Any]]]:
    """Yield what a step says of loops: those with a value each, and names."""
    if step.name == "map":
        yield [(step["loop"], step["role"])], ()
        return
    for name, value in step.arguments:
        kind = FORMS[step.name].kinds[name]
        if kind in (loop_sizes, loop_offsets):
            yield value, ()
        elif kind is loop_pair:
            yield [value], ()
        elif kind is loop_order:
            yield (), value
        elif kind is one_name:
            yield (), [value]


def _code(value: Any) -> str:
    """Return a value as it is written in Python, texts in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _plain(value: Any, pairs: bool) -> Any:
    if pairs:
        return dict(value)
    return [_plain(v, False) for v in value] if isinstance(value, tuple) else value


def step_of(name: object, statement: object, given: Mapping[str, object]) -> EditStep:
    """Return a step, its arguments checked; raises ScheduleError saying how the step is written."""
    form = FORMS.get(name) if isinstance(name, str) else None
    if form is None or not isinstance(name, str):
        raise unknown_step(name)
    try:
        who = None if statement is None else one_name(statement)
        extra = [k for k in given if k not in form.kinds]
        if extra:
            raise BadArgument(f"there is no argument {printed(extra[0])}")
        values = {**form.default, **given}
        absent = [k for k in form.kinds if k not in values]
        if absent:
            raise BadArgument(f"{absent[0]!r} is missing")
        checked = {k: kind(values[k]) for k, kind in form.kinds.items()}
        form.together(checked)
        return EditStep(name, who, tuple(checked.items()))
    except BadArgument as bad:
        raise refused(name, str(bad)) from None


def step_from_json(said: object) -> EditStep:
    """Return the step that a part of a JSON text tells; raises ScheduleError."""
    if not isinstance(said, Mapping) or not all(isinstance(k, str) for k in said):
        raise failure(BAD_STEP, reason="there is no object with a name", step="?", form='{"step": "tile", ...}')
    rest = {k: v for k, v in said.items() if k not in ("step", "statement")}
    return step_of(said.get("step"), said.get("statement"), rest)
