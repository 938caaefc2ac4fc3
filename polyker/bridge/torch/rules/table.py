"""Keep the rules: by the name of an operator, what writes its results."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeAlias

from msgspec import Struct

from polyker.bridge.torch.indices import Extent
from polyker.bridge.torch.writer import TensorValue, Writer


class ResultMeta(Struct, frozen=True):
    """Shape and type of what an operator gives, as it was traced."""

    shape: list[Extent]
    dtype: Any


# Writes an operator's results: its arguments by the names of its schema, tensors as values, then the result or a list of them.
Rule: TypeAlias = Callable[[Writer, SimpleNamespace, Any], "TensorValue | tuple[TensorValue | None, ...]"]

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of operators: `mm` for all overloads of aten.mm, `sum.dim_IntList` for one."""

    def keep(made: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, made))
        return made

    return keep


def rule_of(target: Any) -> Rule | None:
    """Return the rule of an operator, None where there is none."""
    if getattr(target, "namespace", None) != "aten":
        return None
    packet, _, overload = target._schema.name.removeprefix("aten::"), "", target._overloadname
    return RULES.get(f"{packet}.{overload}") or RULES.get(packet)
