"""Prove that barriers order all dependences between the threads of one block.

It shares nothing with what places barriers (polyker.schedule.gpu.barriers) but the form of the tree. For each two accesses to one
place, one of them a write, and each loop or sequence that puts them in order, it asks isl for a pair of instances that different
threads of one block run, unless the block is sure to pass a barrier between. A place is an element of memory, or of a buffer
that the threads share and that every run of its scope fills anew. What a thread has for itself nobody else may use.
"""

from __future__ import annotations

from functools import partial, reduce

import islpy as isl

from polyker.errors import LegalityError, failure, register
from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import lit, print_affine
from polyker.poly.isl import read_set
from polyker.poly.scop import Scop, ScopAccess, parameters
from polyker.schedule.legality.branches import accesses_of, at_one_place, compared, instances_of, tuple_of
from polyker.schedule.legality.buffers import UNFIT
from polyker.schedule.legality.text import KINDS, instance, instances_and_element, label
from polyker.schedule.legality.waits import check_waits
from polyker.schedule.tree.block_threads import Branch, BranchLoop, LaunchBranches, between, launches, partings
from polyker.schedule.tree.nodes import Band, MemberKind, Scope, Sequence, Tree
from polyker.schedule.tree.thread_folds import is_fold

NO_BARRIER = register(
    "PK509",
    LegalityError,
    "threads of one block run {source} and {sink} with no barrier between, and a {kind} dependence through {tensor} orders them: "
    "both use {element}",
    "map the loops around both to threads, or give each statement a launch of its own",
)
NO_THREAD = register(
    "PK511",
    LegalityError,
    "no thread of its block runs {instance}: its number along {axis} is not in 0:{extent}",
    "map a loop to threads whose times count from 0, such as the points of a tile",
)
LONE_BARRIER = register(
    "PK512",
    LegalityError,
    "a barrier before {statement} stands where not all threads of a block come",
    "the threads of a block meet between blocks and threads, not inside a loop that is distributed over threads",
)


def check_threads(scop: Scop, tree: Tree) -> set[str]:
    """Return the tensors of which each thread has a part of its own: no value may leave it.

    Raises LegalityError where threads of one block depend on each other with no barrier between.
    """
    private: set[str] = set()
    names = tuple(s.name for s in scop.program.statements())
    _check_places(tree, scop, met=False)
    for launch in launches(tree, names):
        check = _LaunchCheck(scop, launch)
        homes: dict[tuple[str, str], tuple[Expr, ...]] = {}
        for branch in launch.branches:
            check.numbers(branch)
            own = {p.tensor for p, mine in branch.buffers if mine}
            private |= own
            for tensor in own:
                # The proof of the buffers knows one thread for an instance, whichever way it goes.
                if homes.setdefault((tensor, branch.statement), branch.thread()) != branch.thread():
                    reason = f"different parts of {branch.statement} run in different threads"
                    raise failure(UNFIT, tensor=label(scop, tensor), reason=reason)
        for first in launch.branches:
            for second in launch.branches:
                check.pair(first, second)
        check_waits(scop, launch)
    return private


def _check_places(tree: Tree, scop: Scop, *, met: bool) -> None:
    """Raise LegalityError for a barrier, or a buffer that threads share, outside a launch or inside a loop over threads.

    `met`: all threads of a block come here.
    """
    match tree:
        case Band(members=members, child=child):
            for m in members:
                met = (met or m.kind is MemberKind.BLOCK) and m.kind is not MemberKind.THREAD
            _check_places(child, scop, met=met)
        case Sequence(children=children):
            for f in children:
                if not (f.is_plain() or met):
                    raise failure(LONE_BARRIER, statement=", ".join(f.statements))
                _check_places(f.child, scop, met=met)
        case Scope(promotions=promotions, child=child):
            shared = [p.tensor for p in promotions if p.shared]
            if shared and not met:
                raise failure(
                    UNFIT, tensor=label(scop, shared[0]), reason="not all threads of a block come to its scope"
                )
            if 0 < len(shared) < len(promotions):
                raise failure(
                    UNFIT, tensor=label(scop, shared[0]), reason="a scope with it has buffers of single threads"
                )
            alone = [p.tensor for p in promotions if p.later and not p.shared]
            if alone:
                raise failure(UNFIT, tensor=label(scop, alone[0]), reason="copies arrive later in shared memory alone")
            _check_places(child, scop, met=met)
        case _:
            return


