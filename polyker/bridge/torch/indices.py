"""Do arithmetic on subscripts: linear forms over loop indices, with quotients and remainders where views need them."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

# An extent: a number, or a sympy expression in the symbols of a graph with dynamic shapes.
Extent: TypeAlias = Any


class Unsupported(Exception):
    """Raised where the notation cannot say what an operator does; its text is the reason, for the report."""


class SplitIndex(Exception):
    """Raised where a subscript is simpler if loop `name` is two loops, the inner one of extent `by`."""

    def __init__(self, name: str, by: int) -> None:
        self.name, self.by = name, by
        super().__init__(f"{name} by {by}")


class Term(Struct, frozen=True):
    """`factor * atom`, the atom's value in [0, extent); `loop`: it is an index of a loop, which may be split."""

    atom: str
    factor: int
    extent: Extent
    loop: bool = False


class Subscript(Struct, frozen=True):
    """A sum of terms and a constant."""

    terms: tuple[Term, ...] = ()
    constant: Extent = 0

    def plus(self, other: Subscript | Extent) -> Subscript:
        """Return the sum with another subscript or a number."""
        if not isinstance(other, Subscript):
            return Subscript(self.terms, self.constant + other)
        found = {t.atom: t for t in self.terms}
        for t in other.terms:
            factor = t.factor + (found[t.atom].factor if t.atom in found else 0)
            found[t.atom] = Term(t.atom, factor, t.extent, t.loop)
        return Subscript(tuple(t for t in found.values() if t.factor), self.constant + other.constant)

    def times(self, factor: int) -> Subscript:
        """Return the product with a number."""
        if factor == 0:
            return Subscript()
        terms = tuple(Term(t.atom, t.factor * factor, t.extent, t.loop) for t in self.terms)
        return Subscript(terms, self.constant * factor)

    def text(self, show: Any = str) -> str:
        """Return it in the notation; `show` prints a constant that is no number."""
        out = ""
        for t in self.terms:
            sign, factor = ("-", -t.factor) if t.factor < 0 else ("+" if out else "", t.factor)
            out += f"{sign}{t.atom}" if factor == 1 else f"{sign}{factor}*{t.atom}"
        if not isinstance(self.constant, int):
            return f"{out}+{show(self.constant)}" if out else str(show(self.constant))
        if self.constant or not out:
            out += f"{self.constant:+d}" if out else str(self.constant)
        return out

    def divided(self, n: int) -> tuple[Subscript, Subscript]:
        """Return quotient and remainder by n; raises SplitIndex where splitting a loop makes them linear."""
        if n == 1:
            return self, Subscript()
        if not isinstance(self.constant, int):
            raise Unsupported("a view of a slice whose bound is a symbol")
        high = tuple(Term(t.atom, t.factor // n, t.extent, t.loop) for t in self.terms if t.factor % n == 0)
        low = tuple(t for t in self.terms if t.factor % n)
        rest = Subscript(low, self.constant % n)
        if _within(rest, n):
            return Subscript(high, self.constant // n), rest
        for t in sorted(low, key=lambda t: -abs(t.factor)):
            if t.loop and t.factor > 0 and n % t.factor == 0 and is_multiple(t.extent, n // t.factor):
                raise SplitIndex(t.atom, n // t.factor)
        shown = rest.text()
        bound = rest.constant + sum(t.factor * (t.extent - 1) for t in low)
        quotient = Term(f"(({shown})//{n})", 1, bound // n + 1 if isinstance(bound, int) else bound)
        return Subscript((*high, quotient), self.constant // n), Subscript((Term(f"(({shown})%{n})", 1, n),))


def _within(index: Subscript, n: int) -> bool:
    """Whether the index lies in [0, n), as far as can be seen."""
    low = high = index.constant
    for t in index.terms:
        if not isinstance(t.extent, int):
            return False
        last = t.factor * (t.extent - 1)
        low, high = low + min(last, 0), high + max(last, 0)
    return bool(low >= 0 and high < n)


def is_multiple(extent: Extent, n: int) -> bool:
    """Whether n divides an extent for all values of its symbols.

    >>> is_multiple(12, 4), is_multiple(13, 4)
    (True, False)
    """
    if isinstance(extent, int):
        return extent % n == 0
    terms = extent.as_coefficients_dict().values()
    return all(c.is_Integer and int(c) % n == 0 for c in terms)


def quotient(extent: Extent, n: int) -> Extent:
    """Return extent / n, where n divides it."""
    return extent // n if isinstance(extent, int) else (extent / n).expand()


def blocks(old: list[Extent], new: list[Extent]) -> list[tuple[range, range]]:
    """Return ranges of dimensions, old and new, that hold equally many elements in the same order.

    >>> blocks([2, 12, 5], [24, 5])
    [(range(0, 2), range(0, 1)), (range(2, 3), range(1, 2))]
    """
    found, a, b = [], 0, 0
    while a < len(old) or b < len(new):
        p: Extent = 1
        q: Extent = 1
        c, d = a, b
        while True:
            begun = c > a or d > b
            if begun and p == q and (c > a or c == len(old)) and (d > b or d == len(new)):
                break
            if c == len(old) and d == len(new):
                break
            if d == len(new) or (c < len(old) and _grows_first(p, q)):
                p, c = p * old[c], c + 1
            else:
                q, d = q * new[d], d + 1
        found.append((range(a, c), range(b, d)))
        a, b = c, d
    return found


def _grows_first(p: Extent, q: Extent) -> bool:
    """Whether the product p of one side is the one to grow: it is smaller, or is contained in q."""
    if isinstance(p, int) and isinstance(q, int):
        return p <= q
    ratio = q / p
    return bool(ratio.is_polynomial() and ratio.as_numer_denom()[1].is_Integer)


def viewed(old: list[Extent], new: list[Extent], at: list[Subscript]) -> list[Subscript]:
    """Return the subscripts of `old` shape where row-major `new` shape is read at `at`."""
    found: list[Subscript] = []
    for olds, news in blocks(old, new):
        linear, step = Subscript(), 1
        kept = [k for k in news if not is_one(new[k])]
        for k in reversed(kept):
            linear = at[k].times(step).plus(linear)
            step = _radix(step, new[k], last=k == kept[0])
        inner: list[Subscript] = []
        dims = [k for k in olds if not is_one(old[k])]
        rest = linear
        for k in reversed(olds):
            if k not in dims:
                inner.append(Subscript())
            elif k == dims[0]:
                inner.append(rest)
            else:
                rest, low = rest.divided(_radix(1, old[k], last=False))
                inner.append(low)
        found += reversed(inner)
    return found


def is_one(extent: Extent) -> bool:
    """Whether an extent is 1."""
    return bool(extent == 1)


def _radix(step: int, extent: Extent, *, last: bool) -> int:
    if last:
        return step
    if not isinstance(extent, int):
        raise Unsupported("a view that joins two symbols")
    return step * extent
