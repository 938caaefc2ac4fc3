"""Combine several vectors that fold into one element first, and reduce the lanes once.

    vector l: s = s + a[l]             vector l: s = s + ((a[l] + a[16 + l]) + (a[32 + l] + a[48 + l]))
    vector l: s = s + a[16 + l]
    …

Each fold of the lanes takes the logarithm of their number in dependent steps, a combination of two vectors one.
"""

from __future__ import annotations

from typing import NamedTuple

from polyker.codegen.ir.kernel import For, KernelIR, KExpr, Load, LoopKind, Op, Stmt, StmtBlock, Store, Var
from polyker.codegen.ir.polynomial import polynomial, same_element
from polyker.codegen.ir.walk import loads_in, substitute, uses, with_blocks
from polyker.structs import replace

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
    run: list[_Fold] = []

    def flush() -> None:
        if len(run) > 1:
            first, value = run[0].loop, run[0].value
            terms = [substitute(f.term, {f.loop.var: Var(first.var)}) for f in run]
            value = replace(value, args=(value.args[0], _tree(value, terms)))
            result.append(replace(first, body=(replace(run[0].store, value=value),)))
        else:
            result.extend(f.loop for f in run)
        run.clear()

    for stmt in block:
        fold = _fold_of(stmt) if isinstance(stmt, For) else None
        if fold is None or (run and not _same(run[0], fold)):
            flush()
        if fold is None:
            result.append(stmt)
        else:
            run.append(fold)
    flush()
    return result


class _Fold(NamedTuple):
    """A loop that combines full vectors, element by element, into one element that they do not read: by `value`'s operation."""

    loop: For
    store: Store
    value: Op
    term: KExpr


def _fold_of(loop: For) -> _Fold | None:
    if loop.kind is not LoopKind.VECTOR or loop.trip != loop.lanes or loop.lanes < 2 or len(loop.body) != 1:
        return None
    match loop.body[0]:
        case Store(value=Op(op=op, args=(Load(predicate=None) as old, term)) as value) as store:
            if op not in REDUCIBLE or not same_element(store, old) or uses(loop.var, *store.indices):
                return None
            return _Fold(loop, store, value, term) if all(e.buffer != old.buffer for e in loads_in(term)) else None
        case _:
            return None


def _same(a: _Fold, b: _Fold) -> bool:
    """Return whether two folds combine as many lanes into the same element by the same operation."""
    lanes = a.loop.lanes == b.loop.lanes and polynomial(a.loop.lo) == polynomial(b.loop.lo)
    return lanes and same_element(a.store, b.store) and (a.value.op, a.value.dtype) == (b.value.op, b.value.dtype)


def _tree(value: Op, terms: list[KExpr]) -> KExpr:
    """Return the terms combined pairwise: no deeper than it has to be, and rounded as little."""
    while len(terms) > 1:
        pairs = [Op(value.op, (a, b), value.dtype) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = [*pairs, *(terms[-1:] if len(terms) % 2 else [])]
    return terms[0]
