"""Rewrite sums of products of narrow integers to dot-product instructions on packed groups of terms.

Before: `C[i,j] += i32(A[i,k]) * i32(B[k,j])` (A u8, B i8). After, with four terms of `k` in an element:

    P[i,q] = join(A[i,4q], A[i,4q+1], A[i,4q+2], A[i,4q+3]);   Q[q,j] = join(B[4q,j], …, B[4q+3,j])
    C[i,j] += dot4(P[i,q], Q[q,j])

Elements beyond the last term hold zeros. What is left is a sum of products over 32-bit elements, scheduled as any other. The sums
are exact modulo 2^32. dot4 multiplies unsigned by signed bytes: of two factors of one sign the values of one are shifted by 128,
and the sums of the other, 128 times each, are taken off the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl
from msgspec import Struct

from polyker.ir.dtypes import DType, i32, i64
from polyker.ir.expr import Call, Expr, IndexExpr, Literal, Pad, Read, converted, transform, walk
from polyker.ir.instructions import DotProduct
from polyker.ir.quasi_affine import add, coefficients, indices, lit, substitute
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import map_onto, parameters
from polyker.poly.symbolic import box_of, from_least
from polyker.rewrite.core.accumulate import starts_fresh
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.rewrite.core.reindex import renamed
from polyker.rewrite.core.terms import BlockedTerms, FactorPlaces, places_of, remainder, terms_by, where, whole_groups
from polyker.rewrite.core.value_range import modulo
from polyker.rewrite.materialise.pack_operand import image_of
from polyker.structs import replace


class Factor(Struct, frozen=True):
    """One factor of a product: `part` is the type of one term, `shift` what is added to each value first. `in_place`: its terms
    are joined where they are used, not stored before."""

    expr: Expr
    part: DType
    shift: int = 0
    in_place: bool = False


class Groups(Struct, frozen=True):
    """How a reduction is taken several terms at a time: by which instruction, along which iterator, of which factors."""

    instruction: DotProduct
    term: str
    factors: tuple[Factor, Factor]


def joined(
    program: TypedProgram, fresh: Fresh, terms: BlockedTerms, factor: Factor, places: FactorPlaces, acc: DType
) -> tuple[list[TypedStatement], Expr]:
    """Return the statements that store a factor's elements, and the value of the one of an instance."""
    group = IndexExpr(terms.element, i64)
    there = tuple(
        substitute(p, {terms.term: group if d == places.own else terms.at(group, 0)})
        for d, p in enumerate(places.places)
    )
    if factor.in_place:
        return [], Call("join", tuple(_part(terms, factor, places, there, p) for p in range(terms.count)), acc)
    elements = image_of(program, terms.statement, there)
    lows, extents = box_of(program, elements, range(len(there)))
    name = fresh.temporary("terms", acc, extents)
    copies = []
    kinds = [(terms.count, elements)]
    if places.own is not None and terms.partial:
        kinds = [(n, where(elements, places.own, values)) for n, values in ((terms.count, terms.full), *terms.partial)]
    for number, inside in kinds:
        if inside.intersect_params(read_set(program.context)).is_empty():
            continue
        iterators = fresh.iterators(len(there))
        values = indices(iterators)
        parts = [_part(terms, factor, places, values, p) if p < number else _zero(factor) for p in range(terms.count)]
        place, value = (name, from_least(values, lows)), Call("join", tuple(parts), acc)
        copies.append(fresh.sets(inside.coalesce(), iterators, place, value, terms.statement))
    return copies, Read(name, from_least(there, lows), dtype=acc)


def _zero(factor: Factor) -> Expr:
    return modulo(Literal(factor.shift, i64), factor.part)