class _LaunchCheck:
    """The instances of one launch."""

    def __init__(self, scop: Scop, launch: LaunchBranches) -> None:
        self.scop, self.launch = scop, launch
        self.head = parameters(scop.program)

    def numbers(self, branch: Branch) -> None:
        """Each instance has a thread."""
        domain, source = instances_of(self.scop, branch), tuple_of(self.scop, branch)
        for axis, time, extent in zip("xyz", branch.thread(), self.launch.extents, strict=True):
            inside = read_set(f"{self.head}{{ {source} : 0 <= {print_affine(time)} < {extent} }}")
            lost = domain.subtract(inside)
            if not lost.is_empty():
                raise failure(NO_THREAD, instance=instance(self.scop, lost), axis=axis, extent=extent)

    def pair(self, first: Branch, second: Branch) -> None:
        """Instances of the first that come before some of the second in a block."""
        ways = {
            n: points
            for n in partings(first, second)
            if not (points := between(first, second, n)) & self.launch.barriers
        }
        if not ways:
            return
        for a in accesses_of(self.scop, first):
            for b in accesses_of(self.scop, second):
                if a.tensor == b.tensor and (a.is_write or b.is_write):
                    together = self._together(first, second, a, b)
                    if together is not None:
                        for n, points in ways.items():
                            pairs = (
                                self._across(first, second, a, b, together) if points & self.launch.warps else together
                            )
                            self._check(first, second, n, a, b, pairs)

    def _check(self, first: Branch, second: Branch, at: int, a: ScopAccess, b: ScopAccess, together: isl.Map) -> None:
        pairs = together
        for n in range(first.outside, at + 1):
            one, other = first.steps[n], second.steps[n]
            if isinstance(one, BranchLoop) and isinstance(other, BranchLoop):
                pairs = pairs.intersect(
                    compared(self.scop, first, second, one.time, "<" if n == at else "=", other.time)
                )
        if not pairs.is_empty():
            source, sink, element = instances_and_element(self.scop, pairs, a.tensor)
            kind = KINDS[{(True, False): "raw", (False, True): "war", (True, True): "waw"}[a.is_write, b.is_write]]
            raise failure(
                NO_BARRIER, kind=kind, tensor=label(self.scop, a.tensor), source=source, sink=sink, element=element
            )

    def _together(self, first: Branch, second: Branch, a: ScopAccess, b: ScopAccess) -> isl.Map | None:
        """Return {first -> second} of the instances of one block, run by different threads, that come to one place."""
        held, kept = first.buffer(a.tensor), second.buffer(a.tensor)
        if held is not None and kept is not None and held[1] and kept[1]:
            return None
        found = at_one_place(self.scop, first, second, a, b, held[0] if held is not None and held == kept else None)
        ids = zip(self._thread(first, a), self._thread(second, b), strict=True)
        compare = partial(compared, self.scop, first, second)
        distinct = reduce(isl.Map.union, (compare(one, "!=", other) for one, other in ids))
        found = found.intersect(distinct)
        return None if found.is_empty() else found

    def _across(self, first: Branch, second: Branch, a: ScopAccess, b: ScopAccess, pairs: isl.Map) -> isl.Map:
        """Return the pairs that a barrier of each warp does not order: those of different warps."""
        one, other = self.launch.warp(self._thread(first, a)), self.launch.warp(self._thread(second, b))
        return (
            pairs
            if one is None or other is None
            else pairs.intersect(compared(self.scop, first, second, one, "!=", other))
        )

    def _thread(self, branch: Branch, access: ScopAccess) -> tuple[Expr, Expr, Expr]:
        """Return the numbers of the thread that makes an access: the first of those that combine values into an element."""
        x, y, z = branch.thread()
        members = [s.member for s in branch.steps if isinstance(s, BranchLoop)]
        folds = access.is_write and any(is_fold(self.scop.statement(branch.statement), m) for m in members)
        return (lit(0) if folds else x), y, z
