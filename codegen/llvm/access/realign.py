"""Make unaligned vectors by shuffles of the aligned ones that a straight-line piece of code loads.

    %a = load x[0:16];  %b = load x[16:32];  %c = load x[1:17]      ->      %c = the last 15 of %a and the first of %b

Where vector operations are double-pumped (`Target.double_pumped`), a vector that crosses a cache line takes as long to
load as two, and a window that moves by one element loads nearly nothing else. Shuffles go through other pipes, so that about half
of such loads are made by them, and both are done in the time of the arithmetic: on a Zen 4 filters of 64 taps went from 57%
of the peak to 89%. Nothing is loaded that was not loaded before: both vectors are loads of the same piece of code.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from polyker.codegen.llvm.text import Line, LoadedVector

# Vectors that a piece of code has in registers beside its sums and those that others are made of (experience value).
_RESERVED_REGISTERS = 3


def realigned(lines: Sequence[Line], registers: int) -> list[str]:
    """Return the text of a function with loads that lie across others made of these, as far as the vector registers go."""
    pieces = defaultdict[object, list[LoadedVector]](list)
    for line in lines:
        if isinstance(line, LoadedVector):
            pieces[line.piece].append(line)
    made: dict[Line, list[str]] = {}
    for piece in pieces.values():
        windows = defaultdict[tuple[str, str], list[LoadedVector]](list)
        for load in piece:
            if load.invariant:
                windows[load.root, load.reg.type].append(load)
        sums = len({(load.root, load.at) for load in piece if not load.invariant})
        for loads in windows.values():
            made |= _made(loads, registers - sums - _RESERVED_REGISTERS)
    return [new for line in lines for new in made.get(line, [str(line)])]


def _made(loads: list[LoadedVector], room: int) -> dict[Line, list[str]]:
    """Return what stands for every second of the places in a vector at which loads begin, of what lies behind one pointer;
    nothing where there is no room for the vectors that others are made of."""
    lanes = loads[0].reg.lanes
    places = Counter(at % lanes for at in {load.at for load in loads})
    first = min(places, key=lambda place: (-places[place], place))
    whole = {load.at for load in loads if load.at % lanes == first}
    across: dict[int, list[LoadedVector]] = defaultdict(list)
    for load in loads:
        shift = (load.at - first) % lanes
        if shift and {load.at - shift, load.at - shift + lanes} <= whole:
            across[shift].append(load)
    chosen = [(shift, load) for shift in sorted(across)[::2] for load in across[shift]]
    if len({load.at - shift + n for shift, load in chosen for n in (0, lanes)}) > room:
        return {}
    return {load: _shuffled(load, shift) for shift, load in chosen}


def _shuffled(load: LoadedVector, shift: int) -> list[str]:
    """Return the lines that make a vector of the two that it lies across, the first of which begins `shift` before it."""
    (name, element, lanes, _), vector, text = load.reg, load.reg.type, list[str]()
    for part, at in (("low", load.at - shift), ("high", load.at - shift + lanes)):
        pointer = f"{name}.{part}.at"
        text += [
            f"  {pointer} = getelementptr {element}, ptr {load.root}, i64 {at}",
            f"  {name}.{part} = load {vector}, ptr {pointer}, {load.how}",
        ]
    places = ", ".join(f"i32 {shift + n}" for n in range(lanes))
    text.append(f"  {name} = shufflevector {vector} {name}.low, {vector} {name}.high, <{lanes} x i32> <{places}>")
    return text
