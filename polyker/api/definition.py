"""What an operator computes: a text, parsed only when its program is needed, or a program that was built."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from polyker.errors.base import ArgumentError, PolykerError, advised, failure
from polyker.errors.calls import MISSING, NO_SUCH_SIZE, NOT_AN_OPERATOR, SIZE_CONFLICT
from polyker.errors.given import exact_text, is_a, listed, type_name
from polyker.errors.spelling import suggestion
from polyker.process.jobs import load
from polyker.record.codec import decode, encode
from polyker.record.records import Signature
from polyker.runtime.arguments import matched
from polyker.store import disk
from polyker.store.entries import CacheEntry
from polyker.store.keys import digest, revision

if TYPE_CHECKING:  # the front end's own data
    from polyker.ir.program import Program

# Inputs or outputs that a derivative is of, None for all.
GivenNames: TypeAlias = str | Iterable[str] | None
# Steps of a loop whose values a derivative keeps at once, unless it is said otherwise.
STEPS_KEPT = 100
MAX_LINES = 1 << 20  # of a list that defines an operator; a text has less
# Constants by names that they have elsewhere; here these are inputs.
_CONSTANTS = {"nan": "nan", "inf": "inf", "infinity": "inf", "pi": "pi", "true": "True", "false": "False"}


class Definition:
    """An operator's text or program, with its signature; `identity` tells it from others, and so does the disk cache.

    `fixed`: sizes with one value. `text` is None where a program was built. Raises ArgumentError for a size that it has not.
    """

    __slots__ = ("_program", "fixed", "identity", "signature", "text")

    def __init__(
        self, text: str | None, fixed: Mapping[str, int], signature: Signature, program: Program | None
    ) -> None:
        self.text, self.fixed, self.signature, self._program = text, dict(fixed), signature, program
        for name in fixed:
            if name not in signature.sizes:
                meant, known = suggestion(name, signature.sizes), ", ".join(signature.sizes) or "none"
                raise failure(NO_SUCH_SIZE, name=name, meant=meant, sizes=known)
        self.identity = (
            _identity(text, fixed) if text is not None else digest("program", program, sorted(fixed.items()))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as its text or its program, and its fixed sizes."""
        return (of_program, (self.program, self.fixed)) if self.text is None else (of_text, (self.text, self.fixed))

    def matched(self, args: Sequence[object], named: Mapping[str, object]) -> tuple[list[object], dict[str, object]]:
        """Return (one value an input, in order; the sizes given) of a call; raises ArgumentError on what does not fit."""
        try:
            return matched(self.signature, args, named)
        except ArgumentError as error:
            if error.code != MISSING:
                raise
            load("polyker.poly.binding.declaring")
            from polyker.poly.binding.declaring import size_from_extent

            name = str(error.values["name"])
            constant = _CONSTANTS.get(name.lower())
            if constant is not None:
                raise advised(error, f"the constant is written `{constant}`; of an argument, give `{name}`") from None
            text = size_from_extent(self.program, name)
            if text is None:
                raise
            raise advised(error, f"give `{name}`, or take it from the extent of an argument: `{text}`") from None

    def call_signature(self, fixed: Mapping[str, int]) -> inspect.Signature | None:
        """Return how it is called, for `help` and `inspect`: parameters, sizes by keyword, `out`; None where Python has no such.

        `fixed`: sizes that need not be given.
        """
        said, make = self.signature, inspect.Parameter
        by_keyword = [n for n in said.free_sizes if n not in said.parameters and n not in fixed]
        try:
            given = [make(n, make.POSITIONAL_OR_KEYWORD) for n in said.parameters if n not in fixed]
            given += [make(n, make.KEYWORD_ONLY) for n in by_keyword]
            if "out" not in said.own_names(0):
                given.append(make("out", make.KEYWORD_ONLY, default=None))
            return inspect.Signature(given)
        except ValueError:  # a name that is a keyword of Python's
            return None

    @property
    def program(self) -> Program:
        """The program; of a text whose signature came from the disk it is parsed now."""
        if self._program is None:
            self._program = _parsed(self.text or "", self.fixed)
        return self._program


def is_program(value: object) -> bool:
    """Whether a value is a program, which nobody has where nothing has loaded its class."""
    module = sys.modules.get("polyker.ir.program")
    return module is not None and is_a(value, module.Program)


