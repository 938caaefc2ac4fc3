"""One statement: its instances in order, what each writes, and the rules on what is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from polyker.errors import failure
from polyker.errors.reference import NARROWER, WRITTEN_TWICE
from polyker.ir.dtypes import DType
from polyker.reference.integers import Env, gathers, indices_of, of_indices, points
from polyker.reference.memory import ElementKey, TensorMemory, inside, outside
from polyker.reference.ranges import Ranged
from polyker.reference.reductions import accumulator, result_tag, step
from polyker.reference.tags import converter, identity, rounding, settle
from polyker.reference.values import EvaluationScope, convert, evaluate

RunStatement = Callable[[Env], None]


def compile_statement(
    ranged: Ranged, tensors: Mapping[str, TensorMemory], sizes: Mapping[str, int], widen: bool, acc: DType | None
) -> RunStatement:
    """Return the function that runs the statement once, in an environment of the loops around it."""
    scope = EvaluationScope(tensors, sizes, ranged.ranges, widen, acc)
    _check_kind(ranged, scope)
    return _assignment(ranged, scope) if ranged.flat.statement.op == "set" else _reduction(ranged, scope)


def _check_kind(ranged: Ranged, scope: EvaluationScope) -> None:
    """Refuse to store a value of a wider kind: a float into integers, say."""
    s = ranged.flat.statement
    found = evaluate(s.expr, scope).tag
    found = found if s.op == "set" else result_tag(s.op, found)
    target = scope.tensors[s.target].tag
    kinds = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    if kinds[found.kind] > kinds[target.kind]:
        raise failure(NARROWER, span=s.span, tensor=s.target, wanted=target, found=found)


def _elements(ranged: Ranged, scope: EvaluationScope) -> Callable[[Env], ElementKey]:
    """Return the function from an instance to the element it writes, checked."""
    s = ranged.flat.statement
    shape = scope.tensors[s.target].shape
    parts = list(map(scope.integer, s.subscripts))
    place = of_indices(s.subscripts) or (lambda env: tuple([p(env) for p in parts]))
    gathered = [gathers(e) for e in s.subscripts]

    def written(env: Env) -> ElementKey:
        out = place(env)
        if not inside(out, shape):
            code = outside(out, shape, gathered)
            raise failure(code, span=s.target_span, tensor=s.target, shape=shape, element=out, instance=dict(env))
        return out

    return written


def _assignment(ranged: Ranged, scope: EvaluationScope) -> RunStatement:
    s = ranged.flat.statement
    tensor = scope.tensors[s.target]
    dtype = settle(tensor.tag)
    value = convert(evaluate(s.expr, scope), dtype, scope.widen)
    rounded, element_of = rounding(dtype, scope.widen), _elements(ranged, scope)
    conditions = [scope.integer(c) for c in s.conditions]
    order = ranged.flat.order
    scatters = any(map(gathers, s.subscripts))
    zero = identity("add", dtype, scope.widen)

    def run(env: Env) -> None:
        env = dict(env)
        # What nothing defined before is 0 where no gathered place reaches it.
        for element in untouched(ranged, scope, env) if scatters else ():
            tensor.data[element] = zero
            if tensor.written is not None:
                tensor.written[element] = True
        writers: dict[ElementKey, dict[str, int]] = {}
        for _ in points(order, ranged.ranges, env):
            if not all(c(env) for c in conditions):
                continue
            element = element_of(env)
            here = {n: env[n] for n in order}
            if element in writers and not scatters:
                raise failure(
                    WRITTEN_TWICE, span=s.span, tensor=s.target, element=element, first=writers[element], second=here
                )
            writers[element] = here
            v = value(env)
            tensor.data[element] = v if rounded is None else rounded(v)
            if tensor.written is not None:
                tensor.written[element] = True

    return run


def _reduction(ranged: Ranged, scope: EvaluationScope) -> RunStatement:
    s = ranged.flat.statement
    tensor = scope.tensors[s.target]
    dtype = settle(tensor.tag)
    acc = accumulator(s.op, dtype, scope.acc)
    term = evaluate(s.expr, scope)
    value = convert(term, acc, scope.widen)
    combine, none = step(s.op, acc), identity(s.op, acc, scope.widen)
    widened, back = converter(dtype, acc, scope.widen), converter(acc, dtype, scope.widen)
    rounded, element_of = rounding(dtype, scope.widen), _elements(ranged, scope)
    admits = scope.admits(s.conditions, element_of, term.of)

    def store(element: ElementKey, v: Any) -> None:
        v = back(v)
        tensor.data[element] = v if rounded is None else rounded(v)
        if tensor.written is not None:
            tensor.written[element] = True

    def run(env: Env) -> None:
        env = dict(env)
        # An element that nothing defined before starts at the identity, and holds it if no instance reaches it.
        for element in untouched(ranged, scope, env):
            store(element, none)
        running: dict[ElementKey, Any] = {}
        for _ in points(ranged.flat.order, ranged.ranges, env):
            if not admits(env):
                continue
            element = element_of(env)
            before = running[element] if element in running else widened(tensor.data[element])
            running[element] = combine(before, value(env))
            store(element, running[element])

    return run


def untouched(ranged: Ranged, scope: EvaluationScope, env: Env) -> list[ElementKey]:
    """Return the unwritten elements that a reduction or a scatter defines, whether or not an instance reaches them.

    Along a dimension that an index with an explicit range (a `for`, or a loop) or a gather decides, these are all elements:
    what `for` left out holds the identity. Along the others they are what the inferred ranges reach, whatever `where`
    says, so that elements which inference left out stay unwritten.
    """
    s = ranged.flat.statement
    tensor = scope.tensors[s.target]
    if tensor.written is None:
        return []
    given = ranged.flat.explicit().keys()
    whole = [gathers(e) or any(i in given for i in indices_of(e)) for e in s.subscripts]
    inferred = list(dict.fromkeys(i for w, e in zip(whole, s.subscripts, strict=True) if not w for i in indices_of(e)))
    subscripts = [None if w else scope.integer(e) for w, e in zip(whole, s.subscripts, strict=True)]
    found: dict[ElementKey, None] = {}
    here = dict(env)
    for _ in points(inferred, ranged.ranges, here):
        spans = [range(n) if f is None else (f(here),) for f, n in zip(subscripts, tensor.shape, strict=True)]
        found.update(dict.fromkeys(product(*spans)))
    return [c for c in found if inside(c, tensor.shape) and not tensor.written[c]]
