"""Find the gathered index that is out of range, and its value, once a kernel has reported that there is one.

The arguments of the call are read again, statement by statement in the order of the text, by NumPy. What is gathered by
temporaries or by what the operator writes is not there any more: then the kernel's guard says which access it was.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from polyker.codegen.argument_layout import extent, strides_of
from polyker.codegen.artifact import Artifact
from polyker.codegen.ir.polynomial import evaluate
from polyker.errors.base import PolykerError, failure
from polyker.errors.schedules import GATHERED
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read, Reduce, SizeExpr, children, walk
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.ir.typed import Role, TypedProgram
from polyker.ir.typed_printing import labels_of, written
from polyker.poly.boxes import ends
from polyker.poly.isl import Set, dim, int_val, isl_job, read_set
from polyker.runtime.kinds import Array

_CHUNK_POINTS = 1 << 20  # points that are looked at together (chosen)
_MAX_CHUNKS = 1 << 8  # of so many points at most: what lies further on is not looked for (chosen)
_MAX_CANDIDATES = 1 << 10  # places out of range that may turn out to be no instance's (chosen)
_ISL_OPERATIONS = 4_000_000  # that isl may take for the places, a second at most (chosen)


class _Gather(Struct, frozen=True):
    """A subscript that reads a tensor, with the isl text of the points at which it is evaluated."""

    tensor: str
    dimension: int
    subscript: Expr
    domain: str


def out_of_range(
    artifact: Artifact, pointers: Sequence[int], integers: Sequence[int], status: int
) -> PolykerError | None:
    """Return the error of the first gathered index of a call that is out of range, None where none is found.

    `pointers`, `integers`: what the kernel was given; `status`: what it returned, which says the access that failed first.
    """
    guard = dict(artifact.guards[status].values)
    try:
        with isl_job("gathers", _ISL_OPERATIONS):
            return _GatherSearch(artifact, pointers, integers).found(
                guard.get("tensor", ""), guard.get("dimension", "")
            )
    except (PolykerError, MemoryError):
        return None  # the guard's own words do


class _GatherSearch:
    def __init__(self, artifact: Artifact, pointers: Sequence[int], integers: Sequence[int]) -> None:
        self.typed = artifact.typed
        env = dict(zip(artifact.kernel.integers, integers, strict=False))
        self.sizes = {name: env[name] for name, _ in self.typed.sizes if name in env}
        self.arrays: dict[str, Array] = {}
        for name, layout, pointer in zip(artifact.arguments, artifact.layouts, pointers, strict=False):
            tensor = self.typed.tensor(name)
            if tensor.role is Role.INPUT and tensor.dtype.is_integer:
                shape = tuple(extent(e) for e in tensor.shape)
                steps = [evaluate(s, env) for s in strides_of(name, shape, layout)[0]]
                extents = [evaluate(n, env) for n in shape]
                self.arrays[name] = _view(pointer, extents, steps, tensor.dtype.numpy)

    def found(self, tensor: str, dimension: str) -> PolykerError | None:
        """Return the error of the first gather that is out of range, of those of a dimension of a tensor if there is one."""

        def is_other(gather: _Gather) -> bool:
            return (self.typed.tensor(gather.tensor).label, str(gather.dimension)) != (tensor, dimension)

        for gather in sorted(_gathers(self.typed), key=is_other):
            if all(r.tensor in self.arrays for r in walk(gather.subscript) if isinstance(r, Read)):
                at = self.first(gather)
                if at is not None:
                    return self.error(gather, at)
        return None

    def first(self, gather: _Gather) -> Mapping[str, int] | None:
        """Return the first point at which a gathered index is out of range."""
        points, names = self.points(gather)
        found = [ends(points, d) for d in range(len(names))]
        spans = [range(e[0], e[1] + 1) for e in found if e is not None]
        if len(spans) < len(names) or points.is_empty():
            return None
        limit, tried = self.extent(gather), 0
        for part in islice(_parts(spans), _MAX_CHUNKS):
            shape = tuple(map(len, part))
            env = {
                n: np.array(s, np.int64).reshape(_along(k, shape))
                for k, (n, s) in enumerate(zip(names, part, strict=True))
            }
            value, known = self.value(gather.subscript, env)
            bad = np.broadcast_to(known & ((value < 0) | (value >= limit)), shape)
            for element in np.argwhere(bad):
                at = [s[int(k)] for s, k in zip(part, element, strict=True)]
                if _contains(points, at):
                    return dict(zip(names, at, strict=True))
                tried += 1
                if tried == _MAX_CANDIDATES:
                    return None
        return None

    def points(self, gather: _Gather) -> tuple[Set, tuple[str, ...]]:
        """Return the values of the iterators that a subscript uses, and their names."""
        points = read_set(gather.domain)
        for k in range(points.dim(dim.param)):
            points = points.fix_val(dim.param, k, int_val(self.sizes[points.get_dim_name(dim.param, k)]))
        used = {e.name for e in walk(gather.subscript) if isinstance(e, IndexExpr)}
        names = [points.get_dim_name(dim.set, d) for d in range(points.dim(dim.set))]
        for d in reversed(range(len(names))):
            if names[d] not in used:
                points = points.project_out(dim.set, d, 1)
        return points, tuple(n for n in names if n in used)

    def extent(self, gather: _Gather) -> int:
        """Return the extent that a gathered index has to be below."""
        return evaluate(extent(self.typed.tensor(gather.tensor).shape[gather.dimension]), self.sizes)

    def value(self, expr: Expr, env: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the values of a subscript, and where what it reads is in range."""
        match expr:
            case Literal(value=value):
                return np.int64(int(value.real)), np.True_
            case IndexExpr(name=name):
                return env[name], np.True_
            case SizeExpr(name=name):
                return np.int64(self.sizes[name]), np.True_
            case Cast(to=to, arg=arg):
                value, known = self.value(arg, env)
                return value.astype(to.numpy), known
            case Read(tensor=tensor, subscripts=subscripts):
                array, known = self.arrays[tensor], np.True_
                places = []
                for subscript, n in zip(subscripts, array.shape, strict=True):
                    place, here = self.value(subscript, env)
                    known = known & here & (place >= 0) & (place < n)
                    places.append(np.clip(place, 0, max(n - 1, 0)))
                if 0 in array.shape:
                    return np.int64(0), np.False_
                return array[tuple(places)], known
            case Call(op=op, args=args):
                found = [self.value(a, env) for a in args]
                value, known = found[0]
                if op == "neg":
                    return -value, known
                with np.errstate(all="ignore"):
                    for other, here in found[1:]:
                        value, known = _OPERATIONS[op](value, other), known & here
                return value, known
            case _:
                raise failure(GATHERED, index="", found="", tensor="", dimension=0, extent=0)

    def error(self, gather: _Gather, at: Mapping[str, int]) -> PolykerError:
        """Return the error that names the index, its value, and the elements that it was read from."""
        labels = labels_of(self.typed)
        env = {n: np.int64(v) for n, v in at.items()}
        reads = [e for e in walk(gather.subscript) if isinstance(e, Read)]
        outer = [r for r in reads if not any(r in list(walk(s))[1:] for s in reads)]
        shown = []
        for read in dict.fromkeys(outer):
            places = ", ".join(str(int(self.value(s, env)[0])) for s in read.subscripts)
            element = f"{labels[read.tensor]}[{places}]" if read.subscripts else labels[read.tensor]
            shown.append((element, int(self.value(read, env)[0])))
        value = int(self.value(gather.subscript, env)[0])
        plain = gather.subscript
        while isinstance(plain, Cast):
            plain = plain.arg
        if isinstance(plain, Read):
            element, value = shown[0]
            found = f"{value} at `{element}`"
        else:
            found = f"{value} where " + " and ".join(f"`{element}` is {n}" for element, n in shown)
        span = next((e.span for e in walk(gather.subscript) if e.span is not None), None)
        return failure(
            GATHERED,
            span=span,
            index=written(gather.subscript, labels),
            found=f"{found}, ",
            tensor=labels[gather.tensor],
            dimension=gather.dimension,
            extent=self.extent(gather),
        )


