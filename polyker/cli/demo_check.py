"""What `polyker demo` checks of each operator: exact data bit by bit, and random data against a wider reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from polyker.cli.demo_cases import Case
from polyker.cli.demo_numpy import Array, Outputs
from polyker.ir.dtypes import DTYPES

WIDER = {"float32": np.float64, "float64": np.longdouble}
SAMPLES = 4


class Verdict(Struct, frozen=True):
    """Largest error and what is allowed, both relative to the output's largest value; `detail` says what failed."""

    error: float
    allowed: float
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not self.detail


def random_inputs(case: Case, seed: int = 0) -> dict[str, Any]:
    """Return the arguments with random values: normal, uniform in 0.5 to 1.5 where they have to be positive."""
    rng = np.random.default_rng(seed)
    arguments: dict[str, Any] = {}
    for name, dtype, shape in case.arrays:
        kind = DTYPES[dtype].numpy
        if name in case.bounds:
            arguments[name] = rng.integers(0, case.bounds[name], shape, dtype=kind)
        elif name in case.values:
            arguments[name] = np.full(shape, case.values[name], dtype=kind)
        elif name in case.positive:
            arguments[name] = rng.random(shape, dtype=kind.type) + kind.type(0.5)
        else:
            arguments[name] = rng.standard_normal(shape, dtype=kind.type)
    return arguments | dict(case.arguments)


def exact_inputs(case: Case) -> dict[str, Any] | None:
    """Return integer-valued arguments that code their position, so small that every sum is exact; None if none is."""
    kind = next(DTYPES[dtype].numpy for name, dtype, _ in case.arrays if name not in case.bounds)
    limit = 2 ** (np.finfo(kind).nmant + 1)
    terms = 4 * math.prod(case.lengths)  # the factor 4 leaves room for biases
    largest = next((m for m in range(9, 0, -1) if terms * m**case.degree < limit), None)
    if largest is None or not case.exact:
        return None
    arguments = random_inputs(case)
    for seed, (name, dtype, shape) in enumerate(case.arrays):
        if name not in case.bounds:
            code = np.arange(seed + 1, seed + 1 + math.prod(shape), dtype=np.uint32)
            code *= np.uint32(2654435761)  # Knuth's multiplicative hash: neighbours differ, no short period
            code >>= np.uint32(16)
            code %= np.uint32(2 * largest + 1)
            arguments[name] = (code.astype(DTYPES[dtype].numpy) - largest).reshape(shape)
    return arguments


def outputs(value: Outputs) -> tuple[Array, ...]:
    """Return the outputs as a tuple of arrays."""
    return tuple(np.asarray(v) for v in value) if isinstance(value, tuple) else (np.asarray(value),)


