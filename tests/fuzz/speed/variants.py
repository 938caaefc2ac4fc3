"""The ways to a program's values that are timed against each other, each compiled and bound to arrays of its own layout.

whole     the program for these sizes
parts     its statements one by one, each a kernel of its own, with all intermediates in memory
symbolic  the kernel for all sizes, as it is chosen for sizes like these
reversed  the dimensions of all tensors in the reverse order, and the indices of `for` where that gives the same values
strided   the program as it is, on the arrays of `reversed` by their strides
channels  the second dimension of tensors of three or more put last
numpy     NumPy's plain form
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field

import polyker as pk
from polyker.errors import PolykerError
from polyker.ir.dtypes import DTYPES, TensorType
from polyker.runtime.specialise import symbolic_types
from tests.fuzz.speed.program import Order, Program

LARGE, RUN = 4096, 16  # elements
Call = Callable[[], Any]
KINDS = {
    "fused": ("whole", "parts"), "symbolic": ("whole", "symbolic"),
    "layout": ("whole", "reversed", "strided", "channels"), "numpy": ("whole", "numpy"),
}  # fmt: skip


class Ways(Struct):
    """The calls by name; the seconds that each took to compile, why others were not compiled, and which values differ."""

    calls: dict[str, Call] = field(default_factory=dict)
    compiled: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    differs: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    program: Program | None = None  # with the types of intermediates, and their values
    between: dict[str, Any] = field(default_factory=dict)


def arrays_of(program: Program, seed: int = 0) -> dict[str, Any]:
    """Return random inputs: floats about zero that no recurrence lets grow, small integers, indices in bounds."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for name in program.inputs:
        value: Any
        t, shape = program.tensors[name], program.shape(name)
        if t.limit:
            value = rng.integers(0, program.extent(t.limit), shape)
        elif t.dtype[0] == "f":
            value = rng.uniform(0.1, 1.0, shape) * t.scale
        else:
            value = rng.integers(0, 100, shape)
        found[name] = np.ascontiguousarray(value, dtype=DTYPES[t.dtype].numpy)
    return found


def ways(program: Program, kinds: tuple[str, ...], arrays: Mapping[str, Any] | None = None) -> Ways:
    """Compile a program in the ways that these kinds compare."""
    found = Ways(arrays=dict(arrays or arrays_of(program)))
    wanted = {name for kind in kinds for name in KINDS[kind]}
    results = {}

    def add(name: str, make: Callable[[], Call], back: Callable[[Any], Any] = lambda a: a) -> None:
        began = time.process_time()
        try:
            call = make()
            results[name] = tuple(back(a) for a in _each(call()))
        except PolykerError as error:
            if name == "whole":
                raise
            found.refused[name] = f"{type(error).__name__}: {error}"
            return
        found.compiled[name], found.calls[name] = time.process_time() - began, call

    add("whole", lambda: _bound(program, found.arrays))
    add("parts", lambda: _one_by_one(program, found))
    if "parts" not in wanted or (len(program.units) == 1 and not program.units[0].steps):
        found.calls.pop("parts", None)
    if "symbolic" in wanted:
        add("symbolic", lambda: _bound(program, found.arrays, symbolic=True))
    if "layout" in kinds and _apart(program, _backwards):
        add("reversed", lambda: _reversed(program, found.arrays, results["whole"]), _by(_backwards))
        add("strided", lambda: _strided(program, found.arrays, results["whole"]))
    if "layout" in kinds and _apart(program, _second_last):
        add("channels", lambda: _bound(*_permuted(program, found.arrays, _second_last)), _by(_second_last))
    if "numpy" in wanted and program.like:
        add("numpy", lambda: _numpy(program.like, found.arrays))
    for name, values in results.items():
        problem = next((p for a, b in zip(results["whole"], values, strict=True) if (p := _differ(a, b))), "")
        if problem:
            found.differs[name] = problem
    return found


