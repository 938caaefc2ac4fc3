"""Making a failing case smaller while it goes on failing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from polyker.errors import PolykerError
from polyker.structs import replace
from tests.fuzz.case import Case
from tests.fuzz.oracles import parsed, reference


def shrink(case: Case, fails: Callable[[Case], bool], tries: int = 120) -> Case:
    """Return a case that still fails, with simpler calls, fewer statements, smaller shapes and plainer data."""
    progress = True
    while progress and tries > 0:
        progress = False
        for smaller in _candidates(case):
            tries -= 1
            if tries <= 0:
                break
            if _valid(smaller) and fails(smaller):
                case, progress = smaller, True
                break
    return case


def _valid(case: Case) -> bool:
    try:
        if case.invalid or "big" in case.features:
            parsed(case.text)
            return not case.invalid
        return not isinstance(reference(case), Exception)
    except (PolykerError, KeyError, ValueError, IndexError):
        return False


def _candidates(case: Case) -> Iterator[Case]:
    plain = ("plain",) * len(case.inputs)
    if case.out != "none":
        yield replace(case, out="none")
    if case.guard:
        yield replace(case, guard=False)
    if case.layouts != plain:
        yield replace(case, layouts=plain)
    for k, layout in enumerate(case.layouts):
        if layout != "plain":
            yield replace(case, layouts=(*case.layouts[:k], "plain", *case.layouts[k + 1 :]))
    if case.mode != "call" and not case.acc:
        yield replace(case, mode="call")
    lines = case.text.replace("; ", "\n").split("\n") if not case.text.rstrip().endswith(":") else []
    if len(lines) > 1:
        for k in reversed(range(len(lines))):
            if found := _without(case, lines[:k] + lines[k + 1 :]):
                yield found
    values = sorted({n for i in case.inputs for n in i.shape} | {v for _, v in case.sizes}, reverse=True)
    for n in values:
        for smaller in dict.fromkeys((1, 2, n // 2, n - 1)):
            if 0 < smaller < n:
                yield resized(case, n, smaller)
    for k, i in enumerate(case.inputs):
        if i.dtype not in ("f32", "i64") and not i.python:
            for dtype in ("f32", "i64"):
                changed = (*case.inputs[:k], replace(i, dtype=dtype), *case.inputs[k + 1 :])
                yield replace(case, inputs=changed)
    if any(i.data not in ("small", "outside") for i in case.inputs):
        yield replace(case, inputs=tuple(replace(i, data="small") for i in case.inputs))
    for clause in (" where ", " for "):
        for k, line in enumerate(lines):
            if clause in line and not line.strip().startswith("for"):
                if found := _without(case, [*lines[:k], line.split(clause)[0], *lines[k + 1 :]]):
                    yield found


def _without(case: Case, lines: list[str]) -> Case | None:
    text = "\n".join(lines)
    try:
        program = parsed(text)
    except PolykerError:
        return None
    known = {i.name: (i, layout) for i, layout in zip(case.inputs, case.layouts, strict=True)}
    if any(n not in known for n in program.inputs):
        return None
    inputs = tuple(known[n][0] for n in program.inputs)
    layouts = tuple(known[n][1] for n in program.inputs)
    sizes = tuple(s for s in case.sizes if s[0] in program.sizes)
    return replace(case, text=text, inputs=inputs, layouts=layouts, sizes=sizes)


def resized(case: Case, old: int, new: int) -> Case:
    """Return the case with another extent, wherever the old one stands."""
    inputs = tuple(replace(i, shape=tuple(new if n == old else n for n in i.shape)) for i in case.inputs)
    sizes = tuple((k, new if v == old else v) for k, v in case.sizes)
    return replace(case, inputs=inputs, sizes=sizes)
