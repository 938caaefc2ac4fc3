"""Staging: what a statement reads passes through a temporary with a cell for each of its instances.

Before: `O[j,i] = X[i,j]`. After: `P[j,i] = X[i,j];  O[j,i] = P[j,i]`. Tiled together and with P on the stack, each of the two
statements can run along the dimension that is contiguous for it: a transposition by tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyker.ir.dtypes import i64
from polyker.ir.expr import Index, Read, transform
from polyker.ir.quasi_affine import add, lit
from polyker.ir.typed import TypedStatement
from polyker.poly.isl import read_set
from polyker.rewrite.fresh import Fresh


def stage_read(
    fresh: Fresh, statement: TypedStatement, read: Read, inner: str, origin: Mapping[str, int]
) -> tuple[TypedStatement, TypedStatement, str]:
    """Return the copy, the statement that reads the copy, and the temporary.

    `inner` is the temporary's last dimension; its cells are counted from `origin`, the least values of the iterators.
    """
    assert read.dtype is not None
    order = [i for i in statement.iterators if i != inner] + [inner]
    name = fresh.temporary("stage", read.dtype, tuple(lit(1 << 20) for _ in order))
    cell = tuple(add(Index(i, i64), lit(-origin[i])) for i in order)
    copy_name = fresh.statement()
    domain = str(read_set(statement.domain).set_tuple_name(copy_name))
    copy = replace(
        statement,
        name=copy_name,
        domain=domain,
        target=name,
        subscripts=cell,
        op="set",
        expr=read,
        acc=read.dtype,
        reduced=(),
    )
    staged = Read(name, cell, dtype=read.dtype)
    changed = transform(statement.expr, lambda e: staged if e == read else e)
    return copy, replace(statement, expr=changed), name
