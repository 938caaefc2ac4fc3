"""Bitwise operations: their constants folded, and hints where operands are no integers."""

from __future__ import annotations

from polyker.errors.base import Span
from polyker.ir.dtypes import f16, f32
from polyker.ir.expr import COMPARISONS, Call, Expr
from polyker.ir.printing import SYMBOLS
from polyker.ir.promotion import ValueType

_WIDEST = 64  # bits by which a constant is shifted exactly


def folded(op: str, a: int, b: int) -> int | None:
    """Return the exact value of an operation on two Python integers, None of a shift that is left to the type it meets.

    >>> folded("shift_left", 1, 40), folded("bit_xor", 6, 3)
    (1099511627776, 5)
    """
    match op:
        case "bit_and":
            return a & b
        case "bit_or":
            return a | b
        case "bit_xor":
            return a ^ b
    if not 0 <= b < _WIDEST:
        return None
    return a << b if op == "shift_left" else a >> b


def conversion(op: str, args: tuple[Expr, ...], types: tuple[ValueType, ...]) -> str:
    """Return a hint that writes the operation with what is no integer converted: `i32(X[i]) & 3`."""
    texts = [_text(a.span) for a in args]
    if op in ("bit_and", "bit_or") and all(t.dtype.kind in "fc" for t in types):
        return f"for true or false write `{'and' if op == 'bit_and' else 'or'}`; for bits convert first: `i64(...)`"
    if "" in texts or any(t.dtype.is_complex for t in types):
        return "convert what is no integer first: `i64(...)`"
    written = []
    mixed = all(t.dtype.is_integer for t in types)  # u64 and a signed type, which have no integer type in common
    for text, arg, found in zip(texts, args, types, strict=True):
        if found.dtype.kind == "f" or (mixed and found.dtype.kind == "u"):
            text = f"{'i32' if found.dtype in (f16, f32) else 'i64'}({text})"
        elif isinstance(arg, Call) and len(args) > 1:
            text = f"({text})"
        written.append(text)
    whole = f"~{written[0]}" if op == "bit_not" else f" {SYMBOLS[op]} ".join(written)
    power = f"; a power is `{texts[0]} ** {texts[1]}`" if op == "bit_xor" else ""
    return f"convert first: `{whole}`{power}"


def meant(expr: Call) -> str | None:
    """Return a hint for comparisons joined by `&` or `|`, which bind tighter: `a < b & c < d` is meant as `a < b and c < d`.

    `expr` is a comparison, or the `and` of the comparisons of a chain. None where no operand is such a join.
    """
    pairs = expr.args if expr.op == "and" else (expr,)
    if not all(isinstance(p, Call) and p.op in COMPARISONS for p in pairs):
        return None
    operands: list[Expr] = [pairs[0].args[0]]  # type: ignore[union-attr]
    text, found = "", False
    for pair in pairs:
        assert isinstance(pair, Call)
        if operands[-1] != pair.args[0]:
            return None
        operands.append(pair.args[1])
    for place, operand in enumerate(operands):
        if place:
            text += f" {SYMBOLS[pairs[place - 1].op]} "  # type: ignore[union-attr]
        part = _text(operand.span)
        if isinstance(operand, Call) and operand.op in ("bit_and", "bit_or") and not part.startswith("("):
            found = True
            part = f" {'and' if operand.op == 'bit_and' else 'or'} ".join(_text(a.span) for a in operand.args)
        text += part
    return f"`&` and `|` bind tighter than comparisons: write `{text}`" if found and "  " not in text else None


def _text(span: Span | None) -> str:
    return " ".join(span.source.text[span.start : span.end].split()) if span else ""
