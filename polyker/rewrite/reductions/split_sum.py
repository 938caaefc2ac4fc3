"""Split long reductions into few elements into partial results, so that many threads take part.

Before: `T[p] += e(p, i)`. After, for `count` partial results: `P[p, q] = 0;  P[p, q] += e(p, k * count + q);  T[p] += P[p, q]`.
Neighbouring q take neighbouring terms, or runs of `run` of them: `P[p, q] += e(p, (k * count + q) * run + l)` for l below `run`.
"""

from __future__ import annotations

from msgspec import Struct

from polyker.ir.expr import Expr, Read
from polyker.ir.quasi_affine import add, index, indices, lit, scale
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import Set, read_set
from polyker.poly.scop import image, parameters
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.rewrite.core.reindex import reindexed
from polyker.structs import replace


class SplitSum(Struct, frozen=True):
    """The statements that stand for a reduction, in their order; `within` counts the terms of a run, None without runs."""

    start: TypedStatement
    partial: TypedStatement
    fold: TypedStatement
    within: str | None = None


class SumCut(Struct, frozen=True):
    """How a reduction is split: `count` partial results, cut `along` an iterator, by runs of so many terms.

    The partial results of an element lie side by side, with `outermost` in lines of their own: the first ones of all, then the
    second ones.
    """

    along: str
    count: int
    run: int = 1
    outermost: bool = False


def split_sum(
    program: TypedProgram,
    fresh: Fresh,
    statement: TypedStatement,
    cut: SumCut,
    shape: tuple[Expr, ...],
) -> SplitSum:
    """Split a reduction in no loop of the text into partial results for each element of its result.

    `shape`: for each iterator that is not reduced, in their order, what all its values are below; none is negative.
    """
    along, count, run, outermost = cut.along, cut.count, cut.run, cut.outermost
    kept = statement.kept
    q, k = fresh.iterators(2)
    acc = statement.acc
    partial = fresh.temporary("partial", acc, (lit(count), *shape) if outermost else (*shape, lit(count)))
    element = indices((q, *kept) if outermost else (*kept, q))
    # The terms.
    rest = tuple(i for i in statement.iterators if i in statement.reduced and i != along)
    within = fresh.iterators(1 if run > 1 else 0)
    terms_of = (k, *within, *rest)
    iterators = (*kept, q, *terms_of)
    more = "".join(f" + {n} and 0 <= {n} < {run}" for n in within)
    piece = f"0 <= {q} < {count} and {along} = {count * run} {k} + {run} {q}{more}"
    points = image(program, statement, iterators, where=piece)
    place = add(scale(count * run, index(k)), scale(run, index(q)), *indices(within))
    made = replace(statement, target=partial, subscripts=element, defines=None, prefetch=())
    terms = reindexed(made, iterators, points, {along: place}, reduced=terms_of)
    # The elements that have terms, each with all its partial results.
    lanes = read_set(f"{parameters(program)}{{ [{q}] : 0 <= {q} < {count} }}")
    elements = image(program, statement, kept).flat_product(lanes).coalesce()
    start, fold = start_and_fold(fresh, statement, partial, (*kept, q), elements, element)
    return SplitSum(start, terms, fold, within[0] if within else None)


def start_and_fold(
    fresh: Fresh,
    statement: TypedStatement,
    partial: str,
    iterators: tuple[str, ...],
    elements: Set,
    element: tuple[Expr, ...] | None = None,
    reduced: str | None = None,
) -> tuple[TypedStatement, TypedStatement]:
    """Return what sets the partial results of a reduction to its identity, and what reduces them to its results.

    `iterators`: those of the results and the one that tells the partial results of each apart, which is `reduced`, or the last;
    `elements`: their values. `element`: where a partial result lies, in the order of the iterators if not given.
    """
    element = element or indices(iterators)
    start = fresh.sets(elements, iterators, (partial, element), identity(statement.op, statement.acc))
    made = replace(statement, expr=Read(partial, element, dtype=statement.acc), prefetch=())
    return start, reindexed(made, iterators, elements, {}, fresh.statement(), (reduced or iterators[-1],))
