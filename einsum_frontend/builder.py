"""The builder: everything that the notation can say, said in Python, giving the same Program.

>>> i, j, k = indices("i j k")
>>> A, B, C = tensors("A B C")
>>> print(build(C[i, j].add(A[i, k] * B[k, j]).where(j <= i)))
C[i, j] += A[i, k] * B[k, j] where j <= i

| text                                  | builder                                                   |
|---------------------------------------|-----------------------------------------------------------|
| `C[i] = x`, `+=`, `max=` ...          | `C[i].set(x)`, `.add(x)`, `.max(x)` ... `.logsumexp(x)`    |
| `s += x[i]`                           | `s.add(x[i])`                                             |
| `... for h in 0:H where h <= i`       | `.for_(h=(0, H)).where(h <= i)`                           |
| `X[h-1; pad=0]`, `X[h; pad=edge]`     | `X.pad(0)[h - 1]`, `X.pad("edge")[h]`                     |
| `E[..., d]`                           | `E[..., d]`                                               |
| `sum[k](x)`, `sum[k, l](x)`           | `sum(k, x)`, `sum((k, l), x)`                             |
| `sum[k in 0:i+1](x where k != j)`     | `sum(k.in_(0, i + 1), x, where=k != j)`                   |
| `exp(x)`, `where(c, a, b)`, `f32(x)`  | `exp(x)`, `where(c, a, b)`, `f32(x)`                      |
| `a < b and c < d`, `or`, `not`        | `(a < b) & (c < d)`, `|`, `~`                              |
| `a and b`, `a or b`, `not a`          | `logical_and(a, b)`, `logical_or(a, b)`, `logical_not(a)` |
| `a & b`, `|`, `^`, `~a`, `<<`, `>>`   | `a & b`, `|`, `^`, `~a`, `<<`, `>>`                        |
| `for t in 0:steps:` and its block     | `loop(t, 0, steps, ...)`                                  |
| `T: f32[N, M]`                        | `T.typed(f32, (N, M))`                                    |
| `f(A: f64[N], n) -> A:` and its block | `declare("f", [A.typed(f64, (N,)), n], [A], ...)`         |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import TypeVar

from polyker.einsum_frontend.actions import check_arity
from polyker.einsum_frontend.building.expressions import Expression, Index, Size, Value, Within, to_expr
from polyker.einsum_frontend.building.statements import (
    Declaration,
    Repeated,
    build,
    declare,
    loop,
    ranges_of,
)
from polyker.einsum_frontend.building.statements import is_definition as is_definition
from polyker.einsum_frontend.building.statements import program as program
from polyker.einsum_frontend.building.tensors import Access, Assignment, Tensor, Typed, conjoined
from polyker.einsum_frontend.syntax import chain
from polyker.errors.base import ParseError, advised, failure
from polyker.errors.given import exact_text, printed
from polyker.errors.syntax import NOT_A_NAME, REDUCTION_CALLED, WRONG_ARITY
from polyker.errors.tracebacks import api_boundary
from polyker.ir import expr
from polyker.ir.functions import TABLE

__all__ = [
    "Access", "Assignment", "Declaration", "Expression", "Index", "Repeated", "Size", "Tensor", "Typed", "Value",
    "Within", "all", "any", "argmax", "argmin", "build", "cast", "declare", "indices", "inf", "logical_and", "logical_not",
    "logical_or", "logsumexp", "loop", "max", "mean", "min", "nan", "pi", "prod", "sizes", "sum", "tensors", *TABLE,
]  # fmt: skip

inf, nan, pi = math.inf, math.nan, math.pi
T = TypeVar("T")
_SPACES = 'one text has the names, with spaces between them: indices("i j k")'


@api_boundary
def indices(names: str) -> tuple[Index, ...]:
    """Return an index for each name: `i, j = indices("i j")`."""
    return _named(names, Index)


@api_boundary
def sizes(names: str) -> tuple[Size, ...]:
    """Return a size for each name: `N, M = sizes("N M")`."""
    return _named(names, Size)


@api_boundary
def tensors(names: str) -> tuple[Tensor, ...]:
    """Return a tensor for each name: `A, B = tensors("A B")`."""
    return _named(names, Tensor)


def _named(names: str, make: Callable[[str], T]) -> tuple[T, ...]:
    text = exact_text(names)
    if text is None or not text.split():
        raise failure(NOT_A_NAME, name=printed(names)[:80], hint=_SPACES)
    try:
        return tuple(make(name) for name in text.split(" ") if name)
    except ParseError as error:
        raise advised(error, _SPACES) if "," in text else error from None


@api_boundary
def cast(dtype: object, value: object) -> Expression:
    """Return `dtype(value)` for an element type, polyker's or NumPy's; `value.astype(dtype)` is the same."""
    return Value(to_expr(value)).astype(dtype)


@api_boundary
def logical_and(*values: object) -> Expression:
    """Return `a and b ...` of values of any type; of comparisons `a & b` is the same."""
    return _logical("and", values)


@api_boundary
def logical_or(*values: object) -> Expression:
    """Return `a or b ...` of values of any type; of comparisons `a | b` is the same."""
    return _logical("or", values)


@api_boundary
def logical_not(value: object) -> Expression:
    """Return `not a` of a value of any type; of a comparison `~a` is the same."""
    return Value(expr.Call("not", (to_expr(value),)))


def _logical(op: str, values: tuple[object, ...]) -> Expression:
    if len(values) < 2:
        raise failure(WRONG_ARITY, name=f"logical_{op}", wanted=2, count=len(values))
    first, *rest = map(to_expr, values)
    return Value(chain(first, [(op, e) for e in rest]))


def _reduction(op: str) -> Callable[..., Expression]:
    @api_boundary
    def reduce(over: object, value: object = None, *, where: object = None) -> Expression:
        if value is None or (isinstance(over, Expression) and not isinstance(over, Index)):
            raise failure(REDUCTION_CALLED, name=op, hint=f"write {op}(k, value); of two values, maximum and minimum")
        conditions = () if where is None else where if isinstance(where, (tuple, list)) else (where,)
        return Value(expr.Reduce(op, ranges_of(over), to_expr(value), conjoined(conditions)))

    reduce.__name__ = reduce.__qualname__ = op
    reduce.__doc__ = f"""Return the inline reduction `{op}[k](value where ...)`.

    `over`: an index, a range `k.in_(lo, hi)`, or a tuple of these; `where`: a condition, or a tuple of them.
    """
    return reduce


sum, prod, max, min = _reduction("sum"), _reduction("prod"), _reduction("max"), _reduction("min")
mean, logsumexp = _reduction("mean"), _reduction("logsumexp")
argmax, argmin = _reduction("argmax"), _reduction("argmin")
any, all = _reduction("any"), _reduction("all")


def _function(name: str) -> Callable[..., Expression]:
    @api_boundary
    def apply(*values: object) -> Expression:
        check_arity(name, len(values))
        return Value(expr.Call(name, tuple(to_expr(v) for v in values)))

    named = ("c", "a", "b") if name == "where" else "xyz"[: TABLE[name].arity]
    vars(apply)["__signature__"] = Signature([Parameter(n, Parameter.POSITIONAL_ONLY) for n in named])
    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"Return `{name}` of expressions, as numpy's."
    return apply


# Every function of the table, by its name.
globals().update({name: _function(name) for name in TABLE})
