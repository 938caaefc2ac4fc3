"""JSON documents to programs: the form is checked first, then all that is checked of a text."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from polyker.einsum_frontend.check import warn_lacking
from polyker.einsum_frontend.documents.build import DocumentSyntax
from polyker.einsum_frontend.lower import lower
from polyker.einsum_frontend.parser import parse
from polyker.einsum_frontend.placed import error_in_text, with_places
from polyker.einsum_frontend.syntax import Syntax
from polyker.errors.base import PolykerError, escape, failure, located
from polyker.errors.given import exact_text, type_name
from polyker.errors.syntax import BAD_PROGRAM
from polyker.ir.document.nodes import FORMAT, VERSION, ProgramJson
from polyker.ir.program import Program

T = TypeVar("T")
MAX_DOCUMENT_CHARACTERS = 1 << 25  # of a JSON text; one of a program at the limit of a text has about as many
# Where msgspec found something: `$` is the document.
_PLACE = re.compile(r" - at `\$\.?(.*)`\Z", re.DOTALL)
_DEEP = "it is nested too deep"


class DocumentProgram(Struct, frozen=True):
    """What a document holds: the program, the sizes that have one value, and what it was parsed from, if that is told."""

    program: Program
    fixed: Mapping[str, int]
    text: str | None


class _Head(Struct):
    format: Any = None
    version: Any = None


def read_program(document: object, sizes: Collection[str] = ()) -> DocumentProgram:
    """Return the program of a JSON document, as text or as what `json.loads` gives; `sizes`: further ones with one value.

    Raises ParseError or ShapeError, as a text would, with the place in the document.
    """
    try:
        said = _document(document)
        fixed = {name: _size(name, value) for name, value in said.fixed.items()}
        return _read(said, fixed, {*fixed, *sizes})
    except RecursionError:
        raise failure(BAD_PROGRAM, reason=_DEEP) from None


def _document(given: object) -> ProgramJson:
    """Return a document whose form is right."""
    text = exact_text(given)
    if text is None:
        if not isinstance(given, Mapping):
            raise failure(BAD_PROGRAM, reason=f"it is a {type_name(given)}, not a text or a dict")
        try:
            text = json.dumps(dict(given), allow_nan=False)  # what a mapping holds becomes plain values by the way
        except RecursionError:
            raise
        except Exception as error:
            raise failure(BAD_PROGRAM, reason=f"it is no JSON ({error})") from None
    if len(text) > MAX_DOCUMENT_CHARACTERS:
        raise failure(BAD_PROGRAM, reason=f"{len(text)} characters are more than {MAX_DOCUMENT_CHARACTERS}")
    head = _decoded(text, _Head)
    if head.format != FORMAT:
        raise located(failure(BAD_PROGRAM, reason=f"the format is {head.format!r}, not {FORMAT!r}"), "format")
    if type(head.version) is not int or head.version != VERSION:
        reason = f"the version is {head.version!r}; this polyker reads {VERSION}"
        raise located(failure(BAD_PROGRAM, reason=reason), "version")
    return _decoded(text, ProgramJson)


def _decoded(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        reason = str(error)
        place = _PLACE.search(reason)
        problem = failure(BAD_PROGRAM, reason=_PLACE.sub("", reason).replace("`", ""))
        raise (located(problem, place[1]) if place is not None and place[1] else problem) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise failure(BAD_PROGRAM, reason=f"it is no JSON ({error})") from None


def _size(name: str, value: int | str) -> int:
    try:
        found = int(value)
    except ValueError:
        found = -1
    if not 0 <= found < 2**62:
        reason = f"the size `{escape(name)}` is no integer of 0 or more, below 2^62"
        raise located(failure(BAD_PROGRAM, reason=reason), "fixed")
    return found


def _read(said: ProgramJson, fixed: Mapping[str, int], given: Collection[str]) -> DocumentProgram:
    made = DocumentSyntax(said)
    syntax = made.syntax()
    for name in given:
        if made.names.get(name, ("size", ""))[0] != "size":
            raise located(failure(BAD_PROGRAM, reason=f"`{name}` is no size"), made.names[name][1])
    sizes, indices = made.named("size") | {*given}, made.named("index")
    try:
        program = lower(syntax, sizes, indices)
    except PolykerError as problem:
        raise _placed(said, syntax, problem, sizes, indices) from None
    _check_roles(said, program)
    program = with_places(syntax, program, sizes, indices)
    if said.text is None:
        warn_lacking(program.body)
    elif parse(said.text, sizes=given) != program:
        raise located(failure(BAD_PROGRAM, reason="the text is another program than the body"), "text")
    return DocumentProgram(program, fixed, said.text)


def _placed(
    said: ProgramJson, syntax: Syntax, problem: PolykerError, sizes: Collection[str], indices: Collection[str]
) -> PolykerError:
    """Return an error of a document's program with its place there, and in the text that the program prints."""
    marked, place = DocumentSyntax(said, marked=True), None
    try:
        lower(marked.syntax(), sizes, indices)
    except PolykerError as again:
        place = marked.place_of(again.span)
    return located(error_in_text(syntax, problem, sizes, indices), place or "body")


def _check_roles(said: ProgramJson, program: Program) -> None:
    """Raise ParseError where the statements give other inputs, outputs, parameters or sizes than the document says."""
    pairs: dict[str, tuple[tuple[str, ...] | None, tuple[str, ...]]] = {
        "inputs": (tuple(t.name for t in said.inputs), program.inputs),
        "outputs": (tuple(t.name for t in said.outputs), program.outputs),
        "parameters": (said.parameters, program.parameters),
        "sizes": (said.sizes, program.sizes),
    }
    for place, (told, found) in pairs.items():
        if told is not None and told != found:
            shown = ", ".join(found) or "none"
            hint = "a program with a name has its inputs and outputs as they are declared"
            reason = f"the {place} of these statements are {shown}, in this order"
            raise located(failure(BAD_PROGRAM, hint=hint, reason=reason), place)
    for k, tensor in enumerate(said.temporaries):
        if tensor.name not in program.temporaries:
            reason = f"`{tensor.name}` is no temporary of these statements"
            raise located(failure(BAD_PROGRAM, reason=reason), f"temporaries[{k}]")
