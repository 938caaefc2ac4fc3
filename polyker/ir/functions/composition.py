"""Compositions of functions, such as `x * tanh(x)`: evaluated with values of any kind."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

T = TypeVar("T")
_OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.USub: "neg", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt",
    ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def repeats(text: str) -> tuple[int, int, int]:
    """Return how often x, y and z stand in a composition."""
    names = [node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name)]
    return names.count("x"), names.count("y"), names.count("z")


def composed(
    text: str, args: Sequence[T], apply: Callable[[str, tuple[T, ...]], T], constant: Callable[[float], T]
) -> T:
    """Return the value of a composition of x, y and z.

    `apply` gives the value of an operator of two operands or of a function, `constant` that of a number.
    """
    given = dict(zip("xyz", args, strict=False))

    def value(node: ast.expr) -> T:
        match node:
            case ast.Name(id=name):
                return given[name]
            case ast.Constant(value=int() | float() as number):
                return constant(number)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return constant(-number)
            case ast.UnaryOp(op=op, operand=operand):
                return apply(_OPERATORS[type(op)], (value(operand),))
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
                return apply(_OPERATORS[type(op)], (value(left), value(right)))
            case ast.Call(func=ast.Name(id=name), args=operands):
                return apply(name, tuple(map(value, operands)))
            case _:
                raise ValueError(f"no composition: {text}")

    return value(_parsed(text))
