"""Expressions of the Kernel IR as LLVM IR: index polynomials, uniform and varying values, loads."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from polyker.codegen.ir.kernel import Block, Const, Convert, KExpr, Load, Op, Var
from polyker.codegen.ir.polynomial import (
    Monomial,
    Poly,
    add_to,
    as_constant,
    constant,
    is_index,
    plus,
    polynomial,
    times,
)
from polyker.codegen.ir.polynomial import atom as atom_poly
from polyker.codegen.llvm import complex as llvm_complex
from polyker.codegen.llvm.access import memory, strided
from polyker.codegen.llvm.access.memory import Lanes, Place
from polyker.codegen.llvm.access.offsets import Offsets
from polyker.codegen.llvm.access.strided import LANE, Row
from polyker.codegen.llvm.access.transpose import Columns
from polyker.codegen.llvm.convert import Value, convert, rounded
from polyker.codegen.llvm.dot import dot, join
from polyker.codegen.llvm.fold import number
from polyker.codegen.llvm.functions import power, real_function
from polyker.codegen.llvm.loops.scan import Carried
from polyker.codegen.llvm.operations import multiply_add, real_operation
from polyker.codegen.llvm.text import LLVM_TYPES, Builder, Reg, const, vector
from polyker.errors.base import InternalError
from polyker.ir.dtypes import bool_, i64
from polyker.ir.expr import DOTS

ONE_LANE = Lanes(1)


class Expressions:
    """Evaluates expressions at the builder's place; statements keep `values`, `affine` and `lanes` up to date.

    `values`: what each Var is; `affine`: the polynomials of Vars that are substituted (the vector index, index Lets).
    """

    def __init__(self, builder: Builder, places: dict[str, Place], strides: dict[str, tuple[Poly, ...]]) -> None:
        self.b = builder
        self.places = places
        self.strides = strides
        self.values: dict[str, Value] = {}
        self.affine: dict[str, Poly] = {}
        self.lanes: Lanes = ONE_LANE
        self.columns: Columns | None = None
        self.asked: set[tuple[str, int, bool]] | None = None  # the lines that copies of a nest asked for
        self.vector: Block = ()  # the body of the vector loop around
        self._rows: dict[Row, tuple[int, int]] | None = None
        self.carried: Carried | None = None  # of the SCAN loop around
        self.anywhere = False  # vectors begin at any element, and may end beyond the padding of a STACK buffer
        # Of a tile that goes by streaming stores: the offset of each row in the result, and its elements as memory holds them.
        self.rows_past: list[tuple[Poly, Reg]] | None = None
        self.lines_past: Reg | None = None  # whether rows of tiles, a line each, pass the caches
        self.streamed = ""  # what follows a store of a whole vector in a STREAM loop, else nothing
        self.spare: Callable[[], Reg] = lambda: Reg("%spare", "ptr", 1, 0)
        self.offsets = Offsets()
        self._used: dict[str, Poly | None] = {}  # the Vars that polynomials were asked of since `offset` began

    @property
    def rows(self) -> dict[Row, tuple[int, int]]:
        """What `llvm_strided.rows_read` tells of the vector loop around; few loops have a load that asks."""
        if self._rows is None:
            self._rows = strided.rows_read(self, self.vector)
        return self._rows

    def around(self, lanes: Lanes, vector: Block = ()) -> None:
        """Set the lanes and the body of the vector loop that what follows is in."""
        self.lanes, self.vector, self._rows = lanes, vector, None

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

    # Values

    def value(self, expr: KExpr) -> Value:
        """Return the value of an expression, uniform wherever its parts are."""
        match expr:
            case Const(value=value, dtype=dtype):
                return constant_value(value, dtype)
            case Var(name=name):
                if name in self.affine:
                    return Value(i64, self.index(self.affine[name]))
                return self.values[name]
            case Op(op="add" | "sub" | "mul" | "neg", dtype=dtype) if dtype == i64 and is_index(expr):
                return Value(i64, self.index(self.poly(expr)))
            case Op():
                return self._operation(expr)
            case Convert(arg=arg, dtype=dtype):
                return convert(self.b, self.value(arg), dtype)
            case Load():
                return self.load(expr)

    def _operation(self, expr: Op) -> Value:
        if expr.op == "where":
            c, x, y = (self.value(a) for a in expr.args)
            return memory.select_value(self.b, c.re, x, y)
        if expr.op == "multiply_add":
            *factors, total = expr.args
            if self.b.native_fma:
                return self.fused(self.value(total), tuple(factors))
            return self.value(Op("add", (total, Op("mul", tuple(factors), expr.dtype)), expr.dtype))
        if expr.op == "join":
            return join(self, expr)
        if expr.op in DOTS:
            left, right = (self.value(a).re for a in expr.args)
            return Value(expr.dtype, dot(self.b, expr.op, left, right))
        if expr.op == "add" and any(_is_dot(a) for a in expr.args):
            return self.summed(expr)
        args = list(map(self.value, expr.args))  # a comprehension would be one more of Python's frames a level
        dtype = args[0].dtype
        if dtype.is_complex or expr.dtype.is_complex:
            return llvm_complex.operation(self.b, expr.op, args, expr)
        regs = [a.re for a in args]
        if expr.op == "pow":
            exponent = expr.args[1].value if isinstance(expr.args[1], Const) else None
            plain = float(exponent) if isinstance(exponent, (int, float)) else None
            return power(self.b, regs[0], regs[1], plain, dtype)
        found = real_operation(self.b, expr.op, regs, dtype, expr.dtype)
        return found if found is not None else real_function(self.b, expr.op, regs, dtype)

    def fused(self, total: Value, factors: tuple[KExpr, ...]) -> Value:
        """Return total + product(factors), the last multiplication and the addition rounded once."""
        if total.dtype.is_complex:
            first, *others = (self.value(f) for f in factors)
            for other in others[:-1]:
                first = llvm_complex.multiply(self.b, first, other)
            return llvm_complex.multiply_add(self.b, first, others[-1], total)
        args = [self.value(f).re for f in factors]
        product = args[0]
        for arg in args[1:-1]:
            found = real_operation(self.b, "mul", [product, arg], total.dtype, total.dtype)
            assert found is not None
            product = found.re
        result = multiply_add(self.b, product, args[-1], total.re)
        return Value(total.dtype, rounded(self.b, total.dtype, result))

    def summed(self, expr: Op) -> Value:
        """Return a sum some of whose terms are sums of products of narrow integers: each is added by the same instruction."""
        total: Reg | None = None
        for term in sorted(expr.args, key=_is_dot):
            if isinstance(term, Op) and _is_dot(term):
                x, y = (self.value(a).re for a in term.args)
                total = dot(self.b, term.op, x, y, total)
            else:
                value = self.value(term).re
                total = value if total is None else self.b.binary("add", total, value)
        assert total is not None
        return Value(expr.dtype, total)

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

    def pointer(self, place: Place, offset: Poly) -> Reg:
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

    def _common(self, place: Place, offset: Poly) -> Reg:
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

    def _further(self, place: Place, common: Reg, offset: Poly) -> Reg:
        return memory.offset_pointer(self.b, place, common, const(offset.get((), 0), "i64"))

    def pointers(self, place: Place, offset: Poly, more: Iterable[int]) -> list[Reg]:
        """Return the pointers so many elements beyond a uniform offset."""
        fixed = offset.get((), 0)
        common = self.pointer(place, {m: c for m, c in offset.items() if m})
        return [memory.offset_pointer(self.b, place, common, const(fixed + n, "i64")) for n in more]

    def guarded(self, place: Place, pointer: Reg, offset: Poly, condition: Reg | None) -> Reg:
        """Return `pointer`, or that of a spare place where `condition` is off: a scalar access that may not happen."""
        if condition is None or (place.on_stack and as_constant(offset) is not None):
            return pointer
        # Only loads of such a place have offsets that are not known, and its parts lie further apart than those of a spare one.
        return self.b.select(condition, pointer, place.pointer if place.plane else self.spare())

    def load(self, expr: Load) -> Value:
        """Load a value; inactive lanes, and lanes whose predicate is off, never touch memory."""
        if self.columns is not None and (transposed := self.columns.load(self, expr)) is not None:
            return transposed
        place = self.places[expr.buffer]
        base, step, varying = self.split(self.offset(expr.buffer, expr.indices))
        predicate = self.value(expr.predicate).re if expr.predicate is not None else None
        if predicate is not None and number(predicate.text, "i1") == 1:
            predicate = None
        mask = self._mask(predicate)
        if not step and not varying:
            condition = self.lanes.some if predicate is None else self.b.any(mask if mask is not None else predicate)
            pointer = self.pointer(place, base)
            if not memory.is_loaded(self.b, place, pointer):
                pointer = self.guarded(place, pointer, base, condition)
            loaded = memory.load_scalar(self.b, place, pointer)
        else:
            loaded = self._load_lanes(expr, base, step, varying, mask, predicate is not None)
        if predicate is None or expr.other is None:
            return loaded
        return memory.select_value(self.b, predicate, loaded, self.value(expr.other))

    def _mask(self, predicate: Reg | None) -> Reg | None:
        """Return the mask of the active lanes whose predicate holds; None: all."""
        if predicate is None:
            return self.lanes.mask
        if self.lanes is ONE_LANE:
            return predicate
        mask = self.b.splat(predicate, self.lanes.count)
        return mask if self.lanes.mask is None else self.b.binary("and", self.lanes.mask, mask)

    def _load_lanes(
        self, expr: Load, base: Poly, step: Poly, varying: list[Reg], mask: Reg | None, predicated: bool
    ) -> Value:
        b, count, place = self.b, self.lanes.count, self.places[expr.buffer]
        stride = as_constant(step) if not varying else None
        if stride == 1:
            whole = place.on_stack and not predicated and not self.anywhere
            return memory.load_vector(b, place, self.pointer(place, base), count, None if whole else mask)
        if stride == -1:
            first = self.pointer(place, plus(base, constant(1 - count)))
            return memory.reverse(b, memory.load_vector(b, place, first, count, memory.reverse_mask(b, mask)))
        active = memory.leading_lanes(mask, count) or 0
        if stride in strided.STRIDES and active >= 4 and not place.buffer.dtype.is_complex:
            shared = strided.load(self, expr, active) if expr.predicate is None else None
            return shared or memory.load_strided(b, place, self.pointer(place, base), active, stride, count)
        if stride in strided.STRIDES and mask is not None and not active and not place.buffer.dtype.is_complex:
            shared = strided.load(self, expr, count, mask) if expr.predicate is None else None
            return shared or strided.load_masked(b, place, self.pointer(place, base), stride, mask)
        if active and stride is not None:
            pointers = self.pointers(place, base, [lane * stride for lane in range(active)])
            return memory.load_apart(b, place, pointers, count)
        return memory.gather(b, place, self.lane_pointers(place, base, step, varying), mask)

    def lane_pointers(self, place: Place, base: Poly, step: Poly, varying: list[Reg]) -> Reg:
        """Return a vector of pointers, one a lane."""
        terms = list(varying)
        if step:
            terms.append(self.index(times(step, atom_poly(LANE))))
        offsets = self.b.splat(self._sum(terms, 0), self.lanes.count)
        return memory.offset_pointer(self.b, place, self.pointer(place, base), offsets)


def _is_dot(expr: KExpr) -> bool:
    return isinstance(expr, Op) and expr.op in DOTS


def constant_value(value: bool | int | float | complex, dtype: object) -> Value:
    """Return a constant; f16 and bf16 constants are rounded when the text is made."""
    from polyker.ir.dtypes import DType

    assert isinstance(dtype, DType)
    part = LLVM_TYPES[dtype.real.name]
    if dtype.is_complex:
        number = complex(value)
        return Value(dtype, const(number.real, part), const(number.imag, part))
    if isinstance(value, complex):
        raise InternalError(f"complex constant of type {dtype}")
    if dtype.kind == "f" and dtype.itemsize == 2:
        value = float(dtype.numpy.type(value))
    return Value(dtype, const(bool(value) if dtype == bool_ else value, part))
