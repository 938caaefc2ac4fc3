"""Balance execution ports: move additions and extrema of a register tile to the multiply-add ports.

    m = maximum(m, a + b)            ->  m = maximum(m, a * 1 + b)
    s = s + |a - b|                  ->  s = |a - b| + s * 1
    m = larger(m, smaller(a, b))     ->  m = larger(m, where(b < a, b, a)), comparison and choice in two instructions

On a core with ports for additions alone, additions and extrema wait for these two while the two of multiply-adds and comparisons
idle. The results are the same: the product by 1 is exact. A step takes the largest of: operations of the one pair of ports, those
of the other pair, half of all; as many operations of a tile are moved as make that least.

A uniform operand with a single use should be the memory operand of that use, whose embedded broadcast is free; a broadcast
instruction would take a port, too. So it is the subtrahend where the sign does not matter, and a multiply-add overwrites a copy
of its other operand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial, reduce
from typing import NamedTuple

from polyker.codegen.ir.kernel import Const, For, KernelIR, KExpr, Load, LoopKind, Op, Prefetch, StmtBlock, Store, Var
from polyker.codegen.ir.polynomial import same_element
from polyker.codegen.ir.walk import factors_of, rebuild, stored, stores_of, uses, values_of, with_blocks
from polyker.codegen.passes.x86.pair_extrema import MIN_TILE_RESULTS
from polyker.machine.model import Target
from polyker.structs import replace

# Instructions by their pipes; no function that takes several is among them.
_ADDS = ("add", "sub", "larger", "smaller")
_MULTIPLIES = ("mul", "multiply_add", "lt", "le", "gt", "ge", "eq", "ne")
_EITHER = ("abs", "neg", "where", "and", "or", "not")
# Most levels that nested sums of two may add to an expression's depth (chosen).
_MAX_EXTRA_DEPTH = 32
_MOVED = {"add": "fused_add", "sub": "fused_sub", "larger": "larger_masked", "smaller": "smaller_masked"}


class Pipes(NamedTuple):
    """Instructions that take the pipes of additions, those of multiply-adds, and any of the four."""

    adds: int = 0
    multiplies: int = 0
    either: int = 0

    def plus(self, adds: int, multiplies: int, either: int = 0) -> Pipes:
        """Return these and some more."""
        return Pipes(self.adds + adds, self.multiplies + multiplies, self.either + either)

    @property
    def double_pumped(self) -> int:
        """Twice the cycles that they take at least on vectors of which each pipe takes one in two cycles."""
        return max(2 * self.adds, 2 * self.multiplies, sum(self))


def moves(kernel: KernelIR, target: Target) -> bool:
    """Whether `balanced` changes what some store of a kernel computes; its tiles' copies have to be told apart then."""
    if not target.has_separate_adders:
        return False
    return any(_is_total(s) or any(_is_moved(e, s.value) for e in values_of(s.value)) for s in stores_of(kernel.body))


def _is_moved(expr: KExpr, top: KExpr) -> bool:
    return (
        isinstance(expr, Op)
        and expr.op in _MOVED
        and (expr is not top or expr.op not in ("add", "sub") or len(expr.args) > 2)
    )


def balanced(kernel: KernelIR, target: Target) -> KernelIR:
    """Return an equal kernel whose tiles' operations take both kinds of pipes; where any do, it has no UNROLL loops."""
    return replace(kernel, body=_block(kernel.body)) if target.has_separate_adders else kernel


def _block(block: StmtBlock) -> StmtBlock:
    return tuple(_tile(s) if isinstance(s, For) and _is_tile(s) else with_blocks(s, _block) for s in block)


def _is_tile(stmt: For) -> bool:
    """Whether a loop is one over the reduction of a register tile: it combines vectors of floats with their elements."""
    if stmt.kind not in (LoopKind.SERIAL, LoopKind.TRANSPOSE) or len(stmt.body) < MIN_TILE_RESULTS:
        return False
    vectors = [s for s in stmt.body if not isinstance(s, Prefetch)]
    return (
        len(vectors) >= MIN_TILE_RESULTS
        and all(isinstance(v, For) and v.kind is LoopKind.VECTOR for v in vectors)
        and all(map(_combines, stores_of(stmt.body)))
    )


