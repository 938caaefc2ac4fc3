"""Choose the loops that run on several threads, by the cost of the busiest thread.

A loop may run in parallel where no dependence goes from one of its iterations to another, but through buffers of scopes inside
it. Of each nest the loop is taken for which a rough model says the least: the part of the work that the busiest thread does, and
what starting a region costs each time that the nest comes to it. The outermost of loops that are about as good is taken: it
starts the fewest regions, and keeps what a thread packs to that thread. Where two loops, one directly in the other, carry
dependences forwards only, such as the tiles of a skewed stencil, they are run as waves:

    for a: for b: S(a, b)        for wave: parallel a: S(a, wave - a)

(or 2 a + b, at a dependence distance of two), and where the outer of two loops carries dependences and the inner none, strips of
the inner run around both, of all statements in it:

    for a: for b: S(a, b)        parallel strip of b: for a: for b in strip: S(a, b)

The results of a long sum's blocks are combined when all are there (polyker.schedule.threads.privatise). No bit of a result
changes. The pass only proposes: polyker.schedule.legality.prove proves the finished tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import ceil, floor, prod

import islpy as isl
from msgspec import Struct

from polyker.cost.measure import likely_extents, values_of
from polyker.cost.plan import values
from polyker.cost.table import REGION_OPERATIONS
from polyker.ir.decision import Decision
from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Expr, IndexExpr, Literal
from polyker.ir.quasi_affine import add, floordiv, indices_of, print_affine, scale, substitute
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.boxes import corners
from polyker.poly.dependences import Dependence, candidates
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import Scop, parameters
from polyker.schedule.threads.privatise import taken_apart
from polyker.schedule.tree.nodes import (
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
    scopes,
)
from polyker.structs import replace

# Values that an iterator is taken to have whose bounds depend on sizes that nothing is known of (chosen).
GUESSED_TRIPS = 512
# Greatest ratio of cycles, to an outer loop's, for a loop further in to be taken (chosen).
INNER_MARGIN = 0.95
# The same for a wavefront further in: it gives up the reuse that a tile has in a cache (experience value).
WAVE_MARGIN = 0.75
# How many iterations of an inner loop waves may go on for each of the outer one: 2 where a row needs the next one's old values.
MAX_WAVE_SKEW = 2
MAX_COUNTED = 256  # iterations of two loops that are enumerated to count a wave's, at most (chosen)
# Strips for each thread where a parallel loop is put around a serial one, preferred first: cores differ in speed (experience).
STRIPS_PER_THREAD = (2, 3, 4)
# Least bytes of a tensor that counts as read from memory, and of each of its rows that a strip takes (experience values).
MIN_TENSOR_BYTES, MIN_STRIP_ROW_BYTES = 32 << 20, 8192
# Operations for each byte of partial results, which are written, read again, and in no registers meanwhile: a core moves some
# 4 bytes in a nanosecond, and does some 20 operations.
WORK_PER_BYTE = 5.0
TRIMMED_LOOP_SHARE = 0.05  # share of a loop at either end that the test for equally long iterations ignores (chosen)
MAX_PRIVATE_BYTES = 256 << 20  # budget of bytes of all threads' private buffers (experience value)


class OnThreads(Struct, frozen=True):
    """A schedule with loops on threads, the part of one thread's time that it is thought to take, and whether loops were cut."""

    schedule: ScheduleTree
    share: float = 1.0
    cuts: bool = False


def parallel_schedule(scop: Scop, schedule: ScheduleTree, threads: int, budget: int = MAX_PRIVATE_BYTES) -> OnThreads:
    """Return the schedule with loops to run on `threads` threads; the same where none is worth it.

    `budget`: bytes that the threads' own buffers may take together.
    """
    if threads < 2 or any(m.kind is MemberKind.PARALLEL for m in loops(schedule.tree)):
        return OnThreads(schedule)
    search = _LoopSearch(scop, threads, promoted_tensors(schedule.tree), budget)
    serial = sum(search.work.values())
    if serial <= REGION_OPERATIONS:
        return OnThreads(schedule)
    everywhere = tuple(_Unordered(d) for d in candidates(scop))
    found = search.best(schedule.tree, _Here(everywhere, search.work))
    if found.tree == schedule.tree:
        return OnThreads(schedule)
    shared = {m.label: m for m in loops(found.tree) if m.kind is MemberKind.PARALLEL}
    times = {m.times for m in loops(schedule.tree)}
    note = Decision("", f"loops {', '.join(shared)} run on {threads} threads", cost=found.cost / serial)
    cuts = any(m.times not in times for m in shared.values())
    return OnThreads(ScheduleTree(found.tree, (*schedule.notes, note)), found.cost / serial, cuts)


