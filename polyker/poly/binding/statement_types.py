"""Element types of a program's tensors and statements: fresh tensors by promotion over their defining statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from polyker.errors.base import failure
from polyker.errors.types import NARROWER_KIND, NO_LOOP, NO_TYPE, TOO_DEEP
from polyker.ir.dtypes import DType, bool_, f64, i64
from polyker.ir.expr import Call, Cast, Expr, Literal, Read, Reduce, walk
from polyker.ir.measure import DEPTH, depth_of, measured
from polyker.ir.promotion import UnknownType, ValueType, computed, integer_range, promote
from polyker.ir.reductions import accumulator, admitted
from polyker.ir.typing import Typer, convert, truth
from polyker.poly.binding.subjects import BoundStatement
from polyker.structs import replace

# The kinds of types, each contained in the next.
_KIND_ORDER = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


class StatementType(Struct, frozen=True):
    """A statement's typed expression (of type `acc`), its typed target subscripts, and the type it accumulates in."""

    expr: Expr
    subscripts: tuple[Expr, ...]
    acc: DType


def type_statements(
    subjects: Sequence[BoundStatement],
    known: Mapping[str, ValueType],
    names: Mapping[str, str],
    domains: Mapping[str, str],
    acc: DType | None,
) -> tuple[list[StatementType], dict[str, DType]]:
    """Return each statement typed, and every tensor's element type; `known` has those of arguments and declarations.

    Raises:
        DTypeError: where an operation, a store or a literal does not fit, or a type depends on itself alone.
    """
    types: dict[str, ValueType | None] = {s.statement.target: None for s in subjects} | dict(known)
    typer = Typer(types, names, domains, acc)
    while True:
        typed, missing, changed = _pass(typer, types, subjects, frozenset(known))
        if changed:
            continue
        if missing is not None:
            if _begun(typer, types, subjects):
                continue
            culprit = next(s for s in subjects if s.statement.target == missing or types[s.statement.target] is None)
            raise failure(NO_TYPE, span=culprit.statement.target_span, tensor=missing)
        weak = [t for t, v in types.items() if v is not None and v.weak and t not in known]
        if not weak:
            return typed, {t: v.dtype for t, v in types.items() if v is not None}
        for tensor in weak:
            types[tensor] = ValueType(types[tensor].dtype)  # type: ignore[union-attr]


def limits(scalar: str, exprs: Sequence[Expr]) -> tuple[int, int] | None:
    """Return the least and the greatest value that a Python integer given for the 0-d tensor `scalar` may have.

    Where it meets a narrower integer type it is converted to that type, and has to fit it, as a literal there has to.
    None where it meets none.
    """
    found: tuple[int, int] | None = None
    for cast in (e for expr in exprs for e in walk(expr) if isinstance(e, Cast) and e.to.is_integer):
        match cast.arg:
            case Read(tensor=tensor) if tensor == scalar:
                low, high = integer_range(cast.to)
            case Call(op="neg", args=(Read(tensor=tensor),)) if tensor == scalar:
                high, low = (-end for end in integer_range(cast.to))
            case _:
                continue
        found = (low, high) if found is None else (max(low, found[0]), min(high, found[1]))
    return found


def _pass(
    typer: Typer, types: dict[str, ValueType | None], subjects: Sequence[BoundStatement], known: frozenset[str]
) -> tuple[list[StatementType], str | None, bool]:
    """Type every statement once; `types` grows. Returns (typed, a tensor of unknown type, whether to go on)."""
    typed: list[StatementType] = []
    missing: str | None = None
    used: set[str] = set()
    changed = False
    for subject in subjects:
        target = subject.statement.target
        reads = {a.tensor for a in subject.reads}
        try:
            body, condition = typer.type(subject.expr), typer.condition(subject.conditions)
        except UnknownType as unknown:
            missing = unknown.tensor
            continue
        if target not in known:
            made = _contribution(subject.statement.op, body[1])
            before = types[target]
            after = made if before is None else promote(before, made)
            if after != before:
                types[target] = after
                changed = changed or target in used or target in reads
        used |= {target, *reads}
        kind = types[target]
        assert kind is not None
        found = _statement(typer, subject, body, kind, typer.acc)
        found = replace(found, expr=admitted(subject.statement.op, found.expr, condition))
        typed.append(_checked(found, subject))
    # A statement that was skipped can be typed once the pass has found what it reads.
    progressed = missing is not None and types[missing] is not None
    return typed, missing, changed or progressed


