"""The rules of a statement: sizes of its trees, affine subscripts, scopes, `...`, and what a reduction reduces."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection, Iterator, Sequence
from itertools import chain as concat

from polyker.einsum_frontend.names import MAX_COEFFICIENT, MAX_EXTENT, MAX_INDICES, MAX_OFFSET, TREE_DEPTH, TREE_SIZE
from polyker.einsum_frontend.resolve import NamePlace, occurrences
from polyker.errors.base import Span, escape, failure
from polyker.errors.syntax import (
    BAD_CONDITION,
    COEFFICIENT_TOO_LARGE,
    CYCLIC,
    DOTS_NOT_ON_LEFT,
    DUPLICATE,
    NOT_AFFINE,
    NOT_ON_LEFT,
    ONE_INDEX,
    REUSED,
    TOO_MANY_INDICES,
    TREE_TOO_DEEP,
    TREE_TOO_LARGE,
    VALUE_CONDITION,
    ReductionWarning,
)
from polyker.ir.bitwise import meant
from polyker.ir.dtypes import bool_
from polyker.ir.expr import (
    BITWISE,
    COMPARISONS,
    LOGICAL,
    Call,
    Cast,
    Dots,
    Expr,
    IndexExpr,
    Literal,
    Range,
    Read,
    Reduce,
    SizeExpr,
    reads_values,
    walk,
)
from polyker.ir.measure import measured
from polyker.ir.printing import SYMBOLS, print_expr
from polyker.ir.program import Loop, Node, Statement, print_statement
from polyker.structs import replace

_AFFINE = ("add", "neg", "mul", "floordiv", "mod")


def expressions(statement: Statement) -> Iterator[Expr]:
    """Yield the expressions of a statement in the order of the text."""
    yield from statement.subscripts
    yield statement.expr
    for extent in statement.ranges:
        yield from bounds(extent)
    yield from statement.conditions


def bounds(extent: Range) -> tuple[Expr, ...]:
    """Return the bounds that a range has."""
    return tuple(e for e in (extent.lo, extent.hi) if e is not None)


def check_measure(expr: Expr) -> None:
    """Raise ParseError at an expression that is too deep or too large for what walks it."""
    for node, depth, size in measured(expr):
        if depth > TREE_DEPTH:
            raise failure(TREE_TOO_DEEP, span=node.span, limit=TREE_DEPTH)
        if size > TREE_SIZE:
            raise failure(TREE_TOO_LARGE, span=node.span, limit=TREE_SIZE)


def check_binders(statement: Statement, loops: Sequence[str]) -> None:
    """Raise ParseError where one index is given twice, and ShapeError where ranges depend on each other in a circle."""
    for extent in statement.ranges:
        if extent.index in loops:
            raise failure(REUSED, span=extent.span, index=extent.index, what="`for`")
    _check_set_conditions(statement)
    inline = [e for part in (statement.expr, *statement.conditions) for e in walk(part) if isinstance(e, Reduce)]
    check_no_reads(statement.ranges)
    for reduce in inline:
        check_no_reads(reduce.ranges)
        if reduce.op in ("argmax", "argmin") and len(reduce.ranges) != 1:
            raise failure(ONE_INDEX, span=reduce.span, name=reduce.op, count=len(reduce.ranges))
    for ranges in (statement.ranges, *(e.ranges for e in inline)):
        seen: set[str] = set()
        for extent in ranges:
            if extent.index in seen:
                raise failure(DUPLICATE, span=extent.span, what="index", name=extent.index)
            seen.add(extent.index)
        _check_circle(ranges)


def check_no_reads(ranges: Sequence[Range]) -> None:
    """Raise ParseError where an element of a tensor stands in a bound."""
    for expr in (b for r in ranges for b in bounds(r)):
        for e in walk(expr):
            if isinstance(e, Read):
                raise failure(NOT_AFFINE, span=e.span, what=_describe(e), place=NamePlace.BOUND.value)


def _check_set_conditions(statement: Statement) -> None:
    """Raise ParseError where a condition of `=` reads values: which elements are assigned would depend on them."""
    values = [c for c in statement.conditions if reads_values(c)]
    if statement.op != "set" or not values:
        return
    others = tuple(c for c in statement.conditions if not reads_values(c))
    condition = values[0] if len(values) == 1 else Call("and", tuple(values))
    chosen = Call("where", (condition, statement.expr, Literal(0)))
    hint = f"write `{print_statement(replace(statement, expr=chosen, conditions=others))}`"
    raise failure(VALUE_CONDITION, span=values[0].span, hint=hint, target=statement.target)


def _check_circle(ranges: tuple[Range, ...]) -> None:
    """Take away, again and again, the ranges whose bounds name none of the others; what stays is a circle."""
    needs = {
        r.index: {e.name for b in (r.lo, r.hi) if b is not None for e in walk(b) if isinstance(e, IndexExpr)}
        for r in ranges
    }
    while ready := [name for name, needed in needs.items() if not needed & needs.keys()]:
        for name in ready:
            del needs[name]
    if needs:
        extent = next(r for r in ranges if r.index in needs)
        raise failure(CYCLIC, span=extent.span, index=extent.index)


def check_statement(statement: Statement, loops: Sequence[str]) -> None:
    """Check a statement whose names are resolved; raises ParseError or ShapeError."""
    left = _free(statement.subscripts, loops)
    right = _free((statement.expr,), loops)
    if statement.op == "set":
        for name, span in right.items():
            if name not in left:
                inside = f"{statement.target}[{','.join(left)}]" if left else statement.target
                raise failure(NOT_ON_LEFT, span=span, index=name, left=inside)
    _check_dots(statement)
    _check_affine(statement)
    parts = (statement.expr, *statement.conditions)
    own = {r.index for part in parts for e in walk(part) if isinstance(e, Reduce) for r in e.ranges}
    right = _free(parts, loops)
    count = len(own | left.keys() | right.keys() | set(loops) | {r.index for r in statement.ranges})
    if count > MAX_INDICES:
        raise failure(TOO_MANY_INDICES, span=statement.span, count=count, limit=MAX_INDICES)


def _free(exprs: Sequence[Expr], loops: Sequence[str]) -> dict[str, Span | None]:
    """Return the indices of expressions that no inline reduction and no loop gives, each with its first place."""
    out: dict[str, Span | None] = {}
    for o in concat.from_iterable(occurrences(e, NamePlace.VALUE) for e in exprs):
        if o.free and o.name not in loops:
            out.setdefault(o.name, o.span)
    return out


def _check_dots(statement: Statement) -> None:
    if any(isinstance(s, Dots) for s in statement.subscripts):
        return
    for expr in concat.from_iterable(map(walk, (statement.expr, *statement.conditions))):
        if isinstance(expr, Dots):
            raise failure(DOTS_NOT_ON_LEFT, span=expr.span, left=statement.target)


def warn_lacking(body: Sequence[Node], loops: tuple[str, ...] = ()) -> None:
    """Warn where a term of a sum does not depend on an index that its statement sums over."""
    for node in body:
        if isinstance(node, Loop):
            warn_lacking(node.body, (*loops, node.range.index))
        elif node.op == "add" and isinstance(node.expr, Call) and node.expr.op == "add":
            _warn_terms(node.expr, _free(node.subscripts, loops), loops)


def _warn_terms(total: Call, left: Collection[str], loops: tuple[str, ...]) -> None:
    reduced = [name for name in _free((total,), loops) if name not in left]
    for term in total.args:
        missing = [name for name in reduced if name not in _free((term,), loops)]
        if missing:
            shown = escape(print_expr(term), 60)
            text = f"`{shown}` lacks the reduced index `{missing[0]}`, so it is added once for each {missing[0]}"
            caret = f"\n{term.span.caret()}" if term.span else ""
            hint = f"reduce the other term alone: sum[{missing[0]}](...)"
            warnings.warn(f"{text}{caret}\nhint: {hint}", ReductionWarning, stacklevel=_callers_level())
            return


def _callers_level() -> int:
    """Return the stack level of the first caller outside polyker, so that the warning names the user's line."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "polyker":
        level, frame = level + 1, frame.f_back
    return level - 1


