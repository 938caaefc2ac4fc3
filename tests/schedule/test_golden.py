"""The printed schedules and loops of some programs: of the text's order, after steps, and of the automatic schedule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from polyker.codegen.ir.printing import print_kernel
from polyker.codegen.llvm.jit.detect import target
from tests.schedule.programs import PROGRAMS
from tests.schedule.support import SMALL, lowered
from tests.schedule.test_steps import LEGAL
from tests.schedule.tree_steps import TreeStep, replay

PLAIN = ("matmul", "heat", "triangle", "scan", "convolution", "histogram")
AUTOMATIC = ("matmul", "normalise", "chain", "transpose", "heat", "dot")


@pytest.mark.parametrize("name", PLAIN)
def test_the_loops_of_the_order_of_the_text(name: str, golden: Callable[[str, str], None]) -> None:
    found = PROGRAMS[name]
    loops = print_kernel(lowered(found.scop, found.start).kernel)
    golden(f"schedule/{name}.text-order.txt", f"{found.text}\n\n{found.start}\n\n{loops}\n")


@pytest.mark.parametrize("name", LEGAL)
def test_the_loops_after_steps(name: str, golden: Callable[[str, str], None]) -> None:
    program, steps = LEGAL[name]
    found = PROGRAMS[program]
    schedule = replay(found.scop, found.start, steps)
    shown = "\n".join(map(str, steps))
    loops = print_kernel(lowered(found.scop, schedule).kernel)
    golden(f"schedule/{name.replace(' ', '-')}.steps.txt", f"{found.text}\n\n{shown}\n\n{schedule}\n\n{loops}\n")


@pytest.mark.parametrize("name", AUTOMATIC)
def test_the_automatic_schedule(name: str, golden: Callable[[str, str], None]) -> None:
    found = PROGRAMS[name]
    scop, schedule = found.automatic(target(SMALL), inline=True)
    loops = print_kernel(lowered(scop, schedule).kernel)
    shown = "\n".join((str(schedule), "", *map(str, schedule.notes)))
    golden(f"schedule/{name}.automatic.txt", f"{found.text}\n\n{shown}\n\n{loops}\n")


def test_steps_print_as_they_are_replayed() -> None:
    steps = LEGAL["register tile"][1]
    assert [str(s) for s in steps[:2]] == [
        "tile('S0', (('i0', 2), ('i1', 4)))",
        "interchange('S0', ('i2', 'i0.point'))",
    ]
    assert isinstance(steps[0], TreeStep)
