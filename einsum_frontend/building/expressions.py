"""Expressions built in Python: indices, sizes and numbers with overloaded operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from msgspec import Struct

from polyker.einsum_frontend.building.ufuncs import applied
from polyker.einsum_frontend.check import check_measure
from polyker.einsum_frontend.elsewhere import RENAMED
from polyker.einsum_frontend.names import check_name
from polyker.einsum_frontend.syntax import bits, chain, compare, inverted, power
from polyker.errors.base import PolykerError, failure
from polyker.errors.given import is_array, printed
from polyker.errors.syntax import NO_MEANING, NO_VALUE, NOT_AN_EXPRESSION, NUMBER_TOO_LARGE, TRUTH
from polyker.errors.tracebacks import api_class
from polyker.ir import dtypes, expr
from polyker.ir.dtypes import dtype_of
from polyker.ir.functions import TABLE
from polyker.ir.printing import print_expr


@api_class
class Expression:
    """A value of the notation; operators and comparisons make new expressions; `& | ~` of conditions are and, or, not.

    Only its subclasses have instances, and none of these is a subclass of another: Python would give the operator
    of a subclass on the right precedence, and turn `a < b` into `b > a`.
    """

    __slots__ = ("expr",)
    __hash__ = None  # type: ignore[assignment]
    __iter__ = None

    def __init__(self, value: expr.Expr) -> None:
        self.expr = value

    def __repr__(self) -> str:
        try:
            check_measure(self.expr)
        except PolykerError as problem:
            return f"<{problem.message}>"
        return print_expr(self.expr)

    def __bool__(self) -> NoReturn:
        raise failure(TRUTH)

    def __float__(self) -> NoReturn:
        raise failure(NO_VALUE, kind="a float")

    def __int__(self) -> NoReturn:
        raise failure(NO_VALUE, kind="an int")

    def __complex__(self) -> NoReturn:
        raise failure(NO_VALUE, kind="a complex")

    def __array__(self, *args: object, **options: object) -> NoReturn:
        raise failure(NO_VALUE, kind="an array")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> Expression:
        """`np.exp(x)`, `np.add(a, b)`, and operators of NumPy's scalars on the left."""
        # A scalar on the left of a comparison comes as an array without dimensions.
        given = (v[()] if isinstance(v, np.ndarray) and v.ndim == 0 else v for v in inputs)
        return Value(applied(ufunc.__name__, tuple(map(to_expr, given)), options, method))

    def __array_function__(
        self, function: Callable[..., Any], types: object, args: tuple[object, ...], options: dict[str, object]
    ) -> Expression:
        """`np.where(c, a, b)`, and others that are no ufuncs."""
        given = () if function.__name__ not in TABLE else tuple(map(to_expr, args))
        return Value(applied(function.__name__, given, options))

    def __getattr__(self, name: str) -> NoReturn:
        ours = RENAMED.get(name, name)
        known = ours in TABLE or ours in expr.REDUCTIONS
        said = f"; write pk.{ours}({'k, ' if ours in expr.REDUCTIONS else ''}x)" if known else ""
        raise AttributeError(f"an expression has no attribute {name!r}{said}", name=name, obj=self)

    def astype(self, dtype: object) -> Expression:
        """Return the value converted to an element type, polyker's or NumPy's: `f32(x)`; raises ParseError for anything else."""
        found = dtype_of(dtype)
        if found is None:
            raise failure(NOT_AN_EXPRESSION, value=printed(dtype), why="a cast takes an element type such as pk.f32")
        return Value(expr.Cast(found, self.expr))

    def __add__(self, other: object) -> Expression:
        return Value(chain(self.expr, [("add", to_expr(other))]))

    def __radd__(self, other: object) -> Expression:
        return Value(chain(to_expr(other), [("add", self.expr)]))

    def __sub__(self, other: object) -> Expression:
        return Value(chain(self.expr, [("add", expr.Call("neg", (to_expr(other),)))]))

    def __rsub__(self, other: object) -> Expression:
        return Value(chain(to_expr(other), [("add", expr.Call("neg", (self.expr,)))]))

    def __mul__(self, other: object) -> Expression:
        return Value(chain(self.expr, [("mul", to_expr(other))]))

    def __rmul__(self, other: object) -> Expression:
        return Value(chain(to_expr(other), [("mul", self.expr)]))

    def __truediv__(self, other: object) -> Expression:
        return Value(chain(self.expr, [("div", to_expr(other))]))

    def __rtruediv__(self, other: object) -> Expression:
        return Value(chain(to_expr(other), [("div", self.expr)]))

    def __floordiv__(self, other: object) -> Expression:
        return Value(chain(self.expr, [("floordiv", to_expr(other))]))

    def __rfloordiv__(self, other: object) -> Expression:
        return Value(chain(to_expr(other), [("floordiv", self.expr)]))

    def __mod__(self, other: object) -> Expression:
        return Value(chain(self.expr, [("mod", to_expr(other))]))

    def __rmod__(self, other: object) -> Expression:
        return Value(chain(to_expr(other), [("mod", self.expr)]))

    def __divmod__(self, other: object) -> tuple[Expression, Expression]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[Expression, Expression]:
        return other // self, other % self

    def __matmul__(self, other: object) -> NoReturn:
        raise failure(NO_MEANING, operation="@", advice="write the sum of products: C[i, j].add(A[i, k] * B[k, j])")

    __rmatmul__ = __matmul__

    def __getitem__(self, subscripts: object) -> Any:
        raise failure(NO_MEANING, operation="X[i][j]", advice="the subscripts of a tensor stand in one pair: A[i, j]")

    def __pow__(self, other: object, modulus: object = None) -> Expression:
        if modulus is not None:
            raise failure(NO_MEANING, operation="pow(a, b, m)", advice="write a ** b % m")
        return Value(power(self.expr, to_expr(other)))

    def __rpow__(self, other: object) -> Expression:
        return Value(power(to_expr(other), self.expr))

    def __neg__(self) -> Expression:
        return Value(expr.Call("neg", (self.expr,)))

    def __pos__(self) -> Expression:
        return self

    def __abs__(self) -> Expression:
        return Value(expr.Call("abs", (self.expr,)))

    def __round__(self, digits: object = None) -> Expression:
        if digits is not None:
            raise failure(NO_MEANING, operation="round(x, digits)", advice="write round(x * 100) / 100")
        return Value(expr.Call("round", (self.expr,)))

    def __floor__(self) -> Expression:
        return Value(expr.Call("floor", (self.expr,)))

    def __ceil__(self) -> Expression:
        return Value(expr.Call("ceil", (self.expr,)))

    def __trunc__(self) -> Expression:
        return Value(expr.Call("trunc", (self.expr,)))

    def __invert__(self) -> Expression:
        return Value(inverted(self.expr))

    def __and__(self, other: object) -> Expression:
        return Value(bits(self.expr, [("bit_and", to_expr(other))]))

    def __rand__(self, other: object) -> Expression:
        return Value(bits(to_expr(other), [("bit_and", self.expr)]))

    def __or__(self, other: object) -> Expression:
        return Value(bits(self.expr, [("bit_or", to_expr(other))]))

    def __ror__(self, other: object) -> Expression:
        return Value(bits(to_expr(other), [("bit_or", self.expr)]))

    def __xor__(self, other: object) -> Expression:
        return Value(bits(self.expr, [("bit_xor", to_expr(other))]))

    def __rxor__(self, other: object) -> Expression:
        return Value(bits(to_expr(other), [("bit_xor", self.expr)]))

    def __lshift__(self, other: object) -> Expression:
        return Value(chain(self.expr, [("shift_left", to_expr(other))]))

    def __rlshift__(self, other: object) -> Expression:
        return Value(chain(to_expr(other), [("shift_left", self.expr)]))

    def __rshift__(self, other: object) -> Expression:
        return Value(chain(self.expr, [("shift_right", to_expr(other))]))

    def __rrshift__(self, other: object) -> Expression:
        return Value(chain(to_expr(other), [("shift_right", self.expr)]))

    def __lt__(self, other: object) -> Expression:
        return Value(compare((self.expr, to_expr(other)), ("lt",)))

    def __le__(self, other: object) -> Expression:
        return Value(compare((self.expr, to_expr(other)), ("le",)))

    def __gt__(self, other: object) -> Expression:
        return Value(compare((self.expr, to_expr(other)), ("gt",)))

    def __ge__(self, other: object) -> Expression:
        return Value(compare((self.expr, to_expr(other)), ("ge",)))

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return Value(compare((self.expr, to_expr(other)), ("eq",)))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return Value(compare((self.expr, to_expr(other)), ("ne",)))


