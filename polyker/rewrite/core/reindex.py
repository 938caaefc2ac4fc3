"""Reindex statements: other iterators over the same instances, or parts of them; rewrite a body statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import renaming
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement
from polyker.poly.isl import Set
from polyker.poly.scop import domain_text
from polyker.rewrite.core.fresh import Fresh
from polyker.structs import replace


def reindexed(
    statement: TypedStatement,
    iterators: Iterable[str],
    points: Set,
    values: Mapping[str, Expr],
    name: str = "",
    reduced: tuple[str, ...] | None = None,
) -> TypedStatement:
    """Return a statement over other iterators, whose values are `points`; `values`: what stands for the old ones.

    `name` and `reduced`: the new statement's name and the iterators that it reduces, if others.
    """
    name = name or statement.name
    return replace(
        statement.substituted(values),
        name=name,
        iterators=tuple(iterators),
        domain=domain_text(points, name),
        reduced=statement.reduced if reduced is None else reduced,
    )


def renamed(statement: TypedStatement, names: Mapping[str, str]) -> TypedStatement:
    """Return a statement with iterators of other names."""
    return replace(
        statement.substituted(renaming(names)),
        iterators=tuple(names[i] for i in statement.iterators),
        reduced=tuple(names[i] for i in statement.reduced),
    )


def replaced_after(
    nodes: Iterable[TypedNode],
    change: Callable[[TypedStatement | None, TypedStatement], Iterable[TypedNode] | None],
    *,
    inside: bool = False,
) -> tuple[TypedNode, ...]:
    """Return a body with statements, those in loops only where `inside`, replaced together with the one directly before.

    `change` gets both, the first None where there is none, and returns what stands for them; None leaves them.
    """
    body: list[TypedNode] = []
    for node in nodes:
        before = body[-1] if body and isinstance(body[-1], TypedStatement) else None
        made = change(before, node) if isinstance(node, TypedStatement) else None
        if made is not None:
            body[len(body) - (before is not None) :] = made
        elif isinstance(node, TypedLoop) and inside:
            body.append(replace(node, body=replaced_after(node.body, change, inside=True)))
        else:
            body.append(node)
    return tuple(body)


def replaced_loops(
    program: TypedProgram, change: Callable[[Fresh, dict[str, str], TypedLoop], Iterable[TypedNode] | None]
) -> TypedProgram:
    """Return the program with the outermost loops of its body replaced; the same program where none is.

    `change` gets fresh names, and the labels of iterators, to which it adds; it returns what stands for a loop, None for itself.
    """
    fresh, labels = Fresh(program), dict(program.labels)
    body: list[TypedNode] = []
    for node in program.body:
        made = change(fresh, labels, node) if isinstance(node, TypedLoop) else None
        body += (node,) if made is None else made
    if tuple(body) == program.body:
        return program
    return replace(fresh.finish(tuple(body)), labels=tuple(labels.items()))
