"""Split a statement's domain where a wrapped, clamped or reflected subscript stops being affine.

Before: `O[i] = X[i+7; pad=wrap]` of 100 elements. After: `O[i] = X[i+7]` for i < 93 and `O[i] = X[i-93]` for the others; in the
same way `X[(i+7) % 100]`, `pad=edge` and `pad=reflect`. Affine reads are whole vectors where the others are gathers. What is
left of a domain beside the large parts is few elements, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from msgspec import Struct

from polyker.ir.expr import Call, Expr, Literal, Read, reads_in, transform, walk
from polyker.ir.quasi_affine import add, is_quasi_affine, lit, print_affine, scale, subtract
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement, replaced
from polyker.poly.boxes import ends
from polyker.poly.isl import Map, Set, dim, read_map, read_set, union_of
from polyker.poly.scop import domain_text, parameters
from polyker.poly.symbolic import expected
from polyker.rewrite.core.fresh import Fresh
from polyker.structs import replace

# Most parts of one subscript, and of one statement (bound the code); least share of all instances of a domain that is split
# further (experience value).
MAX_SUBSCRIPT_PARTS, MAX_STATEMENT_PARTS, MIN_SPLIT_SHARE = 3, 9, 1 / 16


class _Piece(Struct, frozen=True):
    """Where a subscript `e` is affine: from `low` to `high` (None: without an end) it is `sign * e + shift`."""

    low: Expr | None
    high: Expr | None
    sign: int
    shift: Expr


class _Bent(Struct, frozen=True):
    """A subscript that is affine by pieces: what is taken modulo a number, or a dimension of a padded read."""

    node: Expr
    dimension: int | None
    subscript: Expr
    pieces: tuple[_Piece, ...]

    def straight(self, piece: _Piece) -> Expr:
        """Return the node as it is where the subscript lies in a piece."""
        straight = add(scale(piece.sign, self.subscript), piece.shift)
        if not isinstance(self.node, Read):
            return straight
        subscripts = (straight if d == self.dimension else s for d, s in enumerate(self.node.subscripts))
        return replace(self.node, subscripts=tuple(subscripts))

    def on(self, piece: _Piece, expr: Expr) -> Expr:
        """Return an expression as it is where the subscript lies in a piece."""
        straight = self.straight(piece)
        return transform(expr, lambda node: straight if node == self.node else node)


def affine_parts(program: TypedProgram) -> TypedProgram:
    """Return the program with each statement that only sets elements in parts where what it reads is affine."""
    fresh = Fresh(program)

    def change(statement: TypedStatement) -> Iterable[TypedNode]:
        return parts_of(program, fresh, statement)

    return fresh.finish(replaced(program.body, change))


def parts_of(program: TypedProgram, fresh: Fresh, statement: TypedStatement) -> list[TypedStatement]:
    """Return the statements that stand for one; itself where nothing is gained."""
    bends = any(_may_bend(e) for e in walk(statement.expr))
    if not bends or statement.op != "set" or statement.is_ordered:
        return [statement]
    context = read_set(program.context)
    domain = read_set(statement.domain).reset_tuple_id().intersect_params(context)
    least, found = MIN_SPLIT_SHARE * _points(program, domain), list[tuple[Set, Expr]]()
    # What is straight already may still seem to leave its tensor: where that is empty, for a size that no call comes with.
    left: list[tuple[Set, Expr, frozenset[tuple[Expr, int | None]]]] = [(domain, statement.expr, frozenset())]
    while left:
        domain, expr, done = left.pop(0)
        large = _points(program, domain) >= least and len(found) + len(left) < MAX_STATEMENT_PARTS
        bent = next(_bent(program, statement, expr, domain, done), None) if large else None
        if bent is None:
            found.append((domain, without_padding(program, statement, expr, domain)))
            continue
        elements = _elements(program, statement, bent.subscript)
        for piece in bent.pieces:
            part = domain.intersect(elements.intersect_range(_interval(program, piece)).domain())
            if not part.is_empty():
                straight = bent.straight(piece), bent.dimension
                left.append((part.coalesce(), bent.on(piece, expr), done | {straight}))
    names = [statement.name, *(fresh.statement() for _ in found[1:])]
    return [
        replace(statement, name=name, domain=domain_text(part.gist_params(context), name), expr=expr)
        for name, (part, expr) in zip(names, found, strict=True)
    ]


def _may_bend(expr: Expr) -> bool:
    return (isinstance(expr, Read) and expr.pad is not None and expr.pad.mode != "constant") or (
        isinstance(expr, Call) and expr.op == "mod"
    )


def _elements(program: TypedProgram, statement: TypedStatement, subscript: Expr) -> Map:
    return read_map(f"{parameters(program)}{{ [{', '.join(statement.iterators)}] -> [{print_affine(subscript)}] }}")


def _interval(program: TypedProgram, piece: _Piece) -> Set:
    """Return the values of a piece's subscript as a set."""
    low = [] if piece.low is None else [f"{print_affine(piece.low)} <= e"]
    high = [] if piece.high is None else [f"e <= {print_affine(piece.high)}"]
    return read_set(f"{parameters(program)}{{ [e] : {' and '.join(low + high)} }}")


