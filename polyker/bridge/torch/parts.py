"""Write a part of a graph as a program, and run its kernel on tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct
from torch.fx import GraphModule, Node

from polyker.bridge.torch.indices import Extent, Unsupported
from polyker.bridge.torch.nodes import is_empty, is_item, is_symbol, operands, result_of, written
from polyker.bridge.torch.sizes import SizeNames, atoms, evaluator, extent_of, is_atom, solved
from polyker.bridge.torch.writer import TensorValue, Writer


class TracedMemory(Struct, frozen=True):
    """How a tensor lies: `order` of its dimensions from the slowest, None where it is not dense; extents and strides in it."""

    order: tuple[int, ...] | None
    shape: list[Extent]
    strides: list[Extent]
    dtype: Any

    @property
    def laid(self) -> list[Extent]:
        """The extents in the order in which they lie in memory, those of what is not dense as they are."""
        return self.shape if self.order is None else [self.shape[d] for d in self.order]

    @property
    def steps(self) -> list[Extent]:
        """The strides, as `laid`."""
        return self.strides if self.order is None else [self.strides[d] for d in self.order]

    @property
    def is_row_major(self) -> bool:
        """Whether the strides are those of a fresh tensor of the extents as they lie in memory."""
        count: Extent = 1
        for n, step in zip(reversed(self.laid), reversed(self.steps), strict=True):
            if step != count:
                return False
            count = count * n
        return True

    @property
    def back(self) -> tuple[int, ...] | None:
        """The permutation from how it lies in memory to the graph's dimensions, None where that is nothing."""
        order = self.order
        return None if order is None or not self.permuted else tuple(order.index(d) for d in range(len(order)))

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


def memory_of(value: Any) -> TracedMemory:
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
    return TracedMemory(order, shape, strides, value.dtype)


class PartText(Struct, frozen=True):
    """A part as a program. `sizes`: its first parameters; `symbols`: all sizes that a call needs the values of.

    `inputs`: of each argument of the part its memory, or the size that it is; `passed`: positions of those that are read.
    """

    text: str
    sizes: list[Any]
    symbols: list[Any]
    inputs: list[TracedMemory | Extent]
    passed: list[int]
    outputs: list[TracedMemory]
    statements: int


def program_of(part: GraphModule) -> PartText:
    """Return the program of a part; raises Unsupported."""
    nodes = list(part.graph.nodes)
    ends = part.graph.output_node().args[0]
    outputs: list[Node] = list(ends) if isinstance(ends, (tuple, list)) else [ends]
    w = Writer(SizeNames())
    values: dict[Node, Any] = {}
    inputs: list[TracedMemory | Extent] = []
    named: dict[str, int] = {}
    for n in nodes:
        if n.op == "placeholder" and is_symbol(n):
            inputs.append(extent_of(n.meta["val"]))
        elif n.op == "placeholder" and is_empty(n.meta["val"]):  # of which rules read nothing
            inputs.append(memory_of(n.meta["val"]))
            values[n] = None
        elif n.op == "placeholder":
            result_of(n.meta["val"])
            memory = memory_of(n.meta["val"])
            stored = w.tensor(memory.laid, memory.dtype)
            values[n] = memory.as_graph(stored)
            named[stored.name or ""] = len(inputs)
            inputs.append(memory)
    memories = [memory_of(n.meta["val"]) for n in outputs]
    stored_results = _write(w, nodes, dict(zip(outputs, memories, strict=True)), values)
    names: list[str] = []
    for n, memory in zip(outputs, memories, strict=True):
        found = stored_results.get(n)
        names.append(found or _output(w, values[n], memory, {*named, *names, *stored_results.values()}).name or "")
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


def _write(
    w: Writer, nodes: Sequence[Node], outputs: Mapping[Node, TracedMemory], values: dict[Node, Any]
) -> dict[Node, str]:
    """Write the operators of a part, in order; what is read more than once is stored, as the result that it may be.

    Returns the names of these results.
    """
    results: dict[Node, str] = {}
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
        if isinstance(value, TensorValue) and value.work and n in outputs:
            stored = _output(w, value, outputs[n], set(results.values()))
            results[n] = stored.name or ""
            value = outputs[n].as_graph(stored)
        elif isinstance(value, TensorValue) and uses[n] > 1:
            value = w.cheap(value)
        values[n] = value
    return results


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


def _output(w: Writer, value: TensorValue, memory: TracedMemory, taken: set[str]) -> TensorValue:
    """Return the tensor that an output is, stored in the order of its memory; none of those that are taken."""
    if not memory.permuted:
        found = w.stored(value)
        return w.assign(w.tensor(value.shape, value.dtype), value.read) if found.name in taken else found
    order = memory.order or ()
    back = memory.back or ()
    moved = value.view([memory.shape[d] for d in order], lambda index: [index[d] for d in back])
    return w.assign(w.tensor(moved.shape, moved.dtype), moved.read)


def caller(part: PartText, kernel: Callable[..., Any], device: Any, *, single: bool) -> Callable[..., Any]:
    """Return what runs a kernel on a part's arguments, results in the memory that the graph was traced with."""
    places = list(part.passed)
    moves = [(k, part.inputs[p].order) for k, p in enumerate(places) if part.inputs[p].permuted]
    shapes = [m.shape if isinstance(m, TracedMemory) else m for m in part.inputs]
    readers = []
    for symbol in part.symbols:
        reader = solved(symbol, shapes)
        if reader is None:
            raise Unsupported(f"the value of {symbol} is in no argument")
        readers.append(reader)
    count = len(part.sizes)
    # Kernels allocate row-major results by themselves, of the kind of their first tensor.
    fresh = bool(places) and all(m.is_row_major for m in part.outputs)
    allocations = [(evaluator(m.laid, part.symbols), evaluator(m.steps, part.symbols), m.dtype) for m in part.outputs]
    backs = [m.back for m in part.outputs]
    moved = any(back is not None for back in backs)
    empty, grads = torch.empty_strided, torch.is_grad_enabled

    def run(*args: Any) -> Any:
        values = [reader(args) for reader in readers]
        given = [args[k] for k in places]
        if grads():  # then what requires gradients is no argument
            given = [t.detach() for t in given]
        for k, order in moves:
            given[k] = given[k].permute(order)
        if fresh:
            found = kernel(*values[:count], *given)
            outs = (found,) if len(backs) == 1 else found
        else:
            outs = tuple(empty(n(values), s(values), dtype=dtype, device=device) for n, s, dtype in allocations)
            kernel(*values[:count], *given, out=outs[0] if len(backs) == 1 else outs)
        if moved:
            outs = tuple(out if back is None else out.permute(back) for out, back in zip(outs, backs, strict=True))
        return outs[0] if single else tuple(outs)

    return run
