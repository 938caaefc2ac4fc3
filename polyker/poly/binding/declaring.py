"""Declarations that a message suggests: a program with a header in which the extent of an argument is a size of the program."""

from __future__ import annotations

from collections.abc import Iterator

from polyker.errors.base import Span
from polyker.ir.expr import Call, Dots, Expr, IndexExpr, Literal, Range, Read, Reduce, SizeExpr, replace_parts, walk
from polyker.ir.program import Declared, Loop, Node, Program, Statement
from polyker.structs import replace

_NAMES = ("N", "M", "K", "L", "P", "Q", "R", "S", "T", "U", "V", "W")  # of sizes that the text does not name
_MOST_CHARACTERS, _MOST_LINES = 240, 8  # of a program that is shown whole


def size_from_extent(program: Program, name: str) -> str | None:
    """Return a text in which a size, or a number read under its name, is the extent of an input; None where none is alike.

    The extent is that of a dimension whose index `name` bounds, whose subscript names it, or over which a quotient by it sums.
    """
    found = sorted(_dimensions(program, name), key=lambda d: d[0])
    return next((shown(made) for _, tensor, d in found if (made := _declared(program, tensor, d, name))), None)


def from_the_end(program: Program, span: Span | None) -> str | None:
    """Return a text in which the subscript at a place counts from the end of its dimension, None where that cannot be said."""
    for statement in program.statements():
        for read in statement.reads():
            for d, subscript in enumerate(read.subscripts):
                if span is not None and subscript.span == span:
                    return _counted(program, read, d)
    return None


def descending(program: Program, span: Span | None) -> tuple[Read, str | None] | None:
    """Return a statement's first read whose subscript falls as an index grows, with a text that counts from its end."""
    for read in (r for s in program.statements() if s.span == span for r in s.reads()):
        for d, subscript in enumerate(read.subscripts):
            terms = _terms(subscript)
            falls = any(isinstance(t, Call) and t.op == "neg" and isinstance(t.args[0], IndexExpr) for t in terms)
            if falls and not any(isinstance(t, (IndexExpr, SizeExpr)) for t in terms):
                # As `X[-1-i]`, the last element first, where no constant says otherwise.
                last = () if any(not _indices(t) for t in terms) else (Call("neg", (Literal(1),)),)
                return read, _counted(program, read, d, last)
    return None


def rank_of(program: Program, tensor: str) -> int:
    """Return the number of subscripts of an input, 0 where it has none or is not read."""
    return next((len(r.subscripts) for s in program.statements() for r in s.reads() if r.tensor == tensor), 0)


def shown(program: Program) -> str:
    """Return a program for a hint: whole where it is short, else its first line."""
    text = str(program)
    return text if len(text) <= _MOST_CHARACTERS and text.count("\n") < _MOST_LINES else text.partition("\n")[0]


def _terms(expr: Expr) -> tuple[Expr, ...]:
    return expr.args if isinstance(expr, Call) and expr.op == "add" else (expr,)


def _counted(program: Program, read: Read, d: int, last: tuple[Expr, ...] = ()) -> str | None:
    known = program.declaration(read.tensor)
    shape = None if known is None else known.shape
    extent = shape[d] if shape is not None and d < len(shape) else None
    name = extent.name if isinstance(extent, SizeExpr) else next(_fresh(program))
    if shape is not None and not isinstance(extent, SizeExpr):
        return None
    below = Call("add", (SizeExpr(name), *last, *_terms(read.subscripts[d])))
    new = replace(read, subscripts=(*read.subscripts[:d], below, *read.subscripts[d + 1 :]))
    moved = replace(program, body=_replaced(program.body, read, new))
    declared = moved if shape is not None else _declared(moved, read.tensor, d, name)
    return None if declared is None else shown(declared)


def _replaced(body: tuple[Node, ...], read: Read, new: Read) -> tuple[Node, ...]:
    def changed(expr: Expr) -> Expr:
        return replace_parts(expr, lambda e: new if e == read else None)

    return tuple(
        replace(node, body=_replaced(node.body, read, new))
        if isinstance(node, Loop)
        else replace(node, expr=changed(node.expr), subscripts=tuple(map(changed, node.subscripts)))
        for node in body
    )


