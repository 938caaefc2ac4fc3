"""Numbers of points as amounts: integers where the sizes are fixed or given, else expressions in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyker.explain.report import Amount
from polyker.ir.typed import TypedProgram
from polyker.poly.count import count
from polyker.poly.isl import read_set


class Amounts:
    """Counts points of sets for the sizes of a program; `values`: those sizes that are known, by generated name."""

    def __init__(self, program: TypedProgram, values: Mapping[str, int]) -> None:
        made = {name for name, _ in program.products}
        self.labels = {n: label for n, label in program.sizes if n not in made}
        self.products = program.products
        self.values = {n: v for n, v in values.items() if n in self.labels}
        self.fixed = set(self.labels) <= set(self.values)
        if self.fixed:
            for name, (a, b) in self.products:
                self.values[name] = self.values[a] * self.values[b]
        self.context = read_set(program.context) if program.sizes else None

    def __call__(self, points: Any) -> tuple[Amount, bool]:
        """Return how many points an isl set has, and whether that is exact or an upper bound."""
        found = count(points, self.context)
        if self.fixed:
            return found.at(self.values), found.exact
        amount = found.symbolic(self.labels)
        if not isinstance(amount, int):
            amount = self._in_sizes(amount)
        return amount, found.exact

    def _in_sizes(self, amount: Amount) -> Amount:
        """Return an expression with the sizes that are known put in, and with products of sizes as such."""
        import sympy

        for name, factors in reversed(self.products):  # a factor may be an earlier product
            a, b = (sympy.Symbol(self.labels.get(f, f), integer=True, nonnegative=True) for f in factors)
            amount = amount.subs({s: a * b for s in amount.free_symbols if s.name == name})
        known = {self.labels[n]: v for n, v in self.values.items()}
        return amount.subs({s: known[s.name] for s in amount.free_symbols if s.name in known})
