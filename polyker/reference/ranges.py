"""Which values each index takes, and the extents that follow, for given sizes and argument shapes.

The rules of the notation, spelled out over finite sets: in rounds, a subscript with one open index bounds it to the values
for which every admitted value of its other indices is in bounds, and the bounds of one round intersect. Bare subscripts of
one index agree, and indices that have one come first. A read of a tensor that this or a later statement still defines
bounds only what nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from polyker.errors import failure
from polyker.errors.reference import DISAGREE, NO_RANGE, RANK, UNDECLARED
from polyker.ir.expr import Call, Expr, IndexExpr, Literal, Read, reads_values, walk
from polyker.reference.flatten import Flat, Shape, expand_dots, has_dots
from polyker.reference.integers import (
    Bounds,
    Env,
    affine,
    bounds_of,
    closure,
    gathers,
    indices_of,
    integer,
    points,
)

IndexSpan = Sequence[int]
IndexSpans = dict[str, "Bounds | IndexSpan"]
_FAR = 1 << 22  # values that are tried one by one, at most


class Ranged(Struct, frozen=True):
    """A statement without `...`, and the range of every index in it, its loops' and its inline reductions' too."""

    flat: Flat
    ranges: IndexSpans
    stated: Mapping[str, tuple[str, int]]  # the tensor and the extent of an index's bare subscripts


class _RankedAccess(Struct, frozen=True):
    tensor: str
    subscript: Expr
    extent: int
    padded: bool
    conditions: tuple[Expr, ...] = ()

    @property
    def bare(self) -> str | None:
        return self.subscript.name if isinstance(self.subscript, IndexExpr) else None


def resolve(
    flats: list[Flat], arguments: Mapping[str, Shape], declared: Mapping[str, Shape], sizes: Mapping[str, int]
) -> tuple[list[Ranged], dict[str, Shape]]:
    """Return the ranges of all statements and the shape of every tensor."""
    done: dict[int, Ranged] = {}
    shapes = {**declared, **arguments}
    late = [
        {r.tensor for r in f.reads()} & {g.statement.target for g in flats[n:]} - arguments.keys()
        for n, f in enumerate(flats)
    ]

    def solve(n: int) -> None:
        before = {t: declared[t] if t in declared else _before(flats, done, shapes, sizes, n, t) for t in late[n]}
        done[n] = _ranged(flats[n], shapes, {t: s for t, s in before.items() if s is not None}, late[n], sizes)
        _settle(flats, done, shapes, sizes)

    while len(done) < len(flats):
        waiting = [n for n in range(len(flats)) if n not in done]
        ready = [n for n in waiting if {r.tensor for r in flats[n].reads()} <= shapes.keys()]
        solve((ready or waiting)[0])
    for n in range(len(flats)):
        _agree(done, n, late[n], shapes)
    return [done[n] for n in range(len(flats))], shapes


def _settle(flats: list[Flat], done: dict[int, Ranged], shapes: dict[str, Shape], sizes: Mapping[str, int]) -> None:
    """Add the shapes of tensors whose defining statements are all ranged."""
    for name in {f.statement.target for f in flats} - shapes.keys():
        mine = [n for n, f in enumerate(flats) if f.statement.target == name]
        if all(n in done for n in mine):
            shapes[name] = _shape(name, [done[n] for n in mine], sizes)


def _before(
    flats: list[Flat], done: dict[int, Ranged], shapes: dict[str, Shape], sizes: Mapping[str, int], at: int, name: str
) -> Shape | None:
    """Return a tensor's shape as far as the statements before `at` define it; the whole one where none does."""
    mine = [done[n] for n in range(at) if n in done and flats[n].statement.target == name]
    return _shape(name, mine, sizes) if mine else shapes.get(name)


def _shape(name: str, statements: list[Ranged], sizes: Mapping[str, int]) -> Shape:
    ranks = {len(r.flat.statement.subscripts) for r in statements}
    if len(ranks) > 1:
        raise failure(RANK, tensor=name, found=max(ranks), wanted=min(ranks))
    out = []
    for dim in range(ranks.pop()):
        largest = [_largest(r, dim, sizes) for r in statements]
        known = [m for m in largest if m is not None]
        if not known and any(gathers(r.flat.statement.subscripts[dim]) for r in statements):
            raise failure(UNDECLARED, span=statements[0].flat.statement.target_span, tensor=name)
        out.append(max([0, *(m + 1 for m in known)]))
    return tuple(out)


