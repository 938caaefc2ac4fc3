"""Legality by enumeration, for small extents: the ground truth that the proof by isl is held against.

Every instance is put through the tree in plain Python, every element that it touches is computed from its expressions, and all
pairs are compared. isl only lists the points of the sets that stand in the program and in the tree as texts.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from functools import lru_cache

import islpy as isl
from msgspec import Struct, field

from polyker.ir.expr import Call, Expr, IndexExpr, Literal, Read, SizeExpr, walk
from polyker.ir.quasi_affine import coefficients, indices_of
from polyker.ir.typed import Role, TypedLoop, TypedNode, TypedProgram, TypedStatement
from polyker.schedule.tree.nodes import Band, Leaf, Member, MemberKind, Promotion, ScheduleTree, Scope, Sequence, Tree

Point = tuple[int, ...]
Instance = tuple[str, Point]
ANY = None  # a subscript that may be any place of its dimension


@lru_cache(4096)
def points(text: str, sizes: tuple[tuple[str, int], ...], condition: str | None = None) -> frozenset[Point]:
    """Return the points of a set for these sizes, those that meet a condition."""
    found: list[Point] = []
    domain = isl.Set(text) if condition is None else isl.Set(text).intersect(isl.Set(condition))
    for name, size in sizes:
        at = domain.find_dim_by_name(isl.dim_type.param, name)
        domain = domain if at < 0 else domain.fix_val(isl.dim_type.param, at, isl.Val(size))
    domain = domain.project_out(isl.dim_type.param, 0, domain.dim(isl.dim_type.param))
    count = domain.dim(isl.dim_type.set)
    domain.foreach_point(
        lambda p: found.append(tuple(p.get_coordinate_val(isl.dim_type.set, d).to_python() for d in range(count)))
    )
    return frozenset(found)


def value(expr: Expr, at: dict[str, int]) -> int | None:
    """Return the value of a subscript or time; ANY where it holds a read."""
    match expr:
        case Literal(value=number):
            return int(number.real)
        case IndexExpr(name=name) | SizeExpr(name=name):
            return at[name]
        case Call(op=op, args=args):
            parts = [value(a, at) for a in args]
            if any(p is ANY for p in parts):
                return ANY
            numbers = [p for p in parts if p is not None]
            match op:
                case "add":
                    return sum(numbers)
                case "neg":
                    return -numbers[0]
                case "mul":
                    product = 1
                    for n in numbers:
                        product *= n
                    return product
                case "floordiv":
                    return numbers[0] // numbers[1]
                case "mod":
                    return numbers[0] % numbers[1]
                case "minimum":
                    return min(numbers)
                case "maximum":
                    return max(numbers)
    return ANY


class Touch(Struct, frozen=True):
    """One access of one element by one instance; `update` marks the target of a reduction."""

    element: Point
    write: bool
    update: bool


class Visit(Struct):
    """Where an instance comes to a leaf: its times, its scopes, and the vector loops (place in the times, loop) on the way.

    `parallels`: the parallel loops on the way: place in the times, loop, and the tensors that have a buffer there.
    """

    times: Point
    runs: dict[str, tuple[object, Promotion]] = field(default_factory=dict)
    vectors: tuple[tuple[int, int, Member], ...] = ()
    parallels: tuple[tuple[int, int, frozenset[str]], ...] = ()


class Truth:
    """The instances, their original order and their elements, of one program for given sizes (by generated name)."""

    def __init__(self, program: TypedProgram, sizes: dict[str, int] | None = None) -> None:
        self.program = program
        self.sizes = dict(sizes or {})
        self.fixed = tuple(sorted(self.sizes.items()))
        self.statements = {s.name: s for s in program.statements()}
        self.order: dict[Instance, tuple[int, ...]] = {}
        self.touches: dict[str, dict[Instance, list[Touch]]] = defaultdict(dict)  # tensor -> instance -> elements
        self.spread: set[str] = set()  # tensors of which an access may reach any element
        self._walk(program.body, ())
        self.clashes = self._clashes()

    def at(self, instance: Instance) -> dict[str, int]:
        return {**self.sizes, **dict(zip(self.statements[instance[0]].iterators, instance[1], strict=True))}

    def _walk(self, body: tuple[TypedNode, ...], prefix: tuple[object, ...]) -> None:
        for place, node in enumerate(body):
            if isinstance(node, TypedLoop):
                self._walk(node.body, (*prefix, place, node.iterator))
                continue
            for point in points(node.domain, self.fixed):
                at = {**self.sizes, **dict(zip(node.iterators, point, strict=True))}
                outer = tuple(at[p] if isinstance(p, str) else p for p in (*prefix, place))
                instance = (node.name, point)
                self.order[instance] = (*outer, *point[node.outer :])  # type: ignore[assignment]
                self._touch(node, instance, at)

    def _touch(self, s: TypedStatement, instance: Instance, at: dict[str, int]) -> None:
        def add(tensor: str, subscripts: tuple[Expr, ...], write: bool, update: bool, pad: str | None) -> None:
            extents = [value(e, self.sizes) for e in self.program.tensor(tensor).shape]
            shape = [n for n in extents if n is not None]
            spots = [value(e, at) for e in subscripts]
            if pad == "constant" and any(p is not None and not 0 <= p < n for p, n in zip(spots, shape, strict=True)):
                return
            if pad not in (None, "constant"):
                spots = [ANY] * len(spots)
            if any(p is ANY for p in spots):
                self.spread.add(tensor)
            ranges = [range(n) if p is ANY else (p,) for p, n in zip(spots, shape, strict=True)]
            found = self.touches[tensor].setdefault(instance, [])
            found += [Touch(element, write, update) for element in itertools.product(*ranges)]

        add(s.target, s.subscripts, True, s.op != "set", None)
        for tree in (s.expr, *s.subscripts):
            for e in walk(tree):
                if isinstance(e, Read):
                    add(e.tensor, e.subscripts, False, False, None if e.pad is None else e.pad.mode)

    def _clashes(self) -> list[tuple[Instance, Instance, str, bool]]:
        """All (first, second, tensor, whether they only combine into an element of a reduction)."""
        found: dict[tuple[Instance, Instance, str], bool] = {}
        for tensor, touching in self.touches.items():
            elements: dict[Point, list[tuple[Instance, Touch]]] = defaultdict(list)
            for instance, touches in touching.items():
                for t in touches:
                    elements[t.element].append((instance, t))
            for mine in elements.values():
                for (a, x), (b, y) in itertools.combinations(mine, 2):
                    if a == b or not (x.write or y.write):
                        continue
                    first, second = (a, b) if self.order[a] < self.order[b] else (b, a)
                    combine = x.update and y.update and a[0] == b[0]
                    key = (first, second, tensor)
                    found[key] = found.get(key, True) and combine
        return [(a, b, t, combine) for (a, b, t), combine in found.items()]

    # -- a schedule ------------------------------------------------------------------------------------------------------

    def judge(self, schedule: ScheduleTree) -> set[str]:
        """Return what is wrong with a schedule: nothing for a legal one."""
        wrong: set[str] = set()
        visits: dict[Instance, list[Visit]] = defaultdict(list)
        runs: dict[tuple[object, ...], tuple[Member, list[Instance], list[int]]] = {}
        scopes: list[Scope] = []

        def visit(node: Tree, here: list[tuple[Instance, Visit]], path: tuple[int, ...]) -> None:
            match node:
                case Band(members=members, child=child):
                    for n, m in enumerate(members):
                        known = dict(m.times)
                        if len(known) != len(m.times) or {i[0] for i, _ in here} - set(known):
                            wrong.add("instances")
                        here = [(i, v) for i, v in here if i[0] in known]
                        after = []
                        for i, v in here:
                            time = value(known[i[0]], self.at(i))
                            assert time is not None
                            vectors = v.vectors
                            parallels = v.parallels
                            if m.kind is MemberKind.PARALLEL:
                                parallels = (*parallels, (len(v.times), hash((path, n)), frozenset(v.runs)))
                            elif m.kind not in (MemberKind.SERIAL, MemberKind.STREAM, MemberKind.SCAN):  # of any extent
                                key = (path, n, v.times)
                                runs.setdefault(key, (m, [], []))
                                runs[key][1].append(i)
                                runs[key][2].append(time)
                            if m.kind is MemberKind.VECTOR:
                                vectors = (*vectors, (len(v.times), hash((path, n)), m))
                            after.append((i, Visit((*v.times, time), v.runs, vectors, parallels)))
                        here = after
                    visit(child, here, (*path, 0))
                case Sequence(children=children):
                    for n, f in enumerate(children):
                        parts = {s: points(self.statements[s].domain, self.fixed, c) for s, c in f.conditions}
                        inside = [
                            (i, Visit((*v.times, n), v.runs, v.vectors, v.parallels))
                            for i, v in here
                            if i[0] in f.statements and (i[0] not in parts or i[1] in parts[i[0]])
                        ]
                        visit(f.child, inside, (*path, n))
                case Scope(promotions=promotions, child=child):
                    scopes.append(node)
                    entered = []
                    for i, v in here:
                        # The lanes of a vector loop share the buffer.
                        lanes = {place for place, _, _ in v.vectors}
                        run = tuple(t for k, t in enumerate(v.times) if k not in lanes)
                        mine = {p.tensor: ((path, run), p) for p in promotions}
                        if set(mine) & set(v.runs) or len(mine) < len(promotions):
                            wrong.add("structure")
                        entered.append((i, Visit(v.times, {**v.runs, **mine}, v.vectors, v.parallels)))
                    visit(child, entered, (*path, 0))
                case Leaf():
                    for i, v in here:
                        visits[i].append(v)

        visit(schedule.tree, [(i, Visit(())) for i in self.order], ())
        if not _is_well_nested(schedule.tree):
            wrong.add("nested")
        if any(len(visits[i]) != 1 for i in self.order):
            return wrong | {"instances"}
        at = {i: v[0] for i, v in visits.items()}
        for member, _, times in runs.values():
            if max(times) - min(times) >= member.extent:
                wrong.add("extent")
        self._judge_order(at, runs, wrong)
        self._judge_threads(at, {p.tensor for scope in scopes for p in scope.promotions}, wrong)
        self._judge_buffers(at, scopes, wrong)
        return wrong

    def _judge_order(self, at: dict[Instance, Visit], runs: dict, wrong: set[str]) -> None:  # type: ignore[type-arg]
        uniform: dict[tuple[object, ...], bool] = {}

        def folds(statement: str, place: int, where: int, prefix: Point, member: Member) -> bool:
            """Whether all instances of a statement in one run of a vector loop combine into one element."""
            key = (statement, where, prefix)
            if key not in uniform:
                s = self.statements[statement]
                mine = [
                    i
                    for i, v in at.items()
                    if i[0] == statement
                    and any(w == where and p == place for p, w, _ in v.vectors)
                    and v.times[:place] == prefix
                ]
                elements = {tuple(value(e, self.at(i)) for e in s.subscripts) for i in mine}
                inside = indices_of(member.time(statement))
                formal = all(coefficients(e) is not None and not indices_of(e) & inside for e in s.subscripts)
                uniform[key] = len(elements) == 1 and formal
            return uniform[key]

        for first, second, _, combine in self.clashes:
            a, b = at[first], at[second]
            shared = [
                (p, w, m)
                for (p, w, m), (q, x, _) in zip(a.vectors, b.vectors, strict=False)
                if (p, w) == (q, x) and a.times[:p] == b.times[:p] and a.times[p] != b.times[p]
            ]
            if not combine and a.times >= b.times:
                wrong.add("order")
            for place, where, member in shared:
                if not (combine and folds(first[0], place, where, a.times[:place], member)):
                    wrong.add("lanes")

    def _judge_threads(self, at: dict[Instance, Visit], promoted: set[str], wrong: set[str]) -> None:
        """No two instances that clash run on different threads, unless each thread has a buffer of its own."""
        for first, second, tensor, _ in self.clashes:
            a, b = at[first], at[second]
            for (place, where, entered), (other, there, _) in zip(a.parallels, b.parallels, strict=False):
                together = (place, where) == (other, there) and a.times[:place] == b.times[:place]
                private = tensor in promoted and tensor not in entered
                if together and a.times[place] != b.times[place] and not private:
                    wrong.add("threads")

    def _judge_buffers(self, at: dict[Instance, Visit], scopes: list[Scope], wrong: set[str]) -> None:
        promoted = {p.tensor for scope in scopes for p in scope.promotions}
        for tensor in promoted:
            found = self.program.tensor(tensor)
            moduli = [p.modulo for scope in scopes for p in scope.promotions if p.tensor == tensor]
            if (
                found.role is not Role.TEMPORARY
                or tensor in self.spread
                or any(len(m) != len(found.shape) or any(n < 1 for n in m) for m in moduli)
            ):
                wrong.add("structure")
                continue
            places: dict[tuple[object, Point], dict[Point, list[tuple[Visit, bool]]]] = defaultdict(dict)
            written: dict[Point, list[tuple[tuple[int, ...], Instance]]] = defaultdict(list)
            for instance, touches in self.touches[tensor].items():
                if touches and tensor not in at[instance].runs:
                    wrong.add("structure")
                    return
                for t in touches:
                    run, promotion = at[instance].runs[tensor]
                    place = tuple(c % m for c, m in zip(t.element, promotion.modulo, strict=True))
                    places[run, place].setdefault(t.element, []).append((at[instance], t.write))
                    if t.write:
                        written[t.element].append((self.order[instance], instance))
            if any(_is_crowded(tensor, elements) for elements in places.values() if len(elements) > 1):
                wrong.add("place")
            for instance, touches in self.touches[tensor].items():
                for t in touches:
                    if t.write and not t.update:
                        continue
                    before = [w for w in written[t.element] if w[0] < self.order[instance]]
                    if before and at[max(before)[1]].runs[tensor][0] != at[instance].runs[tensor][0]:
                        wrong.add("flow")


def _is_crowded(tensor: str, elements: dict[Point, list[tuple[Visit, bool]]]) -> bool:
    """Return whether some element at a place is not done with when another one is written there."""

    def before(a: Visit, b: Visit) -> bool:
        """Whether a runs before b: lanes run together, and so do threads that share the buffer."""
        together = [
            p
            for (p, w, entered), (_, x, _) in zip(a.parallels, b.parallels, strict=False)
            if w == x and tensor in entered
        ]
        together += [p for (p, w, _), (_, x, _) in zip(a.vectors, b.vectors, strict=False) if w == x]
        for place, (x, y) in enumerate(zip(a.times, b.times, strict=False)):
            if x != y:
                return place not in together and x < y
        return False

    def done(first: list[tuple[Visit, bool]], second: list[tuple[Visit, bool]]) -> bool:
        return all(before(a, b) for a, _ in first for b, write in second if write)

    return any(not done(x, y) and not done(y, x) for x, y in itertools.combinations(elements.values(), 2))


def _is_well_nested(tree: Tree, around: frozenset[MemberKind] = frozenset()) -> bool:
    """Return whether no vector loop stands in a vector loop, and no parallel one in a vector or parallel loop."""
    match tree:
        case Band(members=members, child=child):
            for m in members:
                if m.kind in (MemberKind.VECTOR, MemberKind.PARALLEL):
                    if around & {MemberKind.VECTOR, m.kind}:
                        return False
                    around |= {m.kind}
            return _is_well_nested(child, around)
        case Sequence(children=children):
            return all(_is_well_nested(f.child, around) for f in children)
        case Scope(child=child):
            return _is_well_nested(child, around)
        case _:
            return True