class Value(Expression):
    """What operators and functions make."""

    __slots__ = ()


@api_class
class Index(Expression):
    """An index; `i.in_(lo, hi)` gives it a range."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = check_name(name)
        super().__init__(expr.IndexExpr(name))

    def in_(self, lo: object, hi: object) -> Within:
        """Return the range `i in lo:hi`, half open, for `for_`, `loop` and inline reductions; raises ParseError if too deep."""
        first, last = to_expr(lo), to_expr(hi)
        check_measure(first)
        check_measure(last)
        return Within(expr.Range(self.name, first, last))


@api_class
class Size(Expression):
    """A size, which shapes or the caller give."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = check_name(name)
        super().__init__(expr.SizeExpr(name))


class Within(Struct, frozen=True):
    """`index in lo:hi`, or an index alone."""

    range: expr.Range


def to_expr(value: object) -> expr.Expr:
    """Return an expression, or a Python or numpy number as a literal. Raises ParseError for anything else."""
    if isinstance(value, Expression):
        return value.expr
    number = number_of(value)
    if isinstance(number, bool):
        return expr.Cast(dtypes.bool_, expr.Literal(int(number)))
    if isinstance(number, complex):
        return _complex(number)
    negative = math.copysign(1, number) < 0 and number == number
    literal = expr.Literal(-number if negative else number)
    return expr.Call("neg", (literal,)) if negative else literal


