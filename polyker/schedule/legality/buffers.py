"""Prove that promoted temporaries keep their values: each run of a scope reuses their buffers.

A buffer is one for all runs of its scope, which follow each other. Every value has to be read in the run that wrote it; two
elements of one run may share a place only if the one is used no more when the other is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import islpy as isl
from msgspec import Struct

from polyker.errors import LegalityError, failure, register
from polyker.ir.expr import Call, Expr, IndexExpr, Literal
from polyker.ir.quasi_affine import floordiv, is_quasi_affine, print_affine
from polyker.ir.typed import Role, TypedStatement
from polyker.machine.known import gpus
from polyker.poly.dependences import Dependence
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import Scop, ScopAccess
from polyker.schedule.legality.text import instances, label
from polyker.schedule.tree.block_threads import launch_trees
from polyker.schedule.tree.nodes import Promotion, Tree, promoted_tensors, scopes
from polyker.schedule.tree.swizzle import why_not_swizzled
from polyker.schedule.tree.to_isl import Way, elements_of_runs, scope_ways
from polyker.structs import replace

PROMOTION = register(
    "PK503",
    LegalityError,
    "{tensor} cannot be held in a buffer here: {source} and {sink} both use it, and {reason}",
    "promote it further out, or with more elements",
)
UNFIT = register(
    "PK507",
    LegalityError,
    "{tensor} cannot be held in a buffer here: {reason}",
    "a buffer holds a temporary, around all that uses it, with one extent a dimension",
)

# Most bytes of all small buffers of a kernel (chosen): they lie on the stack of the thread that calls it, of 8 MiB as a rule.
MAX_STACK_BYTES = 1 << 20
# Bytes of all buffers that the threads of a block share: no GPU that is known has more for them.
MAX_SHARED_BYTES = max(t.gpu.shared for t in gpus().values() if t.gpu is not None)
# Most elements of one buffer (chosen): it is to hold a part of what memory holds.
MAX_BUFFER_ELEMENTS = 1 << 28


def check_access(scop: Scop, statement: str, domain: isl.Set, homeless: frozenset[str]) -> None:
    """Raise LegalityError if instances use a tensor whose buffer is not alive where they run."""
    for access in scop.accesses:
        if access.statement == statement and access.tensor in homeless:
            if access.relation.intersect_domain(domain).is_empty():
                continue
            reason = f"{statement} runs outside the buffer's life"
            raise failure(UNFIT, tensor=label(scop, access.tensor), reason=reason)


class Shared(Struct, frozen=True):
    """A buffer in which elements that one run of its scope uses share places: `touching` it, by `here` to the scope."""

    promotion: Promotion
    touching: tuple[ScopAccess, ...]
    here: Mapping[str, Way]


def check_buffers(scop: Scop, tree: Tree) -> list[Shared]:
    """Return the buffers in which two elements that are used in one run share a place.

    Raises LegalityError unless every buffer fits its tensor.
    """
    held = _check_fits(scop, tree)
    _check_launches(scop, tree)
    if not held:
        return []
    found: list[Shared] = []
    for scope, here in scope_ways(tree, scop.program):
        for promotion in scope.promotions:
            touching = [a for a in scop.accesses if a.tensor == promotion.tensor and a.statement in here]
            # Without the conditions on the way there are more instances, but simpler sets: mostly they do already.
            wide = {a.statement: replace(here[a.statement], conditions=()) for a in touching}
            if _clash(scop, promotion, touching, wide):
                ways = {a.statement: here[a.statement] for a in touching}
                if _clash(scop, promotion, touching, ways):
                    found.append(Shared(promotion, tuple(touching), ways))
    return found


def _check_fits(scop: Scop, tree: Tree) -> bool:
    """Return whether there are buffers; raises LegalityError unless each fits its tensor, and all of them the stack."""
    total, held, fitting = 0, False, set[Promotion]()
    users: dict[str, list[TypedStatement]] = {}
    for statement in scop.program.statements():
        for name in dict.fromkeys((statement.target, *(r.tensor for r in statement.reads()))):
            users.setdefault(name, []).append(statement)
    for scope in scopes(tree):
        inside = promoted_tensors(scope.child)
        for promotion in scope.promotions:
            if promotion not in fitting:
                _check_fit(scop, promotion, users.get(promotion.tensor, []))
                fitting.add(promotion)
            if promotion.tensor in inside or [p.tensor for p in scope.promotions].count(promotion.tensor) > 1:
                raise _unfit(scop, promotion.tensor, "it has another buffer inside this one")
            if promotion.elements() > MAX_BUFFER_ELEMENTS:
                raise _unfit(
                    scop, promotion.tensor, f"{promotion.elements()} elements are more than {MAX_BUFFER_ELEMENTS}"
                )
            itemsize = scop.program.tensor(promotion.tensor).dtype.itemsize
            total += promotion.elements() * itemsize if promotion.on_stack(itemsize) else 0
            held = True
    if total > MAX_STACK_BYTES:
        tensor = next(p.tensor for scope in scopes(tree) for p in scope.promotions)
        raise _unfit(scop, tensor, f"the buffers of this schedule take {total} bytes, more than {MAX_STACK_BYTES}")
    return held


def _check_launches(scop: Scop, tree: Tree) -> None:
    """Raise LegalityError unless the shared buffers of each launch fit a block's shared memory."""
    for launch in launch_trees(tree):
        shared = [p for scope in scopes(launch) for p in scope.promotions if p.shared]
        taken = sum(p.elements() * scop.program.tensor(p.tensor).dtype.itemsize for p in shared)
        if taken > MAX_SHARED_BYTES:
            reason = f"the shared buffers of its launch take {taken} bytes, more than {MAX_SHARED_BYTES}"
            raise _unfit(scop, shared[0].tensor, reason)


