"""What the loops and conditions around a statement say about its index expressions."""

from __future__ import annotations

from collections.abc import Callable

from polyker.codegen.kernel import Const, For, KExpr, LoopKind, Op
from polyker.codegen.polynomial import Poly, as_constant, constant, plus, scaled
from polyker.ir.dtypes import i64


class Facts:
    """Polynomials that are known not to be negative at the place where the emitter is."""

    def __init__(self, poly: Callable[[KExpr], Poly]) -> None:
        self._poly = poly
        self._known: list[Poly] = []

    def mark(self) -> int:
        """Return a mark to go back to."""
        return len(self._known)

    def forget(self, mark: int) -> None:
        """Drop the facts that came after a mark."""
        del self._known[mark:]

    def in_loop(self, loop: For, var: Poly) -> None:
        """Note lo <= var < hi inside a serial loop."""
        if loop.kind is not LoopKind.VECTOR:
            self._known.append(plus(var, scaled(self._poly(loop.lo), -1)))
            self._below(var, loop.hi, constant(0))

    def holds(self, condition: KExpr) -> None:
        """Note a condition that holds."""
        match condition:
            case Op(op="and", args=args):
                for arg in args:
                    self.holds(arg)
            case Op(op="lt", args=(x, y)) if x.dtype == i64:
                self._below(self._poly(x), y, constant(0))
            case Op(op="le", args=(x, y)) if x.dtype == i64:
                self._below(plus(self._poly(x), constant(-1)), y, constant(0))
            case Op(op="gt" | "ge" as op, args=(x, y)) if x.dtype == i64:
                self.holds(Op("lt" if op == "gt" else "le", (y, x), condition.dtype))
            case _:
                pass

    def _below(self, x: Poly, bound: KExpr, shift: Poly) -> None:
        """Note x < bound + shift; a quotient e // d bounds d*x too."""
        match bound:
            case Op(op="minimum", args=args):
                for arg in args:
                    self._below(x, arg, shift)
            case Op(op="add", args=args) if sum(not isinstance(a, Const) for a in args) == 1:
                inner = next(a for a in args if not isinstance(a, Const))
                offset = sum(int(a.value.real) for a in args if isinstance(a, Const))
                self._below(x, inner, plus(shift, constant(offset)))
            case Op(op="floordiv", args=(e, Const(value=int() as d))) if d > 0:
                whole = scaled(plus(plus(x, constant(1)), scaled(shift, -1)), d)
                self._known.append(plus(self._poly(e), scaled(whole, -1)))
            case _:
                self._known.append(plus(plus(self._poly(bound), shift), plus(scaled(x, -1), constant(-1))))

    def positive(self, upper: KExpr, lower: Poly) -> bool:
        """Return whether upper - lower >= 1 is known."""
        if isinstance(upper, Op) and upper.op == "minimum":
            return all(self.positive(a, lower) for a in upper.args)
        wanted = plus(plus(self._poly(upper), scaled(lower, -1)), constant(-1))
        for known in ({}, *self._known):
            rest = as_constant(plus(wanted, scaled(known, -1)))
            if rest is not None and rest >= 0:
                return True
        return False
