"""Compile graphs that torch.compile captures: the backend named "polyker"."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from threading import Lock
from typing import Any

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from polyker.api.kernel import Kernel
from polyker.api.operator import op
from polyker.bridge.torch.custom import directly
from polyker.bridge.torch.cutting import MAX_STATEMENTS, cut, is_view, judge, packet, simplify
from polyker.bridge.torch.indices import Unsupported
from polyker.bridge.torch.parts import caller, program_of
from polyker.bridge.torch.recurrent import by_operators, traced_by_steps
from polyker.bridge.torch.reports import GraphReport, PartReport, begun
from polyker.bridge.torch.rules.table import rule_of
from polyker.errors.base import PolykerError, failure
from polyker.errors.calls import BAD_ARGUMENT, BAD_OPTION
from polyker.errors.given import integer, printed
from polyker.options import options as chosen_options

# Kernels that are kept by their texts, so that equal parts are compiled once.
_MAX_KERNELS = 1024
_kernels: OrderedDict[Any, Kernel] = OrderedDict()
_kernels_lock = Lock()


def backend(
    gm: GraphModule, example_inputs: Sequence[Any], *, mode: Any = None, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph of torch.compile: parts that the notation can say become kernels, the rest stays torch's.

    `options`: those of `pk.options`, for the kernels of this graph, and `max_statements`, about how many a part has at most.
    There are no modes. Raises ArgumentError.
    """
    if mode not in (None, "default"):
        raise failure(
            BAD_OPTION, name="mode", value=printed(mode), accepted="None; `options` takes those of pk.options"
        )
    if options is not None and not isinstance(options, Mapping):
        raise failure(BAD_ARGUMENT, name="options", type=type(options).__name__, wanted="a dict of options of polyker")
    given = dict(options or {})
    limit = integer(given.pop("max_statements", MAX_STATEMENTS))
    if limit is None or limit < 1:
        raise failure(BAD_OPTION, name="max_statements", value=printed(options), accepted="an integer from 1 on")
    with chosen_options(**given):  # which refuses what is no option
        pass
    compiled = aot_autograd(
        fw_compiler=partial(compile_graph, kind="forward", given=given, limit=limit),
        bw_compiler=partial(compile_graph, kind="backward", given=given, limit=limit),
        inference_compiler=partial(compile_graph, kind="inference", given=given, limit=limit),
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    by_operators(gm)
    with traced_by_steps():
        found: Callable[..., Any] = compiled(gm, example_inputs)
    return found


@cache
def decompositions() -> dict[Any, Any]:
    """Return the decompositions into core operators, of what has no rule of its own."""
    table: dict[Any, Any] = core_aten_decompositions()
    return {k: f for k, f in table.items() if rule_of(k) is None}


def compile_graph(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    kind: str,
    given: Mapping[str, Any],
    limit: float = MAX_STATEMENTS,
) -> Callable[..., Any]:
    """Return what runs an ATen graph with its parts compiled."""
    begin = time.perf_counter()
    record = begun(kind)
    simplify(gm)
    found = judge(gm)
    parts = cut(gm, found, limit)
    inside = {n for part in parts for n in part}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node not in inside:
            if is_view(node):
                record.views += 1
            else:
                judgement = found.get(node)
                reason = (
                    judgement.reason if judgement is not None and judgement.reason else "nothing to compute with it"
                )
                record.stayed[packet(node) or str(node.target), reason] += 1
    fused = fuse_by_partitions(gm, [dict.fromkeys(part) for part in parts]) if parts else gm
    for k in range(len(parts)):
        name = f"fused_{k}"
        run = compile_part(getattr(fused, name), record, given)
        if run is not None:
            setattr(fused, name, _Run(run))
    directly(fused)
    fused.recompile()
    record.seconds = time.perf_counter() - begin
    made: Callable[..., Any] = make_boxed_func(fused.forward)
    return made


class _Run(torch.nn.Module):  # type: ignore[misc]
    """A part's kernel, where the graph calls the part."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = run


def compile_part(part: GraphModule, record: GraphReport, given: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Return what runs a part, None where it stays torch's; the report says why."""
    begin = time.perf_counter()
    nodes = sum(n.op == "call_function" for n in part.graph.nodes)
    entry = PartReport(nodes, 0, "", 0.0)
    record.parts.append(entry)
    try:
        program = program_of(part)
        entry.text, entry.statements = program.text, program.statements
        device = device_of(part)
        kernel, entry.again = kernel_of(program.text, device, given)
        single = not isinstance(part.graph.output_node().args[0], (tuple, list))
        return caller(program, kernel, device, single=single)
    except (PolykerError, Unsupported) as error:
        if isinstance(error, PolykerError) and device.type == "cuda":  # what was asked for cannot be had here
            raise
        entry.refused = str(error).splitlines()[0]
        return None
    finally:
        entry.seconds = time.perf_counter() - begin


def device_of(part: GraphModule) -> Any:
    """Return the device that a part's tensors lie on."""
    values = [n.meta.get("val") for n in part.graph.nodes]
    return next(v.device for v in values if isinstance(v, torch.Tensor))


def kernel_of(text: str, device: Any, given: Mapping[str, Any]) -> tuple[Kernel, bool]:
    """Return the kernel of a program for a device, and whether it was there before."""
    target = "cpu" if device.type == "cpu" else "cuda" if not device.index else f"cuda:{device.index}"
    with chosen_options(**given):
        key = text, target, chosen_options.current.code_key
        with _kernels_lock:
            found = _kernels.get(key)
            if found is not None:
                _kernels.move_to_end(key)
                return found, True
        kernel = op(text).compile(target=target)
    with _kernels_lock:
        while len(_kernels) >= _MAX_KERNELS:
            _kernels.popitem(last=False)
        _kernels[key] = kernel
    return kernel, False
