"""Simplification of the Kernel IR: canonical index expressions, unrolled loops, dead branches and loops removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyker.codegen.kernel import (
    Allocate,
    Block,
    Const,
    For,
    Guard,
    If,
    Kernel,
    KExpr,
    Let,
    LoopKind,
    Op,
    Stmt,
    Store,
    Var,
)
from polyker.codegen.polynomial import as_constant, constant, expression, plus, polynomial, scaled
from polyker.codegen.walk import rebuild
from polyker.ir.dtypes import bool_


def trip_count(loop: For) -> int | None:
    """Return the exact number of iterations where it is a constant."""
    if loop.trip is not None:
        return loop.trip
    length = as_constant(plus(polynomial(loop.hi), scaled(polynomial(loop.lo), -1)))
    return None if length is None else max(0, -(-length // loop.step))


def substitute(expr: KExpr, values: Mapping[str, KExpr]) -> KExpr:
    """Return the expression with variables replaced."""
    if isinstance(expr, Var):
        return values.get(expr.name, expr)
    return rebuild(expr, lambda e: substitute(e, values))


def _has_unroll(block: Block) -> bool:
    for stmt in block:
        match stmt:
            case For(kind=kind, body=body):
                if kind is LoopKind.UNROLL or _has_unroll(body):
                    return True
            case If(body=body, orelse=orelse):
                if _has_unroll(body) or _has_unroll(orelse):
                    return True
            case Allocate(body=body):
                if _has_unroll(body):
                    return True
            case _:
                pass
    return False


def unroll(kernel: Kernel) -> Kernel:
    """Return the kernel with the body of each UNROLL loop repeated.

    Before: `unroll i in lo:hi: S(i)`. After: `S(lo); S(lo+1); ...`, where the trip count is not constant each copy within
    `if lo+k < hi`. Later passes see no UNROLL loop.
    """
    if not _has_unroll(kernel.body):
        return kernel
    return replace(kernel, body=_Unroller().block(kernel.body, {}))


class _Unroller:
    def __init__(self) -> None:
        self._copies = 0

    def block(self, block: Block, values: dict[str, KExpr]) -> Block:
        """Return a block with variables replaced and UNROLL loops repeated; Lets of copies get names of their own."""
        result: list[Stmt] = []
        values = dict(values)
        for stmt in block:
            match stmt:
                case Let(name=name, value=value):
                    fresh = substitute(value, values)
                    if self._copies:
                        values[name] = Var(f"{name}.{self._copies}", value.dtype)
                        name = f"{name}.{self._copies}"
                    result.append(Let(name, fresh))
                case For(kind=LoopKind.UNROLL):
                    result.extend(self._repeat(stmt, values))
                case _:
                    result.append(self._statement(stmt, values))
        return tuple(result)

    def _statement(self, stmt: Stmt, values: dict[str, KExpr]) -> Stmt:
        match stmt:
            case Store(buffer=buffer, indices=indices, value=value):
                return Store(buffer, tuple(substitute(i, values) for i in indices), substitute(value, values))
            case Guard(condition=condition, code=code):
                return Guard(substitute(condition, values), code)
            case If(condition=condition, body=body, orelse=orelse):
                return If(substitute(condition, values), self.block(body, values), self.block(orelse, values))
            case For(var=var, lo=lo, hi=hi, body=body):
                inner = {k: v for k, v in values.items() if k != var}
                return replace(stmt, lo=substitute(lo, values), hi=substitute(hi, values), body=self.block(body, inner))
            case Allocate(buffer=buffer, body=body):
                return Allocate(buffer, self.block(body, values))
            case Let():
                raise AssertionError("Let is handled by its block")

    def _repeat(self, loop: For, values: dict[str, KExpr]) -> list[Stmt]:
        lo, hi = polynomial(substitute(loop.lo, values)), substitute(loop.hi, values)
        trip = trip_count(replace(loop, lo=expression(lo), hi=hi))
        result: list[Stmt] = []
        for k in range(loop.lanes if trip is None else trip):
            at = expression(plus(lo, constant(k * loop.step)))
            self._copies += 1
            copy = self.block(loop.body, {**values, loop.var: at})
            if trip is None:
                result.append(If(Op("lt", (at, hi), bool_), copy))
            else:
                result.extend(copy)
        return result


__all__ = ["Const", "substitute", "trip_count", "unroll"]