def _combines(stmt: Store) -> bool:
    """Whether a statement combines its element with terms, by operations that pass through pipes as is known here."""
    match stmt.value:
        case Op(args=(Load(buffer=old), *terms), dtype=dtype) if old == stmt.buffer and dtype.kind == "f":
            operations = [e for e in values_of(stmt.value) if not isinstance(e, (Const, Load, Var))]
            known = (*_ADDS, *_MULTIPLIES, *_EITHER, "minimum", "maximum")
            return (
                bool(terms)
                and dtype.itemsize >= 4
                and all(
                    isinstance(e, Op) and (e.op in known or _is_square(e)) and e.dtype.kind in "fb" for e in operations
                )
            )
        case _:
            return False


def _tile(loop: For) -> For:
    """Return a tile of whose operations some are moved, in even distances."""
    loop = replace(loop, body=_by_two(loop.body))
    alone = lone(loop)
    loop = replace(loop, body=_subtracting(loop.body, alone))
    stores = list(stores_of(loop.body))
    values = [s.value for s in stores]
    pipes = Pipes()
    for value in values:
        pipes = _add(pipes, value)
    totals = sum(map(_is_total, stores))
    sums = sum(1 for v in values for _ in _movable(v, ("add", "sub")))
    extrema = sum(1 for v in values for _ in _movable(v, ("larger", "smaller")))
    best = min((_after(pipes, m), m) for m in range(totals + sums + 1))[1]
    pipes = pipes.plus(-best, best)
    masked = min((pipes.plus(-m, m, m).double_pumped, m) for m in range(extrema + 1))[1]
    # Totals are overwritten all the same, the operands of other sums would be copied first.
    first = min(best, totals)
    move = _Move({"totals": (first, totals), "sums": (best - first, sums), "extrema": (masked, extrema)}, alone)
    return replace(loop, body=move.block(loop.body))


def lone(tile: For) -> frozenset[Load]:
    """Return the reads of a tile that each term has anew, the same for all lanes of one vector, and for no other vector."""
    written = stored(tile.body)
    found: Counter[Load] = Counter()
    for vector in tile.body:
        if isinstance(vector, For):
            reads = [
                e
                for s in stores_of(vector.body)
                for e in values_of(s.value)
                if isinstance(e, Load) and e.predicate is None
            ]
            found.update(e for e in reads if uses(tile.var, *e.indices) and not uses(vector.var, *e.indices))
    return frozenset(e for e, count in found.items() if count == 1 and e.buffer not in written)


def _subtracting(block: StmtBlock, alone: frozenset[Load]) -> StmtBlock:
    """Return a tile that subtracts what is in all lanes of a vector from the vector, where the sign does not matter."""

    def moved(expr: KExpr) -> KExpr:
        expr = rebuild(expr, moved)
        match expr:
            case Op(op="add", args=(x, Op(op="neg", args=(y,))), dtype=dtype) if x in alone or y in alone:
                return Op("sub", (x, y), dtype)
            case Op(args=(Op(op="sub", args=(x, y), dtype=dtype), *rest)) if expr.op == "abs" or _is_square(expr):
                return replace(expr, args=(Op("sub", (y, x), dtype), *rest)) if x in alone and y not in alone else expr
            case _:
                return expr

    return tuple(
        replace(s, value=rebuild(s.value, moved))
        if isinstance(s, Store)
        else with_blocks(s, lambda b: _subtracting(b, alone))
        for s in block
    )


def _is_square(expr: KExpr) -> bool:
    match expr:
        case Op(op="pow", args=(_, Const(value=2))):
            return True
        case _:
            return False