def compare_exact(got: Outputs, expected: Outputs) -> str:
    """Return what differs, bit by bit, or an empty text."""
    for number, (a, b) in enumerate(zip(outputs(got), outputs(expected), strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {number} is {a.dtype}{list(a.shape)}, NumPy's {b.dtype}{list(b.shape)}"
        if not np.array_equal(a, b):
            where = tuple(int(i[0]) for i in np.nonzero(a != b))
            share = np.count_nonzero(a != b)
            return f"exact data: {share} elements of output {number} differ, first {where}: {a[where]} for {b[where]}"
    return ""


def compare_random(case: Case, arguments: Mapping[str, Any], got: Outputs, peer: Outputs) -> Verdict:
    """Compare outputs on random data with a wider reference: within gamma_n, or 4 times NumPy's own error."""
    if case.einsum is not None:
        return _compare_contraction(case, arguments, outputs(got)[0])
    wide = {k: _widen(v) for k, v in arguments.items()}
    reference = outputs(case.numpy(**wide))
    if not case.exact:
        return _compare_with_peer(outputs(got), outputs(peer), reference)
    for v in wide.values():
        if isinstance(v, np.ndarray) and v.dtype.kind == "f":
            np.abs(v, out=v)
    bound = outputs(case.numpy(**wide))
    return _compare_with_bound(case, outputs(got), reference, bound)


def _widen(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return value.astype(WIDER[value.dtype.name])
    return value


def _compare_contraction(case: Case, arguments: Mapping[str, Any], got: Array) -> Verdict:
    """Compare sampled slices (a few positions of every output index; all where cheap) of a two-operand contraction."""
    assert case.einsum is not None
    inputs, labels = case.einsum.split("->")
    a, b = inputs.split(",")
    picked: dict[str, Any] = {}
    if got.dtype == np.float64:  # longdouble products are slow: a few positions of each index
        rng = np.random.default_rng(1)
        picked = {x: np.unique(rng.integers(0, case.sizes[x], SAMPLES)) for x in labels}

    def slices(tensor: Array, names: str) -> Array:
        everything = {x: np.arange(case.sizes[x]) for x in names}
        part: Array = tensor[np.ix_(*({**everything, **picked}[x] for x in names))] if picked else tensor
        return part

    left, right = (_widen(slices(arguments[n], labels)) for n, labels in (("A", a), ("B", b)))
    optimize = got.dtype == np.float32
    reference = np.einsum(case.einsum, left, right, optimize=optimize)
    bound = np.einsum(case.einsum, np.abs(left), np.abs(right), optimize=optimize)
    return _compare_with_bound(case, (slices(got, labels),), (reference,), (bound,))


def _compare_with_bound(
    case: Case, got: tuple[Array, ...], reference: tuple[Array, ...], bound: tuple[Array, ...]
) -> Verdict:
    """Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1: |error| <= gamma_n * sum |a||b|."""
    steps = sum(case.lengths) + 3 * len(case.lengths)
    worst = Verdict(0.0, 0.0)
    for number, (x, exact, total) in enumerate(zip(got, reference, bound, strict=True)):
        if x.shape != exact.shape:
            return Verdict(math.inf, 0.0, f"output {number} has shape {x.shape}, the reference {exact.shape}")
        unit = float(np.finfo(x.dtype).eps) / 2
        scale = float(np.max(np.abs(exact), initial=0.0)) or 1.0
        # Where long double is no wider than double, the reference errs by as much.
        gamma = steps * unit / (1 - steps * unit) * (2 if np.finfo(exact.dtype).eps == np.finfo(x.dtype).eps else 1)
        error = np.abs(x - exact)
        limit = gamma * total
        largest, allowed = float(np.max(error, initial=0.0)) / scale, float(np.max(limit, initial=0.0)) / scale
        if not np.all(error <= limit):  # NaN is not within any bound
            share = np.count_nonzero(~(error <= limit))
            return Verdict(largest, allowed, f"{share} elements of output {number} are outside gamma_n")
        if largest >= worst.error:
            worst = Verdict(largest, allowed)
    return worst


def _compare_with_peer(got: tuple[Array, ...], peer: tuple[Array, ...], reference: tuple[Array, ...]) -> Verdict:
    worst = Verdict(0.0, 0.0)
    for number, (x, y, exact) in enumerate(zip(got, peer, reference, strict=True)):
        if x.shape != exact.shape:
            return Verdict(math.inf, 0.0, f"output {number} has shape {x.shape}, the reference {exact.shape}")
        scale = float(np.max(np.abs(exact), initial=0.0)) or 1.0
        unit = float(np.finfo(x.dtype).eps) / 2
        error, theirs = (float(np.max(np.abs(v - exact), initial=0.0)) / scale for v in (x, y))
        allowed = 4 * max(theirs, unit)  # no evaluation can be asked to be nearer than half a unit in the last place
        if not error <= allowed:
            return Verdict(error, allowed, f"output {number} errs by {error:.2g}, over 4 times NumPy's {theirs:.2g}")
        if error >= worst.error:
            worst = Verdict(error, allowed)
    return worst
