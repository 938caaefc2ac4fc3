"""Reverse mode over one expression: what each read adds to the gradient of its tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from polyker.errors.base import failure
from polyker.errors.gradients import NO_RULE
from polyker.grad.rules import partials
from polyker.grad.values import ONE, ZERO, add, both, is_number, mul, neg, where
from polyker.ir.expr import Call, Cast, Expr, Read


class Contribution(Struct, frozen=True):
    """What a read adds: `value`, where all of `conditions` hold, for each instance of its statement."""

    read: Read
    value: Expr
    conditions: tuple[Expr, ...] = ()

    @property
    def chosen(self) -> Expr:
        """The value, 0 where a condition does not hold; what is not chosen is not computed with, so that no NaN comes of it."""
        return where(both(self.conditions), self.value) if self.conditions else self.value


def contributions(expr: Expr, bar: Expr, is_varied: Callable[[str], bool]) -> Iterator[Contribution]:
    """Yield what each read of a varied tensor in an expression adds, where `bar` is the gradient by the expression's value.

    Raises GradientError for a function that has no derivative.
    """
    yield from _contributions(expr, bar, (), is_varied)


def _contributions(
    expr: Expr, bar: Expr, conditions: tuple[Expr, ...], is_varied: Callable[[str], bool]
) -> Iterator[Contribution]:
    if is_number(bar, 0) or not any(is_varied(name) for name in _tensors(expr)):
        return
    match expr:
        case Read():
            yield Contribution(expr, bar, conditions)
        case Cast(arg=arg, to=to) if to.is_float:  # an integer is constant between its steps
            yield from _contributions(arg, bar, conditions, is_varied)
        case Call(op="where", args=(condition, a, b)):
            yield from _contributions(a, bar, (*conditions, condition), is_varied)
            yield from _contributions(b, bar, (*conditions, Call("not", (condition,))), is_varied)
        case Call(args=args):
            found = partials(expr)
            if found is None:
                raise failure(NO_RULE, span=expr.span, function=expr.op)
            for arg, partial in zip(args, found, strict=True):
                value = neg(bar) if is_number(partial, -1) else mul(bar, partial)
                yield from _contributions(arg, value, conditions, is_varied)
        case _:
            return


def _tensors(expr: Expr) -> Iterator[str]:
    """Yield the tensors whose values an expression reads, those in subscripts apart."""
    match expr:
        case Read(tensor=tensor):
            yield tensor
        case Cast(arg=arg, to=to) if to.is_float:
            yield from _tensors(arg)
        case Call(args=args):
            for arg in args:
                yield from _tensors(arg)
        case _:
            return


def derivative(expr: Expr, is_varied: Callable[[str], bool], tangent: Callable[[Read], Expr]) -> Expr:
    """Return the derivative of an expression along tangents, one for each read: forward mode."""
    terms = [
        where(both(c.conditions), mul(c.value, tangent(c.read))) if c.conditions else mul(c.value, tangent(c.read))
        for c in contributions(expr, ONE, is_varied)
    ]
    return add(*terms) if terms else ZERO
