"""A step as data, in the user's names: checked, printed as the call that makes it, and told in JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from polyker.errors.base import ScheduleError, failure
from polyker.errors.given import exact_text, integer, printed
from polyker.errors.schedules import BAD_STEP

MEMORIES = ("registers", "stack", "scratch", "shared")
ARGUMENT_LIMIT = 1 << 31
_MAX_SHOWN = 32  # loops of one step, characters of a list


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
                said[name] = _plain(value, FORMS[self.name].kinds[name] in (_sizes, _offsets))
        return said


def call_text(step: EditStep) -> str:
    """Return a step as the method call that makes it."""
    parts: list[str] = []
    for name, value in step.arguments:
        kind = FORMS[step.name].kinds[name]
        if kind in (_sizes, _offsets):
            pairs = [(k, str(v)) for k, v in value]
        elif kind is _lean:
            pairs = [(value[0], repr(value[1]))]
        elif kind in (_names, _name):
            parts += [f'"{v}"' for v in ((value,) if isinstance(value, str) else value)]
            continue
        elif value is None:
            continue
        else:
            pairs = [(name, repr(value).replace("'", '"'))]
        if all(k.isidentifier() for k, _ in pairs):
            parts += [f"{k}={v}" for k, v in pairs]
        else:
            parts.append("{" + ", ".join(f'"{k}": {v}' for k, v in pairs) + "}")
    return f"{step.name}({', '.join(parts)})".replace("'", '"')


def _plain(value: Any, pairs: bool) -> Any:
    if pairs:
        return dict(value)
    return [_plain(v, False) for v in value] if isinstance(value, tuple) else value


class _Bad(Exception):
    """What is wrong with an argument, in words."""


def _integer(value: object, least: int) -> int:
    number = integer(value)
    if number is None or not least <= number <= ARGUMENT_LIMIT:
        raise _Bad(f"{printed(value)} is no whole number from {least} to {ARGUMENT_LIMIT}")
    return number


def _text(value: object) -> str:
    text = exact_text(value)
    if not text or len(text) > 1000:
        raise _Bad(f"{printed(value)} is no name")
    return text


def _sizes(value: object) -> tuple[tuple[str, int], ...]:
    return _pairs(value, 1)


def _offsets(value: object) -> tuple[tuple[str, int], ...]:
    return _pairs(value, -ARGUMENT_LIMIT)


def _pairs(value: object, least: int) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, Mapping) or not 0 < len(value) <= _MAX_SHOWN:
        raise _Bad("there is no loop with a number")
    return tuple((_text(k), _integer(v, least)) for k, v in value.items())


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not 2 <= len(value) <= _MAX_SHOWN:
        raise _Bad("there are not two loops or more, the outermost first,")
    found = tuple(_text(v) for v in value)
    if len(set(found)) < len(found):
        raise _Bad("a loop is named twice")
    return found


def _lean(value: object) -> tuple[str, str]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise _Bad("there are not two loops")
    one, other = _text(value[0]), _text(value[1])
    if one == other:
        raise _Bad("a loop leans on itself")
    return one, other


def _name(value: object) -> str:
    return _text(value)


def _maybe(value: object) -> str | None:
    return None if value is None else _text(value)


def _memory(value: object) -> str | None:
    text = exact_text(value)
    if value is not None and text not in MEMORIES:
        raise _Bad(f"{printed(value)} is not {', '.join(MEMORIES)}")
    return text


def _layout(value: object) -> tuple[tuple[int, int], ...] | None:
    """Return the dimensions of a buffer, outermost first, as (dimension, block); a block of 0 is the whole dimension."""
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= _MAX_SHOWN:
        raise _Bad(f"{printed(value)} is no list of dimensions")
    found = []
    for entry in value:
        pair = entry if isinstance(entry, (list, tuple)) else (entry, 0)
        if len(pair) != 2:
            raise _Bad(f"{printed(entry)} is no dimension, and no (dimension, block)")
        found.append((_integer(pair[0], 0), _integer(pair[1], 0)))
    return tuple(found)


def _swizzle(value: object) -> int | bool | None:
    if value is None or isinstance(value, bool):
        return value or None
    number = integer(value)
    if number is None or not 2 <= number <= ARGUMENT_LIMIT or number & (number - 1):
        raise _Bad(f"swizzle={printed(value)} is neither True nor a power of two from 2 on")
    return number


def _padding(value: object) -> int | None:
    if value is None:
        return None
    number = integer(value)
    if number is None or not 1 <= number <= ARGUMENT_LIMIT:
        raise _Bad(f"pad={printed(value)} is no whole number of elements from 1 to {ARGUMENT_LIMIT}")
    return number


def _check_banks(given: Mapping[str, Any]) -> None:
    """Refuse what keeps columns in other banks where there are none."""
    said = [f"{name}={given[name]!r}" for name in ("pad", "swizzle") if given[name] is not None]
    if len(said) > 1:
        raise _Bad(f"{' and '.join(said)} exclude each other")
    if said and given["memory"] != "shared":
        raise _Bad(f'{said[0]} is said of memory that is not "shared", which has no banks,')


class Form(Struct, frozen=True):
    """How a step is written, what its arguments are, what they are where they are left out, and what they may be together."""

    text: str
    kinds: Mapping[str, Callable[[object], Any]]
    default: Mapping[str, Any]
    together: Callable[[Mapping[str, Any]], None] = lambda _: None


FORMS: dict[str, Form] = {
    "tile": Form("s.tile(i=64, j=64)", {"sizes": _sizes}, {}),
    "split": Form("s.split(k=8)", {"sizes": _sizes}, {}),
    "interchange": Form('s.interchange("j", "i")', {"order": _names}, {}),
    "fuse": Form(
        's.fuse("A", "B", depth=1)',
        {"first": _name, "second": _name, "depth": lambda v: _integer(v, 1)},
        {"depth": 1},
    ),
    "distribute": Form('s.distribute("i")', {"loop": _name}, {}),
    "skew": Form(
        's.skew(j="i", factor=1)', {"loops": _lean, "factor": lambda v: _integer(v, -ARGUMENT_LIMIT)}, {"factor": 1}
    ),
    "shift": Form("s.shift(i=1)", {"offsets": _offsets}, {}),
    "reverse": Form('s.reverse("i")', {"loop": _name}, {}),
    "vectorise": Form("s.vectorise(j=8)", {"sizes": _sizes}, {}),
    "unroll": Form("s.unroll(i=4)", {"sizes": _sizes}, {}),
    "parallel": Form('s.parallel("i", threads=4)', {"loop": _name, "threads": lambda v: _integer(v, 1)}, {}),
    "map": Form('s.map(i="block.x", j="thread.x(32)")', {"loop": _name, "role": _name}, {}),
    "promote": Form(
        's.promote("A", at="k.tile", memory="stack", layout=(1, 0)), or with pad=1 or swizzle=True and memory="shared"',
        {"tensor": _name, "at": _maybe, "memory": _memory, "layout": _layout, "pad": _padding, "swizzle": _swizzle},
        {"at": None, "memory": None, "layout": None, "pad": None, "swizzle": None},
        _check_banks,
    ),
}


def step_of(name: object, statement: object, given: Mapping[str, object]) -> EditStep:
    """Return a step, its arguments checked; raises ScheduleError saying how the step is written."""
    form = FORMS.get(name) if isinstance(name, str) else None
    if form is None or not isinstance(name, str):
        raise failure(BAD_STEP, reason="there is no such step: its name has to be right", step=name, form=_all_names())
    try:
        who = None if statement is None else _text(statement)
        extra = [k for k in given if k not in form.kinds]
        if extra:
            raise _Bad(f"there is no argument {printed(extra[0])}")
        values = {**form.default, **given}
        absent = [k for k in form.kinds if k not in values]
        if absent:
            raise _Bad(f"{absent[0]!r} is missing")
        checked = {k: kind(values[k]) for k, kind in form.kinds.items()}
        form.together(checked)
        return EditStep(name, who, tuple(checked.items()))
    except _Bad as bad:
        raise failure(BAD_STEP, reason=bad, step=name, form=form.text) from None


def _all_names() -> str:
    return ", ".join(FORMS)


def step_from_json(said: object) -> EditStep:
    """Return the step that a part of a JSON text tells; raises ScheduleError."""
    if not isinstance(said, Mapping) or not all(isinstance(k, str) for k in said):
        raise failure(BAD_STEP, reason="there is no object with a name", step="?", form='{"step": "tile", ...}')
    rest = {k: v for k, v in said.items() if k not in ("step", "statement")}
    return step_of(said.get("step"), said.get("statement"), rest)


__all__ = ["FORMS", "EditStep", "Form", "ScheduleError", "call_text", "step_from_json", "step_of"]