def reuses(scop: Scop, shared: Shared) -> Iterator[Dependence]:
    """Yield what has to be in order for the elements that share a place to follow each other there, the lesser ones first.

    Of two elements whose distance in a dimension is the buffer's extent there, all that uses the lesser one has to come before
    all that writes the greater one. Those that are farther apart than a place's next element are in it, too: it asks for more
    than is needed, of simpler sets. In a dimension that has a place for each element the two are the same.
    """
    d = range(len(shared.promotion.modulo))
    names = [", ".join(f"{letter}{n}" for n in d) for letter in "ab"]
    tensor = shared.promotion.tensor
    runs = {s: way.run(scop, s, "P") for s, way in shared.here.items()}
    # Not where only the loops around show it: lanes that are at such a loop at their own times may go through it together.
    plain = [
        n
        for n, m in enumerate(shared.promotion.modulo)
        if all(_lies_within(scop, a.statement, a.subscripts[n], m) for a in shared.touching)
    ]
    for n, m in enumerate(shared.promotion.modulo):
        if n in plain:
            continue
        distant = " and ".join([f"b{n} >= a{n} + {m}", *(f"b{k} = a{k}" for k in plain)])
        later = read_map(f"{{ {tensor}[{names[0]}] -> {tensor}[{names[1]}] : {distant} }}")
        for first in shared.touching:
            for second in shared.touching:
                if second.is_write:
                    together = runs[first.statement].apply_range(runs[second.statement].reverse())
                    pairs = first.relation.apply_range(later).apply_range(second.relation.reverse()).intersect(together)
                    if not pairs.is_empty():
                        yield Dependence("reuse", first.statement, second.statement, tensor, partial(_same, pairs))


def _same(pairs: isl.Map) -> isl.Map:
    return pairs


def _unfit(scop: Scop, tensor: str, reason: str) -> Exception:
    return failure(UNFIT, tensor=label(scop, tensor), reason=reason)


def _check_fit(scop: Scop, promotion: Promotion, users: list[TypedStatement]) -> None:
    if promotion.tensor not in {t.name for t in scop.program.tensors}:
        raise failure(UNFIT, tensor=promotion.tensor, reason="the program has no such tensor")
    tensor = scop.program.tensor(promotion.tensor)
    if tensor.role is not Role.TEMPORARY:
        raise _unfit(scop, tensor.name, f"it is an {tensor.role.value} of the program")
    if len(promotion.modulo) != len(tensor.shape) or any(m < 1 for m in promotion.modulo):
        raise _unfit(scop, tensor.name, f"{list(promotion.modulo)} is no shape of {len(tensor.shape)} dimensions")
    if not promotion.is_sound():
        raise _unfit(scop, tensor.name, f"the layout {list(promotion.layout)} does not keep its elements apart")
    if promotion.swizzle and (reason := _why_not_swizzled(promotion, tensor.dtype.itemsize)):
        raise _unfit(scop, tensor.name, f"it is not to be swizzled by {promotion.swizzle}: {reason}")
    for statement in users:
        for subscripts in _subscripts(statement, tensor.name):
            if not all(is_quasi_affine(s) for s in subscripts):
                raise _unfit(scop, tensor.name, f"{statement.name} gathers from it or scatters to it")
        for read in statement.reads():
            if read.tensor == tensor.name and read.pad is not None and read.pad.mode != "constant":
                raise _unfit(scop, tensor.name, f"{statement.name} reads it padded by {read.pad.mode}")


