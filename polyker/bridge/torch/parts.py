"""Write a part of a graph as a program, and run its kernel on tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct
from torch.fx import GraphModule, Node

from polyker.bridge.torch.indices import Extent, Unsupported
from polyker.bridge.torch.nodes import is_item, is_symbol, operands, result_of, written
from polyker.bridge.torch.sizes import SizeNames, atoms, evaluator, extent_of, is_atom, solved
from polyker.bridge.torch.writer import TensorValue, Writer


class TensorMemory(Struct, frozen=True):
    """How a tensor lies: `order` of its dimensions from the slowest, None where it is not dense; extents and strides in it."""

    order: tuple[int, ...] | None
    shape: list[Extent]
    strides: list[Extent]
    dtype: Any

    @property
    def laid(self) -> list[Extent]:
        """The extents in the order in which they lie in memory, those of what is not dense as they are."""
        return self.shape if self.order is None else [self.shape[d] for d in self.order]

    def as_graph(self, value: TensorValue) -> TensorValue:
        """Return a tensor with extents as they lie in memory as the graph has it."""
        order = self.order
        if order is None or not self.permuted:
            return value
        return value.view(self.shape, lambda index: [index[d] for d in order])

    @property
    def permuted(self) -> bool:
        """Whether it is dense in another order than row-major."""
        return self.order is not None and self.order != tuple(range(len(self.order)))


def memory_of(value: Any) -> TensorMemory:
    """Return how a traced tensor lies in memory."""
    shape, strides = [extent_of(n) for n in value.shape], [extent_of(n) for n in value.stride()]
    count: Extent = 1
    plain = True
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        plain = plain and (n == 1 or s == count)
        count = count * n
    order: tuple[int, ...] | None = tuple(range(len(shape)))
    if not plain:
        order = None
        if all(isinstance(n, int) for n in (*shape, *strides)):
            wanted = tuple(sorted(range(len(shape)), key=lambda d: -strides[d] if shape[d] > 1 else -(1 << 62)))
            count = 1
            dense = True
            for d in reversed(wanted):
                dense = dense and (shape[d] == 1 or strides[d] == count)
                count *= shape[d]
            order = wanted if dense else None
    return TensorMemory(order, shape, strides, value.dtype)


class PartText(Struct, frozen=True):
    """A part as a program. `sizes`: its first parameters; `symbols`: all sizes that a call needs the values of.

    `inputs`: of each argument of the part its memory, or the size that it is; `passed`: positions of those that are read.
    """

    text: str
    sizes: list[Any]
    symbols: list[Any]
    inputs: list[TensorMemory | Extent]
    passed: list[int]
    outputs: list[TensorMemory]
    statements: int


def program_of(part: GraphModule) -> PartText:
    """Return the program of a part; raises Unsupported."""
    nodes = list(part.graph.nodes)
    ends = part.graph.output_node().args[0]
    outputs: list[Node] = list(ends) if isinstance(ends, (tuple, list)) else [ends]
    w = Writer(SizeNames())
    values: dict[Node, Any] = {}
    inputs: list[TensorMemory | Extent] = []
    named: dict[str, int] = {}
    for n in nodes:
        if n.op == "placeholder" and is_symbol(n):
            inputs.append(extent_of(n.meta["val"]))
        elif n.op == "placeholder" and n.meta["val"].numel() == 0:  # of which rules read nothing
            inputs.append(memory_of(n.meta["val"]))
            values[n] = None
        elif n.op == "placeholder":
            result_of(n.meta["val"])
            memory = memory_of(n.meta["val"])
            stored = w.tensor(memory.laid, memory.dtype)
            values[n] = memory.as_graph(stored)
            named[stored.name or ""] = len(inputs)
            inputs.append(memory)
    _write(w, nodes, outputs, values)
    memories = [memory_of(n.meta["val"]) for n in outputs]
    names: list[str] = []
    for n, memory in zip(outputs, memories, strict=True):
        names.append(_output(w, values[n], memory, {*named, *names}))
    lines, used = w.needed(names)
    passed = {name: k for name, k in named.items() if name in used}
    parameters, known = _parameters(w, passed, inputs)
    extents = [e for m in memories for e in (*m.shape, *m.strides) if not isinstance(e, int)]
    symbols = list(dict.fromkeys([*known, *(s for e in extents for s in atoms(e))]))
    head = ", ".join([*(w.sizes.name(s) for s in known), *parameters])
    results = ", ".join(w.declared[name] for name in names)
    rest = {*named, *names}
    body = [text for name, text in w.declared.items() if name in used and name not in rest] + lines
    text = "\n    ".join([f"f({head}) -> {results}:", *body]) + "\n"
    return PartText(text, known, symbols, inputs, list(passed.values()), memories, len(lines))


def _write(w: Writer, nodes: Sequence[Node], outputs: Sequence[Node], values: dict[Node, Any]) -> None:
    """Write the operators of a part, in order; what is read more than once is stored."""
    uses = Counter(o for n in nodes for o in operands(n))
    for n in nodes:
        if n.op != "call_function":
            continue
        if is_item(n):
            source, k = n.args
            value = values[source][k]
            if value is None:
                raise Unsupported(f"result {k} of {source} has no rule")
        else:
            value = written(w, n, values.__getitem__)
        if isinstance(value, TensorValue) and n not in outputs and uses[n] > 1:
            value = w.cheap(value)
        values[n] = value


def _parameters(w: Writer, passed: Mapping[str, int], inputs: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """Return the declarations of inputs, and the symbols that none of them has as an extent.

    An extent that is no symbol alone is a size of its own there, so that sizes are read from plain extents.
    """
    plain: set[Any] = set()
    found = []
    for name, k in passed.items():
        shown = []
        for d, n in enumerate(inputs[k].laid):
            if isinstance(n, int) or is_atom(n):
                plain |= set() if isinstance(n, int) else {n}
                shown.append(w.sizes.text(n))
            else:
                shown.append(f"m{k}_{d}")
        found.append(f"{w.declared[name].partition('[')[0]}[{', '.join(shown)}]")
    return found, [s for s in w.sizes.names if s not in plain]


def _output(w: Writer, value: TensorValue, memory: TensorMemory, taken: set[str]) -> str:
    """Return the name of the tensor that an output is, stored in the order of its memory."""
    if not memory.permuted:
        found = w.stored(value)
        if found.name in taken:
            found = w.assign(w.tensor(value.shape, value.dtype), value.read)
        return found.name or ""
    order = memory.order or ()
    moved = value.view(
        [memory.shape[d] for d in order], lambda index: [index[order.index(d)] for d in range(len(order))]
    )
    return w.assign(w.tensor(moved.shape, moved.dtype), moved.read).name or ""


def caller(part: PartText, kernel: Callable[..., Any], device: Any, *, single: bool) -> Callable[..., Any]:
    """Return what runs a kernel on a part's arguments, results in the memory that the graph was traced with."""
    tensors = [(k, part.inputs[k].order if part.inputs[k].permuted else None) for k in part.passed]
    shapes = [m.shape if isinstance(m, TensorMemory) else m for m in part.inputs]
    readers = []
    for symbol in part.symbols:
        reader = solved(symbol, shapes)
        if reader is None:
            raise Unsupported(f"the value of {symbol} is in no argument")
        readers.append(reader)
    sizes = len(part.sizes)
    allocations = []
    for m in part.outputs:
        order = m.order if m.order is not None else tuple(range(len(m.shape)))
        shape = evaluator([m.shape[d] for d in order], part.symbols)
        strides = evaluator([m.strides[d] for d in order], part.symbols)
        back = tuple(order.index(d) for d in range(len(order))) if m.permuted else None
        allocations.append((shape, strides, m.dtype, back))
    empty = torch.empty_strided

    def run(*args: Any) -> Any:
        values = [reader(args) for reader in readers]
        given = []
        for k, order in tensors:
            tensor = args[k]
            if tensor.requires_grad or type(tensor) is not torch.Tensor:
                tensor = tensor.detach()
            given.append(tensor if order is None else tensor.permute(order))
        outs = [
            empty(shape(values), strides(values), dtype=dtype, device=device)
            for shape, strides, dtype, _ in allocations
        ]
        kernel(*values[:sizes], *given, out=outs[0] if len(outs) == 1 else tuple(outs))
        found = [
            out if back is None else out.permute(back) for out, (_, _, _, back) in zip(outs, allocations, strict=True)
        ]
        return found[0] if single else tuple(found)

    return run