_OPERATIONS = {
    "add": np.add, "mul": np.multiply, "floordiv": np.floor_divide, "mod": np.remainder, "minimum": np.minimum,
    "maximum": np.maximum,
}  # fmt: skip


def _gathers(typed: TypedProgram) -> Iterator[_Gather]:
    """Yield the subscripts of a program that read tensors, those inside others before them."""
    for s in typed.statements():
        own = Read(s.target, s.subscripts)
        yield from _of(s.expr, s.domain)
        yield from _of(own, s.domain)


def _of(expr: Expr, domain: str) -> Iterator[_Gather]:
    inside = expr.domain if isinstance(expr, Reduce) and expr.domain is not None else domain
    for child in children(expr):
        yield from _of(child, inside)
    if isinstance(expr, Read) and expr.pad is None:
        for d, subscript in enumerate(expr.subscripts):
            if not is_quasi_affine(subscript):
                yield _Gather(expr.tensor, d, subscript, inside)


def _view(pointer: int, shape: Sequence[int], steps: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Return the array at an address, its strides in elements."""
    if 0 in shape:
        return np.empty(shape, dtype)
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, steps, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, steps, strict=True))
    size = dtype.itemsize
    memory = (ctypes.c_char * ((high - low + 1) * size)).from_address(pointer + low * size)
    return np.ndarray(shape, dtype, np.frombuffer(memoryview(memory), np.uint8), -low * size, [s * size for s in steps])


def _parts(spans: Sequence[range]) -> Iterator[list[range]]:
    """Yield boxes of few points that make up a box, in lexicographic order."""
    if prod(map(len, spans)) <= _CHUNK_POINTS or not spans:
        yield list(spans)
        return
    first, rest = spans[0], spans[1:]
    step = _CHUNK_POINTS // max(1, prod(map(len, rest)))
    if step:
        for k in range(0, len(first), step):
            yield [first[k : k + step], *rest]
        return
    for value in first:
        for part in _parts(rest):
            yield [range(value, value + 1), *part]


def _contains(points: Set, at: Sequence[int]) -> bool:
    for d, value in enumerate(at):
        points = points.fix_val(dim.set, d, int_val(value))
    return not points.is_empty()


def _along(place: int, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(n if k == place else 1 for k, n in enumerate(shape))
