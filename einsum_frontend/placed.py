"""Give a program that was no text the places of the text that it prints, so that errors of every stage can show them."""

from __future__ import annotations

from collections.abc import Collection

from polyker.einsum_frontend.lower import lower
from polyker.einsum_frontend.parser import parse_syntax
from polyker.einsum_frontend.syntax import Syntax
from polyker.errors.base import PolykerError
from polyker.ir.program import Program


def with_places(syntax: Syntax, made: Program, sizes: Collection[str], indices: Collection[str]) -> Program:
    """Return a program with places in its own text; `syntax`: what it was lowered from."""
    try:
        again = lower(_reparsed(syntax), sizes, indices)
    except PolykerError:  # it is too long for a text
        return made
    return again if again == made else made


def error_in_text(
    syntax: Syntax, problem: PolykerError, sizes: Collection[str], indices: Collection[str]
) -> PolykerError:
    """Return the error that lowering a syntax raised, with its place in the text that the syntax prints."""
    try:
        lower(_reparsed(syntax), sizes, indices)
    except PolykerError as shown:
        return shown if shown.code == problem.code else problem
    except RecursionError:  # of a tree too deep to print, which is what the error says
        pass
    return problem


def _reparsed(syntax: Syntax) -> Syntax:
    """Return the syntax of the text that another prints; raises ParseError where it is too long or deep for a text."""
    header = syntax.header
    parameters, outputs = (header.parameters, header.outputs) if header else ((), ())
    types = (*(d for d in (*parameters, *outputs) if d.dtype or d.shape is not None), *syntax.types)
    names = [tuple(d.name for d in declared) for declared in (outputs, parameters)]
    name = header.name if header else None
    return parse_syntax(str(Program(name, header is not None, (), names[0], (), names[1], (), syntax.body, types)))
