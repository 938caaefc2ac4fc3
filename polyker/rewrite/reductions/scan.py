"""Recognise scans: each element along an iterator is the previous one combined with a term, associatively.

    S[b,t] = S[b,t-1] + X[b,t]            a recurrence; of floats only where sums may be rounded in any order
    S[b,t] += X[b,j] where j <= t         a reduction over all terms up to the element's

Found from the form of the statement and its domain; which runs of terms follow each other is isl's.
"""

from __future__ import annotations

from collections.abc import Iterable

import islpy as isl
from msgspec import Struct

from polyker.ir.dtypes import DType, i64
from polyker.ir.expr import Call, Expr, IndexExpr, Read, walk
from polyker.ir.quasi_affine import add, index, indices_of, is_quasi_affine, lit, print_affine, substitute, subtract
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import domain_text, elements_written, image, parameters
from polyker.poly.steps import OPERATORS, step_of
from polyker.poly.symbolic import bounds_of
from polyker.rewrite.core.accumulate import COMBINE
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.rewrite.core.reindex import reindexed
from polyker.structs import replace


class Scan(Struct, frozen=True):
    """`T[f(p, t)] = before op term(p, lo) op … op term(p, t)`, for t from `lo` on, without a gap, for all other iterators p.

    `statement`: has the iterators, the domain and the target; its value is the term. `op`: a reduction's name. `before`: what
    stands before the first term, by parts of the other iterators' values (isl text of a set, None for all of them). `is_prefix`:
    it was a reduction, of many more terms than there are elements.
    """

    statement: TypedStatement
    along: str
    lo: int
    op: str
    before: tuple[tuple[str | None, Expr], ...]
    is_prefix: bool = False

    @property
    def kept(self) -> tuple[str, ...]:
        """The other iterators."""
        return tuple(i for i in self.statement.iterators if i != self.along)


def recurrence(program: TypedProgram, statement: TypedStatement, *, reassociating: bool) -> Scan | None:
    """Return a statement that reads its own elements as a scan, None where it is none; `reassociating`: sums of floats may be
    regrouped."""
    for iterator in statement.iterators[statement.outer :]:
        step = step_of(statement, iterator, in_place=True)
        if step is None:
            continue
        target = program.tensor(statement.target).dtype
        if (
            not may_regroup(step.op, target, reassociating=reassociating)
            or statement.acc != target
            or step.term.dtype != target
        ):
            return None
        lo = _first(program, statement, iterator)
        if lo is None:
            return None
        first = substitute(step.before, {iterator: lit(lo)})
        return Scan(replace(statement, expr=step.term), iterator, lo, OPERATORS[step.op], ((None, first),))
    return None


def may_regroup(op: str, dtype: DType, *, reassociating: bool = False) -> bool:
    """Return whether the values are the same however terms are grouped, or may differ by what rounding makes of it."""
    if dtype.kind == "b":
        return op in ("or", "and")
    if dtype.kind in "iu" or (dtype.kind == "f" and op in ("maximum", "minimum")):
        return True
    return reassociating and dtype.itemsize >= 4 and op in ("add", "mul")


def prefixes(program: TypedProgram, statement: TypedStatement) -> Scan | None:
    """Return a reduction that takes, for each element, all terms up to it, as a scan; None where it is none."""
    if len(statement.reduced) != 1 or statement.in_order or statement.outer or statement.op not in COMBINE:
        return None
    (term,) = statement.reduced
    kept = [i for i in statement.iterators if i != term]
    for element in kept:
        if element in indices_of(statement.expr):
            continue
        found = _as_prefix(program, statement, element, term)
        if found is None and (mirrored := _mirrored(program, statement, element, term)) is not None:
            found = _as_prefix(program, mirrored, element, term)
        if found is not None:
            return found
    return None


def _mirrored(program: TypedProgram, statement: TypedStatement, *iterators: str) -> TypedStatement | None:
    """Return a statement with iterators that count from their last value down; None where that is not known.

    All terms from the element's on are then all up to it.
    """
    reflected, domain = dict[str, Expr](), read_set(statement.domain)
    for iterator in iterators:
        _, last = bounds_of(domain, statement.iterators.index(iterator), program)
        if not is_quasi_affine(last) or any(isinstance(e, Call) and e.op in ("minimum", "maximum") for e in walk(last)):
            return None
        reflected[iterator] = subtract(last, index(iterator))
    points = image(program, statement, (print_affine(reflected.get(i, index(i))) for i in statement.iterators))
    return reindexed(statement, statement.iterators, points, reflected)


