"""Batches and parts of random programs, by the interpreter: `python -m tests.bridge.random_programs --programs 2000 --seed 1`.

A batched program has to compute what the program does for each of the batch. What a sharding rule splits has to give, part by
part, what the whole gives.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import polyker as pk
from polyker.bridge.batched import batched
from polyker.bridge.splitting import split_rule
from polyker.errors import InternalError, PolykerError
from polyker.ir.dtypes import DTYPES
from polyker.ir.program import Program
from polyker.reference import interpret
from tests.fuzz.case import Case
from tests.fuzz.judging import main

COMBINED = {"add": np.add, "max": np.maximum, "min": np.minimum}


def _run(program: Program, arrays: Sequence[Any], sizes: dict[str, int]) -> list[Any]:
    with np.errstate(all="ignore"):
        given = dict(zip(program.inputs, arrays, strict=True))
        return [np.asarray(r) for r in interpret(program, given, sizes)]


def _arguments(case: Case, program: Program, seed: int) -> list[Any]:
    rng, found = np.random.default_rng([case.number, seed]), {}
    for i in case.inputs:
        dtype = DTYPES[i.dtype].numpy
        small = rng.integers(0, max(1, i.limit or 3), i.shape)
        found[i.name] = np.asarray(small if dtype.kind in "iub" else rng.standard_normal(i.shape)).astype(dtype)
    return [found[name] for name in program.inputs]


def _same(found: Any, wanted: Any) -> bool:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    exact = wanted.dtype.kind in "iub"
    rtol = 0 if exact else 3e-2 if wanted.dtype.itemsize == 2 else 1e-4
    return bool(np.allclose(found, wanted, rtol=rtol, atol=rtol, equal_nan=True))


def _made(case: Case) -> tuple[pk.Operator, dict[str, int]]:
    """Return the operator of a case and its sizes."""
    return pk.op(case.text, **(dict(case.sizes) if case.early else {})), dict(case.sizes)


def batch(case: Case) -> str:
    """Return what came of a batch of two: "batched", or "WRONG" with what differs."""
    operator, sizes = _made(case)
    program, rng = operator.program, np.random.default_rng(case.number)
    first, second = (_arguments(case, program, seed) for seed in (0, 1))
    chosen = [n for n in program.inputs if rng.random() < 0.6] or list(program.inputs[:1])
    pairs = [(a, b if n in chosen else a) for n, a, b in zip(program.inputs, first, second, strict=True)]
    try:
        wanted = [_run(program, [p[k] for p in pairs], sizes) for k in range(2)]
    except InternalError:
        raise
    except PolykerError as error:
        return f"refused {error.code}"
    axes = {n: int(rng.integers(0, a.ndim + 1)) for n, a in zip(program.inputs, first, strict=True) if n in chosen}
    made = batched(program, axes)
    if made is None:
        return "not batched"
    arrays = []
    for name, (a, b) in zip(program.inputs, pairs, strict=True):
        if name in made.tensors:
            arrays.append(np.stack([a, b], 0 if name in program.outputs else axes[name]))
        else:
            arrays.append(a)
    found = _run(pk.op(made.text, **operator.fixed).program, arrays, sizes)
    for n, f, one, two in zip(program.outputs, found, *wanted, strict=True):
        if not _same(f, np.stack([one, two]) if n in made.tensors else one):
            return f"WRONG: {n} of a batch of {axes}\n{made.text}"
    return "batched"


def split(case: Case) -> str:
    """Return what came of parts: "split", "whole", or "WRONG" with what differs."""
    operator, sizes = _made(case)
    program, arrays = operator.program, _arguments(case, operator.program, 0)
    whole = _run(program, arrays, sizes)
    ranks = {n: a.ndim for n, a in zip((*program.inputs, *program.outputs), (*arrays, *whole), strict=True)}
    rule = split_rule(program, operator.fixed, ranks)
    if rule is None:
        return "no rule"
    rule = rule.for_shapes([a.shape for a in arrays], [w.shape for w in whole])
    rows = [*zip(rule.inputs, arrays, strict=True), *zip(rule.outputs, whole, strict=True)]
    extents = {f: n for row, a in rows for f, n in zip(row, a.shape, strict=True)}
    factors = [f for f, n in extents.items() if f not in rule.whole and n > 1]
    for factor in factors:
        parts = []
        for part in (slice(0, extents[factor] // 2), slice(extents[factor] // 2, None)):
            own = [
                a[tuple(part if f == factor else slice(None) for f in row)]
                for row, a in zip(rule.inputs, arrays, strict=True)
            ]
            parts.append(_run(program, own, sizes))
        for k, (row, wanted) in enumerate(zip(rule.outputs, whole, strict=True)):
            one, two = (p[k] for p in parts)
            combine = rule.reduced.get(factor, {}).get(k)
            if factor in row:
                found = np.concatenate([one, two], row.index(factor))
            elif combine is not None:
                found = COMBINED[combine](one, two).astype(wanted.dtype)
            else:
                found = one
                if not _same(one, two):
                    return f"WRONG: parts over {factor} of {rule} differ in output {k}"
            if not _same(found, wanted):
                return f"WRONG: output {k} in parts over {factor} of {rule}"
    return "split" if factors else "whole"


JUDGES = (batch, split)

if __name__ == "__main__":
    sys.exit(main(__doc__, JUDGES))
