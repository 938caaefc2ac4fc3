"""Which loops run on several threads: chosen when the nests are, by what the schedule costs on so many.

A loop may run in parallel where no dependence goes from one of its iterations to another, but through buffers of scopes inside
it. Of each nest the loop is taken for which a rough model says the least: the part of the work that the busiest thread does, and
what starting a region costs each time that the nest comes to it. The outermost of loops that are about as good is taken: it
starts the fewest regions, and keeps what a thread packs to that thread. Where two loops, one directly in the other, carry
dependences forwards only, such as the tiles of a skewed stencil, they are run as waves:

    for a: for b: S(a, b)        for wave: parallel a: S(a, wave - a)

and where the outer of two loops carries dependences and the inner none, strips of the inner run around both:

    for a: for b: S(a, b)        parallel strip of b: for a: for b in strip: S(a, b)

The results of a long sum's blocks are combined when all are there (polyker.schedule.privatise). No instance is computed
otherwise than on one thread, and so no bit of a result changes.

The pass only proposes. The proof is polyker.schedule.legality's, of the finished tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import islpy as isl

from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Expr, Index, Literal
from polyker.ir.expr import walk as parts_of
from polyker.ir.quasi_affine import add, floordiv, indices_of, print_affine, substitute
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.boxes import corners
from polyker.poly.dependences import Dependence, candidates
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import Scop, parameters
from polyker.schedule.legality_buffers import promoted_tensors
from polyker.schedule.measure import likely_extents, values_of
from polyker.schedule.privatise import taken_apart
from polyker.schedule.tree import Band, Filter, Kind, Leaf, Member, Schedule, Scope, Sequence, Tree, loops

# In the operations of codegen.work, of which a core does some 20 in a nanosecond: what starting a region takes.
START = 30_000.0
# Values of an iterator whose bounds depend on sizes that nothing is known of.
GUESS = 512
# How much faster a loop further in has to be to be taken.
MARGIN = 0.95
# And waves further in: they take apart what a tile keeps in a cache.
WAVE_MARGIN = 0.75
# Strips for each thread where a loop is shared out around one that is not: some may be faster than others.
STRIPS = 2
# Operations for each byte of partial results, which are written, read again, and in no registers meanwhile.
PARTIAL = 5.0
# Bytes that the threads' own buffers may take together.
PRIVATE = 256 << 20


def parallel_schedule(scop: Scop, schedule: Schedule, threads: int, most: int = PRIVATE) -> Schedule:
    """Return the schedule with loops to run on `threads` threads; the same where none is worth it.

    `most`: bytes that the threads' own buffers may take together.
    """
    if threads < 2 or any(m.kind is Kind.PARALLEL for m in loops(schedule.tree)):
        return schedule
    search = _Search(scop, threads, promoted_tensors(schedule.tree), most)
    if sum(search.work.values()) <= START:
        return schedule
    everywhere = tuple(_Pair(d) for d in candidates(scop))
    found = search.best(schedule.tree, _Here(everywhere, search.work))
    if found.tree == schedule.tree:
        return schedule
    names = dict.fromkeys(m.label for m in loops(found.tree) if m.kind is Kind.PARALLEL)
    note = f"loops {', '.join(names)} run on {threads} threads"
    return Schedule(found.tree, (*schedule.notes, note))


@dataclass(frozen=True)
class _Pair:
    """Dependent instances that are at the same time in all loops so far; None: all of the dependence's."""

    dependence: Dependence
    part: isl.Map | None = None

    @property
    def relation(self) -> isl.Map:
        return self.dependence.relation if self.part is None else self.part


@dataclass(frozen=True)
class _Here:
    """What is above a node: dependences that it may carry, tensors that have a buffer, how often the tree comes here.

    `work`: what each statement does below, in all runs together.
    """

    pairs: tuple[_Pair, ...]
    work: Mapping[str, float]
    entered: frozenset[str] = frozenset()
    runs: float = 1.0


@dataclass(frozen=True)
class _Found:
    """A tree with loops chosen, and its cost on all threads."""

    tree: Tree
    cost: float