def _largest(ranged: Ranged, dim: int, sizes: Mapping[str, int]) -> int | None:
    """Return the largest value of a subscript of the target, None for none and for a gather.

    It is taken over the indices that decide it: its own, those that their ranges and `where` conditions relate them to.
    Conditions on reduced indices do not count: a reduction over nothing has its whole output.
    """
    subscript, flat = ranged.flat.statement.subscripts[dim], ranged.flat
    if gathers(subscript):
        return None
    kept = {*flat.left, *(r.index for r in flat.loops)}
    related = set(closure(indices_of(subscript), ranged.ranges))
    conditions = [(c, set(indices_of(c))) for c in _conjuncts(flat.statement.conditions)]
    conditions = [(c, names) for c, names in conditions if names <= kept]
    for _ in conditions:
        for _, names in conditions:
            if names & related:
                related |= set(closure(sorted(names), ranged.ranges))
    tests = [c for c, names in conditions if names <= related]
    extremes = _extremes(subscript, ranged.ranges, sizes, tests)
    return None if extremes is None else extremes[1]


def _conjuncts(conditions: Sequence[Expr]) -> list[Expr]:
    """Return the conditions on indices and sizes, split at `and`."""
    out: list[Expr] = []
    for c in conditions:
        out += _conjuncts(c.args) if isinstance(c, Call) and c.op == "and" else [c]
    return [c for c in out if not reads_values(c)]


def _extremes(
    expr: Expr, ranges: IndexSpans, sizes: Mapping[str, int], tests: Sequence[Expr] = ()
) -> tuple[int, int] | None:
    """Return the least and the largest value of an expression over the points that pass the tests, if any."""
    names = closure([n for e in (expr, *tests) for n in indices_of(e)], ranges)
    spans = [ranges[n] for n in names]
    line = affine(expr, sizes)
    if line is not None and not tests and not any(isinstance(s, Bounds) and s.needs for s in spans):
        low = high = line[1]
        for n, s in zip(names, spans, strict=True):
            taken = range(s.lo({}), s.hi({})) if isinstance(s, Bounds) else s
            if not len(taken):
                return None
            ends = [line[0].get(n, 0) * v for v in (taken[0], taken[-1])]
            low, high = low + min(ends), high + max(ends)
        return low, high
    value, passes = integer(expr, sizes), [integer(t, sizes) for t in tests]
    here: Env = {}
    found = [value(here) for _ in points(names, ranges, here) if all(p(here) for p in passes)]
    return (min(found), max(found)) if found else None


def _ranged(
    flat: Flat, shapes: Mapping[str, Shape], before: Mapping[str, Shape], late: set[str], sizes: Mapping[str, int]
) -> Ranged:
    """Infer a statement's ranges; reads of tensors in `late`, of shapes `before`, bound what nothing else does."""
    if has_dots(flat):
        flat = expand_dots(flat, {**before, **shapes})
    target = Read(flat.statement.target, flat.statement.subscripts, span=flat.statement.target_span)
    reads = list(flat.guarded_reads())
    first = [(r, c) for r, c in reads if r.tensor not in late] + [(target, flat.statement.conditions)]
    return _infer(flat, _accesses(first, shapes), _accesses([g for g in reads if g[0].tensor in late], before), sizes)


def _accesses(reads: Sequence[tuple[Read, tuple[Expr, ...]]], shapes: Mapping[str, Shape]) -> list[_RankedAccess]:
    out = []
    for read, conditions in reads:
        shape = shapes.get(read.tensor)
        if shape is None:
            continue
        if len(shape) != len(read.subscripts):
            raise failure(RANK, span=read.span, tensor=read.tensor, found=len(shape), wanted=len(read.subscripts))
        out += [
            _RankedAccess(read.tensor, s, e, read.pad is not None, conditions)
            for s, e in zip(read.subscripts, shape, strict=True)
        ]
    return [a for a in out if not gathers(a.subscript)]


