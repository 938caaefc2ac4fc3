"""Make the initialisation of reductions to their identity explicit.

After this pass a reduction only ever accumulates into elements that hold a value. The start is placed before the outermost loop
around the first reduction, and covers every element that no earlier statement wrote; elements that a `for` or `where` left out of
the reduction hold the identity for that reason. Comes after inline reductions were lifted.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from polyker.ir.expr import Read
from polyker.ir.quasi_affine import indices, is_quasi_affine
from polyker.ir.typed import Role, TypedLoop, TypedNode, TypedProgram, TypedStatement, statements_of
from polyker.poly.isl import read_set, union_of
from polyker.poly.scop import elements_reached, elements_written, image, tensor_box
from polyker.rewrite.core.fresh import Fresh, identity


def start_reductions(program: TypedProgram) -> TypedProgram:
    """Return the program with a `set` statement before each reduction into elements that are not defined yet.

    Before: `t2[i] += …`. After: `t2[i0] = 0` over the elements not written so far, then `t2[i] += …`.
    """
    fresh = Fresh(program)
    body: list[TypedNode] = []
    defined: dict[str, isl.Set] = {}
    given = {t.name for t in program.tensors if t.role is Role.INOUT}

    def define(tensor: str, elements: isl.Set) -> None:
        defined[tensor] = defined[tensor].union(elements) if tensor in defined else elements

    for node in program.body:
        for before, statement in _each((node,)):
            if (statement.op == "set" and not statement.scatters) or statement.target in given:
                continue
            known = defined.get(statement.target)
            if before is not None and _starts(program, before, statement):
                written = elements_written(program, before)
                known = written if known is None else known.union(written)
            elements = _elements_to_start(program, statement, known)
            needed = _needed(program, statement.target) if elements is not None else None
            if elements is not None and needed is not None:
                elements = elements.intersect(needed).coalesce()
                elements = None if elements.is_empty() else elements
            if elements is not None:
                body.insert(
                    _place(program, body, statement.target, elements), start_of(program, fresh, statement, elements)
                )
                define(statement.target, elements)
        for statement in statements_of((node,)):
            if statement.op == "set" and statement.target not in given:
                define(statement.target, elements_written(program, statement))
        body.append(node)
    return fresh.finish(tuple(body))


def _place(program: TypedProgram, body: list[TypedNode], tensor: str, elements: isl.Set) -> int:
    """Return where in a body elements are started: at its end, or before what reads them.

    That is an inline reduction of the statement that they are started for, lifted out of it.
    """
    for place, node in enumerate(body):
        for s in statements_of((node,)):
            for r in s.reads():
                if r.tensor == tensor and not _elsewhere(program, s, r, elements):
                    return place
    return len(body)


def _elsewhere(program: TypedProgram, statement: TypedStatement, read: Read, elements: isl.Set) -> bool:
    """Whether a statement surely reads none of some elements."""
    if (read.pad is not None and read.pad.mode != "constant") or not all(map(is_quasi_affine, read.subscripts)):
        return False
    return bool(elements_reached(program, statement, read.tensor, read.subscripts).is_disjoint(elements))


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
    """Whether in each iteration of the loops around both a statement sets the elements that a reduction combines with."""
    if (before.op, before.target, before.subscripts) != ("set", statement.target, statement.subscripts):
        return False
    if before.scatters or before.iterators != statement.kept or before.outer != statement.outer:
        return False
    return bool(image(program, statement, statement.kept, before.name).is_subset(read_set(before.domain)))


def _elements_to_start(program: TypedProgram, statement: TypedStatement, defined: isl.Set | None) -> isl.Set | None:
    """Return the elements that begin at the reduction's identity, None where all are defined already."""
    elements = read_set(statement.defines or tensor_box(program, statement.target))
    if defined is None:
        return elements
    elements = elements.subtract(defined).coalesce()
    known = elements.intersect_params(read_set(program.context)) if program.sizes else elements
    return None if known.is_empty() else elements


def _needed(program: TypedProgram, tensor: str) -> isl.Set | None:
    """Return the elements of a temporary that some statement reads or reduces into, None where all may be needed."""
    if program.tensor(tensor).role is not Role.TEMPORARY:
        return None
    found: list[isl.Set] = []
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
            found.append(elements_reached(program, s, tensor, subscripts))
    return union_of(found)


def start_of(program: TypedProgram, fresh: Fresh, statement: TypedStatement, elements: isl.Set) -> TypedStatement:
    """Return the statement that sets elements of a statement's target to the identity of its reduction."""
    tensor = program.tensor(statement.target)
    iterators = fresh.iterators(len(tensor.shape))
    value = identity("add" if statement.scatters else statement.op, tensor.dtype)
    return fresh.sets(elements, iterators, (tensor.name, indices(iterators)), value, statement)
