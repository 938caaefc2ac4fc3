"""Explicit starts: a reduction into cells that nothing defined before starts at its identity.

After this pass a reduction only ever accumulates into cells that hold a value. The start is placed before the outermost loop
around the first reduction, and covers every cell that no earlier statement wrote; cells that a `for` or `where` left out of
the reduction hold the identity for that reason. Comes after inline reductions were lifted.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from polyker.ir.dtypes import i64
from polyker.ir.expr import Index, Read
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.ir.typed import Role, TypedLoop, TypedNode, TypedProgram, TypedStatement, statements_of
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import cells_reached, cells_written, domain_text, parameters, tensor_box
from polyker.rewrite.core.fresh import Fresh, identity


def start_reductions(program: TypedProgram) -> TypedProgram:
    """Return the program with a `set` statement before each reduction into cells that are not defined yet.

    Before: `t2[i] += …`. After: `t2[i0] = 0` over the cells not written so far, then `t2[i] += …`.
    """
    fresh = Fresh(program)
    body: list[TypedNode] = []
    defined: dict[str, isl.Set] = {}
    given = {t.name for t in program.tensors if t.role is Role.INOUT}

    def define(tensor: str, cells: isl.Set) -> None:
        defined[tensor] = defined[tensor].union(cells) if tensor in defined else cells

    for node in program.body:
        for before, statement in _each((node,)):
            if (statement.op == "set" and not statement.scatters) or statement.target in given:
                continue
            known = defined.get(statement.target)
            if before is not None and _starts(program, before, statement):
                written = cells_written(program, before)
                known = written if known is None else known.union(written)
            cells = _cells_to_start(program, statement, known)
            needed = _needed(program, statement.target) if cells is not None else None
            if cells is not None and needed is not None:
                cells = cells.intersect(needed).coalesce()
                cells = None if cells.is_empty() else cells
            if cells is not None:
                body.insert(_place(program, body, statement.target, cells), _start(program, fresh, statement, cells))
                define(statement.target, cells)
        for statement in statements_of((node,)):
            if statement.op == "set" and statement.target not in given:
                define(statement.target, cells_written(program, statement))
        body.append(node)
    return fresh.finish(tuple(body))


def _place(program: TypedProgram, body: list[TypedNode], tensor: str, cells: isl.Set) -> int:
    """Return where in a body cells are started: at its end, or before what reads them.

    That is an inline reduction of the statement that they are started for, lifted out of it.
    """
    for place, node in enumerate(body):
        for s in statements_of((node,)):
            for r in s.reads():
                if r.tensor == tensor and not _elsewhere(program, s, r, cells):
                    return place
    return len(body)


def _elsewhere(program: TypedProgram, statement: TypedStatement, read: Read, cells: isl.Set) -> bool:
    """Whether a statement surely reads none of some cells."""
    if (read.pad is not None and read.pad.mode != "constant") or not all(map(is_quasi_affine, read.subscripts)):
        return False
    return bool(cells_reached(program, statement, read.tensor, read.subscripts).is_disjoint(cells))


def _each(body: tuple[TypedNode, ...]) -> Iterator[tuple[TypedStatement | None, TypedStatement]]:
    """Yield the statements of a body, those inside loops too, each with the one directly before it in its loop."""
    before: TypedStatement | None = None
    for node in body:
        if isinstance(node, TypedLoop):
            yield from _each(node.body)
            before = None
        else:
            yield before, node
            before = node


def _starts(program: TypedProgram, before: TypedStatement, statement: TypedStatement) -> bool:
    """Whether in each iteration of the loops around both a statement sets the cells that a reduction combines with."""
    kept = tuple(i for i in statement.iterators if i not in statement.reduced)
    if (before.op, before.target, before.subscripts) != ("set", statement.target, statement.subscripts):
        return False
    if before.scatters:
        return False
    if before.iterators != kept or before.outer != statement.outer:
        return False
    onto = f"{{ {statement.name}[{', '.join(statement.iterators)}] -> {before.name}[{', '.join(kept)}] }}"
    reached = read_set(statement.domain).apply(read_map(parameters(program) + onto))
    return bool(reached.is_subset(read_set(before.domain)))


def _cells_to_start(program: TypedProgram, statement: TypedStatement, defined: isl.Set | None) -> isl.Set | None:
    """Return the cells that begin at the reduction's identity, None where all are defined already."""
    cells = read_set(statement.defines or tensor_box(program, statement.target))
    if defined is None:
        return cells
    cells = cells.subtract(defined).coalesce()
    known = cells.intersect_params(read_set(program.context)) if program.sizes else cells
    return None if known.is_empty() else cells


def _needed(program: TypedProgram, tensor: str) -> isl.Set | None:
    """Return the cells of a temporary that some statement reads or reduces into, None where all may be needed."""
    if program.tensor(tensor).role is not Role.TEMPORARY:
        return None
    found: isl.Set | None = None
    for s in program.statements():
        used = [s.subscripts] * (s.target == tensor and s.op != "set")
        for r in s.reads():
            if r.tensor == tensor:
                used.append(r.subscripts)
                if r.pad is not None and r.pad.mode != "constant":
                    return None
        for subscripts in used:
            if not all(map(is_quasi_affine, subscripts)):
                return None
            cells = cells_reached(program, s, tensor, subscripts)
            found = cells if found is None else found.union(cells)
    return found


def _start(program: TypedProgram, fresh: Fresh, statement: TypedStatement, cells: isl.Set) -> TypedStatement:
    tensor = program.tensor(statement.target)
    name = fresh.statement()
    iterators = tuple(fresh.iterator() for _ in tensor.shape)
    domain = domain_text(cells, name)
    value = identity("add" if statement.scatters else statement.op, tensor.dtype)
    places = tuple(Index(i, dtype=i64) for i in iterators)
    return TypedStatement(
        name, iterators, 0, domain, tensor.name, places, "set", value, tensor.dtype, (), statement.span
    )
