"""Combine several vectors that fold into one element first, and reduce the lanes once.

    vector l: s = s + a[l]             vector l: s = s + ((a[l] + a[16 + l]) + (a[32 + l] + a[48 + l]))
    vector l: s = s + a[16 + l]
    …

Each fold of the lanes takes the logarithm of their number in dependent steps, a combination of two vectors one.
"""

from __future__ import annotations

from dataclasses import replace

from polyker.codegen.ir.kernel import For, KernelIR, KExpr, Load, LoopKind, Op, Stmt, StmtBlock, Store, Var
from polyker.codegen.ir.polynomial import polynomial, same_element
from polyker.codegen.ir.walk import loads_in, substitute, uses, with_blocks

# Operators whose lanes are combined.
REDUCIBLE = ("add", "mul", "minimum", "maximum", "and", "or")


def merge_folds(kernel: KernelIR) -> KernelIR:
    """Return the kernel with neighbouring folds into one element made one fold. Run after `unroll`."""
    return replace(kernel, body=_block(kernel.body))


def _block(block: StmtBlock) -> StmtBlock:
    return tuple(_merged([s if _is_vector(s) else with_blocks(s, _block) for s in block]))


def _is_vector(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind is LoopKind.VECTOR


def _merged(block: list[Stmt]) -> list[Stmt]:
    result: list[Stmt] = []
    run: list[For] = []

    def flush() -> None:
        if len(run) > 1:
            terms = [_term(f, run[0].var) for f in run]
            store = run[0].body[0]
            assert isinstance(store, Store)
            assert isinstance(store.value, Op)
            value = replace(store.value, args=(store.value.args[0], _tree(store.value, terms)))
            result.append(replace(run[0], body=(replace(store, value=value),)))
        else:
            result.extend(run)
        run.clear()

    for stmt in block:
        if isinstance(stmt, For) and _is_fold(stmt):
            if run and not _same(run[0], stmt):
                flush()
            run.append(stmt)
        else:
            flush()
            result.append(stmt)
    flush()
    return result


def _is_fold(loop: For) -> bool:
    """Return whether a loop combines full vectors, element by element, into one element that they do not read."""
    if loop.kind is not LoopKind.VECTOR or loop.trip != loop.lanes or loop.lanes < 2 or len(loop.body) != 1:
        return False
    match loop.body[0]:
        case Store(buffer=buffer, indices=indices, value=Op(op=op, args=(Load(predicate=None) as old, term))) as store:
            if op not in REDUCIBLE or not same_element(store, old):
                return False
            return not uses(loop.var, *indices) and not any(e.buffer == buffer for e in loads_in(term))
        case _:
            return False


def _same(a: For, b: For) -> bool:
    """Return whether two folds combine as many lanes into the same element by the same operation."""
    x, y = a.body[0], b.body[0]
    assert isinstance(x, Store)
    assert isinstance(y, Store)
    assert isinstance(x.value, Op)
    assert isinstance(y.value, Op)
    lanes = a.lanes == b.lanes and polynomial(a.lo) == polynomial(b.lo)
    return lanes and same_element(x, y) and (x.value.op, x.value.dtype) == (y.value.op, y.value.dtype)


def _term(loop: For, var: str) -> KExpr:
    store = loop.body[0]
    assert isinstance(store, Store)
    assert isinstance(store.value, Op)
    return substitute(store.value.args[1], {loop.var: Var(var)})


def _tree(value: Op, terms: list[KExpr]) -> KExpr:
    """Return the terms combined pairwise: no deeper than it has to be, and rounded as little."""
    while len(terms) > 1:
        pairs = [Op(value.op, (a, b), value.dtype) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = [*pairs, *(terms[-1:] if len(terms) % 2 else [])]
    return terms[0]
