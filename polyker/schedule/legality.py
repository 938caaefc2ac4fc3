"""The proof, on every compile, that a schedule keeps every dependence.

It shares nothing with the modules that choose schedules: it reads the finished tree through isl alone, computes the
dependences from the program's own order, and asks isl for a pair of instances that comes in the wrong order. Three things
are proven: dependent instances keep their order; instances that a vector loop runs at the same time do not depend on each
other; a promoted temporary never loses a value that is still to be read.
"""

from __future__ import annotations

import islpy as isl

from polyker.errors import LegalityError, PolykerError, failure, register
from polyker.poly.dependences import Dependence, dependences
from polyker.poly.isl import int_val, read_map
from polyker.poly.scop import Access, Scop
from polyker.schedule.to_isl import Ways, flat_times, ways
from polyker.schedule.tree import Schedule

BROKEN = register(
    "PK501",
    LegalityError,
    "the schedule breaks a {kind} dependence through {tensor}: {source} has to run before {sink}",
    "keep the loop that carries this dependence in its order, or leave it outside the loops that are moved",
)
VECTOR = register(
    "PK502",
    LegalityError,
    "the vector loop `{loop}` runs {source} and {sink} at the same time, and a {kind} dependence through {tensor} orders them",
    "vectorise a loop that carries no dependence",
)
PROMOTION = register(
    "PK503",
    LegalityError,
    "{tensor} cannot be held in a buffer here: {source} writes a value that {sink} reads, and {reason}",
    "promote it further out, or with more cells",
)
MISSING = register(
    "PK504",
    LegalityError,
    "the schedule does not run each statement instance exactly once: {statement}",
    "a tree has every statement of the program in it, once",
)


def prove(scop: Scop, schedule: Schedule) -> None:
    """Raise LegalityError, naming a dependence and two instances, unless the schedule is legal."""
    found = tuple(dependences(scop))
    through = ways(schedule.tree, scop.program)
    flat = flat_times(scop, through)
    _check_instances(scop, flat)
    for dependence in found:
        if dependence.kind != "reduction":
            _check_order(dependence, flat)
    for depth, member in through.vectors:
        statements = {s for s, _ in member.times}
        for dependence in found:
            if dependence.source in statements and dependence.sink in statements:
                _check_vector(scop, dependence, flat, depth, member.label)
    _check_promotions(scop, through, found)


def is_legal(scop: Scop, schedule: Schedule) -> bool:
    """Whether `prove` finds nothing wrong."""
    try:
        prove(scop, schedule)
    except LegalityError:
        return False
    return True


def _check_instances(scop: Scop, flat: dict[str, isl.Map]) -> None:
    for statement, times in flat.items():
        if not scop.domains[statement].is_subset(times.domain()) or not times.is_single_valued():
            raise failure(MISSING, statement=statement)


def _check_order(dependence: Dependence, flat: dict[str, isl.Map]) -> None:
    distances = dependence.relation.apply_domain(flat[dependence.source]).apply_range(flat[dependence.sink]).deltas()
    late = _not_positive(distances)
    if late is None:
        return
    # Find the pair itself: source at a time not before its sink's.
    pairs = flat[dependence.source].lex_ge_map(flat[dependence.sink]).intersect(dependence.relation)
    source, sink = _instances(pairs)
    raise failure(BROKEN, kind=dependence.kind, tensor=dependence.tensor, source=source, sink=sink)


def _not_positive(distances: isl.Set) -> isl.Set | None:
    """Return the part of the distances that is lexicographically not positive, None if there is none."""
    rest = distances
    for d in range(distances.dim(isl.dim_type.set)):
        if rest.is_empty():
            return None
        negative = rest.upper_bound_val(isl.dim_type.set, d, int_val(-1))
        if not negative.is_empty():
            return negative
        rest = rest.fix_val(isl.dim_type.set, d, int_val(0))
    return None if rest.is_empty() else rest


def _check_vector(scop: Scop, dependence: Dependence, flat: dict[str, isl.Map], depth: int, loop: str) -> None:
    source, sink = flat[dependence.source], flat[dependence.sink]
    together = _equal_prefix(source, sink, depth)
    pairs = dependence.relation.intersect(together)
    if pairs.is_empty():
        return
    moved = pairs.apply_domain(source).apply_range(sink).deltas()
    if moved.subtract(moved.fix_val(isl.dim_type.set, depth, int_val(0))).is_empty():
        return
    if dependence.kind == "reduction" and _is_fold(scop, dependence, together):
        return
    one, other = _instances(pairs)
    raise failure(VECTOR, loop=loop, kind=dependence.kind, tensor=dependence.tensor, source=one, sink=other)