def _is_total(store: Store) -> bool:
    """Whether an element is added to that a multiply-add may add to: a term that is no product, and takes the same pipes
    itself."""
    match store.value:
        case Op(op="add", args=(Load() as old, term)) if same_element(store, old):
            operations = [e.op for e in values_of(term) if isinstance(e, Op)]
            return not factors_of(term) and any(op in (*_ADDS, "minimum", "maximum") for op in operations)
        case _:
            return False


def _by_two(block: StmtBlock) -> StmtBlock:
    """Return a tile in whose terms the sums of several are sums of two, from the left; very long ones stay as they are."""

    def folded(expr: KExpr) -> KExpr:
        expr = rebuild(expr, folded)
        if isinstance(expr, Op) and expr.op == "add":
            return reduce(lambda x, y: Op("add", (x, y), expr.dtype), expr.args)
        return expr

    def store(stmt: Store) -> Store:
        more = sum(len(e.args) - 2 for e in values_of(stmt.value) if isinstance(e, Op) and e.op == "add")
        return replace(stmt, value=rebuild(stmt.value, folded)) if more <= _MAX_EXTRA_DEPTH else stmt

    return tuple(store(s) if isinstance(s, Store) else with_blocks(s, _by_two) for s in block)


def _after(pipes: Pipes, moved: int) -> tuple[int, int]:
    """Return what a tile takes after so many additions have moved, and how far it is from even."""
    after = pipes.plus(-moved, moved)
    return after.double_pumped, abs(after.adds - after.multiplies)


def _add(pipes: Pipes, value: KExpr) -> Pipes:
    """Return the pipes with what a value takes."""
    for e in values_of(value):
        if not isinstance(e, Op):
            continue
        count = max(1, len(e.args) - 1)
        if e.op in _ADDS:
            fused = sum(1 for term in e.args[1:] if factors_of(term)) if e is value else 0
            pipes = pipes.plus(count - fused, 0)
        elif e.op in ("minimum", "maximum"):
            tested = e is value
            pipes = pipes.plus(count, tested, tested)
        elif e.op in _MULTIPLIES or _is_square(e):
            pipes = pipes.plus(0, count)
        else:
            pipes = pipes.plus(0, 0, 1)
    return pipes


def _movable(value: KExpr, ops: tuple[str, ...]) -> Iterator[Op]:
    """Yield the operations of a value that may be moved; a sum with its element stays, as products are contracted into it."""
    for e in values_of(value):
        if isinstance(e, Op) and e.op in ops and len(e.args) == 2 and (e is not value or e.op not in ("add", "sub")):
            yield e


class _Move:
    """Moves operations; `quota`: how many of how many; `alone`: what may stay in memory."""

    def __init__(self, quota: dict[str, tuple[int, int]], alone: frozenset[Load]) -> None:
        self.quota, self.alone = quota, alone
        self.seen = dict.fromkeys(quota, 0)

    def block(self, block: StmtBlock) -> StmtBlock:
        return tuple(self._store(s) if isinstance(s, Store) else with_blocks(s, self.block) for s in block)

    def _store(self, store: Store) -> Store:
        value = self._value(store.value, store.value)
        if _is_total(store) and self._next("totals"):
            assert isinstance(value, Op)
            value = replace(value, op="fused_add")
        return replace(store, value=value)

    def _value(self, expr: KExpr, top: KExpr) -> KExpr:
        kind = "sums" if isinstance(expr, Op) and expr.op in ("add", "sub") else "extrema"
        chosen = any(e is expr for e in _movable(top, tuple(_MOVED))) and self._next(kind)
        expr = rebuild(expr, partial(self._value, top=top))
        if not chosen or not isinstance(expr, Op):
            return expr
        args = expr.args
        if expr.op in ("add", "sub") and sum(a in self.alone for a in args) == 1:
            args = tuple(a if a in self.alone else Op("copied", (a,), expr.dtype) for a in args)
        return Op(_MOVED[expr.op], args, expr.dtype)

    def _next(self, kind: str) -> bool:
        """Whether the next one of a kind is moved."""
        chosen, of = self.quota[kind]
        number = self.seen[kind]
        self.seen[kind] += 1
        return (number + 1) * chosen // of > number * chosen // of
