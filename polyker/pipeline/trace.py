"""What the passes of a compile did, as text: the list of them, what each changed, and what any of them made."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from polyker.errors.base import failure
from polyker.errors.calls import NO_STAGE
from polyker.ir.decision import PassRun
from polyker.pipeline.driver import printed
from polyker.poly.scop import Scop

Watch: TypeAlias = Callable[[PassRun, Any], None]
# A compile that is done again, watched.
Again: TypeAlias = Callable[[Watch], object]

AFTER = "after:"
# Lines of a change that the list shows: of more, as many that are gone as are new.
MAX_DIFF_LINES = 12


def printed_after(name: str, target: str, again: Again) -> str:
    """Return what a pass made, printed; raises ArgumentError where no pass of that name ran."""
    found: list[str] = []
    ran: list[str] = []

    def watch(step: PassRun, unit: Any) -> None:
        ran.append(step.name)
        if step.name == name:
            found.append(printed(unit))

    again(watch)
    if not found:
        alike = difflib.get_close_matches(name, dict.fromkeys(ran)) or dict.fromkeys(ran)
        stages = ", ".join(AFTER + n for n in alike)
        raise failure(NO_STAGE, stage=AFTER + name, target=target, stages=stages)
    return found[-1]


def printed_passes(again: Again) -> str:
    """Return the list of the passes that changed something, with what each changed and the milliseconds that it took."""
    lines: list[str] = []
    before: dict[str, str] = {}
    count = 0

    def watch(step: PassRun, unit: Any) -> None:
        nonlocal count
        count += 1
        text = printed(unit) if step.changed or step.level not in before else None
        if step.changed and text is not None:
            alternative = f", alternative: {step.alternative}" if step.alternative else ""
            lines.append(f"{step.name} ({step.level}, {1e3 * step.seconds:.1f} ms{alternative})")
            lines.extend(f"    {line}" for line in _changes(before.get(step.level, ""), text, step.name))
        if text is not None:
            before[step.level] = text

    again(watch)
    changed = sum(not line.startswith(" ") for line in lines)
    return "\n".join([*lines, f"{changed} of {count} passes changed something"])


def _changes(before: str, after: str, name: str) -> Iterator[str]:
    """Yield the lines that differ, those that are gone with `-` and new ones with `+`; a whole new level is only counted."""
    if not before:
        yield f"{len(after.splitlines())} lines: --after {name}"
        return
    found = [
        line
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    if len(found) <= MAX_DIFF_LINES:
        yield from found
    else:
        for sign in "-+":
            yield from [line for line in found if line.startswith(sign)][: MAX_DIFF_LINES // 2]
        yield f"… {len(found) - MAX_DIFF_LINES} more lines: --after {name}"


class Stages(Mapping[str, str]):
    """The printed stages of a compile, each printed when it is asked for; `after:NAME` is what the pass NAME made."""

    def __init__(self, after: Callable[[str], str], **printers: Callable[[], str]) -> None:
        self._after = after
        self._printers = printers

    def __getitem__(self, stage: str) -> str:
        return self._after(stage.removeprefix(AFTER)) if stage.startswith(AFTER) else self._printers[stage]()

    def __contains__(self, stage: object) -> bool:
        return stage in self._printers or (isinstance(stage, str) and stage.startswith(AFTER))

    def __iter__(self) -> Iterator[str]:
        return iter(self._printers)

    def __len__(self) -> int:
        return len(self._printers)


def print_scop(scop: Scop) -> str:
    """Return the domains and access relations as isl prints them."""
    lines = [f"context {scop.context}"]
    lines += [f"domain {scop.domains[s]}" for s in scop.domains]
    lines += [f"{'write' if a.is_write else 'read'} {a.relation}" for a in scop.accesses]
    return "\n".join(lines)
