"""Match expressions up to renaming of their indices (alpha-equivalence)."""

from __future__ import annotations

from collections.abc import Mapping

from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read, SizeExpr, children, walk

# Of two operands in either order the result has the same bits.
_COMMUTE = {"add", "mul", "eq", "ne", "and", "or"}


def match(
    one: Expr, other: Expr, names: Mapping[str, str], tensors: Mapping[str, str] | None = None
) -> Mapping[str, str] | None:
    """Return the names of indices with which `one` is `other`, a continuation of `names`; None where there are none.

    Several indices may get one name. `tensors`: those of `one` that have another name in `other`.
    """
    if type(one) is not type(other):
        return None
    match one, other:
        case IndexExpr(name=here), IndexExpr(name=there):
            if here in names:
                return names if names[here] == there else None
            return {**names, here: there}
        case Literal(), Literal():
            # A zero has a sign, and no NaN equals itself.
            return names if (repr(one.value), one.dtype) == (repr(other.value), other.dtype) else None
        case SizeExpr(), SizeExpr():
            return names if one.name == other.name else None
        case Read(), Read():
            renamed = (tensors or {}).get(one.tensor, one.tensor)
            alike = (renamed, repr(one.pad), one.dtype) == (other.tensor, repr(other.pad), other.dtype)
        case Cast(), Cast():
            alike = one.to == other.to
        case Call(), Call():
            alike = (one.op, one.dtype, len(one.args)) == (other.op, other.dtype, len(other.args))
            real = one.dtype is not None and one.dtype.kind != "c"
            if alike and real and one.op in _COMMUTE:
                swapped = _all(one.args, (*other.args[1::-1], *other.args[2:]), names, tensors)
                found = _all(one.args, other.args, names, tensors)
                return swapped if found is None else found
        case _:
            return None
    return _all(children(one), children(other), names, tensors) if alike else None


def _all(
    ones: tuple[Expr, ...], others: tuple[Expr, ...], names: Mapping[str, str], tensors: Mapping[str, str] | None
) -> Mapping[str, str] | None:
    found: Mapping[str, str] | None = names
    for one, other in zip(ones, others, strict=True):
        if found is None:
            return None
        found = match(one, other, found, tensors)
    return found


def outline_of(expr: Expr, own: str = "") -> tuple[str, ...]:
    """Return what expressions that match have in common, the tensor `own` under no name."""
    return tuple(sorted(_node(e, own) for e in walk(expr)))


def _node(expr: Expr, own: str) -> str:
    match expr:
        case Read(tensor=tensor):
            return "" if tensor == own else tensor
        case Call(op=op):
            return op
        case Literal(value=value):
            return repr(value)
        case _:
            return type(expr).__name__
