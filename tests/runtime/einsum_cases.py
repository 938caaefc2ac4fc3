"""Random calls of einsum: subscripts in all forms, operands of all layouts, and every keyword; some are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

LABELS = "abcdXy"
EXTENTS = (0, 1, 1, 2, 2, 3)
Call = tuple[list[Any], dict[str, Any]]


def laid_out(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Return an array with the same values: in another order, with gaps, backwards, or repeated along a dimension."""
    every = [slice(None)] * array.ndim
    along = int(rng.integers(array.ndim)) if array.ndim else 0
    match int(rng.integers(0, 6)) if array.ndim else 0:
        case 1:
            return np.asfortranarray(array)
        case 2:
            order = rng.permutation(array.ndim)
            return array.transpose(order).copy().transpose(np.argsort(order))
        case 3:
            apart = np.zeros([2 * n for n in array.shape], array.dtype)[(slice(None, None, 2),) * array.ndim]
            apart[...] = array
            return apart
        case 4:
            every[along] = slice(None, None, -1)
            return array[tuple(every)].copy()[tuple(every)]
        case 5 if array.shape[along]:
            return np.broadcast_to(array.take([0], axis=along), array.shape)
        case _:
            return array


class Cases:
    """Draws calls from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.extents = {label: int(self.rng.choice(EXTENTS)) for label in LABELS}
        self.dots = [int(self.rng.choice(EXTENTS)) for _ in range(2)]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def term(self, with_dots: bool) -> tuple[list[str], tuple[int, ...]]:
        """Return an operand's labels, and its shape."""
        labels = [str(x) for x in self.rng.choice(list(LABELS), self.rng.integers(0, 4))]
        shape = [
            1 if self.chance(0.06) and (self.extents[x] or labels.count(x) == 1) else self.extents[x] for x in labels
        ]
        if with_dots and self.chance(0.75):
            at, count = int(self.rng.integers(0, len(labels) + 1)), int(self.rng.integers(0, 3))
            shape[at:at] = [1 if self.chance(0.2) else n for n in self.dots[2 - count :]]
            labels.insert(at, "...")
        return labels, tuple(shape)

    def output(self, terms: list[list[str]]) -> list[str] | None:
        """Return the output's labels, None for an implicit one."""
        if self.chance(0.25):
            return None
        used = sorted({x for t in terms for x in t} - {"..."})
        labels = [str(x) for x in self.rng.permutation(used) if self.chance(0.6)] if used else []
        if self.chance(0.85 if any("..." in t for t in terms) else 0.05):
            labels.insert(int(self.rng.integers(0, len(labels) + 1)), "...")
        if self.chance(0.03):
            labels.append(str(self.rng.choice(list(LABELS))))
        return labels

    def operand(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        values = self.rng.integers(-3, 4, shape)
        return laid_out(self.rng, np.asarray(values, dtype))

    def call(self) -> Call:
        """Return the arguments of a call, `out` not among them."""
        count, with_dots = int(self.rng.integers(1, 4)), self.chance(0.45)
        drawn = [self.term(with_dots) for _ in range(count)]
        terms = [labels for labels, _ in drawn]
        output = self.output(terms)
        dtype = str(self.rng.choice(["i8", "f8", "f8", "f4", "?", "c16", "i4"]))
        # NumPy's own results differ between its ways where bools meet numbers.
        others = ["?"] if dtype == "?" else [dtype, "i8", "f8", "f4"]
        operands = [self.operand(s, dtype if self.chance(0.8) else str(self.rng.choice(others))) for _, s in drawn]
        if self.chance(0.2):
            return self.as_lists(terms, operands, output), self.keywords(count)
        text = ",".join(map(self.spelt, terms))
        if output is not None:
            text += " " * self.chance(0.1) + ("- >" if self.chance(0.02) else "->") + self.spelt(output)
        return [text, *operands], self.keywords(count)

    def spelt(self, labels: list[str]) -> str:
        """Return labels as text, spaces in some places."""
        text = "".join(" " * self.chance(0.08) + x for x in labels) + " " * self.chance(0.05)
        return text.replace("...", ". ..") if self.chance(0.02) else text

    def as_lists(self, terms: list[list[str]], operands: list[np.ndarray], output: list[str] | None) -> list[Any]:
        first = int(self.rng.choice([0, 3, 24, 48]))
        if self.chance(0.05):
            first = -3

        def numbers(labels: list[str]) -> list[Any]:
            return [... if x == "..." else first + LABELS.index(x) for x in labels]

        given = [x for t, o in zip(terms, operands, strict=True) for x in (o, numbers(t))]
        return given if output is None else [*given, numbers(output)]

    def keywords(self, count: int) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        if self.chance(0.5):
            ways = [True, "greedy", "optimal", None, False, ["einsum_path", tuple(range(count))], ("greedy", 4)]
            chosen["optimize"] = ways[int(self.rng.integers(len(ways)))]
        if self.chance(0.6):
            chosen["order"] = str(self.rng.choice(list("KACFkacf")))
        if self.chance(0.15):
            chosen["dtype"] = str(self.rng.choice(["f8", "c16", "i8"]))
        if self.chance(0.1):
            chosen["casting"] = str(self.rng.choice(["unsafe", "same_kind", "no"]))
        return chosen

    def out(self, like: Any) -> np.ndarray:
        """Return an array to write a result into, which mostly fits."""
        shape = (2, *np.shape(like)) if self.chance(0.05) else np.shape(like)
        dtype = like.dtype if self.chance(0.7) else np.dtype(str(self.rng.choice(["f4", "f8", "i8", "c16"])))
        found = self.operand(shape, dtype.str)
        return found if found.flags.writeable else found.copy()
