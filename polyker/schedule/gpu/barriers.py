"""Place barriers: the fewest points at which the threads of a block meet, such that all dependences are kept.

Two branches of a launch conflict where different threads of one block touch a place in memory, one of them to write it, and the
one comes before the other: in a sequence, or in an earlier iteration of a loop (a buffer that is filled anew is a place, too).
Each conflict needs a barrier at one of the points that a block passes between the two. Of all sets of points that have one
for each conflict the cheapest is taken: a barrier inside a loop runs as often as the loop.

Where all threads in conflict are of one warp its own barrier does. So those of the block are chosen first, for what crosses
warps; then barriers of warps for what has none yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import combinations
from typing import TypeAlias

from polyker.ir.expr import Expr, IndexExpr
from polyker.ir.quasi_affine import indices_of, is_quasi_affine, lit, mod, print_affine, substitute
from polyker.ir.typed import TypedStatement
from polyker.poly.isl import read_map
from polyker.poly.scop import Scop, parameters
from polyker.schedule.gpu.waits import groups, instances_of, waits_of
from polyker.schedule.tree.block_threads import (
    Branch,
    BranchLoop,
    LaunchBranches,
    Point,
    between,
    extents_of,
    launches,
    partings,
)
from polyker.schedule.tree.nodes import (
    Band,
    Filter,
    Leaf,
    MemberKind,
    ScheduleTree,
    Sequence,
    Tree,
    rebuilt,
)
from polyker.schedule.tree.thread_folds import is_fold
from polyker.structs import replace

# Weight of a barrier in a loop, relative to one outside (experience value). Most points of which all subsets are tried (bounds
# the compile time).
LOOP_BARRIER_WEIGHT, MAX_EXHAUSTIVE_POINTS = 64, 14


def with_barriers(scop: Scop, schedule: ScheduleTree) -> ScheduleTree:
    """Return the schedule with the barriers that its launches need, and no others."""
    names = tuple(s.name for s in scop.program.statements())
    if not launches(schedule.tree, names):
        return schedule
    bare = _marked(_opened(schedule.tree, inside=False, threads=False), frozenset(), {}, frozenset(), frozenset())
    found: set[Point] = set()
    waits: dict[Point, int] = {}
    commits: set[Point] = set()
    warps: set[Point] = set()
    for launch in launches(bare, names):
        needs, weights = tuple(_conflicts(scop, launch)), _weights(launch)
        points = chosen(tuple(n for n, crosses in needs if crosses), weights)
        near = chosen(tuple(n for n, _ in needs if not n & points), weights)
        found |= points | near
        warps |= near
        closed = groups(scop, launch)
        commits |= closed
        waits |= waits_of(scop, launch, points | near, closed)
    return replace(schedule, tree=_closed(_marked(bare, found, waits, commits, warps)))


def chosen(needs: tuple[frozenset[Point], ...], weights: Mapping[Point, int]) -> frozenset[Point]:
    """Return the cheapest set of points that has one of each need; what no point meets is left to the proof to refuse."""
    asked = {n for n in needs if n}
    asked = {n for n in asked if not any(other < n for other in asked)}
    forced = frozenset(p for n in asked if len(n) == 1 for p in n)
    asked = {n for n in asked if not n & forced}
    points = sorted(frozenset().union(*asked), key=lambda p: (weights[p], p))

    def cost(choice: Iterable[Point]) -> int:
        return sum(weights[p] for p in choice)

    if len(points) <= MAX_EXHAUSTIVE_POINTS:
        fitting = (
            choice
            for count in range(len(points) + 1)
            for choice in combinations(points, count)
            if all(n & set(choice) for n in asked)
        )
        return forced | frozenset(min(fitting, key=cost))
    taken = set(forced)
    while left := [n for n in asked if not n & taken]:
        taken.add(max(points, key=lambda p: sum(p in n for n in left) / weights[p]))
    return frozenset(taken)


def _weights(launch: LaunchBranches) -> dict[Point, int]:
    """Return what a barrier at each point costs."""
    found: dict[Point, int] = {}
    for branch in launch.branches:
        loops = 0
        for step in branch.steps:
            if isinstance(step, BranchLoop):
                loops += step.member.kind is MemberKind.SERIAL
            else:
                found |= {(step.node, n): LOOP_BARRIER_WEIGHT**loops for n in range(step.count)}
    return found


# -- conflicts -----------------------------------------------------------------------------------------------------------


def _conflicts(scop: Scop, launch: LaunchBranches) -> Iterator[tuple[frozenset[Point], bool]]:
    """Yield, for each conflict, the points at one of which a barrier has to be, and whether different warps are in it."""
    asked: set[frozenset[Point]] = set()
    near: set[frozenset[Point]] = set()
    for first in launch.branches:
        for second in launch.branches:
            for at in partings(first, second):
                points = between(first, second, at)
                if points in asked:
                    continue
                for places, threads in _shared_places(scop, first, second):
                    if not _meet(scop, first, second, at, places, threads):
                        continue
                    (i, j, k), (u, v, w) = zip(*threads, strict=True)
                    one, other = launch.warp((i, j, k)), launch.warp((u, v, w))
                    if one is None or other is None or _meet(scop, first, second, at, places, [(one, other)]):
                        asked.add(points)
                        yield points, True
                        break
                    if points not in near:
                        near.add(points)
                        yield points, False


def _uses(statement: TypedStatement) -> Iterator[tuple[str, tuple[Expr, ...], bool]]:
    """Yield the tensors that a statement uses, the subscripts, and whether it writes there."""
    yield statement.target, statement.subscripts, True
    for read in statement.reads():
        moved = read.pad is not None and read.pad.mode != "constant"
        yield read.tensor, () if moved else read.subscripts, False


Pairs: TypeAlias = list[tuple[Expr, Expr]]


def _shared_places(scop: Scop, first: Branch, second: Branch) -> Iterator[tuple[Pairs, Pairs]]:
    """Yield, for each two uses of a tensor that may conflict, the expressions that are equal where the place is one, and the
    numbers of the threads that use it."""
    one, other = scop.statement(first.statement), scop.statement(second.statement)
    for tensor, here, writes in _uses(one):
        for same, there, also in _uses(other):
            if tensor != same or not (writes or also):
                continue
            held, kept = first.buffer(tensor), second.buffer(tensor)
            if held is not None and held[1] and kept is not None and kept[1]:
                continue  # each thread has its own
            pairs = list(zip(here, there, strict=False))
            if held is not None and held == kept:
                modulo = held[0].modulo
                pairs = [(mod(a, m), mod(b, m)) for (a, b), m in zip(pairs, modulo, strict=False)]
            threads = zip(_threads(one, first, writes=writes), _threads(other, second, writes=also), strict=True)
            yield [(a, b) for a, b in pairs if is_quasi_affine(a) and is_quasi_affine(b)], list(threads)


def _threads(statement: TypedStatement, branch: Branch, *, writes: bool) -> tuple[Expr, ...]:
    """Return the numbers of the thread that runs an instance, or writes what several combine."""
    members = (s.member for s in branch.steps if isinstance(s, BranchLoop))
    x, y, z = branch.thread()
    return (lit(0) if writes and any(is_fold(statement, m) for m in members) else x), y, z


def _meet(scop: Scop, first: Branch, second: Branch, at: int, places: Pairs, threads: Pairs) -> bool:
    """Whether different threads of one block come to one place, the instance of the first branch before that of the second."""
    primed = {i: IndexExpr(f"{i}_") for i in scop.statement(second.statement).iterators}

    def pair(a: Expr, sign: str, b: Expr) -> str:
        return f"{print_affine(a)} {sign} {print_affine(substitute(b, primed))}"

    texts = [pair(a, "=", b) for a, b in places]
    for n, (a, b) in enumerate(zip(first.steps[: at + 1], second.steps[: at + 1], strict=True)):
        if (
            isinstance(a, BranchLoop)
            and isinstance(b, BranchLoop)
            and not (a.time == b.time and not indices_of(a.time))
        ):
            texts.append(pair(a.time, "<" if n == at else "=", b.time))
    distinct = [pair(a, "!=", b) for a, b in threads if a != b or indices_of(a)]
    if not distinct:
        return False
    texts.append(f"({' or '.join(distinct)})")
    source = f"{first.statement}[{', '.join(scop.statement(first.statement).iterators)}]"
    sink = f"{second.statement}[{', '.join(f'{i}_' for i in scop.statement(second.statement).iterators)}]"
    found = read_map(f"{parameters(scop.program)}{{ {source} -> {sink} : {' and '.join(texts)} }}")
    found = found.intersect_domain(instances_of(scop, first)).intersect_range(instances_of(scop, second))
    return not found.is_empty()


# -- the tree --------------------------------------------------------------------------------------------------------------


def _opened(tree: Tree, *, inside: bool, threads: bool) -> Tree:
    """Return the tree with a sequence, of one child where there was none, in each loop that threads of a block walk together."""
    match tree:
        case Band(members=(first, *rest), child=child):
            if first.kind is MemberKind.BLOCK and not inside and extents_of(tree) is None:
                return tree
            inside = inside or first.kind is MemberKind.BLOCK
            threads = threads or first.kind is MemberKind.THREAD
            below = _opened(Band(tuple(rest), child) if rest else child, inside=inside, threads=threads)
            single = (
                inside
                and not threads
                and first.kind is not MemberKind.BLOCK
                and not isinstance(below, (Sequence, Leaf))
            )
            if single:
                below = Sequence((Filter(tuple(s for s, _ in first.times), below),))
            return Band((first,), below)
        case _:
            return rebuilt(tree, lambda child: _opened(child, inside=inside, threads=threads))


def _closed(tree: Tree) -> Tree:
    """Return the tree without sequences of one child that nothing stands around, and with bands as long as they can be."""
    match tree:
        case Band(members=members, child=child):
            below = _closed(child)
            return Band((*members, *below.members), below.child) if isinstance(below, Band) else Band(members, below)
        case Sequence(children=(only,)) if only.is_plain() and not only.conditions:
            return _closed(only.child)
        case _:
            return rebuilt(tree, _closed)


def _marked(tree: Tree, points: Set[Point], waits: Mapping[Point, int], commits: Set[Point], warps: Set[Point]) -> Tree:
    """Return the tree with barriers, waits and ends of groups at points and nowhere else; loops and sequences are numbered as
    `launches` does."""
    nodes = 0

    def visit(node: Tree) -> Tree:
        nonlocal nodes
        match node:
            case Band(members=members, child=child):
                nodes += len(members)
                return replace(node, child=visit(child))
            case Sequence(children=children):
                nodes += 1
                here = nodes
                places = (((here, n), f) for n, f in enumerate(children))
                marked = (
                    replace(
                        f,
                        child=visit(f.child),
                        barrier=p in points,
                        wait=waits.get(p),
                        commit=p in commits,
                        warps=p in warps,
                    )
                    for p, f in places
                )
                return Sequence(tuple(marked))
            case _:
                return rebuilt(node, visit)

    return visit(tree)
