"""Name the symbols of dynamic shapes, and find their values at a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from polyker.bridge.torch.indices import Extent, Unsupported


def extent_of(size: Any) -> Extent:
    """Return a size of a traced tensor as a number, or as sympy's expression where it is symbolic."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression) if expression.is_Integer else expression.expand()


def atoms(extent: Extent) -> list[Any]:
    """Return what an extent is linear in: symbols, and products of them, each of which counts as one size."""
    if isinstance(extent, int):
        return []
    return sorted((a for a in extent.expand().as_coefficients_dict() if a != 1), key=str)


def is_atom(extent: Extent) -> bool:
    """Whether an extent is one symbol, or one product of symbols."""
    return not isinstance(extent, int) and atoms(extent) == [extent]


class SizeNames:
    """Names of sizes in one text, by the order of their first use."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}

    def name(self, atom: Any) -> str:
        """Return the name of a symbol or of a product of symbols."""
        if not (atom.is_Symbol or ((atom.is_Mul or atom.is_Pow) and all(s.is_Symbol for s in atom.as_powers_dict()))):
            raise Unsupported(f"a size is {atom}")
        return self.names.setdefault(atom, f"n{len(self.names)}")

    def text(self, extent: Extent) -> str:
        """Return an extent in the notation; raises Unsupported where it is not linear in sizes."""
        if isinstance(extent, int):
            return str(extent)
        if getattr(extent, "is_Integer", False):
            return str(int(extent))
        parts = []
        for term, factor in sorted(extent.expand().as_coefficients_dict().items(), key=lambda pair: str(pair[0])):
            if not factor.is_Integer:
                raise Unsupported(f"a size is {extent}")
            shown = "" if term == 1 else self.name(term)
            parts.append(f"{int(factor)}*{shown}" if shown and factor != 1 else shown or str(int(factor)))
        return f"({' + '.join(parts)})" if len(parts) > 1 else parts[0]


def solved(atom: Any, shapes: Sequence[Sequence[Extent] | Extent]) -> Callable[[Sequence[Any]], int] | None:
    """Return what reads a size from arguments of such shapes (a scalar's is its own value), None where nothing gives it."""
    places = [
        (k, d, extent) for k, shape in enumerate(shapes) for d, extent in _extents(shape) if atoms(extent) == [atom]
    ]
    for k, d, extent in sorted(places, key=lambda p: bool(p[2] != atom)):
        terms = extent.expand().as_coefficients_dict()
        if terms[atom].is_Integer:
            return _reader(k, d, int(terms[atom]), int(terms[1]))
    if atom.is_Symbol:
        return None
    inner = [(solved(s, shapes), int(power)) for s, power in atom.as_powers_dict().items()]
    if any(read is None for read, _ in inner):
        return None

    def product(args: Sequence[Any]) -> int:
        found = 1
        for read, power in inner:
            found *= read(args) ** power  # type: ignore[misc]
        return found

    return product


def _extents(shape: Sequence[Extent] | Extent) -> Iterable[tuple[int | None, Extent]]:
    return enumerate(shape) if isinstance(shape, list) else [(None, shape)]


def _reader(k: int, d: int | None, factor: int, rest: int) -> Callable[[Sequence[Any]], int]:
    if d is None:
        return lambda args: (args[k] - rest) // factor
    if (factor, rest) == (1, 0):
        return lambda args: int(args[k].shape[d])
    return lambda args: (args[k].shape[d] - rest) // factor


def evaluator(extents: Sequence[Extent], sizes: Sequence[Any]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Return what computes extents from values of sizes."""
    if all(isinstance(e, int) for e in extents):
        fixed = tuple(extents)
        return lambda values: fixed
    forms = [_linear(e, sizes) for e in extents]
    return lambda values: tuple(c + sum(f * values[k] for f, k in terms) for c, terms in forms)


def _linear(extent: Extent, sizes: Sequence[Any]) -> tuple[int, list[tuple[int, int]]]:
    """Return an extent as its constant and its terms: a factor, and the position of a size."""
    if isinstance(extent, int):
        return extent, []
    found = extent.expand().as_coefficients_dict()
    if not all(factor.is_Integer for factor in found.values()):
        raise Unsupported(f"a size is {extent}")
    return int(found[1]), [(int(found[a]), sizes.index(a)) for a in atoms(extent)]
