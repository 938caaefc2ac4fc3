"""What the passes of a compile did, as text: the list of them, what each changed, and what any of them made."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from polyker.codegen.ir.kernel import KernelIR
from polyker.errors.base import failure
from polyker.errors.calls import NO_STAGE
from polyker.ir.decision import PassRun
from polyker.ir.typed import TypedProgram
from polyker.pipeline.driver import printed
from polyker.pipeline.named import NamedStages
from polyker.schedule.tree.nodes import Leaf, ScheduleTree
from polyker.structs import replace

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
        raise failure(NO_STAGE, stage=AFTER + name, meant="", target=target, stages=stages)
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


def stages_of(
    again: Again,
    target: str,
    typed: TypedProgram,
    scheduled: Sequence[NamedStages],
    loops: KernelIR,
    **code: Callable[[], str],
) -> Stages:
    """Return the stages of a compile; those of a kernel of parts show its parts one after another.

    `scheduled`: each part's program and schedule, of a kernel without parts the only ones. `code`: the target's stages.
    """

    def of_parts(show: Callable[[NamedStages], str]) -> str:
        texts = list(map(show, scheduled))
        return "\n\n".join(f"part {k}:\n{text}" for k, text in enumerate(texts)) if loops.parts else texts[0]

    whole = NamedStages(typed, typed, ScheduleTree(Leaf()))
    return Stages(
        lambda name: printed_after(name, target, again),
        passes=lambda: printed_passes(again),
        program=whole.written,
        isl=lambda: of_parts(NamedStages.isl),
        schedule=lambda: of_parts(NamedStages.tree),
        loops=lambda: "\n\n".join(_loops(whole if loops.parts else scheduled[0], scheduled, loops)),
        **code,
    )


def _loops(whole: NamedStages, parts: Sequence[NamedStages], kernel: KernelIR) -> Iterator[str]:
    """Yield the loops of each part, then those of the kernel that calls them."""
    for k, (part, stages) in enumerate(zip(kernel.parts, parts, strict=False)):
        yield stages.loops(replace(part, name=f"part{k}"))
    yield whole.loops(kernel)
