"""Turn reductions with one term an element into assignments: `C[i,j] += A[i] * B[j]` is `C[i,j] = 0 + A[i] * B[j]`."""

from __future__ import annotations

from polyker.ir.expr import Call
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.scop import elements_written
from polyker.rewrite.core.accumulate import starts_fresh
from polyker.rewrite.core.reindex import replaced_after
from polyker.structs import replace


def set_single_terms(program: TypedProgram) -> TypedProgram:
    """Return the program with such reductions as statements that set their elements; after `start_reductions`."""

    def change(before: TypedStatement | None, node: TypedStatement) -> list[TypedStatement] | None:
        if before is None or node.op == "set" or node.reduced or not starts_fresh(program, before, node):
            return None
        # Zero stays: what is added to it has no negative zero.
        sums = node.op == "add" and node.acc.kind in "fc"
        value = Call("add", (replace(before.expr, dtype=node.acc), node.expr), node.acc) if sums else node.expr
        set_ = replace(node, op="set", expr=value, defines=None)
        return (
            [set_] if elements_written(program, before).is_subset(elements_written(program, node)) else [before, set_]
        )

    return replace(program, body=replaced_after(program.body, change))
