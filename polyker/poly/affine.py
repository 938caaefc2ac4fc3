"""Quasi-affine forms over indices `i0 i1 …` and sizes `n0 n1 …`: exact integers, one canonical shape, isl's text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct

from polyker.ir import quasi_affine as qa
from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, SizeExpr


class NotAffine(ValueError):
    """An expression that is not quasi-affine; `expr` is the smallest part that is to blame, `why` says how."""

    def __init__(self, expr: Expr, why: str) -> None:
        super().__init__(why)
        self.expr, self.why = expr, why


class Quotient(Struct, frozen=True):
    """`floor(form / divisor)`, or `form mod divisor`; the divisor is positive."""

    op: str  # floordiv or mod
    form: Affine
    divisor: int


class Extremum(Struct, frozen=True):
    """The least or the greatest of several forms: only in extents, and in what is made of extents."""

    op: str  # minimum or maximum
    forms: tuple[Affine, ...]


Atom: TypeAlias = str | Quotient | Extremum


class Affine(Struct, frozen=True, dict=True):
    """`const + sum of coefficient * atom`; atoms differ and are sorted by their text, coefficients are not 0."""

    terms: tuple[tuple[Atom, int], ...]
    const: int = 0

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.const + other)
        if not self.terms:
            return Affine(other.terms, self.const + other.const)
        if not other.terms:
            return Affine(self.terms, self.const + other.const)
        total = dict(self.terms)
        for atom, coefficient in other.terms:
            total[atom] = total.get(atom, 0) + coefficient
        return _sorted(total, self.const + other.const)

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        return Affine(tuple((a, c * factor) for a, c in self.terms) if factor else (), self.const * factor)

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-other)

    @property
    def is_constant(self) -> bool:
        """Whether it is one integer."""
        return not self.terms

    @property
    def variable(self) -> str | None:
        """The one name that it is, or None."""
        if self.const == 0 and len(self.terms) == 1 and self.terms[0][1] == 1 and isinstance(self.terms[0][0], str):
            return self.terms[0][0]
        return None

    @cached_property
    def names(self) -> frozenset[str]:
        """All names in it."""
        return frozenset(n for atom, _ in self.terms for n in _names(atom))

    @cached_property
    def indices(self) -> frozenset[str]:
        """The names of indices in it."""
        return frozenset(n for n in self.names if n[0] == "i")

    def is_linear_in(self, names: Iterable[str]) -> bool:
        """Whether each of the names stands only with a coefficient, outside quotients and extrema."""
        inner = {n for atom, _ in self.terms if not isinstance(atom, str) for n in _names(atom)}
        return inner.isdisjoint(names)

    def coefficient(self, name: str) -> int:
        """The coefficient of a name that stands outside quotients."""
        return next((c for atom, c in self.terms if atom == name), 0)

    @cached_property
    def text(self) -> str:
        """The text in isl's syntax."""
        if not self.terms:
            return str(self.const)
        parts = [_atom_text(a) if c == 1 else f"{c}*{_atom_text(a)}" for a, c in self.terms]
        if self.const:
            parts.append(str(self.const))
        return " + ".join(parts) if len(parts) == 1 else f"({' + '.join(parts)})"

    def __str__(self) -> str:
        return self.text

    def replace(self, values: Mapping[str, Affine]) -> Affine:
        """Return the form with names replaced by forms."""
        if self.names.isdisjoint(values):
            return self
        total = constant(self.const)
        for atom, coefficient in self.terms:
            match atom:
                case str():
                    part = values.get(atom, variable(atom))
                case Quotient(op=op, form=form, divisor=divisor):
                    part = quotient(op, form.replace(values), divisor)
                case Extremum(op=op, forms=forms):
                    part = extremum(op, [f.replace(values) for f in forms])
            total = total + part * coefficient
        return total


def _names(atom: Atom) -> Iterable[str]:
    match atom:
        case str():
            return (atom,)
        case Quotient(form=form):
            return form.names
        case Extremum(forms=forms):
            return frozenset(n for f in forms for n in f.names)


def _atom_text(atom: Atom) -> str:
    match atom:
        case str():
            return atom
        case Quotient(op="floordiv", form=form, divisor=divisor):
            return f"floor(({form.text})/{divisor})"
        case Quotient(form=form, divisor=divisor):
            return f"(({form.text}) mod {divisor})"
        case Extremum(op=op, forms=forms):
            return f"{op[:3]}({', '.join(f.text for f in forms)})"