# Affine expressions.


def _check_affine(statement: Statement) -> None:
    for subscript in statement.subscripts:
        check_affine(subscript, NamePlace.SUBSCRIPT)
    for extent in statement.ranges:
        check_range(extent)
    _check_conditions(statement.conditions)
    for expr in concat.from_iterable(map(walk, (*statement.subscripts, statement.expr, *statement.conditions))):
        if isinstance(expr, Read):
            for subscript in expr.subscripts:
                check_affine(subscript, NamePlace.SUBSCRIPT)
        if isinstance(expr, Reduce):
            for extent in expr.ranges:
                check_range(extent)
            _check_conditions(expr.conditions)


def check_range(extent: Range) -> None:
    """Check the bounds of a range."""
    for limit in bounds(extent):
        check_affine(limit, NamePlace.BOUND)


def _check_conditions(conditions: Sequence[Expr]) -> None:
    for place, condition in enumerate(conditions):
        if not reads_values(condition):
            _check_condition(condition, conditions[place:])


def _check_condition(condition: Expr, chain: Sequence[Expr] = ()) -> None:
    """Check a condition on indices and sizes; `chain`: the conditions from this one on, of which a comparison may go on."""
    match condition:
        case Call(op=op, args=args) if op in LOGICAL:
            for arg in args:
                _check_condition(arg, args)
        case Cast(to=to, arg=Literal(value=0 | 1)) if to == bool_:
            return
        case Call(op=op, args=args) if op in COMPARISONS:
            for side in args:
                if isinstance(side, Call) and side.op in BITWISE:
                    hint = next((h for n in range(len(chain), 0, -1) if (h := _meant(chain[:n]))), None)
                    raise failure(
                        NOT_AFFINE, span=side.span, hint=hint, what=_describe(side), place=NamePlace.WHERE.value
                    )
                check_affine(side, NamePlace.WHERE)
        case _:
            raise failure(BAD_CONDITION, span=condition.span)


