"""Conditions on sizes, and extents, from isl texts and expressions to the plain forms that calls are checked by."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from polyker.ir.expr import Call, Expr, IndexExpr, Literal, SizeExpr
from polyker.ir.typed import TypedProgram, TypedTensor
from polyker.poly.affine import Affine, Extremum, Quotient
from polyker.record.forms import SizeForm, value
from polyker.record.records import CallRecord, Failure, SizeCheck, SizeCondition, TensorRecord


def call_record(typed: TypedProgram) -> CallRecord:
    """Return what calls of a typed program are checked by."""
    arguments = {*typed.inputs, *typed.outputs}
    return CallRecord(
        sizes=typed.sizes,
        inputs=typed.inputs,
        outputs=typed.outputs,
        tensors=tuple(tensor_record(t) for t in typed.tensors if t.name in arguments),
        checks=tuple(SizeCheck(conditions_of(c.condition), Failure(c.code, c.values, c.span)) for c in typed.checks),
        acc=tuple(dict.fromkeys(s.acc.name for s in typed.statements())),
    )


def tensor_record(tensor: TypedTensor) -> TensorRecord:
    """Return what calls need to know of a tensor."""
    return TensorRecord(tensor.name, tensor.label, tensor.dtype, tuple(map(extent_form, tensor.shape)), tensor.limits)


@lru_cache(maxsize=1024)
def conditions_of(condition: str) -> tuple[tuple[SizeCondition, ...], ...]:
    """Return an isl parameter set as a disjunction of conjunctions."""
    from polyker.poly import isl
    from polyker.poly.forms import form_of_aff

    with isl.isl_job("checks"):
        conjunctions = []
        for basic in isl.read_set(condition).compute_divs().get_basic_sets():
            conjunction = []
            for constraint in basic.get_constraints():
                form = form_of_aff(constraint.get_aff())
                assert form is not None, "a constraint has integer coefficients"
                conjunction.append((bool(constraint.is_equality()), affine_form(form)))
            conjunctions.append(tuple(conjunction))
    return tuple(conjunctions)


def affine_form(affine: Affine) -> SizeForm:
    """Return a quasi-affine form as a plain one."""
    pairs: list[tuple[SizeForm, int]] = []
    for atom, factor in affine.terms:
        match atom:
            case str():
                pairs.append((atom, factor))
            case Quotient(op=op, form=inner, divisor=divisor):
                pairs.append(((op, affine_form(inner), divisor), factor))
            case Extremum(op=op, forms=forms):
                pairs.append(((op, *map(affine_form, forms)), factor))
    return ("linear", affine.const, *pairs) if pairs else affine.const


def extent_form(expr: Expr) -> SizeForm:
    """Return a quasi-affine expression, such as an extent, as a plain form."""
    match expr:
        case Literal(value=number):
            return int(number.real)
        case SizeExpr(name=name) | IndexExpr(name=name):
            return name
        case Call(op="add" | "mul" | "neg" | "floordiv" | "mod" | "minimum" | "maximum" as op, args=args):
            return (op, *map(extent_form, args))
    raise ValueError(f"not an extent: {expr!r}")


def evaluate_shape(expr: Expr, values: Mapping[str, int]) -> int:
    """Return the value of a quasi-affine expression, such as an extent; `values` has its sizes and indices by name."""
    return value(extent_form(expr), values)
