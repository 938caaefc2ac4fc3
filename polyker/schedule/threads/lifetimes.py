"""Find temporaries with disjoint lifetimes, which may share memory.

In a sequence the children run one after another: a temporary of which all uses lie in earlier children than those of another is
done when the other begins. Inside a loop that holds only if neither carries values from one iteration to the next: if the scope
of its buffer is inside the loop. In a parallel loop each thread has copies of its own, and is anywhere: nothing there is done
before anything else begins. A temporary may also take the place of one that it is computed from element by element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from msgspec import Struct, field

from polyker.ir.quasi_affine import is_quasi_affine
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.schedule.tree.nodes import AT_ONCE, Band, Leaf, Scope, Tree
from polyker.schedule.tree.nodes import Sequence as Children

LOOP, THREADS = -1, -2
# From the root: the child taken in each sequence, LOOP for each band, THREADS for one with a parallel loop.
Path = tuple[int, ...]


class Uses(Struct):
    """One temporary, or a scope's buffer for it (`scope`: its number in the order of the walk, None for none).

    `depth`: length of the path to its scope; `paths`: where it is used, with the statement.
    """

    tensor: str
    scope: int | None
    depth: int
    paths: list[tuple[Path, str]] = field(default_factory=list)


def uses_of(program: TypedProgram, tree: Tree) -> list[Uses]:
    """Return the uses of every tensor, separately for each scope's buffers."""
    touched = {s.name: {s.target, *(r.tensor for r in s.reads())} for s in program.statements()}
    found: dict[tuple[str, int | None], Uses] = {}
    scopes = 0

    def visit(node: Tree, path: Path, here: Sequence[str], held: dict[str, tuple[int, int]]) -> None:
        nonlocal scopes
        match node:
            case Band(members=members, child=child):
                step = THREADS if any(m.kind in AT_ONCE for m in members) else LOOP
                visit(child, (*path, step), tuple(s for s, _ in members[0].times), held)
            case Children(children=children):
                for n, f in enumerate(children):
                    visit(f.child, (*path, n), f.statements, held)
            case Scope(promotions=promotions, child=child):
                inside = held | {p.tensor: (scopes, len(path)) for p in promotions}
                scopes += 1
                visit(child, path, here, inside)
            case Leaf():
                for name in here:
                    for tensor in touched[name]:
                        scope, depth = held.get(tensor, (None, 0))
                        uses = found.setdefault((tensor, scope), Uses(tensor, scope, depth))
                        uses.paths.append((path, name))

    visit(tree, (), tuple(touched), {})
    return list(found.values())


def never_together(program: TypedProgram, uses: Sequence[Uses]) -> Iterator[tuple[Uses, Uses, bool]]:
    """Yield the pairs that are never in use at the same time, and True with those of which one may replace the other element by
    element: these may share memory only if they begin at the same place."""
    statements = {s.name: s for s in program.statements()}
    for one, other in combinations(uses, 2):
        shared = _common([p for p, _ in (*one.paths, *other.paths)])
        if LOOP in shared[min(one.depth, other.depth) :] or THREADS in shared:
            continue
        place = len(shared)
        spans = [_span(u, place) for u in (one, other)]
        if None in spans:
            continue
        (a, b), (c, d) = spans  # type: ignore[misc]
        if b < c or d < a:
            yield one, other, False
        elif (b == c and _replaces(program, statements, one, other, place, b)) or (
            d == a and _replaces(program, statements, other, one, place, d)
        ):
            yield one, other, True


def _common(paths: list[Path]) -> Path:
    """Return the longest path that all others begin with."""
    least, greatest = min(paths), max(paths)
    same = next((n for n, (x, y) in enumerate(zip(least, greatest, strict=False)) if x != y), None)
    return least[: min(len(least), len(greatest)) if same is None else same]


def _span(uses: Uses, place: int) -> tuple[int, int] | None:
    """Return the first and the last child of a sequence in which it is used; None where paths end there or go into a loop."""
    children = [p[place] if place < len(p) else LOOP for p, _ in uses.paths]
    return None if min(children) < 0 else (min(children), max(children))


def _replaces(
    program: TypedProgram, statements: dict[str, TypedStatement], old: Uses, new: Uses, place: int, child: int
) -> bool:
    """Whether in the one child that uses both a statement alone reads each element of `old` for the same element of `new`."""
    names = {n for u in (old, new) for p, n in u.paths if p[place] == child}
    if len(names) > 1 or old.scope is not None or new.scope is not None:
        return False
    statement = statements[names.pop()]
    first, second = program.tensor(old.tensor), program.tensor(new.tensor)
    reads = {r for r in statement.reads() if r.tensor == old.tensor}
    alike = first.shape == second.shape and first.dtype.itemsize == second.dtype.itemsize
    return (
        alike
        and statement.op == "set"
        and statement.target == new.tensor
        and all(r.tensor != new.tensor for r in statement.reads())
        and all(r.subscripts == statement.subscripts and r.pad is None for r in reads)
        and all(map(is_quasi_affine, statement.subscripts))
    )