def _infer(flat: Flat, accesses: list[_RankedAccess], late: list[_RankedAccess], sizes: Mapping[str, int]) -> Ranged:
    """Find the ranges round by round, from the accesses, the padded ones, the late ones and the padded of these."""
    ranges: IndexSpans = {n: bounds_of(r, sizes) for n, r in flat.explicit().items()}
    ranges.update({n: range(e) for n, e in flat.batch})
    names = dict.fromkeys((*flat.order, *(r.index for r in flat.inline())))
    open_ = [n for n in names if n not in ranges]
    stated: dict[str, tuple[str, int]] = {}
    while open_:
        for some, padded in ((accesses, False), (accesses, True), (late, False), (late, True)):
            chosen = [a for a in some if a.padded == padded]
            found = _bare(open_, chosen, stated)
            settled = set(found) or set(open_)
            for a in () if padded else chosen:
                bound = _bound(a, open_, ranges, sizes, stated) if a.bare is None else None
                if bound is not None and bound[0] in settled:
                    found.setdefault(bound[0], []).append(bound[1])
            if found:
                break
        else:
            raise failure(NO_RANGE, span=flat.statement.span, index=open_[0].split("'")[0])
        ranges.update({n: _intersect(spans) for n, spans in found.items()})
        open_ = [n for n in open_ if n not in found]
    return Ranged(flat, ranges, stated)


def _bare(
    open_: list[str], accesses: list[_RankedAccess], stated: dict[str, tuple[str, int]]
) -> dict[str, list[IndexSpan]]:
    """Return the extents of bare subscripts, which agree, as the spans of their indices; adds them to `stated`."""
    out: dict[str, list[IndexSpan]] = {}
    for a in accesses:
        if a.bare is not None and a.bare in open_:
            tensor, extent = stated.setdefault(a.bare, (a.tensor, a.extent))
            if extent != a.extent:
                raise _disagreement(a.bare, tensor, extent, a.tensor, a.extent)
            out[a.bare] = [range(extent)]
    return out


def _disagreement(index: str, tensor1: str, first: int, tensor2: str, second: int) -> Exception:
    return failure(DISAGREE, index=index.split("'")[0], first=first, tensor1=tensor1, second=second, tensor2=tensor2)


