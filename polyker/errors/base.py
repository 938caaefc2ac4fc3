"""The error classes, source spans, and the catalogue that gives each error its stable code."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from polyker.errors.given import text_of


def escape(text: str, limit: int = 200) -> str:
    """Return `text` safe for a terminal: control and format characters as escapes, cut at `limit` characters.

    >>> escape("a\\x1b[31m")
    'a\\\\x1b[31m'
    """
    cut = text if len(text) <= limit else text[:limit] + f"... ({len(text)} characters)"
    if cut.isascii() and cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


class Source(Struct, frozen=True):
    """The text that a user wrote, with the name it is shown under."""

    text: str

    def line_of(self, offset: int) -> tuple[int, int, str]:
        """Return (line number from 1, column from 0, the line) of a character offset."""
        offset = min(max(offset, 0), len(self.text))
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        line = self.text[start : end if end >= 0 else len(self.text)]
        return self.text.count("\n", 0, offset) + 1, offset - start, line


class Span(Struct, frozen=True):
    """Half-open range of character offsets [start, end) in a source."""

    source: Source
    start: int
    end: int

    def caret(self, width: int = 110) -> str:
        """Return the line with carets under the span, cut to `width` characters around it."""
        number, column, line = self.source.line_of(self.start)
        length = max(1, min(self.end, self.start + len(line) - column) - self.start)
        left = max(0, column - width // 2)
        shown = line[left : left + width]
        # One character in, one out: escapes would move the caret from its place.
        shown = "".join(c if c.isprintable() else "?" for c in shown)
        prefix = "..." if left else ""
        mark = " " * (len(prefix) + column - left) + "^" * max(1, min(length, width - (column - left)))
        where = f"  line {number}:\n" if "\n" in self.source.text.strip() else ""
        return f"{where}  {prefix}{shown}\n  {mark}"


class PolykerError(Exception):
    """Root of every error that polyker raises.

    Attributes: `code` (stable, such as "PK301"), `message` (one line), `span` (where, or None), `hint` (what would be
    right, or None).
    """

    def __init__(self, message: str, *, code: str = "PK000", span: Span | None = None, hint: str | None = None) -> None:
        self.code, self.message, self.span, self.hint = code, message, span, hint
        self.values: dict[str, object] = {}  # what the catalogue's templates were filled with
        text = message
        if span is not None:
            text += "\n" + span.caret()
        if hint:
            text += f"\nhint: {hint}"
        super().__init__(f"{text}\n[{code}]" if "\n" in text else f"{text} [{code}]")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as what it was made of; of values that may be anything, what they say."""
        values = {name: text_of(value) for name, value in self.values.items()}
        return _made, (type(self), self.message, self.code, self.span, self.hint, values)


class ParseError(PolykerError, ValueError):
    """The text is not in the notation."""


class ShapeError(PolykerError, ValueError):
    """Ranks, extents, index ranges or coverage disagree."""


class DTypeError(PolykerError, TypeError):
    """An element type is not what the operator takes."""


class GatherError(PolykerError, IndexError):
    """A gathered index lies outside the tensor it subscripts."""


class ArgumentError(PolykerError, TypeError, ValueError):
    """An argument is missing, not known, of a kind that is not taken, or lies in memory as it must not.

    Both a TypeError and a ValueError: numpy raises now one, now the other for such calls.
    """


class PathError(ArgumentError, RuntimeError, LookupError):
    """A path of einsum is none of these operands, or leaves some: numpy raises now one of these classes, now another."""


class ScheduleError(PolykerError):
    """A schedule step cannot be applied."""


class StepNameError(ScheduleError, AttributeError):
    """A schedule has no step of that name."""


class LegalityError(ScheduleError):
    """A schedule breaks a dependence."""


class CompileError(PolykerError):
    """A stage of the compiler failed."""


class CompileTimeout(CompileError, TimeoutError):
    """Compiling took longer than `timeout`."""


class GradientError(PolykerError, NotImplementedError):
    """A program, or a function in it, has no derivative that polyker can write."""


class BackendUnavailable(PolykerError, ImportError):
    """A target needs a library or a device that is not here."""


class HostError(PolykerError, RuntimeError):
    """The `parallel_for` of a host did not run a kernel's parts as it has to; the results are not complete."""


class InternalError(PolykerError):
    """A bug of polyker: please report it with the text of the operator."""


def _made(
    cls: type[PolykerError], message: str, code: str, span: Span | None, hint: str | None, values: dict[str, object]
) -> PolykerError:
    """Return an error that was pickled."""
    error = cls(message, code=code, span=span, hint=hint)
    error.values = values
    return error


class Entry(Struct, frozen=True):
    """One row of the catalogue: the class raised, the message and the hint as `str.format` templates."""

    code: str
    cls: type[PolykerError]
    message: str
    hint: str | None = None


CATALOGUE: dict[str, Entry] = {}


def register(code: str, cls: type[PolykerError], message: str, hint: str | None = None) -> str:
    """Add a row to the catalogue and return its code; a code is one row's.

    A module that an interrupt ended half-way runs again when it is imported again.
    """
    entry = Entry(code, cls, message, hint)
    if CATALOGUE.setdefault(code, entry) != entry:
        raise ValueError(f"error code {code} is registered twice")
    return code


def failure(code: str, *, span: Span | None = None, hint: str | None = None, **values: object) -> PolykerError:
    """Return the exception of a catalogue row, its templates filled with `values` (escaped, each at most 200 characters).

    `hint` replaces the row's own. Use as `raise failure(CODE, span=..., name=...)`.
    """
    entry = CATALOGUE[code]
    shown = {k: escape(text_of(v)) for k, v in values.items()}
    text = entry.message.format(**shown)
    advice = hint if hint is not None else (entry.hint.format(**shown) if entry.hint else None)
    error = entry.cls(text, code=code, span=span, hint=advice)
    error.values = values
    return error


def advised(error: PolykerError, hint: str) -> PolykerError:
    """Return an error as it is, with another hint."""
    return _made(type(error), error.message, error.code, error.span, hint, error.values)


def located(error: PolykerError, place: str) -> PolykerError:
    """Return an error as it is, its message with the place in a document, such as `body[2].expr`, before it."""
    return _made(
        type(error), f"at `{escape(place)}`: {error.message}", error.code, error.span, error.hint, error.values
    )
