"""Random changes of schedules, most of them wrong: the proof of legality against the truth by enumeration.

    python -m tests.schedule.mutations --cases 1000 --seed 0

prints how many illegal schedules were accepted (that has to be none) and how many legal ones were refused.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable

import islpy as isl
from msgspec import Struct, field

from polyker.codegen.llvm.jit.detect import target
from polyker.errors import LegalityError, ScheduleError
from polyker.ir.expr import Call, Literal
from polyker.ir.quasi_affine import add, lit, scale
from polyker.poly.isl import int_val
from polyker.poly.scop import Scop
from polyker.schedule.legality.prove import prove
from polyker.schedule.tree.nodes import Band, Leaf, Member, MemberKind, Promotion, ScheduleTree, Scope, Sequence, Tree
from polyker.structs import replace
from tests.schedule.enumeration import Truth
from tests.schedule.random_programs import random_case
from tests.schedule.random_steps import legal_steps, random_step
from tests.schedule.support import SMALL, Case
from tests.schedule.tree_steps import step

PAIR = re.compile(r"\bS\d+\([^)]*\).*\bS\d+\([^)]*\)", re.S)
DEPENDENCE = {"order", "lanes", "threads", "flow", "place"}
Change = Callable[[random.Random, Tree], Tree | None]


# -- rebuilding a tree at one place --------------------------------------------------------------------------------------


def nodes(tree: Tree, kind: type) -> list[Tree]:
    """Return the nodes of a kind."""
    own = [tree] if isinstance(tree, kind) else []
    return own + [n for c in _children(tree) for n in nodes(c, kind)]


def _children(tree: Tree) -> list[Tree]:
    match tree:
        case Band(child=child) | Scope(child=child):
            return [child]
        case Sequence(children=children):
            return [f.child for f in children]
        case _:
            return []


def put(tree: Tree, old: Tree, new: Tree) -> Tree:
    """Return the tree with one node (that very object) replaced."""
    if tree is old:
        return new
    match tree:
        case Band(child=child) | Scope(child=child):
            return replace(tree, child=put(child, old, new))
        case Sequence(children=children):
            return Sequence(tuple(replace(f, child=put(f.child, old, new)) for f in children))
        case _:
            return tree


def _at(rng: random.Random, tree: Tree, kind: type, change: Callable[[Tree], Tree | None]) -> Tree | None:
    found = nodes(tree, kind)
    if not found:
        return None
    node = rng.choice(found)
    new = change(node)
    return None if new is None else put(tree, node, new)


def _member(rng: random.Random, tree: Tree, change: Callable[[Member, Band], Member | None]) -> Tree | None:
    def inside(band: Tree) -> Tree | None:
        assert isinstance(band, Band)
        at = rng.randrange(len(band.members))
        new = change(band.members[at], band)
        if new is None:
            return None
        return replace(band, members=(*band.members[:at], new, *band.members[at + 1 :]))

    return _at(rng, tree, Band, inside)


# -- the changes ---------------------------------------------------------------------------------------------------------


def permute(rng: random.Random, tree: Tree) -> Tree | None:
    def change(band: Tree) -> Tree | None:
        members = list(band.members)  # type: ignore[union-attr]
        if len(members) < 2:
            return None
        rng.shuffle(members)
        return replace(band, members=tuple(members))  # type: ignore[type-var]

    return _at(rng, tree, Band, change)


def reverse(rng: random.Random, tree: Tree) -> Tree | None:
    return _member(rng, tree, lambda m, _: replace(m, times=tuple((s, scale(-1, e)) for s, e in m.times)))


def _one_time(rng: random.Random, member: Member, change: Callable) -> Member:  # type: ignore[type-arg]
    which = rng.randrange(len(member.times))
    return replace(member, times=tuple((s, change(s, e) if n == which else e) for n, (s, e) in enumerate(member.times)))


def shift(rng: random.Random, tree: Tree) -> Tree | None:
    by = rng.choice([-2, -1, 1, 2])
    return _member(rng, tree, lambda m, _: _one_time(rng, m, lambda s, e: add(e, lit(by))))


def reverse_one(rng: random.Random, tree: Tree) -> Tree | None:
    return _member(rng, tree, lambda m, _: _one_time(rng, m, lambda s, e: scale(-1, e)))


def skew(rng: random.Random, tree: Tree) -> Tree | None:
    def change(member: Member, band: Band) -> Member | None:
        other = rng.choice(band.members)
        factor = rng.choice([-2, -1, 1, 2])
        if other is member:
            return None
        return replace(member, times=tuple((s, add(e, scale(factor, other.time(s)))) for s, e in member.times))

    return _member(rng, tree, change)


def collapse(rng: random.Random, tree: Tree) -> Tree | None:
    """Give a loop one time: what it ordered is ordered no more."""
    return _member(rng, tree, lambda m, _: replace(m, times=tuple((s, lit(0)) for s, _ in m.times)))


def cut_anew(rng: random.Random, tree: Tree) -> Tree | None:
    def change(member: Member, _: Band) -> Member | None:
        def bigger(s: str, e: object) -> object:
            match e:
                case Call(op="mod" | "floordiv", args=(a, Literal(value=size))):
                    return replace(e, args=(a, lit(max(1, int(size.real) + rng.choice([-1, 1])))))
            return None

        times = [(s, bigger(s, e)) for s, e in member.times]
        return None if any(e is None for _, e in times) else replace(member, times=tuple(times))  # type: ignore[arg-type]

    return _member(rng, tree, change)


def carry_out(rng: random.Random, tree: Tree) -> Tree | None:
    kinds = [MemberKind.VECTOR, MemberKind.VECTOR, MemberKind.UNROLL, MemberKind.PARALLEL, MemberKind.SERIAL]
    kind, extent = rng.choice(kinds), rng.choice([1, 2, 4, 4, 8, 8, 16])
    return _member(rng, tree, lambda m, _: replace(m, kind=kind, extent=0 if kind is MemberKind.SERIAL else extent))


def resize(rng: random.Random, tree: Tree) -> Tree | None:
    def change(member: Member, _: Band) -> Member | None:
        return None if not member.extent else replace(member, extent=max(0, member.extent - rng.choice([1, 2])))

    return _member(rng, tree, change)


def reorder(rng: random.Random, tree: Tree) -> Tree | None:
    def change(sequence: Tree) -> Tree:
        children = list(sequence.children)  # type: ignore[union-attr]
        rng.shuffle(children)
        return Sequence(tuple(children))

    return _at(rng, tree, Sequence, change)


def drop(rng: random.Random, tree: Tree) -> Tree | None:
    def change(sequence: Tree) -> Tree | None:
        children = list(sequence.children)  # type: ignore[union-attr]
        children.pop(rng.randrange(len(children)))
        return Sequence(tuple(children)) if children else None

    return _at(rng, tree, Sequence, change)


def double(rng: random.Random, tree: Tree) -> Tree | None:
    def change(sequence: Tree) -> Tree:
        children = list(sequence.children)  # type: ignore[union-attr]
        children.insert(rng.randrange(len(children) + 1), rng.choice(children))
        return Sequence(tuple(children))

    return _at(rng, tree, Sequence, change)


def swap_conditions(rng: random.Random, tree: Tree) -> Tree | None:
    def change(sequence: Tree) -> Tree | None:
        children = list(sequence.children)  # type: ignore[union-attr]
        parts = [n for n, f in enumerate(children) if f.conditions]
        if not parts:
            return None
        n = rng.choice(parts)
        conditions = list(children[n].conditions)
        conditions.pop(rng.randrange(len(conditions)))
        children[n] = replace(children[n], conditions=tuple(conditions))
        return Sequence(tuple(children))

    return _at(rng, tree, Sequence, change)


def unsequence(rng: random.Random, tree: Tree) -> Tree | None:
    """Forget the order of leaves."""

    def change(sequence: Tree) -> Tree | None:
        return Leaf() if all(isinstance(f.child, Leaf) for f in sequence.children) else None  # type: ignore[union-attr]

    return _at(rng, tree, Sequence, change)


def shrink_buffer(rng: random.Random, tree: Tree) -> Tree | None:
    def change(scope: Tree) -> Tree | None:
        assert isinstance(scope, Scope)
        n = rng.randrange(len(scope.promotions))
        found = scope.promotions[n]
        if not found.modulo:
            return None
        d = rng.randrange(len(found.modulo))
        modulo = tuple(max(1, m - rng.choice([1, 1, 2])) if k == d else m for k, m in enumerate(found.modulo))
        changed = (*scope.promotions[:n], Promotion(found.tensor, modulo), *scope.promotions[n + 1 :])
        return replace(scope, promotions=changed)

    return _at(rng, tree, Scope, change)


def move_scope(rng: random.Random, tree: Tree) -> Tree | None:
    """Put a scope inside the loops below it."""

    def change(scope: Tree) -> Tree | None:
        assert isinstance(scope, Scope)
        match scope.child:
            case Band(child=child) as band:
                return replace(band, child=Scope(scope.promotions, child))
            case Sequence(children=children):
                return Sequence(tuple(replace(f, child=Scope(scope.promotions, f.child)) for f in children))
        return None

    return _at(rng, tree, Scope, change)


CHANGES: tuple[Change, ...] = (
    permute, permute, reverse, shift, shift, reverse_one, skew, skew, collapse, cut_anew, carry_out, carry_out, carry_out,
    resize, reorder, reorder, drop, double, swap_conditions, unsequence, shrink_buffer, shrink_buffer, move_scope,
)  # fmt: skip


def hopeful_buffer(rng: random.Random, case: Scop, schedule: ScheduleTree) -> ScheduleTree | None:
    """Promote some temporary under some loop, with some extents."""
    temporaries = [t for t in case.program.tensors if t.role.name == "TEMPORARY" and t.shape]
    bands = nodes(schedule.tree, Band)
    if not temporaries or not bands:
        return None
    tensor, band = rng.choice(temporaries), rng.choice(bands)
    assert isinstance(band, Band)
    scope = Scope((Promotion(tensor.name, tuple(rng.randint(1, 6) for _ in tensor.shape)),), band.child)
    return replace(schedule, tree=put(schedule.tree, band, replace(band, child=scope)))


def mutate(rng: random.Random, scop: Scop, schedule: ScheduleTree) -> tuple[str, ScheduleTree] | None:
    """Return the name of a change, and what it made."""
    form = rng.random()
    if form < 0.3:
        wanted = random_step(rng, scop, schedule)
        if wanted is None:
            return None
        try:
            return wanted.name, step(scop, schedule, wanted)
        except ScheduleError:
            return None
    if form < 0.36:
        made = hopeful_buffer(rng, scop, schedule)
        return None if made is None else ("hopeful_buffer", made)
    change = rng.choice(CHANGES)
    tree = change(rng, schedule.tree)
    return None if tree is None else (change.__name__, replace(schedule, tree=tree))


class Tally(Struct):
    """What came of the cases; `bad` holds the text of each that is wrong."""

    legal: int = 0
    illegal: int = 0
    structural: int = 0
    false_accepts: int = 0
    false_refusals: int = 0
    unexplained: int = 0
    by_change: Counter[str] = field(default_factory=Counter)
    by_reason: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    accepted: list[tuple[Case, Scop, ScheduleTree]] = field(default_factory=list)

    def table(self) -> str:
        rows = [
            ("illegal by a dependence", self.illegal),
            ("illegal in another way", self.structural),
            ("false accepts", self.false_accepts),
            ("refused without a dependence and two instances", self.unexplained),
            ("legal", self.legal),
            ("false refusals", self.false_refusals),
        ]
        lines = [f"{name:48}{count:7}" for name, count in rows]
        for title, counter in (("legal and illegal ones by change", self.by_change), ("reasons", self.by_reason)):
            lines.append(f"{title}: " + ", ".join(f"{k} {v}" for k, v in sorted(counter.items())))
        return "\n".join(lines)


def start_of(rng: random.Random, case: Case) -> tuple[Scop, ScheduleTree]:
    """Return a program with a legal schedule: that of the text, or the automatic one, and random legal steps on it."""
    scop, schedule = (case.scop, case.start) if rng.random() < 0.6 else case.automatic(target(SMALL))
    return scop, legal_steps(rng, scop, schedule, rng.choice([0, 1, 1, 2, 3]))


def campaign(cases: int, seed: int, keep: int = 0) -> Tally:
    """Mutate until there were `cases` legal and `cases` illegal schedules."""
    rng, tally = random.Random(seed), Tally()
    while tally.legal < cases or tally.illegal < cases:
        found = random_case(rng)
        scop, schedule = start_of(rng, found)
        truth = Truth(scop.program)
        for _ in range(8):
            made = mutate(rng, scop, schedule)
            if made is None or made[1] == schedule:
                continue
            _judge(tally, cases, found, scop, [truth], *made, keep=keep)
    return tally


def _judge(
    tally: Tally,
    cases: int,
    case: Case,
    scop: Scop,
    truths: list[Truth],
    change: str,
    schedule: ScheduleTree,
    keep: int,
) -> None:
    wrong = set().union(*(truth.judge(schedule) for truth in truths))
    dependence = bool(wrong & DEPENDENCE)
    if (not wrong and tally.legal >= cases) or (dependence and tally.illegal >= cases):
        return
    try:
        prove(scop, schedule)
        said = None
    except LegalityError as error:
        said = error
    story = f"{change}: {wrong or 'legal'}\n{case.text} {case.types}\n{schedule}\n{said}"
    tally.by_change[f"{change} ({'illegal' if wrong else 'legal'})"] += 1
    tally.by_reason.update(wrong)
    if not wrong:
        tally.legal += 1
        if said is not None:
            tally.false_refusals += 1
            tally.bad.append(story)
        elif len(tally.accepted) < keep:
            tally.accepted.append((case, scop, schedule))
        return
    tally.illegal += dependence
    tally.structural += not dependence
    if said is None:
        tally.false_accepts += 1
        tally.bad.append(story)
    elif wrong <= DEPENDENCE and not _explains(said, scop):
        tally.unexplained += 1
        tally.bad.append(story)


def _explains(error: LegalityError, scop: Scop) -> bool:
    """Whether a message names a tensor by its label, and two instances with numbers."""
    labels = {t.label for t in scop.program.tensors}
    return bool(PAIR.search(error.message)) and any(re.search(rf"\b{re.escape(t)}\b", error.message) for t in labels)


SIZES = (1, 2, 3, 5, 9)


def symbolic_campaign(cases: int, seed: int) -> Tally:
    """Mutate schedules of programs whose size is a symbol; the truth is enumerated at some sizes.

    What is refused but legal at these sizes counts as a false refusal, although a larger size may break it.
    """
    rng, tally = random.Random(seed), Tally()
    while tally.legal < cases or tally.illegal < cases:
        found = symbolic(random_case(rng))
        if found is None:
            continue
        scop, schedule = start_of(rng, found)
        (name, _), *_rest = scop.program.sizes
        truths = [Truth(scop.program, {name: size}) for size in SIZES if allows(scop, name, size)]
        for _ in range(8):
            made = mutate(rng, scop, schedule)
            if made is not None and made[1] != schedule:
                _judge(tally, cases, found, scop, truths, *made, keep=0)
    return tally


def allows(scop: Scop, name: str, size: int) -> bool:
    """Whether a size is among those that the program is for."""
    at = scop.context.find_dim_by_name(isl.dim_type.param, name)
    return at < 0 or not scop.context.fix_val(isl.dim_type.param, at, int_val(size)).is_empty()


def symbolic(found: Case) -> Case | None:
    """Return the program with its size N unbound, None if it has none that stands for all extents."""
    size = found.sizes.get("N")
    if size is None:
        return None
    types = {k: re.sub(rf"\b{size}\b(?=[,\]])", "N", v) for k, v in found.types.items()}
    return Case(found.text, types, {**found.sizes, "N": "N"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--symbolic", action="store_true", help="sizes that are symbols, the truth at some of them")
    options = parser.parse_args()
    tally = (symbolic_campaign if options.symbolic else campaign)(options.cases, options.seed)
    for story in tally.bad[:5]:
        print(story, end="\n\n")
    print(tally.table())
    raise SystemExit(bool(tally.false_accepts or tally.unexplained or tally.false_refusals * 20 > tally.legal))


if __name__ == "__main__":
    main()