def _why_not_swizzled(promotion: Promotion, itemsize: int) -> str:
    if not promotion.shared:
        return "it is not in shared memory"
    if promotion.pad:
        return "its rows are padded"
    return why_not_swizzled(promotion.row, itemsize, promotion.swizzle)


def _subscripts(statement: TypedStatement, tensor: str) -> Iterator[tuple[Expr, ...]]:
    if statement.target == tensor:
        yield statement.subscripts
    yield from (r.subscripts for r in statement.reads() if r.tensor == tensor)


def _clash(scop: Scop, promotion: Promotion, touching: list[ScopAccess], here: dict[str, Way]) -> bool:
    """Whether two elements that are used in one run of the scope share a place of the buffer."""
    if all(_is_plain(scop, d, m, touching, here) for d, m in enumerate(promotion.modulo)):
        return False
    elements = elements_of_runs(scop, touching, here)
    if elements is None:
        return False
    d = range(len(promotion.modulo))
    zero = " and ".join(f"d{n} mod {m} = 0" for n, m in zip(d, promotion.modulo, strict=True)) or "true"
    differ = " or ".join(f"d{n} != 0" for n in d) or "false"
    same = read_set(f"{{ {promotion.tensor}[{', '.join(f'd{n}' for n in d)}] : {zero} and ({differ}) }}")

    def meet(elements: isl.Map) -> bool:
        return not elements.reverse().apply_range(elements).deltas().intersect(same).is_empty()

    # What the call checks of the sizes makes larger sets: mostly they do without.
    elements = elements.coalesce()
    return meet(elements) and (not scop.program.checks or meet(_checked(scop, elements)))


def _checked(scop: Scop, relation: isl.Map) -> isl.Map:
    """Return a relation for the sizes that pass the checks of the call."""
    for check in scop.program.checks:
        relation = relation.intersect_params(read_set(check.condition))
    return relation


def _is_plain(scop: Scop, dimension: int, modulo: int, touching: list[ScopAccess], here: dict[str, Way]) -> bool:
    """Whether the texts show that one run of the scope has different elements of a dimension at different places.

    Either the elements lie in [0, modulo), or their quotient by it is fixed in a run, by the same loops for all accesses.
    """
    if all(_lies_within(scop, a.statement, a.subscripts[dimension], modulo) for a in touching):
        return True
    fixed: set[tuple[int, ...]] | None = None
    for access in touching:
        found = _fixing_loops(access.subscripts[dimension], here[access.statement], modulo)
        fixed = found if fixed is None else fixed & found
    return bool(fixed)


def _fixing_loops(subscript: Expr, way: Way, modulo: int) -> set[tuple[int, ...]]:
    """Return the loops above a scope that fix a subscript's quotient by `modulo`, as (size, place of the loop ...).

    For a modulo of one that may be the tile of some size and the row in it: two accesses then have one element only where both
    the loops and the size are the same.
    """
    places = {t: n for n, t in enumerate(way.times) if n not in way.lanes}
    quotient = places.get(print_affine(floordiv(subscript, modulo)))
    found: set[tuple[int, ...]] = set() if quotient is None else {(modulo, quotient)}
    if modulo == 1:
        rest = f"({print_affine(subscript)} mod "
        for time, row in places.items():
            if time.startswith(rest):
                size = int(time.removeprefix(rest)[:-1])
                tile = places.get(print_affine(floordiv(subscript, size)))
                if tile is not None:
                    found.add((size, tile, row))
    return found


def _lies_within(scop: Scop, statement: str, subscript: Expr, modulo: int) -> bool:
    """Whether the form of a subscript, or the bounds of its index, show that it lies in [0, modulo)."""
    match subscript:
        case Literal(value=value):
            return 0 <= value.real < modulo
        case Call(op="mod", args=(_, Literal(value=value))):
            return value.real <= modulo
        case IndexExpr(name=name) if modulo > 1:
            d = scop.statement(statement).iterators.index(name)
            low, high = scop.domains[statement].dim_min_val(d), scop.domains[statement].dim_max_val(d)
            return bool(low.is_nonneg() and high.is_int() and high.get_num_si() < modulo)
        case _:
            return False


