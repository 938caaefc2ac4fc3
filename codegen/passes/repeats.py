"""Tell which UNROLL loops the emitter repeats: register tiles whose copies differ in constants alone.

    unroll r in 0:6: unroll c in 0:4: vector v: acc[r, 8*c+v] += A[i+r, k] * B[k, j+8*c+v]

Such a nest stays one statement to the passes after `unroll`, and its offsets are found once for all copies. Nests that one of
those passes has to see copy by copy are unrolled before: loop-carried elements, folds into one element, gathers, and vectors with
one row a lane.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from polyker.codegen.ir.kernel import (
    Buffer,
    Const,
    For,
    KernelIR,
    KExpr,
    Let,
    LoopKind,
    Prefetch,
    Shuffle,
    Stmt,
    Store,
    Var,
)
from polyker.codegen.ir.polynomial import is_index, polynomial, same_element
from polyker.codegen.ir.walk import expressions, loads_in, names_in, statements
from polyker.ir.dtypes import i64
from polyker.structs import replace


class UnrollRepeats(Struct, frozen=True):
    """Tells which UNROLL loops of a kernel the emitter repeats.

    `arrays`: the buffers that outlive the statements; `kept`: those of them that are stored to and read elsewhere than in the
    element that is stored; `bound`: names of values that statements bind.
    """

    arrays: Mapping[str, Buffer]
    kept: frozenset[str]
    bound: frozenset[str]

    def suits(self, loop: For) -> bool:
        """Whether a nest of UNROLL loops has nothing in it but stores of vectors, numbers that these share, and requests for
        lines."""
        if not isinstance(loop.lo, Const) or (loop.trip is None and not self._is_arithmetic(loop.hi)):
            return False
        own = {s.name for s in loop.body if isinstance(s, Let)}
        inside = replace(self, bound=self.bound - own) if own else self
        return all(inside._may_be_in(s) for s in loop.body)

    def _may_be_in(self, stmt: Stmt) -> bool:
        match stmt:
            case For(kind=LoopKind.UNROLL):
                return self.suits(stmt)
            case For():
                return self._is_row(stmt)
            case Let(value=value):
                return value.dtype != i64 and self._looks_nothing_up(value)
            case Prefetch(indices=indices):
                return self._is_arithmetic(*indices)
            case _:
                return False

    def _is_row(self, loop: For) -> bool:
        """Whether a loop is a vector's that stores its elements side by side."""
        if loop.kind is not LoopKind.VECTOR or loop.lanes < 2 or loop.lo != Const(0):
            return False
        if loop.trip is None and not self._is_arithmetic(loop.hi):
            return False
        prefetches = sum(isinstance(s, Prefetch) for s in loop.body)
        return all(
            self._is_beside(s, loop.var)
            if isinstance(s, Store)
            else isinstance(s, Prefetch) and n < prefetches and self._begins(s, loop.var)
            for n, s in enumerate(loop.body)
        )

    def _begins(self, prefetches: Prefetch, lane: str) -> bool:
        """Whether a request in a vector loop is for its first lane's line: the place moves with the lanes or not at all."""
        atoms = (a for i in prefetches.indices for m in polynomial(i) for a in m if a != Var(lane))
        return self._is_arithmetic(*prefetches.indices) and not any(lane in names_in(a) for a in atoms)

    def _is_beside(self, store: Store, lane: str) -> bool:
        if store.buffer in self.kept or not store.indices:
            return False
        buffer = self.arrays.get(store.buffer)
        if buffer is not None and buffer.strides[-1] != Const(1):
            return False
        *others, last = store.indices
        if polynomial(last).get((Var(lane),), 0) != 1 or any(lane in names_in(i) for i in others):
            return False
        places = [store.indices, *(e.indices for e in loads_in(store.value))]
        return all(is_index(i) for place in places for i in place) and self._looks_nothing_up(store.value)

    def _looks_nothing_up(self, value: KExpr) -> bool:
        """Whether a value is one of loads from places that arithmetic tells."""
        indices = (i for load in loads_in(value) for i in load.indices)
        return all(map(self._is_arithmetic, indices)) and self._knows(value)

    def _is_arithmetic(self, *exprs: KExpr) -> bool:
        """Whether expressions load nothing, and depend on no value that statements bind."""
        return self._knows(*exprs) and not any(loads_in(*exprs))

    def _knows(self, *exprs: KExpr) -> bool:
        return self.bound.isdisjoint(names_in(*exprs))


def repeats_of(kernel: KernelIR) -> UnrollRepeats:
    """Return what tells the nests of a kernel that its emitter repeats."""
    inside = list(statements(kernel.body))
    arrays = {b.name: b for b in kernel.buffers}
    stored = {s.buffer for s in inside if isinstance(s, Store)} & set(arrays)
    read = {
        e.buffer
        for s in inside
        for e in loads_in(*expressions(s))
        if e.buffer in stored and not (isinstance(s, Store) and same_element(s, e))
    }
    bound = frozenset(s.name for s in inside if isinstance(s, Let | Shuffle))
    return UnrollRepeats(arrays, frozenset(read), bound)
