"""Walking and rebuilding the Kernel IR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import is_
from typing import Any, TypeVar

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Combine,
    Const,
    Convert,
    Copy,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Launch,
    Let,
    Load,
    LoopKind,
    Op,
    PartCall,
    Prefetch,
    Shuffle,
    Stmt,
    StmtBlock,
    Store,
    Var,
    VectorLoad,
    VectorStore,
)
from polyker.structs import replace

S = TypeVar("S", bound=Stmt)

# The fields of statements that hold expressions, in the order in which they are printed.
_FIELDS: dict[type[object], tuple[str, ...]] = {
    Store: ("indices", "value"),
    For: ("lo", "hi"),
    Combine: ("indices", "value", "before"),
    VectorLoad: ("indices", "predicate", "other"),
    VectorStore: ("indices", "values"),
    Copy: ("indices", "places", "predicate", "other"),
    Prefetch: ("indices",),
    Let: ("value",),
    Shuffle: ("value",),
    Guard: ("condition",),
    If: ("condition",),
    Launch: ("grid",),
    PartCall: ("integers",),
}

# The compiler spends a good part of its time in these functions, so they ask for a node's type once, the most frequent first.


def expressions(stmt: Stmt) -> tuple[KExpr, ...]:
    """Return the expressions that stand directly in a statement, not those of its blocks."""
    if type(stmt) is Store:
        return (*stmt.indices, stmt.value)
    if type(stmt) is For:
        return stmt.lo, stmt.hi
    found: list[KExpr] = []
    for name in _FIELDS.get(type(stmt), ()):
        part = getattr(stmt, name)
        found += part if type(part) is tuple else () if part is None else (part,)
    return tuple(found)


def with_expressions(stmt: S, change: Callable[[KExpr], KExpr]) -> S:
    """Return a statement with `change` applied to each of the expressions that stand directly in it."""
    changed: dict[str, Any] = {}
    for name in _FIELDS.get(type(stmt), ()):
        part = getattr(stmt, name)
        if part is not None:
            changed[name] = tuple(map(change, part)) if type(part) is tuple else change(part)
    return replace(stmt, **changed) if changed else stmt


def loads_in(*exprs: KExpr) -> Iterator[Load]:
    """Yield the loads in expressions, those in the indices of others too."""
    return (node for expr in exprs for node in subexpressions(expr) if type(node) is Load)


def loaded(block: StmtBlock) -> frozenset[str]:
    """Return the names of the buffers that a block reads."""
    return frozenset(load.buffer for stmt in statements(block) for load in loads_in(*expressions(stmt)))


def read_by(stmt: Stmt) -> set[str]:
    """Return the buffers that a statement, not one in it, reads."""
    own = {stmt.source} if isinstance(stmt, Copy) else {stmt.buffer} if isinstance(stmt, VectorLoad) else set()
    return own | {load.buffer for load in loads_in(*expressions(stmt))}


def written_by(stmt: Stmt) -> set[str]:
    """Return the buffers that a statement, not one in it, writes."""
    return {stmt.buffer} if isinstance(stmt, Store | VectorStore | Copy | Combine) else set()


def buffers_of(stmt: Stmt) -> set[str]:
    """Return the buffers that a statement, not one in it, reads or writes."""
    return read_by(stmt) | written_by(stmt)


def bound_by(stmt: Stmt) -> tuple[str, ...]:
    """Return the names that a statement binds for the rest of its block."""
    match stmt:
        case Let(name=name) | Shuffle(name=name):
            return (name,)
        case VectorLoad(names=names):
            return names
        case _:
            return ()


def names_bound(block: StmtBlock) -> set[str]:
    """Return the names that the statements of a block give to variables, values and buffers."""
    found: set[str] = set()
    for stmt in statements(block):
        found.update(bound_by(stmt))
        if isinstance(stmt, For):
            found |= {stmt.var, stmt.thread}
        elif isinstance(stmt, Allocate):
            found.update(b.name for b in stmt.buffers)
    return found


def unused(taken: set[str], names: Iterable[str]) -> str:
    """Return the first of some names that is not taken, which it is from then on."""
    name = next(n for n in names if n not in taken)
    taken.add(name)
    return name


def statements(block: StmtBlock) -> Iterator[Stmt]:
    """Yield every statement of a block and of the blocks in it, parents first."""
    stack = list(reversed(block))
    while stack:
        stmt = stack.pop()
        yield stmt
        if type(stmt) is For:
            stack.extend(reversed(stmt.body))
        elif type(stmt) is not Store:
            for inner in reversed(blocks_of(stmt)):
                stack.extend(reversed(inner))


def loops_of(block: StmtBlock, kind: LoopKind) -> Iterator[For]:
    """Yield the loops of a kind in a block."""
    return (s for s in statements(block) if type(s) is For and s.kind is kind)


def stores_of(block: StmtBlock) -> Iterator[Store]:
    """Yield the stores of single elements in a block."""
    return (s for s in statements(block) if type(s) is Store)


def stored(block: StmtBlock) -> frozenset[str]:
    """Return the names of the buffers that a block stores to."""
    return frozenset(s.buffer for s in stores_of(block))


def allocated(block: StmtBlock) -> Iterator[Buffer]:
    """Yield the buffers that a block and those in it allocate, outer ones first."""
    return (b for s in statements(block) if isinstance(s, Allocate) for b in s.buffers)


def blocks_of(stmt: Stmt) -> tuple[StmtBlock, ...]:
    """Return the blocks that stand directly in a statement."""
    if isinstance(stmt, (For, Allocate, Launch)):
        return (stmt.body,)
    return (stmt.body, stmt.orelse) if isinstance(stmt, If) else ()


def with_blocks(stmt: Stmt, change: Callable[[StmtBlock], StmtBlock]) -> Stmt:
    """Return a statement with `change` applied to the blocks that stand directly in it; the same one where these stay."""
    if isinstance(stmt, If):
        body, orelse = change(stmt.body), change(stmt.orelse)
        return stmt if _same(body, stmt.body) and _same(orelse, stmt.orelse) else If(stmt.condition, body, orelse)
    if not isinstance(stmt, (For, Allocate, Launch)):
        return stmt
    body = change(stmt.body)
    if _same(body, stmt.body):
        return stmt
    return with_body(stmt, body) if isinstance(stmt, For) else replace(stmt, body=body)


def with_body(loop: For, body: StmtBlock) -> For:
    """Return a loop with another body."""
    return For(
        loop.var, loop.lo, loop.hi, body, loop.step, loop.kind, loop.lanes, loop.trip, loop.thread, loop.enough, loop.axis,
        loop.label,
    )  # fmt: skip


def nested(loops: Sequence[For], body: StmtBlock) -> StmtBlock:
    """Return a block inside loops, the outermost first, in place of their bodies."""
    for loop in reversed(loops):
        body = (with_body(loop, body),)
    return body


def operands(expr: KExpr) -> tuple[KExpr, ...]:
    """Return the direct sub-expressions."""
    if isinstance(expr, (Var, Const)):
        return ()
    if isinstance(expr, Op):
        return expr.args
    if isinstance(expr, Convert):
        return (expr.arg,)
    guard = tuple(e for e in (expr.predicate, expr.other) if e is not None)
    return (*expr.indices, *guard) if guard else expr.indices


def subexpressions(expr: KExpr) -> Iterator[KExpr]:
    """Yield the expression and all below it."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        if type(node) is Op:
            stack.extend(node.args)
        elif type(node) is not Var and type(node) is not Const:
            stack.extend(operands(node))