def _meant(chain: Sequence[Expr]) -> str | None:
    first = chain[0] if len(chain) == 1 else Call("and", tuple(chain))
    return meant(first) if isinstance(first, Call) else None


def check_affine(expr: Expr, place: NamePlace) -> None:
    """Raise ParseError unless `expr` is built as an affine expression is, with integers within the limits.

    Whether a size times an index is affine is judged later, when fixed sizes are known.
    """
    match expr:
        case Dots() if place is NamePlace.SUBSCRIPT:
            return
        case IndexExpr() | SizeExpr():
            return
        case Literal(value=int(value)):
            if abs(value) > (MAX_OFFSET if place is NamePlace.SUBSCRIPT else MAX_EXTENT):
                limit = "2^31" if place is NamePlace.SUBSCRIPT else "2^62"
                raise failure(COEFFICIENT_TOO_LARGE, span=expr.span, what="integer", value=value, limit=limit)
        case Read() if place is NamePlace.SUBSCRIPT:
            return
        case Call(op=op, args=args) if op in _AFFINE:
            if op in ("mul", "floordiv", "mod"):
                _check_product(expr, place)
            for arg in args:
                check_affine(arg, place)
        case _:
            hint = "`//` divides integers" if isinstance(expr, Call) and expr.op == "div" else None
            raise failure(NOT_AFFINE, span=expr.span, hint=hint, what=_describe(expr), place=place.value)


def _check_product(expr: Call, place: NamePlace) -> None:
    varying = [a for a in expr.args if any(isinstance(e, (IndexExpr, Read)) for e in walk(a))]
    divisors = expr.args[1:] if expr.op != "mul" else ()
    if len(varying) > 1 or any(d is v for d in divisors for v in varying):
        what = "a product of two indices" if expr.op == "mul" else "a division by an index"
        names = [e.name for v in varying for e in walk(v) if isinstance(e, IndexExpr)]
        hint = f"if {names[0]} is a size, give its value: pk.op(text, {names[0]}=2)" if names else None
        raise failure(NOT_AFFINE, span=expr.span, hint=hint, what=what, place=place.value)
    for arg in divisors:
        if isinstance(arg, Call) or (isinstance(arg, Literal) and arg.value == 0):
            raise failure(NOT_AFFINE, span=arg.span, what="a divisor that is not a positive integer", place=place.value)
    if varying:
        for arg in expr.args:
            if isinstance(arg, Literal) and isinstance(arg.value, int) and abs(arg.value) > MAX_COEFFICIENT:
                raise failure(COEFFICIENT_TOO_LARGE, span=arg.span, what="coefficient", value=arg.value, limit="2^31")


def _describe(expr: Expr) -> str:
    match expr:
        case Literal(value=value):
            return f"the number {value}"
        case Read(tensor=tensor):
            return f"an element of `{tensor}`"
        case Call(op=op):
            return f"`{SYMBOLS.get(op, op)}`"
        case Reduce(op=op):
            return f"the reduction `{op}`"
        case Dots():
            return "`...`"
        case _:
            return "a cast"
