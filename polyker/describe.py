"""What an operator says of itself before any shape is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polyker.errors.base import escape
from polyker.ir.expr import Expr, Index, Range, Read, Reduce, Size, walk
from polyker.ir.program import Loop, Node, Program, Statement


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
    ranges = [text for node in program.body for text in _ranges(node)]
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
    from polyker.ir.expr import Dots

    for statement in program.statements():
        subscripts = [statement.subscripts] if statement.target == name else []
        subscripts += [r.subscripts for r in statement.reads() if r.tensor == name]
        for found in subscripts:
            return None if any(isinstance(s, Dots) for s in found) else len(found)
    return 0


def _ranges(node: Node) -> Iterator[str]:
    """Yield a line for each index: the range given, or the dimensions that it ranges over."""
    if isinstance(node, Loop):
        yield _given(node.range)
        for inner in node.body:
            yield from _ranges(inner)
        return
    yield from _of(node, node.ranges, (*node.subscripts, node.expr, *node.conditions))


def _of(statement: Statement, given: tuple[Range, ...], parts: tuple[Expr, ...]) -> Iterator[str]:
    known = [r for r in given if r.lo is not None]
    yield from map(_given, known)
    dimensions: dict[str, list[str]] = {}
    for part in parts:
        for expr in walk(part):
            if isinstance(expr, Reduce):
                known += [r for r in expr.ranges if r.lo is not None]
                yield from (_given(r) for r in expr.ranges if r.lo is not None)
            if isinstance(expr, Read):
                for d, subscript in enumerate(expr.subscripts):
                    if isinstance(subscript, Index):
                        dimensions.setdefault(subscript.name, []).append(f"{escape(expr.tensor)}.shape[{d}]")
    fixed = {r.index for r in known}
    for name, found in dimensions.items():
        if name not in fixed:
            yield f"{escape(name)} in 0:{' = '.join(dict.fromkeys(found))}"


def _given(r: Range) -> str:
    from polyker.ir.printing import print_expr

    def bound(e: Expr | None) -> str:
        return "?" if e is None else escape(e.name if isinstance(e, Size) else print_expr(e))

    return f"{escape(r.index)} in {bound(r.lo)}:{bound(r.hi)}"
