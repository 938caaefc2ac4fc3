"""Expressions of the Kernel IR as LLVM IR: uniform and varying values, loads."""

from __future__ import annotations

from collections.abc import Callable

from polyker.codegen.ir.kernel import Const, Convert, KExpr, Load, Op, StmtBlock, Store, Var
from polyker.codegen.ir.polynomial import Poly, as_constant, constant, is_index, plus
from polyker.codegen.llvm import complex as llvm_complex
from polyker.codegen.llvm.access import memory, strided
from polyker.codegen.llvm.access.memory import ActiveLanes, BufferPointer
from polyker.codegen.llvm.access.scope import ONE_LANE, EmitterScope
from polyker.codegen.llvm.access.strided import RowPlaces
from polyker.codegen.llvm.access.transpose import TransposeLoop
from polyker.codegen.llvm.convert import ElementValue, convert, rounded
from polyker.codegen.llvm.dot import dot, join
from polyker.codegen.llvm.fold import number
from polyker.codegen.llvm.functions import power, real_function
from polyker.codegen.llvm.operations import multiply_add, real_operation
from polyker.codegen.llvm.text import LLVM_TYPES, IRBuilder, Reg, const
from polyker.errors.base import InternalError
from polyker.ir.dtypes import DType, bool_, i64
from polyker.ir.expr import DOTS


class LlvmExpressions(EmitterScope):
    """Evaluates expressions at the builder's place."""

    def __init__(
        self, builder: IRBuilder, places: dict[str, BufferPointer], strides: dict[str, tuple[Poly, ...]]
    ) -> None:
        super().__init__(builder, places, strides)
        self.columns: TransposeLoop | None = None
        self.prefetched: set[tuple[str, int, bool]] | None = None  # the lines that copies of a nest prefetch
        self.vector: StmtBlock = ()  # the body of the vector loop around
        self._rows: RowPlaces | None = None
        self.store: Callable[[Store], None] | None = None  # emits the stores of the SCAN loop around
        self.anywhere = False  # vectors begin at any element, and may end beyond the padding of a STACK buffer
        # Of a tile that goes by streaming stores: the offset of each row in the result, and its elements as memory holds them.
        self.rows_past: list[tuple[Poly, Reg]] | None = None
        self.lines_past: Reg | None = None  # whether rows of tiles, a line each, are written by streaming stores
        self.streamed = ""  # what follows a store of a whole vector in a STREAM loop, else nothing

    @property
    def rows(self) -> RowPlaces:
        """What `strided.rows_read` tells of the vector loop around; few loops have a load that asks."""
        if self._rows is None:
            self._rows = strided.rows_read(self, self.vector)
        return self._rows

    def around(self, lanes: ActiveLanes, vector: StmtBlock = ()) -> None:
        """Set the lanes and the body of the vector loop that what follows is in."""
        self.lanes, self.vector, self._rows = lanes, vector, None

    # Values

    def value(self, expr: KExpr) -> ElementValue:
        """Return the value of an expression, uniform wherever its parts are."""
        match expr:
            case Const(value=value, dtype=dtype):
                return constant_value(value, dtype)
            case Var(name=name):
                if name in self.affine:
                    return ElementValue(i64, self.index(self.affine[name]))
                return self.values[name]
            case Op(op="add" | "sub" | "mul" | "neg", dtype=dtype) if dtype == i64 and is_index(expr):
                return ElementValue(i64, self.index(self.poly(expr)))
            case Op():
                return self._operation(expr)
            case Convert(arg=arg, dtype=dtype):
                return convert(self.b, self.value(arg), dtype)
            case Load():
                return self.load(expr)

    def _operation(self, expr: Op) -> ElementValue:
        if expr.op == "where":
            c, x, y = (self.value(a) for a in expr.args)
            return memory.select_value(self.b, c.re, x, y)
        if expr.op == "multiply_add":
            *factors, total = expr.args
            if self.b.fma != "none":
                return self.fused(self.value(total), tuple(factors))
            return self.value(Op("add", (total, Op("mul", tuple(factors), expr.dtype)), expr.dtype))
        if expr.op == "join":
            return join(self, expr)
        if expr.op in DOTS:
            left, right = (self.value(a).re for a in expr.args)
            return ElementValue(expr.dtype, dot(self.b, expr.op, left, right))
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

    def fused(self, total: ElementValue, factors: tuple[KExpr, ...]) -> ElementValue:
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
        return ElementValue(total.dtype, rounded(self.b, total.dtype, result))

    def summed(self, expr: Op) -> ElementValue:
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
        return ElementValue(expr.dtype, total)

    def load(self, expr: Load) -> ElementValue:
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
    ) -> ElementValue:
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
            shared = strided.load(self, self.rows, expr, active) if expr.predicate is None else None
            return shared or memory.load_strided(b, place, self.pointer(place, base), active, stride, count)
        if stride in strided.STRIDES and mask is not None and not active and not place.buffer.dtype.is_complex:
            shared = strided.load(self, self.rows, expr, count, mask) if expr.predicate is None else None
            return shared or strided.load_masked(b, place, self.pointer(place, base), stride, mask)
        if active and stride is not None:
            pointers = self.pointers(place, base, [lane * stride for lane in range(active)])
            return memory.load_apart(b, place, pointers, count)
        return memory.gather(b, place, self.lane_pointers(place, base, step, varying), mask)


def _is_dot(expr: KExpr) -> bool:
    return isinstance(expr, Op) and expr.op in DOTS


def constant_value(value: bool | int | float | complex, dtype: DType) -> ElementValue:
    """Return a constant; f16 and bf16 constants are rounded when the text is made."""
    part = LLVM_TYPES[dtype.real.name]
    if dtype.is_complex:
        number = complex(value)
        return ElementValue(dtype, const(number.real, part), const(number.imag, part))
    if isinstance(value, complex):
        raise InternalError(f"complex constant of type {dtype}")
    if dtype.kind == "f" and dtype.itemsize == 2:
        value = float(dtype.numpy.type(value))
    return ElementValue(dtype, const(bool(value) if dtype == bool_ else value, part))
