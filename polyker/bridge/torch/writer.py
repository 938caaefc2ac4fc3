"""Write statements of the notation for the values of a part of a graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from polyker.bridge.torch.indices import Extent, Subscript, is_one, viewed
from polyker.bridge.torch.kinds import NAMES, converted
from polyker.bridge.torch.loops import StatementLoops
from polyker.bridge.torch.sizes import SizeNames

# Operations that a statement may compute for an element before the value is stored.
MAX_INLINE_OPERATIONS = 24

_NAME = re.compile(r"\bt\d+(?=\[)")
ReadAt: TypeAlias = Callable[[StatementLoops, list[Subscript]], str]


class TensorValue(Struct, frozen=True, eq=False):
    """A tensor: what its element at some subscripts is, as text.

    `work`: operations that computing an element takes, 0 of what is stored and of views of it. `name`: of what is stored just so.
    """

    shape: list[Extent]
    dtype: Any
    read: ReadAt
    work: int = 0
    name: str | None = None

    def view(self, shape: Sequence[Extent], at: Callable[[list[Subscript]], list[Subscript]]) -> TensorValue:
        """Return a view of another shape; `at` gives the subscripts here for those there."""
        return TensorValue(list(shape), self.dtype, lambda loops, index: self.read(loops, at(index)), self.work)

    def reshaped(self, shape: Sequence[Extent]) -> TensorValue:
        """Return it in another shape, row-major."""
        new = list(shape)
        return self.view(new, lambda index: viewed(self.shape, new, index))

    def aligned(self, index: list[Subscript]) -> list[Subscript]:
        """Return the subscripts for those of a result that it is broadcast to."""
        tail = index[len(index) - len(self.shape) :]
        return [Subscript() if is_one(n) else i for i, n in zip(tail, self.shape, strict=True)]

    def broadcast(self, shape: Sequence[Extent]) -> TensorValue:
        """Return it broadcast to a shape."""
        return self.view(shape, self.aligned)

    def cast(self, dtype: Any) -> TensorValue:
        """Return it in another type."""
        if dtype == self.dtype:
            return self
        of = self.dtype
        return TensorValue(
            self.shape, dtype, lambda loops, index: converted(self.read(loops, index), of, dtype), self.work + 1
        )


class Writer:
    """The statements of one part, and the tensors that they define."""

    def __init__(self, sizes: SizeNames | None = None) -> None:
        self.sizes = sizes or SizeNames()
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self._stored: dict[int, tuple[TensorValue, TensorValue]] = {}

    def tensor(self, shape: Sequence[Extent], dtype: Any) -> TensorValue:
        """Return a fresh stored tensor, declared, with no statement yet."""
        name = f"t{len(self.declared)}"
        extents = list(shape)
        shown = ", ".join(map(self.sizes.text, extents))
        self.declared[name] = f"{name}: {NAMES[dtype]}[{shown}]"

        def read(loops: StatementLoops, index: list[Subscript]) -> str:
            return f"{name}[{self.subscripts(index)}]"

        return TensorValue(extents, dtype, read, name=name)

    def subscripts(self, index: Sequence[Subscript]) -> str:
        """Return subscripts as text."""
        return ", ".join(i.text(self.sizes.text) for i in index)

    def assign(
        self,
        target: TensorValue,
        make: ReadAt,
        op: str = "=",
        shape: Sequence[Extent] | None = None,
        place: Callable[[list[Subscript]], list[Subscript]] | None = None,
        where: Callable[[list[Subscript]], str | None] | None = None,
    ) -> TensorValue:
        """Write `target[…] op …` over a shape, by default the target's; `place` gives the target's subscripts for the loops'.

        `where`: the condition for elements to be written; no others may be read.
        """
        loops = StatementLoops(self.sizes)
        over = target.shape if shape is None else list(shape)

        def text() -> str:
            index, ranges = [], []
            for d, extent in enumerate(over):
                found, inner = loops.index(f"i{d}", extent)
                index.append(found)
                ranges += inner
            value = make(loops, index)
            left = self.subscripts(index if place is None else place(index))
            text = f"{target.name}[{left}] {op} {value}" + (f" for {', '.join(ranges)}" if ranges else "")
            condition = None if where is None else where(index)
            return f"{text} where {condition}" if condition else text

        self.lines.append(loops.linear(text))
        return target

    def stored(self, value: TensorValue) -> TensorValue:
        """Return a value as a tensor of its own, stored by a statement unless it is one."""
        if value.name is not None:
            return value
        known = self._stored.get(id(value))
        if known is None:
            made = self.assign(self.tensor(value.shape, value.dtype), value.read)
            known = self._stored[id(value)] = value, made  # the value too, so that no other gets its identity
        return known[1]

    def needed(self, outputs: Iterable[str]) -> tuple[list[str], set[str]]:
        """Return the statements that outputs depend on, in order, and the tensors in them."""
        used = set(outputs)
        kept = []
        for line in reversed(self.lines):
            target, *read = _NAME.findall(line)
            if target in used:
                used |= set(read)
                kept.append(line)
        return kept[::-1], used

    def cheap(self, value: TensorValue, work: int = 0) -> TensorValue:
        """Return a value that may be read more than once: one that takes more than `work` operations is stored."""
        return self.stored(value) if value.work > work else value
