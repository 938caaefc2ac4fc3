"""Text to tokens: logical lines, indentation, brackets, and every limit that can be judged before parsing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from polyker.einsum_frontend.names import (
    CONSTANTS,
    MAX_IDENTIFIER_CHARACTERS,
    MAX_ITEMS,
    MAX_NESTING,
    MAX_STATEMENT_CHARACTERS,
    MAX_STATEMENTS,
    MAX_TEXT_CHARACTERS,
    TREE_DEPTH,
    bad_character,
)
from polyker.errors.base import PolykerError, Source, Span, failure
from polyker.errors.syntax import (
    BAD_INDENT,
    BAD_NUMBER,
    BAD_SYMBOL,
    EMPTY,
    MISMATCHED,
    NAME_TOO_LONG,
    NOT_TEXT,
    STATEMENT_TOO_LONG,
    TEXT_TOO_LONG,
    TOO_DEEP,
    TOO_MANY_ITEMS,
    TOO_MANY_STATEMENTS,
    TREE_TOO_DEEP,
    UNCLOSED,
)
from polyker.ir.dtypes import DTYPES
from polyker.ir.expr import FUNCTIONS, REDUCTIONS

_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_TOKEN = re.compile(
    rf"""
    (?P<blank>[ \t]+ | \#[^\r\n]*)
  | (?P<newline>\r\n | \n | \r)
  | (?P<UPDATE>(?:max|min|any|all|logsumexp)=(?!=) | \+=(?!=) | \*=(?!=))
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<NUMBER>(?:{_DIGITS}(?:\.(?!\.)(?:{_DIGITS})?)? | \.{_DIGITS})(?:[eE][+-]?{_DIGITS})?[jJ]?)
  | (?P<DOTS>\.\.\.)
  | (?P<symbol>-> | \*\* | // | << | >> | <= | >= | == | != | [-+*/%&|^~()\[\],;:=<>])
    """,
    re.VERBOSE,
)
_SYMBOLS = {
    "->": "ARROW", "**": "POWER", "//": "DOUBLE_SLASH", "+": "PLUS", "-": "MINUS", "*": "STAR", "/": "SLASH",
    "%": "PERCENT", "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", ",": "COMMA", ";": "SEMI", ":": "COLON",
    "&": "AMPERSAND", "|": "BAR", "^": "CARET", "~": "TILDE", "<<": "SHIFT", ">>": "SHIFT", "=": "SET",
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), "COMPARE"),
}  # fmt: skip
_WORDS = {
    **dict.fromkeys(FUNCTIONS, "FUNCTION"), **dict.fromkeys(REDUCTIONS, "REDUCTION"), **dict.fromkeys(DTYPES, "DTYPE"),
    **dict.fromkeys(CONSTANTS, "CONSTANT"), **{w: w.upper() for w in ("for", "in", "where", "and", "or", "not")},
}  # fmt: skip
_CLOSING = {"(": ")", "[": "]"}
_TYPE_FOLLOWS = re.compile(rf"[ \t]*(?:\[|(?:{'|'.join(DTYPES)})\b(?![ \t]*\())")
_REST = re.compile(r"[A-Za-z0-9_]+")
_SIGNS = ("PLUS", "MINUS", "TILDE", "NOT")
_ADVICE = {
    "!": "write `not`, or `!=`",
    "@": "write the product with its indices: C[i,j] += A[i,k] * B[k,j]", "{": "brackets are ( ) and [ ]",
    "}": "brackets are ( ) and [ ]", ".": "functions stand alone, such as exp(X[i]); `...` stands for leading dimensions",
    "$": "names are letters, digits and _",
}  # fmt: skip


class Lexeme(Struct, frozen=True):
    """A token: its type, as grammar.lark names it, and its text at [start_pos, end_pos) of the source.

    The parser generator takes it as one of its own tokens, which is where the names of the fields come from.
    """

    type: str
    value: str
    source: Source
    start_pos: int
    end_pos: int
    line: ClassVar[None] = None
    column: ClassVar[None] = None
    end_line: ClassVar[None] = None
    end_column: ClassVar[None] = None

    @property
    def span(self) -> Span:
        """Where it stands."""
        return Span(self.source, self.start_pos, self.end_pos)


def check_text(text: object) -> str:
    """Return `text` if it is a str within the limits and of allowed characters; raises ParseError."""
    if not isinstance(text, str):
        raise failure(NOT_TEXT, type=type(text).__name__)
    if len(text) > MAX_TEXT_CHARACTERS:
        raise failure(TEXT_TOO_LONG, length=len(text), limit=MAX_TEXT_CHARACTERS)
    if not text.isascii() or not text.isprintable():
        for offset, character in enumerate(text):
            if not character.isprintable() and character not in "\t\n\r":
                raise bad_character(character, Span(Source(text), offset, offset + 1))
    return text


def tokenize(source: Source) -> Iterator[Lexeme]:
    """Yield the tokens of a text; every logical line ends in NEWLINE, blocks stand between INDENT and DEDENT.

    Raises ParseError at characters, numbers, brackets and indentation that no operator has, and beyond the limits.
    """
    text, position, statements, signs, begun = source.text, 0, 0, 0, -1
    lines = _Lines(source)
    brackets = _Brackets()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _no_token(source, position)
        kind, start, position = match.lastgroup, position, match.end()
        if kind == "newline" and not brackets.open:
            begun = -1
            yield from lines.end(start, position)
        if kind in ("blank", "newline"):
            continue
        if not brackets.open:
            yield from lines.begin(start)
        token = _classify(source, kind, match.group(), start, position)
        brackets.see(token)
        begun = start if begun < 0 else begun
        if position - begun > MAX_STATEMENT_CHARACTERS:
            raise failure(STATEMENT_TOO_LONG, span=Span(source, begun, begun + 1), limit=MAX_STATEMENT_CHARACTERS)
        if token.value == ";" and not brackets.open:
            begun = -1
        if token.type in ("SET", "UPDATE") and not brackets.open:
            statements += 1
            if statements > MAX_STATEMENTS:
                raise failure(TOO_MANY_STATEMENTS, span=Span(source, start, position), limit=MAX_STATEMENTS)
        signs = signs + 1 if token.type in _SIGNS else 0
        if signs > TREE_DEPTH:
            raise failure(TREE_TOO_DEEP, span=token.span, limit=TREE_DEPTH)
        yield token
    brackets.finish()
    yield from lines.finish()


def _classify(source: Source, kind: str | None, text: str, start: int, end: int) -> Lexeme:
    assert kind is not None
    if kind == "word":
        if len(text) > MAX_IDENTIFIER_CHARACTERS:
            span = Span(source, start, end)
            raise failure(NAME_TOO_LONG, span=span, name=text[:20], length=len(text), limit=MAX_IDENTIFIER_CHARACTERS)
        following = source.text[end : end + 1]
        if following and not following.isascii():
            raise bad_character(following, Span(source, end, end + 1))
        return Lexeme(_WORDS.get(text, "NAME"), text, source, start, end)
    if kind == "NUMBER":
        rest = _REST.match(source.text, end)
        if rest:
            span = Span(source, start, rest.end())
            raise failure(BAD_NUMBER, span=span, text=text + rest.group(), number=text, rest=rest.group())
    if kind == "symbol":
        kind = _SYMBOLS[text]
        if kind == "COLON" and _TYPE_FOLLOWS.match(source.text, end):
            kind = "TYPE_COLON"
    return Lexeme(kind, text, source, start, end)


def _no_token(source: Source, position: int) -> Exception:
    character = source.text[position]
    span = Span(source, position, position + 1)
    if not character.isascii():
        return bad_character(character, span)
    return failure(BAD_SYMBOL, span=span, hint=_ADVICE.get(character), symbol=character)


class _Brackets:
    """The open brackets, innermost last, each with the number of items seen in it."""

    def __init__(self) -> None:
        self.open: list[Lexeme] = []
        self.items: list[int] = []

    def see(self, token: Lexeme) -> None:
        """Follow a token, and refuse it where it closes nothing, the wrong bracket, or goes beyond the limits."""
        if token.value in _CLOSING:
            if len(self.open) == MAX_NESTING:
                raise failure(TOO_DEEP, span=token.span, limit=MAX_NESTING)
            self.open.append(token)
            self.items.append(1)
        elif token.value in (")", "]"):
            if not self.open:
                raise failure(MISMATCHED, span=token.span, found=token.value, wanted="no bracket is open")
            wanted = _CLOSING[self.open[-1].value]
            if token.value != wanted:
                wanted = f"`{wanted}` would close the `{self.open[-1].value}`"
                raise failure(MISMATCHED, span=token.span, found=token.value, wanted=wanted)
            self.open.pop()
            self.items.pop()
        elif token.value == "," and self.open:
            self.items[-1] += 1
            if self.items[-1] > MAX_ITEMS:
                raise failure(TOO_MANY_ITEMS, span=token.span, limit=MAX_ITEMS)

    def finish(self) -> None:
        if self.open:
            token = self.open[-1]
            raise failure(UNCLOSED, span=token.span, bracket=token.value, closing=_CLOSING[token.value])


class _Lines:
    """Logical lines and their indentation: the prefixes of the open blocks, outermost first."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.prefixes: list[str] = []
        self.inside = False  # within a logical line
        self.line = 0  # where the current physical line starts
        self.last = 0  # end of the last logical line

    def begin(self, start: int) -> Iterator[Lexeme]:
        """At the first token of a logical line: open or close blocks."""
        if self.inside:
            return
        self.inside = True
        prefix = self.source.text[self.line : start]
        if not self.prefixes:
            self.prefixes.append(prefix)
        if prefix == self.prefixes[-1]:
            return
        if prefix.startswith(self.prefixes[-1]):
            self.prefixes.append(prefix)
            yield Lexeme("INDENT", "", self.source, start, start)
            return
        while len(self.prefixes) > 1 and self.prefixes[-1] != prefix:
            self.prefixes.pop()
            yield Lexeme("DEDENT", "", self.source, start, start)
        if self.prefixes[-1] != prefix:
            raise self._mismatch(start)

    def _mismatch(self, start: int) -> PolykerError:
        return failure(
            BAD_INDENT,
            span=Span(self.source, start, start + 1),
            problem="fits no line above",
            advice="indent the lines of one block alike, with the same blanks or tabs",
        )

    def end(self, start: int, position: int) -> Iterator[Lexeme]:
        """At a line break outside brackets."""
        if self.inside:
            yield Lexeme("NEWLINE", "", self.source, start, start)
            self.last = start
        self.inside = False
        self.line = position

    def finish(self) -> Iterator[Lexeme]:
        """At the end of the text: end the line, close all blocks."""
        if not self.prefixes:
            raise failure(EMPTY)
        size = len(self.source.text)
        yield from self.end(size, size)
        for _ in self.prefixes[1:]:
            yield Lexeme("DEDENT", "", self.source, self.last, self.last)
