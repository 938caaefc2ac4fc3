"""Give a recurrence's initial statement an iterator of one value, so that it fuses with the time loop.

    H[0,n] = X[0,n]                       H[s,n] = X[0,n]                       for s in 0:1
    H[t,n] = A[n] * H[t-1,n] + X[t,n]     H[t,n] = A[n] * H[t-1,n] + X[t,n]     for t in 1:T
    Y[t,n] = C[n] * H[t,n]                Y[t,n] = C[n] * H[t,n]

Where all three share a loop, two rows of H are alive at a time.
"""

from __future__ import annotations

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Literal, Read, transform
from polyker.ir.quasi_affine import add, index, lit
from polyker.ir.typed import Role, TypedNode, TypedProgram, TypedStatement
from polyker.poly.scop import image
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import reindexed
from polyker.structs import replace


def with_first_steps(program: TypedProgram) -> tuple[TypedProgram, tuple[str, ...]]:
    """Return the program with such iterators, and the temporaries whose recurrences they start; the same program if there are
    none."""
    steps: dict[str, int] = {}
    for node in program.body:
        if isinstance(node, TypedStatement) and (dimension := _steps_along(program, node)) is not None:
            steps.setdefault(node.target, dimension)
    fresh, found = Fresh(program), set[str]()
    body: list[TypedNode] = []
    for node in program.body:
        if isinstance(node, TypedStatement) and node.target in steps:
            place = node.subscripts[steps[node.target]]
            if node.op == "set" and not node.outer and isinstance(place, Literal):
                found.add(node.target)
                node = _in_step(program, fresh, node, steps[node.target], int(place.value.real))
        body.append(node)
    return (fresh.finish(tuple(body)), tuple(sorted(found))) if found else (program, ())


def _steps_along(program: TypedProgram, statement: TypedStatement) -> int | None:
    """Return the dimension of a temporary along which a statement goes on from elements that it wrote, by its first iterator."""
    if statement.op != "set" or statement.outer or not statement.reads_own or not statement.iterators:
        return None
    first = IndexExpr(statement.iterators[0], i64)
    if program.tensor(statement.target).role is not Role.TEMPORARY or first not in statement.subscripts:
        return None
    dimension = statement.subscripts.index(first)
    own = (r for r in statement.reads() if r.tensor == statement.target)
    return dimension if any(r.subscripts[dimension] != first for r in own) else None


def _in_step(
    program: TypedProgram, fresh: Fresh, statement: TypedStatement, dimension: int, value: int
) -> TypedStatement:
    """Return a statement whose elements lie at one place of a dimension with an iterator that has this value."""
    iterator = fresh.iterator()

    def along(subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        place = subscripts[dimension]
        if not isinstance(place, Literal):
            return subscripts
        there = add(index(iterator), lit(int(place.value.real) - value))
        return (*subscripts[:dimension], there, *subscripts[dimension + 1 :])

    def read(expr: Expr) -> Expr:
        own = isinstance(expr, Read) and expr.tensor == statement.target
        return replace(expr, subscripts=along(expr.subscripts)) if own and isinstance(expr, Read) else expr

    iterators = (iterator, *statement.iterators)
    points = image(program, statement, iterators, where=f"{iterator} = {value}")
    made = replace(statement, subscripts=along(statement.subscripts), expr=transform(statement.expr, read))
    return reindexed(made, iterators, points, {})
