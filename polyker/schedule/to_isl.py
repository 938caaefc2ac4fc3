"""Our schedule trees as isl's: the one form from which code is generated and legality is proven."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import islpy as isl

from polyker.ir.quasi_affine import print_affine
from polyker.ir.typed import TypedProgram
from polyker.poly.isl import context, read_map, read_set
from polyker.poly.scop import Scop, parameters
from polyker.schedule.tree import AT_ONCE, Band, Kind, Leaf, Member, Schedule, Scope, Sequence, Tree, loops


@dataclass(frozen=True)
class Marks:
    """What the marks in isl's tree stand for: `m3` is a loop, `p2` a scope.

    `private`: the scopes inside a parallel loop (of nested ones, the innermost), by its mark; `shared`: those that have a
    PARALLEL loop inside.
    """

    members: Mapping[str, Member]
    scopes: Mapping[str, Scope]
    private: Mapping[str, tuple[str, ...]]
    shared: frozenset[str]


def scope_mark(number: int) -> str:
    """Return the mark of a scope by its number in the order of the walk."""
    return f"p{number}"


def tuple_of(program: TypedProgram, statement: str) -> str:
    """Return isl's text of a statement's tuple, such as `S0[i0, i1]`."""
    found = next(s for s in program.statements() if s.name == statement)
    return f"{statement}[{', '.join(found.iterators)}]"


def union_text(head: str, sets: Iterable[str]) -> str:
    """Return the text of the union of sets of different tuples, given as texts over the same sizes."""
    return f"{head}{{ {'; '.join(t[t.index('{') + 1 : t.rindex('}')] for t in sets)} }}"


def to_isl(scop: Scop, schedule: Schedule) -> tuple[isl.Schedule, Marks]:
    """Return the schedule tree of isl, and what its marks mean."""
    members: dict[str, Member] = {}
    scopes: dict[str, Scope] = {}
    private: dict[str, tuple[str, ...]] = {}
    program = scop.program
    head = parameters(program)
    tuples = {s.name: f"{s.name}[{', '.join(s.iterators)}]" for s in program.statements()}

    def child_of(node: dict[str, object], tree: Tree, here: tuple[str, ...]) -> dict[str, object]:
        below = convert(tree, here)
        return node | ({"child": below} if below else {})

    def convert(tree: Tree, here: tuple[str, ...]) -> dict[str, object]:
        match tree:
            case Band(members=(first, *rest), child=child):
                mark = f"m{len(members)}"
                members[mark] = first
                times = "; ".join(f"{tuples[s]} -> [({print_affine(e)})]" for s, e in first.times)
                band: dict[str, object] = {"schedule": f"{head}[{{ {times} }}]", "permutable": 1, "coincident": [0]}
                below, before = Band(tuple(rest), child) if rest else child, len(scopes)
                converted = child_of(band, below, tuple(s for s, _ in first.times))
                if first.kind in AT_ONCE:
                    nested = {s for found in private.values() for s in found}
                    private[mark] = tuple(s for s in tuple(scopes)[before:] if s not in nested)
                return {"mark": mark, "child": converted}
            case Sequence(children=children):
                return {
                    "sequence": [
                        child_of({"filter": filter_text(f.statements, dict(f.conditions))}, f.child, f.statements)
                        for f in children
                    ]
                }
            case Scope(child=child) as scope:
                mark = scope_mark(len(scopes))
                scopes[mark] = scope
                # isl has no mark without a node below: one time for all is no order.
                inner = convert(child, here) or {
                    "schedule": f"{head}[{{ {'; '.join(f'{tuples[s]} -> [(0)]' for s in here)} }}]"
                }
                return {"mark": mark, "child": inner}
            case _:
                return {}

    def filter_text(statements: tuple[str, ...], conditions: Mapping[str, str]) -> str:
        return union_text(head, (conditions.get(s, f"{{ {tuples[s]} }}") for s in statements))

    domain = union_text(head, (s.domain for s in program.statements()))
    root = child_of({"domain": domain}, schedule.tree, tuple(scop.domains))
    around = frozenset(m for m, s in scopes.items() if any(one.kind is Kind.PARALLEL for one in loops(s.child)))
    return isl.Schedule.read_from_str(context(), json.dumps(root)), Marks(members, scopes, private, around)


@dataclass(frozen=True)
class Way:
    """One way from the root to a leaf or scope: the times of loops and places in sequences, and the conditions met."""

    times: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    lanes: tuple[int, ...] = ()  # places of vector loops in the times

    def run(self, scop: Scop, statement: str, name: str) -> isl.Map:
        """Return {S[iterators] -> name[times]} of the instances that go this way; the lanes of a vector loop have one time."""
        head, source = parameters(scop.program), tuple_of(scop.program, statement)
        times = ["0" if n in self.lanes else t for n, t in enumerate(self.times)]
        found = read_map(f"{head}{{ {source} -> {name}[{', '.join(times)}] }}").intersect_domain(
            scop.domains[statement]
        )
        for condition in self.conditions:
            found = found.intersect_domain(read_set(condition))
        return found


def scope_ways(tree: Tree, program: TypedProgram) -> list[tuple[Scope, dict[str, Way]]]:
    """Return each scope, in the order of the walk, with the way to it of every statement below."""
    result: list[tuple[Scope, dict[str, Way]]] = []

    def visit(node: Tree, here: dict[str, Way], depth: int) -> None:
        match node:
            case Band(members=ms, child=child):
                lanes = tuple(depth + n for n, m in enumerate(ms) if m.kind is Kind.VECTOR)
                below = {
                    s: replace(
                        here[s],
                        times=(*here[s].times, *(print_affine(m.time(s)) for m in ms)),
                        lanes=here[s].lanes + lanes,
                    )
                    for s, _ in ms[0].times
                }
                visit(child, below, depth + len(ms))
            case Sequence(children=children):
                for place, f in enumerate(children):
                    extra = dict(f.conditions)
                    inside = {
                        s: replace(
                            here[s],
                            times=(*here[s].times, str(place)),
                            conditions=here[s].conditions + ((extra[s],) if s in extra else ()),
                        )
                        for s in f.statements
                    }
                    visit(f.child, inside, depth + 1)
            case Scope(child=child) as scope:
                result.append((scope, here))
                visit(child, here, depth)
            case Leaf():
                return

    visit(tree, {s.name: Way() for s in program.statements()}, 0)
    return result