def _part(terms: BlockedTerms, factor: Factor, places: FactorPlaces, values: Sequence[Expr], part: int) -> Expr:
    """Return one term of a factor's element."""
    read = places.read
    if read is None:
        at: dict[str, Expr] = {}
        for d, place in enumerate(places.places):
            assert isinstance(place, IndexExpr)
            at[place.name] = terms.at(values[d], part) if d == places.own else values[d]
        value = substitute(factor.expr, at)
    else:
        found = replace(read, subscripts=tuple(_source(terms, places, values, part)))
        if places.own is None and terms.partial and found.pad is None:
            assert read.dtype is not None
            found = replace(found, pad=Pad("constant", identity("add", read.dtype)))
        value = transform(factor.expr, lambda e: found if e == read else e)
    assert value.dtype is not None
    if factor.shift:
        value = Call("add", (value, Literal(factor.shift, value.dtype)), value.dtype)
    return modulo(value, factor.part)


def _source(terms: BlockedTerms, places: FactorPlaces, values: Sequence[Expr], part: int) -> list[Expr]:
    """Return the subscripts of one term's element in the operand."""
    assert places.read is not None
    found = []
    for s, d in zip(places.read.subscripts, places.of, strict=True):
        if d is None:
            found.append(s)
            continue
        place = places.places[d]
        if d == places.own:
            found.append(substitute(s, {terms.term: terms.at(values[d], part)}))
        elif isinstance(place, IndexExpr):
            found.append(substitute(s, {place.name: values[d]}))
        else:
            step = (coefficients(s) or {}).get(terms.term, 0)
            found.append(add(values[d], lit(step * part)))
    return found


def in_groups(
    program: TypedProgram,
    fresh: Fresh,
    statement: TypedStatement,
    start: TypedStatement | None,
    chosen: Groups,
) -> list[TypedStatement] | None:
    """Return the statements that stand for a reduction, and for `start` before it, with its terms side by side; None where that
    is not possible."""
    op, term, factors = chosen.instruction.op, chosen.term, chosen.factors
    terms = terms_by(program, fresh, statement, term, chosen.instruction.terms)
    places = [places_of(statement, f.expr, term) for f in factors]
    if terms is None or places[0] is None or places[1] is None:
        return None
    if terms.partial and places[0].own is None and places[1].own is None:
        return None  # nothing would say which terms there are
    left = bool(terms.partial) and any(f.in_place for f in factors)
    terms = whole_groups(terms) if left else terms
    direct = statement.acc.itemsize == 4 and not any(f.shift for f in factors)
    acc = statement.acc if direct else i32
    copies, read = joined(program, fresh, terms, factors[0], places[0], acc)
    more, other = joined(program, fresh, terms, factors[1], places[1], acc)
    changed = replace(terms.statement, expr=Call(op, (read, other), acc), acc=acc)
    if direct:
        after = [remainder(fresh, statement, terms)] if left else []
        return [*copies, *more, *([] if start is None else [start]), changed, *after]
    operands = (_Operand(factors[0], read), _Operand(factors[1], other))
    rest = _through(program, fresh, changed, statement, start, operands, terms if left else None)
    return None if rest is None else [*copies, *more, *rest]


class _Operand(Struct, frozen=True):
    """A factor, and its terms side by side as a reduction reads them."""

    factor: Factor
    joined: Expr


