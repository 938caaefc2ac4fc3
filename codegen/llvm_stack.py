"""STACK buffers: their padded layout, and whether every access to them has a constant place."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from polyker.codegen.kernel import Allocate, Block, Buffer, Const, For, If, Kernel, KExpr, Load, LoopKind, Store, Var
from polyker.codegen.polynomial import Poly, as_constant, constant, polynomial
from polyker.codegen.walk import expressions, subexpressions
from polyker.errors.base import InternalError


@dataclass(frozen=True, slots=True)
class StackLayout:
    """`elements` to allocate, `strides` in elements, `lanes` of a full vector, `clear`: to be zeroed on entry."""

    elements: int
    strides: tuple[Poly, ...]
    lanes: int
    clear: bool


class StackBuffers:
    """What one walk over a kernel finds out about its STACK buffers."""

    def __init__(self, kernel: Kernel) -> None:
        self._lanes: dict[str, int] = {}
        self._movable: set[str] = set()
        self._partial: set[str] = set()
        self._walk(kernel.body, 1, frozenset(), partial=False)

    def layout(self, buffer: Buffer) -> StackLayout:
        """Return the layout: rows padded to full vectors, one vector to spare at the end."""
        shape = [as_constant(polynomial(s)) for s in buffer.shape]
        sizes = [s for s in shape if s is not None]
        if len(sizes) != len(shape):
            raise InternalError(f"STACK buffer {buffer.name} has no constant shape")
        lanes = self._lanes.get(buffer.name, 1)
        padded = [*sizes[:-1], -(-sizes[-1] // lanes) * lanes] if sizes else []
        strides = tuple(constant(prod(padded[k + 1 :])) for k in range(len(padded)))
        fixed = buffer.name not in self._movable
        # A vector may begin at any place, a constant one too, and its masked lanes reach past the end.
        elements = prod(padded) + lanes
        elements = -(-elements // lanes) * lanes
        clear = fixed and buffer.name in self._partial and elements <= 4096
        return StackLayout(max(1, elements), strides, lanes, clear)

    def _walk(self, block: Block, lanes: int, fixed: frozenset[str], *, partial: bool) -> None:
        for stmt in block:
            for expr in expressions(stmt):
                for node in subexpressions(expr):
                    if isinstance(node, Load):
                        self._access(node.buffer, node.indices, lanes, fixed)
            match stmt:
                case Store(buffer=name, indices=indices):
                    self._access(name, indices, lanes, fixed)
                    if partial:
                        self._partial.add(name)
                case If(body=body, orelse=orelse):
                    self._walk(body, lanes, fixed, partial=partial or lanes > 1)
                    self._walk(orelse, lanes, fixed, partial=partial or lanes > 1)
                case For(kind=LoopKind.VECTOR) as loop:
                    placed = fixed | {loop.var} if isinstance(loop.lo, Const) else fixed
                    self._walk(loop.body, max(loop.lanes, 1), placed, partial=loop.trip != loop.lanes)
                case For(body=body) as loop:
                    self._walk(body, lanes, fixed - {loop.var}, partial=partial)
                case Allocate(body=body):
                    self._walk(body, lanes, fixed, partial=partial)
                case _:
                    pass

    def _access(self, name: str, indices: tuple[KExpr, ...], lanes: int, fixed: frozenset[str]) -> None:
        self._lanes[name] = max(self._lanes.get(name, 1), lanes)
        for index in indices:
            if any(isinstance(n, Load) or (isinstance(n, Var) and n.name not in fixed) for n in subexpressions(index)):
                self._movable.add(name)
