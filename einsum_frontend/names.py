"""Reserved words, the rule for users' names, limits, and names that were meant."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from polyker.einsum_frontend.elsewhere import RENAMED
from polyker.errors.base import Span, failure
from polyker.errors.given import exact_text, printed
from polyker.errors.spelling import near
from polyker.errors.syntax import BAD_CHARACTER, LOOK_ALIKE, NAME_TOO_LONG, NOT_A_NAME, RESERVED
from polyker.ir import measure
from polyker.ir.dtypes import DTYPES, TYPE_NAMES, meant_type
from polyker.ir.expr import FUNCTIONS, REDUCTIONS

# Limits on what a text may hold; each is checked before the stage that it protects.
MAX_TEXT_CHARACTERS = 512 * 1024  # characters
MAX_STATEMENT_CHARACTERS = 64 * 1024  # characters
MAX_NESTING = 64  # brackets inside brackets
MAX_ITEMS = 128  # between the brackets of one pair
MAX_STATEMENTS = 8192
MAX_OPERANDS = 4096  # inputs, and outputs
MAX_INDICES = 32  # of one statement, those of loops and inline reductions around it included
MAX_IDENTIFIER_CHARACTERS = 64  # characters
MAX_COEFFICIENT = 2**31  # of an index, and divisors
MAX_OFFSET = 2**31  # in a subscript
MAX_EXTENT = 2**62  # in a bound, a condition or a shape
TREE_DEPTH = measure.DEPTH
TREE_SIZE = measure.SIZE  # chained comparisons repeat their middle operand

KEYWORDS = ("for", "in", "where", "and", "or", "not")
CONSTANTS = ("inf", "nan", "pi", "True", "False")

# What each reserved word is, as messages name it. `where` is a clause and a function.
RESERVED_WORDS: dict[str, str] = {
    **dict.fromkeys(FUNCTIONS, "a function"),
    **dict.fromkeys(REDUCTIONS, "a reduction"),
    **dict.fromkeys(DTYPES, "an element type"),
    **dict.fromkeys(CONSTANTS, "a constant"),
    **dict.fromkeys(KEYWORDS, "a keyword"),
}

# What other notations call element types and functions.
ELSEWHERE = {
    **TYPE_NAMES,
    **RENAMED,
}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check_name(name: object, span: Span | None = None) -> str:
    """Return `name` if a user may use it for a tensor, an index or a size.

    Raises ParseError where it is no identifier, too long, or reserved.
    """
    text = exact_text(name)
    if text is None:
        raise failure(NOT_A_NAME, name=printed(name)[:80])
    name = text
    if len(name) > MAX_IDENTIFIER_CHARACTERS:
        raise failure(NAME_TOO_LONG, span=span, name=name[:20], length=len(name), limit=MAX_IDENTIFIER_CHARACTERS)
    if not _NAME.match(name):
        check_characters(name, span)
        raise failure(NOT_A_NAME, span=span, name=name)
    if name in RESERVED_WORDS:
        raise failure(RESERVED, span=span, name=name, kind=RESERVED_WORDS[name])
    return name


def check_characters(text: str, span: Span | None = None) -> None:
    """Raise ParseError at a character of `text` that no identifier of the notation holds."""
    for character in text:
        if not character.isascii() or not character.isprintable():
            raise bad_character(character, span)


def bad_character(character: str, span: Span | None = None) -> Exception:
    """Return the error for a control character, or for one outside ASCII, which may look like an allowed one."""
    point = f"U+{ord(character):04X}"
    name = unicodedata.name(character, "a character without a name")
    if character.isprintable() and not character.isascii():
        return failure(LOOK_ALIKE, span=span, character=character, point=point, name=name)
    return failure(BAD_CHARACTER, span=span, point=point, name=name)


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """Return a hint that names the candidate which other notations call so, or that at edit distance one, or None."""
    known = tuple(candidates)
    found = next((f for f in (ELSEWHERE.get(word), meant_type(word)) if f in known), None) or near(word, known)
    return f"did you mean `{found}`?" if found else None
