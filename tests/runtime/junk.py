"""Values that nobody should give, and the public callables with a place for one in each of their arguments."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

import polyker as pk

METHODS = (
    "__repr__ __str__ __eq__ __ne__ __hash__ __bool__ __index__ __int__ __float__ __len__ __iter__ __next__ __contains__ "
    "__getitem__ __array__ __array_interface__ __lt__ __format__ __dlpack__ __cuda_array_interface__ __fspath__ __call__ "
    "requires_grad to_json keys items"
).split()


def _raise(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("a bug of the caller's")


def hostile(base: type, *methods: str) -> type:
    """Return a class whose methods raise what polyker does not know."""
    data = {m: property(_raise) if not m.endswith("__") or m in PROPERTIES else _raise for m in methods}
    return type(f"Hostile{base.__name__.title()}", (base,), data)


PROPERTIES = ("__array_interface__", "__cuda_array_interface__")
TEXT_METHODS = (
    "__repr__",
    "__str__",
    "__eq__",
    "__ne__",
    "__hash__",
    "__len__",
    "__iter__",
    "__format__",
    "__contains__",
    "__getitem__",
)
INT_METHODS = (
    "__repr__",
    "__str__",
    "__eq__",
    "__hash__",
    "__bool__",
    "__index__",
    "__int__",
    "__float__",
    "__lt__",
    "__gt__",
    "__le__",
    "__ge__",
)


def values() -> dict[str, Any]:
    """Return the values by what they are; each call returns new ones."""
    found: dict[str, Any] = {
        "None": None,
        "True": True,
        "Ellipsis": ...,
        "NotImplemented": NotImplemented,
        "object": object(),
        "class": int,
        "function": len,
        "lambda": lambda *_: 0,
        "module": math,
        "exception": ValueError("x"),
        "0": 0,
        "-1": -1,
        "huge": 1 << 99,
        "enormous": 1 << 99999,
        "-huge": -(1 << 99),
        "nan": math.nan,
        "inf": math.inf,
        "1.5": 1.5,
        "1j": 1j,
        "fraction": Fraction(1, 3),
        "np.int64": np.int64(2),
        "np.uint8": np.uint8(3),
        "np.bool": np.bool_(True),
        "np.float32": np.float32(2),
        "np.float64 nan": np.float64("nan"),
        "np.str": np.str_("i"),
        "np.datetime": np.datetime64(0, "s"),
        "0-d": np.array(2),
        "0-d float": np.array(2.0),
        "0-d bool": np.array(True),
        "0-d object": np.array(None),
        "0-d text": np.array("i"),
        "array": np.ones((2, 2)),
        "one": np.array([2]),
        "ints": np.array([1, 2]),
        "objects": np.array([None, 1]),
        "texts": np.array(["i", "j"]),
        "records": np.zeros(2, [("a", "i4")]),
        "empty array": np.empty(0),
        "masked": np.ma.array([1.0, 2.0]),
        "matrix": np.eye(2).view(np.matrix),
        "dtype": np.dtype("f4"),
        "np.float32 type": np.float32,
        "pk.f32": pk.f32,
        "pk.f32[2, 2]": pk.f32[2, 2],
        "pk.f32[K]": pk.f32["K"],
        "[]": [],
        "()": (),
        "{}": {},
        "set": {1},
        "[None]": [None],
        "ragged": [[1], [1, 2]],
        "deep": [[[[1]]]],
        "[nan]": [math.nan],
        "dict": {"a": 1},
        "dict of None": {None: None},
        "tuple": (1, "i", None),
        "itself": _itself(),
        "generator": (k for k in range(3)),
        "count": iter(int, 1),
        "range": range(3),
        "bytes": b"ij",
        "bytearray": bytearray(8),
        "memoryview": memoryview(b"abc"),
        "slice": slice(None),
        "text": "i",
        "empty": "",
        "blank": " ",
        "NUL": "a\0b",
        "surrogate": "\ud800",
        "long": "x" * 100_000,
        "control": "\x1b[31m",
        "fullwidth": "ｆ",
        "type text": "f32[2,2]",
        "operator": "C[i] = A[i]",
        "ctypes": ctypes.c_int64(3),
        "pointer": ctypes.c_void_p(),
        "op": pk.op("y[i] = x[i]"),
        "index": pk.indices("i")[0],
        "tensor": pk.tensors("A")[0],
        "expression": pk.tensors("A")[0][pk.indices("i")[0]] + 1,
        "assignment": pk.tensors("A")[0].set(1),
        "typed": pk.tensors("A")[0].typed(),
    }
    found |= {m: hostile(object, m)() for m in METHODS}
    found["hostile"] = hostile(object, *METHODS)()
    found["hostile text"] = hostile(str, *TEXT_METHODS)("cpu")
    found["hostile int"] = hostile(int, *INT_METHODS)(2)
    return found


def _itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


MM, ONES = "C[i,j] += A[i,k] * B[k,j]", np.ones((2, 2))


def calls() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield public calls by name, with a place for one value."""
    mm, sized = pk.op(MM), pk.op("y[i] = x for i in 0:N")
    two = pk.op("s[i] = x[i]; t[i] = x[i] + 1")
    kernel = mm.compile(ONES, ONES)
    many = sized.compile(1.0)
    schedule = mm.schedule(pk.f64[8, 8], pk.f64[8, 8], auto=False)
    story = schedule.to_json()
    yield "op", pk.op
    yield "op two", lambda v: pk.op(v, v)
    yield "op sizes", lambda v: pk.op("y[i] = x for i in 0:N", N=v)
    yield "Operator", pk.Operator
    yield "Operator fixed", lambda v: pk.Operator(mm.program, v)
    for name, one in (("operator", mm), ("kernel", kernel)):
        yield f"{name}", lambda v, one=one: one(v, ONES)
        yield f"{name} second", lambda v, one=one: one(ONES, v)
        yield f"{name} both", lambda v, one=one: one(v, v)
        yield f"{name} named", lambda v, one=one: one(ONES, B=v)
        yield f"{name} third", lambda v, one=one: one(ONES, ONES, v)
        yield f"{name} out", lambda v, one=one: one(ONES, ONES, out=v)
        yield f"{name} stream", lambda v, one=one: one(ONES, ONES, stream=v)
        yield f"{name} size", lambda v, one=one: one(ONES, ONES, N=v)
    for name, one in (("sized", sized), ("sized kernel", many)):
        yield f"{name} x", lambda v, one=one: one(v, N=3)
        yield f"{name} N", lambda v, one=one: one(1.0, N=v)
    yield "two out", lambda v: two(np.ones(2), out=v)
    yield "two outs", lambda v: two(np.ones(2), out=(v, None))
    yield "two out dict", lambda v: two(np.ones(2), out={"s": v})
    for method in ("compile", "schedule", "infer", "explain", "check"):
        yield method, lambda v, m=method: getattr(mm, m)(v, ONES)
        yield f"{method} named", lambda v, m=method: getattr(mm, m)(ONES, B=v)
        yield f"{method} size", lambda v, m=method: getattr(sized, m)(1.0, N=v)
    for option in ("target", "acc", "fastmath", "specialize", "timeout", "threads", "deterministic", "schedule"):
        yield f"compile {option}", lambda v, o=option: mm.compile(ONES, ONES, **{o: v})
    for option in ("target", "acc", "specialize", "timeout", "threads", "auto"):
        yield f"schedule {option}", lambda v, o=option: mm.schedule(ONES, ONES, **{o: v})
    yield "explain target", lambda v: mm.explain(ONES, ONES, target=v)
    yield "source", lambda v: mm.source(v)
    yield "source stage", lambda v: mm.source(v, ONES, ONES)
    yield "source types", lambda v: mm.source("llvm", ONES, v)
    yield "kernel source", kernel.source
    yield "kernel explain", lambda v: many.explain(N=v)
    yield "kernel measure", lambda v: kernel.measure(ONES, v, seconds=0)
    yield "kernel measure seconds", lambda v: kernel.measure(ONES, ONES, seconds=min_of(v))
    yield "from_json", lambda v: pk.Schedule.from_json(v, mm)
    yield "from_json op", lambda v: pk.Schedule.from_json(story, v)
    yield "from_json types", lambda v: pk.Schedule.from_json(story, mm, v, pk.f64[8, 8])
    yield "from_json target", lambda v: pk.Schedule.from_json(story, mm, pk.f64[8, 8], pk.f64[8, 8], target=v)
    yield "from_json steps", lambda v: pk.Schedule.from_json(_told(story, "steps", [v]), mm)
    for part in ("format", "version", "operator", "text", "types", "sizes", "target", "acc", "auto", "steps"):
        yield f"from_json {part}", lambda v, p=part: pk.Schedule.from_json(_told(story, p, v), mm)
    for name, s in (("schedule", schedule), ("statement", schedule["C"])):
        for step in ("tile", "split", "shift", "vectorise", "unroll", "map"):
            yield f"{name} {step}", lambda v, s=s, step=step: getattr(s, step)(v)
            yield f"{name} {step} size", lambda v, s=s, step=step: getattr(s, step)(i=v)
            yield f"{name} {step} loop", lambda v, s=s, step=step: getattr(s, step)({v: 2} if _has_hash(v) else None)
        yield f"{name} interchange", lambda v, s=s: s.interchange("i", v)
        yield f"{name} interchange one", lambda v, s=s: s.interchange(v)
        yield f"{name} distribute", lambda v, s=s: s.distribute(v)
        yield f"{name} reverse", lambda v, s=s: s.reverse(v)
        yield f"{name} skew", lambda v, s=s: s.skew(v, j="i")
        yield f"{name} skew by", lambda v, s=s: s.skew(j=v)
        yield f"{name} parallel", lambda v, s=s: s.parallel(v)
        yield f"{name} parallel threads", lambda v, s=s: s.parallel("i", threads=v)
        yield f"{name} promote", lambda v, s=s: s.promote(v)
        for option in ("at", "memory", "layout", "pad", "swizzle"):
            yield f"{name} promote {option}", lambda v, s=s, o=option: s.promote("A", **{o: v})
        yield f"{name} promote layout entry", lambda v, s=s: s.promote("A", layout=(v, 1))
    yield "schedule fuse", lambda v: schedule.fuse(v, "C")
    yield "schedule fuse second", lambda v: schedule.fuse("C", v)
    yield "schedule fuse depth", lambda v: schedule.fuse("C.start", "C", depth=v)
    yield "schedule item", lambda v: schedule[v]
    yield "schedule equal", lambda v: schedule == v if not _own_equality(v) else None
    for option in (
        "acc",
        "fastmath",
        "specialize",
        "timeout",
        "threads",
        "deterministic",
        "cache_size",
        "scratch_bytes",
    ):
        yield f"options {option}", lambda v, o=option: pk.options(**{o: v}).__enter__()
    yield "set_num_threads", _set_num_threads
    yield "clear_cache", lambda v: pk.clear_cache(disk=v) if not isinstance(v, (bool, np.bool_)) else None
    yield "einsum", pk.einsum
    yield "einsum text", lambda v: pk.einsum(v, ONES)
    yield "einsum operand", lambda v: pk.einsum("ij->ji", v)
    yield "einsum operands", lambda v: pk.einsum("ij,jk", ONES, v)
    yield "einsum list", lambda v: pk.einsum(ONES, v)
    yield "einsum list entry", lambda v: pk.einsum(ONES, [v, 1])
    yield "einsum list output", lambda v: pk.einsum(ONES, [0, 1], v)
    yield "einsum list output entry", lambda v: pk.einsum(ONES, [0, 1], [v])
    for option in ("out", "optimize", "dtype", "order", "casting"):
        yield f"einsum {option}", lambda v, o=option: pk.einsum("ij,jk", ONES, ONES, **{o: v})
        yield f"einsum three {option}", lambda v, o=option: pk.einsum("ij,jk,kl", ONES, ONES, ONES, **{o: v})
    yield "einsum path", lambda v: pk.einsum("ij,jk,kl", ONES, ONES, ONES, optimize=["einsum_path", v])
    yield (
        "einsum path entry",
        lambda v: pk.einsum("ij,jk,kl", ONES, ONES, ONES, optimize=["einsum_path", (0, v), (0, 1)]),
    )
    yield "einsum limit", lambda v: pk.einsum("ij,jk,kl", ONES, ONES, ONES, optimize=("greedy", v))
    yield "type", lambda v: pk.f32[v]
    yield "types", lambda v: pk.f32[2, v]
    yield "cast", pk.f32
    yield from builder_calls()


