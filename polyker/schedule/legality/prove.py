"""Prove on every compile that a schedule keeps every dependence.

It shares nothing with the modules that choose schedules: it computes the dependences from the program's own order, walks down
the finished tree, and asks isl at each node for a pair of dependent instances that comes in the wrong order there. It proves:

- each instance runs exactly once;
- of two dependent instances the first runs first (instances of one reduction that combine into an element may come in any order);
- the lanes of a vector loop do not depend on each other; if all of them combine into one element they are folded first;
- what the threads of a block combine into one element has a term of each of them, and is in the element for the first of them;
- a launch is one that a GPU can run (polyker.schedule.legality.launches);
- threads of one block of a GPU do not depend on each other where no barrier stands between (polyker.schedule.legality.threads);
- the iterations of a parallel loop do not depend on each other, but through buffers of scopes inside it: each thread has its own;
- vector and unrolled loops have no more iterations than they say: what is beyond would not run;
- a promoted temporary loses no value that is still to be read (polyker.schedule.legality.buffers).

On the way down a pair of instances is dropped where its order is settled: what comes to a leaf has one and the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import islpy as isl
from msgspec import Struct

from polyker.errors import LegalityError, failure, register
from polyker.ir.dtypes import i64
from polyker.ir.expr import IndexExpr, Literal
from polyker.ir.quasi_affine import coefficients, indices_of, print_affine, substitute
from polyker.poly.dependences import Dependence, candidates
from polyker.poly.isl import read_map, read_set, union_of
from polyker.poly.scop import Scop, parameters
from polyker.schedule.legality.buffers import (
    broken_reuse,
    check_access,
    check_buffers,
    check_runs,
    reuses,
)
from polyker.schedule.legality.launches import check_launches
from polyker.schedule.legality.text import KINDS, instance, instances_and_element, label
from polyker.schedule.legality.threads import check_threads
from polyker.schedule.tree.nodes import (
    AT_ONCE,
    Band,
    Filter,
    Leaf,
    Member,
    MemberKind,
    ScheduleTree,
    Scope,
    Sequence,
    Tree,
    loops,
    promoted_tensors,
)
from polyker.schedule.tree.thread_folds import as_run_together, check_terms
from polyker.structs import replace

BROKEN = register(
    "PK501",
    LegalityError,
    "the schedule breaks a {kind} dependence through {tensor}: {source} has to run before {sink}; both use {element}",
    "keep the loop that carries this dependence in its order, or leave it outside the loops that are moved",
)
VECTOR = register(
    "PK502",
    LegalityError,
    "the vector loop `{loop}` runs {source} and {sink} at the same time, and a {kind} dependence through {tensor} orders them: "
    "both use {element}",
    "vectorise a loop that carries no dependence",
)
MISSING = register(
    "PK504",
    LegalityError,
    "the schedule does not run {instance} exactly once: {reason}",
    "a tree has every statement of the program in it, each of its instances once",
)
EXTENT = register(
    "PK505",
    LegalityError,
    "the {kind} loop `{loop}` has {found} iterations in one run, more than the {extent} that it may have",
    "cut the loop by that number first; what is left inside has no more iterations",
)
NESTED = register(
    "PK506",
    LegalityError,
    "the {kind} loop `{loop}` stands inside the {around} loop `{outer}`",
    "a statement runs in one vector loop, and in one parallel loop around it",
)
PARALLEL = register(
    "PK508",
    LegalityError,
    "the parallel loop `{loop}` runs {source} and {sink} at the same time, and a {kind} dependence through {tensor} orders them: "
    "both use {element}",
    "run a loop in parallel that carries no dependence",
)


def prove(scop: Scop, schedule: ScheduleTree, known: Iterable[Dependence] | None = None) -> None:
    """Raise LegalityError, naming a dependence and two instances, unless the schedule is legal.

    `known`: the dependences of the scop, where the caller has them already.
    """
    found = tuple(candidates(scop) if known is None else known)
    promoted = promoted_tensors(schedule.tree)
    proof = _Proof(scop, found, promoted)
    pairs = [_UnorderedPair(d, None, d.tensor in promoted and _carries(scop, d)) for d in found]
    together = {s for m in loops(schedule.tree) if m.kind in (MemberKind.VECTOR, *AT_ONCE) for s, _ in m.times}
    pairs = [p for p in pairs if p.dependence.kind != "reduction" or p.flows or p.dependence.source in together]
    proof.visit(schedule.tree, dict(scop.domains), pairs, _Path())
    for shared in check_buffers(scop, schedule.tree):
        try:
            order = [_UnorderedPair(d, None, False) for d in reuses(scop, shared)]
            _Proof(scop, found, promoted).visit(schedule.tree, dict(scop.domains), order, _Path())
        except LegalityError:
            raise broken_reuse(scop, shared) from None
    check_launches(scop, schedule.tree)
    leaving = proof.leaving | check_threads(scop, schedule.tree)
    if leaving:
        check_runs(scop, schedule.tree, sorted(leaving))


def _carries(scop: Scop, dependence: Dependence) -> bool:
    """Whether the sink uses a value that the source may have left in the tensor."""
    if dependence.kind == "waw":
        return scop.statement(dependence.sink).op != "set"
    return dependence.kind in ("raw", "reduction")


class _UnorderedPair(Struct, frozen=True):
    """Dependent instances that no loop and no sequence has put in order so far.

    `part`: those of the dependence's pairs that are left, None for all of them. `flows`: through a promoted tensor whose
    buffer is further down: so far they have to stay together.
    """

    dependence: Dependence
    part: isl.Map | None
    flows: bool

    @property
    def relation(self) -> isl.Map:
        """The pairs that are left."""
        return self.dependence.relation if self.part is None else self.part


class _Path(Struct, frozen=True):
    """What is above a node: its loops, the tensors that have a buffer here, the vector and the parallel loop around."""

    members: tuple[Member, ...] = ()
    entered: frozenset[str] = frozenset()
    vector: str | None = None
    parallel: str | None = None


class _Proof:
    """The walk down a tree; `leaving` collects promoted tensors of which a value may leave its buffer."""

    def __init__(self, scop: Scop, found: tuple[Dependence, ...], promoted: frozenset[str]) -> None:
        self.scop, self.found, self.promoted = scop, found, promoted
        self.head = parameters(scop.program)
        self.iterators = {s.name: s.iterators for s in scop.program.statements()}
        self.leaving: set[str] = set()

    def visit(self, node: Tree, here: Mapping[str, isl.Set], pairs: list[_UnorderedPair], path: _Path) -> None:
        """Check a node that the instances `here` come to."""
        match node:
            case Band(members=members, child=child):
                for member in members:
                    self._check_member(member, here, path)
                    check_terms(self.scop, member, here, path.members)
                    pairs = [p for pair in pairs for p in self._through(member, pair, here, path)]
                    self._check_extent(member, here, path)
                    vector = member.label if member.kind is MemberKind.VECTOR else path.vector
                    parallel = member.label if member.kind in AT_ONCE else path.parallel
                    path = replace(path, members=(*path.members, member), vector=vector, parallel=parallel)
                self.visit(child, here, pairs, path)
            case Sequence(children=children):
                self._check_sequence(children, here)
                for n, f in enumerate(children):
                    inside = {s: self._part(f, s, here[s]) for s in f.statements}
                    rest = [p for pair in pairs for p in self._at(children, n, pair)]
                    self.visit(f.child, inside, rest, path)
            case Scope(promotions=promotions, child=child):
                entered = frozenset(p.tensor for p in promotions)
                pairs = [replace(p, flows=False) if p.dependence.tensor in entered else p for p in pairs]
                self.visit(child, here, pairs, replace(path, entered=path.entered | entered))
            case Leaf():
                for pair in pairs:
                    if pair.dependence.kind != "reduction" and not pair.relation.is_empty():
                        raise self._broken(pair.dependence, pair.relation)
                for statement, domain in here.items():
                    if self.promoted - path.entered:
                        check_access(self.scop, statement, domain, self.promoted - path.entered)

    # -- sequences -------------------------------------------------------------------------------------------------------

    def _part(self, child: Filter, statement: str, here: isl.Set) -> isl.Set:
        condition = dict(child.conditions).get(statement)
        return here if condition is None else here.intersect(read_set(condition))

    def _check_sequence(self, children: tuple[Filter, ...], here: Mapping[str, isl.Set]) -> None:
        """Every instance that comes to a sequence goes to one child."""
        for f in children:
            for s in f.statements:
                if s not in here:
                    raise failure(MISSING, instance=s, reason="it stands in a branch that it does not come to")
        for s, domain in here.items():
            mine = [f for f in children if s in f.statements]
            if len(mine) == 1 and s not in dict(mine[0].conditions):
                continue
            rest = domain
            for f in mine:
                part = self._part(f, s, domain)
                twice = part.subtract(rest)
                if not twice.is_empty():
                    raise failure(MISSING, instance=instance(self.scop, twice), reason="two branches hold it")
                rest = rest.subtract(part)
            if not rest.is_empty():
                raise failure(MISSING, instance=instance(self.scop, rest), reason="no branch holds it")

    def _at(self, children: tuple[Filter, ...], n: int, pair: _UnorderedPair) -> Iterable[_UnorderedPair]:
        """Yield the pairs that both go to child n; those whose source goes there must not have their sink before it."""
        dependence, child = pair.dependence, children[n]
        if dependence.source not in child.statements:
            return
        part = self._of(pair, child, dependence.source, isl.Map.intersect_domain)
        for m, other in enumerate(children):
            if dependence.sink not in other.statements:
                continue
            both = self._of(part, other, dependence.sink, isl.Map.intersect_range)
            if m == n:
                if both is pair or not both.relation.is_empty():
                    yield both
            elif m < n and dependence.kind != "reduction":
                if not both.relation.is_empty():
                    raise self._broken(dependence, both.relation)
            elif pair.flows and not both.relation.is_empty():
                self.leaving.add(dependence.tensor)

    def _of(self, pair: _UnorderedPair, child: Filter, statement: str, restrict) -> _UnorderedPair:  # type: ignore[no-untyped-def]
        condition = dict(child.conditions).get(statement)
        return pair if condition is None else replace(pair, part=restrict(pair.relation, read_set(condition)))

    # -- loops -----------------------------------------------------------------------------------------------------------

    def _through(
        self, member: Member, pair: _UnorderedPair, here: Mapping[str, isl.Set], path: _Path
    ) -> Iterable[_UnorderedPair]:
        """Yield the pairs that a loop leaves at one time; the others have to come in the right order."""
        dependence = pair.dependence
        member = as_run_together(self.scop, member, dependence)
        first, second = member.time(dependence.source), member.time(dependence.sink)
        if first == second and isinstance(first, Literal):
            yield pair
            return
        same_place = {b: IndexExpr(a, i64) for a, b in dependence.equal}
        if indices_of(second) <= set(same_place) and substitute(second, same_place) == first:
            yield pair  # the subscripts show that the two are at one time here
            return
        relation = pair.relation
        vector, relaxed = member.kind is MemberKind.VECTOR, dependence.kind == "reduction"
        # Each thread has its own buffers of the scopes that are further in.
        private = dependence.tensor in self.promoted and dependence.tensor not in path.entered
        parallel = member.kind in AT_ONCE and not private
        alone = True  # all pairs are at one time
        for compare in (">", "<"):
            if (compare == "<" or relaxed) and not (vector or parallel or pair.flows):
                alone = False
                continue
            moved = relation.intersect(self._compared(member, dependence, compare))
            if moved.is_empty():
                continue
            alone = False
            if parallel or (vector and not (relaxed and self._is_fold(dependence, here, member, path))):
                raise self._broken(dependence, moved, member)
            if compare == ">" and not relaxed:
                raise self._broken(dependence, moved)
            if pair.flows:
                self.leaving.add(dependence.tensor)
        same = relation if alone else relation.intersect(self._compared(member, dependence, "="))
        if alone or not same.is_empty():
            yield replace(pair, part=same)

    def _compared(self, member: Member, dependence: Dependence, compare: str) -> isl.Map:
        """Return {source -> sink} where the source's time at a loop stands so to the sink's."""
        sources, sinks = self.iterators[dependence.source], self.iterators[dependence.sink]
        first = print_affine(member.time(dependence.source))
        second = print_affine(substitute(member.time(dependence.sink), {i: IndexExpr(f"{i}_") for i in sinks}))
        return read_map(
            f"{self.head}{{ {dependence.source}[{', '.join(sources)}] -> "
            f"{dependence.sink}[{', '.join(f'{i}_' for i in sinks)}] : {first} {compare} {second} }}"
        )

    def _is_fold(self, dependence: Dependence, here: Mapping[str, isl.Set], lanes: Member, path: _Path) -> bool:
        """Whether all lanes combine into one element, and its subscripts have nothing of the lane in them.

        Then the generated code combines the lanes first. A gathered element may be another one in each lane.
        """
        statement = self.scop.statement(dependence.source)
        inside = indices_of(lanes.time(statement.name))
        for subscript in statement.subscripts:
            if coefficients(subscript) is None or indices_of(subscript) & inside:
                return False
        domain = here[statement.name]
        together = isl.Map.from_domain_and_range(domain, domain)
        for member in path.members:
            together = together.intersect(self._compared(member, dependence, "="))
        write = next(a.relation for a in self.scop.accesses if a.statement == statement.name and a.is_update)
        return bool(together.is_subset(write.apply_range(write.reverse())))

    def _check_member(self, member: Member, here: Mapping[str, isl.Set], path: _Path) -> None:
        wrong = {s for s, _ in member.times} ^ set(here)
        if wrong or len(member.times) != len(here):
            names = ", ".join(sorted(wrong or here))
            raise failure(MISSING, instance=names, reason=f"the loop `{member.label}` has not the statements around it")
        if member.kind in (MemberKind.BLOCK, MemberKind.THREAD):
            kind = f"{member.kind.value}.{member.axis}"
            for other in path.members:
                inner = member.kind is MemberKind.BLOCK and other.kind not in (MemberKind.SERIAL, MemberKind.BLOCK)
                if inner or (other.kind, other.axis) == (member.kind, member.axis):
                    raise failure(NESTED, kind=kind, loop=member.label, around=other.kind.value, outer=other.label)
        if member.kind in (MemberKind.VECTOR, MemberKind.PARALLEL):
            outer = {"vector": path.vector}
            outer |= {"parallel": path.parallel} if member.kind is MemberKind.PARALLEL else {}
            for around, name in outer.items():
                if name is not None:
                    raise failure(NESTED, kind=member.kind.value, loop=member.label, around=around, outer=name)

    def _check_extent(self, member: Member, here: Mapping[str, isl.Set], path: _Path) -> None:
        if member.kind in (
            MemberKind.SERIAL,
            MemberKind.STREAM,
            MemberKind.SCAN,
            MemberKind.PARALLEL,
            MemberKind.BLOCK,
        ):
            return
        count = extent_of(self.scop, member, here, path.members)
        if count is None or count > member.extent:
            found = "unboundedly many" if count is None else count
            raise failure(EXTENT, kind=member.kind.value, loop=member.label, found=found, extent=member.extent)

    # -- messages --------------------------------------------------------------------------------------------------------

    def _broken(self, dependence: Dependence, pairs: isl.Map, loop: Member | None = None) -> Exception:
        source, sink, element = instances_and_element(self.scop, pairs, dependence.tensor)
        tensor = label(self.scop, dependence.tensor)
        kind = KINDS[dependence.kind]
        if loop is not None:
            row = VECTOR if loop.kind is MemberKind.VECTOR else PARALLEL
            return failure(row, loop=loop.label, kind=kind, tensor=tensor, source=source, sink=sink, element=element)
        return failure(BROKEN, kind=kind, tensor=tensor, source=source, sink=sink, element=element)


def extent_of(scop: Scop, member: Member, here: Mapping[str, isl.Set], around: tuple[Member, ...]) -> int | None:
    """Return how many consecutive values a loop takes at most in one run, None where no constant bounds it."""
    seen = [_interval(e) for _, e in member.times]
    if all(i is not None for i in seen):
        known = [i for i in seen if i is not None]
        count = max(hi for _, hi in known) - min(lo for lo, _ in known) + 1
        if count <= member.extent:
            return count
    head = parameters(scop.program)
    parts = []
    for statement, time in member.times:
        source = f"{statement}[{', '.join(scop.statement(statement).iterators)}]"
        outer = ", ".join(print_affine(m.time(statement)) for m in around)
        run = read_map(f"{head}{{ {source} -> [{outer}] }}").intersect_domain(here[statement])
        parts.append(run.reverse().apply_range(read_map(f"{head}{{ {source} -> [{print_affine(time)}] }}")))
    values = union_of(parts)
    if values is None or values.is_empty():
        return 0
    most = values.reverse().apply_range(values).deltas().dim_max_val(0)
    return int(most.to_python()) + 1 if most.is_int() else None


def _interval(expr: object) -> tuple[int, int] | None:
    """Return bounds of a time that are seen from its form."""
    from polyker.ir.expr import Call

    match expr:
        case Literal(value=value):
            return int(value.real), int(value.real)
        case Call(op="mod", args=(_, Literal(value=value))):
            return 0, int(value.real) - 1
        case Call(op="floordiv", args=(a, Literal(value=value))):
            inner = _interval(a)
            return None if inner is None else (inner[0] // int(value.real), inner[1] // int(value.real))
        case _:
            return None
