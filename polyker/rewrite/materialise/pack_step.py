"""Pack, in each iteration of the outer loops, an operand that is strided along the vector.

Before, in a Cholesky factorisation: `for k: A[i,j] = A[i,j] - A[i,k] * A[j,k]` with vectors along j. After:
`for k: { P[j] = A[j,k];  A[i,j] = A[i,j] - A[i,k] * P[j] }`. The copy is made again in each iteration.
"""

from __future__ import annotations

import islpy as isl

from polyker.ir.expr import Read
from polyker.ir.quasi_affine import coefficients, indices_of
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import int_val, read_map, read_set
from polyker.poly.scop import access_relation
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.materialise.pack_operand import Packed, PackedLayout, pack_elements


def copyable(program: TypedProgram, statement: TypedStatement) -> frozenset[Read]:
    """Return the affine reads whose elements the statement does not write in the same iteration of the loops around it: a copy
    made before it holds what it would read."""
    found = (
        r
        for r in dict.fromkeys(statement.reads())
        if r.pad is None and all(coefficients(s) is not None for s in r.subscripts)
    )
    return frozenset(r for r in found if r.tensor != statement.target or _is_apart(program, statement, r))


def _is_apart(program: TypedProgram, statement: TypedStatement, read: Read) -> bool:
    domain = read_set(statement.domain)
    target, elements = (
        read_map(access_relation(program, statement, statement.target, s)).intersect_domain(domain)
        for s in (statement.subscripts, read.subscripts)
    )
    distances = target.apply_range(elements.reverse()).deltas()
    for d in range(statement.outer):
        distances = distances.fix_val(isl.dim_type.set, d, int_val(0))
    return bool(distances.is_empty())


def pack_step(program: TypedProgram, fresh: Fresh, statement: TypedStatement, read: Read, vector: str) -> Packed:
    """Copy what `read` reaches in an iteration of the loops around into a temporary in which `vector` has stride one."""
    used = {i for s in read.subscripts for i in indices_of(s)}
    inner = [i for i in statement.iterators[statement.outer :] if i in used and i != vector] + [vector]

    layout = PackedLayout.over("pack", inner, read)
    return pack_elements(program, fresh, statement, read, layout, statement.outer)
