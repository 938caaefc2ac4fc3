"""What a child does for the full run: compile a case, measure it beside its peers, measure the roofs.

Every result is compared with torch's in f64 before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polyker as pk
from benchmarks.gpu.case import Case
from benchmarks.gpu.cases import cases
from benchmarks.gpu.child import Say, function_of
from benchmarks.gpu.machine import Skip, compile_now

TINY = 12
TENSOR = ("bf16", "f16", "tf32")
_MODULES = {"torch": "torch", "triton": "triton", "cupy": "cupy"}
_MOST_COPIES = 8


def all_cases(added: Sequence[str] = ()) -> list[Case]:
    """Return the cases, and those that functions `module:function` return."""
    return [*cases(), *(case for name in added for case in function_of(name)())]


def case_named(name: str, added: Sequence[str] = (), *, tiny: bool = False) -> Case:
    """Return a case."""
    found = next(c for c in all_cases(added) if c.name == name)
    return found.small(TINY) if tiny else found


def compile_case(_: Any, say: Say, *, name: str, added: Sequence[str], tiny: bool, target: str) -> None:
    """Let the machine code of a case be made and kept on disk."""
    case = case_named(name, added, tiny=tiny)
    compile_now(pk.op(case.text).compile(*case.types, target=target), target)


def inputs_of(case: Case, machine: Any) -> list[Any]:
    """Return random inputs."""
    return [
        machine.indices(shape, case.most) if n in case.indices else machine.random(shape, kind)
        for n, (shape, kind) in enumerate(zip(case.shapes, case.kinds, strict=True))
    ]


def available(machine: Any, say: Say, *, wanted: Sequence[str]) -> dict[str, Any]:
    """Return the peers that are wanted and can be imported, and why others cannot."""
    found, missing = [], {}
    for name in wanted:
        try:
            __import__(_MODULES[name])
            found.append(name)
        except ImportError as error:
            missing[name] = str(error)
    return {"peers": found if machine.torch is not None else [], "missing": missing}


class Graphs:
    """torch.compile's back end, Inductor, which counts the graphs that it is given."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx

        self.count += 1
        return compile_fx(graph, inputs)


def compiled_by_torch(case: Case, torch: Any) -> tuple[Callable[..., Any], Graphs]:
    """Return what torch.compile makes of a case, and what counts its graphs: without any, it ran eagerly.

    What was compiled before is forgotten: else torch stops to compile after some functions of the same text, and says nothing.
    """
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    graphs = Graphs()
    return torch.compile(lambda *xs: case.torch(torch, *xs), dynamic=False, backend=graphs), graphs


def compile_peer(machine: Any, say: Say, *, name: str, added: Sequence[str], tiny: bool) -> None:
    """Let torch.compile fill its caches on disk for a case."""
    case = case_named(name, added, tiny=tiny)
    work, _ = compiled_by_torch(case, machine.torch)
    work(*inputs_of(case, machine))
    machine.sync()
    machine.forget()


def checked(case: Case, machine: Any, inputs: list[Any], found: Any) -> float:
    """Return the largest relative error; raises AssertionError where it is too large."""
    torch = machine.torch
    wide = [x if n in case.indices else x.double() for n, x in enumerate(inputs)]
    want = case.torch(torch, *wide)
    assert tuple(found.shape) == tuple(want.shape), f"its shape is {tuple(found.shape)}, not {tuple(want.shape)}"
    tolerance = case.tolerance(machine.dtype(found))
    if not found.is_floating_point():
        wrong = int((found != want).sum())
        assert not wrong, f"{wrong} of {found.numel()} elements differ"
        return 0.0
    error = (found.double() - want).abs()
    if case.linear:
        sizes = case.torch(torch, *(x if n in case.indices else x.abs() for n, x in enumerate(wide))).abs()
        error = error / torch.maximum(sizes, sizes.new_tensor(1e-300))
    else:
        error = error / (want.abs().max() + 1e-300)
    worst = float(error.max())
    assert worst <= tolerance, f"the largest error is {worst:.2g} of its magnitude, allowed are {tolerance:.2g}"
    return worst


