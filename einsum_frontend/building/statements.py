"""Statements, loops and declarations built in Python, and what makes a Program of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeAlias

from msgspec import Struct

from polyker.einsum_frontend.building.expressions import Expression, Index, Size
from polyker.einsum_frontend.building.tensors import Assignment, Tensor, Typed, range_of
from polyker.einsum_frontend.check import bounds, check_measure, warn_lacking
from polyker.einsum_frontend.check import expressions as expressions_of
from polyker.einsum_frontend.lower import lower
from polyker.einsum_frontend.names import check_name
from polyker.einsum_frontend.placed import error_in_text, with_places
from polyker.einsum_frontend.syntax import Header, Syntax
from polyker.errors.base import PolykerError, failure
from polyker.errors.given import listed, printed
from polyker.errors.syntax import EMPTY, NOT_A_NAME, NOT_AN_EXPRESSION, SIZE_AS_INDEX
from polyker.errors.tracebacks import api_boundary
from polyker.ir import expr
from polyker.ir.program import Declared, Loop, Node, Program

MAX_LISTED = 4096  # parameters, outputs or sizes that are looked at; programs have less


class Repeated(Struct, frozen=True):
    """A time loop around statements."""

    range: expr.Range
    body: tuple[StatementItem, ...]


class Declaration(Struct, frozen=True):
    """`name(parameters) -> outputs:` with its body."""

    name: str
    parameters: tuple[Tensor | Size | Typed, ...]
    outputs: tuple[Tensor | Typed, ...]
    body: tuple[StatementItem, ...]


StatementItem: TypeAlias = Assignment | Repeated | Typed


def ranges_of(given: object) -> tuple[expr.Range, ...]:
    """Return the ranges of an inline reduction: an index, `k.in_(lo, hi)`, or several of these; raises ParseError for none."""
    each = given if isinstance(given, (tuple, list)) else (given,)
    if not each:
        raise failure(NOT_AN_EXPRESSION, value="()", why="a reduction needs an index")
    return tuple(expr.Range(r.name) if isinstance(r, Index) else range_of(r) for r in each)


@api_boundary
def loop(index: Index, lo: object, hi: object, *body: StatementItem) -> Repeated:
    """Return the time loop `for index in lo:hi:` around statements and loops; raises ParseError where there are none."""
    if not isinstance(index, Index):
        raise failure(NOT_AN_EXPRESSION, value=f"a {type(index).__name__}", why="a loop runs over an index")
    if not any(not isinstance(item, Typed) for item in body):
        raise failure(EMPTY)
    return Repeated(index.in_(lo, hi).range, _items(body))


@api_boundary
def declare(
    name: str,
    parameters: Iterable[Tensor | Size | Typed],
    outputs: Iterable[Tensor | Typed],
    *body: StatementItem,
) -> Declaration:
    """Return the declared program `name(parameters) -> outputs:`.

    Parameters are tensors, with or without their type (`A.typed(pk.f64, (N, N))`), and sizes; outputs are tensors.
    Raises ParseError for anything else.
    """
    given, made = _some(parameters, "parameters"), _some(outputs, "outputs")
    for what in given:
        if not isinstance(what, (Tensor, Size, Typed)):
            raise failure(NOT_AN_EXPRESSION, value=f"a {type(what).__name__}", why="a parameter is a tensor or a size")
    for what in made:
        if not isinstance(what, (Tensor, Typed)):
            raise failure(NOT_AN_EXPRESSION, value=f"a {type(what).__name__}", why="an output is a tensor")
    return Declaration(check_name(name), given, made, _items(body))


def _some(values: object, what: str) -> tuple[Any, ...]:
    """Return what an iterable yields, and one more than a program may have at most; raises ParseError for anything else."""
    found = listed(values, MAX_LISTED)
    if found is None or isinstance(values, (str, bytes)):
        shown = f"a {type(values).__name__}"
        raise failure(NOT_AN_EXPRESSION, value=shown, why=f"{what} are a list, of {MAX_LISTED} at most")
    return tuple(found)


def _items(body: Iterable[object]) -> tuple[StatementItem, ...]:
    out: list[StatementItem] = []
    for item in body:
        if not isinstance(item, (Assignment, Repeated, Typed)):
            shown = repr(item) if isinstance(item, Expression) else f"a {type(item).__name__}"
            raise failure(NOT_AN_EXPRESSION, value=shown, why="a statement is made by .set, .add, ..., or by loop")
        out.append(item)
    return tuple(out)


def is_definition(values: Collection[object]) -> bool:
    """Whether the values are statements, loops and declarations of the builder."""
    return bool(values) and all(isinstance(v, (Assignment, Repeated, Typed, Declaration)) for v in values)


def program(definition: Iterable[StatementItem | Declaration], *, sizes: Collection[str] = ()) -> Program:
    """Return the Program of statements in order, or of one declaration; `sizes` as in `parse`.

    Raises ParseError or ShapeError, as the text would.
    """
    items, known = tuple(definition), _some(sizes, "sizes")
    for name in known:
        if not isinstance(name, str):
            raise failure(NOT_A_NAME, name=printed(name)[:80])
    if len(items) == 1 and isinstance(items[0], Declaration):
        syntax = _syntax(items[0], items[0].body)
    else:
        syntax = _syntax(None, _items(items))
    if not syntax.body:
        raise failure(EMPTY)
    indices, used = _names(syntax)
    clash = indices & used
    if clash:
        raise failure(SIZE_AS_INDEX, name=min(clash))
    made = _lowered(syntax, {*map(str.__str__, known), *used}, indices)
    warn_lacking(made.body)
    return made


def _lowered(syntax: Syntax, sizes: Collection[str], indices: Collection[str]) -> Program:
    """Return the Program with places in its own text."""
    try:
        made = lower(syntax, sizes, indices)
    except PolykerError as problem:
        raise error_in_text(syntax, problem, sizes, indices) from None
    return with_places(syntax, made, sizes, indices)


@api_boundary
def build(*definition: StatementItem | Declaration, sizes: Collection[str] = ()) -> Program:
    """Return the Program of statements in order, or of one declaration; `sizes` as in `parse`."""
    return program(definition, sizes=sizes)


def _syntax(declaration: Declaration | None, items: tuple[StatementItem, ...]) -> Syntax:
    types: list[Declared] = []

    def nodes(body: tuple[StatementItem, ...]) -> tuple[Node, ...]:
        out: list[Node] = []
        for item in body:
            match item:
                case Typed(declared):
                    types.append(declared)
                case Repeated(extent, inner):
                    out.append(Loop(extent, nodes(inner)))
                case Assignment(statement):
                    out.append(statement)
        return tuple(out)

    body = nodes(items)
    header = None
    if declaration is not None:
        parameters = tuple(map(_declared, declaration.parameters))
        header = Header(declaration.name, parameters, tuple(map(_declared, declaration.outputs)))
    return Syntax(header, body, tuple(types))


def _declared(given: Tensor | Size | Typed) -> Declared:
    return given.declared if isinstance(given, Typed) else Declared(given.name)


def _names(syntax: Syntax) -> tuple[set[str], set[str]]:
    """Return the names of the indices and of the sizes that stand in a program."""
    indices: set[str] = set()
    sizes: set[str] = set()

    def visit(part: expr.Expr) -> None:
        check_measure(part)
        for e in expr.walk(part):
            if isinstance(e, expr.IndexExpr):
                indices.add(e.name)
            elif isinstance(e, expr.SizeExpr):
                sizes.add(e.name)
            elif isinstance(e, expr.Reduce):
                indices.update(r.index for r in e.ranges)

    def visit_body(body: tuple[Node, ...]) -> None:
        for node in body:
            if isinstance(node, Loop):
                indices.add(node.range.index)
                for limit in bounds(node.range):
                    visit(limit)
                visit_body(node.body)
                continue
            indices.update(r.index for r in node.ranges)
            for part in expressions_of(node):
                visit(part)

    visit_body(syntax.body)
    header = (*syntax.header.parameters, *syntax.header.outputs) if syntax.header else ()
    for declared in (*header, *syntax.types):
        for dimension in declared.shape or ():
            visit(dimension)
    return indices, sizes
