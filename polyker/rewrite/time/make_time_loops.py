"""Make time loops of statements whose outer iterators carry all their dependences.

    u[t,i] = u[t-1,i-1] + u[t-1,i+1] for t in 1:T      ->      for t in 1:T: u[t,i] = u[t-1,i-1] + u[t-1,i+1]

No iterator by itself is free of dependences here: with t in another place than outermost, i has to run in order. In one iteration
of the loop the elements are independent, and are vectorised, distributed over threads, or tiled in time as those of any step.
"""

from __future__ import annotations

from polyker.cost.own_distances import free_within, own_distances
from polyker.ir.expr import Call, IndexExpr, Read
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement, replaced
from polyker.rewrite.core.accumulate import COMBINE
from polyker.structs import replace


def time_loops(program: TypedProgram) -> TypedProgram:
    """Return a program with its time loops written out."""
    return as_steps(_set_updates(program))


def _set_updates(program: TypedProgram) -> TypedProgram:
    """Return a program whose updates of elements by one term in a step, `D[i,j] min= D[i,k] + D[k,j]`, set them to what they were
    combined with it."""

    def written(statement: TypedStatement) -> TypedStatement:
        dtype = program.tensor(statement.target).dtype
        if statement.op == "set" or statement.reduced or not statement.outer or statement.acc != dtype:
            return statement
        element = Read(statement.target, statement.subscripts, dtype=dtype)
        value = Call(COMBINE[statement.op], (element, statement.expr), dtype)
        return replace(statement, op="set", expr=value, defines=None)

    body = replaced(program.body, lambda s: (written(s),))
    return program if body == program.body else replace(program, body=body)


def as_steps(program: TypedProgram) -> TypedProgram:
    """Return a program with the loops that such statements stand in written out; the same program where there are none."""
    body = replaced(program.body, lambda s: (_in_loops(program, s),))
    return program if body == program.body else replace(program, body=body)


def _in_loops(program: TypedProgram, statement: TypedStatement) -> TypedNode:
    """Return a statement in as many loops as leave all other iterators free, if they free the one that walks along memory."""
    inner = statement.iterators[statement.outer :]
    if statement.op != "set" or not statement.reads_own or len(inner) < 2:
        return statement
    walks = statement.subscripts[-1] if statement.subscripts else None
    if not isinstance(walks, IndexExpr):
        return statement
    distances = own_distances(program, statement)
    if walks.name in free_within(distances, statement.iterators, statement.outer):
        return statement
    for n in range(1, len(inner)):
        outer = statement.outer + n
        if walks.name in inner[n:] and free_within(distances, statement.iterators, outer) == inner[n:]:
            node: TypedNode = replace(statement, outer=outer)
            for iterator in reversed(inner[:n]):
                node = TypedLoop(iterator, (node,))
            return node
    return statement
