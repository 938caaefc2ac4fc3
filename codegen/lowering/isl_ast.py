"""Walking isl's tree of loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import islpy as isl
from msgspec import Struct

from polyker.errors.base import failure
from polyker.errors.codegen import LOST
from polyker.poly.isl import read_set
from polyker.process.jobs import uninterrupted


def loops_of(context: isl.Set, tree: isl.Schedule, numbers: Mapping[str, int]) -> isl.AstNode:
    """Return isl's loops of a schedule tree; raises CompileError where they do not run every instance.

    `numbers`: parameters that stand for all values from 0 to below these: of threads, each of which runs a part.

    isl says for each call in them which instances it stands for. (Where a loop was skewed by another one that had been cut from
    the same index, and the domain had strides, instances were missing.)
    """
    builds: list[isl.AstBuild] = []

    def note(node: isl.AstNode, here: isl.AstBuild) -> isl.AstNode:
        # isl gets nothing from a callback that raises, and does not survive that: so isl's operations, which its quota may end,
        # come later, and no signal handler may run in between.
        builds.append(here.copy())
        return node

    if numbers:
        names = ", ".join(numbers)
        within = " and ".join(f"0 <= {name} < {count}" for name, count in numbers.items())
        context = context.intersect(read_set(f"[{names}] -> {{ : {within} }}"))
    noting, _kept = isl.AstBuild.from_context(context).set_at_each_domain(note)
    ast = uninterrupted(lambda: noting.node_from_schedule(tree))
    runs = [build.get_schedule().domain() for build in builds]
    if some_lost([leaf.intersect_params(context) for leaf in _leaves(tree)], runs):
        raise failure(LOST)
    return ast


def _leaves(tree: isl.Schedule) -> list[isl.UnionSet]:
    """Return the instances that come to each leaf of a tree."""
    leaves: list[isl.UnionSet] = []
    nodes = [tree.get_root()]
    while nodes:
        node = nodes.pop()
        if isl.schedule_node_type(node.get_type()) == isl.schedule_node_type.leaf:
            leaves.append(node.get_domain())
        nodes += [node.child(n) for n in reversed(range(node.n_children()))]
    return leaves


def some_lost(leaves: list[isl.UnionSet], runs: list[isl.UnionSet]) -> bool:
    """Whether an instance at a leaf is in no run. The calls come in the order of the leaves, mostly one for each: together, the
    pieces that are left of all leaves would be many."""
    by_name: dict[str, list[isl.Set]] = {}
    for run in runs:
        for part in _sets(run):
            by_name.setdefault(part.get_tuple_name(), []).append(part)
    for leaf in leaves:
        for left in _sets(leaf):
            name = left.get_tuple_name()
            found = by_name.get(name, [])
            for n, run in enumerate(found):
                left = left.subtract(run)
                if left.is_empty():
                    by_name[name] = found[n:] + found[:n]
                    break
            if not left.is_empty():
                return True
    return False


def _sets(points: isl.UnionSet) -> list[isl.Set]:
    """Return the parts of a union by statement."""
    found = points.get_set_list()
    return [found.get_at(n) for n in range(found.n_set())]


class Guarded(Struct, frozen=True):
    """A node that runs where all of some conditions hold, the outermost first."""

    node: isl.AstNode
    conditions: tuple[isl.AstExpr, ...] = ()


def within(guarded: Guarded) -> Guarded:
    """Return what is inside conditions without an alternative, with these."""
    node = guarded.node
    if isl.ast_node_type(node.get_type()) != isl.ast_node_type.if_ or node.if_has_else_node():
        return guarded
    return within(Guarded(node.if_get_then_node(), (*guarded.conditions, node.if_get_cond())))


def flat(guarded: Guarded, wanted: Callable[[isl.AstNode], bool]) -> list[Guarded]:
    """Return the parts of a node that is a block with a wanted node in it, also in blocks and conditions; else the node."""
    found = within(guarded)
    if isl.ast_node_type(found.node.get_type()) != isl.ast_node_type.block:
        return [guarded]
    parts = [p for child in _inside(found.node) for p in flat(Guarded(child, found.conditions), wanted)]
    return parts if any(wanted(within(p).node) for p in parts) else [guarded]


def _inside(node: isl.AstNode) -> list[isl.AstNode]:
    """Return the parts of a block or a condition, of another node none."""
    kind = isl.ast_node_type(node.get_type())
    if kind == isl.ast_node_type.block:
        children = node.block_get_children()
        return [children.get_at(n) for n in range(children.n_ast_node())]
    if kind == isl.ast_node_type.if_:
        return [node.if_get_then_node(), *([node.if_get_else_node()] if node.if_has_else_node() else [])]
    return []


def is_loop(node: isl.AstNode) -> bool:
    """Whether each part of what isl made of a mark's loop is a loop."""
    below = _inside(node)
    return all(map(is_loop, below)) if below else isl.ast_node_type(node.get_type()) == isl.ast_node_type.for_
