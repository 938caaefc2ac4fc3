"""What an operator gives to other programs: its program as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from polyker.api.definition import Definition, of_document
from polyker.errors.tracebacks import api_class
from polyker.runtime.arguments import size_value


@api_class
class Exchanged:
    """What has a definition that is written as JSON, and read from it."""

    _definition: Definition

    def to_json(self) -> str:
        """Return the program and its fixed sizes as JSON, which `pk.op` and `from_json` take; a text it came from is kept.

        >>> import polyker as pk
        >>> mm = pk.op("C[i,j] += A[i,k] * B[k,j]")
        >>> pk.op(mm.to_json()).identity == mm.identity
        True
        """
        definition = self._definition
        return definition.program.to_json(definition.fixed, definition.text)

    @classmethod
    def from_json(cls, text: str | Mapping[str, object], /, **sizes: int) -> Self:
        """Return the operator that a JSON text (or the dict it holds) tells; keywords fix further sizes.

        It is checked as a text in the notation is. Raises ParseError or ShapeError with the place in the document, such as
        `body[2].expr.args[0]`.
        """
        made: Any = cls
        found: Self = made(of_document(text, {name: size_value(name, value) for name, value in sizes.items()}))
        return found
