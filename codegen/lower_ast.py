"""Walking isl's tree of loops."""

from __future__ import annotations

import islpy as isl

from polyker.errors.base import failure
from polyker.errors.codegen import LOST


def loops_of(context: isl.Set, tree: isl.Schedule) -> isl.AstNode:
    """Return isl's loops of a schedule tree; raises CompileError where they do not run every instance.

    isl says for each call in them which instances it stands for. (Where a loop was skewed by another one that had been cut from
    the same index, and the domain had strides, instances were missing.)
    """
    runs: list[isl.UnionSet] = []

    def note(node: isl.AstNode, here: isl.AstBuild) -> isl.AstNode:
        runs.append(here.get_schedule().domain())
        return node

    noting, _kept = isl.AstBuild.from_context(context).set_at_each_domain(note)
    ast = noting.node_from_schedule(tree)
    missing = tree.get_domain().intersect_params(context)
    for found in runs:
        missing = missing.subtract(found)
    if not missing.is_empty():
        raise failure(LOST)
    return ast


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
