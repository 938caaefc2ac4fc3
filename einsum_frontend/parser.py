"""Text to Program: tokens, the grammar's tables, then the checks of lower.py."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from polyker.einsum_frontend.lexer import Lexeme, check_text, tokenize
from polyker.einsum_frontend.syntax import Syntax
from polyker.errors.base import ParseError, Source, advised
from polyker.ir.program import Program
from polyker.process.jobs import load, once
from polyker.structs import replace

if TYPE_CHECKING:  # lark is loaded with the first text
    from lark import Lark


def parse(text: str, *, sizes: Collection[str] = ()) -> Program:
    """Return the program that a text in the notation of docs/notation.md says, names and ranks checked.

    `sizes` are names that are sizes wherever they stand: those whose value is given when the operator is made.

    Raises ParseError, or ShapeError where ranks or indices do not fit; both with the place in the text. Warns of a term
    that lacks a reduced index (ReductionWarning).

    >>> print(parse("C[i,j] += A[i,k] * B[k,j]"))
    C[i, j] += A[i, k] * B[k, j]
    """
    _parser()
    from polyker.einsum_frontend.check import warn_lacking

    try:
        program = _lowered(text, sizes)
    except ParseError as error:
        load("polyker.einsum_frontend.hints.repairs")
        from polyker.einsum_frontend.hints.repairs import repaired

        hint = repaired(text, lambda other: _lowered(other, sizes))
        if hint is None:
            raise
        raise advised(error, hint) from None
    warn_lacking(program.body)
    return program


def _lowered(text: str, sizes: Collection[str]) -> Program:
    from polyker.einsum_frontend.lower import lower

    return lower(parse_syntax(text), sizes)


def parse_syntax(text: str) -> Syntax:
    """Return what a text says before its names are told apart. Raises ParseError."""
    source, parser = Source(check_text(text)), _parser()
    from lark.exceptions import UnexpectedToken

    try:
        syntax: Syntax = parser.parse(source)  # type: ignore[assignment]
    except UnexpectedToken as problem:
        load("polyker.einsum_frontend.hints.explain")
        from polyker.einsum_frontend.hints.explain import explain

        raise explain(problem, source) from None
    return replace(syntax, source=source)


@once
def _parser() -> Lark:
    """Return the parser, made at the first use."""
    for name in ("check", "lower"):  # what texts take, imported while no fork can take place
        import_module(f"{__package__}.{name}")
    from lark.lexer import Lexer

    from polyker.einsum_frontend.actions import Actions
    from polyker.einsum_frontend.tables import parser

    class Tokens(Lexer):
        def __init__(self, configuration: Any) -> None:
            pass

        def lex(self, source: Any) -> Iterator[Lexeme]:  # type: ignore[override]
            return tokenize(source)

    return parser(Tokens, Actions())
