"""Merging dimensions: two indices that always walk two neighbouring dimensions together become one.

Before: `O[f,h,w] += W[f,c] * X[c,h,w]` with h in 0:14, w in 0:14. After: `O[f,q] += W[f,c] * X[c,q]` with q in 0:196. The
memory of the tensors is the same. There are fewer loops, and vectors need not end where a short row ends. The rewrite is for
dense tensors of fixed sizes; a pair is merged only if every access in the program walks it in that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import islpy as isl

from polyker.ir.expr import Expr, Index, Literal, Read, transform, walk
from polyker.ir.quasi_affine import add, is_quasi_affine, lit, scale
from polyker.ir.typed import Role, TypedProgram, TypedStatement, replaced
from polyker.poly.boxes import free_range
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import domain_text

Pair = tuple[str, int]  # a tensor, and the first of two neighbouring dimensions


def merge_dimensions(program: TypedProgram, is_dense: Callable[[str], bool]) -> TypedProgram:
    """Return the program with all pairs of dimensions merged that can be; `is_dense`: whether a tensor's memory has no gaps."""
    while not program.sizes:
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
    return program


def _candidates(program: TypedProgram, is_dense: Callable[[str], bool]) -> set[Pair]:
    """Return the pairs of dimensions that every access subscripts by two indices of their own."""
    pairs = {
        (t.name, d)
        for t in program.tensors
        if is_dense(t.name) and all(isinstance(e, Literal) for e in t.shape)
        for d in range(len(t.shape) - 1)
    }
    for s in program.statements():
        for tensor, subscripts, plain in _accesses(s):
            for d in range(len(subscripts) - 1):
                first, second = subscripts[d], subscripts[d + 1]
                names = [e.name for e in (first, second) if isinstance(e, Index) and e.name in s.iterators[s.outer :]]
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
        if (tensor, d) in pairs and isinstance(a, Index) and isinstance(b, Index)
    }


def _agrees(
    program: TypedProgram, statement: TypedStatement, pair: Pair, pairs: set[Pair], walks: set[tuple[str, str]]
) -> bool:
    """Whether a statement walks a pair of dimensions, where it has the tensor, by iterators that it uses in no other way."""
    tensor, d = pair
    if _fills_temporary(program, statement, tensor):
        return True
    for name, subscripts, _ in _accesses(statement):
        if name == tensor:
            first, second = subscripts[d], subscripts[d + 1]
            if not isinstance(first, Index) or not isinstance(second, Index):
                return False
            if not _is_pair(statement, first.name, second.name, pairs, walks):
                return False
            if not _fills(program, statement, first.name, second.name, pair):
                return False
    return True


def _fills_temporary(program: TypedProgram, statement: TypedStatement, tensor: str) -> bool:
    """Whether a statement only writes a temporary: where its own iterators stay apart it writes cell `width*x + y`."""
    reads = {t for t, _, _ in list(_accesses(statement))[1:]}
    temporary = program.tensor(tensor).role is Role.TEMPORARY
    return temporary and statement.op == "set" and statement.target == tensor and tensor not in reads


def _is_pair(statement: TypedStatement, x: str, y: str, pairs: set[Pair], walks: set[tuple[str, str]]) -> bool:
    """Whether two iterators stand side by side, at a pair of dimensions, in every access that has one of them."""
    if any((x == a) != (y == b) for a, b in walks):
        return False
    at = statement.iterators.index
    if statement.target in {t for t, _, _ in list(_accesses(statement))[1:]} and at(y) != at(x) + 1:
        return False  # the order of the instances matters
    used = 0
    for tensor, subscripts, _ in _accesses(statement):
        names = [s.name if isinstance(s, Index) else None for s in subscripts]
        if x in names or y in names:
            if names.count(x) != 1 or names.count(y) != 1 or names.index(y) != names.index(x) + 1:
                return False
            if (tensor, names.index(x)) not in pairs:
                return False
            used += 2
    occurrences = sum(
        isinstance(e, Index) and e.name in (x, y)
        for tree in (statement.expr, *statement.subscripts)
        for e in walk(tree)
    )
    return occurrences == used