def _bound(
    a: _RankedAccess,
    open_: list[str],
    ranges: IndexSpans,
    sizes: Mapping[str, int],
    stated: Mapping[str, tuple[str, int]],
) -> tuple[str, IndexSpan] | None:
    """Return the one open index of a subscript with the values for which all others are in bounds.

    `stated`: the extents of indices that stand alone somewhere: of their values a condition says which others it admits.
    """
    mine = indices_of(a.subscript)
    unknown = [n for n in mine if n in open_]
    if len(unknown) != 1:
        return None
    x = unknown[0]
    others = [n for n in mine if n != x]
    names = closure(others, ranges)
    if any(n in open_ and n != x for n in names):
        return None
    tests = [c for c in _conjuncts(a.conditions) if indices_of(c) and set(indices_of(c)) <= set(names) - {x}]
    if x in stated:
        both = [c for c in _conjuncts(a.conditions) if indices_of(c) and set(indices_of(c)) <= {*names, x}]
        if len(both) > len(tests):
            return _admitted(a, x, stated[x][1], both, ranges, sizes)
    line = affine(a.subscript, sizes)
    if line is None or x in names:
        return _scan(a, x, others, ranges, sizes)
    rest = _extremes(_without(a.subscript, x), ranges, sizes, tests)
    if rest is None or not line[0].get(x):
        return None
    c, (low, high) = line[0][x], rest
    if c > 0:
        return x, range(-(low // c), (a.extent - 1 - high) // c + 1)
    return x, range(-((a.extent - 1 - high) // -c), low // -c + 1)


def _admitted(
    a: _RankedAccess, x: str, extent: int, tests: list[Expr], ranges: IndexSpans, sizes: Mapping[str, int]
) -> tuple[str, IndexSpan] | None:
    """Return the values of `x` below an extent for which a subscript is in bounds wherever the tests hold; None: for all."""
    value, passes = integer(a.subscript, sizes), [integer(t, sizes) for t in tests]
    names = closure([n for e in (a.subscript, *tests) for n in indices_of(e) if n != x], ranges)

    def fits(at: int) -> bool:
        env: Env = {x: at}
        return all(
            0 <= value(env) < a.extent for _ in points(names, ranges, env) if all(passed(env) for passed in passes)
        )

    found = [v for v in range(extent) if fits(v)]
    if len(found) == extent:
        return None
    whole = range(found[0], found[-1] + 1) if found else range(0)
    return x, whole if len(whole) == len(found) else found


def _without(expr: Expr, name: str) -> Expr:
    """Return the expression with an index put to zero."""
    match expr:
        case IndexExpr(name=n) if n == name:
            return Literal(0)
        case Call(op=op, args=args):
            return Call(op, tuple(_without(e, name) for e in args))
    return expr


def _scan(
    a: _RankedAccess, x: str, others: list[str], ranges: IndexSpans, sizes: Mapping[str, int]
) -> tuple[str, IndexSpan] | None:
    """Find the values of `x` by bisection where the subscript rises or falls, else by trial up to where only the unbounded go."""
    value = integer(a.subscript, sizes)
    if x not in closure(others, ranges):
        rest = _extremes(_without(a.subscript, x), ranges, sizes)
        direction = _direction(a.subscript, x, sizes)
        if rest is None or direction == 0:
            return None
        if direction is not None:
            return x, _between(value, a.extent, x, direction, others, ranges)
        reach = a.extent + 2 + max(map(abs, rest))
    else:
        reach = a.extent + 2
    steps = 1
    for e in walk(a.subscript):
        if isinstance(e, Call) and e.op in ("floordiv", "mod"):
            steps *= max(1, abs(integer(e.args[-1], sizes)({})))
    far = steps * (reach + 1)
    if far > _FAR:
        return None
    fits = [v for v in range(-far, far + 1) if _all_inside(value, a.extent, others, ranges, {x: v})]
    if fits and (fits[0] == -far or fits[-1] == far):
        return None
    whole = range(fits[0], fits[-1] + 1) if fits else range(0)
    return x, whole if len(whole) == len(fits) else fits


def _direction(expr: Expr, x: str, sizes: Mapping[str, int]) -> int | None:
    """Return 1 where an expression never falls as `x` rises, -1 where it never rises, 0 without `x`, None otherwise."""
    if x not in indices_of(expr):
        return 0
    match expr:
        case IndexExpr():
            return 1
        case Call(op="neg", args=(arg,)):
            inner = _direction(arg, x, sizes)
            return None if inner is None else -inner
        case Call(op="add", args=args):
            found = {_direction(arg, x, sizes) for arg in args} - {0}
            return found.pop() if len(found) == 1 else None
        case Call(op="mul", args=args):
            factor = 1
            for arg in args:
                if not indices_of(arg):
                    factor *= integer(arg, sizes)({})
            inner = _direction(next(arg for arg in args if indices_of(arg)), x, sizes)
            return None if inner is None else inner * ((factor > 0) - (factor < 0))
        case Call(op="floordiv", args=(arg, *_)):
            return _direction(arg, x, sizes)
    return None


def _between(
    value: Callable[[Env], int], extent: int, x: str, direction: int, others: list[str], ranges: IndexSpans
) -> range:
    """Return the values of `x` for which a subscript that rises or falls with it is in bounds, by bisection."""

    def values(at: int) -> list[int]:
        env: Env = {x: direction * at}
        return [value(env) for _ in points(others, ranges, env)]

    first = _first(lambda at: min(values(at)) >= 0)
    end = _first(lambda at: max(values(at)) >= extent)
    return range(first, end) if direction > 0 else range(1 - end, 1 - first)


def _first(holds: Callable[[int], bool]) -> int:
    """Return the least integer from which on a condition holds that fails far below."""
    step = 1
    while holds(-step) or not holds(step):
        step *= 2
    low, high = -step, step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _all_inside(value: Callable[[Env], int], extent: int, others: list[str], ranges: IndexSpans, env: Env) -> bool:
    inside = [0 <= value(env) < extent for _ in points(others, ranges, env)]
    return all(inside)


def _intersect(spans: list[IndexSpan]) -> IndexSpan:
    if all(isinstance(s, range) and s.step == 1 for s in spans):
        low, high = max(s.start for s in spans), min(s.stop for s in spans)  # type: ignore[attr-defined]
        return range(low, max(low, high))
    return sorted(set(spans[0]).intersection(*spans[1:]))


def _agree(done: dict[int, Ranged], n: int, late: set[str], shapes: Mapping[str, Shape]) -> None:
    """Check the bare subscripts of tensors that were not whole, but where an offset or a stride decides the extent."""
    for read in done[n].flat.reads():
        shape = shapes[read.tensor]
        if len(shape) != len(read.subscripts):
            raise failure(RANK, span=read.span, tensor=read.tensor, found=len(shape), wanted=len(read.subscripts))
        targets = [r.flat.statement.subscripts for r in done.values() if r.flat.statement.target == read.tensor]
        for d, (s, extent) in enumerate(zip(read.subscripts, shape, strict=True)):
            if read.tensor not in late or not isinstance(s, IndexExpr) or read.pad is not None:
                continue
            plain = all(isinstance(t[d], IndexExpr) or not indices_of(t[d]) for t in targets)
            tensor, stated = done[n].stated.get(s.name, ("", extent))
            if plain and stated != extent:
                raise _disagreement(s.name, tensor, stated, read.tensor, extent)
