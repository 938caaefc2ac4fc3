"""Integer expressions (subscripts, bounds, conditions), evaluated with Python's ints, and finite ranges of indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TypeAlias

from msgspec import Struct

from polyker.errors import failure
from polyker.errors.reference import CYCLIC, MISSING, NOT_INTEGER
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Range, Read, SizeExpr, walk

Env: TypeAlias = dict[str, int]
IntegerFunction: TypeAlias = Callable[[Env], int]
Gather: TypeAlias = Callable[[Read], IntegerFunction]

_PAIRS: dict[str, Callable[[int, int], int]] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
}  # fmt: skip


def indices_of(expr: Expr) -> tuple[str, ...]:
    """Return the names of the indices in an expression, each once, in the order of the text."""
    return tuple(dict.fromkeys(e.name for e in walk(expr) if isinstance(e, IndexExpr)))


def gathers(expr: Expr) -> bool:
    """Whether the expression reads a tensor."""
    return any(isinstance(e, Read) for e in walk(expr))


def of_indices(subscripts: Sequence[Expr]) -> Callable[[Env], tuple[int, ...]] | None:
    """Return the function from an environment to the values of subscripts that are indices alone, None for others."""
    names = [s.name for s in subscripts if isinstance(s, IndexExpr)]
    return itemgetter(*names) if len(names) == len(subscripts) > 1 else None


def integer(expr: Expr, sizes: Mapping[str, int], gather: Gather | None = None) -> IntegerFunction:
    """Return the function from an environment of index values to the value of an integer expression."""

    def part(e: Expr) -> IntegerFunction:
        return integer(e, sizes, gather)

    match expr:
        case Literal(value=int() as value):
            return lambda env: value
        case IndexExpr(name=name):
            return lambda env: env[name]
        case SizeExpr(name=name):
            if name not in sizes:
                raise failure(MISSING, span=expr.span, name=name)
            size = sizes[name]
            return lambda env: size
        case Read() if gather is not None:
            return gather(expr)
        case Cast(arg=arg, to=to) if to.is_integer or (to.kind == "b" and isinstance(arg, Literal)):
            return part(arg)
        case Call(op="neg" | "not", args=(arg,)):
            one = part(arg)
            return (lambda env: -one(env)) if expr.op == "neg" else (lambda env: not one(env))
        case Call(op="add", args=args):
            parts = [part(a) for a in args]
            if len(parts) == 2:
                a, b = parts
                return lambda env: a(env) + b(env)
            return lambda env: sum(p(env) for p in parts)
        case Call(op="mul" | "and" | "or" | "minimum" | "maximum", args=args):
            return _fold(expr.op, [part(a) for a in args])
        case Call(op=op, args=(left, right)) if op in _PAIRS:
            f, x, y = _PAIRS[op], part(left), part(right)
            return lambda env: f(x(env), y(env))
        case Call(op="floordiv" | "mod", args=args):
            return _divided(_PAIRS[expr.op], [part(a) for a in args])
    raise failure(NOT_INTEGER, span=getattr(expr, "span", None), what=type(expr).__name__.lower())


def _divided(step: Callable[[int, int], int], parts: list[IntegerFunction]) -> IntegerFunction:
    def divide(env: Env) -> int:
        out = parts[0](env)
        for p in parts[1:]:
            out = step(out, p(env))
        return out

    return divide


def _fold(op: str, parts: list[IntegerFunction]) -> IntegerFunction:
    match op:
        case "mul":

            def times(env: Env) -> int:
                out = 1
                for p in parts:
                    out *= p(env)
                return out

            return times
        case "and":
            return lambda env: all(p(env) for p in parts)
        case "or":
            return lambda env: any(p(env) for p in parts)
        case "minimum":
            return lambda env: min(p(env) for p in parts)
    return lambda env: max(p(env) for p in parts)


def affine(expr: Expr, sizes: Mapping[str, int]) -> tuple[dict[str, int], int] | None:
    """Return (coefficient of each index, constant) of an affine expression, None for any other."""
    match expr:
        case Literal(value=int() as value):
            return {}, value
        case IndexExpr(name=name):
            return {name: 1}, 0
        case SizeExpr(name=name) if name in sizes:
            return {}, sizes[name]
        case Call(op="neg", args=(arg,)):
            return _scaled(affine(arg, sizes), -1)
        case Call(op="add", args=args):
            coefficients: dict[str, int] = {}
            constant = 0
            for arg in args:
                term = affine(arg, sizes)
                if term is None:
                    return None
                constant += term[1]
                for name, c in term[0].items():
                    coefficients[name] = coefficients.get(name, 0) + c
            return {n: c for n, c in coefficients.items() if c}, constant
        case Call(op="mul", args=args):
            out: tuple[dict[str, int], int] | None = ({}, 1)
            for arg in args:
                term = affine(arg, sizes)
                if out is None or term is None or (out[0] and term[0]):
                    return None
                out = _scaled(term, out[1]) if not out[0] else _scaled(out, term[1])
            return out
    return None


def _scaled(term: tuple[dict[str, int], int] | None, by: int) -> tuple[dict[str, int], int] | None:
    return None if term is None else ({n: c * by for n, c in term[0].items() if c * by}, term[1] * by)


class Bounds(Struct, frozen=True):
    """The range `lo:hi` of an index, each a function of the indices in `needs`."""

    lo: IntegerFunction
    hi: IntegerFunction
    needs: tuple[str, ...]


def bounds_of(r: Range, sizes: Mapping[str, int]) -> Bounds:
    """Return an explicit range as functions."""
    if r.lo is None or r.hi is None:
        raise failure(MISSING, span=r.span, name=r.index)
    needs = tuple(dict.fromkeys((*indices_of(r.lo), *indices_of(r.hi))))
    return Bounds(integer(r.lo, sizes), integer(r.hi, sizes), needs)


IndexBounds: TypeAlias = Mapping[str, "Bounds | Sequence[int]"]


def closure(names: Sequence[str], ranges: IndexBounds) -> tuple[str, ...]:
    """Return the names with those that their ranges depend on, each after what it needs; the order given otherwise."""
    out: list[str] = []
    path: list[str] = []

    def visit(name: str) -> None:
        if name in out:
            return
        if name in path:
            raise failure(CYCLIC, indices=", ".join(path))
        path.append(name)
        r = ranges.get(name)
        for need in r.needs if isinstance(r, Bounds) else ():
            visit(need)
        path.pop()
        out.append(name)

    for n in names:
        visit(n)
    return tuple(out)


def values(r: Bounds | Sequence[int], env: Env) -> Sequence[int]:
    """Return the values of an index in ascending order."""
    return range(r.lo(env), r.hi(env)) if isinstance(r, Bounds) else r


def points(names: Sequence[str], ranges: IndexBounds, env: Env) -> Iterator[None]:
    """Set `env` to each point of the ranges of `names`, lexicographically in the order of `names`."""
    own = [n for n in closure([n for n in names if n not in env], ranges) if n not in env]
    wanted = [n for n in names if n in own]
    if own == wanted:
        yield from _nest(own, 0, ranges, env)
    else:
        found = []
        for _ in _nest(own, 0, ranges, env):
            found.append([env[n] for n in (*wanted, *(o for o in own if o not in wanted))])
        for point in sorted(found):
            env.update(zip((*wanted, *(o for o in own if o not in wanted)), point, strict=True))
            yield None
    for n in own:
        env.pop(n, None)


def _nest(names: list[str], depth: int, ranges: IndexBounds, env: Env) -> Iterator[None]:
    if depth == len(names):
        yield None
        return
    name, last = names[depth], depth == len(names) - 1
    for value in values(ranges[name], env):
        env[name] = value
        if last:
            yield None
        else:
            yield from _nest(names, depth + 1, ranges, env)
