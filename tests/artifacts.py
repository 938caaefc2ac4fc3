"""What callables hold that users do not see: tests look into it by these ways alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import polyker as pk
from polyker.codegen.artifact import Artifact
from polyker.codegen.ir.printing import print_kernel
from polyker.edit.state import State
from polyker.edit.step import EditStep
from polyker.ir.layout import Layout
from polyker.runtime.compiled import Compiled
from polyker.runtime.entry.tables import CallTable


def compiled_of(kernel: pk.Kernel) -> Compiled:
    """Return a kernel's program with its machine code and plans."""
    return kernel._compiled


def compiled_to(kernel: pk.Kernel, layouts: tuple[Layout, ...] | None = None) -> Artifact:
    """Return the artifact of a kernel for arguments of some layouts, dense ones where none are given."""
    compiled = compiled_of(kernel)
    return compiled.artifact() if layouts is None else compiled.artifact(layouts)


def artifacts_of(kernel: pk.Kernel) -> list[Artifact]:
    """Return what a kernel has compiled, for each class of layouts and sizes."""
    return [e.artifact() for e in compiled_of(kernel).executables.values()]


def state_of(schedule: Any) -> State:
    """Return the program and the tree that a user's schedule stands for."""
    return schedule._state


def stepped(schedule: Any, step: EditStep, *, advise: bool) -> Any:
    """Return a user's schedule after a step that is given as data."""
    return schedule._after(step, advise=advise)


def table_of(called: Any) -> CallTable | None:
    """Return the table by which calls of an operator or a kernel go straight to machine code, None where none do."""
    found = entry_of(called)
    return found.__self__[1] if type(found) is type(len) else None


def entry_of(called: Any) -> Any:
    """Return what a call of an operator or a kernel runs now: the emitted entry, or the way through Python."""
    return partial.func.__get__(called)  # type: ignore[attr-defined]


def generated(made: pk.Kernel | Artifact, stage: str) -> str:
    """Return the stage "schedule" or "loops" with generated names (S0, t1, i2), by which tests of passes know their programs."""
    artifact = made if isinstance(made, Artifact) else compiled_to(made)
    if stage == "loops":
        return print_kernel(artifact.loops or artifact.kernel)
    ordered = [artifact.scheduled] if artifact.scheduled else [part.scheduled for part in artifact.parts]
    return "\n\n".join("\n".join((str(s), *map(str, s.notes))) for _, s in ordered)
