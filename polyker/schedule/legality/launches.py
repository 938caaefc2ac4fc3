"""Prove that a GPU can run each launch of a tree: its threads, its blocks, and the lifetimes of its buffers.

Blocks have nothing in common but memory: what one of them has in registers or shared memory is its own, and what stands beside a
loop over blocks would be run by all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyker.errors import LegalityError, failure, register
from polyker.ir.typed import TypedStatement
from polyker.poly.scop import Scop
from polyker.schedule.legality.buffers import UNFIT
from polyker.schedule.legality.text import label
from polyker.schedule.tree.block_threads import AXES, WARP, launch_trees
from polyker.schedule.tree.nodes import Band, Leaf, Member, MemberKind, Scope, Sequence, Tree, children_of, loops
from polyker.schedule.tree.thread_folds import is_fold
from polyker.schedule.tree.thread_scans import is_scan

BESIDE = register(
    "PK516",
    LegalityError,
    "the loop over blocks `{loop}` stands inside `{outer}` of its launch: blocks run in no order, and all of them would run what "
    "stands beside it",
    "interchange loops so that those over blocks come first, or give each statement a launch of its own",
)
THREADS = register(
    "PK517",
    LegalityError,
    "a launch has blocks of {threads} threads, and no GPU has more than 1024 of them, nor more than 64 along z",
    "cut the loops by smaller numbers first",
)
WARPS = register(
    "PK518",
    LegalityError,
    "the {extent} threads of `{loop}` combine what {statement} adds up, in blocks of {threads} threads: they have to be one warp "
    "(32) of each row of these, or all of the block and whole warps",
    "cut the iterator of the reduction by a multiple of 32, and map nothing else to thread.y and thread.z unless it is 32",
)

# Most threads of a block, and along z (CUDA C++ Programming Guide, compute capabilities).
MAX_BLOCK_THREADS, MAX_BLOCK_DEPTH = 1024, 64


BLOCKS_INSIDE = "blocks begin inside its scope, and have nothing but memory in common"
NO_SCRATCH = "memory that the call brings has no part for each thread of a GPU; hold less of it, or in shared memory"


def check_launches(scop: Scop, tree: Tree) -> None:
    """Raise LegalityError unless blocks and threads of all launches can be run as the tree has them."""
    if not any(m.axis for m in loops(tree)):
        return
    statements = {s.name: s for s in scop.program.statements()}
    _check_scopes(scop, tree, inside=False)
    for launch in launch_trees(tree):
        x, y, z = (
            max((m.extent for m in loops(launch) if m.kind is MemberKind.THREAD and m.axis == a), default=1)
            for a in AXES
        )
        threads = f"{x} x {y} x {z}"
        if x * y * z > MAX_BLOCK_THREADS or z > MAX_BLOCK_DEPTH:
            raise failure(THREADS, threads=threads)
        _check_order(launch, "")
        for name, around in _branches(launch, tuple(statements), ()):
            for m in around:
                whole = m.extent == x and x % WARP == 0 and (x == WARP or y * z == 1)
                if _combines(statements[name], m) and not whole:
                    raise failure(WARPS, loop=m.label, statement=name, extent=m.extent, threads=threads)
    for name, around in _branches(tree, tuple(statements), ()):
        for m in around if not any(m.kind is MemberKind.BLOCK for m in around) else ():
            if _combines(statements[name], m):
                raise failure(WARPS, loop=m.label, statement=name, extent=m.extent, threads="1 x 1 x 1")


def _check_order(tree: Tree, around: str) -> None:
    """Raise LegalityError for a loop over blocks that has anything but such loops around it in its launch, such as `around`."""
    for m in tree.members if isinstance(tree, Band) else ():
        if m.kind is not MemberKind.BLOCK:
            around = around or m.label
        elif around:
            raise failure(BESIDE, loop=m.label, outer=around)
    below = children_of(tree)
    for child in below:
        _check_order(child, around or "sequence" * (len(below) > 1))


def _combines(statement: TypedStatement, member: Member) -> bool:
    return is_fold(statement, member) or is_scan(statement, member)


def _check_scopes(scop: Scop, tree: Tree, *, inside: bool) -> None:
    """Raise LegalityError for a buffer of a thread or block around a loop over blocks, and for one of a thread's in memory.

    `inside` a loop over blocks or threads.
    """
    if isinstance(tree, Scope):
        around = any(m.kind is MemberKind.BLOCK for m in loops(tree))
        for p in tree.promotions:
            own = p.shared or p.on_stack(scop.program.tensor(p.tensor).dtype.itemsize)
            if around if own else inside:
                raise failure(UNFIT, tensor=label(scop, p.tensor), reason=BLOCKS_INSIDE if own else NO_SCRATCH)
    elif isinstance(tree, Band):
        inside = inside or any(m.kind in (MemberKind.BLOCK, MemberKind.THREAD) for m in tree.members)
    for child in children_of(tree):
        _check_scopes(scop, child, inside=inside)


def _branches(
    tree: Tree, here: tuple[str, ...], around: tuple[Member, ...]
) -> Iterator[tuple[str, tuple[Member, ...]]]:
    """Yield each statement of a tree, on each of its ways to a leaf, with the loops around it."""
    match tree:
        case Band(members=members, child=child):
            here = tuple(s for s, _ in members[0].times)
            yield from _branches(child, here, (*around, *members))
        case Scope(child=child):
            yield from _branches(child, here, around)
        case Sequence(children=children):
            for f in children:
                yield from _branches(f.child, f.statements, around)
        case Leaf():
            yield from ((s, around) for s in here)