def not_an_operator(*given: object) -> PolykerError:
    """Return the error for what defines no operator."""
    load("polyker.einsum_frontend.builder")
    from polyker.einsum_frontend.builder import Expression

    advice = 'write for example pk.op("C[i,j] += A[i,k] * B[k,j]")'
    if any(is_a(g, Expression) for g in given):
        advice = "make a statement of an expression: C[i, j].set(value), .add(value) and so on"
    elif any(is_a(g, str) for g in given):
        advice = "give one text, with its statements on lines of their own or after `;`"
    elif len(given) == 1 and is_a(given[0], (list, tuple)):
        advice = "a list holds statements of the builder, or the lines of a text"
    return failure(NOT_AN_OPERATOR, type=", ".join(map(type_name, given)) or "nothing", advice=advice)


def definition_of(given: tuple[object, ...], fixed: Mapping[str, int]) -> Definition:
    """Return the definition that a text, JSON, a program or statements of the builder are, with sizes fixed.

    Raises ParseError, and ArgumentError for anything that defines no operator.
    """
    given = one_by_one(given)
    if len(given) == 1:
        (only,) = given
        if is_document(only):
            return of_document(only, fixed)
        text = exact_text(only)
        if text is not None:
            return of_text(text, fixed)
        if is_program(only):
            return of_program(cast("Program", only), fixed)
    builder = load("polyker.einsum_frontend.builder")
    items = (builder.Assignment, builder.Declaration, builder.Repeated, builder.Typed)
    if given and all(is_a(g, items) for g in given):
        return of_program(builder.build(*given, sizes=fixed), fixed)
    raise not_an_operator(*given)


def one_by_one(given: tuple[object, ...]) -> tuple[object, ...]:
    """Return what defines an operator one by one: of one list its items, of a list of lines one text."""
    only = given[0] if len(given) == 1 else None
    items = listed(only, MAX_LINES) if is_a(only, (list, tuple)) else None
    if not items:
        return given
    lines = [text for item in items if (text := exact_text(item)) is not None]
    return ("\n".join(lines),) if len(lines) == len(items) else tuple(items)


def is_document(value: object) -> bool:
    """Whether a value is meant as the JSON of a program: a mapping, or a text that begins as an object of JSON does."""
    text = exact_text(value)
    return is_a(value, Mapping) if text is None else text.lstrip().startswith("{")


def of_document(document: object, fixed: Mapping[str, int]) -> Definition:
    """Return the definition that JSON holds, with further sizes fixed; raises ParseError or ShapeError."""
    load("polyker.einsum_frontend.documents.read")
    from polyker.einsum_frontend.documents.read import read_program

    found = read_program(document, fixed)
    for name, value in found.fixed.items():
        other = fixed.get(name, value)
        if other != value:
            values = {"first": value, "first_place": "the document", "second": other, "second_place": "the call"}
            raise failure(SIZE_CONFLICT, span=None, hint=None, size=name, **values)
    return of_program(found.program, {**found.fixed, **fixed}, found.text)


def of_text(text: str, fixed: Mapping[str, int]) -> Definition:
    """Return the definition of a text; raises ParseError."""
    key = digest("signature", _identity(text, fixed), revision())
    entry = disk.read("signature", key)
    if entry is not None:
        try:
            return Definition(text, fixed, decode(Signature, entry.record), None)
        except ValueError:  # of what another format has written
            pass
    program = _parsed(text, fixed)
    made = of_program(program, fixed, text)
    disk.write(CacheEntry("signature", key, text.strip().partition("\n")[0][:80], encode(made.signature)))
    return made


def of_program(program: Program, fixed: Mapping[str, int], text: str | None = None) -> Definition:
    """Return the definition of a program; `text`: what it was parsed from with these sizes."""
    load("polyker.record.signatures")
    from polyker.record.signatures import signature_of

    return Definition(text, fixed, signature_of(program), program)


def _parsed(text: str, fixed: Mapping[str, int]) -> Program:
    found: Program = load("polyker.einsum_frontend").parse(text, sizes=fixed)
    return found


def _identity(text: str, fixed: Mapping[str, int]) -> str:
    return digest("text", text, sorted(fixed.items()))
