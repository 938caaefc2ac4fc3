"""Runs a typed program of 64-bit integers point by point: what its domains, order and subscripts say, nothing else."""

from __future__ import annotations

import itertools

import islpy as isl
import numpy as np

from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read, Reduce, SizeExpr
from polyker.ir.typed import Role, TypedLoop, TypedProgram, TypedStatement
from polyker.poly.checks import evaluate_shape
from tests.poly.sizes import evaluate_checks

_IDENTITY = {"add": 0, "mul": 1, "max": -(2**63), "min": 2**63 - 1}
_COMBINE = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": max, "min": min}
_REDUCE = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def _wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def points(domain: str, values: dict[str, int]) -> list[tuple[int, ...]]:
    """The points of a set for given sizes, in lexicographic order."""
    found = isl.Set(domain)
    for name, value in values.items():
        at = found.find_dim_by_name(isl.dim_type.param, name)
        if at >= 0:
            found = found.fix_val(isl.dim_type.param, at, isl.Val(value))
    count = found.dim(isl.dim_type.set)
    if found.is_empty():
        return []
    if count == 0:
        return [()]
    box = [range(found.dim_min_val(k).to_python(), found.dim_max_val(k).to_python() + 1) for k in range(count)]
    found = found.project_out(isl.dim_type.param, 0, found.dim(isl.dim_type.param))
    inside = []
    for point in itertools.product(*box):
        probe = found
        for k, v in enumerate(point):
            probe = probe.fix_val(isl.dim_type.set, k, isl.Val(v))
        if not probe.is_empty():
            inside.append(point)
    return inside


class Machine:
    """The arrays of one run; an element of `None` is not written yet."""

    def __init__(self, typed: TypedProgram, arrays: dict[str, np.ndarray], values: dict[str, int]) -> None:
        evaluate_checks(typed, values)
        self.typed, self.values = typed, values
        self.data: dict[str, np.ndarray] = {}
        for tensor in typed.tensors:
            shape = tuple(evaluate_shape(e, values) for e in tensor.shape)
            if tensor.role in (Role.INPUT, Role.INOUT):
                assert arrays[tensor.label].shape == shape
                self.data[tensor.name] = arrays[tensor.label].astype(object)
            else:
                self.data[tensor.name] = np.full(shape, None, object)
        self.points = {s.domain: points(s.domain, values) for s in typed.statements()}

    def run(self) -> list[np.ndarray]:
        """Run all statements in order; returns the outputs."""
        self.body(self.typed.body, {})
        for s in self.typed.statements():
            if s.op != "set":
                self.start(s)  # a loop that runs no instance
        return [self.data[o] for o in self.typed.outputs]

    def body(self, nodes: tuple, env: dict[str, int]) -> None:
        for node in nodes:
            if isinstance(node, TypedLoop):
                inside = [s for s in self.typed.statements() if node.iterator in s.iterators]
                at = {
                    p[s.iterators.index(node.iterator)]
                    for s in inside
                    for p in self.points[s.domain]
                    if all(p[s.iterators.index(i)] == v for i, v in env.items() if i in s.iterators)
                }
                for value in sorted(at):
                    self.body(node.body, {**env, node.iterator: value})
            else:
                self.statement(node, env)

    def start(self, s: TypedStatement) -> None:
        array = self.data[s.target]
        if s.defines is not None and s.defines not in self.points:
            self.points[s.defines] = points(s.defines, self.values)
        for element in np.ndindex(array.shape) if s.defines is None else self.points[s.defines]:
            if array[element] is None:
                array[element] = _IDENTITY[s.op]

    def statement(self, s: TypedStatement, env: dict[str, int]) -> None:
        array = self.data[s.target]
        if s.op != "set":
            self.start(s)
        for point in self.points[s.domain]:
            here = dict(zip(s.iterators, point, strict=True))
            if any(here[i] != v for i, v in env.items() if i in here):
                continue
            element = tuple(self.value(e, here) for e in s.subscripts)
            assert all(0 <= c < n for c, n in zip(element, array.shape, strict=True)), (element, array.shape)
            value = self.value(s.expr, here)
            array[element] = _wrap(value if s.op == "set" else _COMBINE[s.op](array[element], value))

    def value(self, expr: Expr, env: dict[str, int]) -> int:
        match expr:
            case Literal(value=value):
                return int(value)
            case IndexExpr(name=name):
                return env[name]
            case SizeExpr(name=name):
                return self.values[name]
            case Cast(arg=arg):
                return self.value(arg, env)
            case Read(tensor=tensor, subscripts=subscripts, pad=pad):
                array = self.data[tensor]
                element = tuple(self.value(s, env) for s in subscripts)
                inside = all(0 <= c < n for c, n in zip(element, array.shape, strict=True))
                if pad is not None and not inside:
                    return int(pad.value.value)
                assert inside, (element, array.shape)
                assert array[element] is not None, f"{tensor}{element} is read and not written"
                return array[element]
            case Reduce(op=op, ranges=ranges, body=body, domain=domain):
                if domain not in self.points:
                    self.points[domain] = points(domain, self.values)
                total = _IDENTITY[_REDUCE[op]]
                outer = list(isl.Set(domain).get_var_names(isl.dim_type.set))
                for point in self.points[domain]:
                    here = dict(zip(outer, point, strict=True))
                    if all(env.get(i, v) == v for i, v in here.items() if i not in {r.index for r in ranges}):
                        total = _COMBINE[_REDUCE[op]](total, self.value(body, {**env, **here}))
                return total
            case Call(op="add", args=args):
                return _wrap(sum(self.value(a, env) for a in args))
            case Call(op="mul", args=args):
                product = 1
                for a in args:
                    product *= self.value(a, env)
                return _wrap(product)
            case Call(op="neg", args=(arg,)):
                return -self.value(arg, env)
            case Call(op="floordiv", args=(a, b)):
                return self.value(a, env) // self.value(b, env)
            case Call(op="mod", args=(a, b)):
                return self.value(a, env) % self.value(b, env)
        raise AssertionError(expr)


def simulate(typed: TypedProgram, arrays: dict[str, np.ndarray], values: dict[str, int]) -> list[np.ndarray]:
    """Run a typed program on integer arrays by label, for sizes by generated name."""
    return Machine(typed, arrays, values).run()
