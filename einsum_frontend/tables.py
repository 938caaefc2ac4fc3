"""The parser's LALR tables: from the file that ships with the package, or built from the grammar.

`PYTHONHASHSEED=0 python -m polyker.einsum_frontend.tables` writes the file; a test says when it has to be. Building the tables
takes four fifths of the time of a process's first text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import lark
from lark.grammar import Rule
from lark.lexer import Lexer, TerminalDef, Token

FILE = "grammar.json"


def parser(lexer: type, transformer: object) -> lark.Lark:
    """Return the parser of the grammar with a lexer and what makes nodes of its rules."""
    found = json.loads(files(__package__).joinpath(FILE).read_text("utf-8"))
    if found["of"] != _made_of():  # another version of lark
        return built(lexer, transformer)
    data, memo = found["data"], _numbered(found["memo"])
    tables = data["parser"]["parser"]
    tables["tokens"] = _numbered(tables["tokens"])
    tables["states"] = {int(n): _numbered(state) for n, state in tables["states"].items()}
    data["options"] |= {"lexer": lexer, "transformer": transformer}
    data["parser"]["lexer_conf"]["lexer_type"] = lexer
    return lark.Lark.load({"data": data, "memo": memo})


def _numbered(table: dict[str, Any]) -> dict[int, Any]:
    """Return a table with integers for keys, which JSON has not."""
    return {int(key): value for key, value in table.items()}


def _grammar() -> str:
    return files(__package__).joinpath("grammar.lark").read_text("utf-8")


def _made_of() -> str:
    return f"lark {lark.__version__}, {hashlib.sha256(_grammar().encode()).hexdigest()}"


def built(lexer: type, transformer: object) -> lark.Lark:
    """Return the parser, its tables built now; `strict` makes a conflict in the grammar an error."""
    return lark.Lark(_grammar(), parser="lalr", lexer=lexer, strict=True, transformer=transformer)


class _NoLexer(Lexer):
    """A lexer that nobody calls."""

    def __init__(self, configuration: object) -> None:
        pass

    def lex(self, lexer_state: object, parser_state: object) -> Iterator[Token]:
        """Return no tokens."""
        return iter(())


def text() -> str:
    """Return what the file of tables should be."""
    data, memo = built(_NoLexer, None).memo_serialize([TerminalDef, Rule])
    own = ("lexer", "transformer")  # given when they are loaded
    data["options"] = {name: value for name, value in data["options"].items() if name not in own}
    del data["parser"]["lexer_conf"]["lexer_type"]
    return json.dumps({"of": _made_of(), "data": data, "memo": memo}, separators=(",", ":"), sort_keys=True) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_text(text(), encoding="utf-8")
