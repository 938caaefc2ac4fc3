"""polyker and its peers, each as something that can be called without arguments, on the same arrays."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from msgspec import Struct

from benchmarks.case import Array, Problem, Spelling, empty
from benchmarks.loops import compiled

# peer -> the module and distribution that it comes from
DISTRIBUTIONS = {
    "numpy": "numpy", "torch": "torch", "torch.compile": "torch", "jax": "jax", "tblis": "pytblis", "numba": "numba",
}  # fmt: skip
PEERS = tuple(DISTRIBUTIONS)
CLEAR = 0x7F  # the byte that an array is filled with before it is checked: no result looks like it


class Contestant(Struct, frozen=True):
    """A prepared call. `out`: the array that `call` writes, None where it returns a new one; `compile`: seconds, if any."""

    name: str
    call: Callable[[], Any]
    out: Array | None = None
    compile: float | None = None

    def result(self) -> Array:
        """Return the result of a call as numpy's array; what the array held before is gone."""
        if self.out is not None:
            self.out.reshape(-1).view(np.uint8).fill(CLEAR)
        return np.asarray(self.call())


def polyker(problem: Problem, arrays: Sequence[Array]) -> Contestant:
    """Return polyker: a prepared kernel, writing into `out`; compile time is cold, from text to callable."""
    import polyker as pk

    start = time.perf_counter()
    types = {o.name: getattr(pk, o.dtype)[o.shape] for o in problem.inputs}
    kernel = pk.op(problem.text, **problem.fixed).compile(**types)
    seconds = time.perf_counter() - start
    out = empty(problem.output.shape, problem.output.dtype)
    return Contestant("polyker", partial(kernel, *arrays, out=out), out, seconds)


def warm_up() -> None:
    """Compile something, so that no case's time to compile has the imports in it."""
    import polyker as pk

    pk.op("s += x[i]").compile(x=pk.f32[8])


def peer(name: str, problem: Problem, arrays: Sequence[Array]) -> Contestant | None:
    """Return a peer, ready to be called; None where the problem has no spelling for it.

    Raises whatever the peer raises.
    """
    spelling = problem.spellings.get("torch" if name == "torch.compile" else name)
    return None if spelling is None else MAKERS[name](spelling, problem, arrays)


def available(names: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the versions of the peers that import, and why the others do not."""
    versions, missing = {}, {}
    for name in names:
        try:
            importlib.import_module(DISTRIBUTIONS[name])
            versions[name] = importlib.metadata.version(DISTRIBUTIONS[name])
        except ImportError as error:
            missing[name] = str(error)
    return versions, missing


def _numpy(spelling: Spelling, problem: Problem, arrays: Sequence[Array]) -> Contestant:
    out = empty(problem.output.shape, problem.output.dtype)
    return Contestant("numpy", partial(spelling, np, *arrays, out=out), out)


def _tblis(spelling: Spelling, problem: Problem, arrays: Sequence[Array]) -> Contestant:
    import pytblis

    out = empty(problem.output.shape, problem.output.dtype)
    return Contestant("tblis", partial(spelling, pytblis, *arrays, out=out), out)


def _numba(spelling: Spelling, problem: Problem, arrays: Sequence[Array]) -> Contestant:
    import numba

    out = empty(problem.output.shape, problem.output.dtype)
    call = partial(spelling, compiled(numba), *arrays, out=out)
    return Contestant("numba", call, out, _first(call))


@cache
def _torch_module() -> Any:
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.set_grad_enabled(False)
    return torch


def _torch(spelling: Spelling, problem: Problem, arrays: Sequence[Array]) -> Contestant:
    torch = _torch_module()
    out = empty(problem.output.shape, problem.output.dtype)
    tensors = [torch.from_numpy(a) for a in arrays]
    return Contestant("torch", partial(spelling, torch, *tensors, out=torch.from_numpy(out)), out)


def _torch_compile(spelling: Spelling, problem: Problem, arrays: Sequence[Array]) -> Contestant:
    torch = _torch_module()

    def function(*tensors: Any) -> Any:
        return spelling(torch, *tensors, out=None)

    torch._dynamo.reset()  # or it would make one kernel for many shapes
    call = partial(torch.compile(function, dynamic=False), *(torch.from_numpy(a) for a in arrays))
    return Contestant("torch.compile", call, None, _first(call))


@cache
def _jax_module() -> Any:
    import jax

    jax.config.update("jax_enable_x64", True)
    # The caller waits for every result, so a second thread would only cost.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return jax


def _jax(spelling: Spelling, problem: Problem, arrays: Sequence[Array]) -> Contestant:
    jax = _jax_module()
    function = jax.jit(lambda *xs: spelling(jax, *xs, out=None))
    inputs = [jax.device_put(a) for a in arrays]

    def call() -> Any:
        return function(*inputs).block_until_ready()

    return Contestant("jax", call, None, _first(call))


def _first(call: Callable[[], Any]) -> float:
    """Return what the first call took longer than the second: the time to compile."""
    start = time.perf_counter()
    call()
    middle = time.perf_counter()
    call()
    return max(0.0, middle - start - (time.perf_counter() - middle))


MAKERS: dict[str, Callable[[Spelling, Problem, Sequence[Array]], Contestant]] = {
    "numpy": _numpy, "torch": _torch, "torch.compile": _torch_compile, "jax": _jax, "tblis": _tblis, "numba": _numba,
}  # fmt: skip
