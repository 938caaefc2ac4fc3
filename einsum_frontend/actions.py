"""What each rule of grammar.lark makes: one method a rule, called as the parser reduces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polyker.einsum_frontend.lexer import Lexeme
from polyker.einsum_frontend.names import check_name, did_you_mean
from polyker.einsum_frontend.syntax import (
    Header,
    Syntax,
    bits,
    chain,
    compare,
    conjuncts,
    constant,
    inverted,
    join,
    power,
)
from polyker.errors.base import failure
from polyker.errors.syntax import (
    BAD_PAD,
    NUMBER_TOO_LARGE,
    PAD_ON_LEFT,
    REDUCTION_CALLED,
    TWO_DOTS,
    UNEXPECTED,
    UNKNOWN_FUNCTION,
    WRONG_ARITY,
)
from polyker.ir.dtypes import DTYPES, bool_
from polyker.ir.expr import FUNCTIONS, REDUCTIONS, Call, Cast, Dots, Expr, IndexExpr, Literal, Pad, Range, Read, Reduce
from polyker.ir.functions import TABLE
from polyker.ir.program import Declared, Loop, Node, Statement
from polyker.structs import replace

Children = list[Any]

_OPERATORS = {
    "*": "mul", "/": "div", "//": "floordiv", "%": "mod", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq",
    "!=": "ne", "<<": "shift_left", ">>": "shift_right", "=": "set", "+=": "add", "*=": "mul",
    **{f"{op}=": op for op in ("max", "min", "any", "all", "logsumexp")},
}  # fmt: skip
_CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi}
PAD_MODES = ("edge", "wrap", "reflect")


def check_arity(name: str, count: int, span: Any = None) -> None:
    """Raise ParseError where a function or cast is given another number of arguments than it takes."""
    wanted = TABLE[name].arity if name in TABLE else 1
    if count != wanted:
        raise failure(WRONG_ARITY, span=span, name=name, wanted=wanted, count=count)


def check_dots(subscripts: Sequence[Expr]) -> None:
    """Raise ParseError where `...` stands twice."""
    dots = [s for s in subscripts if isinstance(s, Dots)]
    if len(dots) > 1:
        raise failure(TWO_DOTS, span=dots[1].span)


def _args(children: Children) -> tuple[Any, ...]:
    return tuple(c for c in children if not isinstance(c, Lexeme))


def _span(children: Children) -> Any:
    return join(children[0].span, children[-1].span)


class Actions:
    """Methods named as the rules and aliases of grammar.lark; a child is a token or what another method returned."""

    # Programs.

    def start(self, children: Children) -> Syntax:
        """A declared program."""
        return children[0]  # type: ignore[no-any-return]

    def undeclared(self, children: Children) -> Syntax:
        """Statements without a declaration."""
        return _program(None, [item for child in children for item in child])

    def declaration(self, children: Children) -> Syntax:
        """`name(parameters) -> outputs:` and its body."""
        arrow = next(i for i, c in enumerate(children) if isinstance(c, Lexeme) and c.type == "ARROW")
        name = children[0]
        check_name(name.value, name.span)
        span = join(name.span, children[-2].span)
        header = Header(name.value, _args(children[:arrow]), _args(children[arrow:-1]), span)
        return _program(header, children[-1])

    def bare(self, children: Children) -> Declared:
        """A parameter or output without a type."""
        return Declared(children[0].value, span=children[0].span)

    def typed(self, children: Children) -> Declared:
        """A name with its type: a parameter, an output, or a line of its own."""
        name, _, (dtype, shape, span) = children
        return Declared(name.value, dtype, shape, span=join(name.span, span))

    def type(self, children: Children) -> tuple[Any, ...]:
        """Element type, shape or both."""
        dtype = DTYPES[children[0].value] if children[0].type == "DTYPE" else None
        shape = _args(children) if children[-1].type == "RSQB" else None
        return dtype, shape, _span(children)

    def suite(self, children: Children) -> list[Any]:
        """The block under a declaration or loop."""
        return [item for child in children if not isinstance(child, Lexeme) for item in child]

    def line(self, children: Children) -> list[Any]:
        """Statements between `;`."""
        return list(_args(children))

    def loop(self, children: Children) -> list[Any]:
        """`for t in lo:hi:`; type lines inside hold for the whole program."""
        key, name, _, lo, _, hi, _, items = children
        extent = Range(name.value, lo, hi, span=join(name.span, hi.span))
        body = tuple(i for i in items if not isinstance(i, Declared))
        types = [i for i in items if isinstance(i, Declared)]
        if not body:
            raise failure(UNEXPECTED, span=key.span, found="a loop without a statement", expected="a statement in it")
        return [*types, Loop(extent, body, span=join(key.span, hi.span))]

    def statement(self, children: Children) -> Statement:
        """`target OP expression for ... where ...`."""
        (name, subscripts, span), op, expr, (ranges, conditions, last) = children
        whole = join(span, last or expr.span)
        return Statement(name, subscripts, _OPERATORS[op.value], expr, ranges, conditions, whole, span)

    def target(self, children: Children) -> tuple[Any, ...]:
        """The left side."""
        subscripts, pad = _inside(children)
        if pad is not None:
            raise failure(PAD_ON_LEFT, span=_span(children))
        return children[0].value, subscripts, _span(children)

    def clauses(self, children: Children) -> tuple[Any, ...]:
        """The ranges, conditions and end of a statement's clauses."""
        ranges = tuple(c for c in children if isinstance(c, Range))
        where = len(children) > 1 and isinstance(children[-2], Lexeme) and children[-2].type == "WHERE"
        conditions = conjuncts(children[-1]) if where else ()
        return ranges, conditions, children[-1].span if children else None

    def range(self, children: Children) -> Range:
        """`index in lo:hi`."""
        name, _, lo, _, hi = children
        return Range(name.value, lo, hi, span=join(name.span, hi.span))

    def free_range(self, children: Children) -> Range:
        """An index of an inline reduction without a range."""
        return Range(children[0].value, span=children[0].span)

    # Subscripts.

    def inside(self, children: Children) -> tuple[Any, ...]:
        """What stands between the brackets of an access."""
        pad = children[-1] if isinstance(children[-1], Pad) else None
        return children[0] if isinstance(children[0], tuple) else (), pad

    def subscripts(self, children: Children) -> tuple[Expr, ...]:
        """The subscripts, `...` among them."""
        out = tuple(Dots(span=c.span) if isinstance(c, Lexeme) else c for c in children if _is_subscript(c))
        check_dots(out)
        return out

    def pad(self, children: Children) -> Pad:
        """`; pad=value`."""
        _, key, _, value = children
        if key.value != "pad":
            hint = did_you_mean(key.value, ["pad"])
            raise failure(UNEXPECTED, span=key.span, hint=hint, found=f"`{key.value}`", expected="`pad=`")
        if isinstance(value, IndexExpr):
            if value.name not in PAD_MODES:
                raise failure(BAD_PAD, span=value.span, hint=did_you_mean(value.name, PAD_MODES), found=value.name)
            return Pad(value.name)
        number = constant(value)
        if number is None:
            text = value.span.source.text[value.span.start : value.span.end]
            raise failure(BAD_PAD, span=value.span, found=text)
        return Pad("constant", Literal(number, span=value.span))

    # Operators.

    def expr(self, children: Children) -> Expr:
        """`a or b`."""
        return chain(children[0], [("or", c) for c in children[2::2]])

    def conjunction(self, children: Children) -> Expr:
        """`a and b`."""
        return chain(children[0], [("and", c) for c in children[2::2]])

    def comparison(self, children: Children) -> Expr:
        """`a < b`, also chained."""
        return compare(children[::2], [_OPERATORS[c.value] for c in children[1::2]])

    def bit_or(self, children: Children) -> Expr:
        """`a | b`."""
        return bits(children[0], [("bit_or", c) for c in children[2::2]])

    def bit_xor(self, children: Children) -> Expr:
        """`a ^ b`."""
        return bits(children[0], [("bit_xor", c) for c in children[2::2]])

    def bit_and(self, children: Children) -> Expr:
        """`a & b`."""
        return bits(children[0], [("bit_and", c) for c in children[2::2]])

    def shift(self, children: Children) -> Expr:
        """`a << b >> c`."""
        rest = zip(children[1::2], children[2::2], strict=True)
        return chain(children[0], [(_OPERATORS[op.value], arg) for op, arg in rest])

    def sum(self, children: Children) -> Expr:
        """`a + b - c`."""
        terms = [
            Call("neg", (term,), span=join(op.span, term.span)) if op.type == "MINUS" else term
            for op, term in zip(children[1::2], children[2::2], strict=True)
        ]
        return chain(children[0], [("add", t) for t in terms])

    def product(self, children: Children) -> Expr:
        """`a * b / c // d % e`."""
        rest = zip(children[1::2], children[2::2], strict=True)
        return chain(children[0], [(_OPERATORS[op.value], arg) for op, arg in rest])

    def unary(self, children: Children) -> Expr:
        """`-a`, `+a`, `~a`, `not a`."""
        op, arg = children
        if op.type == "PLUS":
            return arg  # type: ignore[no-any-return]
        if op.type == "TILDE":
            return replace(inverted(arg), span=_span(children))
        return Call("neg" if op.type == "MINUS" else "not", (arg,), span=_span(children))

    def power(self, children: Children) -> Expr:
        """`a ** b`."""
        return power(children[0], children[2])

    # Operands.

    def number(self, children: Children) -> Literal:
        """A literal."""
        (token,) = children
        return Literal(_number(token), span=token.span)

    def constant(self, children: Children) -> Expr:
        """`inf`, `nan`, `pi`, `True` or `False`."""
        name, span = children[0].value, children[0].span
        if name in _CONSTANTS:
            return Literal(_CONSTANTS[name], span=span)
        return Cast(bool_, Literal(int(name == "True"), span=span), span=span)

    def name(self, children: Children) -> IndexExpr:
        """A bare name."""
        return IndexExpr(children[0].value, span=children[0].span)

    def read(self, children: Children) -> Read:
        """`X[...]`."""
        subscripts, pad = _inside(children)
        return Read(children[0].value, subscripts, pad, span=_span(children))

    def call(self, children: Children) -> Call:
        """A function applied to arguments."""
        name, args = children[0], _args(children)
        check_arity(name.value, len(args), _span(children))
        return Call(name.value, args, span=_span(children))

    def unknown_call(self, children: Children) -> Expr:
        """A name that is no function."""
        name = children[0]
        hint = did_you_mean(name.value, (*FUNCTIONS, *REDUCTIONS, *DTYPES))
        raise failure(UNKNOWN_FUNCTION, span=name.span, hint=hint, name=name.value)

    def cast(self, children: Children) -> Cast:
        """`f32(x)`."""
        name, args = children[0], _args(children)
        check_arity(name.value, len(args), _span(children))
        return Cast(DTYPES[name.value], args[0], span=_span(children))

    def reduce(self, children: Children) -> Reduce:
        """`sum[k, l in 0:n](body where ...)`."""
        name, args = children[0], _args(children)
        ranges = tuple(a for a in args if isinstance(a, Range))
        body, *where = args[len(ranges) :]
        conditions = conjuncts(where[0]) if where else ()
        return Reduce(name.value, ranges, body, conditions, span=_span(children))

    def reduction_called(self, children: Children) -> Expr:
        """`max(a, b)` or `sum(x)`."""
        name, args = children[0].value, _args(children)
        pairwise = {"max": "maximum", "min": "minimum"}.get(name)
        hint = f"for the larger of two, write {pairwise}(a, b)" if name == "max" else None
        if name == "min":
            hint = f"for the smaller of two, write {pairwise}(a, b)"
        raise failure(REDUCTION_CALLED, span=_span(children), hint=hint if len(args) == 2 else None, name=name)

    def parenthesised(self, children: Children) -> Expr:
        """`(a)`: the same expression, its span with the brackets."""
        return replace(children[1], span=_span(children))  # type: ignore[no-any-return]


def _is_subscript(child: Any) -> bool:
    return not isinstance(child, Lexeme) or child.type == "DOTS"


def _inside(children: Children) -> tuple[Any, ...]:
    return children[2] if len(children) == 4 else ((), None)


def _program(header: Header | None, items: Sequence[Any]) -> Syntax:
    body: list[Node] = [i for i in items if not isinstance(i, Declared)]
    types = tuple(i for i in items if isinstance(i, Declared))
    return Syntax(header, tuple(body), types)


def _number(token: Lexeme) -> int | float | complex:
    text = token.value.replace("_", "")
    long = failure(NUMBER_TOO_LARGE, span=token.span, text=text, advice="a float takes 1e308, an integer 64 bits")
    if text.isdecimal():
        digits = text.lstrip("0") or "0"
        if len(digits) > 20 or int(digits) >= 2**64:
            raise long
        return int(digits)
    imaginary = text[-1] in "jJ"
    value = float(text.rstrip("jJ"))
    if math.isinf(value) or len(text) > 400:
        raise long
    return complex(0.0, value) if imaginary else value