def peers(case: Case, machine: Any, wanted: Sequence[str]) -> dict[str, tuple[Callable[..., Any], Graphs | None]]:
    """Return what computes the case besides polyker, of the peers that are wanted."""
    torch = machine.torch
    found: dict[str, tuple[Callable[..., Any], Graphs | None]] = {}
    if "torch" in wanted:
        found["torch"] = (lambda *xs: case.torch(torch, *xs)), None
    if "triton" in wanted:
        found["triton"] = compiled_by_torch(case, torch)
    if "cupy" in wanted and case.einsum and case.unit == "f32":
        import cupy

        found["cupy"] = (lambda *xs: cupy.einsum(case.einsum, *map(cupy.from_dlpack, xs))), None
    return found


def measure(
    machine: Any, say: Say, *, name: str, added: Sequence[str], tiny: bool, rounds: int, wanted: Sequence[str]
) -> dict[str, Any]:
    """Return the figures of one case, times in seconds; raises AssertionError where the result is wrong."""
    case = case_named(name, added, tiny=tiny)
    machine.forget()
    machine.tf32(allowed=case.tf32)
    try:
        return _measured(case, machine, say, rounds, wanted)
    finally:
        machine.tf32(allowed=False)


def _measured(case: Case, machine: Any, say: Say, rounds: int, wanted: Sequence[str]) -> dict[str, Any]:
    say({"stage": "polyker compiled"})
    kernel = pk.op(case.text).compile(*case.types, target=machine.target)
    copies = min(_MOST_COPIES, max(1, -(-2 * machine.l2 // max(1, case.read))))
    try:
        inputs = [inputs_of(case, machine) for _ in range(copies)]
    except Skip as reason:
        raise Skip(f"{case.name}: {reason}") from None
    say({"stage": "polyker ran for the first time"})
    outs = [kernel(*inputs[0])]
    kernel.sync()
    outs = [machine.like(outs[0]) for _ in range(copies)]
    kernel(*inputs[0], out=outs[0])
    kernel.sync()
    figures: dict[str, Any] = {"dtype": machine.dtype(outs[0]), "unit": case.unit, "flop": case.flop, "notes": {}}
    if machine.computes:
        say({"stage": "the result was compared"})
        figures["error"] = checked(case, machine, inputs[0], outs[0])
    figures["moved"] = case.read + sum(map(_bytes, outs[:1]))
    say(figures)
    works = {"polyker": lambda n: kernel(*inputs[n % copies], out=outs[n % copies])}
    counted = {}
    for name, (work, graphs) in peers(case, machine, wanted).items():
        say({"stage": f"{name} ran for the first time"})
        try:
            work(*inputs[0])
            machine.sync()
        except Exception as error:  # whatever goes wrong there is not polyker's
            figures["notes"][name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
            continue
        works[name] = lambda n, work=work: work(*inputs[n % copies])
        if graphs is not None:
            counted[name] = graphs
    say({"stage": "it was timed"})
    for name, found in machine.timed(works, rounds).items():
        figures[name] = found.device
        if name == "polyker":
            figures["host"] = found.host
    for name, graphs in counted.items():
        breaks = machine.torch._dynamo.utils.counters["graph_break"]
        figures[f"{name} graphs"], figures[f"{name} breaks"] = graphs.count, sum(breaks.values())
        if not graphs.count:
            figures[f"{name} eager"] = figures.pop(name)
    if case.tf32:
        figures["notes"]["types"] = "torch in TF32, polyker in f32"
    return figures


def _bytes(array: Any) -> int:
    """Return the bytes of a dense array, of torch or not."""
    size = array.dtype.itemsize
    for extent in array.shape:
        size *= extent
    return int(size)


def copy_roof(machine: Any, say: Say, *, rounds: int) -> dict[str, Any]:
    """Return the rate of a copy."""
    return {"copy": machine.copy_rate(rounds)}


def fma_roof(machine: Any, say: Say, *, rounds: int) -> dict[str, Any]:
    """Return the rate of multiply-adds of f32."""
    return {"f32": machine.fma_rate(rounds)}


def matmul_roof(machine: Any, say: Say, *, dtype: str, rounds: int) -> dict[str, Any]:
    """Return the rate of torch's product of 8192^3, by tensor cores."""
    return {dtype: machine.matmul_rate(dtype, rounds)}