def _fills(program: TypedProgram, statement: TypedStatement, x: str, y: str, pair: Pair) -> bool:
    """Whether the iterators run, free of the others, over the whole of the second dimension and over a range of the first."""
    domain = read_set(statement.domain)
    tensor, d = pair
    width = program.tensor(tensor).shape[d + 1]
    assert isinstance(width, Literal)
    at = {i: n for n, i in enumerate(statement.iterators)}
    whole = (0, int(width.value.real) - 1)
    return free_range(domain, at[y]) == whole and free_range(domain, at[x]) is not None


def _apart(pairs: set[Pair]) -> set[Pair]:
    """Return pairs of which no two share a dimension: the innermost of each run of them, in all tensors alike."""
    return {(t, d) for t, d in pairs if (t, d + 1) not in pairs}


def _merged(program: TypedProgram, pairs: set[Pair]) -> TypedProgram:
    widths: dict[Pair, int] = {}
    tensors = []
    for t in program.tensors:
        shape = list(t.shape)
        for d in sorted((d for name, d in pairs if name == t.name), reverse=True):
            a, b = shape[d], shape[d + 1]
            assert isinstance(a, Literal)
            assert isinstance(b, Literal)
            widths[t.name, d] = int(b.value.real)
            shape[d : d + 2] = [lit(int(a.value.real) * int(b.value.real))]
        tensors.append(replace(t, shape=tuple(shape)))
    body = replaced(program.body, lambda s: [_statement(program, s, pairs, widths)])
    return replace(program, tensors=tuple(tensors), body=body)


def _statement(
    program: TypedProgram, statement: TypedStatement, pairs: set[Pair], widths: dict[Pair, int]
) -> TypedStatement:
    walks = _walks(statement, pairs)

    def joins(x: str, y: str, pair: Pair) -> bool:
        return _is_pair(statement, x, y, pairs, walks) and _fills(program, statement, x, y, pair)

    merged: dict[str, tuple[str, int]] = {}  # first iterator -> second, and its extent
    for tensor, subscripts, _ in _accesses(statement):
        for d in range(len(subscripts) - 1):
            a, b = subscripts[d], subscripts[d + 1]
            if (tensor, d) not in pairs or not isinstance(a, Index) or not isinstance(b, Index):
                continue
            if joins(a.name, b.name, (tensor, d)):
                merged[a.name] = (b.name, widths[tensor, d])
    second = {y for y, _ in merged.values()}
    iterators = tuple(i for i in statement.iterators if i not in second)

    def joined(tensor: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        found: list[Expr] = []
        for d, s in enumerate(subscripts):
            if (tensor, d - 1) not in pairs:
                found.append(s)
            elif not (isinstance(s, Index) and s.name in second):
                found[-1] = add(scale(widths[tensor, d - 1], found[-1]), s)
        return tuple(found)

    def change(e: Expr) -> Expr:
        return replace(e, subscripts=joined(e.tensor, e.subscripts)) if isinstance(e, Read) else e

    places = []
    for i in iterators:
        places.append(f"{merged[i][1]}*{i} + {merged[i][0]}" if i in merged else i)
    onto = read_map(f"{{ {statement.name}[{', '.join(statement.iterators)}] -> [{', '.join(places)}] }}")
    return replace(
        statement,
        iterators=iterators,
        domain=domain_text(read_set(statement.domain).apply(onto).coalesce(), statement.name),
        subscripts=joined(statement.target, tuple(transform(s, change) for s in statement.subscripts)),
        expr=transform(statement.expr, change),
        reduced=tuple(i for i in statement.reduced if i not in second),
        defines=None if statement.defines is None else _defines(statement, pairs, widths),
    )


def _defines(statement: TypedStatement, pairs: set[Pair], widths: dict[Pair, int]) -> str:
    cells = read_set(statement.defines or "")
    names = [f"a{d}" for d in range(cells.dim(isl.dim_type.set))]
    places: list[str] = []
    for d, name in enumerate(names):
        if (statement.target, d - 1) in pairs:
            places[-1] = f"{widths[statement.target, d - 1]}*{places[-1]} + {name}"
        else:
            places.append(name)
    onto = read_map(f"{{ {statement.target}[{', '.join(names)}] -> {statement.target}[{', '.join(places)}] }}")
    return str(cells.apply(onto).coalesce())
