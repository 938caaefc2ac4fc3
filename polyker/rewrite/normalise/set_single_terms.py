"""Turn reductions with one term an element into assignments: `C[i,j] += A[i] * B[j]` is `C[i,j] = 0 + A[i] * B[j]`."""

from __future__ import annotations

from dataclasses import replace

from polyker.ir.expr import Call
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement
from polyker.poly.scop import elements_written
from polyker.rewrite.core.accumulate import starts_fresh


def set_single_terms(program: TypedProgram) -> TypedProgram:
    """Return the program with such reductions as statements that set their elements; after `start_reductions`."""
    body = list[TypedNode]()
    for node in program.body:
        before = body[-1] if body else None
        if (
            isinstance(node, TypedStatement)
            and isinstance(before, TypedStatement)
            and node.op != "set"
            and not node.reduced
            and starts_fresh(program, before, node)
        ):
            # Zero stays: what is added to it has no negative zero.
            sums = node.op == "add" and node.acc.kind in "fc"
            value = Call("add", (replace(before.expr, dtype=node.acc), node.expr), node.acc) if sums else node.expr
            if elements_written(program, before).is_subset(elements_written(program, node)):
                body.pop()
            node = replace(node, op="set", expr=value, defines=None)
        body.append(node)
    return replace(program, body=tuple(body))
