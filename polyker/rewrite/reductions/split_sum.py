"""Split long reductions into few elements into partial results, so that many threads take part.

Before: `T[p] += e(p, i)`. After, for `count` partial results: `P[p, q] = 0;  P[p, q] += e(p, k * count + q);  T[p] += P[p, q]`.
Neighbouring q take neighbouring terms, or runs of `run` of them: `P[p, q] += e(p, (k * count + q) * run + l)` for l below `run`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Read
from polyker.ir.quasi_affine import add, lit, scale, substitute
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import Set, read_map, read_set
from polyker.poly.scop import domain_text, parameters
from polyker.rewrite.core.fresh import Fresh, identity


@dataclass(frozen=True, slots=True)
class SplitSum:
    """The statements that stand for a reduction, in their order; `within` counts the terms of a run, None without runs."""

    start: TypedStatement
    partial: TypedStatement
    fold: TypedStatement
    within: str | None = None


@dataclass(frozen=True, slots=True)
class SumCut:
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
    q, k = fresh.iterator(), fresh.iterator()
    head = parameters(program)
    acc = statement.acc
    partial = fresh.temporary("partial", acc, (lit(count), *shape) if outermost else (*shape, lit(count)))
    element: tuple[Expr, ...] = tuple(IndexExpr(i, i64) for i in ((q, *kept) if outermost else (*kept, q)))
    # The terms.
    rest = tuple(i for i in statement.iterators if i in statement.reduced and i != along)
    within = (fresh.iterator(),) if run > 1 else ()
    terms_of = (k, *within, *rest)
    iterators = (*kept, q, *terms_of)
    source = ", ".join(statement.iterators)
    more = "".join(f" + {n} and 0 <= {n} < {run}" for n in within)
    pieces = read_map(
        f"{head}{{ {statement.name}[{source}] -> [{', '.join(iterators)}] : "
        f"0 <= {q} < {count} and {along} = {count * run} {k} + {run} {q}{more} }}"
    )
    place = add(scale(count * run, IndexExpr(k, i64)), scale(run, IndexExpr(q, i64)))
    for n in within:
        place = add(place, IndexExpr(n, i64))
    terms = replace(
        statement,
        iterators=iterators,
        domain=domain_text(read_set(statement.domain).apply(pieces), statement.name),
        target=partial,
        subscripts=element,
        expr=substitute(statement.expr, {along: place}),
        reduced=terms_of,
        defines=None,
        prefetch=(),
    )
    # The elements that have terms, each with all its partial results.
    onto = read_map(f"{head}{{ {statement.name}[{source}] -> [{', '.join(kept)}] }}")
    lanes = read_set(f"{head}{{ [{q}] : 0 <= {q} < {count} }}")
    elements = read_set(statement.domain).apply(onto).flat_product(lanes).coalesce()
    start, fold = start_and_fold(fresh, statement, partial, (*kept, q), elements, element)
    return SplitSum(start, terms, fold, within[0] if within else None)


def start_and_fold(
    fresh: Fresh,
    statement: TypedStatement,
    partial: str,
    iterators: tuple[str, ...],
    elements: Set,
    element: tuple[Expr, ...] | None = None,
) -> tuple[TypedStatement, TypedStatement]:
    """Return what sets the partial results of a reduction to its identity, and what reduces them to its results.

    `iterators`: those of the results, then the one that tells the partial results of each apart; `elements`: their values.
    `element`: where a partial result lies, in the order of the iterators if not given.
    """
    begin, fold = fresh.statement(), fresh.statement()
    acc, element = statement.acc, element or tuple(IndexExpr(i, i64) for i in iterators)
    least = identity(statement.op, acc)
    start = TypedStatement(begin, iterators, 0, domain_text(elements, begin), partial, element, "set", least, acc)
    folded = replace(
        statement,
        name=fold,
        iterators=iterators,
        domain=domain_text(elements, fold),
        expr=Read(partial, element, dtype=acc),
        reduced=iterators[-1:],
        prefetch=(),
    )
    return start, folded
