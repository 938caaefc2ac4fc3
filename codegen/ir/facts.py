"""What the loops and conditions around a statement say about its index expressions."""

from __future__ import annotations

from collections.abc import Callable

from polyker.codegen.ir.kernel import Const, For, KExpr, LoopKind, Op
from polyker.codegen.ir.polynomial import Poly, as_constant, constant, minus, plus, scaled
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
            self._known.append(minus(var, self._poly(loop.lo)))
            self._below(var, self._poly(loop.hi))

    def holds(self, condition: KExpr) -> None:
        """Note a condition that holds."""
        match condition:
            case Op(op="and", args=args):
                for arg in args:
                    self.holds(arg)
            case Op(op="lt", args=(x, y)) if x.dtype == i64:
                self._below(self._poly(x), self._poly(y))
            case Op(op="le", args=(x, y)) if x.dtype == i64:
                self._below(plus(self._poly(x), constant(-1)), self._poly(y))
            case Op(op="gt" | "ge" as op, args=(x, y)) if x.dtype == i64:
                self.holds(Op("lt" if op == "gt" else "le", (y, x), condition.dtype))
            case _:
                pass

    def _below(self, x: Poly, bound: Poly) -> None:
        """Note x < bound; where bound is `rest + minimum(...)` or `rest + e // d`, what that says of the arguments too."""
        self._known.append(minus(minus(bound, x), constant(1)))
        for monomial, factor in bound.items():
            if factor != 1 or len(monomial) != 1:
                continue
            left = minus(x, {m: c for m, c in bound.items() if m != monomial})
            match monomial[0]:
                case Op(op="minimum", args=args):
                    for arg in args:
                        self._below(left, self._poly(arg))
                case Op(op="floordiv", args=(e, Const(value=int() as d))) if d > 0:
                    # left < e // d says d * (left + 1) <= e.
                    self._known.append(plus(self._poly(e), scaled(plus(left, constant(1)), -d)))
                case _:
                    pass

    def positive(self, upper: KExpr, lower: Poly) -> bool:
        """Return whether upper - lower >= 1 is known."""
        if isinstance(upper, Op) and upper.op == "minimum":
            return all(self.positive(a, lower) for a in upper.args)
        wanted = minus(minus(self._poly(upper), lower), constant(1))
        for known in ({}, *self._known):
            rest = as_constant(minus(wanted, known))
            if rest is not None and rest >= 0:
                return True
        return False
