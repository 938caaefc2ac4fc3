"""The proof that each launch of a tree is one that a GPU can run: its threads, its blocks, and where its buffers are alive.

Blocks have nothing in common but memory: what one of them has in registers or shared memory is its own, and what stands beside a
loop over blocks would be run by all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyker.errors import LegalityError, failure, register
from polyker.ir.typed import TypedStatement
from polyker.poly.scop import Scop
from polyker.schedule.block_threads import AXES, WARP, launch_trees
from polyker.schedule.legality_buffers import UNFIT
from polyker.schedule.legality_text import label
from polyker.schedule.thread_folds import is_fold
from polyker.schedule.thread_scans import is_scan
from polyker.schedule.tree import Band, Kind, Leaf, Member, Scope, Sequence, Tree, loops

BESIDE = register(
    "PK516",
    LegalityError,
    "{statement} stands in a launch whose blocks lie along {all}, and in no loop over blocks along {missing}: all would run it",
    "map the loops around all statements of a launch to blocks, or give each statement a launch of its own",
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

# Threads of a block, and of them along z (CUDA C++ Programming Guide, compute capabilities).
MOST, DEPTH = 1024, 64


def check_launches(scop: Scop, tree: Tree) -> None:
    """Raise LegalityError unless blocks and threads of all launches can be run as the tree has them."""
    if not any(m.axis for m in loops(tree)):
        return
    statements = {s.name: s for s in scop.program.statements()}
    _check_scopes(scop, tree)
    for launch in launch_trees(tree):
        x, y, z = (
            max((m.extent for m in loops(launch) if m.kind is Kind.THREAD and m.axis == a), default=1) for a in AXES
        )
        threads = f"{x} x {y} x {z}"
        if x * y * z > MOST or z > DEPTH:
            raise failure(THREADS, threads=threads)
        axes = [a for a in AXES if any(m.kind is Kind.BLOCK and m.axis == a for m in loops(launch))]
        for name, around in _branches(launch, tuple(statements), ()):
            mine = {m.axis for m in around if m.kind is Kind.BLOCK}
            missing = [a for a in axes if a not in mine]
            if missing:
                raise failure(BESIDE, statement=name, all=" and ".join(axes), missing=missing[0])
            for m in around:
                whole = m.extent == x and x % WARP == 0 and (x == WARP or y * z == 1)
                if _combines(statements[name], m) and not whole:
                    raise failure(WARPS, loop=m.label, statement=name, extent=m.extent, threads=threads)
    for name, around in _branches(tree, tuple(statements), ()):
        for m in around if not any(m.kind is Kind.BLOCK for m in around) else ():
            if _combines(statements[name], m):
                raise failure(WARPS, loop=m.label, statement=name, extent=m.extent, threads="1 x 1 x 1")


def _combines(statement: TypedStatement, member: Member) -> bool:
    return is_fold(statement, member) or is_scan(statement, member)


def _check_scopes(scop: Scop, tree: Tree) -> None:
    """Raise LegalityError for a buffer of a thread or block around a loop over blocks."""
    match tree:
        case Scope(promotions=promotions, child=child):
            if any(m.kind is Kind.BLOCK for m in loops(child)):
                for p in promotions:
                    if p.shared or p.on_stack(scop.program.tensor(p.tensor).dtype.itemsize):
                        reason = "blocks begin inside its scope, and have nothing but memory in common"
                        raise failure(UNFIT, tensor=label(scop, p.tensor), reason=reason)
            _check_scopes(scop, child)
        case Band(child=child):
            _check_scopes(scop, child)
        case Sequence(children=children):
            for f in children:
                _check_scopes(scop, f.child)
        case Leaf():
            return


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
