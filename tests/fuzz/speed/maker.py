"""What pieces of programs are made with: sizes around powers of two, fresh tensors, and the list of all pieces."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec import Struct, field

from tests.fuzz.speed.program import WORD, Program, Tensor, Unit

SIZES = "HWMNKLDEJ"
TENSORS = "XYZABCFGOPQRSUV"
FLOATS = ("f16", "f32", "f64")
ROUND = (12, 20, 24, 40, 48, 80, 96, 100, 160, 192, 200, 224, 300, 320, 384, 400, 448, 640, 768, 1000)
PADS = ("0", "0", "1", "edge", "wrap", "reflect")


class Maker(Struct):
    """A program on its way. `dtype`: the element type of fresh inputs; `most`: the operations that a piece may take."""

    rng: random.Random
    dtype: str
    most: int = 8_000_000
    units: list[Unit] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    families: list[str] = field(default_factory=list)
    like: str = ""

    @property
    def floating(self) -> bool:
        """Whether fresh inputs are floats."""
        return self.dtype in FLOATS

    def size(self, low: int, high: int) -> str:
        """Return a new size: a power of two, one beside it, or another multiple of four."""
        powers = [(1 << k) + d for k in range(1, 21) for d in (-1, 0, 0, 1)]
        fitting = [n for n in powers if low <= n <= high]
        others = [n for n in ROUND if low <= n <= high]
        picked = others if others and (not fitting or self.rng.random() < 0.35) else fitting
        return self.named(self.rng.choice(picked or [low]))

    def named(self, value: int) -> str:
        """Return a new size of that value."""
        name: str = next(s for s in (*SIZES, *(f"{s}{n}" for n in range(2, 9) for s in SIZES)) if s not in self.sizes)
        self.sizes[name] = value
        return name

    def value(self, extent: str) -> int:
        """Return the value of an extent."""
        return int(eval(extent, {}, dict(self.sizes)))

    def fresh(self, *dims: str, dtype: str = "", limit: str = "", scale: float = 1.0) -> str:
        """Return a new input."""
        name = self.name()
        self.tensors[name] = Tensor(dims, dtype or self.dtype, limit, scale)
        return name

    def name(self) -> str:
        """Return a name that no tensor has."""
        name: str = next(
            s for s in (*TENSORS, *(f"{s}{n}" for n in range(2, 9) for s in TENSORS)) if s not in self.tensors
        )
        return name

    def index(self, limit: str, *dims: str) -> str:
        """Return a new array of indices below `limit`."""
        return self.fresh(*dims, dtype=self.rng.choice(["i64", "i32"]), limit=limit)

    def define(self, dims: tuple[str, ...], *lines: str, dtype: str = "", declared: str = "") -> str:
        """Add a unit that defines a new tensor, which stands as `@` in its lines; `declared`: the type that it is declared of."""
        name = self.name()
        head = (f"{name}: {declared}[{','.join(dims)}]",) if declared else ()
        texts = (*head, *(line.replace("@", name) for line in lines))
        reads = tuple(dict.fromkeys(w for line in texts for w in WORD.findall(line) if w in self.tensors))
        self.tensors[name] = Tensor(dims, dtype or declared)
        self.units.append(Unit(texts, reads, (name,), family=self.families[-1]))
        return name

    def loop(self, target: str, steps: str, *lines: str) -> str:
        """Add a time loop that updates `target`; its temporary stands as `@`, of the same shape."""
        other = self.name()
        texts = tuple(line.replace("@", other) for line in lines)
        reads = tuple(dict.fromkeys(w for line in texts for w in WORD.findall(line) if w in self.tensors))
        if any("@" in line for line in lines):
            self.tensors[other] = self.tensors[target]
        self.units.append(Unit(texts, reads, (target,), steps, self.families[-1]))
        return target

    def room(self, *extents: str, low: int = 4, high: int = 512) -> str:
        """Return a new size, as large as the operations of a piece over these extents leave room for."""
        around = 1
        for extent in extents:
            around *= self.value(extent)
        return self.size(low, max(low + 4, min(high, self.most // max(around, 1))))

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the extents of a tensor."""
        return self.tensors[name].dims

    def weight(self) -> str:
        """Return a factor that fits the element type."""
        return self.rng.choice(["0.5", "0.25", "1.5", "-0.75"] if self.floating else ["2", "3", "5"])

    def program(self) -> Program:
        """Return what was made."""
        like = self.like if len(self.families) == 1 else ""
        return Program(tuple(self.units), self.tensors, self.sizes, like=like)


Make = Callable[[Maker, str], str]


class Piece(Struct, frozen=True):
    """A family: `rank` of the tensor that it begins with; `floats`: only of floats."""

    make: Make
    rank: int
    weight: int = 2
    floats: bool = False
    square: bool = False


PIECES: dict[str, Piece] = {}


def piece(rank: int, weight: int = 2, *, floats: bool = False, square: bool = False) -> Callable[[Make], Make]:
    """Add a function to the pieces, under its name. It gets a tensor of that rank and returns one that it defined."""

    def add(make: Make) -> Make:
        PIECES[make.__name__] = Piece(make, rank, weight, floats, square)
        return make

    return add
