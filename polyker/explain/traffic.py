"""Compulsory bytes: the elements of the arguments that are read, and those that are written, each once."""

from __future__ import annotations

from collections.abc import Mapping

from polyker.explain.amounts import Amounts
from polyker.explain.report import Amount, Moved
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.ir.typed import Role, TypedProgram
from polyker.poly.isl import read_set
from polyker.poly.scop import Scop, build_scop, tensor_box


def moved_bytes(program: TypedProgram, amounts: Amounts, labels: Mapping[str, str]) -> list[Moved]:
    """Return the bytes of each argument, exact but for gathers."""
    scop = build_scop(program)
    found = []
    for name in dict.fromkeys((*program.inputs, *program.outputs)):
        tensor = program.tensor(name)
        read, exact = (0, True) if tensor.role is Role.OUTPUT else _read(scop, name, amounts)
        written: Amount = 0
        if tensor.role is Role.OUTPUT:
            written, _ = amounts(read_set(tensor_box(program, name)))
        elif tensor.role is Role.INOUT:
            written, sure = _written(scop, name, amounts)
            exact = exact and sure
        size = tensor.dtype.itemsize
        found.append(Moved(labels[name], read * size, written * size, exact))
    return found


def _read(scop: Scop, tensor: str, amounts: Amounts) -> tuple[Amount, bool]:
    """Return how many elements are read; of gathers at most those of the tensor, and at most one an instance."""
    elements, gathered, bound = None, False, 0
    for a in scop.accesses:
        if a.tensor != tensor or (a.is_write and not a.is_update):
            continue
        inside = a.relation.range()
        elements = inside if elements is None else elements.union(inside)
        exact = bool(a.subscripts or not scop.program.tensor(tensor).shape) and all(map(is_quasi_affine, a.subscripts))
        gathered = gathered or not exact
        each, _ = amounts(inside if exact else a.relation.domain())
        bound = bound + each
    if elements is None:
        return 0, True
    found, exact = amounts(elements)
    if gathered and isinstance(found, int) and isinstance(bound, int):
        found = min(found, bound)
    return found, exact and not gathered


def _written(scop: Scop, tensor: str, amounts: Amounts) -> tuple[Amount, bool]:
    elements = None
    for a in scop.accesses:
        if a.tensor == tensor and a.is_write:
            inside = a.relation.range()
            elements = inside if elements is None else elements.union(inside)
    return (0, True) if elements is None else amounts(elements)
