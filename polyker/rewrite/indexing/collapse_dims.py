"""Collapse two dimensions, and their indices, that are always traversed together.

Before: `O[f,h,w] += W[f,c] * X[c,h,w]` with h in 0:14, w in 0:14. After: `O[f,q] += W[f,c] * X[c,q]` with q in 0:196. The
memory of the tensors is the same. There are fewer loops, and vectors need not end where a short row ends. The rewrite is for
dense tensors; a pair is merged only if every access in the program walks it in that way. The extent of two dimensions of
symbolic sizes is a size of its own, their product, which the call computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import count, pairwise

from msgspec import Struct

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Literal, Read, SizeExpr, transform, walk
from polyker.ir.quasi_affine import add, is_quasi_affine, print_affine, scale
from polyker.ir.typed import Role, TypedProgram, TypedStatement, replaced
from polyker.poly.boxes import along, free_range
from polyker.poly.isl import Set, dim, read_map, read_set
from polyker.poly.scop import domain_text, parameters
from polyker.structs import replace

Pair = tuple[str, int]  # a tensor, and the first of two neighbouring dimensions


def merge_dimensions(program: TypedProgram, is_dense: Callable[[str], bool]) -> TypedProgram:
    """Return the program with all pairs of dimensions merged that can be; `is_dense`: whether a tensor's memory has no gaps."""
    while True:
        pairs = _candidates(program, is_dense)
        walks = {s.name: _walks(s, pairs) for s in program.statements()}
        while True:
            # What one statement does not walk as a pair is no pair anywhere; then others may lose theirs.
            lost = {p for p in pairs for s in program.statements() if not _agrees(program, s, p, pairs, walks[s.name])}
            if not lost:
                break
            pairs -= lost
            walks = {s.name: _walks(s, pairs) for s in program.statements()}
        chosen = _apart(pairs)
        if not chosen:
            return program
        program = _merged(program, chosen)


def _candidates(program: TypedProgram, is_dense: Callable[[str], bool]) -> set[Pair]:
    """Return the pairs of dimensions that every access subscripts by two indices of their own."""
    pairs = {
        (t.name, d)
        for t in program.tensors
        if is_dense(t.name)
        for d, extents in enumerate(pairwise(t.shape))
        if all(isinstance(e, Literal | SizeExpr) for e in extents)
    }
    for s in program.statements():
        for tensor, subscripts, plain in _accesses(s):
            for d in range(len(subscripts) - 1):
                first, second = subscripts[d], subscripts[d + 1]
                names = [
                    e.name for e in (first, second) if isinstance(e, IndexExpr) and e.name in s.iterators[s.outer :]
                ]
                if not plain or len(set(names)) < 2:
                    pairs.discard((tensor, d))
    return pairs


def _accesses(statement: TypedStatement) -> Iterator[tuple[str, tuple[Expr, ...], bool]]:
    """Yield (tensor, subscripts, whether it is neither padded nor gathered) of each access."""
    yield statement.target, statement.subscripts, all(map(is_quasi_affine, statement.subscripts))
    for r in statement.reads():
        yield r.tensor, r.subscripts, r.pad is None and all(map(is_quasi_affine, r.subscripts))


def _walks(statement: TypedStatement, pairs: set[Pair]) -> set[tuple[str, str]]:
    """Return the pairs of a statement's iterators that walk pairs of dimensions."""
    return {
        (a.name, b.name)
        for tensor, subscripts, _ in _accesses(statement)
        for d, (a, b) in enumerate(pairwise(subscripts))
        if (tensor, d) in pairs and isinstance(a, IndexExpr) and isinstance(b, IndexExpr)
    }


def _agrees(
    program: TypedProgram, statement: TypedStatement, pair: Pair, pairs: set[Pair], walks: set[tuple[str, str]]
) -> bool:
    """Whether a statement walks a pair of dimensions, where it has the tensor, by iterators that it uses in no other way."""
    tensor, d = pair
    fixed = isinstance(program.tensor(tensor).shape[d + 1], Literal)
    if fixed and _fills_temporary(program, statement, tensor):
        return True
    if statement.target == tensor and statement.defines is not None and not _covers(program, statement.defines, pair):
        return False
    for name, subscripts, _ in _accesses(statement):
        if name == tensor:
            first, second = subscripts[d], subscripts[d + 1]
            if not isinstance(first, IndexExpr) or not isinstance(second, IndexExpr):
                return False
            if not _is_pair(statement, first.name, second.name, pairs, walks):
                return False
            if not _fills(program, statement, first.name, second.name, pair):
                return False
    return True


def _fills_temporary(program: TypedProgram, statement: TypedStatement, tensor: str) -> bool:
    """Whether a statement only writes a temporary: where its own iterators stay apart it writes element `width*x + y`."""
    reads = {t for t, _, _ in list(_accesses(statement))[1:]}
    temporary = program.tensor(tensor).role is Role.TEMPORARY
    return temporary and statement.op == "set" and statement.target == tensor and tensor not in reads


