"""Convert schedule trees to isl's: the one form for code generation and the proof of legality."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import islpy as isl
from msgspec import Struct

from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import print_affine
from polyker.ir.typed import TypedProgram
from polyker.poly.isl import context, read_map, read_set, union_of
from polyker.poly.scop import Scop, ScopAccess, parameters
from polyker.schedule.tree.block_threads import AXES, extents_of
from polyker.schedule.tree.fixed_loops import FixedLoops, fixed_loops
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
    paths,
    statements_of,
)
from polyker.structs import replace


class Threads(Struct, frozen=True):
    """The threads of one launch along an axis: `name` is the parameter that stands for a thread's number, below `extent`."""

    axis: str
    name: str
    extent: int


class MeetingPoint(Struct, frozen=True):
    """What is done between children of a sequence; see polyker.schedule.tree.nodes.Filter."""

    wait: int | None
    barrier: bool
    warps: bool


class Marks(Struct, frozen=True):
    """What the marks in isl's tree stand for: `m3` is a loop, `p2` a scope.

    `private`: the scopes inside a parallel loop (of nested ones, the innermost), by its mark; `shared`: those that have a
    PARALLEL loop inside. `threads`: of launches whose threads walk through loops and sequences together, by the mark of the
    outermost BLOCK loop. `meetings`: what stands for a wait or a barrier in place of a statement;
    `commits`: for the end of a group (see polyker.schedule.tree.nodes.Filter); `arrivals`: for nothing; `fixed`: for loops that
    isl is not asked for.
    """

    members: Mapping[str, Member]
    scopes: Mapping[str, Scope]
    private: Mapping[str, tuple[str, ...]]
    shared: frozenset[str]
    threads: Mapping[str, tuple[Threads, ...]]
    meetings: Mapping[str, MeetingPoint]
    commits: frozenset[str]
    arrivals: frozenset[str]
    fixed: Mapping[str, FixedLoops]

    def numbers(self) -> tuple[Threads, ...]:
        """Return all parameters that stand for threads' numbers."""
        return tuple(t for found in self.threads.values() for t in found)


def scope_mark(number: int) -> str:
    """Return the mark of a scope by its number in the order of the walk."""
    return f"p{number}"


def tuple_of(program: TypedProgram, statement: str) -> str:
    """Return isl's text of a statement's tuple, such as `S0[i0, i1]`."""
    found = next(s for s in program.statements() if s.name == statement)
    return f"{statement}[{', '.join(found.iterators)}]"


def union_text(head: str, sets: Iterable[str]) -> str:
    """Return the text of the union of sets of different tuples, given as texts over the same sizes."""
    return f"{head}{{ {'; '.join(t[t.index('{') + 1 : t.rindex('}')] for t in sets)} }}"


def to_isl(scop: Scop, schedule: ScheduleTree, *, whole: bool = False) -> tuple[isl.Schedule, Marks]:
    """Return the schedule tree of isl, and what its marks mean.

    `whole`: nothing of an iteration of a loop of AT_ONCE with scopes inside runs before the loop or after it, as it could where
    only its first or its last iteration has it: statements that are nothing begin and end each iteration. So they do where a
    nest in it is not isl's: of parts of a statement each has a name of its own, and isl would take the edges out of the loop.

    Where the threads of a launch walk through loops and sequences together a parameter stands for the thread's number, and a
    filter for each THREAD loop: isl writes what one thread runs. A barrier there is a statement of its own, run whenever
    the block comes to its sequence; the loops around it are kept in one piece.
    """
    found = _Conversion(scop, whole)
    root, _ = found.child_of({}, schedule.tree, {s: Way() for s in scop.domains}, _Inside())
    head = found.head
    domain = union_text(head, (*found.domains(), *found.stand_ins.values()))
    around = frozenset(
        m for m, s in found.scopes.items() if any(one.kind is MemberKind.PARALLEL for one in loops(s.child))
    )
    marks = Marks(
        found.members, found.scopes, found.private, around, found.threads,
        found.meetings, frozenset(found.commits), frozenset(found.arrivals), found.fixed,
    )  # fmt: skip
    return isl.Schedule.read_from_str(context(), json.dumps({"domain": domain, **root})), marks


IslNode: TypeAlias = dict[str, object]


