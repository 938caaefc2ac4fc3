"""UNROLL loops that the emitter repeats: register tiles, whose copies differ in nothing but constants.

    unroll r in 0:6: unroll c in 0:4: vector v: acc[r, 8*c+v] += A[i+r, k] * B[k, j+8*c+v]

Such a nest stays one statement to the passes behind `unroll`, and its offsets are found once for all copies. What any of those
passes looks at copy by copy is repeated before: what a loop carries, folds into one cell, looked-up cells, vectors across rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polyker.codegen.kernel import (
    Buffer,
    Const,
    For,
    Kernel,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Prefetch,
    Shuffle,
    Stmt,
    Store,
    Var,
)
from polyker.codegen.polynomial import is_index, polynomial
from polyker.codegen.walk import expressions, names_in, statements, subexpressions


@dataclass(frozen=True, slots=True)
class Repeats:
    """Tells which UNROLL loops of a kernel the emitter repeats.

    `arrays`: the buffers that outlive the statements; `kept`: those of them that are both stored to and read; `bound`: names of
    values that statements bind.
    """

    arrays: Mapping[str, Buffer]
    kept: frozenset[str]
    bound: frozenset[str]

    def suits(self, loop: For, around: frozenset[str] = frozenset()) -> bool:
        """Whether a nest of UNROLL loops, in others over the variables `around`, has nothing in it but stores of vectors and
        requests for lines."""
        if loop.trip is None or not isinstance(loop.lo, Const):
            return False
        return all(self._may_be_in(s, around | {loop.var}) for s in loop.body)

    def _may_be_in(self, stmt: Stmt, unrolled: frozenset[str]) -> bool:
        match stmt:
            case For(kind=LoopKind.UNROLL):
                return self.suits(stmt, unrolled)
            case For():
                return self._is_row(stmt, unrolled)
            case Prefetch():
                return self._looks_nothing_up(stmt)
            case _:
                return False

    def _is_row(self, loop: For, unrolled: frozenset[str]) -> bool:
        """Whether a loop is a vector's, of as many cells as each copy of it tells, and stores them side by side."""
        if loop.kind is not LoopKind.VECTOR or loop.lanes < 2 or loop.lo != Const(0):
            return False
        if loop.trip is None and not _is_arithmetic(loop.hi, unrolled):
            return False
        asked = sum(isinstance(s, Prefetch) for s in loop.body)
        return all(
            self._is_beside(s, loop.var)
            if isinstance(s, Store)
            else isinstance(s, Prefetch) and n < asked and self._looks_nothing_up(s)
            for n, s in enumerate(loop.body)
        )

    def _is_beside(self, store: Store, lane: str) -> bool:
        if store.buffer in self.kept or not store.indices:
            return False
        buffer = self.arrays.get(store.buffer)
        if buffer is not None and buffer.strides[-1] != Const(1):
            return False
        *others, last = store.indices
        if polynomial(last).get((Var(lane),), 0) != 1 or any(lane in names_in(i) for i in others):
            return False
        loads = [e for e in subexpressions(store.value) if isinstance(e, Load)]
        return self._is_plain(store.indices, store.value) and all(all(map(is_index, e.indices)) for e in loads)

    def _looks_nothing_up(self, ahead: Prefetch) -> bool:
        loads = any(isinstance(e, Load) for i in ahead.indices for e in subexpressions(i))
        return not loads and self.bound.isdisjoint(names_in(*ahead.indices))

    def _is_plain(self, indices: tuple[KExpr, ...], *values: KExpr) -> bool:
        """Whether indices are arithmetic, and neither they nor values depend on what statements bind."""
        return all(map(is_index, indices)) and self.bound.isdisjoint(names_in(*indices, *values))


def _is_arithmetic(expr: KExpr, names: frozenset[str]) -> bool:
    """Whether an expression is one of constants and the named variables alone, so that it is a number in each copy."""
    nodes = list(subexpressions(expr))
    known = ("add", "sub", "mul", "neg", "minimum", "maximum", "floordiv", "mod")
    return all(
        isinstance(e, Const) or (isinstance(e, Var) and e.name in names) or (isinstance(e, Op) and e.op in known)
        for e in nodes
    )


def repeats_of(kernel: Kernel) -> Repeats:
    """Return what tells the nests of a kernel that its emitter repeats."""
    inside = list(statements(kernel.body))
    stored = {s.buffer for s in inside if isinstance(s, Store)}
    read = {e.buffer for s in inside for top in expressions(s) for e in subexpressions(top) if type(e) is Load}
    arrays = {b.name: b for b in kernel.buffers}
    bound = frozenset(s.name for s in inside if isinstance(s, Let | Shuffle))
    return Repeats(arrays, frozenset(stored & read & set(arrays)), bound)
