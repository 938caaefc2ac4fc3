"""A program to time: units of statements over tensors of named sizes, and the programs that are made of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from polyker.structs import replace

WORD = re.compile(r"[A-Za-z_]\w*")
Order = Callable[[int], tuple[int, ...]]  # of a rank: which dimension comes at each place


class Tensor(Struct, frozen=True):
    """A tensor: its extents as texts over the sizes; `dtype` is "" where only a run tells it.

    `limit`: the extent that the values of an index array stay below. `scale`: what its random floats are multiplied by.
    """

    dims: tuple[str, ...]
    dtype: str = ""
    limit: str = ""
    scale: float = 1.0


class Unit(Struct, frozen=True):
    """Statements that stay together: those that define one tensor, or the body of a time loop of `steps` steps.

    `reads`: the tensors that exist before it, those that it updates among them; `results`: what it defines for others;
    `family`: the piece that it is of.
    """

    lines: tuple[str, ...]
    reads: tuple[str, ...]
    results: tuple[str, ...]
    steps: str = ""
    family: str = ""

    @property
    def body(self) -> str:
        """Its text, as the body of a declaration."""
        if not self.steps:
            return "".join(f"    {line}\n" for line in self.lines)
        return f"    for t in 0:{self.steps}:\n" + "".join(f"        {line}\n" for line in self.lines)


class Program(Struct, frozen=True):
    """Units in order. `kept`: results that a greater program reads; `like`: NumPy's expression of the same values, or ""."""

    units: tuple[Unit, ...]
    tensors: Mapping[str, Tensor]
    sizes: Mapping[str, int]
    kept: tuple[str, ...] = ()
    like: str = ""

    @property
    def families(self) -> tuple[str, ...]:
        """The pieces that its units are of."""
        return tuple(dict.fromkeys(u.family for u in self.units))

    @property
    def known(self) -> dict[str, object]:
        """What is written of it to a log."""
        words = set(WORD.findall(self.text))
        return {
            "text": self.text,
            "sizes": {n: v for n, v in self.sizes.items() if n in words},
            "families": self.families,
        }

    @property
    def outputs(self) -> tuple[str, ...]:
        """The results that no later unit reads, those that are kept, and the inputs that are updated."""
        read = [{r for u in self.units[n + 1 :] for r in u.reads} for n in range(len(self.units))]
        always = {*self.kept, *self.inputs}
        found = (r for n, u in enumerate(self.units) for r in u.results if r in always or r not in read[n])
        return tuple(dict.fromkeys(found))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensors that come from outside."""
        made: set[str] = set()
        found: list[str] = []
        for unit in self.units:
            found += [r for r in unit.reads if r not in made]
            made |= set(unit.results)
        return tuple(dict.fromkeys(found))

    @property
    def free(self) -> tuple[str, ...]:
        """The sizes that no input's extent is, so that a call gives them."""
        given = {d for n in self.inputs for d in self.tensors[n].dims}
        text = "".join(u.body for u in self.units) + " ".join(d for n in self.inputs for d in self.tensors[n].dims)
        return tuple(s for s in self.sizes if s not in given and s in WORD.findall(text))

    @property
    def text(self) -> str:
        """The declaration."""
        typed = [f"{n}: {self.tensors[n].dtype}[{','.join(self.tensors[n].dims)}]" for n in self.inputs]
        head = f"p({', '.join([*typed, *self.free])}) -> {', '.join(self.outputs)}:\n"
        return head + "".join(u.body for u in self.units)

    def extent(self, text: str) -> int:
        """Return the value of an extent."""
        return int(eval(text, {}, dict(self.sizes)))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(self.extent(d) for d in self.tensors[name].dims)

    def part(self, first: int, stop: int) -> Program:
        """Return the program of the units `first` to `stop`, whose results others may read."""
        later = {r for u in self.units[stop:] for r in u.reads} | set(self.outputs)
        kept = tuple(r for u in self.units[first:stop] for r in u.results if r in later)
        return replace(self, units=self.units[first:stop], kept=kept, like="")

    def typed(self, dtypes: Mapping[str, str]) -> Program:
        """Return the program with the element types of intermediates known."""
        tensors = {n: replace(t, dtype=dtypes.get(n, t.dtype)) for n, t in self.tensors.items()}
        return replace(self, tensors=tensors)

    def steps_of(self) -> tuple[Program, ...] | None:
        """Return the statements of a time loop as programs that update their tensors in place; None where they read the time."""
        (unit,) = self.units
        if not unit.steps or any("t" in WORD.findall(line) for line in unit.lines):
            return None
        found = []
        for line in unit.lines:
            names = [w for w in WORD.findall(line) if w in self.tensors]
            found.append(
                replace(self, units=(Unit((line,), tuple(dict.fromkeys(names)), (names[0],)),), kept=(), like="")
            )
        return tuple(found)

    def permuted(self, order: Order, turned: bool = False) -> Program:
        """Return the program with the dimensions of all tensors in another order; `turned`: that of `for` reversed, too."""
        orders = {n: order(len(t.dims)) for n, t in self.tensors.items()}
        tensors = {n: replace(t, dims=tuple(t.dims[d] for d in orders[n])) for n, t in self.tensors.items()}
        lines = [[reordered(line, orders) for line in u.lines] for u in self.units]
        if turned:
            lines = [[_turned(line) for line in of] for of in lines]
        units = tuple(replace(u, lines=tuple(of)) for u, of in zip(self.units, lines, strict=True))
        return replace(self, units=units, tensors=tensors)


def _turned(line: str) -> str:
    """Return a statement with its `for` in the reverse order."""
    head, word, ranges = line.partition(" for ")
    return head + word + ", ".join(reversed(ranges.split(", "))) if word else line


def reordered(text: str, orders: Mapping[str, tuple[int, ...]]) -> str:
    """Return a statement with the subscripts of each tensor in another order, those in gathers, too.

    >>> reordered("Y[i,j] = X[I[i],j-1; pad=0]", {"Y": (1, 0), "X": (1, 0), "I": (0,)})
    'Y[j,i] = X[j-1,I[i]; pad=0]'
    """
    found, at = "", 0
    while match := re.compile(r"([A-Za-z_]\w*)(: \w+)?\[").search(text, at):
        end = _closing(text, match.end())
        inside, _, rest = text[match.end() : end].partition(";")
        subscripts = [reordered(s, orders) for s in _separated(inside)]
        order = orders.get(match[1], ())
        if len(order) == len(subscripts):
            subscripts = [subscripts[d] for d in order]
        found += text[at : match.end()] + ",".join(subscripts) + (f";{rest}" if rest else "") + "]"
        at = end + 1
    return found + text[at:]


def _closing(text: str, start: int) -> int:
    """Return where the bracket closes whose inside begins at `start`."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] in "[(") - (text[at] in "])")
        if not depth:
            return at
    raise ValueError(text)


def _separated(text: str) -> list[str]:
    """Return the parts between commas that stand in no bracket."""
    depth, found = 0, [""]
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found
