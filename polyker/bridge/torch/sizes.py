"""Name the symbols of dynamic shapes, and find their values at a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyker.bridge.torch.indices import Extent, Unsupported


def extent_of(size: Any) -> Extent:
    """Return a size of a traced tensor as a number, or as sympy's expression where it is symbolic."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression) if expression.is_Integer else expression.expand()


class SizeNames:
    """Names of symbols in one text, by the order of their first use."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}

    def name(self, symbol: Any) -> str:
        """Return the name of a symbol."""
        return self.names.setdefault(symbol, f"n{len(self.names)}")

    def text(self, extent: Extent) -> str:
        """Return an extent in the notation; raises Unsupported where it is not linear in one symbol each."""
        if isinstance(extent, int):
            return str(extent)
        if getattr(extent, "is_Integer", False):
            return str(int(extent))
        parts = []
        for term, factor in sorted(extent.expand().as_coefficients_dict().items(), key=lambda pair: str(pair[0])):
            if not factor.is_Integer or not (term.is_Symbol or term == 1):
                raise Unsupported(f"a size is {extent}")
            shown = "" if term == 1 else self.name(term)
            parts.append(f"{int(factor)}*{shown}" if shown and factor != 1 else shown or str(int(factor)))
        return f"({' + '.join(parts)})" if len(parts) > 1 else parts[0]


def solved(symbol: Any, shapes: Sequence[Sequence[Extent] | Extent]) -> Callable[[Sequence[Any]], int] | None:
    """Return what reads a symbol's value from arguments of such shapes (a scalar's is its own value), None where nothing does."""
    places = [
        (k, d, extent)
        for k, shape in enumerate(shapes)
        for d, extent in (enumerate(shape) if isinstance(shape, list) else [(None, shape)])
        if not isinstance(extent, int) and symbol in extent.free_symbols
    ]
    for k, d, extent in sorted(places, key=lambda p: p[2] != symbol):
        if extent.free_symbols != {symbol} or not extent.is_polynomial(symbol):
            continue
        factor, rest = int(extent.coeff(symbol)), int(extent.subs(symbol, 0))
        if extent != factor * symbol + rest:
            continue
        return _reader(k, d, factor, rest)
    return None


def _reader(k: int, d: int | None, factor: int, rest: int) -> Callable[[Sequence[Any]], int]:
    if d is None:
        return lambda args: (args[k] - rest) // factor
    if (factor, rest) == (1, 0):
        return lambda args: int(args[k].shape[d])
    return lambda args: (args[k].shape[d] - rest) // factor


def evaluator(extents: Sequence[Extent], symbols: Sequence[Any]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Return what computes extents from values of the symbols."""
    if all(isinstance(e, int) for e in extents):
        fixed = tuple(extents)
        return lambda values: fixed
    forms = [_linear(e, symbols) for e in extents]
    return lambda values: tuple(c + sum(f * _product(values, ks) for f, ks in terms) for c, terms in forms)


def _product(values: Sequence[int], positions: Sequence[int]) -> int:
    found = 1
    for k in positions:
        found *= values[k]
    return found


def _linear(extent: Extent, symbols: Sequence[Any]) -> tuple[int, list[tuple[int, list[int]]]]:
    """Return a polynomial as its constant and its terms: a factor, and positions of symbols to multiply."""
    if isinstance(extent, int):
        return extent, []
    constant, terms = 0, []
    for monomial, factor in extent.expand().as_coefficients_dict().items():
        if not factor.is_Integer:
            raise Unsupported(f"a size is {extent}")
        if monomial == 1:
            constant = int(factor)
            continue
        positions = []
        for base, power in monomial.as_powers_dict().items():
            if base not in symbols or not power.is_Integer or power < 1:
                raise Unsupported(f"a size is {extent}")
            positions += [symbols.index(base)] * int(power)
        terms.append((int(factor), positions))
    return constant, terms
