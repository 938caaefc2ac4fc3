"""Walking isl's tree of loops."""

from __future__ import annotations

import islpy as isl


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