def _points(program: TypedProgram, domain: Set) -> int:
    """Return how many points the box around a domain has at the expected sizes; 0 where there are none, or it has no end."""
    domain = expected(program, domain)
    found = [ends(domain, d) for d in range(domain.dim(dim.set))]
    return prod(0 if e is None else e[1] - e[0] + 1 for e in found)


def _bent(
    program: TypedProgram, statement: TypedStatement, expr: Expr, domain: Set, done: frozenset[tuple[Expr, int | None]]
) -> Iterator[_Bent]:
    """Yield what is not affine on a domain, and is on a few parts of it; not the dimensions of reads that are `done`."""
    for read in reads_in(expr):
        for d, subscript in enumerate(read.subscripts):
            if not is_quasi_affine(subscript):
                continue
            for node in walk(subscript):
                match node:
                    case Call(op="mod", args=(inner, Literal() as size)) if not isinstance(inner, Literal):
                        reach = domain.apply(_elements(program, statement, inner))
                        pieces = pieces_of(program, "wrap", reach, size)
                        if pieces:
                            yield _Bent(node, None, inner, pieces)
            if read.pad is None or (read, d) in done:
                continue
            extent = program.tensor(read.tensor).shape[d]
            reach = domain.apply(_elements(program, statement, subscript))
            if not reach.is_subset(_inner(program, extent)):
                pieces = pieces_of(program, read.pad.mode, reach, extent)
                if pieces:
                    yield _Bent(read, d, subscript, pieces)


def _inner(program: TypedProgram, extent: Expr) -> Set:
    """Return the subscripts of a dimension that lie in the tensor."""
    return _interval(program, _Piece(lit(0), subtract(extent, lit(1)), 1, lit(0)))


def pieces_of(program: TypedProgram, mode: str, reach: Set, size: Expr) -> tuple[_Piece, ...] | None:
    """Return where the subscripts `reach` are affine, None where that is too often, or not known of all sizes."""
    last, found = subtract(size, lit(1)), list[_Piece]()
    match mode:
        case "edge":
            found = [_Piece(None, lit(-1), 0, lit(0)), _Piece(lit(0), last, 1, lit(0)), _Piece(size, None, 0, last)]
        case "wrap":
            for wrap in _wraps(reach, size):
                shift = scale(wrap, size)
                found.append(_Piece(shift, add(shift, last), 1, scale(-1, shift)))
        case "reflect":
            # An even wrap has both of its ends.
            for wrap in _wraps(reach, last):
                odd, here = wrap % 2, scale(wrap, last)
                low, high = add(here, lit(odd)), add(here, last, lit(-odd))
                found.append(_Piece(low, high, -1 if odd else 1, add(here, last) if odd else scale(-1, here)))
    sets = [(p, _interval(program, p)) for p in found]
    used = [(p, s) for p, s in sets if not s.is_disjoint(reach)]
    if not used or len(used) > MAX_SUBSCRIPT_PARTS:
        return None
    return tuple(p for p, _ in used) if reach.is_subset(union_of(s for _, s in used)) else None


def _wraps(reach: Set, period: Expr) -> range:
    """Return the multiples of a period for subscripts: a few more than `MAX_SUBSCRIPT_PARTS`; of a symbol, near 0."""
    if not isinstance(period, Literal):
        return range(-1, 2)
    found, length = ends(reach, 0), int(period.value.real)
    return (
        range(0)
        if found is None or length < 1
        else range(found[0] // length - 1, found[1] // length + 1)[: MAX_SUBSCRIPT_PARTS + 2]
    )


def without_padding(program: TypedProgram, statement: TypedStatement, expr: Expr, domain: Set) -> Expr:
    """Return an expression without padding where no read of instances in `domain`, a set without a name, leaves its tensor."""

    def change(node: Expr) -> Expr:
        if not isinstance(node, Read) or node.pad is None or not all(map(is_quasi_affine, node.subscripts)):
            return node
        for extent, subscript in zip(program.tensor(node.tensor).shape, node.subscripts, strict=True):
            if not domain.apply(_elements(program, statement, subscript)).is_subset(_inner(program, extent)):
                return node
        return replace(node, pad=None)

    return transform(expr, change)
