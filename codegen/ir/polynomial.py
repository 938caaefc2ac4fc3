"""Index expressions as polynomials over atoms with integer coefficients: the canonical form that codegen compares.

i64 arithmetic wraps, so add, sub, neg and mul on i64 are exactly the ring operations modulo 2**64; coefficients are
kept in the signed range. Everything else (floordiv, a Load, a Convert, ...) is an atom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from msgspec.structs import force_setattr

from polyker.codegen.ir.kernel import Buffer, Const, For, KExpr, Load, Op, Store, Var
from polyker.errors.base import InternalError
from polyker.ir.dtypes import i64
from polyker.record.forms import OPERATORS, SizeForm
from polyker.record.work import known

Monomial: TypeAlias = tuple[KExpr, ...]  # sorted by `_order`; () is the constant
Poly: TypeAlias = Mapping[Monomial, int]


def wrap(value: int) -> int:
    """Return the i64 that `value` wraps to."""
    return value if -(1 << 63) <= value < 1 << 63 else (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _order(atom: KExpr) -> tuple[int, str]:
    return (0, atom.name) if isinstance(atom, Var) else (1, repr(atom))


def constant(value: int) -> Poly:
    """Return the constant polynomial."""
    return {(): wrap(value)} if value else {}


def atom(expr: KExpr) -> Poly:
    """Return the polynomial that is one atom."""
    return {(expr,): 1}


def plus(a: Poly, b: Poly) -> Poly:
    """Return a + b."""
    if not a:
        return b
    total = dict(a)
    add_to(total, b)
    return total


def add_to(total: dict[Monomial, int], more: Poly) -> None:
    """Add a polynomial to one that nothing else refers to."""
    for monomial, factor in more.items():
        value = wrap(total.get(monomial, 0) + factor)
        if value:
            total[monomial] = value
        else:
            total.pop(monomial, None)


def scaled(a: Poly, factor: int) -> Poly:
    """Return factor * a."""
    if factor == 1:
        return a
    return {m: v for m, c in a.items() if (v := wrap(c * factor))}


def minus(a: Poly, b: Poly) -> Poly:
    """Return a - b."""
    return plus(a, scaled(b, -1))


def times(a: Poly, b: Poly) -> Poly:
    """Return a * b."""
    for x, y in ((a, b), (b, a)):
        if (value := as_constant(x)) is not None:
            return scaled(y, value)
    total: dict[Monomial, int] = {}
    for m, c in a.items():
        for n, d in b.items():
            product = tuple(sorted(m + n, key=_order))
            total[product] = wrap(total.get(product, 0) + c * d)
    return {m: c for m, c in total.items() if c}


def as_constant(a: Poly) -> int | None:
    """Return the value of a constant polynomial, else None."""
    if not a:
        return 0
    return a.get((), None) if len(a) == 1 else None


def polynomial(expr: KExpr, leaf: Callable[[KExpr], Poly] = atom) -> Poly:
    """Return the polynomial of an i64 expression; `leaf` gives that of a Var, or of what is no ring operation."""
    if isinstance(expr, Const):
        return constant(int(expr.value.real))
    if not isinstance(expr, Op) or expr.dtype is not i64:
        return leaf(expr)
    if leaf is not atom:
        return _of(expr, leaf)
    try:
        return expr.kept_polynomial
    except AttributeError:
        found = _of(expr, leaf)
        if (expr,) not in found:  # which would keep itself
            force_setattr(expr, "kept_polynomial", found)
        return found


def _of(expr: Op, leaf: Callable[[KExpr], Poly]) -> Poly:
    args = expr.args
    match expr.op:
        case "add":
            total: dict[Monomial, int] = {}
            for arg in args:
                add_to(total, polynomial(arg, leaf))
            return total
        case "mul":
            product = polynomial(args[0], leaf)
            for arg in args[1:]:
                product = times(product, polynomial(arg, leaf))
            return product
        case "sub":
            return minus(polynomial(args[0], leaf), polynomial(args[1], leaf))
        case "neg":
            return scaled(polynomial(args[0], leaf), -1)
        case "minimum" | "maximum" | "floordiv" | "mod" as op:
            values = [as_constant(polynomial(a, leaf)) for a in args]
            known_values = [v for v in values if v is not None]
            return leaf(expr) if len(known_values) < len(values) else constant(OPERATORS[op](*known_values))
        case _:
            return leaf(expr)


def form_of(expr: KExpr) -> SizeForm | None:
    """Return index arithmetic, or a condition on it, as a form; None where it holds anything else."""
    match expr:
        case Const(value=value, dtype=dtype):
            return int(value.real) if dtype.kind in "iub" else None
        case Var(name=name):
            return name
        case Op(op=op, args=args) if op in OPERATORS:
            forms = [f for f in map(form_of, args) if f is not None]
            if len(forms) < len(args):
                return None
            constants = [f for f in forms if isinstance(f, int)]
            return OPERATORS[op](*constants) if len(constants) == len(args) else (op, *forms)
        case _:
            return None


def value_of(expr: KExpr, values: Mapping[str, int]) -> int | None:
    """Return the value of index arithmetic or a condition on it, 0 or 1, or None where it holds anything else.

    >>> value_of(Op("floordiv", (Var("n"), Const(4))), {"n": 9})
    2
    """
    return known(form_of(expr), values)


def evaluate(expr: KExpr, values: Mapping[str, int]) -> int:
    """Return the value of an index expression of the host: a number of blocks, a bound of a time loop, an extent."""
    found = value_of(expr, values)
    if found is None:
        raise InternalError(f"{expr} has no value on the host")
    return found


def same_element(a: Load | Store, b: Load | Store) -> bool:
    """Return whether two accesses reach the same element, however their indices are written."""
    if a.buffer != b.buffer:
        return False
    return a.indices == b.indices or tuple(map(polynomial, a.indices)) == tuple(map(polynomial, b.indices))


RING = ("add", "sub", "mul", "neg")


def is_index(expr: KExpr, operations: tuple[str, ...] = RING) -> bool:
    """Return whether an i64 expression is arithmetic on variables and constants, without memory and functions."""
    match expr:
        case Var() | Const():
            return True
        case Op(op=op, args=args):
            return op in operations and all(is_index(a, operations) for a in args)
        case _:
            return False


def is_arithmetic(expr: KExpr) -> bool:
    """Return whether an expression is arithmetic on variables and constants, quotients and extrema among it."""
    return is_index(expr, (*RING, "floordiv", "mod", "minimum", "maximum"))


def expression(poly: Poly) -> KExpr:
    """Return an expression of a polynomial, its terms in canonical order, the constant last."""
    terms: list[KExpr] = []
    for monomial in sorted((m for m in poly if m), key=lambda m: [_order(a) for a in m]):
        factor = poly[monomial]
        factors: tuple[KExpr, ...] = monomial if factor == 1 else (Const(factor), *monomial)
        terms.append(factors[0] if len(factors) == 1 else Op("mul", factors))
    if poly.get((), 0) or not terms:
        terms.append(Const(poly.get((), 0)))
    return terms[0] if len(terms) == 1 else Op("add", tuple(terms))


def is_dense(buffer: Buffer) -> bool:
    """Whether elements lie row by row with nothing between them: the run time can move such an array to where it is aligned."""
    step = constant(1)
    for size, stride in zip(reversed(buffer.shape), reversed(buffer.strides), strict=True):
        if polynomial(stride) != step:
            return False
        step = times(step, polynomial(size))
    return True


def constant_length(loop: For) -> int | None:
    """Return how far apart a loop's bounds are, None where that is not constant."""
    return as_constant(minus(polynomial(loop.hi), polynomial(loop.lo)))


def offset_of(buffer: Buffer, indices: Iterable[KExpr | Poly]) -> Poly:
    """Return where an element lies in its buffer, in elements."""
    offset: Poly = {}
    for index, stride in zip(indices, buffer.strides, strict=True):
        place = index if isinstance(index, Mapping) else polynomial(index)
        offset = plus(offset, times(place, polynomial(stride)))
    return offset


def is_multiple(poly: Poly, size: int) -> bool:
    """Whether a polynomial is a multiple of a number for all values of the variables."""
    return all(c % size == 0 for c in poly.values())
