"""Inline temporaries that are cheaper to recompute than to store.

Before: `T[i,j] = 2 * X[i,j];  O[i] += T[i,j]`. After: `O[i] += 2 * X[i,j]`. What is read in one element by one statement is never
computed more often than before; what is read in several, `D[i] = T[i+1] - T[i]`, only where that takes fewer cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from polyker.cost.plan import MAX_TILE_OPERATIONS, is_costly, values
from polyker.cost.table import ITERATION, LOAD, OPERATION
from polyker.ir.decision import Decision
from polyker.ir.expr import Call, Expr, Read, converted, reads_in, transform, walk
from polyker.ir.functions import cost_of
from polyker.ir.measure import DEPTH, depth_of, level_of
from polyker.ir.quasi_affine import add, indices_of, is_quasi_affine, lit, substitute
from polyker.ir.typed import Role, TypedProgram, TypedStatement, statements_of
from polyker.poly.touches import alone, touches
from polyker.rewrite.reductions.short_sums import short_sums, unfold_sums
from polyker.structs import replace


class _Inlining(Struct, frozen=True):
    """A definition, and the statements that read its target with the reads of each."""

    definition: TypedStatement
    readers: tuple[tuple[TypedStatement, tuple[Read, ...]], ...]


class _ProgramFacts:
    """What is found out of statements once: a program of many is looked at again after each that is inlined."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[TypedStatement, tuple[str, ...], int]] = {}
        self._judged: dict[tuple[int, ...], _Inlining | None] = {}

    def _of(self, statement: TypedStatement) -> tuple[TypedStatement, tuple[str, ...], int]:
        if id(statement) not in self._kept:
            names = tuple(dict.fromkeys(t.tensor for t in touches(statement)))
            self._kept[id(statement)] = statement, names, depth_of(statement.expr)
        return self._kept[id(statement)]

    def touched(self, statement: TypedStatement) -> tuple[str, ...]:
        """Return the tensors that a statement writes and reads."""
        return self._of(statement)[1]

    def depth(self, statement: TypedStatement) -> int:
        """Return the depth of a statement's value."""
        return self._of(statement)[2]

    def judged(self, definition: TypedStatement, readers: Sequence[TypedStatement]) -> _Inlining | None:
        """Return a definition to be inlined in its readers, if that can be done and had better be, wherever they stand."""
        place = id(definition), *map(id, readers)
        if place not in self._judged:
            reads = [_reads(reader, definition.target) for reader in readers]
            found = _Inlining(definition, tuple(zip(readers, reads, strict=True)))
            good = _defines_once(definition) and all(reads) and _pays(found) and _stays_shallow(found, self)
            self._judged[place] = found if good else None
        return self._judged[place]


def inlined_values(program: TypedProgram) -> tuple[TypedProgram, tuple[Decision, ...]]:
    """Return what `inline_values` does, and which temporaries are not stored."""
    found = inline_values(program)
    kept = {t.name for t in found.tensors}
    gone = (t.label for t in program.tensors if t.name not in kept)
    return found, tuple(Decision("", f"{label} is not stored: it is computed where it is read") for label in gone)


def inline_values(program: TypedProgram) -> TypedProgram:
    """Return the program without the temporaries of one definition that are read once, or are cheap to compute again.

    A reduction of few terms counts as a value where that lets it be computed where it is read.
    """
    short = short_sums(program)
    while short:
        found = _inlined(unfold_sums(program, short))
        left = short & {t.name for t in found.tensors}
        if not left:
            return found
        short -= left
    return _inlined(program)


def _inlined(program: TypedProgram) -> TypedProgram:
    """Return the program without the temporaries that had better be computed where they are read."""
    if not any(t.role is Role.TEMPORARY for t in program.tensors):
        return program
    gone: set[str] = set()
    known = _ProgramFacts()
    while (found := next(_candidates(program, known), None)) is not None:
        gone.add(found.definition.target)
        merged = {reader.name: _merged(program, found.definition, reader, reads) for reader, reads in found.readers}
        body = tuple(
            merged.get(n.name, n) if isinstance(n, TypedStatement) else n
            for n in program.body
            if n is not found.definition
        )
        program = replace(program, body=body)
    return replace(program, tensors=tuple(t for t in program.tensors if t.name not in gone)) if gone else program


def _candidates(program: TypedProgram, known: _ProgramFacts) -> Iterator[_Inlining]:
    """Yield what can be inlined and had better be."""
    used: dict[str, list[TypedStatement]] = {}
    for s in program.statements():
        for name in known.touched(s):
            used.setdefault(name, []).append(s)
    places = {n.name: p for p, n in enumerate(program.body) if isinstance(n, TypedStatement)}
    for tensor in program.tensors:
        around = used.get(tensor.name, [])
        if tensor.role is not Role.TEMPORARY or len(around) < 2 or not all(s.name in places for s in around):
            continue
        definition, *readers = around
        found = known.judged(definition, readers) if definition.target == tensor.name else None
        if found is None:
            continue
        sources = {t.tensor for t in touches(definition) if not t.is_write}
        between = program.body[places[definition.name] + 1 : places[readers[-1].name] + 1]
        if not sources & {s.target for s in statements_of(between)}:
            yield found