def _through(
    program: TypedProgram,
    fresh: Fresh,
    changed: TypedStatement,
    statement: TypedStatement,
    start: TypedStatement | None,
    operands: tuple[_Operand, _Operand],
    left: BlockedTerms | None,
) -> list[TypedStatement] | None:
    """Return the sums in i32, and the statement that adds them, corrected and converted, to the target. `left`: the terms that
    are added one by one."""
    kept = statement.kept
    bare = [s.name for s in statement.subscripts if isinstance(s, IndexExpr)]
    if sorted(bare) != sorted(kept) or len(bare) != len(statement.subscripts):
        return None
    results = _summed(program, fresh, statement, changed, kept, changed.expr)
    if results is None:
        return None
    made, total = results
    value: Expr = total
    if left is not None:
        product = Call("mul", tuple(modulo(o.factor.expr, i32) for o in operands), i32)
        alone = replace(statement, target=total.tensor, subscripts=total.subscripts, expr=product, acc=i32)
        made = [*made, remainder(fresh, alone, left)]
    first, second = operands
    assert isinstance(changed.expr, Call)
    dot = changed.expr.op
    for factor, other in ((first.factor, second), (second.factor, first)):
        if not factor.shift:
            continue
        # (x + shift) y is too much by shift y: the sums of the other factor are taken off.
        ones = Literal(sum(1 << 8 * factor.part.itemsize * n for n in range(4 // factor.part.itemsize)), i32)
        read = other.joined
        expr = Call(dot, (ones, read) if other is second else (read, ones), i32)
        used = {e.name for e in walk(read) if isinstance(e, IndexExpr)}
        own = tuple(i for i in kept if i in used)
        found = _summed(program, fresh, statement, changed, own, expr)
        if found is None or not _is_product(program, changed, kept, own):
            return None
        made = [*found[0], *made]
        value = Call("add", (value, Call("mul", (Literal(-factor.shift, i32), found[1]), i32)), i32)
    acc = statement.acc
    value = converted(value, acc)
    elements = image_of(program, statement, indices(kept))
    begins = start is not None and starts_fresh(program, start, statement)
    if begins and start is not None:
        order = {
            s.name: i for s, i in zip(statement.subscripts, start.iterators, strict=True) if isinstance(s, IndexExpr)
        }
        own_order = read_map(f"{parameters(program)}{{ [{', '.join(order)}] -> [{', '.join(kept)}] }}")
        begins = read_set(start.domain).reset_tuple_id().apply(own_order).is_subset(elements)
    if not begins:
        dtype = program.tensor(statement.target).dtype
        before = converted(Read(statement.target, statement.subscripts, dtype=dtype), acc)
        value = Call("add", (before, value), acc)
    end = fresh.sets(elements, kept, (statement.target, statement.subscripts), value, statement)
    end = renamed(end, {i: fresh.iterator() for i in kept})
    return [*made, *([] if begins or start is None else [start]), end]


def _summed(
    program: TypedProgram,
    fresh: Fresh,
    statement: TypedStatement,
    changed: TypedStatement,
    kept: tuple[str, ...],
    expr: Expr,
) -> tuple[list[TypedStatement], Read] | None:
    """Return the statements that sum an expression for each value of some iterators, and what reads the sum; None where one is
    negative. A result of `statement` whose terms make no whole group in `changed` has a sum, too: 0."""
    places = indices(kept)
    elements = image_of(program, statement, places)
    if elements.is_empty() or any(
        not (low := elements.dim_min_val(d)).is_int() or low.get_num_si() < 0 for d in range(len(kept))
    ):
        return None
    lows, extents = box_of(program, elements, range(len(kept)))
    name = fresh.temporary("sums", i32, tuple(add(n, low) for n, low in zip(extents, lows, strict=True)))
    zero_iterators = fresh.iterators(len(kept))
    zero = fresh.sets(elements, zero_iterators, (name, indices(zero_iterators)), Literal(0, i32), changed)
    iterators = tuple(i for i in changed.iterators if i in kept or i in changed.reduced)
    points = image_of(program, changed, indices(iterators))
    total = fresh.sets(points, iterators, (name, places), expr, changed)
    total = replace(total, op="add", reduced=tuple(i for i in iterators if i in changed.reduced))
    return [zero, renamed(total, {i: fresh.iterator() for i in iterators})], Read(name, places, dtype=i32)


def _is_product(program: TypedProgram, changed: TypedStatement, kept: tuple[str, ...], own: tuple[str, ...]) -> bool:
    """Whether the terms of a result depend on some of its iterators alone."""
    domain = read_set(changed.domain)
    reduced = [i for i in changed.iterators if i in changed.reduced]
    whole: isl.Set | None = None
    for names in (kept, (*own, *reduced)):
        onto = map_onto(program, changed, names)
        lifted = domain.apply(onto).apply(onto.reverse())
        whole = lifted if whole is None else whole.intersect(lifted)
    assert whole is not None
    return bool(whole.is_subset(domain))
