"""Reindex statements: other iterators over the same instances, or parts of them; rewrite a body statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import renaming
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement
from polyker.poly.isl import Set
from polyker.poly.scop import domain_text


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
    program: TypedProgram, change: Callable[[TypedStatement | None, TypedStatement], Iterable[TypedNode] | None]
) -> tuple[TypedNode, ...]:
    """Return the program's body with statements, but those in loops, replaced together with the one directly before.

    `change` gets both, the first None where there is none, and returns what stands for them; None leaves them.
    """
    body: list[TypedNode] = []
    for node in program.body:
        before = body[-1] if body and isinstance(body[-1], TypedStatement) else None
        made = change(before, node) if isinstance(node, TypedStatement) else None
        if made is None:
            body.append(node)
        else:
            body[len(body) - (before is not None) :] = made
    return tuple(body)
