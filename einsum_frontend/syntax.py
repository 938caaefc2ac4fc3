"""What the grammar and the builder both make: a program whose bare names are not told apart yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from polyker.errors.base import Source, Span
from polyker.ir.dtypes import bool_
from polyker.ir.expr import COMPARISONS, LOGICAL, Call, Cast, Expr, Literal, Reduce
from polyker.ir.program import Declared, Node


class Header(Struct, frozen=True):
    """`name(parameters) -> outputs:`; a bare parameter is a `Declared` without type and shape."""

    name: str
    parameters: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    span: Span | None = None


class Syntax(Struct, frozen=True):
    """A program as written: in its expressions an `Index` is any bare name, whatever it is later.

    `types` are the lines such as `T: f32[N,M]`, in order.
    """

    header: Header | None
    body: tuple[Node, ...]
    types: tuple[Declared, ...] = ()
    source: Source | None = None


def join(first: Span | None, last: Span | None) -> Span | None:
    """Return the span from the start of one to the end of the other."""
    return Span(first.source, first.start, last.end) if first and last else None


def chain(first: Expr, rest: Iterable[tuple[str, Expr]]) -> Expr:
    """Return `first op x op y ...` folded from the left, runs of one operator as one n-ary Call.

    A first operand that is itself a run of the operator is continued: `(a + b) + c` is `a + b + c`.
    """
    op, args, start = "", [first], first.span
    for following, arg in rest:
        if following != op:
            whole = args[0] if len(args) == 1 else Call(op, tuple(args), span=join(start, args[-1].span))
            op = following
            args = list(whole.args) if isinstance(whole, Call) and whole.op == op and len(whole.args) > 1 else [whole]
        args.append(arg)
    return args[0] if len(args) == 1 else Call(op, tuple(args), span=join(start, args[-1].span))


def is_truth(expr: Expr) -> bool:
    """Whether an expression is true or false by its form: a comparison, `and`, `or` or `not` of values, a conversion to bool."""
    match expr:
        case Call(op=op):
            return op in COMPARISONS or op in LOGICAL
        case Cast(to=to):
            return to == bool_
        case Reduce(op=op):
            return op in ("any", "all")
        case _:
            return False


def bits(first: Expr, rest: Iterable[tuple[str, Expr]]) -> Expr:
    """Return `first & x | y ...` folded from the left; of truths `&` is `and` and `|` is `or`, which is the same value."""
    for op, arg in rest:
        truths = is_truth(first) and is_truth(arg)
        first = chain(first, [({"bit_and": "and", "bit_or": "or"}.get(op, op) if truths else op, arg)])
    return first


def inverted(arg: Expr) -> Call:
    """Return `~arg`, which is `not` of a truth."""
    return Call("not" if is_truth(arg) else "bit_not", (arg,))


def power(base: Expr, exponent: Expr) -> Call:
    """Return `base ** exponent`; an exponent that is a power is continued, as `**` folds from the right."""
    rest = exponent.args if isinstance(exponent, Call) and exponent.op == "pow" else (exponent,)
    return Call("pow", (base, *rest), span=join(base.span, exponent.span))


_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def _pair(a: Expr, op: str, b: Expr) -> Call:
    """Return `a op b`, a constant always on the right: Python swaps `0 < i` before the builder sees it."""
    span = join(a.span, b.span)
    if constant(a) is not None and constant(b) is None:
        return Call(_MIRRORED[op], (b, a), span=span)
    return Call(op, (a, b), span=span)


def compare(operands: Sequence[Expr], operators: Sequence[str]) -> Expr:
    """Return a comparison; a chain is the `and` of its neighbours."""
    pairs = [_pair(a, op, b) for a, op, b in zip(operands[:-1], operators, operands[1:], strict=True)]
    return pairs[0] if len(pairs) == 1 else Call("and", tuple(pairs), span=join(operands[0].span, operands[-1].span))


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """Return what `and` joins at the top of a condition, from left to right."""
    out: list[Expr] = []
    stack = [expr]
    while stack:
        top = stack.pop()
        if isinstance(top, Call) and top.op == "and":
            stack.extend(reversed(top.args))
        else:
            out.append(top)
    return tuple(out)


def constant(expr: Expr) -> bool | int | float | complex | None:
    """Return the value of a literal with signs, or of a real plus an imaginary one; None for anything else."""
    match expr:
        case Call(op="add", args=(a, b)):
            real, imaginary = _signed(a), _signed(b)
            if real is None or isinstance(real, complex) or not isinstance(imaginary, complex):
                return None
            return complex(real, imaginary.imag)
        case _:
            return _signed(expr)


def _signed(expr: Expr) -> bool | int | float | complex | None:
    negative = False
    while isinstance(expr, Call) and expr.op == "neg":
        expr, negative = expr.args[0], not negative
    if isinstance(expr, Cast) and expr.to == bool_ and isinstance(expr.arg, Literal) and not negative:
        return bool(expr.arg.value)  # `True`
    if not isinstance(expr, Literal):
        return None
    return -expr.value if negative else expr.value