def min_of(value: Any) -> Any:
    """Return the value, but no number of seconds that takes long."""
    return (
        0.001
        if isinstance(value, (int, float, Fraction, np.number, np.ndarray)) and not isinstance(value, bool)
        else value
    )


def _has_hash(value: Any) -> bool:
    try:
        hash(value)
    except Exception:
        return False
    return True


def _own_equality(value: Any) -> bool:
    return "Hostile" in type(value).__name__ or isinstance(value, (np.ndarray, pk.Expression))


def _told(story: str, part: str, value: Any) -> dict[str, Any]:
    import json

    return {**json.loads(story), part: value}


def _set_num_threads(value: Any) -> None:
    try:
        pk.set_num_threads(value)
    finally:
        pk.set_num_threads(None)


def builder_calls() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield calls of the builder with a place for one value."""
    i, j = pk.indices("i j")
    (n,) = pk.sizes("N")
    a, b = pk.tensors("A B")
    for name in ("indices", "sizes", "tensors", "Index", "Size", "Tensor"):
        yield name, getattr(pk, name)
    for name in ("sum", "prod", "max", "min", "mean", "logsumexp", "argmax", "argmin", "any", "all"):
        yield f"{name} over", lambda v, f=getattr(pk, name): f(v, a[i])
        yield f"{name} value", lambda v, f=getattr(pk, name): f(i, v)
        yield f"{name} where", lambda v, f=getattr(pk, name): f(i, a[i], where=v)
    for name in ("exp", "sqrt", "abs", "round", "relu", "conj"):
        yield name, getattr(pk, name)
    yield "maximum", lambda v: pk.maximum(a[i], v)
    yield "where", lambda v: pk.where(v, a[i], v)
    yield "cast of", lambda v: pk.cast(pk.f32, v)
    yield "cast to", lambda v: pk.cast(v, a[i])
    yield "astype", lambda v: a[i].astype(v)
    yield "subscript", lambda v: a[v]
    yield "subscripts", lambda v: a[i, v]
    yield "set item", lambda v: a.__setitem__(v, v)
    yield "pad", lambda v: a.pad(v)
    yield "in_", lambda v: i.in_(v, n)
    yield "in_ hi", lambda v: i.in_(0, v)
    yield "typed", lambda v: a.typed(v)
    yield "typed shape", lambda v: a.typed(pk.f32, v)
    yield "typed dimension", lambda v: a.typed(pk.f32, (v, 3))
    for op in ("set", "add", "mul", "max", "min", "any", "all"):
        yield f"assign {op}", lambda v, op=op: getattr(a[i], op)(v)
    statement = a[i].set(b[i])
    yield "for_", lambda v: statement.for_(v)
    yield "for_ named", lambda v: statement.for_(i=v)
    yield "for_ pair", lambda v: statement.for_(i=(v, n))
    yield "statement where", lambda v: statement.where(v)
    yield "loop", lambda v: pk.loop(v, 0, n, statement)
    yield "loop lo", lambda v: pk.loop(j, v, n, statement)
    yield "loop hi", lambda v: pk.loop(j, 0, v, statement)
    yield "loop body", lambda v: pk.loop(j, 0, n, v)
    yield "build", pk.build
    yield "build sizes", lambda v: pk.build(statement, sizes=v)
    yield "build size", lambda v: pk.build(statement, sizes={"N": v})
    yield "declare", lambda v: pk.declare(v, [a], [b], statement)
    yield "declare inputs", lambda v: pk.declare("f", v, [a], statement)
    yield "declare input", lambda v: pk.declare("f", [v], [a], statement)
    yield "declare outputs", lambda v: pk.declare("f", [b], v, statement)
    yield "declare output", lambda v: pk.declare("f", [b], [v], statement)
    yield "declare body", lambda v: pk.declare("f", [b], [a], v)
    for op in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "and",
        "or",
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
    ):
        yield f"operator {op}", lambda v, op=op: getattr(a[i], f"__{op}__")(v)
    for op in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or"):
        yield f"operator r{op}", lambda v, op=op: getattr(a[i], f"__r{op}__")(v)
