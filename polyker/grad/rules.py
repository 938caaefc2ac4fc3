"""The partial derivatives of operators and functions, each as an expression of the arguments and of the result.

Where a function has none (at the corner of `abs`, `relu`, `clip`) the derivative is that of one side, or half of both, as said
beside it. What is constant between its steps (`floor`, `sign`) has the derivative 0.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi, sqrt

from polyker.grad.values import ONE, ZERO, add, call, div, is_number, mul, neg, number, sub, where
from polyker.ir.expr import BITWISE, COMPARISONS, LOGICAL, Call, Expr, Literal

# From the arguments and the value of a call to the partial derivative by each argument.
Rule = Callable[[tuple[Expr, ...], Expr], tuple[Expr, ...]]

# What takes truth values and numbers that no small change of a float moves: it has no derivative because it needs none.
CONSTANT = frozenset((
    *COMPARISONS, *LOGICAL, *BITWISE,
    "floor", "ceil", "trunc", "round", "sign", "isnan", "isinf", "isfinite", "popcount", "floordiv",
))  # fmt: skip


def _square(x: Expr) -> Expr:
    return mul(x, x)


def _one(derivative: Callable[[Expr, Expr], Expr]) -> Rule:
    """Return the rule of a function of one argument, from its argument and its value."""
    return lambda args, value: (derivative(args[0], value),)


def _power(args: tuple[Expr, ...], value: Expr) -> tuple[Expr, ...]:
    """Return the rule of `x ** y`: by x it is 0 where y is 0, by y it is 0 where x is 0."""
    x, y = args
    if isinstance(y, Literal) and not isinstance(y.value, complex):
        if y.value in (0, 1, 2):
            return ((ZERO, ONE, mul(number(2), x))[int(y.value)], ZERO)
        return mul(y, call("pow", x, Literal(y.value - 1))), ZERO
    by_x = where(call("eq", y, ZERO), ZERO, mul(y, call("pow", x, sub(y, ONE))))
    return by_x, where(call("eq", x, ZERO), ZERO, mul(value, call("log", x)))


def _product(args: tuple[Expr, ...], value: Expr) -> tuple[Expr, ...]:
    return tuple(mul(*args[:n], *args[n + 1 :]) for n in range(len(args)))


def _over(value: Expr, divisor: Expr) -> Expr:
    """Return value / divisor as a product with the divisor's reciprocal, which is loop-invariant where the divisor is."""
    inverse = div(ONE, divisor)
    if isinstance(value, Call) and value.op == "div":
        return mul(value.args[0], inverse, inverse)
    return mul(value, inverse)


def _extremum(op: str) -> Rule:
    """Return the rule of `minimum` and `maximum`: half of it goes to each of two equal arguments."""

    def rule(args: tuple[Expr, ...], value: Expr) -> tuple[Expr, ...]:
        a, b = args
        half = where(call("eq", a, b), number(0.5))
        return where(call(op, a, b), ONE, half), where(call(op, b, a), ONE, half)

    return rule


def _clip(args: tuple[Expr, ...], value: Expr) -> tuple[Expr, ...]:
    """Return the rule of `clip`: at a bound it is that of the inside."""
    x, low, high = args
    below, above = call("lt", x, low), call("gt", x, high)
    inside = where(call("or", below, above), ZERO, ONE)
    return (
        inside,
        where(call("and", below, call("le", low, high)), ONE),
        where(call("or", above, call("lt", high, low)), ONE),
    )


def _tanh_like(x: Expr, y: Expr) -> Expr:
    return sub(ONE, _square(y))


_GAUSS = 2 / sqrt(pi)

