"""Explain why statements are not fused, with the figures that decided."""

from __future__ import annotations

from polyker.cost.table import GAIN_OF_KIND
from polyker.ir.decision import Decision
from polyker.ir.typed import TypedProgram
from polyker.machine.model import Target
from polyker.schedule.fusion.cost import fusion_of
from polyker.schedule.fusion.groups import MAX_ITEM_DISTANCE, Group
from polyker.schedule.fusion.items import Item

# Most refused fusions that a schedule explains: each evaluates the cost model again.
MAX_REASONS = 8


def why_apart(program: TypedProgram, items: list[Item], target: Target) -> Decision | None:
    """Return why the first item does not run together with the next one that uses what it writes; None if none does."""
    first = items[0]
    other = next((i for i in items[1 : MAX_ITEM_DISTANCE + 1] if first.writes & i.tensors), None)
    if other is None:
        return None
    why = _why(program, first, other, target)
    return Decision(f"{first.statement.name} and {other.statement.name}", refused=f"fusion: {why}")


def _why(program: TypedProgram, first: Item, other: Item, target: Target) -> str:
    for item in (first, other):
        if not item.loops:
            return f"no loop of {item.statement.name} may be its outermost one"
    group = Group.of(first).joined(program, other)
    if group is None:
        return "an iteration of the second needs what more than one, or later ones, of the first compute"
    found = fusion_of(program, group, target)
    if found is None:
        return "no common loop has room for whole tiles of both in the caches"
    loops = ", ".join(loop[0] for loop in found.loops())
    if found.gain < 0:
        lost = 100 * -found.gain / max(1.0, found.total)
        return f"with common loops {loops} the model loses {lost:.1f}% of the cycles (tiles and starts of loops)"
    won = 100 * found.gain / max(1.0, found.total)
    if not found.pays:
        return f"common loops {loops} win {won:.1f}% of the cycles, which is under {100 * GAIN_OF_KIND:.0f}%"
    return f"the model would win {won:.1f}% of the cycles, but not with all that stands between them"
