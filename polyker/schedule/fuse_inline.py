"""A temporary that is read once is not stored: the statement that reads it computes the value.

Before: `T[i,j] = 2 * X[i,j];  O[i] += T[i,j]`. After: `O[i] += 2 * X[i,j]`. No value is computed more often than before.
"""

from __future__ import annotations

from dataclasses import replace

from polyker.ir.expr import Cast, Expr, Read, reads_in, transform, walk
from polyker.ir.quasi_affine import add, is_quasi_affine, lit, substitute
from polyker.ir.typed import Role, TypedProgram, TypedStatement
from polyker.schedule.fuse_items import alone, touches


def inline_single_reads(program: TypedProgram) -> TypedProgram:
    """Return the program without the temporaries that one statement defines and one reads, each cell once."""
    if not any(t.role is Role.TEMPORARY for t in program.tensors):
        return program
    gone: set[str] = set()
    while (found := _candidate(program)) is not None:
        definition, reader, read = found
        gone.add(definition.target)
        value = _value(program, definition, read)
        merged = replace(reader, expr=transform(reader.expr, lambda e, old=read, new=value: new if e == old else e))  # type: ignore[misc]
        body = tuple(merged if n is reader else n for n in program.body if n is not definition)
        program = replace(program, body=body)
    return replace(program, tensors=tuple(t for t in program.tensors if t.name not in gone)) if gone else program


def _candidate(program: TypedProgram) -> tuple[TypedStatement, TypedStatement, Read] | None:
    """Return a definition, the statement that reads it, and the read."""
    used: dict[str, list[TypedStatement]] = {}
    for s in program.statements():
        for name in dict.fromkeys(t.tensor for t in touches(s)):
            used.setdefault(name, []).append(s)
    places = {n.name: p for p, n in enumerate(program.body) if isinstance(n, TypedStatement)}
    for tensor in program.tensors:
        around = used.get(tensor.name, [])
        if tensor.role is not Role.TEMPORARY or len(around) != 2 or not all(s.name in places for s in around):
            continue
        definition, reader = around
        if definition.target != tensor.name or not _defines_once(definition):
            continue
        read = _only_read(reader, tensor.name)
        sources = {t.tensor for t in touches(definition) if not t.is_write}
        between = program.body[places[definition.name] + 1 : places[reader.name] + 1]
        written = {s.target for s in replace(program, body=between).statements()}
        if read is not None and not sources & written:
            return definition, reader, read
    return None


def _defines_once(definition: TypedStatement) -> bool:
    """Whether each iterator is one of the target's subscripts, and the value can be computed anywhere."""
    if definition.op != "set" or any(t.tensor == definition.target for t in list(touches(definition))[1:]):
        return False
    gathers = any(not is_quasi_affine(s) for t in touches(definition) for s in t.subscripts)
    found = {a[0] for s in definition.subscripts if (a := alone(s)) is not None}
    return not gathers and set(definition.iterators) <= found


def _only_read(reader: TypedStatement, tensor: str) -> Read | None:
    """Return the only read of a tensor in a statement whose instances read different cells of it."""
    reads = {r for r in reader.reads() if r.tensor == tensor}
    if len(reads) != 1 or reader.target == tensor:
        return None
    read = reads.pop()
    inside = any(read in walk(s) for r in reads_in(reader.expr) for s in r.subscripts)
    if read.pad is not None or inside or not all(is_quasi_affine(s) for s in (*read.subscripts, *reader.subscripts)):
        return None
    found = {a[0] for s in read.subscripts if (a := alone(s)) is not None}
    return read if set(reader.iterators) <= found else None


def _value(program: TypedProgram, definition: TypedStatement, read: Read) -> Expr:
    """Return the value of the cell that is read."""
    values: dict[str, Expr] = {}
    for own, other in zip(definition.subscripts, read.subscripts, strict=True):
        found = alone(own)
        if found is not None:
            values.setdefault(found[0], add(other, lit(-found[1])))
    value = substitute(definition.expr, values)
    dtype = program.tensor(definition.target).dtype
    return value if value.dtype == dtype else Cast(dtype, value, dtype)
