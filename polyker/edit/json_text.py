"""What a JSON text must hold to tell a schedule, checked piece by piece: nothing of it is run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from polyker.errors.base import failure
from polyker.errors.given import exact_text
from polyker.errors.schedules import BAD_TEXT
from polyker.ir.program import Program
from polyker.structs import replace

FORMAT, VERSION = "polyker.schedule", 1
WEAK = "number "  # before the type of a Python number, which does not decide the types of results
MAX_STEPS = 200
MAX_JSON_CHARACTERS = 1 << 20  # characters of a JSON text


def read(text: object) -> dict[str, Any]:
    """Return the parts of a JSON text, each of its type; raises ScheduleError."""
    try:
        # What a mapping holds becomes plain values by the way.
        written = json.dumps(dict(text)) if isinstance(text, Mapping) else exact_text(text)
    except Exception as error:
        raise failure(BAD_TEXT, reason=f"it is no JSON ({error})") from None
    if written is not None:
        if len(written) > MAX_JSON_CHARACTERS:
            raise failure(BAD_TEXT, reason=f"{len(written)} characters are too many")
        try:
            text = json.loads(written)
        except (ValueError, RecursionError) as error:
            raise failure(BAD_TEXT, reason=f"it is no JSON ({error})") from None
    if not isinstance(text, Mapping):
        raise failure(BAD_TEXT, reason="it is no object with names")
    kinds: dict[str, type | tuple[type, ...]] = {
        "format": str, "version": int, "operator": str, "text": str, "types": list, "sizes": Mapping, "target": str,
        "acc": (str, type(None)), "auto": bool, "steps": list,
    }  # fmt: skip
    for name, kind in kinds.items():
        if name not in text or not isinstance(text[name], kind):
            raise failure(BAD_TEXT, reason=f"`{name}` is missing, or is not of its type")
    extra = [k for k in text if k not in kinds]
    if extra:
        raise failure(BAD_TEXT, reason=f"it has {extra[0]!r} that a schedule has not")
    if text["format"] != FORMAT or text["version"] != VERSION or isinstance(text["version"], bool):
        raise failure(BAD_TEXT, reason=f"its format is {text['format']!r} {text['version']}, not {FORMAT} {VERSION}")
    if len(text["steps"]) > MAX_STEPS:
        raise failure(BAD_TEXT, reason=f"{len(text['steps'])} steps are more than {MAX_STEPS}")
    return dict(text)


def types_of(said: Mapping[str, Any], program: Program) -> dict[str, Any]:
    """Return the types and sizes that a text tells, by the operator's names; raises ScheduleError."""
    from polyker.ir.dtypes import parse_type

    try:
        types = tuple(replace(parse_type(t.removeprefix(WEAK)), weak=t.startswith(WEAK)) for t in said["types"])
    except (ValueError, TypeError, AttributeError):
        raise failure(BAD_TEXT, reason="`types` are not types such as f32[64, 64]") from None
    sizes = said["sizes"]
    if len(types) != len(program.inputs) or any(n not in program.sizes for n in sizes):
        raise failure(BAD_TEXT, reason="its types or sizes are not those of the operator")
    if any(not isinstance(v, int) or isinstance(v, bool) or v < 0 for v in sizes.values()):
        raise failure(BAD_TEXT, reason="a size is no whole number")
    return {**dict(zip(program.inputs, types, strict=True)), **sizes}
