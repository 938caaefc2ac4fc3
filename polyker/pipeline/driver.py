"""The driver of passes: it runs them in order, times them, verifies what they made, and keeps or dumps it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from msgspec import Struct, field

from polyker.codegen.ir.kernel import KernelIR
from polyker.codegen.ir.printing import print_kernel
from polyker.codegen.ir.verify import verify
from polyker.errors.base import InternalError
from polyker.ir.decision import Decision, PassRun
from polyker.ir.typed import TypedProgram
from polyker.ir.typed_printing import print_typed
from polyker.pipeline.passes import At, Ordered, Pass, PassLevel
from polyker.rewrite.core.verify import verify_program
from polyker.structs import replace

Unit = TypeVar("Unit")
_compiles = count()


class Run(Struct):
    """The passes of one compile. `watch`: is called with each step and what the pass made, before it is verified.

    `everywhere`: verify after every pass that changed its unit, not once a level (POLYKER_VERIFY).
    """

    at: At
    watch: Callable[[PassRun, Any], None] | None = None
    everywhere: bool = field(default_factory=lambda: os.environ.get("POLYKER_VERIFY", "") not in ("", "0"))
    steps: list[PassRun] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    alternative: str = ""

    def __post_init__(self) -> None:
        folder = os.environ.get("POLYKER_DUMP")
        if folder and self.watch is None:
            self.watch = _dump(Path(folder), next(_compiles))

    def passes(self, passes: Iterable[Pass[Unit]], unit: Unit) -> Unit:
        """Return what a list of passes makes of a unit."""
        for one in passes:
            unit = self.one(one, unit)
        return unit

    def one(self, one: Pass[Unit], unit: Unit) -> Unit:
        """Return what one pass makes of a unit."""
        start = perf_counter()
        made = one.run(unit, self.at)
        taken = perf_counter() - start
        found, decisions = made if isinstance(made, tuple) else (made, ())
        self.decisions += (replace(d, made_by=d.made_by or one.name) for d in decisions)
        changed = found is not unit and found != unit
        step = PassRun(one.name, one.level.value, taken, changed, self.alternative)
        self.steps.append(step)
        if self.watch is not None:
            self.watch(step, found)
        if self.everywhere and changed:
            check(found, one.name, unit)
        return found

    @contextmanager
    def timing(self, name: str, level: PassLevel) -> Iterator[None]:
        """Count what is run inside as a step: the proof and the lowering, which are no functions from a unit to a unit."""
        start = perf_counter()
        yield
        self.steps.append(PassRun(name, level.value, perf_counter() - start, False, self.alternative))

    @contextmanager
    def trying(self, alternative: str) -> Iterator[Callable[[], None]]:
        """Name what is run inside as an alternative; yields a function that marks its steps as given up, decisions forgotten."""
        before, known, made = self.alternative, len(self.steps), len(self.decisions)
        self.alternative = alternative

        def give_up() -> None:
            self.steps[known:] = [replace(s, given_up=True) for s in self.steps[known:]]
            del self.decisions[made:]

        try:
            yield give_up
        finally:
            self.alternative = before


def check(unit: Any, name: str, source: Any = None) -> None:
    """Verify what a pass made, of `source` if that is known, by the rules of its level; raises InternalError with its name."""
    try:
        match unit:
            case TypedProgram():
                verify_program(unit, source)
            case Ordered(program=program):
                verify_program(program, None if source is None else source.program)
            case KernelIR():
                verify(unit)
            case _:
                pass
    except InternalError as error:
        raise InternalError(f"after the pass {name}: {error.message}") from error


def printed(unit: Any) -> str:
    """Return a unit of any level as text."""
    match unit:
        case TypedProgram():
            return print_typed(unit)
        case Ordered(program=program, schedule=schedule):
            return "\n".join((print_typed(program), "", str(schedule), *map(str, schedule.notes)))
        case KernelIR():
            return print_kernel(unit)
        case _:
            return str(unit)


def _dump(folder: Path, number: int) -> Callable[[PassRun, Any], None]:
    """Return a function that writes what each pass made into a folder of this compile, one file a pass that changed it."""
    place = folder / f"{os.getpid()}-{number:04}"
    place.mkdir(parents=True, exist_ok=True)
    files = count()

    def write(step: PassRun, unit: Any) -> None:
        number = next(files)
        if step.changed or not number:
            (place / f"{number:03}-{step.name}.txt").write_text(printed(unit) + "\n")

    return write
