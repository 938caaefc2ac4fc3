"""Cut a graph into parts that polyker compiles: equal layers give equal parts, and none has many statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from polyker.bridge.torch.nodes import Judgement, is_empty, is_item, judged
from polyker.bridge.torch.rules.shapes import CONSTANTS, VIEWS

# Statements that a part may have, about: the time that a compile takes grows with them.
MAX_STATEMENTS = 16
# Statements that a period of a graph has at least, for parts to begin where it begins.
_MIN_PERIOD_STATEMENTS = 4.0


class _Support(OperatorSupportBase):  # type: ignore[misc]
    """What the partitioner asks: whether a node has been found to be one that can be written."""

    def __init__(self, found: Mapping[Node, Judgement]) -> None:
        self.found = found

    def is_node_supported(self, submodules: Any, node: Node) -> bool:
        """Whether the node can be written in the notation."""
        return node in self.found and self.found[node].reason is None


def packet(node: Node) -> str:
    """Return the name of a node's operator without its overload; nothing where it is none of ATen's."""
    schema = getattr(node.target, "_schema", None)
    return schema.name.removeprefix("aten::") if schema is not None else ""


def is_view(node: Node) -> bool:
    """Whether a node computes nothing: a view, or one of several results."""
    return packet(node) in VIEWS or is_item(node)


def simplify(gm: GraphModule) -> None:
    """Make results without elements constants, so that what gives them may give nothing else."""
    for node in list(gm.graph.nodes):
        value = node.meta.get("val")
        if is_item(node) and isinstance(value, torch.Tensor) and is_empty(value):
            with gm.graph.inserting_after(node):
                how = {"dtype": value.dtype, "device": value.device}
                empty = gm.graph.call_function(torch.ops.aten.full.default, (list(value.shape), 0), how)
            empty.meta = dict(node.meta)
            node.replace_all_uses_with(empty)
            gm.graph.erase_node(node)


def judge(gm: GraphModule) -> dict[Node, Judgement]:
    """Return of each operator whether it can be written; results of one that cannot be are none either."""
    found: dict[Node, Judgement] = {}
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        if is_item(node):
            source = found.get(node.args[0])
            found[node] = Judgement(source.reason if source is not None else "no operator")
        else:
            found[node] = judged(node)
    return found


def cut(gm: GraphModule, found: dict[Node, Judgement], limit: float = MAX_STATEMENTS) -> list[list[Node]]:
    """Return the parts, each in the order of the graph; views at their ends are copied, or left out."""
    _repeat_constants(gm, found)
    proposals = CapabilityBasedPartitioner(gm, _Support(found), allows_single_node_partition=True).propose_partitions()
    places = {node: k for k, node in enumerate(gm.graph.nodes)}
    parts = []
    ordered = [sorted(proposal.nodes, key=places.__getitem__) for proposal in proposals]
    for nodes in sorted(ordered, key=lambda nodes: places[nodes[0]]):
        parts += [part for piece in _pieces(nodes, found, limit) if (part := _trimmed(gm, piece))]
    return [p for p in parts if not all(is_view(n) or packet(n) in CONSTANTS or packet(n) == "clone" for n in p)]


def _repeat_constants(gm: GraphModule, found: dict[Node, Judgement]) -> None:
    """Give each user of a constant one of its own, so that none is handed from part to part."""
    for node in list(gm.graph.nodes):
        if packet(node) not in CONSTANTS or found[node].reason is not None:
            continue
        for user in list(node.users)[1:]:
            with gm.graph.inserting_before(user):
                copy = gm.graph.node_copy(node)
            user.replace_input_with(node, copy)
            found[copy] = found[node]


def _pieces(nodes: Sequence[Node], found: Mapping[Node, Judgement], limit: float) -> list[list[Node]]:
    """Return pieces of a partition with at most so many statements, cut where its period begins."""
    items: dict[Node, list[Node]] = {}
    for n in nodes:
        if is_item(n):
            items.setdefault(n.args[0], []).append(n)
    line = [n for n in nodes if not is_item(n)]
    weights = np.array([found[n].statements for n in line])
    if weights.sum() <= limit:
        return [list(nodes)]
    total = np.concatenate([[0.0], np.cumsum(weights)])
    marks = _marks(line, items, total, limit)
    pieces: list[list[Node]] = []
    for begin, end in pairwise(marks):
        parts = max(1, int(np.ceil((total[end] - total[begin]) / limit)))
        share = (total[end] - total[begin]) / parts
        at = begin
        for k in range(parts):
            to = end if k == parts - 1 else int(np.searchsorted(total, total[begin] + share * (k + 1), side="left"))
            to = min(max(to, at), end)
            if to > at:
                pieces.append([m for n in line[at:to] for m in (n, *items.get(n, ()))])
            at = to
    return pieces


def _marks(line: Sequence[Node], items: Mapping[Node, list[Node]], total: Any, limit: float) -> list[int]:
    """Return positions to cut at: where repetitions of the longest periodic stretch begin, several of them if they are short."""
    kinds: dict[str, int] = {}
    shapes = np.array([kinds.setdefault(_kind(n), len(kinds)) for n in line])
    count = len(line)
    best = (0, 0, 0)  # length covered, period, begin
    for period in range(2, count // 2 + 1):
        same = shapes[:-period] == shapes[period:]
        ends = np.flatnonzero(np.concatenate([[True], ~same, [True]]))
        lengths = np.diff(ends) - 1
        k = int(lengths.argmax())
        length, begin = int(lengths[k]) + period, int(ends[k])
        if length < 2 * period or total[begin + period] - total[begin] < _MIN_PERIOD_STATEMENTS:
            continue
        if length > 1.2 * best[0]:
            best = length, period, begin
    if not best[0]:
        return [0, count]
    length, period, begin = best
    crossing = _crossing(line, items)
    phase = min(range(begin, begin + length % period + 1), key=lambda k: crossing[k])
    if length >= 3 * period:
        phase = min(range(begin, begin + period), key=lambda k: crossing[k])
    repeats = (begin + length - phase) // period
    each = max(1, int(limit // max(total[phase + period] - total[phase], 1e-9)))
    inner = [phase + period * k for k in range(0, repeats, each)] + [phase + period * repeats]
    return sorted({0, *inner, count})


def _kind(node: Node) -> str:
    """Return what two nodes have in common that compute the same of different tensors."""
    value = node.meta.get("val")
    shape = [
        tuple(v.shape) for v in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(v, torch.Tensor)
    ]
    plain = [a if not isinstance(a, Node) else "node" for a in node.args]
    plain = ["nodes" if isinstance(a, (tuple, list)) and any(isinstance(b, Node) for b in a) else a for a in plain]
    return f"{node.target} {shape} {plain}"


def _crossing(line: Sequence[Node], items: Mapping[Node, list[Node]]) -> list[int]:
    """Return for each position how many values of nodes before it nodes from it on read."""
    places = {m: k for k, n in enumerate(line) for m in (n, *items.get(n, ()))}
    change = np.zeros(len(line) + 2, int)
    for k, n in enumerate(line):
        users = [u for m in (n, *items.get(n, ())) for u in m.users]
        last = max((places[u] for u in users if u in places), default=k)
        change[k + 1] += 1
        change[last + 1] -= 1
    return [int(v) for v in np.cumsum(change)]


def _trimmed(gm: GraphModule, part: list[Node]) -> list[Node]:
    """Return a part without the views that others read: they get copies of their own, of the part's results."""
    inside = set(part)
    for node in reversed(part):
        if not is_view(node) or is_item(node):
            continue
        outer = [u for u in node.users if u not in inside]
        if not outer:
            continue
        if len(outer) == len(node.users):
            inside.discard(node)
            continue
        with gm.graph.inserting_after(node):
            copy = gm.graph.node_copy(node)
        for user in outer:
            user.replace_input_with(node, copy)
    return [n for n in part if n in inside]
