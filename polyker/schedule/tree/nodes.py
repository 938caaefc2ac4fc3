"""Schedule trees as immutable data, printed and compared by value; isl sees them only at the edges.

A tree orders the instances of the statements of a typed program. From the root down:

- `Band`: loops, outermost first. Each member gives every statement below it one quasi-affine function of its iterators; the
  instances run in the order of the functions' values.
- `Sequence`: children one after another; each is a `Filter` that names the statements (and, with a condition, the instances)
  it holds. In a block of a GPU its threads may meet before a child.
- `Leaf`: nothing more to order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from math import prod
from operator import attrgetter
from typing import ClassVar, TypeAlias

from msgspec import Struct

from polyker.ir.decision import Decision
from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import print_affine
from polyker.structs import PartlyCompared, replace


class MemberKind(Enum):
    """How a band member's iterations are carried out: one after another, the code repeated, as the lanes of a vector; TRANSPOSE:
    repeated around a vector loop, and what they read by columns is read by rows and transposed in registers; STREAM: neighbouring
    elements by vectors, which are written by streaming stores; SCAN: elements that are each the one before combined with a term,
    by vectors, the terms grouped in any way; PARALLEL: on several threads, in any order; BLOCK and THREAD: by the blocks of a
    GPU, and by the threads of a block, along the member's axis. The outermost BLOCK member is a launch."""

    SERIAL = "for"
    UNROLL = "unroll"
    VECTOR = "vector"
    TRANSPOSE = "transpose"
    STREAM = "stream"
    SCAN = "scan"
    PARALLEL = "parallel"
    BLOCK = "block"
    THREAD = "thread"


# Loops whose iterations run at the same time and do not depend on each other.
AT_ONCE = (MemberKind.PARALLEL, MemberKind.BLOCK, MemberKind.THREAD)


class Member(Struct, frozen=True):
    """One loop of a band: `times` maps statement -> its time; `label` is the loop's name for people.

    An UNROLL, VECTOR or TRANSPOSE member takes at most `extent` consecutive values, for any values of the members around it.
    `extent` is 0 where it is not bounded by a constant. In a STREAM or SCAN member about `extent` iterations are taken together;
    of a PARALLEL one it is the number of threads. A THREAD member takes at most `extent` consecutive values, a BLOCK one any
    number; `axis` is x, y or z for both.
    """

    times: tuple[tuple[str, Expr], ...]
    label: str
    kind: MemberKind = MemberKind.SERIAL
    extent: int = 0
    axis: str = ""

    def time(self, statement: str) -> Expr:
        """Return the time of a statement's instance at this loop."""
        return next(e for s, e in self.times if s == statement)

    @property
    def role(self) -> str:
        """How the loop is carried out, in words: `vector(8)`, `thread.x(32)`."""
        axis = f".{self.axis}" if self.axis else ""
        return f"{self.kind.value}{axis}" + (f"({self.extent})" if self.extent else "")


class Band(Struct, frozen=True):
    """Loops with nothing between them."""

    members: tuple[Member, ...]
    child: Tree


class Filter(Struct, frozen=True):
    """The statements of one child of a sequence; `conditions` (statement, isl text of a set of its instances) restrict some
    of them to a part of their domains. Children that hold parts of one statement hold disjoint parts.

    `barrier`: all threads of the block meet here before any of them goes on, each time the block comes to the sequence; `warps`:
    only those of each warp do. `commit`: after the child each thread closes a group of copies that arrive later. `wait`: before
    it, and before the barrier, each thread waits for all but so many of the groups that it closed last; None: for none.
    """

    statements: tuple[str, ...]
    child: Tree
    conditions: tuple[tuple[str, str], ...] = ()
    barrier: bool = False
    wait: int | None = None
    commit: bool = False
    warps: bool = False

    def is_plain(self) -> bool:
        """Whether nothing is done around the child."""
        return not self.barrier and self.wait is None and not self.commit


class Sequence(Struct, frozen=True):
    """Children that run one after another."""

    children: tuple[Filter, ...]


