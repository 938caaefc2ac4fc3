"""Add a batch index to a program: one more dimension, first, of the inputs that have one and of all that is defined."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from polyker.ir.expr import Dots, Expr, IndexExpr, Range, Read, SizeExpr, transform
from polyker.ir.expr import Literal as Constant
from polyker.ir.program import Loop, Node, Program, Statement
from polyker.structs import replace


def free_name(wanted: str, program: Program) -> str:
    """Return a name that stands nowhere in a program: this one, or with a number behind it."""
    text, found, number = str(program), wanted, 0
    while found in text:
        number += 1
        found = f"{wanted}{number}"
    return found


def batched(program: Program, inputs: Iterable[str]) -> tuple[Program, str] | None:
    """Return the program over a batch of these inputs and the name of the batch's size, None where `...` stands in it.

    An input that is an output has to be among the inputs.
    """
    if any(isinstance(s, Dots) for statement in program.statements() for s in statement.subscripts):
        return None
    index, size = free_name("batch_i", program), free_name("batch_n", program)
    names = {*inputs, *program.outputs, *program.temporaries, *(s.target for s in program.statements())}

    def change(e: Expr) -> Expr:
        if isinstance(e, Read) and e.tensor in names:
            return replace(e, subscripts=(IndexExpr(index), *e.subscripts))
        return e

    first = Range(index, Constant(0), SizeExpr(size))
    body = tuple(_changed(node, lambda e: transform(e, change), first) for node in program.body)
    types = tuple(
        replace(d, shape=(SizeExpr(size), *d.shape)) if d.name in names and d.shape is not None else d
        for d in program.types
    )
    parameters = (*program.parameters, size) if program.declared else program.parameters
    return replace(program, body=body, types=types, parameters=parameters, sizes=(*program.sizes, size)), size


def _changed(node: Node, change: Callable[[Expr], Expr], first: Range) -> Node:
    if isinstance(node, Loop):
        return replace(node, body=tuple(_changed(inner, change, first) for inner in node.body))
    return _statement(node, change, first)


def _statement(s: Statement, change: Callable[[Expr], Expr], first: Range) -> Statement:
    return replace(
        s,
        subscripts=(IndexExpr(first.index), *map(change, s.subscripts)),
        expr=change(s.expr),
        ranges=(first, *s.ranges),
        conditions=tuple(map(change, s.conditions)),
    )
