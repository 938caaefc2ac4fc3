"""Forward mode, one statement instance after another: a program's results with their derivatives along a direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from polyker.ir.program import Loop, Node, Program
from polyker.reference.integers import Env, bounds_of, gathers, points, values
from polyker.reference.interpreter import bind
from polyker.reference.memory import TensorMemory, argument, fresh
from polyker.reference.ranges import Ranged
from polyker.reference.reductions import accumulator, step
from polyker.reference.statements import untouched
from polyker.reference.tags import converter, identity, rounding, settle
from polyker.reference.values import EvaluationScope, convert, evaluate
from tests.dual.expressions import NONE, STATEMENT_JOINS, Change, DualScope, Sum, Tangent, Term, change_of

Element: TypeAlias = tuple[int, ...]


def dual(
    program: Program, arrays: Mapping[str, Any], changes: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, tuple[Any, Tangent | None]]:
    """Return for each output its value, and its tangent where inputs change by `changes`; None for what is not of floats."""
    with np.errstate(all="ignore"):
        bound = bind(program, arrays, sizes)
        memory: dict[str, TensorMemory] = {}
        tangents: dict[str, Tangent] = {}
        for name, tag in bound.tags.items():
            if name in program.inputs:
                memory[name] = argument(name, arrays[name], settle(tag) if name in program.outputs else tag, False)
            else:
                memory[name] = fresh(name, bound.shapes[name], settle(tag), False)
            if tag.kind == "f":
                change = np.array(changes.get(name, np.zeros(memory[name].shape)), float)
                tangents[name] = Tangent(change, np.array(abs(change)))
        scopes = (DualScope(EvaluationScope(memory, bound.sizes, r.ranges), tangents) for r in bound.statements)
        runs = iter([DualStatement(r, scope) for r, scope in zip(bound.statements, scopes, strict=True)])
        for node in [_prepared(n, runs, bound.sizes) for n in program.body]:
            node({})
        return {name: (np.asarray(memory[name].data), tangents.get(name)) for name in program.outputs}


def _prepared(node: Node, runs: Any, sizes: Mapping[str, int]) -> Callable[[Env], None]:
    if not isinstance(node, Loop):
        return next(runs)  # type: ignore[no-any-return]
    bounds, body = bounds_of(node.range, sizes), [_prepared(n, runs, sizes) for n in node.body]

    def loop(env: Env) -> None:
        for value in values(bounds, env):
            for part in body:
                part({**env, node.range.index: value})

    return loop


class DualStatement:
    """A statement whose instances set an element's value and its tangent together."""

    def __init__(self, ranged: Ranged, scope: DualScope) -> None:
        self.ranged, self.scope, self.statement = ranged, scope, ranged.flat.statement
        s, plain = self.statement, scope.values
        self.tensor = plain.tensors[s.target]
        dtype = settle(self.tensor.tag)
        self.is_set = s.op == "set"
        self.reads_itself = any(r.tensor == s.target for r in s.reads())
        acc = dtype if self.is_set else accumulator(s.op, dtype, None)
        term = evaluate(s.expr, plain)
        self.value = convert(term, acc, False)
        self.change = change_of(s.expr, scope)
        self.widened, self.back = converter(dtype, acc, False), converter(acc, dtype, False)
        self.rounded = rounding(dtype, False)
        self.start = identity("add" if self.is_set else s.op, acc, False)
        self.combine = None if self.is_set else step(s.op, acc)
        self.subscripts = [plain.integer(e) for e in s.subscripts]
        self.admits = plain.admits(s.conditions, term.of)

    def __call__(self, env: Env) -> None:
        env, running = dict(env), {}
        if not self.is_set or any(map(gathers, self.statement.subscripts)):
            for element in untouched(self.ranged, self.scope.values, env):
                self._store(element, self.start, NONE)
                running[element] = (self.start, self._joins())
        for _ in points(self.ranged.flat.order, self.ranged.ranges, env):
            if self.admits(env):
                self._instance(env, running)
        for element, (_, joins) in running.items():
            self._set_tangent(element, joins.change())

    def _joins(self) -> Sum:
        return STATEMENT_JOINS.get(self.statement.op, Sum)()

    def _instance(self, env: Env, running: dict[Element, tuple[Any, Sum]]) -> None:
        element = tuple([e(env) for e in self.subscripts])
        change = NONE if self.change is None else self.change(env)
        value = self.value(env)
        if self.combine is None:
            self._store(element, value, change)
            return
        if element not in running:  # what was there before is one more term
            before, joins = self.widened(self.tensor.data[element]), self._joins()
            joins.take(Term(float(before), self._tangent(element)))
            running[element] = before, joins
        before, joins = running[element]
        joins.take(Term(float(value), change))
        running[element] = self.combine(before, value), joins
        # What the statement reads of its own target is the result so far.
        self._store(element, running[element][0], joins.change() if self.reads_itself else NONE)

    def _tangent(self, element: Element) -> Change:
        tangent = self.scope.tangents.get(self.statement.target)
        return NONE if tangent is None else Change(float(tangent.value[element]), float(tangent.size[element]))

    def _store(self, element: Element, value: Any, change: Change) -> None:
        value = self.back(value)
        self.tensor.data[element] = value if self.rounded is None else self.rounded(value)
        if self.tensor.written is not None:
            self.tensor.written[element] = True
        self._set_tangent(element, change)

    def _set_tangent(self, element: Element, change: Change) -> None:
        tangent = self.scope.tangents.get(self.statement.target)
        if tangent is not None:
            tangent.value[element], tangent.size[element] = change
