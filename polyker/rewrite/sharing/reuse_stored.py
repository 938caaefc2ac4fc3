"""Read a costly value that an earlier statement stored instead of recomputing it.

Before: `E[i,j] = exp(X[i,j]);  S[i] += exp(X[i,k])`. After: `E[i,j] = exp(X[i,j]);  S[i] += E[i,k]`. What is read instead takes
no more memory traffic: the value's own operand is not read any more.
"""

from __future__ import annotations

from polyker.cost.plan import is_costly, values
from polyker.ir.decision import Decision
from polyker.ir.expr import Expr, Read, reads_in, replace_parts
from polyker.ir.quasi_affine import indices_of, is_quasi_affine, renaming
from polyker.ir.typed import Role, TypedNode, TypedProgram, TypedStatement, statements_of
from polyker.poly.isl import read_set
from polyker.poly.scop import image
from polyker.rewrite.core.match import match
from polyker.structs import replace


def read_stored(program: TypedProgram) -> tuple[TypedProgram, tuple[Decision, ...]]:
    """Return the program that reads such values, and what was done in words."""
    notes: list[Decision] = []
    body = list(program.body)
    targets = [s.target for s in program.statements()]
    reads = [r.tensor for s in program.statements() for r in dict.fromkeys(s.reads())]
    for place, node in enumerate(body):
        # A temporary that is read once may yet be computed where it is read.
        if isinstance(node, TypedStatement) and _stores(program, node) and targets.count(node.target) == 1:
            is_kept = program.tensor(node.target).role is Role.OUTPUT or reads.count(node.target) > 1
            notes += _reread(program, body, place, node) if is_kept else []
    return (replace(program, body=tuple(body)) if notes else program), tuple(notes)


def _stores(program: TypedProgram, statement: TypedStatement) -> bool:
    """Whether a statement stores a costly value as it is, of which the element tells the instance."""
    tensor = program.tensor(statement.target)
    return (
        (statement.op, statement.outer, statement.expr.dtype) == ("set", 0, tensor.dtype)
        and tensor.role is not Role.INOUT
        and any(map(is_costly, values(statement.expr)))
        and all(map(is_quasi_affine, statement.subscripts))
        and not statement.reads_own
    )


def _reread(program: TypedProgram, body: list[TypedNode], place: int, stored: TypedStatement) -> list[Decision]:
    """Change the later statements of a body that compute a stored value; return what was done in words."""
    sources = {r.tensor for r in reads_in(stored.expr)}
    notes = list[Decision]()
    for later in range(place + 1, len(body)):
        node = body[later]
        if sources & {s.target for s in statements_of((node,))}:
            break
        if not isinstance(node, TypedStatement):
            continue
        changed = _reading(program, stored, node)
        if changed is not None:
            body[later] = changed
            notes.append(Decision(node.name, f"reads {stored.target} in place of computing it again"))
    return notes


def _reading(program: TypedProgram, stored: TypedStatement, statement: TypedStatement) -> TypedStatement | None:
    """Return a statement that reads a stored value, None where it computes none, or has its operands at hand anyway."""
    found: dict[Expr, Read] = {}
    for e in values(statement.expr):
        names = match(stored.expr, e, {})
        if names is None or set(names) != set(stored.iterators) or e in found:
            continue
        points = image(program, statement, (names[i] for i in stored.iterators), stored.name)
        if points.intersect_params(read_set(program.context)).is_subset(read_set(stored.domain)):
            subscripts = stored.substituted(renaming(names)).subscripts
            found[e] = Read(stored.target, subscripts, dtype=stored.expr.dtype)

    def read(e: Expr) -> Expr | None:
        return found[e] if e in found else e if isinstance(e, Read) else None

    changed = replace(statement, expr=replace_parts(statement.expr, read))
    left = set(changed.reads())
    spared = {r for e in found for r in reads_in(e) if r not in left and indices_of(r) >= indices_of(found[e])}
    return changed if spared else None
