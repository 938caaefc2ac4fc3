"""Promotion of any tensor at any loop: a temporary lives in a buffer, of others each run of the loop has a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import islpy as isl
from msgspec import Struct

from polyker.edit.find import StatementPlace, did_you_mean, place
from polyker.edit.show import constant_places
from polyker.edit.state import State, state
from polyker.edit.step import EditStep
from polyker.errors.base import ScheduleError, failure
from polyker.errors.schedules import BIG_BUFFER, NO_BUFFER, NO_TENSOR, NOT_SWIZZLED, UNUSED
from polyker.ir.dtypes import i64
from polyker.ir.expr import IndexExpr
from polyker.ir.quasi_affine import floordiv, is_quasi_affine, mod
from polyker.ir.typed import Role, TypedLoop, TypedNode, TypedProgram, TypedStatement, TypedTensor, statements_of
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import Scop, build_scop
from polyker.rewrite.materialise.copy_runs import Copied, copy_reads, copy_writes
from polyker.schedule.legality.buffers import MAX_SHARED_BYTES
from polyker.schedule.steps.promotion import modulo_of, promote
from polyker.schedule.tree import nodes as trees
from polyker.schedule.tree.block_threads import AXES
from polyker.schedule.tree.nodes import (
    MAX_STACK_BUFFER_BYTES,
    Band,
    Filter,
    Leaf,
    Member,
    MemberKind,
    Promotion,
    ScheduleTree,
    Scope,
    Tree,
)
from polyker.schedule.tree.places import joined
from polyker.schedule.tree.swizzle import largest_swizzle, why_not_swizzled
from polyker.schedule.tree.to_isl import scope_ways
from polyker.structs import replace

MAX_REGISTER_ELEMENTS = 512  # of one buffer that is to lie in registers
MAX_SCRATCH_BYTES = 1 << 26  # of one buffer in memory that the call brings


def promoted(now: State, step: EditStep) -> Iterator[State]:
    """Yield the state with the tensor in a buffer of its own, then that with a copy of it."""
    tensor = _tensor(now, step["tensor"])
    at = _place(now, step, tensor)
    refused: ScheduleError | None = None
    if tensor.role is Role.TEMPORARY:
        try:
            yield _held(now, step, tensor, at)
        except ScheduleError as error:
            refused = error
    if at is None:
        if refused is not None:
            raise refused
        raise failure(NO_BUFFER, tensor=tensor.label, loop="all", reason="a copy is made at a loop: say `at=`")
    try:
        yield _copied(now, step, tensor, at)
    except ScheduleError as error:
        raise refused or error from None


def _tensor(now: State, name: str) -> TypedTensor:
    known = [t.label for t in now.program.tensors]
    if name not in known:
        shown = ", ".join(known)
        raise failure(NO_TENSOR, tensor=name, known=shown, hint=did_you_mean(name, known))
    return next(t for t in now.program.tensors if t.label == name)


def _place(now: State, step: EditStep, tensor: TypedTensor) -> StatementPlace | None:
    """Return the loop: of the statement that was named, or of those that use the tensor."""
    if step["at"] is None:
        return None
    if step.statement is not None:
        return place(now, step.statement, (step["at"],), "promote")
    users = [s.name for s in now.program.statements() if tensor.name in {s.target, *(r.tensor for r in s.reads())}]
    return place(now, None, (step["at"],), "promote", users)


def _held(now: State, step: EditStep, tensor: TypedTensor, at: StatementPlace | None) -> State:
    where = () if at is None else (at.statement, at.labels[step["at"]])
    limit = _limit(step)
    schedule = promote(build_scop(now.program), now.schedule, tensor.name, *where, limit=limit)
    return _finished(now, step, now.raw, schedule, tensor.name)


def _copied(now: State, step: EditStep, tensor: TypedTensor, at: StatementPlace) -> State:
    label = at.labels[step["at"]]

    def refuse(reason: str) -> Exception:
        return failure(NO_BUFFER, tensor=tensor.label, loop=step["at"], reason=reason)

    around = _around(now.schedule.tree, at.statement, label)
    if around is None:
        raise refuse("the loops around it are not the same everywhere")
    inside = [s for s in now.raw.statements() if all(s.name in dict(m.times) for m in around)]
    readers = [s for s in inside if any(r.tensor == tensor.name for r in s.reads())]
    writers = [s for s in inside if s.target == tensor.name]
    if not readers and not writers:
        raise failure(UNUSED, loop=step["at"], statement=now.names.statements[at.statement], tensor=tensor.label)
    if any(m.kind is MemberKind.VECTOR for m in around):
        raise refuse("it stands inside a vector loop")
    for s in (*readers, *writers):
        subscripts = [r.subscripts for r in s.reads() if r.tensor == tensor.name]
        subscripts += [s.subscripts] if s.target == tensor.name else []
        if any(r.pad is not None for r in s.reads() if r.tensor == tensor.name):
            raise refuse(f"{now.names.statements[s.name]} reads it padded")
        if not all(is_quasi_affine(e) for e in (x for one in subscripts for x in one)):
            raise refuse(f"{now.names.statements[s.name]} gathers from it or scatters to it")
    times = {s.name: [m.time(s.name) for m in around] for s in inside}
    if readers and not writers:
        if not _together(now.raw.body, {s.name for s in readers}, tensor.name):
            raise refuse("what reads it inside does not stand together in the text")
        made = copy_reads(now.raw, tensor.name, readers, times)
    elif len(writers) == 1 and not readers:
        (writer,) = writers
        if writer.op != "set" and writer.acc != tensor.dtype:
            raise refuse("each run would round what is accumulated in a wider type")
        made = copy_writes(now.raw, writer, times)
    else:
        raise refuse("it is read and written there")
    tree = _Copying(now, made, at.statement, label, step["memory"]).tree()
    labels = ((n, now.names.loop(m.label)) for n, m in zip(made.numbers, around, strict=True) if n is not None)
    program = replace(made.program, labels=(*made.program.labels, *labels))
    return _finished(now, step, program, ScheduleTree(tree, now.schedule.notes), made.tensor, made)


def _together(body: Sequence[TypedNode], names: set[str], tensor: str) -> bool:
    """Whether statements stand in one body, and nothing between the first and the last of them writes the tensor."""
    for node in body:
        if isinstance(node, TypedLoop) and names & {s.name for s in statements_of(node.body)}:
            return _together(node.body, names, tensor)
    places = [n for n, node in enumerate(body) if not isinstance(node, TypedLoop) and node.name in names]
    if len(places) != len(names):
        return False
    between = statements_of(body[places[0] : places[-1] + 1])
    return all(s.target != tensor for s in between)


def _around(tree: Tree, statement: str, label: str) -> tuple[Member, ...] | None:
    """Return the loops from the root to the one of a label, None where they are not the same on all ways to it."""
    found: list[tuple[Member, ...]] = []

    def visit(node: Tree, above: tuple[Member, ...]) -> None:
        match node:
            case Band(members=members, child=child):
                if statement in dict(members[0].times):
                    at = next((n for n, m in enumerate(members) if m.label == label), None)
                    if at is not None:
                        found.append((*above, *members[: at + 1]))
                    visit(child, (*above, *members))
            case trees.Sequence(children=children):
                for f in children:
                    if statement in f.statements:
                        visit(f.child, above)
            case Scope(child=child):
                visit(child, above)
            case Leaf():
                return

    visit(tree, ())
    return found[0] if found and all(f == found[0] for f in found) else None


class _Copying(Struct, frozen=True):
    """Places the copies of a buffer in a tree, at the loop of a `label` around a statement: before what is inside, and after.

    Those of shared memory are made by all the threads of the loops inside, neighbouring ones along the last dimension.
    """

    now: State
    made: Copied
    statement: str
    label: str
    memory: str | None

    @property
    def new(self) -> tuple[TypedStatement, ...]:
        """The copies."""
        return (*self.made.before, *self.made.after)

    def tree(self) -> Tree:
        """Return the tree with the copies."""
        tree = self._node(self.now.schedule.tree, 0)
        assert tree is not None
        return tree

    def _timed(self, members: tuple[Member, ...], depth: int) -> tuple[Member, ...]:
        """Return loops, `depth` below the root, that the copies run in, too."""
        times = enumerate(members, depth)
        return tuple(replace(m, times=(*m.times, *((s.name, self.made.times[n]) for s in self.new))) for n, m in times)

    def _nest(self, s: TypedStatement, inner: Tree) -> Filter:
        """Return the loops of a copy beside what is inside."""
        kind = MemberKind.UNROLL if self.memory == "registers" else MemberKind.SERIAL
        threads = _threads(inner) if self.memory == "shared" else {}
        dealt = dict(zip(reversed(self.made.own), threads.items(), strict=False))
        loops = [Member(((s.name, IndexExpr(i, i64)),), i, kind) for i in self.made.own if i not in dealt]
        for i, (axis, count) in reversed(dealt.items()):
            index = IndexExpr(i, i64)
            loops.append(Member(((s.name, mod(index, count)),), f"{i}.thread", MemberKind.THREAD, count, axis))
            loops.append(Member(((s.name, floordiv(index, count)),), i, kind))
        loops.sort(key=lambda m: m.kind is not MemberKind.THREAD)
        return Filter((s.name,), Band(tuple(loops), Leaf()) if loops else Leaf())

    def _node(self, node: Tree, depth: int) -> Tree | None:
        """Return a part of the tree with the copies, None where the loop is not in it."""
        match node:
            case Band():
                return self._band(joined(node), depth)
            case trees.Sequence():
                return self._sequence(node, depth)
            case Scope(child=inside):
                below = self._node(inside, depth)
                return None if below is None else replace(node, child=below)
            case Leaf():
                return None

    def _band(self, band: Band, depth: int) -> Tree | None:
        if self.statement not in dict(band.members[0].times):
            return None
        at = next((n for n, m in enumerate(band.members) if m.label == self.label), None)
        if at is None:
            below = self._node(band.child, depth + len(band.members))
            return None if below is None else Band(self._timed(band.members, depth), below)
        inner: Tree = Band(band.members[at + 1 :], band.child) if band.members[at + 1 :] else band.child
        here = tuple(s for s, _ in band.members[0].times)
        before, after = ([self._nest(s, inner) for s in part] for part in (self.made.before, self.made.after))
        parts = (*before, Filter(here, inner), *after)
        buffer = Promotion(self.made.tensor, (), shared=self.memory == "shared")
        return Band(self._timed(band.members[: at + 1], depth), Scope((buffer,), trees.Sequence(parts)))

    def _sequence(self, node: trees.Sequence, depth: int) -> Tree | None:
        """Return a sequence whose parts each make the copies that serve them; raises ScheduleError unless these are disjoint."""
        found = [self._node(f.child, depth) if self.statement in f.statements else None for f in node.children]
        if all(child is None for child in found):
            return None
        several = sum(child is not None for child in found) > 1
        held: list[isl.Set] = []
        parts: list[Filter] = []
        for f, child in zip(node.children, found, strict=True):
            if child is None:
                parts.append(f)
                continue
            conditions = f.conditions
            if several:
                part = _part(self.now, self.made, dict(f.conditions))
                if any(not part.intersect(other).is_empty() for other in held):
                    reason, at = "two parts of its loops use the same elements in one run", self.statement
                    raise failure(NO_BUFFER, tensor=self.now.names.statements[at], loop=self.label, reason=reason)
                held.append(part)
                conditions += tuple((s.name, str(part.set_tuple_name(s.name))) for s in self.new)
            parts.append(Filter((*f.statements, *(s.name for s in self.new)), child, conditions))
        return trees.Sequence(tuple(parts))


def _threads(tree: Tree) -> dict[str, int]:
    """Return the threads of the loops in a tree along x, y and z, where there are several."""
    most = {
        a: max((m.extent for m in trees.loops(tree) if m.kind is MemberKind.THREAD and m.axis == a), default=1)
        for a in AXES
    }
    return {a: n for a, n in most.items() if n > 1}


def _part(now: State, made: Copied, conditions: Mapping[str, str]) -> isl.Set:
    """Return the copies' instances that serve the part of the statements that meet conditions."""
    parts = []
    for name, texts in made.maps.items():
        domain = read_set(next(s.domain for s in now.raw.statements() if s.name == name))
        if name in conditions:
            domain = domain.intersect(read_set(conditions[name]))
        parts += [domain.apply(read_map(text)) for text in texts]
    return reduce(lambda a, b: a.union(b), parts).coalesce()