class _Below(Struct, frozen=True):
    """What isl sees below a node: statements, barriers, and names of loops that it is not asked for."""

    statements: tuple[str, ...] = ()
    barriers: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()

    def __add__(self, other: _Below) -> _Below:
        alike = tuple(s for s in other.statements if s not in self.statements)
        return _Below(self.statements + alike, self.barriers + other.barriers, self.fixed + other.fixed)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.statements, *self.barriers, *self.fixed)

    def barrier(self, name: str) -> _Below:
        return replace(self, barriers=(*self.barriers, name))


class _Inside(Struct, frozen=True):
    """What is around a node: whether it is in a launch, the launch's threads, and those that a loop is distributed over."""

    launch: bool = False
    threads: tuple[Threads, ...] = ()
    dealt: frozenset[str] = frozenset()
    depth: int = 0
    lanes: bool = False  # whether it is in a vector loop


class _Conversion:
    """The walk down a tree; nodes of isl's tree are made on the way up."""

    def __init__(self, scop: Scop, whole: bool) -> None:
        self.scop, self.whole = scop, whole
        self.members: dict[str, Member] = {}
        self.scopes: dict[str, Scope] = {}
        self.private: dict[str, tuple[str, ...]] = {}
        self.threads: dict[str, tuple[Threads, ...]] = {}
        self.stand_ins: dict[str, str] = {}  # for barriers and fixed loops: name -> text of its domain
        self.meetings: dict[str, MeetingPoint] = {}  # those of them where threads wait or meet
        self.commits: list[str] = []
        self.arrivals: list[str] = []  # those of them that are nothing
        self.fixed: dict[str, FixedLoops] = {}
        self.parts: dict[str, list[isl.Set]] = {}  # of each statement the instances in fixed loops
        self.tuples = {s.name: f"{s.name}[{', '.join(s.iterators)}]" for s in scop.program.statements()}

    @property
    def head(self) -> str:
        return parameters(self.scop.program)

    def child_of(self, node: IslNode, tree: Tree, here: dict[str, Way], inside: _Inside) -> tuple[IslNode, _Below]:
        """Return a node with what a tree becomes below it."""
        child, below = self.convert(tree, here, inside)
        return node | ({"child": child} if child else {}), below

    def convert(self, tree: Tree, here: dict[str, Way], inside: _Inside) -> tuple[IslNode, _Below]:
        """Return what a tree becomes, and what is in it; `here` are the statements that come to it, and how."""
        match tree:
            case Band(members=(first, *rest), child=child):
                return self.loop(tree, first, Band(tuple(rest), child) if rest else child, here, inside)
            case Sequence(children=children):
                return self.sequence(children, here, inside)
            case Scope(child=child) as scope:
                mark = scope_mark(len(self.scopes))
                self.scopes[mark] = scope
                inner, below = self.convert(child, here, inside)
                # isl has no mark without a node below: one time for all is no order.
                zero = "; ".join(f"{self.tuples[s]} -> [(0)]" for s in below.names)
                return {"mark": mark, "child": inner or {"schedule": f"{self.head}[{{ {zero} }}]"}}, below
            case _:
                left = [t for t in inside.threads if t.axis not in inside.dealt]
                node = self.filter(left, {s: ["0"] * len(left) for s in here}) if left else {}
                return node, _Below(tuple(here))

    def loop(
        self, tree: Band, first: Member, below: Tree, here: dict[str, Way], inside: _Inside
    ) -> tuple[IslNode, _Below]:
        """Return a loop: one of a thread's own numbers is a filter."""
        if len(first.times) == 1 and not inside.launch and (name := self.fixed_nest(tree, here, inside)):
            return {}, _Below(fixed=(name,))
        here = {s: here[s].at(e) for s, e in first.times}
        if first.kind is MemberKind.THREAD and inside.threads:
            mine = [t for t in inside.threads if t.axis == first.axis]
            if not mine:  # one thread along the axis
                return self.convert(below, here, inside)
            node = self.filter(mine, {s: [way.times[-1]] for s, way in here.items()})
            return self.child_of(node, below, here, replace(inside, dealt=inside.dealt | {first.axis}))
        if first.kind is MemberKind.SERIAL and not inside.launch and self.runs_once(here):
            return self.convert(below, here, replace(inside, depth=inside.depth + 1))
        mark = f"m{len(self.members)}"
        self.members[mark] = first
        if first.kind is MemberKind.BLOCK and not inside.launch:
            inside = replace(inside, launch=True, threads=self.launch(mark, tree))
        before = len(self.scopes)
        inner = replace(inside, depth=inside.depth + 1, lanes=inside.lanes or first.kind is MemberKind.VECTOR)
        band, found = self.child_of({}, below, here, inner)
        last = first.kind is MemberKind.BLOCK and not any(m.kind is MemberKind.BLOCK for m in loops(below))
        kept = first.kind in AT_ONCE and (bool(found.fixed) or (self.whole and len(self.scopes) > before))
        if (last and inside.threads) or kept:
            texts = [f"{{ {self.tuples[s]} }}" for s in found.names]
            children = [{"filter": union_text(self.head, texts), **band}]
            nodes, found = self.arriving(children, found, here, inner)
            if kept:
                self.arrivals.append(self.between(nodes, here, inner.depth))
                found = found.barrier(self.arrivals[-1])
            band = {"child": {"sequence": nodes}}
        times = [f"{self.tuples[s]} -> [({here[s].times[-1]})]" for s in found.statements]
        times += [f"{self.tuples[b]} -> [(t{inside.depth})]" for b in (*found.barriers, *found.fixed)]
        band = {"schedule": f"{self.head}[{{ {'; '.join(times)} }}]", "permutable": 1, "coincident": [0], **band}
        # A loop in a vector loop is uniform across the lanes as long as isl takes no iteration out of it that is another in each
        # lane: runs of a scope inside, and what shares its buffers, are told apart by the loop's time alone.
        if found.barriers or ((inside.lanes or first.kind is MemberKind.SERIAL) and len(self.scopes) > before):
            band["options"] = "{ atomic[0] }"
        if first.kind in AT_ONCE:
            nested = {s for found in self.private.values() for s in found}
            self.private[mark] = tuple(s for s in tuple(self.scopes)[before:] if s not in nested)
        return {"mark": mark, "child": band}, found

    def fixed_nest(self, tree: Tree, here: dict[str, Way], inside: _Inside) -> str:
        """Return the name of what stands for a nest of one statement, "" where isl has to be asked for its loops."""
        ((name, way),) = here.items()
        members: tuple[Member, ...] = ()
        while isinstance(tree, Band):
            members, tree = (*members, *tree.members), tree.child
        if not isinstance(tree, Leaf) or any(m.kind in AT_ONCE for m in members):
            return ""
        points = self.scop.domains[name]
        for condition in way.conditions:
            points = points.intersect(read_set(condition))
        statement = next(s for s in self.scop.program.statements() if s.name == name)
        found = fixed_loops(statement, points, way.exprs, members)
        if found is None:
            return ""
        self.parts.setdefault(name, []).append(points)
        fresh = f"fixed{len(self.fixed)}"
        self.fixed[fresh] = found
        self.tuples[fresh] = f"{fresh}[{', '.join(f't{d}' for d in range(inside.depth))}]"
        self.stand_ins[fresh] = f"{{ {self.tuples[fresh]} : {' and '.join(found.domain) or '1 = 1'} }}"
        return fresh

    def domains(self) -> Iterator[str]:
        """Yield the text of the instances of each statement that isl is asked for."""
        for s in self.scop.program.statements():
            left = self.scop.domains[s.name]
            for part in self.parts.get(s.name, ()):
                left = left.subtract(part)
            if s.name not in self.parts:
                yield s.domain
            elif not left.is_empty():
                yield str(left.coalesce())

    def runs_once(self, here: dict[str, Way]) -> bool:
        """Whether several statements come to the last loop, and all at one time.

        isl would make no loop of it but split its body: of two pieces `A; B` it would run A of both, then B of both.
        """
        if len(here) == 1:
            return False
        found: set[str] = set()
        for s, way in here.items():
            time = read_map(f"{self.head}{{ {self.tuples[s]} -> [{way.times[-1]}] }}")
            times = time.intersect_domain(self.scop.domains[s]).range()
            found |= {str(times.dim_min_val(0)), str(times.dim_max_val(0))}
            if len(found) > 1:
                return False
        return found.pop().lstrip("-").isdigit()

    def launch(self, mark: str, tree: Tree) -> tuple[Threads, ...]:
        """Return the threads of a launch that walk through it together, () where each is alone with its instances."""
        extents = extents_of(tree)
        if extents is not None:
            n = len(self.threads)
            self.threads[mark] = tuple(
                Threads(a, f"thread{n}{a}", e) for a, e in zip(AXES, extents, strict=True) if e > 1
            )
        return self.threads.get(mark, ())

    def filter(self, threads: list[Threads], times: dict[str, list[str]]) -> IslNode:
        """Return the filter of the instances that have the threads' numbers as times."""
        names = [t.name for t in threads]
        parts = (
            f"{self.tuples[s]} : {' and '.join(f'{t} = {n}' for t, n in zip(own, names, strict=True))}"
            for s, own in times.items()
        )
        sizes = (n for n, _ in self.scop.program.sizes)
        return {"filter": f"[{', '.join((*sizes, *names))}] -> {{ {'; '.join(parts)} }}"}

    def sequence(self, children: tuple[Filter, ...], here: dict[str, Way], inside: _Inside) -> tuple[IslNode, _Below]:
        """Return a sequence, each barrier a child of its own."""
        nodes: list[IslNode] = []
        found = _Below()
        for f in children:
            extra = dict(f.conditions)
            if f.wait is not None or f.barrier:
                found = found.barrier(self.between(nodes, here, inside.depth))
                self.meetings[found.barriers[-1]] = MeetingPoint(f.wait, f.barrier, f.warps)
            ways = {
                s: replace(here[s], conditions=here[s].conditions + ((extra[s],) if s in extra else ()))
                for s in f.statements
            }
            node, below = self.child_of({}, f.child, ways, inside)
            texts = [extra.get(s, f"{{ {self.tuples[s]} }}") for s in below.names]
            nodes.append({"filter": union_text(self.head, texts), **node})
            found += below
            if f.commit:
                found = found.barrier(self.between(nodes, here, inside.depth))
                self.commits.append(found.barriers[-1])
        if found.barriers and inside.threads and all(f.is_plain() for f in children):
            nodes, found = self.arriving(nodes, found, here, inside)
        return {"sequence": nodes}, found

    def arriving(
        self, children: list[IslNode], below: _Below, here: dict[str, Way], inside: _Inside
    ) -> tuple[list[IslNode], _Below]:
        """Return the children of a sequence, after a statement that says nothing but that the block is there.

        No thread's number is in its domain, so that isl puts no test of one around the sequence.
        """
        name = self.barrier(here, inside.depth)
        self.arrivals.append(name)
        first = replace(below, barriers=(name, *below.barriers))
        return [{"filter": f"{self.head}{{ {self.tuples[name]} }}"}, *children], first

    def between(self, nodes: list[IslNode], here: dict[str, Way], depth: int) -> str:
        """Return the name of what is put after the children of a sequence so far."""
        name = self.barrier(here, depth)
        nodes.append({"filter": f"{self.head}{{ {self.tuples[name]} }}"})
        return name

    def barrier(self, here: dict[str, Way], depth: int) -> str:
        """Return the name of a new barrier; its domain are the times at which any statement comes to its sequence."""
        name = f"barrier{len(self.stand_ins)}"
        found = union_of(way.run(self.scop, s, name).range() for s, way in here.items())
        self.stand_ins[name] = str(found.coalesce())
        self.tuples[name] = f"{name}[{', '.join(f't{d}' for d in range(depth))}]"
        return name


