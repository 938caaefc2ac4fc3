"""Bound an index expression in a nest of loops from above, as an expression of what stands around the nest.

A block of a triangle has `min(N, 128 * b + 128)` columns, `b` the block of rows: N at most, for b = ceil(N / 128) - 1. Loops are
left from the innermost outwards; what comes out is never too small, and is the greatest value itself where the expression is
affine in each variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm
from typing import TypeGuard

from msgspec import Struct

from polyker.codegen.ir.kernel import Const, For, KExpr, Op
from polyker.codegen.ir.polynomial import Poly, expression, plus, polynomial, scaled
from polyker.codegen.ir.simplify_index import IndexRange, has_load, simplify_expression
from polyker.codegen.ir.walk import names_in, substitute

# Most steps of one search (chosen): minima and maxima of minima and maxima fork it.
MAX_SEARCH_STEPS = 256


def greatest(
    expr: KExpr, loops: Sequence[For], known: frozenset[str], ranges: Mapping[str, IndexRange]
) -> KExpr | None:
    """Return an expression of `known` variables that is never less than `expr` in the innermost of `loops`.

    `loops`: the outermost first. `ranges`: of known variables. None where nothing is known to bound it.

    >>> row = For("b", Const(0), Const(8), ())
    >>> greatest(Op("add", (Op("mul", (Const(128), Var("b"))), Const(128))), (row,), frozenset(), {})
    1024
    """
    return _ExtremumSearch(tuple(loops), known, ranges).most(polynomial(expr))


class _ExtremumSearch(Struct):
    loops: tuple[For, ...]
    known: frozenset[str]
    ranges: Mapping[str, IndexRange]
    steps: int = MAX_SEARCH_STEPS

    def most(self, poly: Poly) -> KExpr | None:
        """Return what a polynomial is at most."""
        self.steps -= 1
        found = simplify_expression(expression(poly), self.ranges)
        free = names_in(found) - self.known
        if not free:
            return None if has_load(found) else found
        poly = polynomial(found)
        inner = next((loop for loop in reversed(self.loops) if loop.var in free), None)
        if self.steps < 0 or inner is None or has_load(found):
            return None
        atoms = {m[0]: c for m, c in poly.items() if len(m) == 1 and names_in(m[0]) - self.known}
        if any(len(m) != 1 and names_in(*m) - self.known for m in poly):
            return None  # a product of variables
        for atom, factor in atoms.items():
            match atom:
                case Op(op="minimum" | "maximum" as op, args=args):
                    rest = plus(poly, {(atom,): -factor})
                    return self.forked(op, [plus(rest, scaled(polynomial(a), factor)) for a in args], factor)
                case Op(op="floordiv" | "mod", args=(x, Const(value=int() as divisor))) if divisor > 0:
                    rest = plus(poly, {(atom,): -factor})
                    if atom.op == "mod":
                        return self.most(plus(rest, {(): factor * (divisor - 1)} if factor > 0 else {}))
                    if (parts := _alternatives(x)) is not None:
                        divided = [polynomial(Op("floordiv", (expression(v), Const(divisor)))) for v in parts[1]]
                        return self.forked(parts[0], [plus(rest, scaled(d, factor)) for d in divided], factor)
                case Op():
                    return None
                case _:
                    pass
        return self.without(inner, poly)

    def forked(self, op: str, values: list[Poly], factor: int) -> KExpr | None:
        """Return what the minimum or maximum of polynomials is at most, the other one where `factor` is negative."""
        found = [self.most(v) for v in values]
        parts = tuple(dict.fromkeys(f for f in found if f is not None))
        least = (op == "minimum") == (factor > 0)
        if not parts or (not least and None in found):
            return None
        return simplify_expression(Op("minimum" if least else "maximum", parts), self.ranges)

    def without(self, loop: For, poly: Poly) -> KExpr | None:
        """Return what a polynomial is at most, its loop's variable at the end of its range where it is greatest."""
        way = _ways(poly, loop.var)
        if way is None:
            # Quotients that grow and others that shrink: a // d lies in (a - d + 1) / d to a / d.
            quotients = {m[0]: c for m, c in poly.items() if len(m) == 1 and _is_quotient(m[0], loop.var)}
            whole = lcm(*map(_divisor, quotients))
            total = scaled({m: c for m, c in poly.items() if m[:1] not in [(q,) for q in quotients]}, whole)
            for quotient, factor in quotients.items():
                total = plus(total, _loosened(quotient, factor, whole))
            most = self.most(total) if quotients else None
            return None if most is None else simplify_expression(Op("floordiv", (most, Const(whole))), self.ranges)
        end: KExpr = Op("sub", (loop.hi, Const(1))) if way > 0 else loop.lo
        return self.most(polynomial(substitute(expression(poly), {loop.var: end})))


def _alternatives(x: KExpr) -> tuple[str, list[Poly]] | None:
    """Return an expression as the minimum or maximum of polynomials, None where it is none."""
    poly = polynomial(x)
    for monomial, factor in poly.items():
        match monomial:
            case (Op(op="minimum" | "maximum" as op, args=args),):
                rest = plus(poly, {monomial: -factor})
                other = {"minimum": "maximum", "maximum": "minimum"}[op]
                return op if factor > 0 else other, [plus(rest, scaled(polynomial(a), factor)) for a in args]
            case _:
                pass
    return None


def _is_quotient(atom: KExpr, name: str) -> TypeGuard[Op]:
    return isinstance(atom, Op) and atom.op == "floordiv" and name in names_in(atom)


def _divisor(quotient: Op) -> int:
    (_, divisor) = quotient.args
    assert isinstance(divisor, Const)
    return int(divisor.value.real)


def _ways(poly: Poly, name: str) -> int | None:
    """Return 1 where a polynomial grows with a variable or does not depend on it, -1 where it shrinks, None where unclear."""
    found = set()
    for monomial, factor in poly.items():
        if name not in names_in(*monomial):
            continue
        atom = monomial[0]
        inner = _ways(polynomial(atom.args[0]), name) if isinstance(atom, Op) and atom.op == "floordiv" else 1
        if len(monomial) > 1 or inner is None or (isinstance(atom, Op) and atom.op != "floordiv"):
            return None
        found.add(inner if factor > 0 else -inner)
    return None if len(found) > 1 else found.pop() if found else 1


def _loosened(quotient: Op, factor: int, whole: int) -> Poly:
    """Return a polynomial that is at least `whole * factor` times a quotient, without it."""
    divisor = _divisor(quotient)
    above = scaled(polynomial(quotient.args[0]), factor * whole // divisor)
    return above if factor > 0 else plus(above, {(): -factor * (whole // divisor) * (divisor - 1)})
