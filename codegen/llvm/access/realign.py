"""Vectors that lie across others are made of these: of what a straight piece of code loads.

    %a = load x[0:16];  %b = load x[16:32];  %c = load x[1:17]      ->      %c = the last 15 of %a and the first of %b

Where vectors pass through the core in two halves (`Target.double_pumped`), one that lies across two cache lines takes as long to
load as two, and a window that moves by one element loads nearly nothing else. Shuffles go through other pipes, so that about half
of such loads are made by them, and both are done in the time of the arithmetic: on a Zen 4 filters of 64 taps went from 57%
of the peak to 89%. Nothing is loaded that was not loaded before: both vectors are loads of the same piece of code.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

_GEP = re.compile(r"  (%[\w.]+) = getelementptr (\w+), ptr (%[\w.]+), i64 (-?\d+)$")
_LOAD = re.compile(r"  (%[\w.]+) = load <(\d+) x (\w+)>, ptr (%[\w.]+), (align \d+(, !invariant\.load.*)?)$")
# Vectors that a piece of code has in registers beside its sums and those that others are made of.
_BESIDE = 3


@dataclass(frozen=True, slots=True)
class _Load:
    """A vector that a line loads: `at` elements behind a pointer. `how`: its alignment and metadata."""

    line: int
    name: str
    lanes: int
    type: str
    root: str
    at: int
    how: str


def realigned(lines: list[str], registers: int) -> list[str]:
    """Return lines of a function with loads that lie across others made of these, as far as the vector registers go."""
    places: dict[str, tuple[str, str, int]] = {}
    for line in lines:
        if found := _GEP.match(line):
            name, kind, root, at = found.groups()
            before = places.get(root)
            nested = before is not None and before[0] == kind
            places[name] = (kind, before[1], before[2] + int(at)) if before and nested else (kind, root, int(at))
    made: dict[int, list[str]] = {}
    for block in _blocks(lines):
        made.update(_of_others(lines, block, places, registers))
    return [new for n, line in enumerate(lines) for new in made.get(n, [line])]


def _blocks(lines: list[str]) -> Iterator[range]:
    """Yield the lines of each piece of code that runs from end to end."""
    start = 0
    for n, line in enumerate([*lines, "end:"]):
        if line.endswith(":"):
            yield range(start, n)
            start = n + 1


def _of_others(
    lines: list[str], block: range, places: dict[str, tuple[str, str, int]], registers: int
) -> dict[int, list[str]]:
    """Return what stands for each line that loads a vector which lies across two others of its piece of code."""
    windows, sums = defaultdict[tuple[str, int, str], list[_Load]](list), set[str]()
    for n in block:
        if found := _LOAD.match(lines[n]):
            name, lanes, kind, pointer, how, invariant = found.groups()
            if invariant is None:
                sums.add(pointer)
                continue
            held, root, at = places.get(pointer, (kind, pointer, 0))
            if held == kind:
                windows[root, int(lanes), kind].append(_Load(n, name, int(lanes), kind, root, at, how))
    made: dict[int, list[str]] = {}
    for loads in windows.values():
        made |= _made(loads, registers - len(sums) - _BESIDE)
    return made


def _made(loads: list[_Load], room: int) -> dict[int, list[str]]:
    """Return what stands for every second of the places in a vector at which loads begin, of what lies behind one pointer;
    nothing where there is no room for the vectors that others are made of."""
    lanes = loads[0].lanes
    places = Counter(at % lanes for at in {load.at for load in loads})
    first = min(places, key=lambda place: (-places[place], place))
    whole = {load.at for load in loads if load.at % lanes == first}
    across: dict[int, list[_Load]] = defaultdict(list)
    for load in loads:
        shift = (load.at - first) % lanes
        if shift and {load.at - shift, load.at - shift + lanes} <= whole:
            across[shift].append(load)
    chosen = [(shift, load) for shift in sorted(across)[::2] for load in across[shift]]
    if len({load.at - shift + n for shift, load in chosen for n in (0, lanes)}) > room:
        return {}
    return {load.line: _shuffled(load, shift) for shift, load in chosen}


def _shuffled(load: _Load, shift: int) -> list[str]:
    """Return the lines that make a vector of the two that it lies across, the first of which begins `shift` before it."""
    vector, text = f"<{load.lanes} x {load.type}>", list[str]()
    for part, at in (("low", load.at - shift), ("high", load.at - shift + load.lanes)):
        pointer = f"{load.name}.{part}.at"
        text += [
            f"  {pointer} = getelementptr {load.type}, ptr {load.root}, i64 {at}",
            f"  {load.name}.{part} = load {vector}, ptr {pointer}, {load.how}",
        ]
    places = ", ".join(f"i32 {shift + n}" for n in range(load.lanes))
    mask = f"<{load.lanes} x i32> <{places}>"
    text.append(f"  {load.name} = shufflevector {vector} {load.name}.low, {vector} {load.name}.high, {mask}")
    return text