def _finished(
    now: State, step: EditStep, program: TypedProgram, schedule: ScheduleTree, tensor: str, made: Copied | None = None
) -> State:
    """Return the state with the size, the layout and the memory of the buffer."""
    scop = build_scop(program)
    buffers = _buffers(scop, schedule.tree, tensor, step, 0 if made is None else made.dims)
    tree = _filled(schedule.tree, tensor, iter(buffers))
    if made is not None:
        shapes = zip(*(p.modulo[made.dims :] for p in buffers), strict=True)
        tree = _trimmed(tree, dict(zip(made.own, map(max, shapes), strict=True)))
    result = state(now.typed, program, replace(schedule, tree=tree))
    if step["memory"] == "registers":
        held = ((p, scope.child) for scope in trees.scopes(tree) for p in scope.promotions if p.tensor == tensor)
        if any(p.elements() > MAX_REGISTER_ELEMENTS or not constant_places(result, p, child) for p, child in held):
            reason = f"a loop that is not unrolled moves its elements, or there are more than {MAX_REGISTER_ELEMENTS}"
            label = result.program.tensor(tensor).label
            raise failure(NO_BUFFER, tensor=label, loop=step["at"] or "all", reason=reason)
    return result


def _limit(step: EditStep) -> int:
    """Return the bytes that a buffer may have."""
    limits = {"stack": MAX_STACK_BUFFER_BYTES, "registers": MAX_STACK_BUFFER_BYTES, "shared": MAX_SHARED_BYTES}
    return limits.get(step["memory"], MAX_SCRATCH_BYTES)