# Most bytes of one buffer on the stack of the thread that calls (chosen); a larger one lies in memory that the call brings.
MAX_STACK_BUFFER_BYTES = 1 << 15


class Promotion(Struct, frozen=True):
    """A temporary whose storage is a small buffer: element c lies at c mod `modulo`, dimension by dimension.

    `layout`: the buffer's own dimensions, outermost first, as (dimension of the tensor, divisor, extent): element c has
    there the coordinate floor(c / divisor) mod extent. So `((0, 48, 10), (1, 1, 256), (0, 1, 48))` lays a tensor of
    modulo (480, 256) out in ten panels, each of 256 rows of 48. Empty: the tensor's dimensions in their order.
    `pad`: elements of no use after each row of the last of these dimensions, so that neighbours in a column lie in other banks.
    `swizzle`: so many chunks of 16 bytes of each row change places instead (polyker.schedule.tree.swizzle); 0: none do.
    `scratch`: it lies in memory that the call brings, also where the stack has room for it. `shared`: in the memory that the
    threads of a GPU's block share; else each thread has a buffer of its own there. `later`: copies into it arrive at a wait of
    the thread that makes them (see Filter), no sooner.
    """

    tensor: str
    modulo: tuple[int, ...]
    layout: tuple[tuple[int, int, int], ...] = ()
    scratch: bool = False
    shared: bool = False
    pad: int = 0
    swizzle: int = 0
    later: bool = False

    def on_stack(self, itemsize: int) -> bool:
        """Whether the buffer lies on the stack; elements have `itemsize` bytes."""
        return not (self.scratch or self.shared) and self.elements() * itemsize <= MAX_STACK_BUFFER_BYTES

    def pieces(self) -> tuple[tuple[int, int, int], ...]:
        """Return the buffer's dimensions as (dimension of the tensor, divisor, extent)."""
        return self.layout or tuple((d, 1, m) for d, m in enumerate(self.modulo))

    def elements(self) -> int:
        """Return the number of elements of the buffer."""
        return prod(self.shape())

    @property
    def row(self) -> int:
        """The elements of a row, without what pads it."""
        return self.pieces()[-1][2] if self.modulo else 1

    def shape(self) -> tuple[int, ...]:
        """Return the extents of the buffer's own dimensions."""
        return (*(extent for _, _, extent in self.pieces()[:-1]), self.row + self.pad) if self.modulo else ()

    def is_sound(self) -> bool:
        """Whether the pieces of each dimension together tell apart exactly the elements within its modulo."""
        reach = [1] * len(self.modulo)
        for dimension, divisor, extent in sorted(self.pieces(), key=lambda p: p[1]):
            if not 0 <= dimension < len(reach) or extent < 1 or divisor != reach[dimension]:
                return False
            reach[dimension] *= extent
        return tuple(reach) == self.modulo


class Scope(Struct, frozen=True):
    """Each time the tree comes here it has fresh buffers for the promoted temporaries; they end with it."""

    promotions: tuple[Promotion, ...]
    child: Tree


class Leaf(Struct, frozen=True):
    """The end of a branch."""


Tree: TypeAlias = Band | Sequence | Scope | Leaf


class ScheduleTree(PartlyCompared, frozen=True):
    """A tree, and the reasons for it in words for `explain`."""

    UNCOMPARED: ClassVar = frozenset({"notes"})

    tree: Tree
    notes: tuple[Decision, ...] = ()

    def __str__(self) -> str:
        return "\n".join(print_tree(self.tree))


def statements_of(tree: Tree) -> tuple[str, ...]:
    """Return the statements that a tree orders, () for a leaf that does not say."""
    match tree:
        case Band(members=members):
            return tuple(s for s, _ in members[0].times)
        case Sequence(children=children):
            seen: dict[str, None] = {}
            for child in children:
                seen.update(dict.fromkeys(child.statements))
            return tuple(seen)
        case Scope(child=child):
            return statements_of(child)
        case Leaf():
            return ()