def _pays(found: _Inlining) -> bool:
    """Whether to compute the value where it is read takes no more cycles than to store it, and its code stays short."""
    size = sum(1 for _ in values(found.definition.expr))
    sources = {r for r in found.definition.reads() if any(map(indices_of, r.subscripts))}
    for reader, reads in found.readers:
        if reader.reads_own and _transposes(found.definition):
            return False
        if _goes_along_memory(reader) and 4 * len(sources) > 3 * found.definition.acc.itemsize:
            return False
        count = sum(1 for e in values(reader.expr) if e in reads)
        if count > 1 and sum(1 for _ in values(reader.expr)) + count * size > MAX_TILE_OPERATIONS:
            return False
    elements = sum(len(reads) for _, reads in found.readers)
    return elements == 1 or (elements - 1) * _cycles(found.definition.expr) <= 4 * ITERATION + elements * LOAD


def _transposes(definition: TypedStatement) -> bool:
    """Whether elements that lie side by side come from elements that do not: a recurrence would gather them one by one."""
    row = indices_of(definition.subscripts[-1]) if definition.subscripts else frozenset()
    reads = (r.subscripts for r in definition.reads() if r.subscripts)
    return any(not indices_of(s[-1]) & row and any(indices_of(e) & row for e in s) for s in reads)


def _goes_along_memory(statement: TypedStatement) -> bool:
    """Whether a statement reads elements of its own row in memory that it wrote before.

    It is computed for several rows at a time, and what it reads is transposed in registers: with more operands than three for
    each four bytes of an element these would take half as many again as there are (32 of 64 bytes, 16 of 32).
    """
    own = [r for r in statement.reads() if r.tensor == statement.target]
    return any(r.subscripts != statement.subscripts and r.subscripts[:-1] == statement.subscripts[:-1] for r in own)


def _stays_shallow(found: _Inlining, known: _ProgramFacts) -> bool:
    """Whether no reader becomes deeper than expressions may be: in a long chain of temporaries some are stored."""
    value = known.depth(found.definition)
    return all(
        value + known.depth(reader) <= DEPTH
        or level_of(reader.expr, reads) + value + max((depth_of(s) for r in reads for s in r.subscripts), default=0)
        <= DEPTH
        for reader, reads in found.readers
    )


def _cycles(expr: Expr) -> float:
    """Return the cycles to compute one vector of a value."""
    parts = set(values(expr))
    operations = OPERATION * sum(cost_of(p.op).usual if is_costly(p) else 1 for p in parts if isinstance(p, Call))
    return operations + LOAD * sum(isinstance(p, Read) and bool(p.subscripts) for p in parts)


def _defines_once(definition: TypedStatement) -> bool:
    """Whether each iterator is one of the target's subscripts, and the value can be computed anywhere."""
    if definition.op != "set" or any(t.tensor == definition.target for t in list(touches(definition))[1:]):
        return False
    gathers = any(not is_quasi_affine(s) for t in touches(definition) for s in t.subscripts)
    found = {a[0] for s in definition.subscripts if (a := alone(s)) is not None}
    return not gathers and set(definition.iterators) <= found


def _reads(reader: TypedStatement, tensor: str) -> tuple[Read, ...]:
    """Return the reads of a tensor in a statement whose instances read different elements by each; () where they may not."""
    reads = tuple(dict.fromkeys(r for r in reader.reads() if r.tensor == tensor))
    if reader.target == tensor or not all(map(is_quasi_affine, reader.subscripts)):
        return ()
    for read in reads:
        inside = any(read in walk(s) for r in reads_in(reader.expr) for s in r.subscripts)
        if read.pad is not None or inside or not all(map(is_quasi_affine, read.subscripts)):
            return ()
        if not set(reader.iterators) <= {a[0] for s in read.subscripts if (a := alone(s)) is not None}:
            return ()
    return reads


def inlined(program: TypedProgram, definition: TypedStatement, reader: TypedStatement) -> TypedStatement:
    """Return a statement with the values of the elements that it reads of what another defines."""
    return _merged(program, definition, reader, tuple(r for r in reader.reads() if r.tensor == definition.target))


def _merged(
    program: TypedProgram, definition: TypedStatement, reader: TypedStatement, reads: tuple[Read, ...]
) -> TypedStatement:
    """Return the reader with the values of the elements that it reads."""
    found = {read: _value(program, definition, read) for read in reads}
    return replace(reader, expr=transform(reader.expr, lambda e: found[e] if isinstance(e, Read) and e in found else e))


def _value(program: TypedProgram, definition: TypedStatement, read: Read) -> Expr:
    """Return the value of the element that is read."""
    places: dict[str, Expr] = {}
    for own, other in zip(definition.subscripts, read.subscripts, strict=True):
        found = alone(own)
        if found is not None:
            places.setdefault(found[0], add(other, lit(-found[1])))
    return converted(substitute(definition.expr, places), program.tensor(definition.target).dtype)