class _Unordered(Struct, frozen=True):
    """Dependent instances that are at the same time in all loops so far; None: all of the dependence's."""

    dependence: Dependence
    part: isl.Map | None = None

    @property
    def relation(self) -> isl.Map:
        return self.dependence.relation if self.part is None else self.part


class _Here(Struct, frozen=True):
    """What is above a node: dependences that it may carry, tensors that have a buffer, loops, how often the tree comes here.

    `work`: what each statement does below, in all runs together.
    """

    pairs: tuple[_Unordered, ...]
    work: Mapping[str, float]
    entered: frozenset[str] = frozenset()
    outer: tuple[Member, ...] = ()
    runs: float = 1.0


class _Parallel(Struct, frozen=True):
    """A tree with loops chosen, and its cost on all threads."""

    tree: Tree
    cost: float


class _LoopSearch:
    def __init__(self, scop: Scop, threads: int, promoted: frozenset[str], budget: int) -> None:
        self.scop, self.threads, self.promoted, self.budget = scop, threads, promoted, budget
        self.head = parameters(scop.program)
        self.iterators = {s.name: s.iterators for s in scop.program.statements()}
        self.ranges = {s.name: _ranges(scop.program, s) for s in scop.program.statements()}
        self.uneven: dict[str, bool] = {}
        self.work = {}
        for s in scop.program.statements():
            points = prod(hi - lo + 1 for lo, hi, _ in self.ranges[s.name].values())
            # What is computed once waits for memory: some cycles for a vector of each tensor.
            waits = 16 * len({s.target, *(r.tensor for r in s.reads())}) if s.op == "set" else 0
            self.work[s.name] = float(max(0, points)) * (2 + sum(1 for _ in values(s.expr)) + waits) / 16

    def best(self, node: Tree, here: _Here) -> _Parallel:
        """Return the node with the loops that cost the least."""
        match node:
            case Band(members=members, child=child):
                return self._band(members, child, here)
            case Sequence(children=children):
                holders = Counter(s for f in children for s in f.statements)
                found = [self.best(f.child, self._in_child(here, f.statements, holders)) for f in children]
                parts = tuple(replace(f, child=b.tree) for f, b in zip(children, found, strict=True))
                return _Parallel(replace(node, children=parts), sum(b.cost for b in found))
            case Scope(promotions=promotions, child=child):
                entered = here.entered | {p.tensor for p in promotions}
                inner = self.best(child, replace(here, entered=entered))
                return _Parallel(replace(node, child=inner.tree), inner.cost)
            case Leaf():
                return _Parallel(node, sum(here.work.values()))

    def _in_child(self, here: _Here, statements: tuple[str, ...], holders: Mapping[str, int]) -> _Here:
        """Return what is above one child of a sequence; a statement's parts in several children count alike."""
        work = {s: here.work[s] / holders[s] for s in statements}
        pairs = tuple(p for p in here.pairs if {p.dependence.source, p.dependence.sink} <= set(work))
        return replace(here, pairs=pairs, work=work)

    def _band(self, members: tuple[Member, ...], child: Tree, here: _Here) -> _Parallel:
        """Return the band with one of its loops in parallel, or loops further in, or none, whichever costs least."""
        serial = sum(here.work.values())
        chosen = _Parallel(Band(members, child), serial)
        for n, member in enumerate(members):
            if member.kind is MemberKind.STREAM:
                found = self._strips(members, n, child, here)
                return chosen if found is None or found.cost >= chosen.cost else found
            if member.kind is not MemberKind.SERIAL or not here.runs * REGION_OPERATIONS < chosen.cost:
                return chosen
            before = here
            free, here = self._passed(member, here)
            count, known = self._trips(member, before.outer)
            below = Band(members[n + 1 :], child) if members[n + 1 :] else child
            if free and count > 1 and self._private(below) * self.threads <= self.budget:
                share = min(1.0, ceil(count / self.threads) / self._whole(member, count))
                # Of a loop whose iterations are not known to be many there may be one alone.
                share = share if known or count >= 8 * self.threads else (1 + share) / 2
                # Iterations of a triangle are long and short: somebody waits for half of one.
                share = min(1.0, share + 0.5 / count) if any(map(self._is_uneven, here.work)) else share
                cost = serial * share + here.runs * REGION_OPERATIONS
                if cost < chosen.cost * (1.0 if chosen.cost == serial else INNER_MARGIN):
                    marked = replace(member, kind=MemberKind.PARALLEL, extent=self.threads)
                    chosen = _Parallel(Band((*members[:n], marked, *members[n + 1 :]), child), cost)
            if not free and count > 1:
                for found, margin in (
                    (self._strips(members, n, child, before), INNER_MARGIN),
                    (self._waves(members, n, child, before), WAVE_MARGIN),
                    (self._apart(members, n, child, before), INNER_MARGIN),
                ):
                    if found is not None and found.cost < chosen.cost * (1.0 if chosen.cost == serial else margin):
                        chosen = found
            here = replace(here, runs=here.runs * max(1, count), outer=(*here.outer, member))
        inner = self.best(child, here)
        return (
            _Parallel(Band(members, inner.tree), inner.cost)
            if inner.cost < chosen.cost * INNER_MARGIN and inner.tree != child
            else chosen
        )

    def _strips(self, members: tuple[Member, ...], n: int, child: Tree, here: _Here) -> _Parallel | None:
        """Return the band with iterations of a loop further in, or of a stream, shared out around the loop n.

        None where no loop may be.
        """
        serial, found = sum(here.work.values()), None
        outer = here.outer
        inside = Band(members[n:], child)
        for member, of_several in _common(inside):
            if member is members[n]:
                outer = (*outer, member)
                continue
            count, known = self._trips(member, outer)
            outer = (*outer, member)
            if count < (self.threads if known else 8 * self.threads) or member.kind is not MemberKind.SERIAL:
                continue
            share, long = self._shares(member, count)
            times = tuple((s, floordiv(e, long)) for s, e in member.times)
            strip = Member(times, f"{member.label}.strip", MemberKind.PARALLEL, self.threads)
            cost = serial * share + here.runs * REGION_OPERATIONS
            fits = self._private(inside) * self.threads <= self.budget
            # Loops of several children: a strip has to hold what one leaves for another in a buffer further in, too.
            around = replace(here, entered=self.promoted) if of_several else here
            least = serial if found is None else INNER_MARGIN * found.cost
            if fits and cost < least and self._passed(strip, around)[0]:
                found = _Parallel(Band((*members[:n], strip, *members[n:]), child), cost)
        return found

    def _shares(self, member: Member, count: int) -> tuple[float, int]:
        """Return the part of so many iterations that the busiest thread has, and how many make a strip for it to be least."""
        whole, found = self._whole(member, count), [(1.0, count)]
        for strips in (*STRIPS_PER_THREAD, 1):
            long = ceil(count / (strips * self.threads))
            if not any(self._is_torn(s, e, long) for s, e in member.times):
                found.append((min(1.0, ceil(ceil(count / long) / self.threads) * long / whole), long))
        return min(found, key=lambda f: f[0])

    def _is_torn(self, statement: str, time: Expr, long: int) -> bool:
        """Whether strips of so many values of a time take short pieces of the rows of a tensor that no cache holds."""
        while isinstance(time, Call) and time.op == "floordiv" and isinstance(tile := time.args[1], Literal):
            time, long = time.args[0], long * int(tile.value.real)
        found = self.scop.statement(statement)
        for name, subscripts in ((found.target, found.subscripts), *((r.tensor, r.subscripts) for r in found.reads())):
            tensor = self.scop.program.tensor(name)
            elements = prod(int(e.value.real) if isinstance(e, Literal) else 1 for e in tensor.shape)
            large = elements * tensor.dtype.itemsize >= MIN_TENSOR_BYTES and len(subscripts) > 1
            if large and indices_of(subscripts[-1]) & indices_of(time):
                return long * tensor.dtype.itemsize < MIN_STRIP_ROW_BYTES
        return False

    def _waves(self, members: tuple[Member, ...], n: int, child: Tree, here: _Here) -> _Parallel | None:
        """Return the band with the loops n and n + 1 run as waves; None where a dependence does not let them."""
        while n + 1 == len(members) and isinstance(child, Band):
            members, child = (*members, *child.members), child.child
        if n + 1 == len(members) or members[n + 1].kind is not MemberKind.SERIAL:
            return None
        first, second = members[n], members[n + 1]
        skew, wave = next(self._skewed(first, second, here), (0, first))
        sizes = [self._trips(m, here.outer)[0] for m in (first, second)]
        if not skew or min(sizes) < 2:
            return None
        widths = Counter(
            skew * a + b for a in range(min(sizes[0], MAX_COUNTED)) for b in range(min(sizes[1], MAX_COUNTED))
        )
        waves = skew * (sizes[0] - 1) + sizes[1]
        share = sum(-(-w // self.threads) for w in widths.values()) / widths.total()
        marked = replace(first, kind=MemberKind.PARALLEL, extent=self.threads)
        cost = sum(here.work.values()) * share + here.runs * waves * REGION_OPERATIONS
        return _Parallel(Band((*members[:n], wave, marked, *members[n + 2 :]), child), cost)

    def _skewed(self, first: Member, second: Member, here: _Here) -> Iterator[tuple[int, Member]]:
        """Yield the factors and loops of waves none of which carries a dependence between iterations of `first`."""
        for skew in range(1, MAX_WAVE_SKEW + 1):
            times = tuple((s, add(scale(skew, e), second.time(s))) for s, e in first.times)
            wave = Member(
                times, f"{skew}*{first.label}+{second.label}" if skew > 1 else f"{first.label}+{second.label}"
            )
            if all(p.relation.intersect(self._compared(wave, p.dependence, ">")).is_empty() for p in here.pairs):
                free, _ = self._passed(first, self._passed(wave, here)[1])
                if free:
                    yield skew, wave

    def _apart(self, members: tuple[Member, ...], n: int, child: Tree, here: _Here) -> _Parallel | None:
        """Return the band with the loop n in parallel for all but the statements that combine its iterations' results."""
        blocking = [p for p in here.pairs if self._is_carried(members[n], p, here.entered, self.promoted)]
        last = {s for p in blocking for s in (p.dependence.source, p.dependence.sink)}
        first = set(here.work) - last
        if not first or any(p.dependence.source in last and p.dependence.sink in first for p in here.pairs):
            return None
        inside = Band(members[n:], child)

        def reach(statement: str, subscript: Expr) -> int | None:
            lo, hi, known = _span(subscript, self.ranges[statement])
            return hi + 1 if known and lo >= 0 else None

        found = taken_apart(self.scop.program, inside, last, first, reach)
        if found is None:
            return None
        shared = self.promoted - {p.tensor for p in found.promotions}
        own = [p for p in here.pairs if {p.dependence.source, p.dependence.sink} <= first]
        if any(self._is_carried(members[n], p, here.entered, shared) for p in own) or not isinstance(found.first, Band):
            return None
        head, *rest = found.first.members
        marked = replace(head, kind=MemberKind.PARALLEL, extent=self.threads)
        parts = (
            Filter(tuple(s for s, _ in head.times), Band((marked, *rest), found.first.child)),
            Filter(tuple(s for s in here.work if s in last), found.last),
        )
        tree: Tree = Sequence(parts)
        tree = Scope(found.promotions, tree) if found.promotions else tree
        tree = Band(members[:n], tree) if n else tree
        count = self._trips(members[n], here.outer)[0]
        work = sum(here.work[s] for s in first)
        rest_work = sum(here.work[s] for s in last)
        rest_work += WORK_PER_BYTE * here.runs * sum(p.elements() * self._itemsize(p.tensor) for p in found.promotions)
        return _Parallel(tree, work * -(-count // self.threads) / count + rest_work + here.runs * REGION_OPERATIONS)

    def _is_uneven(self, statement: str) -> bool:
        """Whether the instances of a statement of fixed sizes are nothing like a box."""
        if statement not in self.uneven:
            ranges, domain = self.ranges[statement].values(), self.scop.domains[statement]
            fixed = all(known for _, _, known in ranges)
            self.uneven[statement] = fixed and corners(domain) is None and not _holds_box(domain, ranges)
        return self.uneven[statement]

    def _is_carried(self, member: Member, pair: _Unordered, entered: frozenset[str], promoted: frozenset[str]) -> bool:
        """Whether a loop carries a dependence between threads."""
        if pair.dependence.tensor in promoted and pair.dependence.tensor not in entered:
            return False
        return any(
            not pair.relation.intersect(self._compared(member, pair.dependence, c)).is_empty() for c in ("<", ">")
        )

    def _private(self, node: Tree) -> int:
        """Return the bytes of the buffers inside a node: each thread has them."""
        return sum(p.elements() * self._itemsize(p.tensor) for s in scopes(node) for p in s.promotions)

    def _itemsize(self, tensor: str) -> int:
        return self.scop.program.tensor(tensor).dtype.itemsize

    def _passed(self, member: Member, here: _Here) -> tuple[bool, _Here]:
        """Return whether a loop carries no dependence between threads, and what is left inside it."""
        free, left = True, []
        for pair in here.pairs:
            dependence = pair.dependence
            first, second = member.time(dependence.source), member.time(dependence.sink)
            same_place = {b: IndexExpr(a, i64) for a, b in dependence.equal}
            if (first == second and isinstance(first, Literal)) or (
                indices_of(second) <= set(same_place) and substitute(second, same_place) == first
            ):
                left.append(pair)
                continue
            free = free and not self._is_carried(member, pair, here.entered, self.promoted)
            same = pair.relation.intersect(self._compared(member, dependence, "="))
            if not same.is_empty():
                left.append(replace(pair, part=same))
        return free, replace(here, pairs=tuple(left))

    def _compared(self, member: Member, dependence: Dependence, compare: str) -> isl.Map:
        """Return {source -> sink} where the source's time at a loop stands so to the sink's."""
        source, sink = dependence.source, dependence.sink
        second = substitute(member.time(sink), {i: IndexExpr(f"{i}_") for i in self.iterators[sink]})
        places = ", ".join(self.iterators[source]), ", ".join(f"{i}_" for i in self.iterators[sink])
        times = f"{print_affine(member.time(source))} {compare} {print_affine(second)}"
        return read_map(f"{self.head}{{ {source}[{places[0]}] -> {sink}[{places[1]}] : {times} }}")

    def _trips(self, member: Member, outer: tuple[Member, ...]) -> tuple[int, bool]:
        """Return about how many iterations a loop has in one of each outer loop, and whether that follows from constants."""
        spans = [_span(e, self.ranges[s]) for s, e in member.times]
        lo, hi = min(s[0] for s in spans), max(s[1] for s in spans)
        count, known = max(0, hi - lo + 1), all(s[2] for s in spans)
        for m in outer:
            sizes = {_tile_of(e, m.time(s)) for s, e in member.times}
            if len(sizes) == 1 and (size := sizes.pop()) is not None and size < count:
                count, known = size, True
        return count, known

    def _whole(self, member: Member, count: int) -> float:
        """Return how many full iterations `count` of a loop are worth: the last tile may be a part of one."""
        return min(float(count), max(_tiles(e, self.ranges[s]) for s, e in member.times)) if count else 1.0


# Least and greatest value, and whether they are constants of the program.
_Span = tuple[int, int, bool]


def _common(node: Tree) -> Iterator[tuple[Member, bool]]:
    """Yield the loops that all statements of a tree go through, the outer ones first, and whether they are several.

    Loops of different children of a sequence count as one where they are at the same depth, those of one iteration apart. A
    stream's loop is one over the elements that it takes together.
    """
    match node:
        case Band(members=members, child=child):
            for m in members:
                if m.kind is MemberKind.STREAM:
                    yield Member(tuple((s, floordiv(e, m.extent)) for s, e in m.times), m.label), False
                elif not all(isinstance(e, Literal) for _, e in m.times):
                    yield m, False
            yield from _common(child)
        case Scope(child=child):
            yield from _common(child)
        case Sequence(children=children):
            if len({s for f in children for s in f.statements}) == sum(len(f.statements) for f in children):
                for together in zip(*(_common(f.child) for f in children), strict=False):
                    found = [m for m, _ in together]
                    kind = MemberKind.SERIAL if all(m.kind is MemberKind.SERIAL for m in found) else MemberKind.UNROLL
                    yield Member(tuple(t for m in found for t in m.times), found[0].label, kind), True
        case Leaf():
            return


def _tile_of(time: Expr, outer: Expr) -> int | None:
    """Return how many values a time has while `outer`, its quotient by so many, stays; None where it is no such quotient."""
    match outer:
        case Call(op="floordiv", args=(inside, Literal(value=value))) if inside == time:
            return int(value.real)
        case _:
            return 1 if outer == time else None


def _holds_box(domain: isl.Set, ranges: Iterable[_Span]) -> bool:
    """Whether a set holds the box around it but for a twentieth at each end."""
    inner = [(lo + TRIMMED_LOOP_SHARE * (hi - lo + 1), hi - TRIMMED_LOOP_SHARE * (hi - lo + 1)) for lo, hi, _ in ranges]
    names = [f"x{n}" for n in range(len(inner))]
    box = " and ".join(f"{ceil(a)} <= {x} <= {floor(b)}" for x, (a, b) in zip(names, inner, strict=True))
    return bool(read_set(f"{{ {domain.get_tuple_name()}[{', '.join(names)}] : {box} }}").is_subset(domain))


def _ranges(program: TypedProgram, statement: TypedStatement) -> dict[str, _Span]:
    domain = read_set(statement.domain)
    likely = likely_extents(program, statement, domain)
    found: dict[str, _Span] = {}
    for d, name in enumerate(statement.iterators):
        low, count = values_of(domain, d)
        lo = 0 if low is None else low
        found[name] = (lo, lo + (likely.get(name, GUESSED_TRIPS) if count is None else count) - 1, count is not None)
    return found


def _tiles(time: Expr, ranges: Mapping[str, _Span]) -> float:
    """Return how many values of a time its indices fill, the last one perhaps in part."""
    match time:
        case Call(op="floordiv", args=(inside, Literal(value=value))):
            return _tiles(inside, ranges) / value.real
        case Call(op="mod", args=(inside, Literal(value=value))):
            return min(value.real, _tiles(inside, ranges))
        case _:
            lo, hi, _ = _span(time, ranges)
            return float(hi - lo + 1)


def _span(expr: Expr, ranges: Mapping[str, _Span]) -> _Span:
    """Return the values that a time runs over, each of its indices alone."""
    match expr:
        case Literal(value=value):
            return int(value.real), int(value.real), True
        case IndexExpr(name=name):
            return ranges[name]
        case Call(op="add", args=args):
            spans = [_span(a, ranges) for a in args]
            return sum(s[0] for s in spans), sum(s[1] for s in spans), all(s[2] for s in spans)
        case Call(op="floordiv", args=(a, Literal(value=value))):
            lo, hi, known = _span(a, ranges)
            return lo // int(value.real), hi // int(value.real), known
        case Call(op="mod", args=(a, Literal(value=value))):
            lo, hi, known = _span(a, ranges)
            most = int(value.real) - 1
            return 0, min(most, hi - lo), known or hi - lo > most
        case Call(op="mul", args=(Literal(value=value), a)) | Call(op="mul", args=(a, Literal(value=value))):
            ends = [int(value.real) * e for e in _span(a, ranges)[:2]]
            return min(ends), max(ends), _span(a, ranges)[2]
        case _:
            return 0, GUESSED_TRIPS - 1, False
