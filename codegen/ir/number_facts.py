"""What the floats in a kernel's buffers may be, given what those of its inputs may be: NaN, inf or -inf.

The least solution over all stores: a buffer holds what its stores write, and what a store writes follows from its operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isnan
from typing import NamedTuple

from polyker.codegen.ir.kernel import Const, Convert, KernelIR, KExpr, Load, Op, Space, VectorStore
from polyker.codegen.ir.walk import statements, stores_of


class May(NamedTuple):
    """Which values that are no finite numbers may occur."""

    nan: bool = False
    positive: bool = False  # inf
    negative: bool = False  # -inf

    def or_(self, other: May) -> May:
        """Return what occurs in one of the two."""
        return May(*(a or b for a, b in zip(self, other, strict=True)))


FINITE, ANYTHING = May(), May(True, True, True)
_OVERFLOWN = May(False, True, True)


def facts(kernel: KernelIR, inputs: Mapping[str, May]) -> dict[str, May]:
    """Return what each buffer may hold, `inputs` being known of some that the kernel does not write."""
    found = {b.name: ANYTHING for b in kernel.buffers if b.space is Space.ARGUMENT} | dict(inputs)
    stores = list(stores_of(kernel.body))
    found |= {s.buffer: ANYTHING for s in statements(kernel.body) if isinstance(s, VectorStore)}
    changed = True
    while changed:
        changed = False
        for s in stores:
            before = found.get(s.buffer, FINITE)
            after = before if before == ANYTHING else before.or_(may(s.value, found))
            if after != before:
                found[s.buffer], changed = after, True
    return found


def may(expr: KExpr, buffers: Mapping[str, May]) -> May:
    """Return what a value may be; buffers that are not named hold finite numbers only."""
    if expr.dtype.kind != "f":
        return ANYTHING if expr.dtype.is_complex else FINITE
    match expr:
        case Const(value=value):
            return ANYTHING if isinstance(value, complex) or isnan(value) else May(False, value == inf, value == -inf)
        case Load(buffer=buffer, other=other):
            found = buffers.get(buffer, FINITE)
            return found if other is None else found.or_(may(other, buffers))
        case Convert(arg=arg, dtype=dtype):
            overflows = arg.dtype.kind != "f" or arg.dtype.itemsize > dtype.itemsize
            return may(arg, buffers).or_(_OVERFLOWN if overflows else FINITE)
        case Op(op=op, args=args):
            return _operation(op, [may(a, buffers) for a in args])
        case _:
            return ANYTHING


def _operation(op: str, args: list[May]) -> May:
    first, last = args[0], args[-1]
    match op:
        # What is not named here, functions too, may give anything.
        case "add":
            for other in args[1:]:
                first = _sum(first, other)
            return first
        case "sub":
            return _sum(first, _negated(last))
        case "neg":
            return _negated(first)
        case "abs":
            return May(first.nan, first.positive or first.negative, False)
        case "mul" if all(a == FINITE for a in args[:2]) and len(args) == 2:
            return _OVERFLOWN
        case "where":
            return args[1].or_(args[2])
        case "minimum" | "maximum" | "smaller" | "larger":
            for other in args[1:]:
                first = first.or_(other)
            return first
        case _:
            return ANYTHING


def _negated(x: May) -> May:
    return May(x.nan, x.negative, x.positive)


def _sum(x: May, y: May) -> May:
    """Return what the sum may be: NaN also where infinities of both signs meet; and finite numbers may overflow."""
    return May(x.nan or y.nan or (x.positive and y.negative) or (x.negative and y.positive), True, True)
