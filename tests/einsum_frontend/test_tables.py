"""The tables of the parser that ship with the package are the grammar's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer

from polyker.einsum_frontend import tables
from polyker.einsum_frontend.actions import Actions
from polyker.einsum_frontend.lexer import tokenize
from polyker.errors import ParseError
from polyker.errors.base import Source

TEXTS = (
    "C[i,j] += A[i,k] * B[k,j]",
    "f(X: f32[N,C], k) -> Y: f32[N,C]:\n    Y[n,c] = where(X[n,c] > 0, X[n,c], -X[n,c] ** 2) for n in 0:N, c in 0:C where c > 2",
    "for t in 1:T:\n    U[t,i] = U[t-1,i-1; pad=0] + U[t-1,i+1; pad=wrap] // 3",
    "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))",
    "Y[...] = ~(A[...] & 7) << 2 | 1",
)
BAD = ("C[i,j += A[i]", "C[i] ==", "for i in 0:3", "C[i] = A[i] ) + 1", "")


def test_the_file_was_made_of_this_grammar_by_this_lark() -> None:
    kept = json.loads(files("polyker.einsum_frontend").joinpath(tables.FILE).read_text("utf-8"))
    now = json.loads(tables.text())
    assert kept["of"] == now["of"], "run PYTHONHASHSEED=0 python -m polyker.einsum_frontend.tables"
    assert len(kept["data"]["parser"]["parser"]["states"]) == len(now["data"]["parser"]["parser"]["states"])


class Tokens(Lexer):
    """The lexer of the parser."""

    def __init__(self, configuration: object) -> None:
        pass

    def lex(self, source: Any) -> Iterator[Any]:  # type: ignore[override]
        return tokenize(source)


@pytest.mark.parametrize("text", [*TEXTS, *BAD])
def test_tables_of_the_file_and_built_ones_read_texts_alike(text: str) -> None:
    found = []
    for make in (tables.parser, tables.built):
        parser: Any = make(Tokens, Actions())
        try:
            found.append(repr(parser.parse(Source(text))))
        except UnexpectedToken as error:
            found.append((error.token.start_pos, error.token.type, sorted(error.accepts or error.expected)))
        except ParseError as error:
            found.append(str(error))
    assert found[0] == found[1]
