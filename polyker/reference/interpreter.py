"""The plain interpreter: a program's statement instances, one at a time, in the order of the notation.

It is the oracle that compiled code is compared with, so it shares nothing with the compiler but the Program, the
element types and the error classes. It is slow, and meant to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from polyker.errors import failure
from polyker.errors.reference import ARGUMENT, MISSING, NEVER_WRITTEN, OPERANDS, RANK, SIZE
from polyker.ir import dtypes as dt
from polyker.ir.dtypes import DType
from polyker.ir.expr import Expr, Read, SizeExpr, walk
from polyker.ir.program import Loop, Node, Program, Statement
from polyker.reference.flatten import Shape, flatten
from polyker.reference.integers import Env, bounds_of, integer, values
from polyker.reference.memory import TensorMemory, argument, fresh
from polyker.reference.ranges import Ranged, resolve
from polyker.reference.reductions import result_tag
from polyker.reference.statements import compile_statement
from polyker.reference.tags import Tag, Weak, promote, settle, tag_of_literal
from polyker.reference.values import type_of


def interpret(
    program: Program,
    arrays: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
    acc: DType | None = None,
    *,
    widen: bool = False,
) -> tuple[NDArray[Any], ...]:
    """Run a program on numpy arrays and scalars, given by name, and return its outputs in order.

    `sizes` are those that no shape gives. `acc` is the type that sums and products accumulate in. With `widen`, all
    floating-point values are kept in longdouble, and nothing is rounded to the program's own types.

    Raises ShapeError, DTypeError or GatherError as the notation says; a Python scalar is weakly typed, as numpy's are.
    """
    with np.errstate(all="ignore"):
        bound = bind(program, arrays, sizes or {})
        tensors = _tensors(program, arrays, bound, widen)
        runs = iter([compile_statement(r, tensors, bound.sizes, widen, acc) for r in bound.statements])
        _run(program.body, runs, bound.sizes)
        return tuple(_output(tensors[name], widen) for name in program.outputs)


class BoundProgram(Struct, frozen=True):
    """A program for given arguments: sizes, index ranges, shapes and element types."""

    sizes: dict[str, int]
    statements: list[Ranged]
    shapes: dict[str, Shape]
    tags: dict[str, Tag]


def bind(program: Program, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> BoundProgram:
    """Return the sizes, ranges, shapes and types that the arguments give; raises as `interpret` does."""
    given = {n: np.shape(_argument(program, arrays, n)) for n in program.inputs}
    known = _sizes(program, arrays, sizes, given)
    declared = {
        d.name: tuple(_extent(e, known) for e in d.shape)
        for d in program.types
        if d.shape is not None and d.name not in given
    }
    statements, shapes = resolve(flatten(program), given, declared, known)
    return BoundProgram(known, statements, shapes, _tags(program, arrays))


def _argument(program: Program, arrays: Mapping[str, Any], name: str) -> Any:
    if name not in arrays:
        raise failure(MISSING, name=name)
    return arrays[name]


def _sizes(
    program: Program, arrays: Mapping[str, Any], sizes: Mapping[str, int], given: Mapping[str, Shape]
) -> dict[str, int]:
    """Bind sizes at their first plain occurrence in a declared shape, and check the others."""
    known = {n: int(arrays[n]) for n in program.parameters if n not in program.inputs and n in arrays}
    known.update({n: int(v) for n, v in sizes.items()})
    checks: list[tuple[str, Expr, int]] = []
    for d in program.types:
        if d.shape is None or d.name not in given:
            continue
        shape = given[d.name]
        if len(shape) != len(d.shape):
            raise failure(RANK, span=d.span, tensor=d.name, found=len(shape), wanted=len(d.shape))
        for wanted, found in zip(d.shape, shape, strict=True):
            if isinstance(wanted, SizeExpr):
                known.setdefault(wanted.name, found)
            checks.append((d.name, wanted, found))
    for name, expr, found in checks:
        value = _extent(expr, known)
        if value != found:
            shown = expr.name if isinstance(expr, SizeExpr) else name
            raise failure(SIZE, span=getattr(expr, "span", None), size=shown, found=found, wanted=value)
    return known


def _extent(expr: Expr, sizes: Mapping[str, int]) -> int:
    return integer(expr, sizes)({})


def _tags(program: Program, arrays: Mapping[str, Any]) -> dict[str, Tag]:
    """Return every tensor's type: the argument's, the declared, or the promotion over the defining statements."""
    tags: dict[str, Tag | None] = {}
    for name in program.inputs:
        declared = program.declaration(name)
        tags[name] = _tag_of_argument(name, arrays[name], declared.dtype if declared else None)
    fixed = set(tags)
    for d in program.types:
        if d.dtype is not None and d.name not in tags:
            tags[d.name] = d.dtype
            fixed.add(d.name)
    statements = list(program.statements())
    while True:
        found = _promoted(statements, tags, fixed)
        # A tensor that stays weak takes its default type before others are typed that read it.
        weak = [s for s in statements if isinstance(found[s.target], Weak) and s.target not in fixed]
        if not weak:
            return {n: t if n in program.inputs and t is not None else settle(t or dt.i64) for n, t in found.items()}
        names = {s.target for s in weak}
        first = next((s for s in weak if not _others(s.target, statements) & names), weak[0]).target
        tags[first] = settle(found[first] or dt.i64)
        fixed.add(first)


def _others(target: str, statements: list[Statement]) -> set[str]:
    """Return the tensors, apart from itself, that a tensor is computed from directly."""
    mine = [s for s in statements if s.target == target]
    return {e.tensor for s in mine for e in walk(s.expr) if isinstance(e, Read)} - {target}


def _promoted(statements: list[Statement], known: Mapping[str, Tag | None], fixed: set[str]) -> dict[str, Tag | None]:
    """Return every tensor's promotion over its defining statements, those in `fixed` left as they are."""
    tags: dict[str, Tag | None] = {**dict.fromkeys((s.target for s in statements), None), **known}
    changed = True
    while changed:
        changed = False
        for s in statements:
            found = type_of(s.expr, tags)
            if s.target in fixed or found is None:
                continue
            found = found if s.op == "set" else result_tag(s.op, found)
            before = tags[s.target]
            after = found if before is None else promote(before, found)
            if after != before:
                tags[s.target], changed = after, True
    return tags