def _equal_prefix(source: isl.Map, sink: isl.Map, depth: int) -> isl.Map:
    out = isl.dim_type.out
    cut = [m.project_out(out, depth, m.dim(out) - depth) for m in (source, sink)]
    return cut[0].apply_range(cut[1].reverse())


def _is_fold(scop: Scop, dependence: Dependence, together: isl.Map) -> bool:
    """Whether all lanes combine into one cell, the same at every lane: then the lanes are folded before the update."""
    write = next(a.relation for a in scop.accesses if a.statement == dependence.source and a.is_update)
    domain = scop.domains[dependence.source]
    lanes = together.intersect_domain(domain).intersect_range(domain)
    return bool(lanes.is_subset(write.apply_range(write.reverse())))


def _check_promotions(scop: Scop, through: Ways, found: tuple[Dependence, ...]) -> None:
    for tensor in {p.tensor for s, _ in through.scopes for p in s.promotions}:
        touching = [a for a in scop.accesses if a.tensor == tensor]
        place: dict[str, isl.Map] = {}
        for number, (scope, here) in enumerate(through.scopes):
            modulo = next((p.modulo for p in scope.promotions if p.tensor == tensor), None)
            if modulo is None:
                continue
            runs = {s: way.relation(scop, s, f"P{number}") for s, way in here.items()}
            _check_cells(tensor, modulo, [a for a in touching if a.statement in runs], runs)
            for s, run in runs.items():
                place[s] = place[s].union(run) if s in place else run.to_union_map()
        _check_flow(scop, tensor, touching, place, found)


def _check_cells(tensor: str, modulo: tuple[int, ...], touching: list[Access], runs: dict[str, isl.Map]) -> None:
    """No two cells that are used in one run of the scope share a place of the buffer."""
    cells = None
    for access in touching:
        part = runs[access.statement].reverse().apply_range(access.relation)
        cells = part if cells is None else cells.union(part)
    if cells is None:
        return
    names = [f"a{d}" for d in range(len(modulo))]
    others = [f"b{d}" for d in range(len(modulo))]
    same = " and ".join(f"(a{d} - b{d}) mod {m} = 0" for d, m in enumerate(modulo)) or "true"
    differ = " or ".join(f"a{d} != b{d}" for d in range(len(modulo))) or "false"
    clash = read_map(f"{{ {tensor}[{', '.join(names)}] -> {tensor}[{', '.join(others)}] : {same} and ({differ}) }}")
    if not cells.apply_range(clash).intersect(cells).is_empty():
        raise failure(PROMOTION, tensor=tensor, source="one instance", sink="another", reason="two cells share a place")


def _check_flow(
    scop: Scop,
    tensor: str,
    touching: list[Access],
    place: dict[str, isl.UnionMap],
    found: tuple[Dependence, ...],
) -> None:
    for access in touching:
        home = place.get(access.statement)
        if home is None or not access.relation.domain().to_union_set().is_subset(home.domain()):
            raise failure(
                PROMOTION,
                tensor=tensor,
                source=access.statement,
                sink=access.statement,
                reason="it runs outside the buffer's life",
            )
    for dependence in found:
        if dependence.tensor != tensor or dependence.kind not in ("raw", "waw", "reduction"):
            continue
        reader = scop.statement(dependence.sink)
        if dependence.kind == "waw" and reader.op == "set":
            continue
        together = place[dependence.source].apply_range(place[dependence.sink].reverse())
        apart = dependence.relation.to_union_map().subtract(together)
        if not apart.is_empty():
            source, sink = _instances(isl.Map.from_union_map(apart))
            raise failure(PROMOTION, tensor=tensor, source=source, sink=sink, reason="the buffer is a new one by then")


def _instances(pairs: isl.Map) -> tuple[str, str]:
    """Return the texts of two related instances, with numbers; sizes are chosen by isl where they are symbols."""
    basic = pairs.sample()
    if basic.is_empty():
        return "one instance", "another"
    point = isl.Map.from_basic_map(basic)
    return _point_text(point.domain()), _point_text(point.range())


def _point_text(instances: isl.Set) -> str:
    point = instances.sample_point()
    count = instances.dim(isl.dim_type.set)
    values = [str(point.get_coordinate_val(isl.dim_type.set, d)) for d in range(count)]
    return f"{instances.get_tuple_name()}({', '.join(values)})"


__all__ = ["PolykerError", "is_legal", "prove"]
