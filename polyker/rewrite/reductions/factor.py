"""Factor a sum of products into contraction steps through temporaries.

Before: `O[n,o] += X[n,i] * W[o,i,j] * Y[n,j]`. After: `T[n,o,j] = 0;  T[n,o,j] += X[n,i] * W[o,i,j];
O[n,o] += T[n,o,j] * Y[n,j]`. The product distributes over the sum; so do `and` over any, `or` over all, and the minimum over the
maximum, each the other way round, too. In which steps is for another module to say
(polyker.rewrite.reductions.contraction_order).

A factor is any expression: a read, padded or gathered, a function of some, a constant. Where a condition ties an iterator that is
summed to one that its step does not have, the step is refused: instances are computed for exactly the points that the text sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import islpy as isl
from msgspec import Struct

from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Expr, IndexExpr, Read
from polyker.ir.quasi_affine import indices_of, subtract
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_set
from polyker.poly.scop import domain_text, map_onto
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.rewrite.core.reindex import renamed
from polyker.structs import replace

# What distributes over each reduction without a change of value but for rounding: `max` over sums is no such pair, because
# -inf + inf is no number and integers wrap.
_TIMES = {"add": "mul", "any": "and", "all": "or", "max": "minimum", "min": "maximum"}

# Which factors (by number) are multiplied before which: a step for each tuple.
ContractionTree: TypeAlias = "int | tuple[ContractionTree, ...]"


class Product(Struct, frozen=True):
    """A reduction whose right side is a product.

    `factors`: with the iterators that each depends on; at least one of them. `scalars` depend on none. `free`: the iterators
    that a step may sum over.
    """

    statement: TypedStatement
    times: str
    factors: tuple[Expr, ...]
    indices: tuple[frozenset[str], ...]
    scalars: tuple[Expr, ...]
    free: frozenset[str]


class ContractionStep(Struct, frozen=True):
    """The product of `operands` over the points of `kept` and `reduced`, summed over these.

    Operands are numbers: of factors, then of earlier steps. `kept`: in the order of the temporary's dimensions. The last step
    of a sequence is the statement itself.
    """

    operands: tuple[int, ...]
    kept: tuple[str, ...]
    reduced: tuple[str, ...]

    @property
    def points(self) -> tuple[str, ...]:
        """The iterators, the reduced ones innermost."""
        return (*self.kept, *self.reduced)


def product_of(statement: TypedStatement) -> Product | None:
    """Return a reduction as a product of factors, None where it is none, or where it may not be taken in steps."""
    times = _TIMES.get(statement.op)
    if times is None or statement.outer or not statement.reduced:
        return None
    if statement.reads_own:
        return None
    parts = _parts(statement.expr, times)
    inside = [indices_of(p) for p in parts]
    return Product(
        statement,
        times,
        tuple(p for p, found in zip(parts, inside, strict=True) if found),
        tuple(found for found in inside if found),
        tuple(p for p, found in zip(parts, inside, strict=True) if not found),
        frozenset(statement.reduced),
    )


def _parts(expr: Expr, times: str) -> tuple[Expr, ...]:
    """Return the factors of an expression; a sign goes to the first of them."""
    match expr:
        case Call(op=op, args=args) if op == times:
            return tuple(p for a in args for p in _parts(a, times))
        case Call(op="neg", args=(a,)) if times == "mul":
            first, *rest = _parts(a, times)
            return (replace(expr, args=(first,)), *rest)
        case _:
            return (expr,)


def steps_of(
    product: Product,
    tree: ContractionTree,
    order: Sequence[str],
    innermost: Callable[[int, tuple[int, ...], frozenset[str]], str | None],
) -> list[ContractionStep]:
    """Return the steps of a tree, each after those whose results it uses.

    A step sums over what nothing later depends on. `order`: of the temporaries' dimensions, but for the `innermost` one, which
    follows from a step's number, operands and dimensions.
    """
    live = dict(enumerate(product.indices))
    steps: list[ContractionStep] = []

    def visit(node: ContractionTree) -> int:
        if isinstance(node, int):
            return node
        operands = tuple(visit(n) for n in node)
        inside = frozenset().union(*(live.pop(o) for o in operands))
        used = frozenset().union(*live.values())
        reduced = (inside & product.free) - used
        inner = innermost(len(steps), operands, inside - reduced)
        kept = tuple(sorted(inside - reduced, key=lambda i: (i == inner, order.index(i))))
        number = len(product.factors) + len(steps)
        live[number] = frozenset(kept)
        steps.append(ContractionStep(operands, kept, tuple(i for i in order if i in reduced)))
        return number

    visit(tree)
    summed = {i for s in steps[:-1] for i in s.reduced}
    statement = product.statement
    kept = statement.kept
    steps[-1] = ContractionStep(steps[-1].operands, kept, tuple(i for i in statement.reduced if i not in summed))
    return steps


def outline(
    fresh: Fresh, product: Product, steps: Sequence[ContractionStep], places: Mapping[str, tuple[Expr, Expr]]
) -> list[TypedStatement]:
    """Return the steps as statements over iterators of the original, each with the original's whole domain.

    `places`: least value and extent of each iterator. It shows how each step reaches memory; `factored` gives the statements
    that compute it.
    """
    statement, acc = product.statement, product.statement.acc
    values = list(product.factors)
    found = []
    # The scalars are multiplied where that is done least often.
    least = min(range(len(steps)), key=lambda n: (len(steps[n].points), n))
    for n, step in enumerate(steps):
        operands = tuple(values[o] for o in step.operands) + (product.scalars if n == least else ())
        value = operands[0] if len(operands) == 1 else Call(product.times, operands, acc)
        if n == len(steps) - 1:
            iterators = tuple(i for i in statement.iterators if i in step.points)
            found.append(replace(statement, iterators=iterators, expr=value, reduced=step.reduced))
            break
        element = tuple(subtract(IndexExpr(i, i64), places[i][0]) for i in step.kept)
        tensor = fresh.temporary("product", acc, tuple(places[i][1] for i in step.kept))
        values.append(Read(tensor, element, dtype=acc))
        op = statement.op if step.reduced else "set"
        name = fresh.statement()
        found.append(
            TypedStatement(
                name, step.points, 0, statement.domain, tensor, element, op, value, acc, step.reduced, statement.span
            )
        )
    return found


def factored(
    program: TypedProgram,
    fresh: Fresh,
    product: Product,
    steps: Sequence[ContractionStep],
    places: Mapping[str, tuple[Expr, Expr]],
) -> list[TypedStatement] | None:
    """Return the statements of the steps, with the starts of their sums; None where the domain does not allow a step."""
    statement = product.statement
    domains = _domains(program, statement, steps)
    if domains is None:
        return None
    found: list[TypedStatement] = []
    for made, step, domain in zip(outline(fresh, product, steps, places), steps, domains, strict=True):
        if step is steps[-1]:
            found.append(replace(made, domain=domain_text(domain, made.name)))
            continue
        own = {i: fresh.iterator() for i in step.points}
        update = renamed(replace(made, domain=domain_text(domain, made.name)), own)
        if step.reduced:
            count, least = len(step.kept), identity(statement.op, statement.acc)
            elements = domain.project_out(isl.dim_type.set, count, len(step.reduced))
            place = update.target, update.subscripts
            found.append(fresh.sets(elements, update.iterators[:count], place, least, statement))
        found.append(update)
    return found


def _domains(
    program: TypedProgram, statement: TypedStatement, steps: Sequence[ContractionStep]
) -> list[isl.Set] | None:
    """Return the points of each step; None where those of one depend on iterators that it does not have.

    A step over the points p of its own, of which it sums over r, leaves the points q without r: the points before have to be all
    those whose p and whose q are among them.
    """
    left = read_set(statement.domain)
    around = statement.iterators
    if left.is_empty():
        return None
    found = []
    for step in steps[:-1]:
        own = map_onto(program, statement, step.points)
        points = left.apply(own)
        found.append(points)
        if not step.reduced:
            continue
        # Without the iterators that are summed, but in their places: any value.
        rest = left
        for i in step.reduced:
            rest = rest.project_out(isl.dim_type.set, around.index(i), 1).insert_dims(
                isl.dim_type.set, around.index(i), 1
            )
        rest = rest.set_tuple_name(statement.name)
        if not own.intersect_range(points).domain().intersect(rest).is_subset(left):
            return None
        # What is summed is bound to no other iterator any more: it may stay, as any one value.
        left = rest
    last = tuple(i for i in around if i in steps[-1].points)
    found.append(left.apply(map_onto(program, statement, last)))
    return found