def values_of(expr: KExpr) -> Iterator[KExpr]:
    """Yield the parts of a value, those of the indices of its loads left out."""
    yield expr
    if not isinstance(expr, Load):
        for part in operands(expr):
            yield from values_of(part)


def factors_of(term: KExpr) -> tuple[KExpr, ...]:
    """Return the factors of a product, a negated one or a square, which a multiply-add adds to a sum, else nothing."""
    match term:
        case Op(op="mul", args=factors) if len(factors) > 1:
            return factors
        case Op(op="neg", args=(Op(op="mul", args=factors),), dtype=dtype) if len(factors) > 1:
            return (Op("neg", (factors[0],), dtype), *factors[1:])
        case Op(op="pow", args=(x, Const(value=2))):
            return (x, x)
        case Op(op="neg", args=(Op(op="pow", args=(x, Const(value=2))),), dtype=dtype):
            return (Op("neg", (x,), dtype), x)
        case _:
            return ()


def rebuild(expr: KExpr, change: Callable[[KExpr], KExpr]) -> KExpr:
    """Return `expr` with `change` applied to each direct sub-expression."""
    if isinstance(expr, (Var, Const)):
        return expr
    if isinstance(expr, Op):
        fresh = tuple(map(change, expr.args))  # a comprehension would be one more of Python's frames a level
        return expr if _same(fresh, expr.args) else Op(expr.op, fresh, expr.dtype)
    if isinstance(expr, Convert):
        changed = change(expr.arg)
        return expr if changed is expr.arg else Convert(changed, expr.dtype)
    indices = tuple(map(change, expr.indices))
    predicate = None if expr.predicate is None else change(expr.predicate)
    other = None if expr.other is None else change(expr.other)
    if predicate is expr.predicate and other is expr.other and _same(indices, expr.indices):
        return expr
    return Load(expr.buffer, indices, expr.dtype, predicate, other)


def _same(fresh: tuple[object, ...], old: tuple[object, ...]) -> bool:
    return len(fresh) == len(old) and all(map(is_, fresh, old))


def substitute(expr: KExpr, values: Mapping[str, KExpr]) -> KExpr:
    """Return the expression with variables replaced."""
    if type(expr) is Var:
        return values.get(expr.name, expr)
    if type(expr) is Const:
        return expr
    if type(expr) is Op:
        fresh = tuple([substitute(a, values) for a in expr.args])
        return expr if _same(fresh, expr.args) else Op(expr.op, fresh, expr.dtype)
    return rebuild(expr, partial(substitute, values=values))


def with_loads(expr: KExpr, values: Mapping[Load, KExpr]) -> KExpr:
    """Return the expression with loads replaced."""
    if isinstance(expr, Load) and expr in values:
        return values[expr]
    return rebuild(expr, partial(with_loads, values=values))


def uses(name: str, *exprs: KExpr) -> bool:
    """Whether a variable stands in one of the expressions."""
    return any(isinstance(e, Var) and e.name == name for expr in exprs for e in subexpressions(expr))


def names_in(*exprs: KExpr) -> set[str]:
    """Return the variables that stand in the expressions."""
    return {e.name for expr in exprs for e in subexpressions(expr) if isinstance(e, Var)}


def is_parallel(kernel: KernelIR) -> bool:
    """Return whether some loop runs on several threads."""
    return any(loops_of(kernel.body, LoopKind.PARALLEL)) or any(map(is_parallel, kernel.parts))


def on_gpu(kernel: KernelIR) -> bool:
    """Return whether the kernel launches kernels on a GPU."""
    return any(isinstance(s, Launch) for s in statements(kernel.body))


def is_zero(value: KExpr | None) -> bool:
    """Whether a value is the constant whose bits are all 0."""
    return isinstance(value, Const) and str(value.value) in ("0", "0.0", "0j", "False")
