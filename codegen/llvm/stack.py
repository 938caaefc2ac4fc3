"""STACK buffers: their padded layout, whether every access to them has a constant place, and which lanes mean nothing."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from msgspec import Struct

from polyker.codegen.ir.kernel import Allocate, Buffer, Const, For, If, KernelIR, KExpr, LoopKind, StmtBlock, Store, Var
from polyker.codegen.ir.polynomial import Poly, as_constant, constant, polynomial
from polyker.codegen.ir.walk import expressions, loads_in, names_in
from polyker.codegen.passes.simplify import InCopies
from polyker.errors.base import InternalError
from polyker.structs import replace


class StackLayout(Struct, frozen=True):
    """`elements` to allocate, `strides` in elements, `lanes` of a full vector, `clear`: what its elements hold on entry, if that
    is to be said: zeros, or nothing ("undef"); `placed`: each access has a constant place, or transposes constant places.

    `reassociating`: a masked store may write the lanes that are off, too. `padded`: vectors reach elements that nothing sets;
    what they happen to hold is computed with and thrown away, but subnormal numbers take some processors 100 times as long.
    """

    elements: int
    strides: tuple[Poly, ...]
    lanes: int
    clear: str
    reassociating: bool
    placed: bool
    padded: bool


class _Lanes(Struct, frozen=True):
    """Where a statement stands: the vector loop around it, the variables with a fixed value, and those bound.

    `is_bounded`: the loop alone says which lanes run. `transposed`: the variables of loops whose loads are transposed. `copies`:
    what the variables of the UNROLL loops around are in each copy of the statement, and `loops` the vector loop around each copy.
    `before`: the buffers that are alive around a branch in which it stands.
    """

    count: int = 1
    loop: For | None = None
    fixed: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()
    partial: bool = False
    is_bounded: bool = True
    transposed: frozenset[str] = frozenset()
    copies: tuple[Mapping[str, KExpr], ...] = ({},)
    loops: tuple[For | None, ...] = ()
    before: frozenset[str] = frozenset()


class StackBuffers:
    """What one walk over a kernel finds out about its STACK buffers.

    A vector that no lane of is used but by loops with one and the same bound has lanes that mean nothing: those beyond it. They
    need not be kept, which would take a second register for each accumulator. What is set in a branch alone is said to hold
    nothing before: LLVM would carry it along else, in registers that are saved around each tile that needs them.
    """

    def __init__(self, kernel: KernelIR, in_copies: InCopies) -> None:
        self._in_copies = in_copies
        self._lanes: dict[str, int] = {}
        self._movable: set[str] = set()
        self._scattered: set[str] = set()
        self._partial: set[str] = set()
        self._branched: set[str] = set()
        self._cut: set[str] = set()
        self._kept: set[str] = set()
        self._around: dict[str, frozenset[str]] = {}
        self._ends: dict[tuple[str, tuple[int | None, ...]], tuple[int, KExpr, KExpr]] = {}
        self._found: dict[tuple[KExpr, ...], tuple[bool, frozenset[str]]] = {}
        self._places: dict[tuple[tuple[KExpr, ...], str], tuple[Poly, ...] | None] = {}
        self._walk(kernel.body, _Lanes())

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
        reassociating = fixed and buffer.name not in self._kept
        small, around = fixed and elements <= 4096, bool(self._around.get(buffer.name))
        cut = buffer.name in self._partial and (not reassociating or around)
        clear = ""
        if small and cut:
            clear = "undef" if reassociating else "zeroinitializer"
        elif small and around and buffer.name in self._branched:
            clear = "undef"
        placed = buffer.name not in self._scattered
        # Registers need none: what is placed lives in them, and would not if a loop filled it.
        beyond = not placed and not reassociating and buffer.name in self._cut and buffer.dtype.kind in "fc"
        return StackLayout(max(1, elements), strides, lanes, clear, reassociating, placed, beyond)

    def _walk(self, block: StmtBlock, at: _Lanes) -> None:
        for stmt in block:
            for expr in expressions(stmt):
                for node in loads_in(expr):
                    if node.buffer in self._around:
                        self._access(node.buffer, node.indices, at, at.transposed)
            match stmt:
                case Store(buffer=name, indices=indices):
                    if name in self._around:
                        self._access(name, indices, at)
                    if at.partial:
                        self._partial.add(name)
                    if name in at.before:
                        self._branched.add(name)
                case If(body=body, orelse=orelse):
                    alive = frozenset(self._around)
                    inside = replace(at, partial=at.partial or at.count > 1, is_bounded=at.count == 1, before=alive)
                    self._walk(body, inside)
                    self._walk(orelse, inside)
                case For(kind=LoopKind.UNROLL, var=var, body=body):
                    found = tuple([{**c, var: n} for c in at.copies for n, _ in self._in_copies.copies(stmt, c)])
                    self._walk(body, replace(at, fixed=at.fixed | {var}, bound=at.bound | {var}, copies=found))
                case For(kind=LoopKind.VECTOR, var=var) as loop:
                    placed = at.fixed | {var} if isinstance(loop.lo, Const) else at.fixed
                    loops = tuple([self._in_copies.of(loop, c) for c in at.copies])
                    partial = any(one is not None and one.trip != loop.lanes for one in loops)
                    inside = replace(
                        at,
                        count=max(loop.lanes, 1),
                        loop=loop,
                        fixed=placed,
                        bound=at.bound | {var},
                        partial=partial,
                        is_bounded=True,
                        loops=loops,
                    )
                    self._walk(loop.body, inside)
                case For(var=var, lo=lo, hi=hi, body=body, kind=kind):
                    # A loop around which there are lanes may run longer in some of them than in others.
                    alike = at.count == 1 or (isinstance(lo, Const) and isinstance(hi, Const))
                    inside = replace(
                        at, fixed=at.fixed - {var}, bound=at.bound | {var}, is_bounded=at.is_bounded and alike
                    )
                    if kind is LoopKind.TRANSPOSE and isinstance(lo, Const):
                        inside = replace(inside, transposed=at.transposed | {var})
                    self._walk(body, inside)
                case Allocate(buffers=buffers, body=body):
                    self._around |= dict.fromkeys((b.name for b in buffers), at.bound)
                    self._walk(body, at)
                case _:
                    pass

    def _access(
        self, name: str, indices: tuple[KExpr, ...], at: _Lanes, transposed: frozenset[str] = frozenset()
    ) -> None:
        """Note an access to a buffer on the stack."""
        self._lanes[name] = max(self._lanes.get(name, 1), at.count)
        if at.partial:
            self._cut.add(name)
        loads, names = self._parts(indices)
        if loads or not names <= at.fixed:
            self._movable.add(name)
            if loads or not names <= at.fixed | transposed:
                self._scattered.add(name)
        if name not in self._kept and not self._ends_as_others(name, indices, at):
            self._kept.add(name)

    def _ends_as_others(self, name: str, indices: tuple[KExpr, ...], at: _Lanes) -> bool:
        """Whether an access is to a whole vector of a row, by a loop that ends where all others do that use this vector."""
        loop = at.loop
        if loop is None or not at.is_bounded or not indices or loop.lo != Const(0):
            return False
        place, outside = self._place(indices, loop.var), self._around[name]
        if place is None:
            return False
        for values, one in zip(at.copies, at.loops, strict=True):
            if one is None:
                continue
            known = tuple([_number(p, values) for p in place])
            if known[-1] is None or None in known or known[-1] % loop.lanes:
                return False
            hi = one.hi
            if type(hi) is not Const and names_in(hi) & at.bound - outside:
                return False
            end = loop.lanes, loop.lo, hi
            if self._ends.setdefault((name, known), end) != end:
                return False
        return True

    def _parts(self, indices: tuple[KExpr, ...]) -> tuple[bool, frozenset[str]]:
        """Return whether there is a load in indices, and their variables; copies of a statement have the same ones."""
        found = self._found.get(indices)
        if found is None:
            found = self._found[indices] = any(loads_in(*indices)), frozenset(names_in(*indices))
        return found

    def _place(self, indices: tuple[KExpr, ...], var: str) -> tuple[Poly, ...] | None:
        """Return the place that an access by vectors along `var` begins at, None where these are not along a row."""
        if (indices, var) not in self._places:
            last = dict(polynomial(indices[-1]))
            along = last.pop((Var(var),), 0)
            self._places[indices, var] = (*map(polynomial, indices[:-1]), last) if along == 1 else None
        return self._places[indices, var]


def _number(poly: Poly, values: Mapping[str, KExpr]) -> int | None:
    """Return the value of a polynomial of which nothing but the variables with values is unknown, else None."""
    total = 0
    for monomial, factor in poly.items():
        for atom in monomial:
            known = values.get(atom.name) if isinstance(atom, Var) else None
            if not isinstance(known, Const):
                return None
            factor *= int(known.value.real)
        total += factor
    return total
