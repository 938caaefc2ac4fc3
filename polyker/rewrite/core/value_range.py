"""Bound the values of integer expressions by element types and indices; find them modulo a power of two."""

from __future__ import annotations

from collections.abc import Callable

from polyker.ir.dtypes import DType
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal
from polyker.ir.functions import TABLE
from polyker.ir.functions.composition import composed
from polyker.ir.promotion import integer_range
from polyker.structs import replace

ValueRange = tuple[int, int]  # least and greatest value
_MODULAR = ("add", "mul", "neg", "bit_and", "bit_or", "bit_xor", "bit_not")


def type_range(dtype: DType) -> ValueRange:
    """Return the least and the greatest value of an integer type, or of bool.

    >>> from polyker.ir.dtypes import i8
    >>> type_range(i8)
    (-128, 127)
    """
    return (0, 1) if dtype.kind == "b" else integer_range(dtype)


def _unknown(index: str) -> ValueRange | None:
    return None


def value_range(expr: Expr, of_index: Callable[[str], ValueRange | None] = _unknown) -> ValueRange | None:
    """Return the least and the greatest value that an expression may have, None of what is no integer.

    What may wrap around has the range of its type. `of_index`: those of an index, where they are known.
    """
    dtype = expr.dtype
    if dtype is None or not (dtype.is_integer or dtype.kind == "b"):
        return None
    least, most = type_range(dtype)
    found = _range(expr, of_index)
    return found if found is not None and least <= found[0] and found[1] <= most else (least, most)


def _range(expr: Expr, of_index: Callable[[str], ValueRange | None]) -> ValueRange | None:
    """Return the range of an expression as if nothing wrapped, None where it is not known."""
    match expr:
        case IndexExpr(name=name):
            return of_index(name)
        case Literal(value=bool() | int() as value):
            return int(value), int(value)
        case Cast(arg=arg, to=to):
            return None if to.kind == "b" else value_range(arg, of_index)
        case Call(op=op, args=args) if expr.dtype is not None and expr.dtype.is_integer:
            ranges = [value_range(a, of_index) for a in args]
            known = [r for r in ranges if r is not None]
            return _call(op, known) if len(known) == len(ranges) else None
        case _:
            return None


def _call(op: str, args: list[ValueRange]) -> ValueRange | None:
    low, high = args[0]
    match op:
        case "add":
            return sum(a for a, _ in args), sum(b for _, b in args)
        case "neg":
            return -high, -low
        case "mul":
            for a, b in args[1:]:
                corners = (low * a, low * b, high * a, high * b)
                low, high = min(corners), max(corners)
            return low, high
        case "floordiv" | "mod" if args[1][0] == args[1][1] > 0:
            divisor = args[1][0]
            return (low // divisor, high // divisor) if op == "floordiv" else (0, divisor - 1)
        case "bit_and" | "bit_or" | "bit_xor":
            return _of_bits(op, args)
        case "bit_not":
            return -high - 1, -low - 1
        case "shift_left" | "shift_right" if 0 <= args[1][0] == args[1][1] < 64:
            by = args[1][0]
            return (low << by, high << by) if op == "shift_left" else (low >> by, high >> by)
        case "minimum":
            return min(a for a, _ in args), min(b for _, b in args)
        case "maximum":
            return max(a for a, _ in args), max(b for _, b in args)
        case "where":
            return min(a for a, _ in args[1:]), max(b for _, b in args[1:])
        case _:
            return _function(op, args)


def _function(op: str, args: list[ValueRange]) -> ValueRange | None:
    """Return the range of a function, as its entry says it or as its composition's operations have it."""
    known = TABLE.get(op)
    if known is None:
        return None
    if known.interval is not None:
        return known.interval(*args[0])

    def apply(part: str, ranges: tuple[ValueRange | None, ...]) -> ValueRange | None:
        found = [r for r in ranges if r is not None]
        if part == "sub" and len(found) == 2:
            part, found = "add", [found[0], (-found[1][1], -found[1][0])]
        return _call(part, found) if len(found) == len(ranges) else None

    if not known.written or known.takes != "number":
        return None
    given: list[ValueRange | None] = list(args)
    return composed(known.written, given, apply, lambda n: (int(n), int(n)) if n == int(n) else None)


def _of_bits(op: str, args: list[ValueRange]) -> ValueRange:
    """Return the range of bitwise operations: of as many bits as the widest operand has, and no negative one where none is."""
    bits = max(v.bit_length() for low, high in args for v in (low, high))
    if op == "bit_and" and any(low >= 0 for low, _ in args):
        return 0, min(high for low, high in args if low >= 0)
    if all(low >= 0 for low, _ in args):
        return max(low for low, _ in args) if op == "bit_or" else 0, (1 << bits) - 1
    return -(1 << bits), (1 << bits) - 1


def modulo(expr: Expr, dtype: DType) -> Expr:
    """Return the value of an integer expression converted to a type, computed in that type where that is right.

    Sums, products and bitwise operations modulo a power of two only need their operands modulo it.
    """
    match expr:
        case Literal(value=value):
            least, most = type_range(dtype)
            return Literal((int(value.real) - least) % (most - least + 1) + least, dtype)
        case Cast(arg=arg, to=to) if to.is_integer and to.itemsize >= dtype.itemsize and _is_whole(arg):
            return modulo(arg, dtype)
        case Call(op=op, args=args) if op in _MODULAR and _is_whole(expr) and _width(expr) >= dtype.itemsize:
            return replace(expr, args=tuple(modulo(a, dtype) for a in args), dtype=dtype)
        case _:
            return expr if expr.dtype == dtype else Cast(dtype, expr, dtype)


def _is_whole(expr: Expr) -> bool:
    return expr.dtype is not None and expr.dtype.kind in "iub"


def _width(expr: Expr) -> int:
    return expr.dtype.itemsize if expr.dtype is not None else 0
