"""Describe the branches of a launch, and the threads of its blocks, in a schedule tree.

A launch is what stands below an outermost BLOCK member. Where loops or sequences stand between its blocks and its THREAD
members, all of its threads walk through those together, each instance is run by the thread that its THREAD members name (0
along an axis that it has no such member of), and barriers may stand between. What is found here is the tree's form alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct, field

from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import add, floordiv, lit, scale
from polyker.schedule.tree.nodes import (
    Band,
    Member,
    MemberKind,
    Promotion,
    Scope,
    Sequence,
    Tree,
    children_of,
    loops,
)
from polyker.structs import replace

AXES = ("x", "y", "z")
# Threads that run together, in their order in the block, x fastest.
WARP = 32


class BranchLoop(Struct, frozen=True):
    """A loop that a branch is in: its number in the walk, its member, and the branch's time there."""

    node: int
    member: Member
    time: Expr


class SequenceChild(Struct, frozen=True):
    """A child of a sequence that a branch is in, one of `count`; `meets`: the threads may meet between the children."""

    node: int
    child: int
    count: int
    meets: bool


PathStep: TypeAlias = BranchLoop | SequenceChild
Point: TypeAlias = tuple[int, int]  # before a child: the sequence's number, and the child's


class Branch(Struct, frozen=True):
    """A statement on its way to one leaf of a launch.

    `steps` from the root, the first `outside` of them down to the blocks'; `conditions` (isl text) on its instances; `threads`,
    the times along x, y and z where it has any; `buffers` of promoted tensors, each with whether every thread has its own.
    """

    statement: str
    steps: tuple[PathStep, ...] = ()
    outside: int = 0
    conditions: tuple[str, ...] = ()
    threads: tuple[tuple[str, Expr], ...] = ()
    buffers: tuple[tuple[Promotion, bool], ...] = ()

    def thread(self) -> tuple[Expr, Expr, Expr]:
        """Return the numbers of the thread that runs an instance, along x, y and z."""
        x, y, z = (dict(self.threads).get(a, lit(0)) for a in AXES)
        return x, y, z

    def arrives_later(self, tensor: str) -> bool:
        """Whether what is copied into a tensor's buffer here arrives later."""
        found = self.buffer(tensor)
        return found is not None and found[0].later

    def buffer(self, tensor: str) -> tuple[Promotion, bool] | None:
        """Return the buffer that holds a tensor here, and whether each thread has its own; None where the tensor is in memory."""
        return next(((p, own) for p, own in self.buffers if p.tensor == tensor), None)


class LaunchBranches(Struct, frozen=True):
    """The branches of a launch in the order of the tree, the points at which its threads meet, and the number of its threads.

    `warps`: the points at which the threads of each warp meet, and no others.
    `waits`: the groups of copies that may be missing still after the wait at a point; `commits`: points whose child ends a group.
    """

    branches: tuple[Branch, ...]
    barriers: frozenset[Point]
    extents: tuple[int, int, int]
    waits: Mapping[Point, int] = field(default_factory=dict)
    commits: frozenset[Point] = frozenset()
    warps: frozenset[Point] = frozenset()

    def warp(self, thread: tuple[Expr, Expr, Expr]) -> Expr | None:
        """Return the number of a thread's warp; None where the last warp of a block is not full."""
        x, y, z = self.extents
        if x * y * z % WARP:
            return None
        i, j, k = thread
        return floordiv(add(i, scale(x, j), scale(x * y, k)), WARP)


def extents_of(tree: Tree) -> tuple[int, int, int] | None:
    """Return the number of threads along x, y and z of a launch whose threads walk through loops or sequences together.

    None where all its THREAD members stand directly below its blocks: each thread is alone with its instances; and where there
    is one thread. The tree begins with the launch's outermost BLOCK member.
    """
    found = {
        a: max((m.extent for m in loops(tree) if m.kind is MemberKind.THREAD and m.axis == a), default=1) for a in AXES
    }
    together = max(found.values()) > 1 and _is_together(tree, between=False)
    return (found["x"], found["y"], found["z"]) if together else None


def _is_together(tree: Tree, *, between: bool) -> bool:
    for m in tree.members if isinstance(tree, Band) else ():
        if m.kind is MemberKind.THREAD and between:
            return True
        between = between or m.kind not in (MemberKind.BLOCK, MemberKind.THREAD)
    between = between or not isinstance(tree, Band)
    return any(_is_together(child, between=between) for child in children_of(tree))


def launch_trees(tree: Tree) -> Iterator[Band]:
    """Yield what begins with each outermost BLOCK member."""
    members = tree.members if isinstance(tree, Band) else ()
    at = next((n for n, m in enumerate(members) if m.kind is MemberKind.BLOCK), None)
    if isinstance(tree, Band) and at is not None:
        yield Band(members[at:], tree.child)
    else:
        for child in children_of(tree):
            yield from launch_trees(child)


def launches(tree: Tree, statements: tuple[str, ...]) -> list[LaunchBranches]:
    """Return the launches whose threads walk through loops or sequences together; see `extents_of`."""
    walk = _BranchWalk()
    walk.visit(tree, tuple(Branch(s) for s in statements))
    return walk.found


