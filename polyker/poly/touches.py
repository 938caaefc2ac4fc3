"""The accesses of a statement, as far as they decide whether it may move past another."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import coefficients, is_quasi_affine
from polyker.ir.typed import TypedStatement


class Touch(Struct, frozen=True):
    """One access of an item; `exact`: the element is the one that the subscripts say, or none.

    `everywhere`: also at other values of the iterators than the statement's own.
    """

    statement: TypedStatement
    tensor: str
    subscripts: tuple[Expr, ...]
    is_write: bool
    exact: bool
    everywhere: bool = False


def touches(statement: TypedStatement) -> Iterator[Touch]:
    """Yield the accesses of a statement."""
    yield Touch(
        statement, statement.target, statement.subscripts, True, all(is_quasi_affine(s) for s in statement.subscripts)
    )
    for read in dict.fromkeys(statement.reads()):
        exact = read.pad is None or read.pad.mode == "constant"
        yield Touch(statement, read.tensor, read.subscripts, False, exact)


def alone(subscript: Expr) -> tuple[str, int] | None:
    """Return (index, offset) of a subscript that is an index plus a constant."""
    parts = coefficients(subscript) if is_quasi_affine(subscript) else None
    if parts is None:
        return None
    names = [n for n, factor in parts.items() if n and factor]
    return (names[0], parts.get("", 0)) if len(names) == 1 and parts[names[0]] == 1 else None