def _as_prefix(program: TypedProgram, statement: TypedStatement, element: str, term: str) -> Scan | None:
    """Return the scan of a reduction whose element moves with the last of its terms."""
    head = parameters(program)
    names = ", ".join(statement.iterators)
    domain = read_set(statement.domain).reset_tuple_id()
    distance = domain.apply(read_map(f"{head}{{ [{names}] -> [{term} - {element}] }}")).dim_max_val(0)
    if not distance.is_int():
        return None
    last = distance.get_num_si()
    # The instances of the last terms stand for the elements; their terms are all that come before them.
    ends = domain.intersect(read_set(f"{head}{{ [{names}] : {term} = {element} + {last} }}"))
    others = tuple(i for i in statement.iterators if i != element)
    onto = read_map(f"{head}{{ [{names}] -> [{', '.join(others)}] }}")
    place = {element: add(index(term), lit(-last))}
    ended = reindexed(replace(statement, op="set", defines=None), others, ends.apply(onto), place, reduced=())
    lo = _first(program, ended, term)
    if lo is None:
        return None
    up_to = read_map(f"{head}{{ [{names}] -> [{_primed(statement.iterators, term)}] : {lo} <= {term}_ <= {term} }}")
    if not ends.apply(up_to).is_equal(domain):
        return None
    return Scan(ended, term, lo, statement.op, ((None, identity(statement.op, statement.acc)),), is_prefix=True)


def as_steps(program: TypedProgram, fresh: Fresh, scan: Scan) -> list[TypedStatement] | None:
    """Return a scan as its first elements and the recurrence of the others; None where elements are narrower than terms."""
    statement, acc = scan.statement, scan.statement.expr.dtype
    if program.tensor(statement.target).dtype != acc or acc is None:
        return None
    op, head, names = scan.op, parameters(program), ", ".join(statement.iterators)
    domain, found = read_set(statement.domain).reset_tuple_id(), list[TypedStatement]()

    def put(sign: str, part: str | None, before: Expr) -> None:
        elements = domain.intersect(read_set(f"{head}{{ [{names}] : {scan.along} {sign} {scan.lo} }}"))
        if part is not None:
            place = statement.iterators.index(scan.along)
            elements = elements.intersect(read_set(part).insert_dims(isl.dim_type.set, place, 1))
        if not elements.is_empty():
            name, term = fresh.statement(), statement.expr
            value = term if before == identity(op, acc) else Call(COMBINE[op], (before, term), acc)
            step = replace(statement, name=name, domain=domain_text(elements, name), expr=value)
            found.append(replace(step, regroups=scan.is_prefix))

    for part, before in scan.before:
        put("=", part, before)
    earlier = {scan.along: add(IndexExpr(scan.along, i64), lit(-1))}
    put(">", None, Read(statement.target, tuple(substitute(s, earlier) for s in statement.subscripts), dtype=acc))
    return found


def covers(program: TypedProgram, scan: Scan, start: TypedStatement) -> bool:
    """Return whether a scan writes every element that another statement does."""
    return bool(elements_written(program, start).is_subset(elements_written(program, scan.statement)))


def _first(program: TypedProgram, statement: TypedStatement, iterator: str) -> int | None:
    """Return the value that an iterator begins with, whatever the others are, and goes on from without a gap; else None."""
    domain = read_set(statement.domain).reset_tuple_id()
    least = domain.dim_min_val(statement.iterators.index(iterator))
    if domain.is_empty() or not least.is_int():
        return None
    lo = least.get_num_si()
    names = ", ".join(statement.iterators)
    before = f"[{_primed(statement.iterators, iterator)}] : {lo} <= {iterator}_ <= {iterator}"
    run = read_map(f"{parameters(program)}{{ [{names}] -> {before} }}")
    return lo if domain.apply(run).is_subset(domain) else None


def _primed(iterators: Iterable[str], one: str) -> str:
    return ", ".join(f"{i}_" if i == one else i for i in iterators)