def _declared(program: Program, tensor: str, d: int, name: str) -> Program | None:
    """Return the program with a header in which a dimension of an input has a name; None where the text declares its shape."""
    known = program.declaration(tensor)
    rank = rank_of(program, tensor)
    if tensor not in program.inputs or (known is not None and known.shape is not None):
        return None
    fresh = (n for n in _fresh(program) if n != name)
    shape = tuple(SizeExpr(name if k == d else next(fresh)) for k in range(rank))
    types = (
        Declared(tensor, None if known is None else known.dtype, shape),
        *(t for t in program.types if t is not known),
    )
    parameters = tuple(p for p in program.parameters if p != name)
    return replace(program, name=program.name or "f", declared=True, parameters=parameters, types=types)


def _fresh(program: Program) -> Iterator[str]:
    """Yield names that a program has not."""
    taken = {*program.inputs, *program.outputs, *program.temporaries, *program.sizes}
    for expr in (e for s in program.statements() for part in (s.expr, *s.subscripts) for e in walk(part)):
        taken |= {expr.name} if isinstance(expr, IndexExpr) else set()
    yield from (n for n in _NAMES if n not in taken)
    yield from (n for k in range(len(taken) + 8) if (n := f"N{k}") not in taken)


# Where the extent that a size stands for is found.


def _dimensions(program: Program, name: str) -> Iterator[tuple[int, str, int]]:
    """Yield (how far-fetched it is, tensor, dimension) of the inputs' dimensions that a name may be the extent of."""
    for node, loops in _placed(program.body, ()):
        reductions = [e for part in (node.expr, *node.conditions) for e in walk(part) if isinstance(e, Reduce)]
        ranges = (*loops, *node.ranges, *(r for e in reductions for r in e.ranges))
        exact = {r.index for r in ranges if isinstance(r.hi, SizeExpr) and r.hi.name == name}
        near = {r.index for r in ranges for b in (r.lo, r.hi) if b is not None and name in _sizes(b)}
        conditions = (*node.conditions, *(c for e in reductions for c in e.conditions))
        near |= {i for c in conditions if name in _sizes(c) for i in _indices(c)}
        summed = _summed(node, reductions) if _is_count(node, name) else set()
        for read in node.reads():
            if read.tensor not in program.inputs or any(isinstance(s, Dots) for s in read.subscripts):
                continue
            for d, subscript in enumerate(read.subscripts):
                if any(isinstance(e, Read) for e in walk(subscript)):
                    continue  # what a gather takes says nothing of its own extent
                bare = subscript.name if isinstance(subscript, IndexExpr) else None
                if bare in exact or bare in summed:
                    yield 0, read.tensor, d
                elif name in _sizes(subscript) or _indices(subscript) & near:
                    yield 1 + (read.pad is not None), read.tensor, d


def _placed(body: tuple[Node, ...], loops: tuple[Range, ...]) -> Iterator[tuple[Statement, tuple[Range, ...]]]:
    for node in body:
        if isinstance(node, Loop):
            yield from _placed(node.body, (*loops, node.range))
        else:
            yield node, loops


def _sizes(expr: Expr) -> set[str]:
    return {e.name for e in walk(expr) if isinstance(e, SizeExpr)}


def _indices(expr: Expr) -> set[str]:
    return {e.name for e in walk(expr) if isinstance(e, IndexExpr)}


def _summed(node: Statement, reductions: list[Reduce]) -> set[str]:
    """Return the indices that a statement reduces over, those of inline reductions too."""
    inline = {r.index for e in reductions for r in e.ranges}
    if node.op == "set":
        return inline
    return inline | (_indices(node.expr) - {i for s in node.subscripts for i in _indices(s)})


def _is_count(node: Statement, name: str) -> bool:
    """Whether a number is called as sizes are, or divides what is summed."""
    number = Read(name, ())
    if not any(e == number for e in walk(node.expr)):
        return False
    divides = (e.args[1:] for e in walk(node.expr) if isinstance(e, Call) and e.op == "div")
    return name.isupper() or any(number == part for args in divides for part in args)
