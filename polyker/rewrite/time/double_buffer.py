"""Double-buffer time loops that compute a step into a temporary and copy it back.

Before:

    for t in lo:hi: { B[x] = f(A, t) for x in D;  A[x] = B[x] for x in D }

After, where B is A's size now:

    B[x] = A[x]                                                   for what f reads of A outside D
    for u in 0:(hi-lo)//2: { B[x] = f(A, lo+2u);  A[x] = f(B, lo+2u+1) }
    for t in hi-1:hi: { B[x] = f(A, t);  A[x] = B[x] }            if hi - lo is odd

Several tensors may take others so: then f may read all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl
from msgspec import Struct

from polyker.ir.expr import Expr, Read, transform
from polyker.ir.quasi_affine import add, index, indices, lit, renaming, scale
from polyker.ir.typed import Role, TypedLoop, TypedNode, TypedProgram, TypedStatement, statements_of
from polyker.poly.isl import int_val, read_map, read_set
from polyker.poly.scop import (
    access_relation,
    elements_reached,
    elements_written,
    map_onto,
    tensor_box,
)
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import reindexed, replaced_loops
from polyker.structs import replace


def alternate_buffers(program: TypedProgram) -> TypedProgram:
    """Return the program with the time loops of its body that copy their steps back rewritten to alternate."""
    gone: set[str] = set()

    def change(fresh: Fresh, labels: dict[str, str], loop: TypedLoop) -> list[TypedNode] | None:
        steps = _steps(program, loop)
        if steps is None:
            return None
        made = list(_alternating(program, fresh, steps))
        gone.update(p.target for p in steps.producers)
        _label(labels, steps, made)
        return made

    found = replaced_loops(program, change)
    return replace(found, tensors=tuple(t for t in found.tensors if t.name not in gone)) if gone else program


class _Steps(Struct, frozen=True):
    """A time loop: what computes a step, the copies back in the same order, the first value of the loop's iterator."""

    loop: TypedLoop
    producers: tuple[TypedStatement, ...]
    copies: tuple[TypedStatement, ...]
    first: int


def _steps(program: TypedProgram, loop: TypedLoop) -> _Steps | None:
    """Return the parts of a time loop that copies its steps back, None for any other, and where a step is all there is."""
    body = [n for n in loop.body if isinstance(n, TypedStatement)]
    half = len(body) // 2
    if (
        len(body) < len(loop.body)
        or len(body) % 2
        or not body
        or any(s.op != "set" or s.scatters or s.outer != 1 for s in body)
    ):
        return None
    producers, copies = body[:half], body[half:]
    paired = []
    for p in producers:
        mine = [c for c in copies if isinstance(c.expr, Read) and c.expr.tensor == p.target]
        if len(mine) != 1 or not _copies_back(program, p, mine[0]):
            return None
        paired.append(mine[0])
    kept = {c.target for c in copies}
    made = {p.target for p in producers}
    if len(kept) < half or len(made) < half or kept & made:
        return None
    for s in program.statements():
        used = {r.tensor for r in s.reads()}
        if (s in producers and used & made) or (s not in body and (used | {s.target}) & made):
            return None
    first = _first([_times(program, p) for p in producers])
    return None if first is None else _Steps(loop, tuple(producers), tuple(paired), first)


def _copies_back(program: TypedProgram, producer: TypedStatement, copy: TypedStatement) -> bool:
    """Whether a statement copies just what another one computed, the same elements in every step, from a temporary."""
    read = copy.expr
    if not isinstance(read, Read) or read.pad is not None or read.subscripts != copy.subscripts:
        return False
    here, there = program.tensor(producer.target), program.tensor(copy.target)
    if here.role is not Role.TEMPORARY or here.dtype != there.dtype:
        return False
    if any(r.tensor == copy.target and r.pad is not None and r.pad.mode != "constant" for r in producer.reads()):
        return False
    elements = []
    for s in (producer, copy):
        target = read_map(access_relation(program, s, s.target, s.subscripts)).reset_tuple_id(isl.dim_type.out)
        elements.append(_clock(program, s).intersect_domain(read_set(s.domain)).reverse().apply_range(target))
    always = isl.Map.from_domain_and_range(elements[0].domain(), elements[0].range())
    return bool(elements[0].is_equal(elements[1]) and elements[0].is_equal(always))


def _first(all_times: list[isl.Set]) -> int | None:
    """Return the first value of the loop's iterator where it is a constant, there may be a second one, and all producers
    compute all steps from it to the last."""
    times = all_times[0]
    low = times.dim_min_val(0)
    if not low.is_int() or not all(t.is_equal(times) for t in all_times):
        return None
    first = low.get_num_si()
    if not times.apply(read_map(f"{{ [t] -> [u] : {first} <= u <= t }}")).is_subset(times):
        return None
    fixed = times.fix_val(isl.dim_type.set, 0, low)
    second = times.fix_val(isl.dim_type.set, 0, int_val(first + 1))
    if not times.params().is_subset(fixed.params()) or second.is_empty():
        return None
    return int(first)


def _clock(program: TypedProgram, statement: TypedStatement) -> isl.Map:
    """Return {S[iterators] -> [the loop's iterator]}."""
    return map_onto(program, statement, statement.iterators[:1])


