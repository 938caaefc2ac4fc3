"""The operators that `polyker demo` runs: the data files as values, and the rules that scale their sizes."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from importlib import resources
from typing import Any

import numpy as np
from msgspec import Struct, field

from polyker.cli.demo_numpy import SPELLINGS, Outputs

CONTRACTION_FLOP = 0.3e9
QUICK_ELEMENTS = 40_000
QUICK_FLOP = 1e6


class Case(Struct, frozen=True):
    """One operator at one shape.

    `arrays`: (parameter, dtype name, shape); `fixed`: sizes for `pk.op`; `arguments`: sizes for the call; `bounds`:
    integer tensor -> its values lie in 0:bound; `values`: scalar inputs; `lengths`: the chained reductions' lengths;
    `degree`: how many input values one term multiplies; `exact`: whether the operator only sums products.
    """

    id: str
    text: str
    arrays: tuple[tuple[str, str, tuple[int, ...]], ...]
    sizes: Mapping[str, int]
    numpy: Callable[..., Outputs]
    lengths: tuple[int, ...]
    degree: int
    exact: bool = True
    status: str = "published"
    einsum: str | None = None
    fixed: Mapping[str, int] = field(default_factory=dict)
    arguments: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    positive: frozenset[str] = frozenset()

    def shape(self) -> str:
        """Return the sizes as text, such as `M=128 K=64`."""
        return " ".join(f"{k}={v}" for k, v in self.sizes.items())


def load(*, dtype: str = "f32", quick: bool = False, every_shape: bool = False) -> list[Case]:
    """Return all cases: the operators at the demo's shape (or at each), then the contractions."""
    cases = operators(dtype, every_shape=every_shape, elements=QUICK_ELEMENTS if quick else None)
    for row in read_data("contractions.json")["contractions"]:
        sizes = scale_contraction(row[dtype], QUICK_FLOP if quick else CONTRACTION_FLOP)
        cases.append(contraction(row, sizes, dtype))
    return cases


def operators(dtype: str, *, every_shape: bool = False, elements: int | None = None) -> list[Case]:
    """Return the operators, scaled down to at most `elements` elements of input where given."""
    cases = []
    for row in read_data("operators.json")["operators"]:
        shapes = row["shapes"] if every_shape else [row["shapes"][row.get("demo", 0)]]
        found = [_operator(row, shape, dtype, elements) for shape in shapes]
        # Published shapes may differ only in sizes that this operator lacks.
        cases += [case for n, case in enumerate(found) if case.sizes not in [c.sizes for c in found[:n]]]
    return cases


def read_data(name: str) -> Any:
    """Return a data file of the project as plain values."""
    return json.loads((resources.files("polyker.data") / name).read_text(encoding="utf-8"))


def _operator(row: dict[str, Any], shape: dict[str, Any], dtype: str, elements: int | None) -> Case:
    types = {name: _split(text) for name, text in row["parameters"].items()}
    fixed = tuple(row.get("fixed", ()))
    used = {d for _, dims in types.values() for d in dims if not d.isdigit()}
    used |= {*row.get("arguments", {}).values(), *row.get("indices", {}).values()}
    sizes = {k: v for k, v in shape["sizes"].items() if k in used}
    if elements is not None:
        sizes = scale_down(sizes, [dims for _, dims in types.values()], elements)
    steps = {k: shape["sizes"][k] for k in fixed}
    numpy = SPELLINGS[row["id"]]
    return Case(
        id=row["id"],
        text="\n".join(row["text"]).replace("f32[", dtype + "["),
        arrays=tuple(
            (name, dtype if d == "f32" else d, tuple(_extent(x, sizes) for x in dims))
            for name, (d, dims) in types.items()
        ),
        sizes=sizes | steps,
        numpy=partial(numpy, **steps) if steps else numpy,
        lengths=tuple(math.prod(sizes[k] for k in group) for group in row["reduced"]),
        degree=row["degree"],
        exact=row.get("compare", "exact") == "exact",
        status=shape["status"],
        fixed=steps,
        arguments={k: sizes[v] for k, v in row.get("arguments", {}).items()},
        bounds={k: sizes[v] for k, v in row.get("indices", {}).items()},
        values=row.get("values", {}),
        positive=frozenset(row.get("positive", ())),
    )  # fmt: skip


def contraction(row: Mapping[str, Any], sizes: Mapping[str, int], dtype: str) -> Case:
    """Return a contraction of the data file at the given sizes."""
    inputs, output = row["einsum"].split("->")
    left, right = inputs.split(",")
    target, a, b = (",".join(labels) for labels in (output, left, right))
    return Case(
        id=row["id"],
        text=f"C[{target}] += A[{a}] * B[{b}]",
        arrays=tuple((name, dtype, tuple(sizes[x] for x in labels)) for name, labels in (("A", left), ("B", right))),
        sizes=sizes,
        numpy=lambda A, B: np.einsum(row["einsum"], A, B, optimize=True),
        lengths=(math.prod(sizes[x] for x in {*left, *right} - {*output}),),
        degree=2,
        status="reduced",
        einsum=row["einsum"],
    )


def _split(text: str) -> tuple[str, list[str]]:
    dtype, _, dims = text.removesuffix("]").partition("[")
    return dtype, [d for d in dims.split(",") if d]


def _extent(dim: str, sizes: Mapping[str, int]) -> int:
    return int(dim) if dim.isdigit() else sizes[dim]


def scale_contraction(sizes: Mapping[str, int], flop: float) -> dict[str, int]:
    """Return the sizes scaled down together to as near `flop` operations (2 a term) as they come.

    The index that has shrunk least loses 8 (4 where its size is no multiple of 8) until the number fits, so multiples
    of 8 stay multiples of 8.

    >>> scale_contraction({"a": 384, "b": 384, "c": 24, "d": 384}, 0.3e9)
    {'a': 248, 'b': 248, 'c': 8, 'd': 256}
    """
    grains = {k: math.gcd(v, 8) for k, v in sizes.items()}
    scaled = [dict(sizes)]
    while 2 * math.prod(scaled[-1].values()) > flop:
        now = scaled[-1]
        shrinkable = [k for k in now if now[k] > grains[k]]
        if not shrinkable:
            break
        least = max(shrinkable, key=lambda k: now[k] / sizes[k])
        scaled.append(now | {least: now[least] - grains[least]})
    return min(scaled[-2:], key=lambda s: abs(math.log(2 * math.prod(s.values()) / flop)))


def scale_down(sizes: Mapping[str, int], shapes: list[list[str]], elements: int) -> dict[str, int]:
    """Return the sizes, scaled down by one factor until the arrays have at most `elements` elements; none falls below 4."""

    def scaled(factor: float) -> dict[str, int]:
        return {k: max(min(v, 4), int(v * factor)) for k, v in sizes.items()}

    def total(s: dict[str, int]) -> int:
        return sum(math.prod(_extent(d, s) for d in dims) for dims in shapes)

    first = bisect_left(_FACTORS, -elements, key=lambda factor: -total(scaled(factor)))
    return scaled(_FACTORS[min(first, len(_FACTORS) - 1)])


_FACTORS = [f / 2048 for f in range(2048, 0, -1)]