def _tag_of_argument(name: str, value: Any, declared: DType | None) -> Tag:
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return declared or tag_of_literal(value)
    found = dt.from_numpy(np.asarray(value).dtype)
    if found is None:
        raise failure(OPERANDS, op=name, types=np.asarray(value).dtype)
    if declared is not None and declared != found:
        raise failure(ARGUMENT, tensor=name, wanted=declared, found=found)
    return found


def _tensors(program: Program, arrays: Mapping[str, Any], bound: BoundProgram, widen: bool) -> dict[str, TensorMemory]:
    out = {}
    for name, tag in bound.tags.items():
        if name in program.inputs:
            own = settle(tag) if name in program.outputs else tag
            out[name] = argument(name, arrays[name], own, widen)
        else:
            out[name] = fresh(name, bound.shapes[name], settle(tag), widen)
    return out


def _run(nodes: tuple[Node, ...], runs: Any, sizes: Mapping[str, int]) -> None:
    """Run the nodes in order; `runs` has the statements' functions in the order of the text."""
    for node in [_prepare(n, runs, sizes) for n in nodes]:
        node({})


def _prepare(node: Node, runs: Any, sizes: Mapping[str, int]) -> Any:
    if not isinstance(node, Loop):
        return next(runs)
    bounds = bounds_of(node.range, sizes)
    body = [_prepare(n, runs, sizes) for n in node.body]

    def loop(env: Env) -> None:
        for value in values(bounds, env):
            for part in body:
                part({**env, node.range.index: value})

    return loop


def _output(tensor: TensorMemory, widen: bool) -> NDArray[Any]:
    if tensor.written is not None and not tensor.written.all():
        missing = [tuple(map(int, c)) for c in np.argwhere(~tensor.written)[:8]]
        raise failure(NEVER_WRITTEN, tensor=tensor.name, elements=missing)
    data = np.asarray(tensor.data)
    return data if widen else data.astype(settle(tensor.tag).numpy)