def _is_pair(statement: TypedStatement, x: str, y: str, pairs: set[Pair], walks: set[tuple[str, str]]) -> bool:
    """Whether two iterators stand side by side, at a pair of dimensions, in every access that has one of them."""
    if any((x == a) != (y == b) for a, b in walks):
        return False
    at = statement.iterators.index
    if statement.is_ordered and at(y) != at(x) + 1:
        return False  # the order of the instances matters
    used = 0
    for tensor, subscripts, _ in _accesses(statement):
        names = [s.name if isinstance(s, IndexExpr) else None for s in subscripts]
        if x in names or y in names:
            if names.count(x) != 1 or names.count(y) != 1 or names.index(y) != names.index(x) + 1:
                return False
            if (tensor, names.index(x)) not in pairs:
                return False
            used += 2
    occurrences = sum(
        isinstance(e, IndexExpr) and e.name in (x, y)
        for tree in (statement.expr, *statement.subscripts)
        for e in walk(tree)
    )
    return occurrences == used


def _fills(program: TypedProgram, statement: TypedStatement, x: str, y: str, pair: Pair) -> bool:
    """Whether the iterators run, free of the others, over the whole of the second dimension and over a range of the first.

    Of unknown sizes that is to be the whole of the first, too.
    """
    domain = read_set(statement.domain)
    rows, width = _extents(program, pair)
    at = {i: n for n, i in enumerate(statement.iterators)}
    if isinstance(rows, Literal) and isinstance(width, Literal):
        whole = (0, int(width.value.real) - 1)
        return free_range(domain, at[y]) == whole and free_range(domain, at[x]) is not None
    return _runs(program, domain, at[x], rows) and _runs(program, domain, at[y], width)


def _covers(program: TypedProgram, elements: str, pair: Pair) -> bool:
    """Whether elements of a tensor are known to run over both dimensions of a pair, where their extents are unknown."""
    rows, width = _extents(program, pair)
    if isinstance(rows, Literal) and isinstance(width, Literal):
        return True
    found, d = read_set(elements), pair[1]
    return _runs(program, found, d, rows) and _runs(program, found, d + 1, width)


def _runs(program: TypedProgram, points: Set, dimension: int, extent: Expr) -> bool:
    inside = points.intersect_params(read_set(program.context))
    whole = along(inside, dimension, read_set(f"{parameters(program)}{{ [x] : 0 <= x < {print_affine(extent)} }}"))
    return bool(whole.is_subset(inside) and inside.is_subset(whole))


def _extents(program: TypedProgram, pair: Pair) -> tuple[Expr, Expr]:
    tensor, d = pair
    rows, width = program.tensor(tensor).shape[d : d + 2]
    return rows, width


def _apart(pairs: set[Pair]) -> set[Pair]:
    """Return pairs of which no two share a dimension: the innermost of each run of them, in all tensors alike."""
    return {(t, d) for t, d in pairs if (t, d + 1) not in pairs}


def _merged(program: TypedProgram, pairs: set[Pair]) -> TypedProgram:
    extents = {p: _extents(program, p) for p in sorted(pairs)}
    made = program
    merged: dict[Pair, Expr] = {}
    for pair, (rows, width) in extents.items():
        made, merged[pair] = _product(made, rows, width)
    tensors = []
    for t in program.tensors:
        shape = list(t.shape)
        for d in sorted((d for name, d in pairs if name == t.name), reverse=True):
            shape[d : d + 2] = [merged[t.name, d]]
        tensors.append(replace(t, shape=tuple(shape)))
    merges = {s.name: _Merge(program, made, s, extents, merged) for s in program.statements()}
    body = replaced(program.body, lambda s: [merges[s.name].statement()])
    return replace(made, tensors=tuple(tensors), body=body, labels=_joined_labels(program, list(merges.values())))


def _joined_labels(program: TypedProgram, merges: list[_Merge]) -> tuple[tuple[str, str], ...]:
    """Return the labels of iterators; one that stands for two in all its statements is called by both their names."""
    labels = dict(program.labels)
    taken = {*labels.values(), *(t.label for t in program.tensors), *(label for _, label in program.sizes)}
    for first in dict.fromkeys(x for m in merges for x in m.joined):
        seconds = {m.joined[first][0] if first in m.joined else "" for m in merges if first in m.old.iterators}
        names = [dict(program.labels).get(i, "") for i in (first, *seconds)]
        if len(names) == 2 and all(names):
            name = "_".join(names)
            while name in taken:
                name += "_"
            labels[first] = name
    return tuple(labels.items())


