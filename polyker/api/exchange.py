"""What an operator gives to other compilers: its program as JSON, its domains and accesses as data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from polyker.api.definition import Definition, of_document
from polyker.errors.tracebacks import api_class
from polyker.ir.dtypes import TensorType
from polyker.options import options
from polyker.process.jobs import load
from polyker.runtime.arguments import size_value

if TYPE_CHECKING:  # islpy comes with it
    from polyker.exchange.polyhedra import Polyhedra


@api_class
class Exchanged:
    """What has a definition that is written as JSON and read from it, and that types bind to domains and accesses."""

    _definition: Definition

    @abstractmethod
    def _types(self, types: Sequence[Any], named: Mapping[str, Any]) -> tuple[tuple[TensorType, ...], dict[str, int]]:
        """Return the inputs' types, and the sizes given."""

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

    def polyhedra(self, /, *types: Any, **named: Any) -> Polyhedra:
        """Return the iteration domains, index ranges and access relations for arrays or types, as in `compile`.

        Nothing is compiled. Domains and relations are texts that isl reads. Raises ShapeError, DTypeError, CompileError.

        >>> import polyker as pk
        >>> (C,) = pk.op("C[i,j] += A[i,k] * B[k,j]").polyhedra(pk.f32["N", 4], pk.f32[4, 9]).statements
        >>> C.ranges
        (('i', 0, 'N'), ('j', 0, 9), ('k', 0, 4))
        """
        load("polyker.api.stages")
        from polyker.api.stages import polyhedra

        definition = self._definition
        given, sizes = self._types(types, named)
        symbols = {name: name for name in definition.signature.free_sizes}
        return polyhedra(definition.program, given, {**symbols, **definition.fixed, **sizes}, options.current)
