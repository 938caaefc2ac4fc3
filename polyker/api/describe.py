"""What an operator says of itself before any shape is known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from polyker.api.stages import inferred_ranges
from polyker.errors.base import PolykerError, escape
from polyker.ir.dtypes import TensorType, f32
from polyker.ir.expr import Dots, Expr, IndexExpr, Range, Read, Reduce, SizeExpr, walk
from polyker.ir.program import Loop, Node, Program
from polyker.options import options

if TYPE_CHECKING:  # islpy comes with it
    from polyker.poly.binding.ranges_text import RangeText


def describe(program: Program, fixed: Mapping[str, int]) -> str:
    """Return the program with its inputs in order, outputs, sizes and ranges, safe for a terminal."""
    lines = [escape(line, 2000) for line in str(program).splitlines()]
    lines.append("inputs:  " + (", ".join(_tensor(program, n) for n in program.inputs) or "none"))
    lines.append("outputs: " + ", ".join(_tensor(program, n) for n in program.outputs))
    if program.temporaries:
        lines.append("temporaries: " + ", ".join(_tensor(program, n) for n in program.temporaries))
    if program.sizes:
        shown = (f"{escape(n)} = {fixed[n]}" if n in fixed else escape(n) for n in program.sizes)
        lines.append("sizes:   " + ", ".join(shown))
    inferred = iter(_inferred(program, fixed))
    ranges = [text for node in program.body for text in _ranges(node, inferred)]
    if ranges:
        lines.append("ranges:  " + "\n         ".join(dict.fromkeys(ranges)))
    return "\n".join(lines)


def _tensor(program: Program, name: str) -> str:
    """Return `A: f32[N, M]` as far as it is known: the type is `any` and an extent `?` where it is not declared."""
    from polyker.ir.printing import print_expr

    declared = program.declaration(name)
    dtype = declared.dtype.name if declared is not None and declared.dtype is not None else "any"
    if declared is not None and declared.shape is not None:
        dims = [escape(print_expr(e)) for e in declared.shape]
    else:
        dims = ["..."] if _rank(program, name) is None else ["?"] * (_rank(program, name) or 0)
    return f"{escape(name)}: {dtype}[{', '.join(dims)}]"


def _rank(program: Program, name: str) -> int | None:
    found = _subscripts(program, name)
    return None if any(isinstance(s, Dots) for s in found) else len(found)


def _subscripts(program: Program, name: str) -> tuple[Expr, ...]:
    """Return the subscripts of the first access to a tensor."""
    for statement in program.statements():
        if statement.target == name:
            return statement.subscripts
        for read in statement.reads():
            if read.tensor == name:
                return read.subscripts
    return ()


def _dimensions(subscripts: Sequence[Expr]) -> list[int]:
    """Return the dimension of each subscript as Python counts them, from the end behind `...`; `...` itself has none."""
    at = next((d for d, s in enumerate(subscripts) if isinstance(s, Dots)), len(subscripts))
    return [*range(at), *range(at + 1 - len(subscripts), 0)]


def _inferred(program: Program, fixed: Mapping[str, int]) -> list[list[str] | None]:
    """Return a line for each inferred index of each statement; None where they cannot be told yet."""
    sizes: dict[str, int | str] = {name: fixed.get(name, name) for name in program.sizes}
    try:
        types = {name: _assumed(program, name) for name in program.inputs}
        found = inferred_ranges(program, types, sizes, options.current)
    except PolykerError:  # an index is open, or a size has to be fixed first
        return [None for _ in program.statements()]

    def line(r: RangeText) -> str:
        dimensions = ((t, _dimensions(_subscripts(program, t))[d]) for t, d in r.dimensions)
        return _over(r.index, dimensions) if r.dimensions else escape(r.text)

    return [[line(r) for r in texts] for texts in found]


def _over(index: str, dimensions: Iterable[tuple[str, int]]) -> str:
    """Return the range of an index that is the extent of dimensions, all equal."""
    return f"{escape(index)} in 0:{' = '.join(f'{escape(t)}.shape[{d}]' for t, d in dimensions)}"


def _assumed(program: Program, name: str) -> TensorType:
    """Return a type for an input: its declared extents, or those that its shape will have without `...`; any elements."""
    declared = program.declaration(name)
    dtype = declared.dtype if declared is not None and declared.dtype is not None else f32
    shape = declared.shape if declared is not None else None
    dims = _dimensions(_subscripts(program, name)) if shape is None else list(range(len(shape)))
    extents = [None] * len(dims) if shape is None else shape
    named = (e.name if isinstance(e, SizeExpr) else f"{name}.shape[{d}]" for d, e in zip(dims, extents, strict=True))
    return TensorType(dtype, tuple(named))


def _ranges(node: Node, inferred: Iterator[list[str] | None]) -> Iterator[str]:
    """Yield a line for each index: the range given, or what bounds it."""
    if isinstance(node, Loop):
        yield _given(node.range)
        for inner in node.body:
            yield from _ranges(inner, inferred)
        return
    reads = [e for part in (*node.subscripts, node.expr, *node.conditions) for e in walk(part)]
    given = [
        r for r in (*node.ranges, *(r for e in reads if isinstance(e, Reduce) for r in e.ranges)) if r.lo is not None
    ]
    yield from map(_given, given)
    lines = next(inferred)
    yield from _by_text(reads, {r.index for r in given}) if lines is None else lines


def _by_text(reads: Iterable[Expr], given: Collection[str]) -> Iterator[str]:
    """Yield the dimensions that each index stands alone in."""
    dimensions: dict[str, dict[tuple[str, int], None]] = {}
    for e in reads:
        if not isinstance(e, Read):
            continue
        plain = [s for s in e.subscripts if not isinstance(s, Dots)]
        for d, subscript in zip(_dimensions(e.subscripts), plain, strict=True):
            if isinstance(subscript, IndexExpr) and subscript.name not in given:
                dimensions.setdefault(subscript.name, {})[e.tensor, d] = None
    for index, found in dimensions.items():
        yield _over(index, found)


def _given(r: Range) -> str:
    from polyker.ir.printing import print_expr

    def bound(e: Expr | None) -> str:
        return "?" if e is None else escape(e.name if isinstance(e, SizeExpr) else print_expr(e))

    return f"{escape(r.index)} in {bound(r.lo)}:{bound(r.hi)}"