def _buffers(scop: Scop, tree: Tree, tensor: str, step: EditStep, numbers: int) -> list[Promotion]:
    """Return the buffer of each scope that holds the tensor; raises ScheduleError where one is larger than its memory."""
    found = scop.program.tensor(tensor)
    limit = _limit(step)
    buffers = []
    for scope, here in scope_ways(tree, scop.program):
        for p in scope.promotions:
            if p.tensor == tensor:
                modulo = p.modulo or modulo_of(scop, found, here, limit)
                buffers.append(_laid_out(found, modulo or (1,) * len(found.shape), step, numbers))
    for p in buffers:
        size = p.elements() * found.dtype.itemsize
        if size > limit:
            raise failure(BIG_BUFFER, tensor=step["tensor"], size=size, limit=limit)
    return buffers


def _filled(tree: Tree, tensor: str, buffers: Iterator[Promotion]) -> Tree:
    """Return the tree with the buffers in its scopes, in the order of the walk."""
    match tree:
        case Band(child=child):
            return replace(tree, child=_filled(child, tensor, buffers))
        case trees.Sequence(children=children):
            return trees.Sequence(tuple(replace(f, child=_filled(f.child, tensor, buffers)) for f in children))
        case Scope(promotions=promotions, child=child):
            changed = tuple(next(buffers) if p.tensor == tensor else p for p in promotions)
            return Scope(changed, _filled(child, tensor, buffers))
        case Leaf():
            return tree