class Way(Struct, frozen=True):
    """One way from the root to a leaf or scope: the times of loops and places in sequences, and the conditions met."""

    times: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    lanes: tuple[int, ...] = ()  # places of vector loops in the times
    exprs: tuple[Expr, ...] = ()  # the times of loops alone

    def at(self, time: Expr) -> Way:
        """Return the way in a loop around."""
        return replace(self, times=(*self.times, print_affine(time)), exprs=(*self.exprs, time))

    def run(self, scop: Scop, statement: str, name: str) -> isl.Map:
        """Return {S[iterators] -> name[times]} of the instances that go this way; the lanes of a vector loop have one time."""
        domain = scop.domains[statement]
        for condition in self.conditions:
            domain = domain.intersect(read_set(condition))
        at_once = {*self.lanes, *self._of_lanes(scop, statement, domain)}
        return self._times(scop, statement, domain, [n for n in range(len(self.times)) if n not in at_once], name)

    def _of_lanes(self, scop: Scop, statement: str, domain: isl.Set) -> Iterator[int]:
        """Yield the places of loops in a vector loop that run once in each lane, at a time of its own: isl makes no loop of
        them, so the lanes are there together."""
        for n in range(min(self.lanes, default=len(self.times)) + 1, len(self.times)):
            if n in self.lanes or self.times[n].isdecimal():
                continue
            now = self._times(scop, statement, domain, [n])
            lane = self._times(scop, statement, domain, list(range(n)))
            others = self._times(scop, statement, domain, [m for m in range(n) if m not in self.lanes])
            found = [other.reverse().apply_range(now).is_single_valued() for other in (lane, others)]
            if found == [True, False]:
                yield n

    def _times(self, scop: Scop, statement: str, domain: isl.Set, places: list[int], name: str = "") -> isl.Map:
        """Return {S[iterators] -> name[times]} of these places, 0 at the others, so that all ways have as many."""
        head, source = parameters(scop.program), tuple_of(scop.program, statement)
        times = [t if n in places else "0" for n, t in enumerate(self.times)]
        return read_map(f"{head}{{ {source} -> {name}[{', '.join(times)}] }}").intersect_domain(domain)


