"""The scope of emitted LLVM IR: buffers' pointers, variables' values, active lanes, and index polynomials."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from polyker.codegen.ir.kernel import KExpr, Op, Var
from polyker.codegen.ir.polynomial import Monomial, Poly, add_to, as_constant, polynomial, times
from polyker.codegen.ir.polynomial import atom as atom_poly
from polyker.codegen.llvm.access import memory
from polyker.codegen.llvm.access.memory import ActiveLanes, BufferPointer
from polyker.codegen.llvm.access.offsets import Offsets
from polyker.codegen.llvm.convert import ElementValue
from polyker.codegen.llvm.text import IRBuilder, Reg, const, vector

ONE_LANE = ActiveLanes(1)
LANE = Var("\0lane")  # the number of the lane, in index polynomials


class EmitterScope(ABC):
    """Index expressions and pointers at the builder's place; statements keep `values`, `affine` and `lanes` up to date.

    `values`: what each Var is; `affine`: the polynomials of Vars that are substituted (the vector index, index Lets).
    """

    def __init__(
        self, builder: IRBuilder, places: dict[str, BufferPointer], strides: dict[str, tuple[Poly, ...]]
    ) -> None:
        self.b = builder
        self.places = places
        self.strides = strides
        self.values: dict[str, ElementValue] = {}
        self.affine: dict[str, Poly] = {}
        self.lanes: ActiveLanes = ONE_LANE
        self.spare: Callable[[], Reg] = lambda: Reg("%spare", "ptr", 1, 0)
        self.offsets = Offsets()
        self._used: dict[str, Poly | None] = {}  # the Vars that polynomials were asked of since `offset` began

    @abstractmethod
    def value(self, expr: KExpr) -> ElementValue:
        """Return the value of an expression, uniform wherever its parts are."""

    # Index expressions

    def poly(self, expr: KExpr) -> Poly:
        """Return the polynomial of an i64 expression over loop variables, sizes, LANE and atoms."""
        if not isinstance(expr, Op):
            return polynomial(expr, self._leaf)
        found = polynomial(expr)
        for monomial in found:
            for a in monomial:
                if not isinstance(a, Var) or a.name in self.affine:
                    return polynomial(expr, self._leaf)
                self._used[a.name] = None
        return found

    def _leaf(self, expr: KExpr) -> Poly:
        if isinstance(expr, Var):
            known = self._used[expr.name] = self.affine.get(expr.name)
            return atom_poly(expr) if known is None else known
        return atom_poly(expr)

    def _atom(self, expr: KExpr) -> Reg:
        if expr == LANE:
            return vector(list(range(self.lanes.count)), "i64")
        if isinstance(expr, Var):
            return self.values[expr.name].re
        return self.value(expr).re

    def _sum(self, terms: list[Reg], offset: int) -> Reg:
        """Add terms from the outermost loop's inwards, so that each partial sum is an invariant of the loops inside."""
        total: Reg | None = None
        for term in sorted(terms, key=lambda r: r.level):
            total = term if total is None else self.b.binary("add", total, term)
        if total is None:
            return const(offset, "i64")
        return total if offset == 0 else self.b.binary("add", total, const(offset, "i64"))

    def _term(self, monomial: Monomial, factor: int) -> Reg:
        regs = sorted((self._atom(a) for a in monomial), key=lambda r: r.level)
        total = regs[0]
        for reg in regs[1:]:
            total = self.b.binary("mul", total, reg)
        return total if factor == 1 else self.b.binary("mul", total, const(factor, "i64"))

    def split(self, poly: Poly) -> tuple[Poly, Poly, list[Reg]]:
        """Return (uniform part, coefficient of LANE, terms that vary otherwise)."""
        known = self.offsets.splits.get(id(poly))
        if known is not None and all(self.values[n].re.lanes == 1 for n in known[2]):
            return known[0], known[1], []
        base, step, varying = self._split(poly)
        if id(poly) in self.offsets.kept and not varying:
            names = {a.name for m in poly for a in m if isinstance(a, Var) and a != LANE}
            self.offsets.part(poly, (base, step, tuple(names)))
        return base, step, varying

    def _split(self, poly: Poly) -> tuple[Poly, Poly, list[Reg]]:
        base: dict[Monomial, int] = {}
        step: dict[Monomial, int] = {}
        varying: list[Reg] = []
        for monomial, factor in poly.items():
            rest = tuple(a for a in monomial if a != LANE)
            uniform = all(self._atom(a).lanes == 1 for a in rest)
            if uniform and len(rest) == len(monomial):
                base[monomial] = factor
            elif uniform and len(rest) == len(monomial) - 1:
                step[rest] = step.get(rest, 0) + factor
            else:
                varying.append(self._term(monomial, factor))
        return base, step, varying

    def uniform(self, poly: Poly) -> Reg:
        """Return a scalar i64 of a polynomial that does not vary over the lanes."""
        return self._sum([self._term(m, f) for m, f in poly.items() if m], poly.get((), 0))

    def index(self, poly: Poly) -> Reg:
        """Return an i64, or a vector of them where the polynomial varies over the lanes."""
        base, step, varying = self.split(poly)
        if not step and not varying:
            return self.uniform(base)
        count = self.lanes.count
        terms = list(varying)
        stride = as_constant(step)
        if stride is not None and stride:
            # With the offset, so that the vectors of unrolled loops share what else is added to them.
            offset = base.get((), 0)
            base = {m: f for m, f in base.items() if m}
            terms.append(vector([offset + stride * k for k in range(count)], "i64"))
        elif step:
            terms.append(self.b.binary("mul", self.uniform(step), vector(list(range(count)), "i64")))
        scalar = self.uniform(base)
        if scalar.text != "0":
            terms.append(scalar)
        return self._sum(terms, 0)

    # Memory

    def offset(self, name: str, indices: tuple[KExpr, ...]) -> Poly:
        """Return the element offset of an access."""
        known = self.offsets.known(name, indices, self.affine)
        if known is not None:
            return known
        self._used, strides = {}, self.strides[name]
        total: dict[Monomial, int] = {}
        for index, stride in zip(indices, strides, strict=True):
            add_to(total, times(self.poly(index), stride))
        self.offsets.keep(name, indices, strides, total, self._used)
        self._used = {}
        return total

    def pointer(self, place: BufferPointer, offset: Poly) -> Reg:
        """Return the pointer at a uniform offset: outer loops' terms first, the constant last."""
        if id(offset) not in self.offsets.kept:
            return self._further(place, self._common(place, offset), offset)
        # A name may stand for another register than when the pointer was made.
        texts = (place.pointer.text, *[self._atom(a).text for m in offset for a in m])
        at = id(offset), texts
        if (known := self.b.pointer(at)) is not None:
            return known
        family = ~self.offsets.families.get(id(offset), id(offset)), texts
        common = self.b.pointer(family) or self.b.keep_pointer(family, self._common(place, offset))
        return self.b.keep_pointer(at, self._further(place, common, offset))

    def _common(self, place: BufferPointer, offset: Poly) -> Reg:
        """Return the pointer at a uniform offset but for its constant."""
        pointer = place.pointer
        terms: dict[int, list[Reg]] = {}
        for monomial, factor in offset.items():
            if monomial:
                term = self._term(monomial, factor)
                terms.setdefault(term.level, []).append(term)
        for level in sorted(terms):
            pointer = memory.offset_pointer(self.b, place, pointer, self._sum(terms[level], 0))
        return pointer

    def _further(self, place: BufferPointer, common: Reg, offset: Poly) -> Reg:
        return memory.offset_pointer(self.b, place, common, const(offset.get((), 0), "i64"))

    def pointers(self, place: BufferPointer, offset: Poly, more: Iterable[int]) -> list[Reg]:
        """Return the pointers so many elements beyond a uniform offset."""
        fixed = offset.get((), 0)
        common = self.pointer(place, {m: c for m, c in offset.items() if m})
        return [memory.offset_pointer(self.b, place, common, const(fixed + n, "i64")) for n in more]

    def guarded(self, place: BufferPointer, pointer: Reg, offset: Poly, condition: Reg | None) -> Reg:
        """Return `pointer`, or that of a spare place where `condition` is off: a scalar access that may not happen."""
        if condition is None or (place.on_stack and as_constant(offset) is not None):
            return pointer
        # Only loads of such a place have offsets that are not known, and its parts lie further apart than those of a spare one.
        return self.b.select(condition, pointer, place.pointer if place.plane else self.spare())

    def lane_pointers(self, place: BufferPointer, base: Poly, step: Poly, varying: list[Reg]) -> Reg:
        """Return a vector of pointers, one a lane."""
        terms = list(varying)
        if step:
            terms.append(self.index(times(step, atom_poly(LANE))))
        offsets = self.b.splat(self._sum(terms, 0), self.lanes.count)
        return memory.offset_pointer(self.b, place, self.pointer(place, base), offsets)
