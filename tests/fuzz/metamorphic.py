"""Metamorphic relations (oracle O7): a changed program or changed data whose result is known from the first one's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from polyker.ir.dtypes import DTYPES
from polyker.ir.expr import Call, Expr, IndexExpr, Literal, Range, Read, Reduce, rebuild, transform, walk
from polyker.ir.program import Loop, Node, Program, Statement
from polyker.structs import replace
from tests.fuzz.case import Case
from tests.fuzz.data import arrays_of
from tests.fuzz.oracles import parsed

Relation = Callable[[Case, Program, random.Random], tuple[Program, dict[str, Any], Callable[[Any], Any]] | None]


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether all elements are equal, NaN to NaN; numpy takes bf16's NaN for a number."""
    if a.dtype.kind == "V":
        a, b = a.astype("f4"), b.astype("f4")
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def check(case: Case, got: tuple[Any, ...], rng: random.Random) -> tuple[str, str]:
    """Return (problem, name of the relation tried); both empty where none applies."""
    import polyker as pk

    program = parsed(case.text)
    # The relations that seldom apply go first.
    for name in RELATIONS if rng.random() < 0.5 else rng.sample(list(RELATIONS), len(RELATIONS)):
        found = RELATIONS[name](case, program, rng)
        if found is None:
            continue
        changed, arrays, expected = found
        result = pk.op(changed)(**arrays, **dict(case.sizes))
        result = tuple(result) if len(changed.outputs) > 1 else (result,)
        for a, b in zip(result, got, strict=True):
            want = expected(b)
            if np.shape(a) != np.shape(want) or not _same(np.asarray(a), np.asarray(want)):
                return f"{changed}\ngives {a!r}\nwanted {want!r}", name
        return "", name
    return "", ""


def _each(
    nodes: tuple[Node, ...], change: Callable[[Statement], Statement | tuple[Statement, ...]]
) -> tuple[Node, ...]:
    out: list[Node] = []
    for n in nodes:
        if isinstance(n, Loop):
            out.append(replace(n, body=_each(n.body, change)))
        else:
            made = change(n)
            out.extend(made if isinstance(made, tuple) else (made,))
    return tuple(out)


def _everywhere(s: Statement, change: Callable[[Expr], Expr]) -> Statement:
    def bound(r: Range) -> Range:
        return replace(
            r,
            lo=None if r.lo is None else transform(r.lo, change),
            hi=None if r.hi is None else transform(r.hi, change),
        )

    return replace(
        s,
        subscripts=tuple(transform(e, change) for e in s.subscripts),
        expr=transform(s.expr, change),
        ranges=tuple(bound(r) for r in s.ranges),
        conditions=tuple(transform(e, change) for e in s.conditions),
    )


def rename(case: Case, program: Program, rng: random.Random) -> Any:
    """Call every index something else."""
    names = {e.name for s in program.statements() for e in _all(s) if isinstance(e, IndexExpr)}
    names |= {r.index for s in program.statements() for r in _ranges(s)}
    if not names or any(isinstance(n, Loop) for n in program.body):
        return None
    fresh = {n: f"zz_{k}" for k, n in enumerate(sorted(names, key=lambda _: rng.random()))}

    def change(e: Expr) -> Expr:
        match e:
            case IndexExpr(name=name):
                return replace(e, name=fresh[name])
            case Reduce(ranges=ranges):
                return replace(e, ranges=tuple(replace(r, index=fresh[r.index]) for r in ranges))
        return e

    def statement(s: Statement) -> Statement:
        s = _everywhere(s, change)
        return replace(s, ranges=tuple(replace(r, index=fresh[r.index]) for r in s.ranges))

    return replace(program, body=_each(program.body, statement)), arrays_of(case), lambda b: b


def _all(s: Statement) -> list[Expr]:
    exprs = [*s.subscripts, s.expr, *s.conditions]
    exprs += [b for r in s.ranges for b in (r.lo, r.hi) if b is not None]
    return [n for e in exprs for n in walk(e)]


def _ranges(s: Statement) -> list[Range]:
    parts = (s.expr, *s.conditions)
    return [*s.ranges, *(r for p in parts for e in walk(p) if isinstance(e, Reduce) for r in e.ranges)]