RULES: dict[str, Rule] = {
    "add": lambda args, value: (ONE,) * len(args),
    "mul": _product,
    "neg": _one(lambda x, y: number(-1)),
    "div": lambda args, value: (div(ONE, args[1]), neg(_over(value, args[1]))),
    "pow": _power,
    "mod": lambda args, value: (ONE, neg(call("floor", div(args[0], args[1])))),
    "fmod": lambda args, value: (ONE, neg(call("trunc", div(args[0], args[1])))),
    "minimum": _extremum("lt"),
    "maximum": _extremum("gt"),
    "clip": _clip,
    "abs": _one(lambda x, y: call("sign", x)),  # 0 at 0
    "relu": _one(lambda x, y: where(call("gt", x, ZERO), ONE)),  # 0 at 0
    "copysign": lambda args, value: (mul(call("sign", args[0]), call("copysign", ONE, args[1])), ZERO),
    "exp": _one(lambda x, y: y),
    "exp2": _one(lambda x, y: mul(number(log(2)), y)),
    "expm1": _one(lambda x, y: call("exp", x)),
    "log": _one(lambda x, y: div(ONE, x)),
    "log2": _one(lambda x, y: div(number(1 / log(2)), x)),
    "log10": _one(lambda x, y: div(number(1 / log(10)), x)),
    "log1p": _one(lambda x, y: div(ONE, add(ONE, x))),
    "sqrt": _one(lambda x, y: div(number(0.5), y)),
    "cbrt": _one(lambda x, y: div(number(1 / 3), _square(y))),
    "rsqrt": _one(lambda x, y: mul(number(-0.5), div(y, x))),
    "hypot": lambda args, value: (div(args[0], value), div(args[1], value)),
    "sin": _one(lambda x, y: call("cos", x)),
    "cos": _one(lambda x, y: neg(call("sin", x))),
    "tan": _one(lambda x, y: add(ONE, _square(y))),
    "asin": _one(lambda x, y: call("rsqrt", sub(ONE, _square(x)))),
    "acos": _one(lambda x, y: neg(call("rsqrt", sub(ONE, _square(x))))),
    "atan": _one(lambda x, y: div(ONE, add(ONE, _square(x)))),
    "atan2": lambda args, value: (
        div(args[1], add(_square(args[0]), _square(args[1]))),
        neg(div(args[0], add(_square(args[0]), _square(args[1])))),
    ),
    "sinh": _one(lambda x, y: call("cosh", x)),
    "cosh": _one(lambda x, y: call("sinh", x)),
    "tanh": _one(_tanh_like),
    "asinh": _one(lambda x, y: call("rsqrt", add(_square(x), ONE))),
    "acosh": _one(lambda x, y: call("rsqrt", sub(_square(x), ONE))),
    "atanh": _one(lambda x, y: div(ONE, sub(ONE, _square(x)))),
    "erf": _one(lambda x, y: mul(number(_GAUSS), call("exp", neg(_square(x))))),
    "erfc": _one(lambda x, y: mul(number(-_GAUSS), call("exp", neg(_square(x))))),
    "erfinv": _one(lambda x, y: mul(number(1 / _GAUSS), call("exp", _square(y)))),
    "lgamma": _one(lambda x, y: call("digamma", x)),
    "sigmoid": _one(lambda x, y: mul(y, sub(ONE, y))),
    "gelu": _one(
        lambda x, y: add(
            mul(number(0.5), call("erfc", mul(number(-1 / sqrt(2)), x))),
            mul(number(1 / sqrt(2 * pi)), x, call("exp", mul(number(-0.5), _square(x)))),
        )
    ),
    "silu": _one(lambda x, y: mul(call("sigmoid", x), add(ONE, mul(x, call("sigmoid", neg(x)))))),
    "softplus": _one(lambda x, y: call("sigmoid", x)),
    "conj": _one(lambda x, y: ONE),  # of what is real
    "real": _one(lambda x, y: ONE),
    "imag": _one(lambda x, y: ZERO),
}


def partials(expr: Call) -> tuple[Expr, ...] | None:
    """Return the partial derivatives of a call by its arguments, None where there is no rule; `where` has its own."""
    rule = RULES.get(expr.op)
    if rule is None:
        return (ZERO,) * len(expr.args) if expr.op in CONSTANT else None
    found = rule(expr.args, expr)
    return tuple(ZERO if is_number(p, 0) else p for p in found)
