"""numpy's einsum subscripts: scanned by hand, checked against shapes, translated to a Program.

Where the notation and numpy differ numpy rules: extents of 1 broadcast, a repeated label is a diagonal, labels that
stand once are kept, sums of bool are `any`, and every operand is converted to one type first.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from polyker.errors.base import failure
from polyker.errors.calls import (
    EINSUM_ARGUMENT,
    EINSUM_BROADCAST,
    EINSUM_EXTENT,
    EINSUM_LIMIT,
    EINSUM_OPERANDS,
    EINSUM_RANK,
    EINSUM_SYNTAX,
)
from polyker.errors.given import integer, listed
from polyker.ir.dtypes import DType
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read
from polyker.ir.program import Program, Statement

SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
MAX_TEXT = 1 << 16
MAX_OPERANDS = 64
DOTS = "..."

Term = tuple[str, ...]  # labels, and DOTS where the ellipsis stands


class Subscripts(Struct, frozen=True):
    """What the subscripts say: the labels of each operand, and of the output (None if it is implicit)."""

    terms: tuple[Term, ...]
    output: Term | None


def scan(text: str, *, on_path: bool = False) -> Subscripts:
    """Read subscripts such as "ij,jk->ik". Raises ParseError.

    `on_path`: as numpy reads them where it looks for a path, with spaces inside of `...` and `->`, too.
    """
    if len(text) > MAX_TEXT:
        raise failure(EINSUM_LIMIT, what="the subscripts have a length of", count=len(text), limit=MAX_TEXT)
    if on_path:
        text = text.replace(" ", "")
    left, arrow, right = text.partition("->")
    if "-" in left + right or ">" in left + right:
        raise failure(EINSUM_SYNTAX, problem="the subscripts do not have one proper '->'")
    if left.count(",") >= MAX_OPERANDS:
        raise failure(EINSUM_LIMIT, what="the number of operands is", count=left.count(",") + 1, limit=MAX_OPERANDS)
    terms = tuple(_term(part, f"operand {k}") for k, part in enumerate(left.split(",")))
    return _checked(terms, _term(right, "the output") if arrow else None)


def _term(text: str, where: str) -> Term:
    labels: list[str] = []
    position = 0
    while position < len(text):
        symbol = text[position]
        if symbol == ".":
            if text[position : position + 3] != DOTS or DOTS in labels:
                problem = f"a '.' in {where} is not part of the one ellipsis ('...')"
                raise failure(EINSUM_SYNTAX, problem=problem)
            labels.append(DOTS)
            position += 2
        elif symbol.isalpha():
            labels.append(symbol)
        elif symbol != " ":
            problem = f"invalid subscript '{symbol}' in {where}, subscripts must be letters"
            raise failure(EINSUM_SYNTAX, problem=problem)
        position += 1
    return tuple(labels)


def from_lists(lists: Sequence[object], output: object = None, *, on_path: bool = False) -> Subscripts:
    """Read the interleaved form's lists of integers and Ellipsis; `output` is None if it is implicit.

    `on_path`: as numpy reads them where it looks for a path, where numbers below zero count from the last label on.
    """
    if len(lists) > MAX_OPERANDS:
        raise failure(EINSUM_LIMIT, what="the number of operands is", count=len(lists), limit=MAX_OPERANDS)
    least = -len(SYMBOLS) if on_path else 0
    terms = tuple(_list(item, f"operand {k}", least) for k, item in enumerate(lists))
    return _checked(terms, None if output is None else _list(output, "the output", least))


def _list(item: object, where: str, least: int) -> Term:
    entries = None if isinstance(item, (str, bytes)) else listed(item, MAX_TEXT)
    if entries is None:
        raise failure(EINSUM_ARGUMENT, problem=f"the subscripts of {where} must be a list or a tuple")
    labels: list[str] = []
    for entry in entries:
        if entry is Ellipsis:
            if DOTS in labels:
                raise failure(EINSUM_SYNTAX, problem=f"{where} has more than one ellipsis")
            labels.append(DOTS)
            continue
        if len(labels) > len(SYMBOLS) + 64:
            raise failure(EINSUM_LIMIT, what=f"{where} has more subscripts than", count=len(labels), limit=64)
        number = int(entry) if isinstance(entry, bool) else integer(entry)
        if number is None:
            problem = (
                f"each subscript must be either an integer or an ellipsis, and {where} has a {type(entry).__name__}"
            )
            raise failure(EINSUM_ARGUMENT, problem=problem)
        if not least <= number < len(SYMBOLS):
            problem = f"a subscript of {where} is not within the range [{least}, {len(SYMBOLS)})"
            raise failure(EINSUM_ARGUMENT, problem=problem)
        labels.append(SYMBOLS[number])
    return tuple(labels)


def _checked(terms: tuple[Term, ...], output: Term | None) -> Subscripts:
    if output is not None:
        given = {label for term in terms for label in term} | {DOTS}
        for k, label in enumerate(output):
            if label in output[:k]:
                raise failure(EINSUM_SYNTAX, problem=f"the output has the subscript '{label}' multiple times")
            if label not in given:
                problem = f"the output has the subscript '{label}', which never appeared in an input"
                raise failure(EINSUM_SYNTAX, problem=problem)
    return Subscripts(terms, output)


class EinsumContraction(Struct, frozen=True):
    """Subscripts for operands of known shapes: one label a dimension, and the extent of each label.

    The dimensions of `...` are labelled ".0", ".1" and so on from the last one forwards.
    """

    terms: tuple[Term, ...]
    output: Term
    extents: tuple[tuple[str, int], ...]

    def shape(self, labels: Term) -> tuple[int, ...]:
        """Return the extents of labels."""
        extents = dict(self.extents)
        return tuple(extents[label] for label in labels)

    def text(self) -> str:
        """Return the subscripts as numpy writes them, each label as a letter of its own."""
        symbols = {label: SYMBOLS[k] for k, (label, _) in enumerate(self.extents)}
        terms = ",".join("".join(symbols[label] for label in term) for term in self.terms)
        return terms + "->" + "".join(symbols[label] for label in self.output)


def fit(subscripts: Subscripts, shapes: Sequence[tuple[int, ...]], *, on_path: bool = False) -> EinsumContraction:
    """Check subscripts against shapes and spell out `...`. Raises ArgumentError, ParseError or ShapeError.

    `on_path`: the dimensions of `...` are summed where the output has none, as numpy does where it looks for a path.
    """
    if len(subscripts.terms) != len(shapes):
        raise failure(EINSUM_OPERANDS, terms=len(subscripts.terms), operands=len(shapes))
    terms = tuple(
        _spelled(term, len(shape), k) for k, (term, shape) in enumerate(zip(subscripts.terms, shapes, strict=True))
    )
    spans = zip(subscripts.terms, shapes, strict=True)
    dots = max((len(shape) - len(term) + 1 for term, shape in spans if DOTS in term), default=0)
    broadcast = tuple(f".{k}" for k in reversed(range(dots)))
    if subscripts.output is None:
        count: dict[str, int] = {}
        for term in terms:
            for label in term:
                count[label] = count.get(label, 0) + 1
        output = broadcast + tuple(sorted(label for label, n in count.items() if n == 1 and label[0] != "."))
    else:
        if dots and DOTS not in subscripts.output and not on_path:
            raise failure(EINSUM_SYNTAX, problem="the operands have dimensions for `...`, and the output has no '...'")
        at = subscripts.output.index(DOTS) if DOTS in subscripts.output else 0
        output = subscripts.output
        if DOTS in output:
            output = output[:at] + broadcast + output[at + 1 :]
    return EinsumContraction(terms, output, tuple(_extents(terms, shapes).items()))


def _spelled(term: Term, ndim: int, operand: int) -> Term:
    """Return the term with `...` replaced by labels for the dimensions that it stands for."""
    named = len(term) - (DOTS in term)
    if named > ndim or (named < ndim and DOTS not in term):
        shown = "".join(term)
        raise failure(EINSUM_RANK, operand=operand, ndim=ndim, term=shown, count=named)
    if DOTS not in term:
        return term
    at = term.index(DOTS)
    return term[:at] + tuple(f".{k}" for k in reversed(range(ndim - named))) + term[at + 1 :]


def _dotted(terms: tuple[Term, ...], shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the extents of each operand that `...` stands for."""
    return [
        tuple(n for label, n in zip(term, shape, strict=True) if label[0] == ".")
        for term, shape in zip(terms, shapes, strict=True)
        if any(label[0] == "." for label in term)
    ]