def _sorted(total: dict[Atom, int], const: int) -> Affine:
    return Affine(tuple(sorted(((a, c) for a, c in total.items() if c), key=lambda t: _atom_text(t[0]))), const)


def constant(value: int) -> Affine:
    """Return a form that is one integer."""
    return Affine((), value)


def variable(name: str) -> Affine:
    """Return a form that is one index or size."""
    return Affine(((name, 1),))


def quotient(op: str, form: Affine, divisor: int) -> Affine:
    """Return `form // divisor` (op floordiv) or `form % divisor` (op mod), rounding down as Python does."""
    if divisor == 1:
        return form if op == "floordiv" else constant(0)
    if form.is_constant:
        return constant(form.const // divisor if op == "floordiv" else form.const % divisor)
    return Affine(((Quotient(op, form, divisor), 1),))


def extremum(op: str, forms: list[Affine]) -> Affine:
    """Return the least (op minimum) or greatest (maximum) of forms; equal ones and constants are merged."""
    choose = min if op == "minimum" else max
    constants = [f.const for f in forms if f.is_constant]
    rest = sorted({f.text: f for f in forms if not f.is_constant}.values(), key=lambda f: f.text)
    kept = ([constant(choose(constants))] if constants else []) + rest
    return kept[0] if len(kept) == 1 else Affine(((Extremum(op, tuple(kept)), 1),))


def affine_of(expr: Expr) -> Affine:
    """Return the form of an expression over generated names.

    Raises:
        NotAffine: naming the part that is not quasi-affine.
    """
    match expr:
        case Literal(value=bool()):
            raise NotAffine(expr, "a bool is no integer")
        case Literal(value=int(value)):
            return constant(value)
        case Literal():
            raise NotAffine(expr, "only integers are taken")
        case IndexExpr(name=name) | SizeExpr(name=name):
            return variable(name)
        case Call(op="add", args=args):
            total = affine_of(args[0])
            for arg in args[1:]:
                total = total + affine_of(arg)
            return total
        case Call(op="neg", args=(arg,)):
            return -affine_of(arg)
        case Call(op="mul", args=args):
            return _product(expr, [affine_of(a) for a in args])
        case Call(op="floordiv" | "mod" as op, args=args):
            return _divided(expr, op, args)
        case Call(op="pow", args=(base, exponent)):
            return _power(expr, affine_of(base), affine_of(exponent))
        case Call(op="div"):
            raise NotAffine(expr, "`/` gives a float; `//` divides integers")
        case Call(op=op):
            raise NotAffine(expr, f"`{op}` is not among the operations")
        case _:
            raise NotAffine(expr, "it holds the value of a tensor")


def _product(expr: Expr, forms: list[Affine]) -> Affine:
    total = constant(1)
    for form in forms:
        if form.is_constant:
            total = total * form.const
        elif total.is_constant:
            total = form * total.const
        else:
            raise NotAffine(expr, "a product of two variables")
    return total


def _divided(expr: Expr, op: str, args: tuple[Expr, ...]) -> Affine:
    """Return the quotient or the remainder of the first operand by the others, one after another."""
    form = affine_of(args[0])
    for arg in args[1:]:
        divisor = affine_of(arg)
        if not divisor.is_constant or divisor.const <= 0:
            raise NotAffine(expr, "the divisor is not a positive integer")
        form = quotient(op, form, divisor.const)
    return form


def _power(expr: Expr, base: Affine, exponent: Affine) -> Affine:
    if base.is_constant and exponent.is_constant and 0 <= exponent.const <= 64:
        return constant(base.const**exponent.const)
    raise NotAffine(expr, "a power of an index or a size")


def expr_of(form: Affine) -> Expr:
    """Return the typed (i64) expression of a form."""
    terms: list[Expr] = []
    for atom, coefficient in form.terms:
        terms.append(qa.scale(coefficient, _atom_expr(atom)))
    if form.const or not terms:
        terms.append(Literal(form.const, i64))
    return terms[0] if len(terms) == 1 else Call("add", tuple(terms), i64)


def _atom_expr(atom: Atom) -> Expr:
    match atom:
        case str():
            return IndexExpr(atom, i64) if atom[0] == "i" else SizeExpr(atom, i64)
        case Quotient(op=op, form=form, divisor=divisor):
            return Call(op, (expr_of(form), Literal(divisor, i64)), i64)
        case Extremum(op=op, forms=forms):
            return Call(op, tuple(expr_of(f) for f in forms), i64)


def show(form: Affine, label: Callable[[str], str]) -> str:
    """Return the form as a user would write it, each name through `label`."""
    if not form.terms:
        return str(form.const)
    text = ""
    for atom, coefficient in form.terms:
        part = _show_atom(atom, label)
        if isinstance(atom, Quotient) and (coefficient not in (1, -1) or (coefficient < 0 and not text)):
            part = f"({part})"
        size = part if abs(coefficient) == 1 else f"{abs(coefficient)}*{part}"
        sign = ("-" if coefficient < 0 else "") if not text else (" - " if coefficient < 0 else " + ")
        text += sign + size
    if form.const:
        text += f" {'-' if form.const < 0 else '+'} {abs(form.const)}"
    return text


def _show_atom(atom: Atom, label: Callable[[str], str]) -> str:
    match atom:
        case str():
            return label(atom)
        case Quotient(op=op, form=form, divisor=divisor):
            inner = show(form, label)
            return f"{inner if form.variable else f'({inner})'}{'//' if op == 'floordiv' else '%'}{divisor}"
        case Extremum(op=op, forms=forms):
            return f"{op}({', '.join(show(f, label) for f in forms)})"


Condition: TypeAlias = tuple[str, Affine]
"""A comparison with 0: ("ge", form) is form >= 0, ("eq", form), ("ne", form)."""


class Restriction(Struct, frozen=True):
    """A `where` condition on indices and sizes: isl's text, the indices in it, and whether `or` joins parts of it.

    `forms`: what its comparisons compare with 0.
    """

    text: str
    indices: frozenset[str]
    is_union: bool = False
    forms: tuple[Affine, ...] = ()


def restriction_of(expr: Expr) -> Restriction:
    """Return what a `where` condition says.

    Raises:
        NotAffine: for what is not made of comparisons of quasi-affine forms, True and False by `and`, `or` and `not`.
    """
    return _restriction(expr, True)


def _restriction(expr: Expr, holds: bool) -> Restriction:
    """Return that a condition holds, or that it does not: `not` goes down to the comparisons."""
    match expr:
        case Call(op="not", args=(arg,)):
            return _restriction(arg, not holds)
        case Call(op="and" | "or" as op, args=args):
            parts = [_restriction(a, holds) for a in args]
            union = (op == "or") == holds
            text = f"({(' or ' if union else ' and ').join(p.text for p in parts)})"
            indices = frozenset().union(*(p.indices for p in parts))
            forms = tuple(f for p in parts for f in p.forms)
            return Restriction(text, indices, union or any(p.is_union for p in parts), forms)
        case Cast(arg=Literal(value=value)):
            return Restriction("1 = 1" if bool(value) == holds else "1 = 0", frozenset())
        case Call(op="lt" | "le" | "gt" | "ge" | "eq" | "ne" as op, args=(a, b)):
            condition = _comparison(op if holds else _OPPOSITE[op], affine_of(a), affine_of(b))
            return Restriction(condition_text(condition), condition[1].indices, forms=(condition[1],))
        case _:
            raise NotAffine(expr, "")


_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


def _comparison(op: str, left: Affine, right: Affine) -> Condition:
    match op:
        case "le":
            return "ge", right - left
        case "lt":
            return "ge", right - left - 1
        case "ge":
            return "ge", left - right
        case "gt":
            return "ge", left - right - 1
        case _:
            return op, left - right


_SIGNS = {"ge": ">=", "eq": "=", "ne": "!="}


def condition_text(condition: Condition) -> str:
    """Return a condition in isl's syntax."""
    op, form = condition
    return f"{form.text} {_SIGNS[op]} 0"


def holds(condition: Condition) -> bool | None:
    """Return whether a condition on constants holds; None where it has names."""
    op, form = condition
    if not form.is_constant:
        return None
    return form.const >= 0 if op == "ge" else (form.const == 0) == (op == "eq")
