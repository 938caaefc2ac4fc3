"""Eliminate dead statements, whose values reach no output, and the temporaries that nothing else uses.

A statement that gathers is kept: an index out of bounds is an error whether or not the value is used.
"""

from __future__ import annotations

from polyker.ir.expr import reads_in
from polyker.ir.typed import Role, TypedLoop, TypedNode, TypedProgram, TypedStatement
from polyker.structs import replace


def drop_dead(program: TypedProgram) -> TypedProgram:
    """Return the program without the statements whose targets no output depends on; after coverage was checked."""
    statements = list(program.statements())
    live = set(program.outputs) | {s.target for s in statements if _gathers(s)}
    reads: dict[str, set[str]] = {}
    for s in statements:
        reads.setdefault(s.target, set()).update(r.tensor for r in s.reads())
    waiting = list(live)
    while waiting:
        more = reads.get(waiting.pop(), set()) - live
        live |= more
        waiting += more
    if all(s.target in live for s in statements):
        return program
    tensors = tuple(t for t in program.tensors if t.role != Role.TEMPORARY or t.name in live)
    return replace(program, tensors=tensors, body=_kept(program.body, live))


def _gathers(statement: TypedStatement) -> bool:
    subscripts = [s for r in reads_in(statement.expr) for s in r.subscripts] + list(statement.subscripts)
    return any(reads_in(*subscripts))


def _kept(body: tuple[TypedNode, ...], live: set[str]) -> tuple[TypedNode, ...]:
    nodes: list[TypedNode] = []
    for node in body:
        if isinstance(node, TypedLoop):
            inner = _kept(node.body, live)
            if inner:
                nodes.append(replace(node, body=inner))
        elif node.target in live:
            nodes.append(node)
    return tuple(nodes)
