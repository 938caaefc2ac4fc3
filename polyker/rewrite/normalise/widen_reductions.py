"""Accumulate reductions in f16 and bf16 whose results share elements in a wider type of their own.

Before: `H[I[n]] += W[n]` (H bf16). After: `A[c] = f32(H[c]);  A[I[n]] += W[n];  H[c] = bf16(A[c])`, rounded once. Comes after
reductions were started; where each element has one result an accumulator does the same (polyker.rewrite.core.accumulate).
"""

from __future__ import annotations

import islpy as isl

from polyker.ir.expr import Cast, IndexExpr, Read
from polyker.ir.quasi_affine import indices, is_quasi_affine
from polyker.ir.typed import TypedProgram, TypedStatement, replaced
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import access_relation, map_onto, tensor_box
from polyker.rewrite.core.fresh import Fresh
from polyker.structs import replace


def widen_reductions(program: TypedProgram) -> TypedProgram:
    """Return the program with a wider temporary around each reduction that would round at each of its terms."""
    fresh = Fresh(program)

    def change(statement: TypedStatement) -> tuple[TypedStatement, ...]:
        return _widened(program, fresh, statement) if _shares_elements(program, statement) else (statement,)

    return fresh.finish(replaced(program.body, change))


def _shares_elements(program: TypedProgram, statement: TypedStatement) -> bool:
    if statement.op == "set" or statement.reads_own or statement.acc == program.tensor(statement.target).dtype:
        return False
    if statement.outer and not all(map(is_quasi_affine, statement.subscripts)):
        return False  # each time around all elements would be copied, whichever are reached
    alone = {s.name for s in statement.subscripts if isinstance(s, IndexExpr)}
    return not set(statement.kept) <= alone


def _widened(program: TypedProgram, fresh: Fresh, statement: TypedStatement) -> tuple[TypedStatement, ...]:
    target, acc = program.tensor(statement.target), statement.acc
    wide = fresh.temporary(target.label, acc, target.shape)
    outer = statement.outer
    inner = fresh.iterators(len(target.shape))
    element, iterators = indices(inner), (*statement.iterators[:outer], *inner)
    box = _reached(program, statement) if outer else read_set(tensor_box(program, target.name))
    start = Cast(acc, Read(target.name, element, dtype=target.dtype), acc)
    end = Cast(target.dtype, Read(wide, element, dtype=acc), target.dtype)
    return (
        fresh.sets(box, iterators, (wide, element), start, statement, outer),
        replace(statement, target=wide),
        fresh.sets(box, iterators, (target.name, element), end, statement, outer),
    )


def _reached(program: TypedProgram, statement: TypedStatement) -> isl.Set:
    """Return the iterations of the loops around a statement together with the elements that it reaches in each."""
    times = map_onto(program, statement, statement.iterators[: statement.outer])
    elements = read_map(access_relation(program, statement, statement.target, statement.subscripts))
    return read_set(statement.domain).apply(times.flat_range_product(elements))
