"""The steps, how each is written, and what its arguments are: checked one by one, then together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from polyker.errors.base import PolykerError, failure
from polyker.errors.given import exact_text, integer, printed
from polyker.errors.schedules import BAD_STEP

MEMORIES = ("registers", "stack", "scratch", "shared")
ARGUMENT_LIMIT = 1 << 31
_MAX_SHOWN = 32  # loops of one step, characters of a list


class BadArgument(Exception):
    """What is wrong with an argument, in words."""


def _integer(value: object, least: int) -> int:
    number = integer(value)
    if number is None or not least <= number <= ARGUMENT_LIMIT:
        raise BadArgument(f"{printed(value)} is no whole number from {least} to {ARGUMENT_LIMIT}")
    return number


def one_name(value: object) -> str:
    """Return a name; raises BadArgument."""
    text = exact_text(value)
    if not text or len(text) > 1000:
        raise BadArgument(f"{printed(value)} is no name")
    return text


def loop_sizes(value: object) -> tuple[tuple[str, int], ...]:
    """Return loops with a size of 1 or more each; raises BadArgument."""
    return _pairs(value, 1)


def loop_offsets(value: object) -> tuple[tuple[str, int], ...]:
    """Return loops with a number of iterations each; raises BadArgument."""
    return _pairs(value, -ARGUMENT_LIMIT)


def _pairs(value: object, least: int) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, Mapping) or not 0 < len(value) <= _MAX_SHOWN:
        raise BadArgument("there is no loop with a number")
    return tuple((one_name(k), _integer(v, least)) for k, v in value.items())


def loop_order(value: object) -> tuple[str, ...]:
    """Return two loops or more, each once; raises BadArgument."""
    if not isinstance(value, (list, tuple)) or not 2 <= len(value) <= _MAX_SHOWN:
        raise BadArgument("there are not two loops or more, the outermost first,")
    found = tuple(one_name(v) for v in value)
    if len(set(found)) < len(found):
        raise BadArgument("a loop is named twice")
    return found


def loop_pair(value: object) -> tuple[str, str]:
    """Return a loop and the one that it leans on; raises BadArgument."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise BadArgument("there are not two loops")
    one, other = one_name(value[0]), one_name(value[1])
    if one == other:
        raise BadArgument("a loop leans on itself")
    return one, other


def _maybe(value: object) -> str | None:
    return None if value is None else one_name(value)


def _memory(value: object) -> str | None:
    text = exact_text(value)
    if value is not None and text not in MEMORIES:
        raise BadArgument(f"{printed(value)} is not {', '.join(MEMORIES)}")
    return text


def _layout(value: object) -> tuple[tuple[int, int], ...] | None:
    """Return the dimensions of a buffer, outermost first, as (dimension, block); a block of 0 is the whole dimension."""
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= _MAX_SHOWN:
        raise BadArgument(f"{printed(value)} is no list of dimensions")
    found = []
    for entry in value:
        pair = entry if isinstance(entry, (list, tuple)) else (entry, 0)
        if len(pair) != 2:
            raise BadArgument(f"{printed(entry)} is no dimension, and no (dimension, block)")
        found.append((_integer(pair[0], 0), _integer(pair[1], 0)))
    return tuple(found)


def _swizzle(value: object) -> int | bool | None:
    if value is None or isinstance(value, bool):
        return value or None
    number = integer(value)
    if number is None or not 2 <= number <= ARGUMENT_LIMIT or number & (number - 1):
        raise BadArgument(f"swizzle={printed(value)} is neither True nor a power of two from 2 on")
    return number


def _padding(value: object) -> int | None:
    if value is None:
        return None
    number = integer(value)
    if number is None or not 1 <= number <= ARGUMENT_LIMIT:
        raise BadArgument(f"pad={printed(value)} is no whole number of elements from 1 to {ARGUMENT_LIMIT}")
    return number


def _check_banks(given: Mapping[str, Any]) -> None:
    """Refuse what keeps columns in other banks where there are none."""
    said = [f"{name}={given[name]!r}" for name in ("pad", "swizzle") if given[name] is not None]
    if len(said) > 1:
        raise BadArgument(f"{' and '.join(said)} exclude each other")
    if said and given["memory"] != "shared":
        raise BadArgument(f'{said[0]} is said of memory that is not "shared", which has no banks,')


class Form(Struct, frozen=True):
    """How a step is written, what its arguments are, what they are where they are left out, and what they may be together."""

    text: str
    kinds: Mapping[str, Callable[[object], Any]]
    default: Mapping[str, Any]
    together: Callable[[Mapping[str, Any]], None] = lambda _: None


FORMS: dict[str, Form] = {
    "tile": Form('s.tile(i=64, j=64) or s.tile({"i.tile": 8})', {"sizes": loop_sizes}, {}),
    "split": Form('s.split(k=8) or s.split({"k.tile": 8})', {"sizes": loop_sizes}, {}),
    "interchange": Form('s.interchange("j", "i")', {"order": loop_order}, {}),
    "fuse": Form(
        's.fuse("A", "B", depth=1)',
        {"first": one_name, "second": one_name, "depth": lambda v: _integer(v, 1)},
        {"depth": 1},
    ),
    "distribute": Form('s.distribute("i")', {"loop": one_name}, {}),
    "skew": Form(
        's.skew(j="i", factor=1) or s.skew({"j.tile": "i.tile"}, factor=1)',
        {"loops": loop_pair, "factor": lambda v: _integer(v, -ARGUMENT_LIMIT)},
        {"factor": 1},
    ),
    "shift": Form('s.shift(i=1) or s.shift({"i.tile": 1})', {"offsets": loop_offsets}, {}),
    "reverse": Form('s.reverse("i")', {"loop": one_name}, {}),
    "vectorise": Form('s.vectorise(j=8) or s.vectorise({"j.point": 8})', {"sizes": loop_sizes}, {}),
    "unroll": Form('s.unroll(i=4) or s.unroll({"i.point": 4})', {"sizes": loop_sizes}, {}),
    "parallel": Form(
        's.parallel("i", threads=4), s.parallel(i=4) or s.parallel({"i.tile": 4})',
        {"loop": one_name, "threads": lambda v: _integer(v, 1)},
        {},
    ),
    "map": Form(
        's.map(i="block.x", j="thread.x(32)") or s.map({"i.tile": "block.x"})', {"loop": one_name, "role": one_name}, {}
    ),
    "promote": Form(
        's.promote("A", at="k.tile", memory="stack", layout=(1, 0)), or with pad=1 or swizzle=True and memory="shared"',
        {"tensor": one_name, "at": _maybe, "memory": _memory, "layout": _layout, "pad": _padding, "swizzle": _swizzle},
        {"at": None, "memory": None, "layout": None, "pad": None, "swizzle": None},
        _check_banks,
    ),
}


def refused(step: str, reason: str) -> PolykerError:
    """Return the error of a step's arguments, which shows how the step is written."""
    return failure(BAD_STEP, reason=reason, step=step, form=FORMS[step].text)
