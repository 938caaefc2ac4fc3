"""Tensors built in Python, and the statements that assign to their elements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from msgspec import Struct

from polyker.einsum_frontend.actions import PAD_MODES, check_dots
from polyker.einsum_frontend.building.expressions import Expression, Within, number_of, to_expr
from polyker.einsum_frontend.check import check_measure
from polyker.einsum_frontend.check import expressions as expressions_of
from polyker.einsum_frontend.names import check_name
from polyker.einsum_frontend.syntax import conjuncts
from polyker.errors.base import failure
from polyker.errors.given import exact_text, listed, printed
from polyker.errors.syntax import BAD_PAD, NOT_AN_EXPRESSION, PAD_ON_LEFT
from polyker.errors.tracebacks import api_class
from polyker.ir import expr
from polyker.ir.dtypes import TensorType, dtype_of
from polyker.ir.program import Declared, Statement, print_statement
from polyker.structs import replace

MAX_DIMENSIONS = 4096  # of a shape, that are looked at; programs have less


@api_class
class Assignment(Struct, frozen=True):
    """A statement; `for_` gives indices their ranges, `where` adds conditions."""

    statement: Statement

    def __repr__(self) -> str:
        for part in expressions_of(self.statement):
            check_measure(part)
        return print_statement(self.statement)

    def for_(self, *ranges: Within, **named: tuple[object, object]) -> Assignment:
        """Return the statement with ranges: `.for_(h=(0, H))` or `.for_(h.in_(0, H))`, in this order.

        Raises ParseError for what is no range.
        """
        found = [range_of(r) for r in ranges]
        for name, pair in named.items():
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise failure(NOT_AN_EXPRESSION, value=printed(pair), why=f"a range is a pair: {name}=(lo, hi)")
            found.append(expr.Range(check_name(name), to_expr(pair[0]), to_expr(pair[1])))
        return Assignment(replace(self.statement, ranges=(*self.statement.ranges, *found)))

    def where(self, *conditions: object) -> Assignment:
        """Return the statement restricted to where all of the conditions hold."""
        return Assignment(replace(self.statement, conditions=(*self.statement.conditions, *conjoined(conditions))))


def _assignment(target: expr.Read, op: str, value: expr.Expr) -> Assignment:
    """Return the statement `target OP value`; raises ParseError for what is too deep or too large."""
    for part in (*target.subscripts, value):
        check_measure(part)
    return Assignment(Statement(target.tensor, target.subscripts, op, value))


def conjoined(conditions: Iterable[object]) -> tuple[expr.Expr, ...]:
    """Return conditions with those that `&` joins apart."""
    found = [to_expr(c) for c in conditions]
    for condition in found:
        check_measure(condition)
    return tuple(part for c in found for part in conjuncts(c))


def range_of(given: object) -> expr.Range:
    """Return what `index.in_(lo, hi)` says; raises ParseError for anything else."""
    if not isinstance(given, Within):
        shown = repr(given) if isinstance(given, Expression) else f"a {type(given).__name__}"
        raise failure(NOT_AN_EXPRESSION, value=shown, why="a range is written i.in_(lo, hi)")
    return given.range


@api_class
class Element(Expression):
    """What can be read, and assigned by `set`, `add` and the other reductions."""

    __slots__ = ()

    def _assign(self, op: str, value: object) -> Assignment:
        read = self.expr
        assert isinstance(read, expr.Read)
        if read.pad is not None:
            raise failure(PAD_ON_LEFT)
        return _assignment(read, op, to_expr(value))

    def set(self, value: object) -> Assignment:
        """Return the statement `X[...] = value`."""
        return self._assign("set", value)

    def add(self, value: object) -> Assignment:
        """Return the statement `X[...] += value`."""
        return self._assign("add", value)

    def mul(self, value: object) -> Assignment:
        """Return the statement `X[...] *= value`."""
        return self._assign("mul", value)

    def max(self, value: object) -> Assignment:
        """Return the statement `X[...] max= value`."""
        return self._assign("max", value)

    def min(self, value: object) -> Assignment:
        """Return the statement `X[...] min= value`."""
        return self._assign("min", value)

    def any(self, value: object) -> Assignment:
        """Return the statement `X[...] any= value`."""
        return self._assign("any", value)

    def all(self, value: object) -> Assignment:
        """Return the statement `X[...] all= value`."""
        return self._assign("all", value)

    def logsumexp(self, value: object) -> Assignment:
        """Return the statement `X[...] logsumexp= value`."""
        return self._assign("logsumexp", value)


class Access(Element):
    """`X[i, j]`."""

    __slots__ = ()


@api_class
class Tensor(Element):
    """A tensor; alone it is a 0-d value, subscripted an element."""

    __slots__ = ("name", "padding")

    def __init__(self, name: str, padding: expr.Pad | None = None) -> None:
        self.name = check_name(name)
        self.padding = padding
        super().__init__(expr.Read(name, (), padding))

    def __getitem__(self, subscripts: object) -> Access:
        each = subscripts if isinstance(subscripts, tuple) else (subscripts,)
        found = tuple(expr.Dots() if s is ... else to_expr(s) for s in each)
        check_dots(found)
        return Access(expr.Read(self.name, found, self.padding))

    def __setitem__(self, subscripts: object, value: object) -> NoReturn:
        why = f"Python cannot assign to an expression; write {self.name}[...].add(value) or .set(value)"
        raise failure(NOT_AN_EXPRESSION, value=f"{self.name}[...] = ...", why=why)

    def pad(self, value: object) -> Tensor:
        """Return the tensor as padded: by a constant, or by "edge", "wrap" or "reflect"; raises ParseError for any other."""
        mode = exact_text(value)
        if mode is not None:
            if mode not in PAD_MODES:
                raise failure(BAD_PAD, found=mode)
            return Tensor(self.name, expr.Pad(mode))
        return Tensor(self.name, expr.Pad("constant", expr.Literal(number_of(value))))

    def typed(self, dtype: object = None, shape: Iterable[object] | None = None) -> Typed:
        """Return the declaration `X: f32[N, 3]`; the shape holds ints, sizes and sums of them, or names.

        `X.typed(pk.f32, (N, 3))` and `X.typed(pk.f32["N", 3])` are the same; both parts may be left out. Types of NumPy are
        taken, too.
        Raises ParseError where either is none.
        """
        if isinstance(dtype, TensorType):
            shape, dtype = dtype.shape, dtype.dtype
        element = None if dtype is None else dtype_of(dtype)
        if dtype is not None and element is None:
            raise failure(NOT_AN_EXPRESSION, value=printed(dtype), why="an element type is wanted, such as pk.f32")
        if shape is None:
            return Typed(Declared(self.name, element))
        each = listed(shape, MAX_DIMENSIONS)
        if each is None:
            raise failure(NOT_AN_EXPRESSION, value=f"a {type(shape).__name__}", why="a shape is a list of sizes")
        dims = tuple(expr.SizeExpr(check_name(s)) if isinstance(s, str) else to_expr(s) for s in each)
        return Typed(Declared(self.name, element, dims))


class Typed(Struct, frozen=True):
    """A tensor with its declared type."""

    declared: Declared