def _trimmed(tree: Tree, extents: Mapping[str, int]) -> Tree:
    """Return the tree with the loops of copies as long as their buffer: one of a single iteration is none.

    Unrolled ones count from 0, as the buffer's places do, so that these become constants.
    """

    def whole(m: Member) -> Member:
        if m.kind is not MemberKind.UNROLL or m.label not in extents:
            return m
        n = extents[m.label]
        return replace(m, extent=n, times=tuple((s, mod(t, n)) for s, t in m.times))

    match tree:
        case Band(members=members, child=child):
            kept = tuple(whole(m) for m in members if extents.get(m.label) != 1)
            below = _trimmed(child, extents)
            return Band(kept, below) if kept else below
        case trees.Sequence(children=children):
            return trees.Sequence(tuple(replace(f, child=_trimmed(f.child, extents)) for f in children))
        case Scope(child=child):
            return replace(tree, child=_trimmed(child, extents))
        case Leaf():
            return tree


def _laid_out(found: TypedTensor, modulo: tuple[int, ...], step: EditStep, numbers: int) -> Promotion:
    """Return the buffer with the layout that was asked for: dimensions, outermost first, each whole or by blocks."""
    scratch, shared, pad = step["memory"] == "scratch", step["memory"] == "shared", step["pad"] or 0
    wanted = step["layout"]
    if wanted is None:
        plain = Promotion(found.name, modulo, scratch=scratch, shared=shared, pad=pad)
        return _swizzled(found, plain, step)

    def refuse(reason: str) -> Exception:
        return failure(NO_BUFFER, tensor=step["tensor"], loop=step["at"] or "all", reason=reason)

    rank = len(modulo) - numbers
    sizes = list(modulo)
    blocks: dict[int, list[int]] = {d: [] for d in range(rank)}
    for d, block in wanted:
        if d >= rank:
            raise refuse(f"the layout names dimension {d} of {rank}")
        blocks[d].append(max(block, 1))
    pieces: dict[tuple[int, int], int] = {}
    for d, dividers in blocks.items():
        if sorted(set(dividers), reverse=True) != dividers or not dividers or dividers[-1] != 1:
            raise refuse(f"the layout has dimension {d} not once in whole, after its blocks from the largest down")
        whole = sizes[numbers + d] = -(-sizes[numbers + d] // dividers[0]) * dividers[0]
        for divider in dividers:
            if whole % divider:
                raise refuse(f"blocks of {divider} do not fill {whole}")
            pieces[d, divider] = whole // divider
            whole = divider
    layout = [(n, 1, sizes[n]) for n in range(numbers)]
    layout += [(numbers + d, max(block, 1), pieces[d, max(block, 1)]) for d, block in wanted]
    held = Promotion(found.name, tuple(sizes), tuple(layout), scratch=scratch, shared=shared, pad=pad)
    return _swizzled(found, held, step)


def _swizzled(found: TypedTensor, promotion: Promotion, step: EditStep) -> Promotion:
    """Return the buffer with the swizzle that was asked for."""
    row, itemsize, wanted = promotion.row, found.dtype.itemsize, step["swizzle"]
    if wanted is None:
        return promotion
    count = largest_swizzle(row, itemsize) if wanted is True else wanted
    if reason := why_not_swizzled(row, itemsize, count):
        raise failure(NOT_SWIZZLED, tensor=step["tensor"], swizzle=wanted, loop=step["at"] or "all", reason=reason)
    return replace(promotion, swizzle=count)
