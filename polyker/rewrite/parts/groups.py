"""Cut a large program into groups of statements: where nothing is gained by common loops.

Common loops pay where a statement uses each element that another made a few times: it is in a register or in the first cache
then. A product uses each element so many times that its operands had better be complete (a *barrier*), unless what is passed is
far larger than all that the product reads and writes besides, as the scores of attention over long sequences are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from math import prod

from msgspec import Struct

from polyker.ir.expr import Reduce, walk
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement, TypedTensor, statements_of
from polyker.machine.model import Target
from polyker.poly.boxes import ends
from polyker.poly.checks import evaluate_shape
from polyker.poly.isl import dim, int_val, read_set

# Statements up to which a program is one kernel: what is between them is then left to the schedule (chosen: a second's compile).
MOST_IN_ONE_KERNEL = 24
# Weight up to which a group is one kernel, and that of a statement with a reduction, for which many more schedules are weighed;
# of larger groups the compile time is no longer linear (measured).
MOST_IN_A_GROUP, REDUCTION_WEIGHT = 64, 6
# Uses of each element that is read or written from which on a statement is a barrier: of a product, of whose operands no row can
# be forgotten before others need it, and of one tensor's windows, which share rows with what made them (experience values).
BARRIER_USES, BARRIER_WINDOW_USES = 4, 32
# How much larger than all else what is passed on has to be for a product to share loops with its producer (experience value).
DOMINATING = 4
# What a symbolic size is thought to be, in elements, where nothing is known of it (chosen: products are barriers then).
USUAL_SIZE = 256


def groups_of(program: TypedProgram, target: Target) -> list[tuple[TypedNode, ...]]:
    """Return the statements and loops of a program in groups, each a kernel, in an order in which they can run."""
    if sum(1 for _ in program.statements()) <= MOST_IN_ONE_KERNEL:
        return [program.body]
    return _Grouping(program, target).found()


class _Unit(Struct):
    """Neighbouring nodes that stay together, by their places in the body; what they read and write."""

    nodes: range
    reads: frozenset[str]
    writes: frozenset[str]
    level: int = 0


class _Grouping:
    def __init__(self, program: TypedProgram, target: Target) -> None:
        self.program, self.target = program, target
        self.tensors = {t.name: t for t in program.tensors}
        self.sizes = dict.fromkeys((name for name, _ in program.sizes), USUAL_SIZE) | dict(program.likely)

    def found(self) -> list[tuple[TypedNode, ...]]:
        """Return the groups."""
        units = self._units()
        before = self._dependences(units)
        leader = list(range(len(units)))

        def root(n: int) -> int:
            while leader[n] != n:
                leader[n] = leader[leader[n]]
                n = leader[n]
            return n

        for n, unit in enumerate(units):
            unit.level = max((units[m].level + barrier for m, barrier in before[n].items()), default=0)
            for m, barrier in before[n].items():
                if not barrier and units[m].level == unit.level:
                    leader[max(root(m), root(n))] = min(root(m), root(n))
        members: dict[int, list[int]] = {}
        for n in range(len(units)):
            members.setdefault(root(n), []).append(n)
        runs = [run for group in members.values() for run in self._short(units, group)]
        return [tuple(self.program.body[k] for n in run for k in units[n].nodes) for run in _in_order(runs, before)]

    def _units(self) -> list[_Unit]:
        """Return the nodes, those together that write one tensor, with all between them."""
        body = self.program.body
        reads = [frozenset(r.tensor for s in statements_of([node]) for r in s.reads()) for node in body]
        writes = [frozenset(s.target for s in statements_of([node])) for node in body]
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for n in range(len(body)):
            for name in writes[n]:
                first.setdefault(name, n)
                last[name] = n
        until = list(range(len(body)))
        for name, n in first.items():
            until[n] = max(until[n], last[name])
        units: list[_Unit] = []
        begin, end = 0, -1
        for n in range(len(body)):
            end = max(end, until[n])
            if n == end:
                nodes = range(begin, n + 1)
                units.append(_Unit(nodes, _all(reads[k] for k in nodes), _all(writes[k] for k in nodes)))
                begin = n + 1
        return units

    def _dependences(self, units: Sequence[_Unit]) -> list[dict[int, bool]]:
        """Return the units that have to run before each one, and whether it shares no loops with them."""
        writer = {name: n for n, unit in enumerate(units) for name in unit.writes}
        loops = [any(isinstance(self.program.body[k], TypedLoop) for k in unit.nodes) for unit in units]
        before: list[dict[int, bool]] = [{} for _ in units]
        for n, unit in enumerate(units):
            barriers = self._barriers(unit)
            for name in sorted(unit.reads - unit.writes):
                m = writer.get(name, n)
                if m < n:
                    barrier = loops[m] or loops[n] or name in barriers
                    before[n][m] = before[n].get(m, False) or barrier
                elif m > n:
                    before[m][n] = True  # it reads what an in-out argument was given as
        return before

    def _barriers(self, unit: _Unit) -> frozenset[str]:
        """Return what a unit reads that had better be complete before."""
        found: set[str] = set()
        for s in statements_of(self.program.body[k] for k in unit.nodes):
            names = {r.tensor for r in s.reads()}
            held = {name: self._elements(self.tensors[name]) for name in (*names, s.target)}
            domains = [] if s.op == "set" else [s.domain]
            domains += [e.domain for e in walk(s.expr) if isinstance(e, Reduce) and e.domain is not None]
            total = sum(held.values())
            least = BARRIER_USES if len(names) > 1 else BARRIER_WINDOW_USES
            if not domains or self._points(domains) < least * max(held.values()):
                continue
            for name in names:
                size = held[name] * self.tensors[name].dtype.itemsize
                dominates = size > self.target.caches[-1].usable and held[name] > DOMINATING * (total - held[name])
                if not dominates:
                    found.add(name)
        return frozenset(found)

    def _elements(self, tensor: TypedTensor) -> int:
        return prod(max(1, evaluate_shape(e, self.sizes)) for e in tensor.shape)

    def _points(self, domains: Iterable[str]) -> int:
        """Return the points of the largest of some domains, as if it were a box."""
        most = 0
        for text in domains:
            points = read_set(text)
            for k in range(points.dim(dim.param)):
                points = points.fix_val(dim.param, k, int_val(self.sizes[points.get_dim_name(dim.param, k)]))
            spans = [ends(points, d) for d in range(points.dim(dim.set))]
            most = max(most, prod(1 if span is None else span[1] - span[0] + 1 for span in spans))
        return most

    def _short(self, units: Sequence[_Unit], group: Sequence[int]) -> list[list[int]]:
        """Return a group in runs that are not too long, cut where the least is passed from one to the other."""
        runs: list[list[int]] = []
        rest = list(group)
        while True:
            sums = list(accumulate(self._weight(units[n]) for n in rest[:MOST_IN_A_GROUP]))
            fit = sum(weight <= MOST_IN_A_GROUP for weight in sums)
            if fit == len(rest):
                return [*runs, rest] if rest else runs
            made, open_at = set[str](), list[int]()
            for k in range(max(1, fit)):
                made |= units[rest[k]].writes
                used = _all(units[n].reads for n in rest[k + 1 : 2 * MOST_IN_A_GROUP])
                open_at.append(sum(self._elements(self.tensors[name]) for name in made & used))
            at = min(range(len(open_at) // 2, len(open_at)), key=lambda k: (open_at[k], -k)) + 1
            runs.append(rest[:at])
            rest = rest[at:]

    def _weight(self, unit: _Unit) -> int:
        """Return what a unit adds to the time of a compile."""
        found = statements_of(self.program.body[k] for k in unit.nodes)
        return sum(REDUCTION_WEIGHT if s.op != "set" or _reduces(s) else 1 for s in found)


def _reduces(statement: TypedStatement) -> bool:
    return any(isinstance(e, Reduce) for e in walk(statement.expr))


def _all(names: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*names)


def _in_order(runs: Sequence[Sequence[int]], before: Sequence[Mapping[int, bool]]) -> list[Sequence[int]]:
    """Return runs of units in an order in which each comes after those that it needs, as near to the text's as can be."""
    of = {n: k for k, run in enumerate(runs) for n in run}
    needs = [{of[m] for n in run for m in before[n]} - {k} for k, run in enumerate(runs)]
    users: list[list[int]] = [[] for _ in runs]
    for k, those in enumerate(needs):
        for m in those:
            users[m].append(k)
    missing = list(map(len, needs))
    ready = [(min(runs[k]), k) for k in range(len(runs)) if not missing[k]]
    ready.sort()
    order: list[Sequence[int]] = []
    while ready:
        _, k = heappop(ready)
        order.append(runs[k])
        for user in users[k]:
            missing[user] -= 1
            if not missing[user]:
                heappush(ready, (min(runs[user]), user))
    return order
