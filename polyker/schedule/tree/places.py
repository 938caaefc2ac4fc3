"""Find the loops that a step names in a schedule tree, and rebuild the tree around their replacements."""

from __future__ import annotations

from collections.abc import Callable

from polyker.errors.base import failure
from polyker.errors.schedules import BAD_OFFSET, BAD_SIZE, NESTED_VECTOR, NO_LOOP, NO_STATEMENT, SAME_LABEL
from polyker.schedule.tree.nodes import (
    Band,
    Filter,
    MemberKind,
    Sequence,
    Tree,
    children_of,
    paths,
    rebuilt,
    statements_of,
)
from polyker.structs import replace


def at_loops(tree: Tree, statement: str, labels: tuple[str, ...], change: Callable[[Band], Tree]) -> Tree:
    """Return the tree with `change` applied to every band that has loops of `labels` for the statement.

    Bands directly inside each other are one band to `change`. Raises ScheduleError where there is none.
    """
    ways = list(paths(tree, statement))
    if not any(ways) and statement not in statements_of(tree):
        raise failure(NO_STATEMENT, statement=statement, known=", ".join(statements_of(tree)) or "none")
    known = dict.fromkeys(m.label for path in ways for m in path)
    for label in labels:
        if label not in known:
            raise failure(NO_LOOP, statement=statement, loop=label, known=", ".join(known) or "none")
        if any(sum(m.label == label for m in path) > 1 for path in ways):
            raise failure(SAME_LABEL, statement=statement, loop=label)

    def visit(node: Tree) -> Tree:
        if isinstance(node, Band):
            band = joined(node)
            band = replace(band, child=visit(band.child))
            mine = any(s == statement for s, _ in band.members[0].times)
            return change(band) if mine and any(m.label in labels for m in band.members) else band
        return with_children(node, visit)

    return visit(tree)


def joined(band: Band) -> Band:
    """Return a band and the bands directly inside it as one."""
    while isinstance(band.child, Band):
        band = Band((*band.members, *band.child.members), band.child.child)
    return band


def with_children(node: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """Return a node with its children changed; sequences within sequences become one."""
    made = rebuilt(node, change)
    return spliced(made) if isinstance(made, Sequence) else made


def spliced(sequence: Sequence) -> Tree:
    """Return a sequence in which children that are sequences themselves give way to their own children."""
    children: list[Filter] = []
    for f in sequence.children:
        if isinstance(f.child, Sequence) and not f.conditions:
            children += f.child.children
        else:
            children.append(f)
    if len(children) == 1 and not children[0].conditions:
        return children[0].child
    return Sequence(tuple(children))


def check_size(label: str, size: object, least: int, most: int) -> None:
    """Raise ScheduleError unless a size is an integer from `least` to `most`."""
    if not isinstance(size, int) or isinstance(size, bool) or not least <= size <= most:
        raise failure(BAD_SIZE, size=repr(size), loop=label, least=least, most=most)


def check_integer(label: str, value: object, most: int) -> None:
    """Raise ScheduleError unless a value is an integer other than 0, and no further from 0 than `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < abs(value) <= most:
        raise failure(BAD_OFFSET, value=repr(value), loop=label, most=most)


def refuse_nested_vectors(tree: Tree, statement: str, loop: str) -> None:
    """Raise ScheduleError where one vector loop stands inside another."""

    def visit(node: Tree, around: str | None) -> None:
        for m in node.members if isinstance(node, Band) else ():
            if m.kind is MemberKind.VECTOR:
                if around is not None:
                    other = m.label if around.startswith(loop) else around
                    raise failure(NESTED_VECTOR, loop=loop, statement=statement, other=other)
                around = m.label
        for child in children_of(node):
            visit(child, around)

    visit(tree, None)