def _times(program: TypedProgram, statement: TypedStatement) -> isl.Set:
    return read_set(statement.domain).apply(_clock(program, statement))


def _alternating(program: TypedProgram, fresh: Fresh, steps: _Steps) -> Iterator[TypedNode]:
    """Yield what stands for the loop."""
    others: dict[str, str] = {}
    for p, c in zip(steps.producers, steps.copies, strict=True):
        tensor = program.tensor(c.target)
        others[c.target] = fresh.temporary(program.tensor(p.target).label, tensor.dtype, tensor.shape)
    yield from _borders(program, fresh, steps, others)
    times = _times(program, steps.producers[0])
    before = times.apply(read_map("{ [t] -> [t - 1] }"))  # those after which there is another
    even = f"(t - {steps.first}) mod 2 = 0"
    pair = fresh.iterator()
    starts = times.intersect(before).intersect(read_set(f"{{ [t] : {even} }}"))
    pairs = _Pairs(pair, starts, others)
    to = [_half(program, fresh, steps, n, pairs, 0) for n in range(len(steps.copies))]
    fro = [_half(program, fresh, steps, n, pairs, 1) for n in range(len(steps.copies))]
    yield TypedLoop(pair, (*to, *fro))
    lone = times.subtract(before).intersect(read_set(f"{{ [t] : {even} }}"))
    if not lone.is_empty():
        yield TypedLoop(steps.loop.iterator, tuple(_last(program, steps, others, lone)))


def _label(labels: dict[str, str], steps: _Steps, made: list[TypedNode]) -> None:
    """Give the new iterators the names of those that walk the same dimensions; the pairs of steps, that of the loop."""
    for s in statements_of(made):
        like = next(p for p in steps.producers if len(p.subscripts) == len(s.subscripts))
        for i, j in zip(s.iterators[-len(like.iterators) + 1 :], like.iterators[1:], strict=False):
            labels.setdefault(i, labels.get(j, j))
        if s.outer:
            labels.setdefault(s.iterators[0], labels.get(like.iterators[0], like.iterators[0]))


class _Pairs(Struct, frozen=True):
    """The loop over pairs of steps: its iterator, the pairs' first steps; `others`: tensor -> where its odd steps lie."""

    iterator: str
    starts: isl.Set
    others: dict[str, str]


def _half(program: TypedProgram, fresh: Fresh, steps: _Steps, number: int, pairs: _Pairs, odd: int) -> TypedStatement:
    """Return what computes a tensor in the first or the second step of the pairs."""
    pair, others = pairs.iterator, pairs.others
    producer, kept = steps.producers[number], steps.copies[number].target
    clock, *rest = producer.iterators
    inner = fresh.iterators(len(rest))
    values = renaming(dict(zip(rest, inner, strict=True)))
    values[clock] = add(scale(2, index(pair)), lit(steps.first + odd))
    here = _clock(program, producer).intersect_range(pairs.starts).domain()
    onto = map_onto(program, producer, (pair, *rest), where=f"{clock} = {steps.first} + 2 * {pair}")
    points = read_set(producer.domain).intersect(here).apply(onto)
    made = reindexed(producer, (pair, *inner), points, values, fresh.statement())
    return replace(made, target=kept if odd else others[kept], expr=_renamed(made.expr, others) if odd else made.expr)


def _last(program: TypedProgram, steps: _Steps, others: dict[str, str], lone: isl.Set) -> Iterator[TypedStatement]:
    """Yield the step that is no pair's, which is copied back."""

    def limited(s: TypedStatement) -> str:
        return str(read_set(s.domain).intersect(_clock(program, s).intersect_range(lone).domain()))

    for p, c in zip(steps.producers, steps.copies, strict=True):
        yield replace(p, target=others[c.target], domain=limited(p))
    for p, c in zip(steps.producers, steps.copies, strict=True):
        yield replace(c, expr=_renamed(c.expr, {p.target: others[c.target]}), domain=limited(c))


def _renamed(expr: Expr, names: dict[str, str]) -> Expr:
    def change(e: Expr) -> Expr:
        return replace(e, tensor=names[e.tensor]) if isinstance(e, Read) and e.tensor in names else e

    return transform(expr, change)


def _borders(program: TypedProgram, fresh: Fresh, steps: _Steps, others: dict[str, str]) -> Iterator[TypedStatement]:
    """Yield the copies of what the odd steps read and the even ones do not define."""
    for c in steps.copies:
        tensor = program.tensor(c.target)
        defined = elements_written(program, c)
        needed = isl.Set.empty(defined.get_space())
        for p in steps.producers:
            for read in dict.fromkeys(r for r in p.reads() if r.tensor == c.target):
                needed = needed.union(elements_reached(program, p, read.tensor, read.subscripts))
        rest = needed.intersect(read_set(tensor_box(program, c.target))).subtract(defined).coalesce()
        for part in rest.make_disjoint().get_basic_sets():
            iterators = fresh.iterators(len(tensor.shape))
            read = Read(c.target, indices(iterators), dtype=tensor.dtype)
            yield fresh.sets(isl.Set.from_basic_set(part), iterators, (others[c.target], read.subscripts), read)