def _each(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def _bound(program: Program, arrays: Mapping[str, Any], symbolic: bool = False, out: Any = None) -> Call:
    """Return a call of a program on arrays, which leaves out what calls of Python cost."""
    op = pk.op(program.text)
    types = [TensorType(DTYPES[program.tensors[n].dtype], arrays[n].shape) for n in program.inputs]
    sizes: dict[str, Any] = {s: program.sizes[s] for s in program.free}
    kernel = op.compile(*symbolic_types(op.signature, types)) if symbolic else op.compile(*types, **sizes)
    return kernel.prepare(*(arrays[n] for n in program.inputs), out=out, **(sizes if symbolic else {}))


def _one_by_one(program: Program, found: Ways) -> Call:
    """Return a call of the statements one after the other."""
    calls: list[Call] = []
    arrays = dict(found.arrays)
    for n in range(len(program.units)):
        part = program.part(n, n + 1).typed({name: pk_type(a) for name, a in arrays.items()})
        call = _looped(part, arrays) or _bound(part, arrays)
        calls.append(call)
        arrays.update(zip(part.outputs, _each(call()), strict=True))
    found.program, found.between = program.typed({name: pk_type(a) for name, a in arrays.items()}), arrays
    results = tuple(arrays[n] for n in program.outputs)

    def call_all() -> tuple[Any, ...]:
        for call in calls:
            call()
        return results

    return call_all


def _looped(part: Program, arrays: Mapping[str, Any]) -> Call | None:
    """Return a call of a time loop's statements in turns; None where that takes a loop of the compiler's."""
    bodies = part.steps_of() if part.units[0].steps else None
    if bodies is None:
        return None
    (unit,) = part.units
    own = {w: np.array(arrays[w]) for w in unit.results}
    first = own[unit.results[0]]
    temporary = {b.outputs[0] for b in bodies} - set(own)
    own.update({w: np.zeros(part.shape(w), first.dtype) for w in temporary})
    held, begun = {**arrays, **own}, {w: arrays[w] for w in unit.results}
    bodies = tuple(b.typed({w: pk_type(a) for w, a in held.items()}) for b in bodies)
    calls = [_bound(b, held, out=held[b.outputs[0]]) for b in bodies]
    steps = part.extent(unit.steps)

    def call() -> tuple[Any, ...]:
        for name in unit.results:
            np.copyto(own[name], begun[name])
        for _ in range(steps):
            for c in calls:
                c()
        return tuple(own[name] for name in part.outputs)

    return call


def _strided(program: Program, arrays: Mapping[str, Any], results: tuple[Any, ...]) -> Call:
    """Return a call on arrays whose strides are those of the reverse order."""
    turned = {n: np.asfortranarray(a) for n, a in arrays.items()}
    out = tuple(np.empty(np.shape(r)[::-1], np.asarray(r).dtype).T for r in results)
    return _bound(program, turned, out=out if len(out) > 1 else out[0])


def _permuted(program: Program, arrays: Mapping[str, Any], order: Order) -> tuple[Program, dict[str, Any]]:
    turned = {n: np.ascontiguousarray(a.transpose(order(a.ndim))) for n, a in arrays.items() if n in program.inputs}
    return program.permuted(order), turned


def _reversed(program: Program, arrays: Mapping[str, Any], results: tuple[Any, ...]) -> Call:
    """Return a call of the program as it is written for the reverse order: with that of `for`, where this means the same."""
    turned, given = program.permuted(_backwards, turned=True), _permuted(program, arrays, _backwards)
    back = _by(_backwards)
    try:
        call = _bound(turned, given[1])
        if not any(_differ(a, back(b)) for a, b in zip(results, _each(call()), strict=True)):
            return call
    except PolykerError:
        pass  # a sweep that reads what it wrote in the order of the text
    return _bound(*given)


def _apart(program: Program, order: Order) -> bool:
    """Whether the order changes a layout, and leaves each large tensor runs in memory that fill a vector."""
    shapes = [program.shape(n) for n in program.tensors]
    runs = [s[order(len(s))[-1]] for s in shapes if len(s) > 1 and math.prod(s) > LARGE]
    return any(order(len(s)) != tuple(range(len(s))) for s in shapes) and min(runs, default=RUN) >= RUN


def _backwards(rank: int) -> tuple[int, ...]:
    return tuple(reversed(range(rank)))


def _second_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


def _by(order: Order) -> Callable[[Any], Any]:
    """Return what puts the dimensions back."""
    return lambda a: np.asarray(a).transpose(np.argsort(order(np.ndim(a))))


def _numpy(text: str, arrays: Mapping[str, Any]) -> Call:
    code = compile(text, "<like>", "eval")
    names = {"np": np, **arrays}
    return lambda: eval(code, names)


def pk_type(array: Any) -> str:
    """Return polyker's name of an array's element type."""
    dtype = np.asarray(array).dtype
    return next(n for n, d in DTYPES.items() if n != "bf16" and d.numpy == dtype)


def _differ(a: Any, b: Any) -> str:
    """Return how far values are apart beyond rounding, "" where they are not."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return f"shapes {a.shape} and {b.shape}"
    x, y = a.astype("f8"), b.astype("f8")
    size = np.abs(x[np.isfinite(x)]).max(initial=0.0)
    exact = a.dtype.kind in "iub"
    with np.errstate(all="ignore"):
        near = (x == y) if exact else np.isclose(x, y, rtol=2e-2, atol=1e-2 * size, equal_nan=True)
    wrong = 1 - near.mean() if near.size else 0.0
    # What is counted or chosen by comparison may go either way where floats are rounded.
    return f"{100 * wrong:.1f} % of the elements differ" if wrong > (0.02 if exact else 0) else ""
