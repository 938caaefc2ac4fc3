"""Unroll loops over gathered elements by a few iterations, with their bounds checks first.

    for i: let p = I[i]; require 0 <= p < n; O[i] = T[p]
    ->
    for i4 in step 4: let p0 = I[i4]; require 0 <= p0 < n; ... three more; O[i4] = T[p0]; O[i4+1] = T[p1]; ...
    for what is left: as before

An element takes a check and three instructions, beside the loop's counter and branch. The checked values must come from buffers
that the loop does not write. The order of the checks stays, and that of the stores, but that the last ones before a failing check
are left out: the results of a kernel that fails are undefined.
"""

from __future__ import annotations

from functools import partial
from itertools import count

from msgspec import Struct

from polyker.codegen.ir.kernel import Const, For, Guard, KernelIR, KExpr, Let, LoopKind, Op, Stmt, StmtBlock, Store, Var
from polyker.codegen.ir.walk import expressions, loaded, statements, substitute, unused, with_blocks, with_expressions
from polyker.codegen.passes.simplify import trip_count
from polyker.codegen.passes.unroll_terms import by_groups, operations
from polyker.structs import replace

# Unroll factor; most operations of one element: with more, the branch is a small part (experience values).
UNROLL_FACTOR, MAX_ELEMENT_OPERATIONS = 4, 16


def several_checks(kernel: KernelIR) -> KernelIR:
    """Return an equal kernel whose loops over elements that are looked up one by one take several of them in each iteration."""
    if not any(isinstance(s, Guard) for s in statements(kernel.body)):
        return kernel
    taken = {s.name for s in statements(kernel.body) if isinstance(s, Let)}
    return replace(kernel, body=_CheckMerger(taken).block(kernel.body))


class _CheckMerger(Struct, frozen=True):
    """Rewrites blocks; `taken`: the names of the kernel's values."""

    taken: set[str]

    def block(self, block: StmtBlock) -> StmtBlock:
        result: list[Stmt] = []
        for s in block:
            match s:
                case For(kind=LoopKind.VECTOR):  # loops in it are uniform across the lanes
                    result.append(s)
                case For() if checks := _checks(s):
                    result += self._together(s, checks)
                case _:
                    result.append(with_blocks(s, self.block))
        return tuple(result)

    def _together(self, loop: For, checks: int) -> list[Stmt]:
        """Return the loop over whole groups of elements, and the one over the rest; `checks`: statements up to the last Guard."""
        trip = trip_count(loop)
        if trip is not None and trip < 2 * UNROLL_FACTOR:
            return [loop]
        group = Var(f"{loop.var}.group")
        values: list[dict[str, KExpr]] = [
            {loop.var: Op("add", (group, Const(n))) if n else group} for n in range(UNROLL_FACTOR)
        ]
        body: list[Stmt] = []
        for part in (loop.body[:checks], loop.body[checks:]):
            body += [self._copy(s, v) for v in values for s in part]
        return by_groups(loop, UNROLL_FACTOR, tuple(body), group.name)

    def _copy(self, stmt: Stmt, values: dict[str, KExpr]) -> Stmt:
        """Return a statement for one of the elements, a value of it under a name of its own, which `values` knows from then
        on."""
        copy = with_expressions(stmt, partial(substitute, values=dict(values)))
        if not isinstance(copy, Let):
            return copy
        name = unused(self.taken, (f"{copy.name}.{n}" for n in count()))
        values[copy.name] = Var(name, copy.value.dtype)
        return replace(copy, name=name)


def _checks(loop: For) -> int:
    """Return how many statements of a loop lead to its last Guard, 0 where its elements are not taken together."""
    if (
        loop.kind is not LoopKind.SERIAL
        or loop.step != 1
        or not all(isinstance(s, Let | Guard | Store) for s in loop.body)
    ):
        return 0
    checks = max((n + 1 for n, s in enumerate(loop.body) if isinstance(s, Guard)), default=0)
    first, written = loop.body[:checks], {s.buffer for s in loop.body if isinstance(s, Store)}
    if loaded(first) & written or any(isinstance(s, Store) for s in first):
        return 0
    return checks if sum(operations(e) for s in loop.body for e in expressions(s)) <= MAX_ELEMENT_OPERATIONS else 0