def transpose(case: Case, program: Program, rng: random.Random) -> Any:
    """Turn round the subscripts of everything that is written."""
    written = {s.target for s in program.statements()} - set(program.inputs)
    if program.declared or "..." in case.text or set(program.outputs) & set(program.inputs):
        return None

    def change(e: Expr) -> Expr:
        if isinstance(e, Read) and e.tensor in written:
            return replace(e, subscripts=e.subscripts[::-1])
        return e

    def statement(s: Statement) -> Statement:
        return replace(_everywhere(s, change), subscripts=s.subscripts[::-1] if s.target in written else s.subscripts)

    return replace(program, body=_each(program.body, statement)), arrays_of(case), lambda b: np.transpose(b)


def unit_axis(case: Case, program: Program, rng: random.Random) -> Any:
    """Add an axis of extent 1 to the output of a single statement."""
    (first, *rest) = program.body
    if rest or isinstance(first, Loop) or program.declared or "..." in case.text:
        return None
    if any(isinstance(e, Read) and e.tensor == first.target for e in walk(first.expr)):
        return None
    unit = Range("unit_", Literal(0), Literal(1))
    changed = replace(first, subscripts=(*first.subscripts, IndexExpr("unit_")), ranges=(*first.ranges, unit))
    return replace(program, body=(changed,)), arrays_of(case), lambda b: np.asarray(b)[..., None]


def split(case: Case, program: Program, rng: random.Random) -> Any:
    """Split a reduction in two, the second going on from the first."""
    (first, *rest) = program.body
    if rest or isinstance(first, Loop) or first.op == "set" or "range: window" in case.features:
        return None
    if any(isinstance(e, Read) and e.tensor == first.target for e in walk(first.expr)):
        return None
    left = {e.name for s in first.subscripts for e in walk(s) if isinstance(e, IndexExpr)}
    inner = {r.index for e in walk(first.expr) if isinstance(e, Reduce) for r in e.ranges}
    reduced = sorted({e.name for e in walk(first.expr) if isinstance(e, IndexExpr)} - left - inner)
    depends = {
        e.name for r in first.ranges for b in (r.lo, r.hi) if b is not None for e in walk(b) if isinstance(e, IndexExpr)
    }
    reduced = [n for n in reduced if n not in depends]
    if not reduced or case.acc or any(DTYPES[i.dtype].name in ("f16", "bf16") for i in case.inputs):
        return None
    k, at = IndexExpr(rng.choice(reduced)), Literal(rng.choice([1, 2, 3]))
    low = replace(first, conditions=(*first.conditions, Call("lt", (k, at))))
    high = replace(first, conditions=(*first.conditions, Call("ge", (k, at))))
    return replace(program, body=(low, high)), arrays_of(case), lambda b: b


def scale(case: Case, program: Program, rng: random.Random) -> Any:
    """Multiply one factor of a product by a power of two."""
    (first, *rest) = program.body
    if rest or isinstance(first, Loop) or first.op not in ("set", "add", "max", "min"):
        return None
    if any(isinstance(e, Read) for c in (first, *_inner(first)) for p in c.conditions for e in walk(p)):
        return None  # what is admitted would be scaled, too
    factors = _factors(first.expr)
    if not all(isinstance(f, Read) and f.pad is None for f in factors) or first.target in program.inputs:
        return None
    types = {i.name: i for i in case.inputs}
    names = [f.tensor for f in factors if isinstance(f, Read)]
    if len(set(names)) < len(names) or not all(
        n in types and types[n].dtype in ("f32", "f64", "c64", "c128") for n in names
    ):
        return None
    arrays = arrays_of(case)
    name = rng.choice(names)
    if not isinstance(arrays[name], np.ndarray):
        return None
    arrays[name] = arrays[name] * arrays[name].dtype.type(0.25)
    return program, arrays, lambda b: np.asarray(b) * np.asarray(b).dtype.type(0.25)


def _inner(statement: Statement) -> list[Reduce]:
    return [e for e in walk(statement.expr) if isinstance(e, Reduce)]


def _factors(expr: Expr) -> list[Expr]:
    """Return the factors of a product, through negations and sums over inner indices."""
    match expr:
        case Call(op="mul", args=args):
            return [f for a in args for f in _factors(a)]
        case Call(op="neg", args=(arg,)) | Reduce(op="sum", body=arg):
            return _factors(arg)
    return [expr]


RELATIONS: dict[str, Relation] = {
    "scale": scale,
    "split": split,
    "unit axis": unit_axis,
    "transpose": transpose,
    "rename": rename,
}

__all__ = ["RELATIONS", "check", "rebuild"]
