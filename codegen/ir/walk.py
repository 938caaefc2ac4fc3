"""Walking and rebuilding the Kernel IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from operator import is_

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
    Prefetch,
    Shuffle,
    Stmt,
    StmtBlock,
    Store,
    Var,
    VectorLoad,
    VectorStore,
)

# The compiler spends a good part of its time in these functions, so they ask for a node's type once, the most frequent first.


def expressions(stmt: Stmt) -> tuple[KExpr, ...]:
    """Return the expressions that stand directly in a statement, not those of its blocks."""
    if type(stmt) is Store:
        return (*stmt.indices, stmt.value)
    if type(stmt) is For:
        return stmt.lo, stmt.hi
    return _expressions(stmt)


def _expressions(stmt: Stmt) -> tuple[KExpr, ...]:
    match stmt:
        case Combine(indices=indices, value=value, before=before):
            return (*indices, value) if before is None else (*indices, value, before)
        case VectorLoad(indices=indices, predicate=predicate, other=other):
            return (*indices, *(e for e in (predicate, other) if e is not None))
        case VectorStore(indices=indices, values=values):
            return (*indices, *values)
        case Copy(indices=indices, places=places, predicate=predicate, other=other):
            return (*indices, *places, *(e for e in (predicate, other) if e is not None))
        case Prefetch(indices=indices):
            return indices
        case Let(value=value) | Shuffle(value=value):
            return (value,)
        case Guard(condition=condition) | If(condition=condition):
            return (condition,)
        case Launch(grid=grid):
            return grid
        case _:
            return ()


def loaded(block: StmtBlock) -> frozenset[str]:
    """Return the names of the buffers that a block reads."""
    nodes = (n for s in statements(block) for e in expressions(s) for n in subexpressions(e))
    return frozenset(n.buffer for n in nodes if type(n) is Load)


def buffers_of(stmt: Stmt) -> set[str]:
    """Return the buffers that a statement, not one in it, reads or writes."""
    found = {e.buffer for top in expressions(stmt) for e in subexpressions(top) if isinstance(e, Load)}
    match stmt:
        case Copy(buffer=buffer, source=source):
            found |= {buffer, source}
        case Store(buffer=buffer) | VectorStore(buffer=buffer) | VectorLoad(buffer=buffer) | Combine(buffer=buffer):
            found.add(buffer)
        case _:
            pass
    return found


def bound_by(stmt: Stmt) -> tuple[str, ...]:
    """Return the names that a statement binds for the rest of its block."""
    match stmt:
        case Let(name=name) | Shuffle(name=name):
            return (name,)
        case VectorLoad(names=names):
            return names
        case _:
            return ()


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
        loop.var, loop.lo, loop.hi, body, loop.step, loop.kind, loop.lanes, loop.trip, loop.thread, loop.enough, loop.axis
    )  # fmt: skip


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


def recombined(stmt: Combine, change: Callable[[KExpr], KExpr]) -> Combine:
    """Return a Combine with `change` applied to each of its expressions."""
    before = None if stmt.before is None else change(stmt.before)
    return replace(stmt, indices=tuple(map(change, stmt.indices)), value=change(stmt.value), before=before)


def uses(name: str, *exprs: KExpr) -> bool:
    """Whether a variable stands in one of the expressions."""
    return any(isinstance(e, Var) and e.name == name for expr in exprs for e in subexpressions(expr))


def names_in(*exprs: KExpr) -> set[str]:
    """Return the variables that stand in the expressions."""
    return {e.name for expr in exprs for e in subexpressions(expr) if isinstance(e, Var)}


def is_parallel(kernel: KernelIR) -> bool:
    """Return whether some loop runs on several threads."""
    return any(isinstance(s, For) and s.kind is LoopKind.PARALLEL for s in statements(kernel.body))


def on_gpu(kernel: KernelIR) -> bool:
    """Return whether the kernel launches kernels on a GPU."""
    return any(isinstance(s, Launch) for s in statements(kernel.body))


def is_zero(value: KExpr | None) -> bool:
    """Whether a value is the constant whose bits are all 0."""
    return isinstance(value, Const) and str(value.value) in ("0", "0.0", "0j", "False")
