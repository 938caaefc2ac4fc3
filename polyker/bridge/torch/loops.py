"""Name the loops of a statement, and split them where subscripts of views then are linear."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from polyker.bridge.torch.indices import Extent, SplitIndex, Subscript, Term, Unsupported, is_one, quotient
from polyker.bridge.torch.sizes import SizeNames

# Times that loops of one statement may be split.
_MAX_SPLITS = 12


class StatementLoops:
    """The loops of one statement, those of its reductions too."""

    def __init__(self, sizes: SizeNames) -> None:
        self.sizes = sizes
        self._splits: dict[str, tuple[Term, Term]] = {}
        self._extents: dict[str, Extent] = {}
        self._count = 0

    def index(self, name: str, extent: Extent) -> tuple[Subscript, list[str]]:
        """Return the subscript of a loop over an extent, and its ranges: of the loops it was split into, outer ones first."""
        if is_one(extent):
            return Subscript(), []
        terms: list[Term] = []
        self._leaves(Term(name, 1, extent, True), terms)
        return Subscript(tuple(terms)), [f"{t.atom} in 0:{self.sizes.text(t.extent)}" for t in terms]

    def _leaves(self, term: Term, found: list[Term]) -> None:
        self._extents[term.atom] = term.extent
        if term.atom not in self._splits:
            found.append(term)
            return
        for part in self._splits[term.atom]:
            self._leaves(Term(part.atom, term.factor * part.factor, part.extent, True), found)

    def reduced(self, extents: Iterable[Extent]) -> tuple[list[Subscript], list[str]]:
        """Return subscripts of fresh reduced indices, and their ranges."""
        found, ranges = [], []
        for extent in extents:
            index, inner = self.index(f"k{self._count}", extent)
            self._count += 1
            found.append(index)
            ranges += inner
        return found, ranges

    def reduction(
        self,
        name: str,
        extents: Iterable[Extent],
        body: Callable[[list[Subscript]], str],
        where: Callable[[list[Subscript]], str | None] | None = None,
    ) -> str:
        """Return the text of an inline reduction over fresh indices, of the terms for which a condition holds."""
        found, ranges = self.reduced(extents)
        text, condition = body(found), None if where is None else where(found)
        text += f" where {condition}" if condition else ""
        if condition and not ranges:
            ranges = ["k in 0:1"]  # which there is nothing to sum of where the condition does not hold
        return f"{name}[{', '.join(ranges)}]({text})" if ranges else f"({text})"

    def linear(self, make: Callable[[], str]) -> str:
        """Return what `make` gives, once loops are split so that its subscripts are linear."""
        for _ in range(_MAX_SPLITS):
            self._count = 0
            try:
                return make()
            except SplitIndex as wish:
                outer = Term(f"{wish.name}a", wish.by, quotient(self._extents[wish.name], wish.by), True)
                self._splits[wish.name] = outer, Term(f"{wish.name}b", 1, wish.by, True)
        raise Unsupported("subscripts that no split of loops makes linear")
