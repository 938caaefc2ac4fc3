"""Expressions to text: the notation itself, so that what is printed reads back as an equal expression."""

from __future__ import annotations

import math
from typing import assert_never

from polyker.ir.dtypes import bool_
from polyker.ir.expr import Call, Cast, Dots, Expr, IndexExpr, Literal, Pad, Range, Read, Reduce, SizeExpr

_OR, _AND, _NOT, _COMPARISON, _BIT_OR, _BIT_XOR, _BIT_AND, _SHIFT, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(1, 14)
_INFIX = {
    "or": ("or", _OR), "and": ("and", _AND), "lt": ("<", _COMPARISON), "le": ("<=", _COMPARISON),
    "gt": (">", _COMPARISON), "ge": (">=", _COMPARISON), "eq": ("==", _COMPARISON), "ne": ("!=", _COMPARISON),
    "add": ("+", _SUM), "mul": ("*", _PRODUCT), "div": ("/", _PRODUCT), "floordiv": ("//", _PRODUCT),
    "mod": ("%", _PRODUCT), "bit_or": ("|", _BIT_OR), "bit_xor": ("^", _BIT_XOR), "bit_and": ("&", _BIT_AND),
    "shift_left": ("<<", _SHIFT), "shift_right": (">>", _SHIFT),
}  # fmt: skip
SYMBOLS = {op: symbol for op, (symbol, _) in _INFIX.items()} | {"bit_not": "~"}


def print_expr(expr: Expr) -> str:
    """Return an expression in the notation.

    >>> print_expr(Call("mul", (IndexExpr("i"), Call("add", (IndexExpr("j"), Literal(1))))))
    'i * (j + 1)'
    """
    return _render(expr, False)[0]


def print_range(extent: Range) -> str:
    """Return an index with its bounds, if it has any."""
    if extent.lo is None or extent.hi is None:
        return extent.index
    return f"{extent.index} in {print_expr(extent.lo)}:{print_expr(extent.hi)}"


def print_conditions(conditions: tuple[Expr, ...]) -> str:
    """Return ` where` with the conditions, nothing where there are none."""
    # `and` between conditions would split what `or` and `not` hold together.
    # A bare name in a condition is an index or a size: 0-d tensors have their brackets.
    return " where " + " and ".join(_at(c, _NOT, True) for c in conditions) if conditions else ""


def print_subscripts(subscripts: tuple[Expr, ...]) -> str:
    """Return subscripts as they stand in brackets."""
    return ", ".join(_render(s, True)[0] for s in subscripts)


def _at(expr: Expr, level: int, subscript: bool) -> str:
    """Return the text of an operand, in parentheses if it binds more loosely than `level`."""
    text, binding = _render(expr, subscript)
    return text if binding >= level else f"({text})"


def _render(expr: Expr, subscript: bool) -> tuple[str, int]:
    """Return the text and how tightly it binds; in a `subscript` a 0-d tensor is written with its brackets."""
    match expr:
        case Literal(value=value):
            return _literal(value)
        case IndexExpr(name=name) | SizeExpr(name=name):
            return name, _ATOM
        case Dots():
            return "...", _ATOM
        case Read(tensor=tensor, subscripts=subscripts, pad=pad):
            if not subscripts and pad is None and not subscript:
                return tensor, _ATOM
            return f"{tensor}[{print_subscripts(subscripts)}{_pad(pad)}]", _ATOM
        case Cast(to=to, arg=Literal(value=0 | 1 as value)) if to == bool_:
            return str(bool(value)), _ATOM
        case Cast(to=to, arg=arg):
            return f"{to.name}({_render(arg, subscript)[0]})", _ATOM
        case Reduce(op=op, ranges=ranges, body=body, conditions=conditions):
            return (
                f"{op}[{', '.join(map(print_range, ranges))}]({_render(body, subscript)[0]}{print_conditions(conditions)})",
                _ATOM,
            )
        case Call():
            return _call(expr, subscript)
        case _:
            assert_never(expr)


def _call(call: Call, subscript: bool) -> tuple[str, int]:
    op, args = call.op, call.args
    if op == "neg":
        return f"-{_at(args[0], _SIGN, subscript)}", _SIGN
    if op == "bit_not":
        return f"~{_at(args[0], _SIGN, subscript)}", _SIGN
    if op == "not":
        return f"not {_at(args[0], _NOT, subscript)}", _NOT
    if op == "pow":
        bases = [_at(a, _ATOM, subscript) for a in args[:-1]]
        return " ** ".join([*bases, _at(args[-1], _SIGN, subscript)]), _POWER
    if op not in _INFIX:
        return f"{op}({', '.join(_render(a, subscript)[0] for a in args)})", _ATOM
    symbol, level = _INFIX[op]
    # On the left a run of the same operator, or an equal comparison, would be read as one chain.
    first = level + 1 if level == _COMPARISON or (isinstance(args[0], Call) and args[0].op == op) else level
    parts = [_at(args[0], first, subscript)]
    for arg in args[1:]:
        if op == "add" and isinstance(arg, Call) and arg.op == "neg":
            parts.append(f"- {_at(arg.args[0], _PRODUCT, subscript)}")
        else:
            parts.append(f"{symbol} {_at(arg, level + 1, subscript)}")
    return " ".join(parts), level


def _literal(value: bool | int | float | complex) -> tuple[str, int]:
    if isinstance(value, bool):
        return str(value), _ATOM
    if isinstance(value, complex):
        return _complex(value)
    text = repr(value)
    return text, _SIGN if text.startswith("-") else _ATOM


def _complex(value: complex) -> tuple[str, int]:
    negative = math.copysign(1.0, value.imag) < 0
    imaginary = f"{abs(value.imag)!r}j"
    if value.real == 0 and (math.copysign(1.0, value.real) < 0) == negative:
        return (f"-{imaginary}", _SIGN) if negative else (imaginary, _ATOM)
    return f"{value.real!r} {'-' if negative else '+'} {imaginary}", _SUM


def _pad(pad: Pad | None) -> str:
    if pad is None:
        return ""
    return f"; pad={_literal(pad.value.value)[0] if pad.value is not None else pad.mode}"
