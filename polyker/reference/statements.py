"""One statement: its instances in order, what each writes, and the rules on what is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from polyker.errors import failure
from polyker.errors.reference import NARROWER, WRITTEN_TWICE
from polyker.ir.dtypes import DType
from polyker.reference.integers import Env, gathers, indices_of, points
from polyker.reference.memory import Cell, Tensor, inside, outside
from polyker.reference.ranges import Ranged
from polyker.reference.reductions import accumulator, result_tag, step
from polyker.reference.tags import converter, identity, rounding, settle
from polyker.reference.values import Scope, convert, evaluate

Run = Callable[[Env], None]


def compile_statement(
    ranged: Ranged, tensors: Mapping[str, Tensor], sizes: Mapping[str, int], widen: bool, acc: DType | None
) -> Run:
    """Return the function that runs the statement once, in an environment of the loops around it."""
    scope = Scope(tensors, sizes, ranged.ranges, widen, acc)
    _check_kind(ranged, scope)
    return _assignment(ranged, scope) if ranged.flat.statement.op == "set" else _reduction(ranged, scope)


def _check_kind(ranged: Ranged, scope: Scope) -> None:
    """Refuse to store a value of a wider kind: a float into integers, say."""
    s = ranged.flat.statement
    found = evaluate(s.expr, scope).tag
    found = found if s.op == "set" else result_tag(s.op, found)
    target = scope.tensors[s.target].tag
    kinds = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    if kinds[found.kind] > kinds[target.kind]:
        raise failure(NARROWER, span=s.span, tensor=s.target, wanted=target, found=found)


def _cells(ranged: Ranged, scope: Scope) -> Callable[[Env], Cell]:
    """Return the function from an instance to the cell it writes, checked."""
    s = ranged.flat.statement
    shape = scope.tensors[s.target].shape
    subscripts = [scope.integer(e) for e in s.subscripts]
    gathered = [gathers(e) for e in s.subscripts]

    def cell(env: Env) -> Cell:
        out = tuple([e(env) for e in subscripts])
        if not inside(out, shape):
            code = outside(out, shape, gathered)
            raise failure(code, span=s.target_span, tensor=s.target, shape=shape, cell=out, instance=dict(env))
        return out

    return cell


def _assignment(ranged: Ranged, scope: Scope) -> Run:
    s = ranged.flat.statement
    tensor = scope.tensors[s.target]
    dtype = settle(tensor.tag)
    value = convert(evaluate(s.expr, scope), dtype, scope.widen)
    rounded, cell_of = rounding(dtype, scope.widen), _cells(ranged, scope)
    conditions = [scope.integer(c) for c in s.conditions]
    order = ranged.flat.order
    scatters = any(map(gathers, s.subscripts))
    zero = identity("add", dtype, scope.widen)

    def run(env: Env) -> None:
        env = dict(env)
        # What nothing defined before is 0 where no gathered place reaches it.
        for cell in _untouched(ranged, scope, env) if scatters else ():
            tensor.data[cell] = zero
            if tensor.written is not None:
                tensor.written[cell] = True
        writers: dict[Cell, dict[str, int]] = {}
        for _ in points(order, ranged.ranges, env):
            if not all(c(env) for c in conditions):
                continue
            cell = cell_of(env)
            here = {n: env[n] for n in order}
            if cell in writers and not scatters:
                raise failure(WRITTEN_TWICE, span=s.span, tensor=s.target, cell=cell, first=writers[cell], second=here)
            writers[cell] = here
            v = value(env)
            tensor.data[cell] = v if rounded is None else rounded(v)
            if tensor.written is not None:
                tensor.written[cell] = True

    return run


def _reduction(ranged: Ranged, scope: Scope) -> Run:
    s = ranged.flat.statement
    tensor = scope.tensors[s.target]
    dtype = settle(tensor.tag)
    acc = accumulator(s.op, dtype, scope.acc)
    term = evaluate(s.expr, scope)
    value = convert(term, acc, scope.widen)
    combine, none = step(s.op, acc), identity(s.op, acc, scope.widen)
    widened, back = converter(dtype, acc, scope.widen), converter(acc, dtype, scope.widen)
    rounded, cell_of = rounding(dtype, scope.widen), _cells(ranged, scope)
    admits = scope.admits(s.conditions, cell_of, term.of)

    def store(cell: Cell, v: Any) -> None:
        v = back(v)
        tensor.data[cell] = v if rounded is None else rounded(v)
        if tensor.written is not None:
            tensor.written[cell] = True

    def run(env: Env) -> None:
        env = dict(env)
        # A cell that nothing defined before starts at the identity, and holds it if no instance reaches it.
        for cell in _untouched(ranged, scope, env):
            store(cell, none)
        running: dict[Cell, Any] = {}
        for _ in points(ranged.flat.order, ranged.ranges, env):
            if not admits(env):
                continue
            cell = cell_of(env)
            before = running[cell] if cell in running else widened(tensor.data[cell])
            running[cell] = combine(before, value(env))
            store(cell, running[cell])

    return run


def _untouched(ranged: Ranged, scope: Scope, env: Env) -> list[Cell]:
    """Return the unwritten cells that a reduction or a scatter defines, whether or not an instance reaches them.

    Along a dimension that an index with an explicit range (a `for`, or a loop) or a gather decides, these are all cells:
    what `for` left out holds the identity. Along the others they are what the inferred ranges reach, whatever `where`
    says, so that cells which inference left out stay unwritten.
    """
    s = ranged.flat.statement
    tensor = scope.tensors[s.target]
    if tensor.written is None:
        return []
    given = ranged.flat.explicit().keys()
    whole = [gathers(e) or any(i in given for i in indices_of(e)) for e in s.subscripts]
    inferred = list(dict.fromkeys(i for w, e in zip(whole, s.subscripts, strict=True) if not w for i in indices_of(e)))
    subscripts = [None if w else scope.integer(e) for w, e in zip(whole, s.subscripts, strict=True)]
    found: dict[Cell, None] = {}
    here = dict(env)
    for _ in points(inferred, ranged.ranges, here):
        spans = [range(n) if f is None else (f(here),) for f, n in zip(subscripts, tensor.shape, strict=True)]
        found.update(dict.fromkeys(product(*spans)))
    return [c for c in found if inside(c, tensor.shape) and not tensor.written[c]]
