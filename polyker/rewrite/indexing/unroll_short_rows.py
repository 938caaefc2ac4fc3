"""Unroll a short contiguous index into one statement an element.

Before: `T[p,c] = A[c,p]` with c in 0:3. After: `T[p,0] = A[0,p];  T[p,1] = A[1,p];  T[p,2] = A[2,p]`, which run in one loop
along p: what they store is interleaved, and what lies in rows is picked out of whole vectors
(polyker.codegen.llvm.access.strided). Sums along such rows are written out for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from polyker.cost.access_cost import MAX_SHUFFLED_STRIDE
from polyker.cost.measure import Layouts, MemoryAccess, accesses
from polyker.cost.plan import MAX_TILE_OPERATIONS
from polyker.ir.expr import walk
from polyker.ir.quasi_affine import is_quasi_affine, lit
from polyker.ir.typed import Role, TypedNode, TypedProgram, TypedStatement, replaced
from polyker.poly.boxes import ends, free_range
from polyker.poly.isl import dim, read_set
from polyker.poly.symbolic import expected
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import reindexed
from polyker.rewrite.reductions.short_sums import unfold_sums
from polyker.rewrite.sharing.inline_values import inline_values

# Least extent of the index that becomes the vector's: 16 f32 fill a 512-bit register.
MIN_VECTOR_ROWS = 16


def sum_short_rows(program: TypedProgram, layout: Layouts) -> TypedProgram:
    """Return the program with the sums along short rows written out; as values they may be computed where they are read.

    Rows that are read again for other results are better copied (a tile of a product uses what it loads for several elements),
    unless all of it becomes a part of another sum.
    """
    short, shared = set[str](), set[str]()
    for statement in program.statements():
        # Padded operands of a sum are better copied with their padding.
        plain = bool(statement.reduced) and all(r.pad is None for r in statement.reads())
        for iterator, access in _along_rows(program, statement, layout) if plain else ():
            if iterator in statement.reduced:
                (short if _is_apart(statement, access) else shared).add(statement.target)
    if short:
        program = inline_values(unfold_sums(program, frozenset(short)))
    temporaries = {t.name for t in program.tensors if t.role is Role.TEMPORARY}
    results = (s for s in program.statements() if not s.reduced and s.target not in temporaries)
    shared &= temporaries - short - {r.tensor for s in results for r in s.reads()}
    if shared:
        tried = inline_values(unfold_sums(program, frozenset(shared)))
        gone = frozenset(shared - {t.name for t in tried.tensors})
        if gone:
            program = tried if gone == shared else inline_values(unfold_sums(program, gone))
    return program


def _is_apart(statement: TypedStatement, access: MemoryAccess) -> bool:
    """Whether an access moves with all the results' iterators but those of few values."""
    others = {i for i in statement.kept if not access.stride(i)}
    domain = read_set(statement.domain)
    found = [ends(domain, statement.iterators.index(i)) for i in others]
    return all(e is not None and e[1] - e[0] < MAX_SHUFFLED_STRIDE for e in found)


def unroll_short_rows(program: TypedProgram, layout: Layouts) -> TypedProgram:
    """Return the program with each statement along short rows once for each place in a row."""
    fresh = Fresh(program)

    def change(statement: TypedStatement) -> Iterable[TypedNode]:
        if statement.op != "set" or statement.is_ordered or not any(True for _ in statement.reads()):
            return (statement,)
        found = next(_along_rows(program, statement, layout), None)
        return (statement,) if found is None else _elements(statement, found[0], fresh.statement)

    return fresh.finish(replaced(program.body, change))


def _along_rows(
    program: TypedProgram, statement: TypedStatement, layout: Layouts
) -> Iterator[tuple[str, MemoryAccess]]:
    """Yield the iterators of few values along rows of memory that lie side by side along another one of many, and whose rows."""
    if not all(is_quasi_affine(s) for r in statement.reads() for s in r.subscripts):
        return
    inner = statement.iterators[statement.outer :]
    found = [
        (i, a, tuple(j for j in inner if j != i and 1 < a.stride(j) <= MAX_SHUFFLED_STRIDE))
        for a in accesses(program, statement, layout)
        for i in inner
        if a.stride(i) == 1
    ]
    if not any(rows for _, _, rows in found):
        return
    domain, size = read_set(statement.domain), sum(1 for _ in walk(statement.expr))
    if domain.is_empty():
        return
    ranges = {i: free_range(domain, statement.iterators.index(i)) for i in inner}
    extents = {i: r[1] - r[0] + 1 for i, r in ranges.items() if r is not None}
    spans = {i: ends(expected(program, domain), statement.iterators.index(i)) for i in inner}
    likely = {i: MIN_VECTOR_ROWS if s is None else s[1] - s[0] + 1 for i, s in spans.items()}
    for iterator, access, rows in found:
        extent, long = extents.get(iterator, 0), any(extents.get(j, likely[j]) >= MIN_VECTOR_ROWS for j in rows)
        if 1 < extent <= MAX_SHUFFLED_STRIDE and extent * size <= MAX_TILE_OPERATIONS and long:
            yield iterator, access


def _elements(statement: TypedStatement, iterator: str, name: Callable[[], str]) -> list[TypedStatement]:
    """Return the statements that stand for one, each with one value of an iterator."""
    domain, place = read_set(statement.domain), statement.iterators.index(iterator)
    values = free_range(domain, place)
    assert values is not None
    kept = tuple(i for i in statement.iterators if i != iterator)
    found = []
    for value in range(values[0], values[1] + 1):
        here = domain.fix_val(dim.set, place, value).project_out(dim.set, place, 1)

        own = statement.name if value == values[0] else name()
        found.append(reindexed(statement, kept, here, {iterator: lit(value)}, own))
    return found
