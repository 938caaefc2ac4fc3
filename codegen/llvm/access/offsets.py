"""Cache the element offsets of accesses: copies of a statement have equal ones, or differ by a constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from polyker.codegen.ir.kernel import KExpr, Var
from polyker.codegen.ir.polynomial import Monomial, Poly, add_to, polynomial, times, wrap

# The uniform part of an offset, the coefficient of LANE, and the variables of both.
OffsetSplit = tuple[Poly, Poly, tuple[str, ...]]


class Offset(Struct, frozen=True):
    """An offset, with what the Vars that were asked for it stood for."""

    poly: Poly
    used: Mapping[str, Poly | None]


class _AccessOffsets(Struct):
    """Offsets of one access, by the values of the repeated variables in it (`names`); None: it was not seen yet.

    `slopes`: how much each of those variables adds to the offset for each step; None: not a constant.
    """

    indices: tuple[KExpr, ...]
    names: tuple[str, ...] | None = None
    slopes: tuple[int, ...] | None = None
    first: tuple[int, ...] = ()
    found: dict[tuple[int, ...], Offset] = field(default_factory=dict)


class Offsets:
    """Offsets and their parts.

    `steps`: what the variables of the UNROLL loops that are being repeated stand for. `kept`: the offsets over Vars alone, by
    their identity, which stays theirs as long as they are here, and `splits` their parts. `families`: of an offset the identity
    of one that differs from it by a constant alone.
    """

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self.kept: dict[int, Poly] = {}
        self.splits: dict[int, OffsetSplit] = {}
        self.families: dict[int, int] = {}
        self._accesses: dict[tuple[str, int], _AccessOffsets] = {}
        self._alike: dict[tuple[str, tuple[KExpr, ...]], _AccessOffsets] = {}
        self._alive: list[tuple[KExpr, ...]] = []

    def forget(self) -> None:
        """Forget the offsets of accesses: a buffer of the same name may have other strides."""
        self._accesses.clear()
        self._alike.clear()

    def known(self, name: str, indices: tuple[KExpr, ...], affine: Mapping[str, Poly]) -> Poly | None:
        """Return the offset of an access where it was found before, or follows from one that was."""
        access = self._access(name, indices)
        at = self._place(access)
        if at is None:
            return None
        offset = access.found.get(at)
        base = offset or access.found[access.first]
        for n, p in base.used.items():
            if affine.get(n) != p:
                return None
        if offset is not None:
            return offset.poly
        if access.slopes is None:
            return None
        change = sum(s * (x - y) for s, x, y in zip(access.slopes, at, access.first, strict=True))
        access.found[at] = Offset(self._moved(base.poly, change), base.used)
        return access.found[at].poly

    def keep(
        self,
        name: str,
        indices: tuple[KExpr, ...],
        strides: Sequence[Poly],
        total: Poly,
        used: Mapping[str, Poly | None],
    ) -> None:
        """Keep an offset that was found."""
        access = self._access(name, indices)
        if access.names is None:
            access.names = tuple(n for n in used if n in self.steps)
            access.slopes = _slopes(access.names, indices, strides) if access.names else ()
            access.first = tuple([self.steps[n] for n in access.names])
        at = self._place(access)
        if at is None or at in access.found:
            return
        access.found[at] = Offset(total, {n: p for n, p in used.items() if n not in access.names})
        if all(isinstance(a, Var) for m in total for a in m):
            self.kept[id(total)] = total

    def part(self, poly: Poly, split: OffsetSplit) -> None:
        """Keep the parts of an offset that is kept."""
        self.splits[id(poly)] = split
        self.kept[id(split[0])] = split[0]

    def _place(self, access: _AccessOffsets) -> tuple[int, ...] | None:
        """Return the values of the repeated variables in an access; None where one is not repeated here, or none is known."""
        try:
            return None if access.names is None else tuple([self.steps[n] for n in access.names])
        except KeyError:
            return None

    def _access(self, name: str, indices: tuple[KExpr, ...]) -> _AccessOffsets:
        access = self._accesses.get((name, id(indices)))
        if access is None:
            access = self._alike.setdefault((name, indices), _AccessOffsets(indices))
            self._accesses[name, id(indices)] = access
            self._alive.append(indices)
        return access

    def _moved(self, poly: Poly, change: int) -> Poly:
        """Return an offset so much further than another one, its parts known where the other's are."""
        moved = _plus(poly, change)
        if id(poly) in self.kept:
            self.kept[id(moved)] = moved
        split = self.splits.get(id(poly))
        if split is not None:
            base = _plus(split[0], change)
            self.part(moved, (base, split[1], split[2]))
            self.families[id(base)] = self.families.get(id(split[0]), id(split[0]))
        return moved


def _plus(poly: Poly, change: int) -> Poly:
    moved = dict(poly)
    value = wrap(moved.get((), 0) + change)
    if value:
        moved[()] = value
    else:
        moved.pop((), None)
    return moved


def _slopes(names: tuple[str, ...], indices: tuple[KExpr, ...], strides: Sequence[Poly]) -> tuple[int, ...] | None:
    """Return what each variable adds to an offset for each step, None where one's part is not a constant."""
    total: dict[Monomial, int] = {}
    for index, stride in zip(indices, strides, strict=True):
        add_to(total, times(polynomial(index), stride))
    inside = {Var(n) for n in names}
    for monomial in total:
        if len(monomial) != 1 and any(a in inside or not isinstance(a, Var) for a in monomial):
            return None
        if len(monomial) == 1 and not isinstance(monomial[0], Var):
            return None
    return tuple([total.get((Var(n),), 0) for n in names])