def _extents(terms: tuple[Term, ...], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    extents: dict[str, int] = {}
    for k, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        own: dict[str, int] = {}
        for d, (label, extent) in enumerate(zip(term, shape, strict=True)):
            other = own.setdefault(label, extent)
            if other == extent:
                other = extents.setdefault(label, extent)
                if other == 1 or extent == 1:
                    extents[label] = extent if other == 1 else other
                    continue
            if other != extent:
                if label[0] == ".":
                    raise failure(EINSUM_BROADCAST, shapes=", ".join(map(str, _dotted(terms, shapes))))
                raise failure(EINSUM_EXTENT, dimension=d, operand=k, label=label, extent=extent, other=other)
    return extents


def program(
    contraction: EinsumContraction,
    shapes: Sequence[tuple[int, ...]],
    casts: Sequence[DType | None],
    boolean: bool,
) -> Program:
    """Return the Program of a contraction: one statement over operands T0, T1, and so on, into O.

    An operand whose extent of a label is 1 where others have more is read at 0. `casts`: the type each operand is
    converted to, or None. `boolean`: all is bool, so products are `and` and sums `any`.
    """
    extents = dict(contraction.extents)
    order = dict.fromkeys((*contraction.output, *extents))
    names = {label: f"i{k}" for k, label in enumerate(order)}
    factors: list[Expr] = []
    for k, (term, shape, cast) in enumerate(zip(contraction.terms, shapes, casts, strict=True)):
        subscripts: tuple[Expr, ...] = tuple(
            IndexExpr(names[label]) if extent == extents[label] else Literal(0)
            for label, extent in zip(term, shape, strict=True)
        )
        read = Read(f"T{k}", subscripts)
        factors.append(read if cast is None else Cast(cast, read))
    reduced = len(order) > len(contraction.output)
    product = factors[0] if len(factors) == 1 else Call("and" if boolean else "mul", tuple(factors))
    update = ("any" if boolean else "add") if reduced else "set"
    statement = Statement("O", tuple(IndexExpr(names[label]) for label in contraction.output), update, product)
    inputs = tuple(f"T{k}" for k in range(len(shapes)))
    return Program(
        name=None,
        declared=False,
        inputs=inputs,
        outputs=("O",),
        temporaries=(),
        parameters=inputs,
        sizes=(),
        body=(statement,),
    )