def _product(program: TypedProgram, a: Expr, b: Expr) -> tuple[TypedProgram, Expr]:
    """Return the product of two extents, and the program with a size for it where neither is a number."""
    if isinstance(a, Literal):
        return program, scale(int(a.value.real), b)
    if isinstance(b, Literal):
        return program, scale(int(b.value.real), a)
    assert isinstance(a, SizeExpr)
    assert isinstance(b, SizeExpr)
    factors = a.name, b.name
    known = next((n for n, f in program.products if sorted(f) == sorted(factors)), None)
    if known is None:
        labels = dict(program.sizes)
        known = next(n for k in count(len(labels)) if (n := f"n{k}") not in labels)
        head = ", ".join([*labels, known])
        context = read_set(program.context).intersect(read_set(f"[{head}] -> {{ : {known} >= 0 }}"))
        expected = dict(program.likely)
        likely = ((known, expected[a.name] * expected[b.name]),) if {*factors} <= {*expected} else ()
        program = replace(
            program,
            sizes=(*program.sizes, (known, f"{labels[a.name]}*{labels[b.name]}")),
            products=(*program.products, (known, factors)),
            likely=(*program.likely, *likely),
            context=str(context),
        )
    return program, SizeExpr(known, i64)


class _Merge(Struct, frozen=True, dict=True):
    """Merges the pairs in one statement: `extents` are those of the two dimensions, `merged` that of the one; `made`: the
    program with the sizes that these have."""

    program: TypedProgram
    made: TypedProgram
    old: TypedStatement
    extents: Mapping[Pair, tuple[Expr, Expr]]
    merged: Mapping[Pair, Expr]

    @cached_property
    def joined(self) -> Mapping[str, tuple[str, Pair]]:
        """The iterators that are the first of two that become one, with the second and the pair that they walk."""
        pairs = set(self.merged)
        walks = _walks(self.old, pairs)
        found: dict[str, tuple[str, Pair]] = {}
        for tensor, subscripts, _ in _accesses(self.old):
            for d, (a, b) in enumerate(pairwise(subscripts)):
                if (tensor, d) not in pairs or not isinstance(a, IndexExpr) or not isinstance(b, IndexExpr):
                    continue
                if _is_pair(self.old, a.name, b.name, pairs, walks) and _fills(
                    self.program, self.old, a.name, b.name, (tensor, d)
                ):
                    found[a.name] = b.name, (tensor, d)
        return found

    def statement(self) -> TypedStatement:
        """Return the statement with one iterator and one subscript for each pair."""
        old, second = self.old, {y for y, _ in self.joined.values()}

        def change(e: Expr) -> Expr:
            return replace(e, subscripts=self.subscripts(e.tensor, e.subscripts)) if isinstance(e, Read) else e

        made = old.rewritten(lambda e: transform(e, change))
        return replace(
            made,
            iterators=tuple(i for i in old.iterators if i not in second),
            domain=self.domain(),
            subscripts=self.subscripts(old.target, made.subscripts),
            reduced=tuple(i for i in old.reduced if i not in second),
            defines=None if old.defines is None else self.defines(),
        )

    def subscripts(self, tensor: str, before: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return the subscripts of an access."""
        found: list[Expr] = []
        for d, s in enumerate(before):
            pair, first = (tensor, d - 1), before[d - 1]
            if pair not in self.merged:
                found.append(s)
            elif not (isinstance(first, IndexExpr) and first.name in self.joined):
                width = self.extents[pair][1]
                assert isinstance(width, Literal)
                found[-1] = add(scale(int(width.value.real), found[-1]), s)
        return tuple(found)

    def domain(self) -> str:
        """Return the domain over the iterators that are left."""
        whole = read_set(self.old.domain)
        points, names = whole, list(self.old.iterators)
        for x, (y, pair) in self.joined.items():
            interval = self.interval(whole, self.old.iterators.index(x), pair)
            points = points.project_out(dim.set, names.index(y), 1)
            names.remove(y)
            points = along(points, names.index(x), interval)
        return domain_text(points.coalesce(), self.old.name)

    def interval(self, points: Set, dimension: int, pair: Pair) -> Set:
        """Return the values that the one iterator takes for which a dimension of the points was the first of two."""
        rows, width = self.extents[pair]
        if isinstance(rows, Literal) and isinstance(width, Literal):
            found = free_range(points, dimension)
            assert found is not None
            step = int(width.value.real)
            return read_set(f"{{ [x] : {step * found[0]} <= x < {step * (found[1] + 1)} }}")
        return read_set(f"{parameters(self.made)}{{ [x] : 0 <= x < {print_affine(self.merged[pair])} }}")

    def defines(self) -> str:
        """Return the elements that start at the identity, with one dimension for each pair."""
        elements = read_set(self.old.defines or "")
        for d in reversed(range(elements.dim(dim.set) - 1)):
            pair = self.old.target, d
            if pair not in self.merged:
                continue
            rows, width = self.extents[pair]
            if isinstance(rows, Literal) and isinstance(width, Literal):
                names = [f"a{n}" for n in range(elements.dim(dim.set))]
                places = [*names[:d], f"{int(width.value.real)}*a{d} + a{d + 1}", *names[d + 2 :]]
                onto = f"{{ [{', '.join(names)}] -> [{', '.join(places)}] }}"
                elements = elements.reset_tuple_id().apply(read_map(onto))
            else:
                elements = along(elements.project_out(dim.set, d + 1, 1), d, self.interval(elements, d, pair))
        return str(elements.coalesce().set_tuple_name(self.old.target))
