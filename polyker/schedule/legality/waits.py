"""Prove that waits cover every asynchronous copy before its elements are used.

It shares nothing with what places waits (polyker.schedule.gpu.waits) but the form of the tree. A wait for all but the last n
groups covers a copy whose group at least n others are sure to have been closed after: those whose places a block comes by on its
way from the copy to the wait, and in each iteration between, if the block comes to their sequence then. What another thread than
the copy's uses has a barrier after the wait; one of its warp, where both are in that. Every copy has to be waited for: nothing
arrives when a buffer is another's. What is copied is read until then: what overwrites it comes after a wait, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import islpy as isl

from polyker.errors import LegalityError, failure, register
from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import print_affine
from polyker.poly.isl import read_map
from polyker.poly.scop import Scop, ScopAccess, parameters
from polyker.schedule.legality.branches import accesses_of, at_one_place, compared, instances_of, primed, tuple_of
from polyker.schedule.legality.text import instance, instances_and_element, label
from polyker.schedule.tree.block_threads import (
    Branch,
    BranchLoop,
    LaunchBranches,
    Passed,
    SequenceChild,
    partings,
    passed,
)

NO_WAIT = register(
    "PK514",
    LegalityError,
    "{source} copies {element} of {tensor}, which arrives later, and no wait lets it arrive before {sink} uses the place",
    "the wait before the barrier has to leave fewer groups of copies on their way",
)
OVERWRITTEN = register(
    "PK519",
    LegalityError,
    "{source} copies {element} of {tensor}, which is read later, and no wait ends the copy before {sink} overwrites the element",
    "a wait has to stand between, and a barrier after it where another thread overwrites",
)
NEVER = register(
    "PK515",
    LegalityError,
    "{instance} copies to {tensor} what arrives later, and nothing waits for it",
    "what nobody uses need not be copied",
)


def check_waits(scop: Scop, launch: LaunchBranches) -> None:
    """Raise LegalityError unless waits cover all copies of a launch that arrive later."""
    for first in launch.branches:
        for a in accesses_of(scop, first):
            if a.is_write and first.arrives_later(a.tensor):
                check = _Copies(scop, launch, first, a)
                sources = [r for r in accesses_of(scop, first) if not r.is_write]
                for second in launch.branches:
                    for b in accesses_of(scop, second):
                        if b.tensor == a.tensor:
                            check.uses(second, b)
                        elif b.is_write:
                            check.overwrites(second, b, [r for r in sources if r.tensor == b.tensor])
                if not check.left.is_empty():
                    raise failure(NEVER, instance=instance(scop, check.left), tensor=label(scop, a.tensor))


class _Copies:
    """The copies of a branch; `left`: those that no use is known to wait for."""

    def __init__(self, scop: Scop, launch: LaunchBranches, first: Branch, access: ScopAccess) -> None:
        self.scop, self.launch, self.first, self.access = scop, launch, first, access
        self.head = parameters(scop.program)
        self.left = instances_of(self.scop, first)

    def uses(self, second: Branch, b: ScopAccess) -> None:
        """Check what uses the place of a copy after it."""
        for at, pairs in self.after(second, self.together(second, self.access, b)):
            self.check(second, at, pairs, NO_WAIT, self.access.tensor)
            self.left = self.left.subtract(pairs.domain())

    def overwrites(self, second: Branch, b: ScopAccess, sources: list[ScopAccess]) -> None:
        """Check what writes an element after a copy that reads it."""
        for source in sources:
            for at, pairs in self.after(second, self.together(second, source, b)):
                self.check(second, at, pairs, OVERWRITTEN, b.tensor)

    def after(self, second: Branch, together: isl.Map) -> Iterator[tuple[int, isl.Map]]:
        """Yield the pairs of which the second comes later, with the step at which their ways part."""
        if together.is_empty():
            return
        for at in partings(self.first, second):
            pairs = together
            for n in range(self.first.outside, at + 1):
                one, other = self.first.steps[n], second.steps[n]
                if isinstance(one, BranchLoop) and isinstance(other, BranchLoop):
                    pairs = pairs.intersect(self.compared(second, one.time, "<" if n == at else "=", other.time))
            if not pairs.is_empty():
                yield at, pairs

    def check(self, second: Branch, at: int, pairs: isl.Map, code: str, tensor: str) -> None:
        """Raise LegalityError unless the waits cover the pairs."""
        open_ = pairs.subtract(self.covered(second, at, pairs))
        if not open_.is_empty():
            source, sink, element = instances_and_element(self.scop, open_, tensor)
            raise failure(code, tensor=label(self.scop, tensor), source=source, sink=sink, element=element)

    def covered(self, second: Branch, at: int, pairs: isl.Map) -> isl.Map:
        """Return the pairs for which a wait, and for other threads a barrier after it, stands between."""
        found = isl.Map.empty(pairs.get_space())
        closed: list[Passed] = []  # the copy's own group first
        way = passed(self.first, second, at)
        same = reduce(
            isl.Map.intersect,
            (
                self.compared(second, one, "=", other)
                for one, other in zip(self.first.thread(), second.thread(), strict=True)
            ),
        )
        for n, place in enumerate(way):
            if place.behind:
                closed += [place] if place.point in self.launch.commits else []
                continue
            if place.point not in self.launch.waits or not closed or closed[0].later:
                continue
            missing = self.launch.waits[place.point] - (len(closed) - 1)
            fits = pairs if missing <= 0 else self.spanning(second, at, closed[0], missing) if place.later else None
            if fits is not None:
                points = {p.point for p in way[n:] if not p.behind}
                if not points & self.launch.barriers:
                    one, other = self.launch.warp(self.first.thread()), self.launch.warp(second.thread())
                    near = bool(points & self.launch.warps)
                    fits = fits.intersect(self.compared(second, one, "=", other) if one and other and near else same)
                found = found.union(pairs.intersect(fits))
        return found

    def spanning(self, second: Branch, at: int, own: Passed, count: int) -> isl.Map | None:
        """Return the pairs between which the loop in which they part has `count` whole iterations that close a group each."""
        steps = self.first.steps
        place = next(n for n, s in enumerate(steps) if isinstance(s, SequenceChild) and s.node == own.point[0])
        one, other = steps[at], second.steps[at]
        if not (isinstance(one, BranchLoop) and isinstance(other, BranchLoop)) or any(
            isinstance(s, BranchLoop) for s in steps[at + 1 : place]
        ):
            return None
        times = [s.time for s in steps[: at + 1] if isinstance(s, BranchLoop)]
        # The times at which a block comes to the sequence, whichever branch brings it there.
        arrivals = reduce(
            isl.Set.union,
            (
                instances_of(self.scop, b).apply(
                    self.image(b, [s.time for s in b.steps[: at + 1] if isinstance(s, BranchLoop)])
                )
                for b in self.launch.branches
                if any(isinstance(s, SequenceChild) and s.node == own.point[0] for s in b.steps)
            ),
        )
        whole = instances_of(self.scop, self.first)
        for n in range(1, count + 1):
            texts = [*map(print_affine, times[:-1]), f"{print_affine(times[-1])} + {n}"]
            moved = read_map(f"{self.head}{{ {tuple_of(self.scop, self.first)} -> T[{', '.join(texts)}] }}")
            whole = whole.intersect(arrivals.apply(moved.reverse()))
        source, sink = tuple_of(self.scop, self.first), tuple_of(self.scop, second, "_")
        late = primed(self.scop, second, other.time)
        later = read_map(f"{self.head}{{ {source} -> {sink} : {print_affine(one.time)} + {count} < {late} }}")
        return later.intersect_domain(whole)

    def together(self, second: Branch, a: ScopAccess, b: ScopAccess) -> isl.Map:
        """Return {copy -> other} of the instances of one block that come to one place by these accesses."""
        held = self.first.buffer(a.tensor)
        return at_one_place(self.scop, self.first, second, a, b, None if held is None else held[0])

    def image(self, branch: Branch, times: list[Expr]) -> isl.Map:
        return read_map(f"{self.head}{{ {tuple_of(self.scop, branch)} -> T[{', '.join(map(print_affine, times))}] }}")

    def compared(self, second: Branch, one: Expr, sign: str, other: Expr) -> isl.Map:
        return compared(self.scop, self.first, second, one, sign, other)
