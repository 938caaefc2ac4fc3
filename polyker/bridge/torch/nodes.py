"""Read nodes of ATen graphs: their arguments by the schema, and what they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from msgspec import Struct
from torch.fx import Node

from polyker.bridge.torch.indices import Unsupported
from polyker.bridge.torch.kinds import NAMES
from polyker.bridge.torch.rules import load_all
from polyker.bridge.torch.rules.table import ResultMeta, rule_of
from polyker.bridge.torch.sizes import extent_of
from polyker.bridge.torch.writer import TensorValue, Writer

load_all()


def result_of(value: Any) -> ResultMeta:
    """Return shape and type of a traced tensor; raises Unsupported for what the notation has no tensors for."""
    if not isinstance(value, torch.Tensor):
        raise Unsupported(f"a value that is no tensor ({type(value).__name__})")
    if value.dtype not in NAMES:
        raise Unsupported(f"elements of {str(value.dtype).removeprefix('torch.')}")
    if value.layout is not torch.strided or value.device.type not in ("cpu", "cuda"):
        raise Unsupported(f"a tensor of layout {value.layout} on {value.device}")
    shape = [extent_of(n) for n in value.shape]
    if any(n == 0 for n in shape):
        raise Unsupported("a tensor without elements")
    return ResultMeta(shape, value.dtype)


def is_empty(value: Any) -> bool:
    """Whether a traced tensor has no elements for sure."""
    return any(isinstance(n, int) and n == 0 for n in map(extent_of, value.shape))


def results_of(node: Node) -> Any:
    """Return what a node gives: a ResultMeta, or a list of them with None where there is no tensor."""
    value = node.meta["val"]
    if isinstance(value, (tuple, list)):
        return [result_of(v) if isinstance(v, torch.Tensor) and not is_empty(v) else None for v in value]
    return result_of(value)


def is_item(node: Node) -> bool:
    """Whether a node takes one of several results of another."""
    return getattr(node.target, "__name__", "") == "getitem" and isinstance(node.args[0], Node)


def is_symbol(node: Node) -> bool:
    """Whether a node's value is a size."""
    return isinstance(node.meta.get("val"), (torch.SymInt, int))


def bound(node: Node, lookup: Callable[[Node], Any]) -> SimpleNamespace:
    """Return a node's arguments by the names of its schema; those that are nodes as `lookup` gives them."""

    def given(value: Any) -> Any:
        if isinstance(value, Node):
            if is_symbol(value):
                return extent_of(value.meta["val"])
            if not isinstance(value.meta.get("val"), torch.Tensor):
                raise Unsupported("an argument that is a number of the run")
            return lookup(value)
        if isinstance(value, (list, tuple)):
            return [given(v) for v in value]
        return extent_of(value) if isinstance(value, torch.SymInt) else value

    found = SimpleNamespace()
    for k, argument in enumerate(node.target._schema.arguments):
        value = node.args[k] if k < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
        setattr(found, argument.name, given(value))
    return found


def written(w: Writer, node: Node, lookup: Callable[[Node], Any]) -> Any:
    """Return what the rule of a node writes, its operands given by `lookup`."""
    made = rule_of(node.target)
    if made is None:
        raise Unsupported("no rule")
    return made(w, bound(node, lookup), results_of(node))


def operands(node: Node) -> Iterator[Node]:
    """Yield the nodes among a node's arguments, as often as they stand there."""
    stack: list[Any] = [*node.kwargs.values(), *reversed(node.args)]
    while stack:
        value = stack.pop()
        if isinstance(value, Node):
            yield value
        elif isinstance(value, (list, tuple)):
            stack += reversed(value)


class Judgement(Struct, frozen=True):
    """Whether a node can be written: `reason` says why not, None where it can; `statements`: how many it takes."""

    reason: str | None
    statements: float = 0.0


def judged(node: Node) -> Judgement:
    """Return whether a node can be written, by writing it."""
    if node.op != "call_function":
        return Judgement("no operator")
    try:
        return Judgement(None, 0.0) if is_item(node) else Judgement(None, _written_alone(node))
    except Unsupported as reason:
        return Judgement(str(reason))
    except Exception as error:  # a graph has to run whatever is wrong with a rule
        return Judgement(f"its rule fails with {type(error).__name__}: {str(error).partition(chr(10))[0]}")


def _written_alone(node: Node) -> float:
    """Return how many statements a node takes: half of one where its value may become part of another's."""
    w = Writer()

    def lookup(operand: Node) -> TensorValue | None:
        if is_empty(operand.meta["val"]):
            return None
        found = result_of(operand.meta["val"])
        return w.tensor(found.shape, found.dtype)

    devices = {str(n.meta["val"].device) for n in operands(node) if isinstance(n.meta.get("val"), torch.Tensor)}
    made = written(w, node, lookup)
    values = made if isinstance(made, tuple) else (made,)
    count = float(len(w.lines))
    for k, value in enumerate(values):
        if value is None:
            if any(is_item(u) and u.args[1] == k for u in node.users):
                raise Unsupported(f"result {k} has no rule")
            continue
        devices.add(str(_device(node, k)))
        count += 0.5 * (value.work > 0)
        w.stored(value)
    if len(devices) > 1:
        raise Unsupported(f"tensors on {' and '.join(sorted(devices))}")
    return count


def _device(node: Node, k: int) -> Any:
    value = node.meta["val"]
    return (value[k] if isinstance(value, (tuple, list)) else value).device
