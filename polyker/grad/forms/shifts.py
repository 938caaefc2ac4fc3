"""Find extrema that cancel: shifts of exponentials, as in softmax and in the logarithm of a sum of exponentials.

`exp(x[i] - m) / sum[j](exp(x[j] - m))` and `m + log(sum[j](exp(x[j] - m)))` are the same whatever m is, so that no gradient
goes through m. A value depends on m by a degree k: it is a value without m times exp(k * m), or plus k * m.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from polyker.grad.bound import PlainProgram, PlainStatement
from polyker.ir.expr import COMPARISONS, Call, Cast, Expr, IndexExpr, Literal, Read, reads_in, walk
from polyker.ir.quasi_affine import indices_of, substitute
from polyker.structs import replace


class Degree(Struct, frozen=True):
    """How a value depends on an element of m: times exp(`by` * m) if it `scales`, else plus `by` * m; `place`: the element."""

    by: float
    scales: bool = False
    place: tuple[Expr, ...] = ()


class _Unknown(Exception):
    """No degree says how a value depends on m."""


NONE = Degree(0)


def with_shifts(program: PlainProgram) -> PlainProgram:
    """Return the program with extrema that cancel among its constants."""
    outside = {*program.program.inputs, *program.program.outputs}
    extrema = {s.target for s in program.statements if s.op in ("max", "min")} - outside - program.constant
    found = {m for m in extrema if _cancels(program, m, outside)}
    return replace(program, constant=program.constant | found) if found else program


def _cancels(program: PlainProgram, tensor: str, outside: set[str]) -> bool:
    """Whether no result depends on a tensor."""
    degrees: dict[str, Degree] = {tensor: Degree(1)}
    statements = [s for s in program.statements if s.target != tensor]
    try:
        # What is read is defined before; what an iteration reads of the one before has to have the same degree then.
        for _ in range(2):
            for s in statements:
                is_start = s.op == "set" and _is_zero(s.expr)  # of a sum, whatever its degree is
                here = degrees.get(s.target) if is_start else _of_statement(s, degrees, tensor)
                if here is not None and degrees.setdefault(s.target, here) != here:
                    return False
    except _Unknown:
        return False
    return all(d.by == 0 for name, d in degrees.items() if name in outside)


def _of_statement(s: PlainStatement, degrees: Mapping[str, Degree], tensor: str) -> Degree:
    """Return the degree of what a statement writes, its place in terms of the target's dimensions."""
    if any(degrees.get(r.tensor, NONE).by for r in reads_in(*s.subscripts, *s.conditions)):
        raise _Unknown
    found = _of(s.expr, degrees, tensor)
    if found.by == 0:
        return NONE
    if s.op not in ("set", "add") or (s.op == "add" and not found.scales):
        raise _Unknown
    dimensions = {e.name: IndexExpr(f"[{d}]") for d, e in enumerate(s.subscripts) if isinstance(e, IndexExpr)}
    place = tuple(
        IndexExpr(f"[{s.subscripts.index(e)}]") if e in s.subscripts else substitute(e, dimensions) for e in found.place
    )
    if any(not name.startswith("[") for e in place for name in indices_of(e)):
        raise _Unknown
    return replace(found, place=place)


def _of(expr: Expr, degrees: Mapping[str, Degree], tensor: str) -> Degree:
    """Return the degree of an expression; raises _Unknown."""
    if not any(isinstance(e, Read) and degrees.get(e.tensor, NONE).by for e in walk(expr)):
        return NONE
    match expr:
        case Read(pad=None):
            if any(degrees.get(r.tensor, NONE).by for r in reads_in(*expr.subscripts)):
                raise _Unknown
            if expr.tensor == tensor:
                return Degree(1, place=expr.subscripts)
            known = degrees[expr.tensor]
            at = {f"[{d}]": e for d, e in enumerate(expr.subscripts)}
            return replace(known, place=tuple(substitute(e, at) for e in known.place))
        case Cast(arg=arg, to=to) if to.is_float:
            return _of(arg, degrees, tensor)
        case Call(op="where", args=(condition, Read(tensor=name) as value, Literal(value=0))) if (
            name == tensor and _is_finite(condition, value)
        ):
            return _of(value, degrees, tensor)
        case Call(op="where", args=(condition, a, b)) if _of(condition, degrees, tensor).by == 0:
            return _same([d for e in (a, b) if not _is_zero(e) for d in [_of(e, degrees, tensor)]])
        case Call(op="neg", args=(arg,)):
            found = _of(arg, degrees, tensor)
            return found if found.scales else replace(found, by=-found.by)
        case Call(op="exp", args=(arg,)):
            return _turned(_of(arg, degrees, tensor), scales=True)
        case Call(op="log", args=(arg,)):
            return _turned(_of(arg, degrees, tensor), scales=False)
        case Call(op="add", args=args):
            terms = [_of(a, degrees, tensor) for a in args if not _is_zero(a)]
            return _same(terms) if any(d.scales for d in terms) else _total(terms)
        case Call(op="mul", args=args):
            return _total([_scaling(_of(a, degrees, tensor)) for a in args])
        case Call(op="div", args=(a, b)):
            below = _scaling(_of(b, degrees, tensor))
            return _total([_scaling(_of(a, degrees, tensor)), replace(below, by=-below.by)])
    raise _Unknown


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value == 0


def _is_finite(condition: Expr, value: Expr) -> bool:
    """Whether a condition is `abs(value) < inf`."""
    return isinstance(condition, Call) and condition.op in COMPARISONS and condition.args[0] == Call("abs", (value,))


def _scaling(degree: Degree) -> Degree:
    if degree.by and not degree.scales:
        raise _Unknown
    return degree


def _turned(degree: Degree, *, scales: bool) -> Degree:
    """Return the degree of an exponential or a logarithm."""
    if degree.by and degree.scales == scales:
        raise _Unknown
    return replace(degree, scales=scales) if degree.by else NONE


def _same(degrees: list[Degree]) -> Degree:
    """Return the degree of a sum of values that scale: all alike."""
    if any(d != degrees[0] for d in degrees[1:]):
        raise _Unknown
    return degrees[0] if degrees else NONE


def _total(degrees: Iterable[Degree]) -> Degree:
    """Return the degree of a sum of shifts, or of a product of what scales."""
    moving = [d for d in degrees if d.by]
    by = sum(d.by for d in moving)
    if any((d.scales, d.place) != (moving[0].scales, moving[0].place) for d in moving[1:]):
        raise _Unknown
    return replace(moving[0], by=by) if by else NONE