class _Search:
    def __init__(self, scop: Scop, threads: int, promoted: frozenset[str], most: int) -> None:
        self.scop, self.threads, self.promoted, self.most = scop, threads, promoted, most
        self.head = parameters(scop.program)
        self.iterators = {s.name: s.iterators for s in scop.program.statements()}
        self.ranges = {s.name: _ranges(scop.program, s) for s in scop.program.statements()}
        self.uneven: dict[str, bool] = {}
        self.work = {}
        for s in scop.program.statements():
            points = prod(hi - lo + 1 for lo, hi, _ in self.ranges[s.name].values())
            # What is computed once waits for memory: some cycles for a vector of each tensor.
            waits = 16 * (1 + sum(1 for _ in s.reads())) if s.op == "set" else 0
            self.work[s.name] = float(max(0, points)) * (2 + sum(1 for _ in parts_of(s.expr)) + waits) / 16

    def best(self, node: Tree, here: _Here) -> _Found:
        """Return the node with the loops that cost the least."""
        match node:
            case Band(members=members, child=child):
                return self._band(members, child, here)
            case Sequence(children=children):
                holders = Counter(s for f in children for s in f.statements)
                found = [self.best(f.child, self._in_child(here, f.statements, holders)) for f in children]
                parts = tuple(replace(f, child=b.tree) for f, b in zip(children, found, strict=True))
                return _Found(replace(node, children=parts), sum(b.cost for b in found))
            case Scope(promotions=promotions, child=child):
                entered = here.entered | {p.tensor for p in promotions}
                inner = self.best(child, replace(here, entered=entered))
                return _Found(replace(node, child=inner.tree), inner.cost)
            case Leaf():
                return _Found(node, sum(here.work.values()))

    def _in_child(self, here: _Here, statements: tuple[str, ...], holders: Mapping[str, int]) -> _Here:
        """Return what is above one child of a sequence; a statement's parts in several children count alike."""
        work = {s: here.work[s] / holders[s] for s in statements}
        pairs = tuple(p for p in here.pairs if {p.dependence.source, p.dependence.sink} <= set(work))
        return replace(here, pairs=pairs, work=work)

    def _band(self, members: tuple[Member, ...], child: Tree, here: _Here) -> _Found:
        """Return the band with one of its loops in parallel, or loops further in, or none, whichever costs least."""
        serial = sum(here.work.values())
        chosen = _Found(Band(members, child), serial)
        for n, member in enumerate(members):
            if member.kind is not Kind.SERIAL or not here.runs * START < chosen.cost:
                return chosen
            before = here
            free, here = self._passed(member, here)
            count, known = self._trips(member)
            below = Band(members[n + 1 :], child) if members[n + 1 :] else child
            if free and count > 1 and self._private(below) * self.threads <= self.most:
                share = -(-count // self.threads) / count
                # Of a loop whose iterations are not known to be many there may be one alone.
                share = share if known or count >= 8 * self.threads else (1 + share) / 2
                # Iterations of a triangle are long and short: somebody waits for half of one.
                share = min(1.0, share + 0.5 / count) if any(map(self._is_uneven, here.work)) else share
                cost = serial * share + here.runs * START
                if cost < chosen.cost * (1.0 if chosen.cost == serial else MARGIN):
                    marked = replace(member, kind=Kind.PARALLEL, extent=self.threads)
                    chosen = _Found(Band((*members[:n], marked, *members[n + 1 :]), child), cost)
            if not free and count > 1:
                for found, margin in (
                    (self._strips(members, n, child, before), MARGIN),
                    (self._waves(members, n, child, before), WAVE_MARGIN),
                    (self._apart(members, n, child, before), MARGIN),
                ):
                    if found is not None and found.cost < chosen.cost * (1.0 if chosen.cost == serial else margin):
                        chosen = found
            here = replace(here, runs=here.runs * max(1, count))
        inner = self.best(child, here)
        return (
            _Found(Band(members, inner.tree), inner.cost)
            if inner.cost < chosen.cost * MARGIN and inner.tree != child
            else chosen
        )

    def _strips(self, members: tuple[Member, ...], n: int, child: Tree, here: _Here) -> _Found | None:
        """Return the band with iterations of a loop further in shared out around the loop n; None where no loop may be."""
        serial, found = sum(here.work.values()), None
        inner, below = list(members[n + 1 :]), child
        while isinstance(below, Band):
            inner, below = [*inner, *below.members], below.child
        for member in inner:
            count, known = self._trips(member)
            if count < (self.threads if known else 8 * self.threads) or member.kind is not Kind.SERIAL:
                continue
            long = -(-count // (STRIPS * self.threads))
            times = tuple((s, floordiv(e, long)) for s, e in member.times)
            strip = Member(times, f"{member.label}.strip", Kind.PARALLEL, self.threads)
            strips = -(-count // long)
            cost = serial * -(-strips // self.threads) * long / count + here.runs * START
            if cost < (serial if found is None else found.cost) and self._passed(strip, here)[0]:
                inside = Band(members[n:], child)
                if self._private(inside) * self.threads <= self.most:
                    found = _Found(Band((*members[:n], strip, *members[n:]), child), cost)
        return found

    def _waves(self, members: tuple[Member, ...], n: int, child: Tree, here: _Here) -> _Found | None:
        """Return the band with the loops n and n + 1 run as waves; None where a dependence does not let them."""
        if n + 1 == len(members) or members[n + 1].kind is not Kind.SERIAL:
            return None
        first, second = members[n], members[n + 1]
        times = tuple((s, add(e, second.time(s))) for s, e in first.times)
        wave = Member(times, f"{first.label}+{second.label}")
        if any(not p.relation.intersect(self._compared(wave, p.dependence, ">")).is_empty() for p in here.pairs):
            return None
        free, _ = self._passed(first, self._passed(wave, here)[1])
        sizes = sorted(self._trips(m)[0] for m in (first, second))
        if not free or sizes[0] < 2:
            return None
        rising = [min(k, sizes[0]) for k in range(1, sizes[1] + 1)]
        widths = [*rising, *range(sizes[0] - 1, 0, -1)]
        share = sum(-(-w // self.threads) for w in widths) / prod(sizes)
        marked = replace(first, kind=Kind.PARALLEL, extent=self.threads)
        cost = sum(here.work.values()) * share + here.runs * len(widths) * START
        return _Found(Band((*members[:n], wave, marked, *members[n + 2 :]), child), cost)

    def _apart(self, members: tuple[Member, ...], n: int, child: Tree, here: _Here) -> _Found | None:
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
        marked = replace(head, kind=Kind.PARALLEL, extent=self.threads)
        parts = (
            Filter(tuple(s for s, _ in head.times), Band((marked, *rest), found.first.child)),
            Filter(tuple(s for s in here.work if s in last), found.last),
        )
        tree: Tree = Sequence(parts)
        tree = Scope(found.promotions, tree) if found.promotions else tree
        tree = Band(members[:n], tree) if n else tree
        count = self._trips(members[n])[0]
        work = sum(here.work[s] for s in first)
        rest_work = sum(here.work[s] for s in last)
        rest_work += PARTIAL * here.runs * sum(p.cells() * self._itemsize(p.tensor) for p in found.promotions)
        return _Found(tree, work * -(-count // self.threads) / count + rest_work + here.runs * START)

    def _is_uneven(self, statement: str) -> bool:
        """Whether the instances of a statement of fixed sizes are no box."""
        if statement not in self.uneven:
            fixed = all(known for _, _, known in self.ranges[statement].values())
            self.uneven[statement] = fixed and corners(self.scop.domains[statement]) is None
        return self.uneven[statement]

    def _is_carried(self, member: Member, pair: _Pair, entered: frozenset[str], promoted: frozenset[str]) -> bool:
        """Whether a loop carries a dependence between threads."""
        if pair.dependence.tensor in promoted and pair.dependence.tensor not in entered:
            return False
        return any(
            not pair.relation.intersect(self._compared(member, pair.dependence, c)).is_empty() for c in ("<", ">")
        )

    def _private(self, node: Tree) -> int:
        """Return the bytes of the buffers inside a node: each thread has them."""
        match node:
            case Band(child=child):
                return self._private(child)
            case Sequence(children=children):
                return sum(self._private(f.child) for f in children)
            case Scope(promotions=promotions, child=child):
                own = sum(p.cells() * self._itemsize(p.tensor) for p in promotions)
                return own + self._private(child)
            case Leaf():
                return 0

    def _itemsize(self, tensor: str) -> int:
        return self.scop.program.tensor(tensor).dtype.itemsize

    def _passed(self, member: Member, here: _Here) -> tuple[bool, _Here]:
        """Return whether a loop carries no dependence between threads, and what is left inside it."""
        free, left = True, []
        for pair in here.pairs:
            dependence = pair.dependence
            first, second = member.time(dependence.source), member.time(dependence.sink)
            same_place = {b: Index(a, i64) for a, b in dependence.equal}
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
        second = substitute(member.time(sink), {i: Index(f"{i}_") for i in self.iterators[sink]})
        places = ", ".join(self.iterators[source]), ", ".join(f"{i}_" for i in self.iterators[sink])
        times = f"{print_affine(member.time(source))} {compare} {print_affine(second)}"
        return read_map(f"{self.head}{{ {source}[{places[0]}] -> {sink}[{places[1]}] : {times} }}")

    def _trips(self, member: Member) -> tuple[int, bool]:
        """Return about how many iterations a loop has, and whether that follows from constants."""
        spans = [_span(e, self.ranges[s]) for s, e in member.times]
        lo, hi = min(s[0] for s in spans), max(s[1] for s in spans)
        return max(0, hi - lo + 1), all(s[2] for s in spans)


# Least and greatest value, and whether they are constants of the program.
_Span = tuple[int, int, bool]


def _ranges(program: TypedProgram, statement: TypedStatement) -> dict[str, _Span]:
    domain = read_set(statement.domain)
    likely = likely_extents(program, statement, domain)
    found: dict[str, _Span] = {}
    for d, name in enumerate(statement.iterators):
        low, count = values_of(domain, d)
        lo = 0 if low is None else low
        found[name] = (lo, lo + (likely.get(name, GUESS) if count is None else count) - 1, count is not None)
    return found


def _span(expr: Expr, ranges: Mapping[str, _Span]) -> _Span:
    """Return the values that a time runs over, each of its indices alone."""
    match expr:
        case Literal(value=value):
            return int(value.real), int(value.real), True
        case Index(name=name):
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
            return 0, GUESS - 1, False