def _begun(typer: Typer, types: dict[str, ValueType | None], subjects: Sequence[BoundStatement]) -> bool:
    """Give tensors that are known by themselves only the type of what else their statements read; return whether any has one.

    `X[i] = (B[i] - sum[k in 0:i](L[i,k] * X[k])) / L[i,i]`: that of B and L, which the next pass widens where it has to.
    """
    unknown = frozenset(t for t, found in types.items() if found is None)
    begun = False
    for subject in subjects:
        target = subject.statement.target
        rest = _without(subject.expr, unknown) if target in unknown else None
        found = None if rest is None else _contribution(subject.statement.op, typer.type(rest)[1])
        if found is not None and not found.weak:
            before = types[target]
            types[target] = found if before is None else promote(before, found)
            begun = True
    return begun


def _without(expr: Expr, unknown: frozenset[str]) -> Expr | None:
    """Return an expression with another operand in the place of each that reads nothing else; None if all of it does."""
    match expr:
        case Read(tensor=tensor):
            return None if tensor in unknown else expr
        case Call(args=args) if args:
            parts = [_without(a, unknown) for a in args]
            known = [p for p in reversed(parts) if p is not None]  # the last: the first one of `where` is a condition
            return replace(expr, args=tuple(known[0] if p is None else p for p in parts)) if known else None
        case Cast(arg=arg):
            return replace(expr, arg=_without(arg, unknown) or Literal(0))
        case Reduce(body=body):
            rest = _without(body, unknown)
            return None if rest is None else replace(expr, body=rest, conditions=())
        case _:
            return expr


def _checked(typed: StatementType, subject: BoundStatement) -> StatementType:
    """Raise DTypeError where conversions between types make a value deeper than the compiler's recursion over it may be."""
    for node, depth, _ in measured(typed.expr):
        if depth > DEPTH:
            statement = subject.statement
            raise failure(
                TOO_DEEP,
                span=node.span or statement.span,
                target=statement.target,
                depth=depth_of(typed.expr),
                limit=DEPTH,
            )
    return typed


def _contribution(op: str, body: ValueType) -> ValueType:
    """Return the type that a statement gives a fresh target."""
    if op in ("any", "all"):
        return ValueType(bool_)
    if op in ("add", "mul") and body.dtype == bool_:
        return ValueType(i64)
    if op == "logsumexp" and body.dtype.kind in "biu":
        return ValueType(f64, body.weak)
    return body


def _statement(
    typer: Typer, subject: BoundStatement, body: tuple[Expr, ValueType], target: ValueType, acc: DType | None
) -> StatementType:
    statement = subject.statement
    op, (node, found) = statement.op, body
    subscripts = tuple(typer.subscript(s) for s in subject.subscripts)
    if op in ("max", "min", "logsumexp") and found.dtype.is_complex:
        advice = "take `abs(...)` or `real(...)`"
        raise failure(NO_LOOP, span=statement.span, op=f"{op}=", types=found, advice=advice)
    if op in ("max", "min", "logsumexp") and target.dtype.is_complex:
        # Real values in a tensor that is complex by its declaration or by other statements: its elements have no order.
        advice = f"reduce into a real tensor, and copy it into `{statement.target}`"
        raise failure(NO_LOOP, span=statement.span, op=f"{op}=", types=target, advice=advice)
    if op in ("any", "all"):
        return StatementType(truth(node, found), subscripts, bool_)
    made = _contribution(op, found)
    if _KIND_ORDER[made.dtype.kind] > _KIND_ORDER[target.dtype.kind]:
        name, span = statement.target, statement.span
        raise failure(NARROWER_KIND, span=span, found=made, tensor=name, dtype=target.dtype)
    if op == "set":
        kind = ValueType(target.dtype) if found.weak else found
        node = convert(node, found, kind, statement.span)
        assert node.dtype is not None
        return StatementType(node, subscripts, node.dtype)
    whole = made.dtype.kind in "biu"
    wide = target if op in ("add", "mul") and whole else promote(made, target)
    into = computed(wide.dtype)
    if op in ("add", "mul", "logsumexp"):
        into = accumulator(into, acc)
    return StatementType(convert(node, found, ValueType(into), statement.span), subscripts, into)