class _BranchWalk:
    """Numbers the loops and sequences as it comes to them."""

    def __init__(self) -> None:
        self.found: list[LaunchBranches] = []
        self.nodes = 0
        self.barriers: set[Point] = set()
        self.waits: dict[Point, int] = {}
        self.commits: set[Point] = set()
        self.warps: set[Point] = set()
        self.leaves: list[Branch] = []

    def visit(self, tree: Tree, here: tuple[Branch, ...], *, inside: bool = False, threads: bool = False) -> None:
        """Walk down a tree that the branches `here` have come to; `inside` a launch, `threads`: below a THREAD member."""
        match tree:
            case Band(members=(first, *rest), child=child):
                if first.kind is MemberKind.BLOCK and not inside:
                    self.launch(tree, here)
                    return
                self.nodes += 1
                here = tuple(_through(b, BranchLoop(self.nodes, first, first.time(b.statement))) for b in here)
                below = Band(tuple(rest), child) if rest else child
                self.visit(below, here, inside=inside, threads=threads or first.kind is MemberKind.THREAD)
            case Sequence(children=children):
                self.nodes += 1
                node = self.nodes
                for n, f in enumerate(children):
                    if f.barrier:
                        (self.warps if f.warps else self.barriers).add((node, n))
                    if f.wait is not None:
                        self.waits[node, n] = f.wait
                    if f.commit:
                        self.commits.add((node, n))
                    extra = dict(f.conditions)
                    part = SequenceChild(node, n, len(children), not threads)
                    parts = (
                        replace(
                            b,
                            steps=(*b.steps, part),
                            conditions=b.conditions + ((extra[b.statement],) if b.statement in extra else ()),
                        )
                        for b in here
                        if b.statement in f.statements
                    )
                    self.visit(f.child, tuple(parts), inside=inside, threads=threads)
            case Scope(promotions=promotions, child=child):
                held = tuple((p, threads or not p.shared) for p in promotions)
                here = tuple(replace(b, buffers=(*held, *b.buffers)) for b in here)
                self.visit(child, here, inside=inside, threads=threads)
            case _:
                self.leaves += here

    def launch(self, tree: Tree, here: tuple[Branch, ...]) -> None:
        """Note a launch; its numbers are its own."""
        outer = self.barriers, self.waits, self.commits, self.warps, self.leaves
        self.barriers, self.waits, self.commits, self.warps, self.leaves = set(), {}, set(), set(), []
        self.visit(tree, here, inside=True)
        extents = extents_of(tree)
        if extents is not None:
            barriers, commits, warps = map(frozenset, (self.barriers, self.commits, self.warps))
            self.found.append(LaunchBranches(tuple(self.leaves), barriers, extents, self.waits, commits, warps))
        self.barriers, self.waits, self.commits, self.warps, self.leaves = outer


def _through(branch: Branch, loop: BranchLoop) -> Branch:
    steps = (*branch.steps, loop)
    if loop.member.kind is MemberKind.BLOCK:
        return replace(branch, steps=steps, outside=len(steps))
    if loop.member.kind is MemberKind.THREAD:
        return replace(branch, steps=steps, threads=(*branch.threads, (loop.member.axis, loop.time)))
    return replace(branch, steps=steps)


def partings(first: Branch, second: Branch) -> Iterator[int]:
    """Yield the steps at which instances of one branch may come before such of another in one block: a loop that both are in,
    at an earlier time; a sequence of which the first is in an earlier child."""
    for n, (a, b) in enumerate(zip(first.steps, second.steps, strict=False)):
        if isinstance(a, BranchLoop) and isinstance(b, BranchLoop):
            if n >= first.outside and a.member.kind is not MemberKind.THREAD:
                yield n
        elif isinstance(a, SequenceChild) and isinstance(b, SequenceChild) and a.child != b.child:
            if a.child < b.child and n >= first.outside:
                yield n
            return


def between(first: Branch, second: Branch, at: int) -> frozenset[Point]:
    """Return the points that a block is sure to pass between an instance of one branch and a later one of another.

    They part at the step `at`. What the first is in goes on with the children after its own, what the second is in begins with
    those before its own; whether any other loop runs at all is not known here.
    """
    return frozenset(p.point for p in passed(first, second, at) if not p.behind)


class Passed(Struct, frozen=True):
    """A place that a block comes by: before the child of `point`, or `behind` it; `later`: after the step at which two instances
    part, on the way to the second."""

    point: Point
    behind: bool
    later: bool


def passed(first: Branch, second: Branch, at: int) -> list[Passed]:
    """Return the places of `between`, and those behind children, in the order in which a block comes by them."""
    found: list[Passed] = []
    for step in reversed(first.steps[at + 1 :]):
        if isinstance(step, SequenceChild) and step.meets:
            found.append(Passed((step.node, step.child), behind=True, later=False))
            found += _around(step.node, range(step.child + 1, step.count), later=False)
    a, b = first.steps[at], second.steps[at]
    if isinstance(a, SequenceChild) and isinstance(b, SequenceChild) and a.meets:
        found.append(Passed((a.node, a.child), behind=True, later=False))
        found += _around(a.node, range(a.child + 1, b.child), later=False)
        found.append(Passed((a.node, b.child), behind=False, later=True))
    for step in second.steps[at + 1 :]:
        if isinstance(step, SequenceChild) and step.meets:
            found += _around(step.node, range(step.child), later=True)
            found.append(Passed((step.node, step.child), behind=False, later=True))
    return found


def _around(node: int, children: range, *, later: bool) -> Iterator[Passed]:
    for child in children:
        yield Passed((node, child), behind=False, later=later)
        yield Passed((node, child), behind=True, later=later)