def elements_of_runs(scop: Scop, touching: Iterable[ScopAccess], here: Mapping[str, Way]) -> isl.Map | None:
    """Return {run of a scope -> elements} that accesses touch on the ways `here` to the scope; None of no access."""
    runs = ((here[a.statement].run(scop, a.statement, "P"), a.relation) for a in touching)
    return union_of(run.reverse().apply_range(relation) for run, relation in runs)


def scope_ways(tree: Tree, program: TypedProgram) -> list[tuple[Scope, dict[str, Way]]]:
    """Return each scope, in the order of the walk, with the way to it of every statement below.

    Where the threads of a GPU's block have a buffer each, the numbers of its thread belong to a statement's way.
    """
    result: list[tuple[Scope, dict[str, Way]]] = []

    def visit(node: Tree, here: dict[str, Way], depth: int, *, together: bool = False) -> None:
        match node:
            case Band(members=ms, child=child):
                if (
                    not together
                    and (at := next((n for n, m in enumerate(ms) if m.kind is MemberKind.BLOCK), None)) is not None
                ):
                    together = extents_of(Band(ms[at:], child)) is not None
                lanes = tuple(depth + n for n, m in enumerate(ms) if m.kind is MemberKind.VECTOR)
                below = {
                    s: replace(
                        here[s],
                        times=(*here[s].times, *(print_affine(m.time(s)) for m in ms)),
                        lanes=here[s].lanes + lanes,
                    )
                    for s, _ in ms[0].times
                }
                visit(child, below, depth + len(ms), together=together)
            case Sequence(children=children):
                for place, f in enumerate(children):
                    extra = dict(f.conditions)
                    inside = {
                        s: replace(
                            here[s],
                            times=(*here[s].times, str(place)),
                            conditions=here[s].conditions + ((extra[s],) if s in extra else ()),
                        )
                        for s in f.statements
                    }
                    visit(f.child, inside, depth + 1, together=together)
            case Scope(promotions=promotions, child=child) as scope:
                own = together and not all(p.shared for p in promotions)
                numbers = thread_numbers(child) if own else {}
                result.append((scope, {s: replace(w, times=w.times + numbers.get(s, ())) for s, w in here.items()}))
                visit(child, here, depth, together=together)
            case Leaf():
                return

    visit(tree, {s.name: Way() for s in program.statements()}, 0)
    return result


def thread_numbers(tree: Tree) -> dict[str, tuple[str, ...]]:
    """Return the times at the THREAD loops of a tree, along x, y and z, of each statement (on its first way to a leaf)."""
    found: dict[str, tuple[str, ...]] = {}
    for s in statements_of(tree):
        way = next(paths(tree, s))
        times = {m.axis: print_affine(m.time(s)) for m in way if m.kind is MemberKind.THREAD}
        found[s] = tuple(times.get(a, "0") for a in AXES)
    return found