def _complex(number: complex) -> expr.Expr:
    """Return `a + bj` as the text would have it: signs are operators."""
    imaginary: expr.Expr = expr.Literal(complex(0.0, abs(number.imag)))
    if math.copysign(1, number.imag) < 0:
        imaginary = expr.Call("neg", (imaginary,))
    return imaginary if number.real == 0 else expr.Call("add", (to_expr(number.real), imaginary))


def number_of(value: object) -> bool | int | float | complex:
    """Return a Python or numpy number as a plain one. Raises ParseError for anything else."""
    if isinstance(value, (np.bool_, np.integer, np.floating, np.complexfloating)):
        value = value.item()
    if isinstance(value, int) and not isinstance(value, bool):
        value = int.__index__(value)  # a plain number of what may be a class of its own
    elif isinstance(value, float):
        value = float.__float__(value)
    if isinstance(value, float) and value != value:
        return math.nan  # one object, so that equal programs compare equal
    if isinstance(value, complex) and not (math.isfinite(value.real) and math.isfinite(value.imag)):
        raise failure(NOT_AN_EXPRESSION, value=value, why="the parts of a complex literal are finite")
    if not isinstance(value, (bool, int, float, complex)):
        raise failure(NOT_AN_EXPRESSION, value=_shown(value), why=_advice(value))
    if isinstance(value, int) and abs(value) >= 2**64:
        raise failure(NUMBER_TOO_LARGE, text=f"of {value.bit_length()} bits", advice="an integer has 64 bits")
    return value


def _shown(value: object) -> Any:
    return printed(value) if isinstance(value, (str, slice)) else f"a {type(value).__name__}"


def _advice(value: object) -> str:
    match value:
        case slice():
            return "a subscript is one index, not a slice"
        case str():
            return "names are made by indices, sizes and tensors"
        case Within():
            return "a range stands in for_, loop and inline reductions"
        case _ if is_array(value):
            return "an array is given when the operator is called; a tensor of `tensors` stands for it"
        case _:
            return "it is made of indices, sizes, tensors and numbers"
