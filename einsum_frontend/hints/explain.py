"""The parser's errors in the words of the notation: what was found, what is accepted, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from polyker.einsum_frontend.hints.pieces import NAME
from polyker.einsum_frontend.lexer import Lexeme
from polyker.einsum_frontend.names import RESERVED_WORDS, did_you_mean
from polyker.errors.base import PolykerError, Source, Span, failure
from polyker.errors.syntax import BAD_INDENT, RESERVED, UNEXPECTED
from polyker.ir.dtypes import DTYPES
from polyker.ir.expr import REDUCTIONS

if TYPE_CHECKING:  # lark is loaded with the first text
    from lark.exceptions import UnexpectedToken

# Groups of tokens that are named together when all of them are accepted; then single tokens.
_GROUPS = (
    ("an expression", ("NUMBER", "CONSTANT", "FUNCTION", "REDUCTION", "LPAR", "DTYPE", "NAME")),
    ("an operator", ("PLUS", "MINUS", "STAR", "SLASH", "DOUBLE_SLASH", "PERCENT")),
    ("an operator", ("AMPERSAND", "BAR", "CARET", "SHIFT")),
    ("an operator", ("COMPARE", "AND", "OR")),
    ("`=` or a reduction such as `+=`", ("SET", "UPDATE")),
    ("`+` or `-`", ("PLUS", "MINUS")),
)
_WORDS = {
    "NAME": "a name", "NUMBER": "a number", "FOR": "`for`", "IN": "`in`", "WHERE": "`where`", "COMMA": "`,`",
    "SEMI": "`;`", "COLON": "`:`", "TYPE_COLON": "`:` and a type", "ARROW": "`->`", "LPAR": "`(`", "RPAR": "`)`",
    "LSQB": "`[`", "RSQB": "`]`", "DOTS": "`...`", "NEWLINE": "the end of the line", "INDENT": "an indented block",
    "DEDENT": "the end of the block", "$END": "the end of the text", "DTYPE": "an element type", "SET": "`=`",
    "UPDATE": "a reduction such as `+=`", "POWER": "`**`", "COMPARE": "a comparison", "AND": "`and`", "OR": "`or`",
    "NOT": "`not`", "AMPERSAND": "`&`", "BAR": "`|`", "CARET": "`^`", "SHIFT": "`<<` or `>>`", "TILDE": "`~`",
}  # fmt: skip
# What has to follow a reserved word in an expression: where something else does, it was meant as a name.
_FOLLOWS = {"FUNCTION": "LPAR", "DTYPE": "LPAR", "REDUCTION": "LSQB", "CONSTANT": "PLUS", "WHERE": "LPAR"}
_KEYWORDS = {"FOR": "for", "IN": "in", "WHERE": "where", "AND": "and", "OR": "or", "NOT": "not"}


def explain(problem: UnexpectedToken, source: Source) -> PolykerError:
    """Return the ParseError for a token that the grammar does not accept where it stands."""
    token = problem.token
    if not isinstance(token, Lexeme):  # the generator's own end of text
        token = Lexeme("$END", "", source, len(source.text), len(source.text))
    before = _before(problem)
    accepted = set(problem.accepts or problem.expected)
    if token.type in ("INDENT", "DEDENT"):
        return _indentation(token)
    reserved = _reserved(token, before, accepted)
    if reserved:
        return failure(RESERVED, span=reserved.span, name=reserved.value, kind=RESERVED_WORDS[reserved.value])
    span = token.span if token.value else _end_of_line(token)
    hint = _meant(token, before, accepted)
    return failure(UNEXPECTED, span=span, hint=hint, found=_found(token), expected=_expected(accepted))


def _before(problem: UnexpectedToken) -> Lexeme | None:
    """Return the token before the unexpected one, if the parser has not made more of it already."""
    parser = problem.interactive_parser
    stack = parser.parser_state.value_stack if parser else []
    return stack[-1] if stack and isinstance(stack[-1], Lexeme) else None


def _reserved(token: Lexeme, before: Lexeme | None, accepted: Collection[str]) -> Lexeme | None:
    """Return the token that uses a reserved word as a name, if that is what is wrong."""
    if token.value in RESERVED_WORDS and "NAME" in accepted and token.type not in ("AND", "OR"):
        return token
    if before is None or before.value not in RESERVED_WORDS:
        return None
    wanted = _FOLLOWS.get(before.type)
    if before.type == "FOR":
        return before if token.type in ("SET", "UPDATE", "LSQB") else None
    return before if wanted in accepted and token.type not in ("NAME", "NUMBER", "LPAR") else None


def _indentation(token: Lexeme) -> PolykerError:
    span = Span(token.source, token.start_pos, token.start_pos + 1)
    if token.type == "INDENT":
        advice = "only the lines under a declaration or a loop are indented; inside brackets a line may be broken"
        return failure(BAD_INDENT, span=span, problem="is deeper than that of the line above", advice=advice)
    return failure(UNEXPECTED, span=span, found="the end of the block", expected="a statement in it")


def _end_of_line(token: Lexeme) -> Span:
    return Span(token.source, token.start_pos, token.start_pos + 1)


def _found(token: Lexeme) -> str:
    match token.type:
        case "NAME":
            return f"the name `{token.value}`"
        case "NEWLINE":
            return "the end of the line"
        case "$END":
            return "the end of the text"
        case _:
            return f"`{token.value}`"


def _expected(accepted: Collection[str]) -> str:
    rest, words = set(accepted), []
    for phrase, types in _GROUPS:
        if rest.issuperset(types):
            rest -= {*types, "NOT", "TILDE"} if phrase == "an expression" else set(types)
            words.append(phrase)
    if "an expression" in words:
        rest -= {"PLUS", "MINUS", "WHERE"}
        words = [w for w in words if w != "`+` or `-`"]
    if "an operator" in words:
        rest -= {"POWER", "COMPARE", "AND", "OR", "AMPERSAND", "BAR", "CARET", "SHIFT"}
    words += [word for type_, word in _WORDS.items() if type_ in rest]
    words = list(dict.fromkeys(words))
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _meant(token: Lexeme, before: Lexeme | None, accepted: Collection[str]) -> str | None:
    """Return a hint where a keyword is misspelt, a product lacks its `*`, or a spelling is another language's."""
    after = token.source.text[token.end_pos :]
    following = after[:1]
    if token.type == "COLON":
        return did_you_mean(re.split(r"[\[(,)\n]", after.lstrip(" "))[0].strip(), DTYPES)
    if before is not None and token.value == before.value and token.value in ("&", "|"):
        return f"write `{'and' if token.value == '&' else 'or'}`"
    if token.value in ("if", "else"):
        return "write where(c, a, b), or a clause: where c"
    if token.type == "NAME":
        keyword = did_you_mean(token.value, [word for type_, word in _KEYWORDS.items() if type_ in accepted])
        if keyword:
            return keyword
    reduction = re.search(rf"({NAME})\s*\[[^\[\]]*\]\s*\Z", token.source.text[: token.start_pos])
    if token.type == "LPAR" and reduction and "STAR" in accepted:
        meant = did_you_mean(reduction.group(1), REDUCTIONS)
        return meant or f"write a product with `*`; the reductions are {', '.join(REDUCTIONS)}"
    if token.type in ("NAME", "NUMBER", "LPAR") and "STAR" in accepted:
        return "write a product with `*`"
    if "SET" in accepted and following == "=" and token.type in ("MINUS", "SLASH", "PERCENT", "DOUBLE_SLASH", "POWER"):
        return f"there is no `{token.value}=`; write `+=` with a negated term, or `=`"
    if token.type == "SET" and "COMPARE" in accepted:
        return "equality is written `==`"
    if token.type == "COMPARE" and token.value == "==" and "SET" in accepted:
        return "a statement is written with `=`"
    if token.type == "FOR" and "WHERE" not in accepted and "NEWLINE" in accepted:
        return "`for` stands before `where`, its ranges separated by `,`"
    return None