def children_of(tree: Tree) -> tuple[Tree, ...]:
    """Return the trees directly below a node."""
    match tree:
        case Band(child=child) | Scope(child=child):
            return (child,)
        case Sequence(children=children):
            return tuple(f.child for f in children)
        case Leaf():
            return ()


def rebuilt(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """Return a node with the trees directly below it changed."""
    match tree:
        case Band(child=child) | Scope(child=child):
            return replace(tree, child=change(child))
        case Sequence(children=children):
            return Sequence(tuple(replace(f, child=change(f.child)) for f in children))
        case Leaf():
            return tree


def nodes_of(tree: Tree) -> Iterator[Tree]:
    """Yield every node of the tree, outermost first."""
    yield tree
    for child in children_of(tree):
        yield from nodes_of(child)


def loops(tree: Tree) -> Iterator[Member]:
    """Yield every loop of the tree, outermost first."""
    return (m for node in nodes_of(tree) if isinstance(node, Band) for m in node.members)


def scopes(tree: Tree) -> Iterator[Scope]:
    """Yield every scope of the tree, outermost first."""
    return (node for node in nodes_of(tree) if isinstance(node, Scope))


def promoted_tensors(tree: Tree) -> frozenset[str]:
    """Return the temporaries that have a buffer somewhere in the tree."""
    return frozenset(p.tensor for s in scopes(tree) for p in s.promotions)


def paths(tree: Tree, statement: str) -> Iterator[tuple[Member, ...]]:
    """Yield the loops of a statement on each way from the root to a leaf."""
    match tree:
        case Band(members=members, child=child):
            if any(s == statement for s, _ in members[0].times):
                for rest in paths(child, statement):
                    yield (*members, *rest)
        case Sequence(children=children):
            for f in children:
                if statement in f.statements:
                    yield from paths(f.child, statement)
        case Scope(child=child):
            yield from paths(child, statement)
        case Leaf():
            yield ()


def _print_promotion(promotion: Promotion, tensor: str) -> str:
    how = ("shared " if promotion.shared else "") + ("later " if promotion.later else "")
    text = f"{tensor} in {how}{list(promotion.modulo)}"
    if promotion.layout:
        dims = (f"d{d}" + (f"/{by}" if by > 1 else "") + f" mod {n}" for d, by, n in promotion.layout)
        text += f" laid out as [{', '.join(dims)}]"
    return text + (f" swizzled by {promotion.swizzle}" if promotion.swizzle else "")


def print_tree(
    tree: Tree, depth: int = 0, said: Callable[[str], str] = str, loop: Callable[[Member], str] = attrgetter("label")
) -> Iterator[str]:
    """Yield the lines of a tree's text.

    `said` puts other names in place of generated ones in a name, a time or a condition; `loop` gives the name of a loop.
    """
    pad = "  " * depth
    match tree:
        case Band(members=members, child=child):
            for member in members:
                times = ", ".join(f"{said(s)}: {said(print_affine(e))}" for s, e in member.times)
                yield f"{'  ' * depth}{member.role} {loop(member)}  {{{times}}}"
                depth += 1
            yield from print_tree(child, depth, said, loop)
        case Sequence(children=children):
            for part in children:
                after = f"after a barrier{' of each warp' if part.warps else ''}: " if part.barrier else ""
                if part.wait is not None:
                    groups = "all copies" if part.wait == 0 else f"all but {part.wait} of the groups of copies"
                    after = f"when {groups} are there{', ' if after else ': '}" + after
                name = ", ".join(map(said, part.statements)) + (", a group of copies" if part.commit else "")
                yield f"{pad}- {after}{name}" + "".join(f" | {said(s)}: {said(c)}" for s, c in part.conditions)
                yield from print_tree(part.child, depth + 1, said, loop)
        case Scope(promotions=promotions, child=inner):
            yield pad + "with " + ", ".join(_print_promotion(p, said(p.tensor)) for p in promotions)
            yield from print_tree(inner, depth, said, loop)
        case Leaf():
            return