def broken_reuse(scop: Scop, shared: Shared) -> Exception:
    """Return the error for two elements that are used in one run of a scope, and share a place of the buffer."""
    tensor, promotion = shared.promotion.tensor, shared.promotion
    runs = {s: way.run(scop, s, "P") for s, way in shared.here.items()}
    source, sink = _sharing(tensor, promotion, list(shared.touching), runs)
    one, other = instances(scop, _between(source, sink, tensor, promotion, runs))
    reason = "two elements that they use share a place of the buffer"
    return failure(PROMOTION, tensor=label(scop, tensor), source=one, sink=other, reason=reason)


def _sharing(
    tensor: str, promotion: Promotion, touching: list[ScopAccess], runs: dict[str, isl.Map]
) -> tuple[ScopAccess, ScopAccess]:
    """Return two accesses, a write first where there is one, whose instances use one place for two elements in one run."""
    ordered = sorted(touching, key=lambda a: not a.is_write)
    for first in ordered:
        for second in reversed(ordered):
            if not _between(first, second, tensor, promotion, runs).is_empty():
                return first, second
    raise AssertionError("some pair of accesses clashes")


def _between(
    first: ScopAccess, second: ScopAccess, tensor: str, promotion: Promotion, runs: dict[str, isl.Map]
) -> isl.Map:
    d = range(len(promotion.modulo))
    same = " and ".join(f"(a{n} - b{n}) mod {m} = 0" for n, m in zip(d, promotion.modulo, strict=True)) or "true"
    differ = " or ".join(f"a{n} != b{n}" for n in d) or "false"
    names = [", ".join(f"{letter}{n}" for n in d) for letter in "ab"]
    clash = read_map(f"{{ {tensor}[{names[0]}] -> {tensor}[{names[1]}] : {same} and ({differ}) }}")
    together = runs[first.statement].apply_range(runs[second.statement].reverse())
    return first.relation.apply_range(clash).apply_range(second.relation.reverse()).intersect(together)


def check_runs(scop: Scop, tree: Tree, tensors: list[str]) -> None:
    """Raise LegalityError if a value of one of the tensors is read in another run of its scope than wrote it.

    Looks at each value's last writer alone: an earlier one, which a later one overwrote, may be anywhere.
    """
    for tensor in tensors:
        place: dict[str, isl.UnionMap] = {}
        for number, (scope, here) in enumerate(scope_ways(tree, scop.program)):
            if any(p.tensor == tensor for p in scope.promotions):
                for s, way in here.items():
                    run = way.run(scop, s, f"P{number}").to_union_map()
                    place[s] = place[s].union(run) if s in place else run
        for relation in _last_writers(scop, tensor):
            source, sink = (relation.get_tuple_name(k) for k in (isl.dim_type.in_, isl.dim_type.out))
            together = place[source].apply_range(place[sink].reverse())
            lost = relation.to_union_map().subtract(together)
            if not lost.is_empty():
                one, other = instances(scop, isl.Map.from_union_map(lost))
                reason = "the first writes what the second reads, but in another run, with a buffer of its own"
                raise failure(PROMOTION, tensor=label(scop, tensor), source=one, sink=other, reason=reason)


def _last_writers(scop: Scop, tensor: str) -> list[isl.Map]:
    """Return {writer -> reader} of the values that are read; an update of an element reads it too."""
    touching = [a for a in scop.accesses if a.tensor == tensor]
    empty = isl.UnionMap.empty(scop.context.get_space())
    reads, writes, order = empty, empty, empty
    for a in touching:
        if not a.is_write or a.is_update:
            reads = reads.union(a.relation.to_union_map())
        if a.is_write:
            writes = writes.union(a.relation.to_union_map())
    for s in {a.statement for a in touching}:
        order = order.union(scop.order[s].intersect_domain(scop.domains[s]).to_union_map())
    info = isl.UnionAccessInfo.from_sink(reads).set_must_source(writes).set_schedule_map(order)
    flow = info.compute_flow().get_must_dependence()
    found: list[isl.Map] = []
    flow.foreach_map(found.append)
    return found
