"""Write element-wise operators: a row each, in the notation, with the names of the schema's arguments."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import torch

from polyker.bridge.torch.indices import Subscript, Unsupported
from polyker.bridge.torch.kinds import converted, literal, wide
from polyker.bridge.torch.loops import StatementLoops
from polyker.bridge.torch.rules.table import RULES, ResultMeta, Rule, rule
from polyker.bridge.torch.writer import MAX_INLINE_OPERATIONS, TensorValue, Writer

# Operands are converted to the type of the result (of 16 bits: to f32).
ARITHMETIC = {
    "abs": "abs({self})",
    "acos": "acos({self})",
    "acosh": "acosh({self})",
    "addcdiv": "{self} + {value} * {tensor1} / {tensor2}",
    "addcmul": "{self} + {value} * {tensor1} * {tensor2}",
    "asin": "asin({self})",
    "asinh": "asinh({self})",
    "atan": "atan({self})",
    "atan2": "atan2({self}, {other})",
    "atanh": "atanh({self})",
    "bitwise_and": "{self} & {other}",
    "bitwise_not": "~{self}",
    "bitwise_or": "{self} | {other}",
    "bitwise_xor": "{self} ^ {other}",
    "ceil": "ceil({self})",
    "copysign": "copysign({self}, {other})",
    "cos": "cos({self})",
    "cosh": "cosh({self})",
    "div.Scalar": "{self} / {other}",
    "div.Tensor": "{self} / {other}",
    "digamma": "digamma({self})",
    "elu_backward": "{grad_output} * where({self_or_result} <= 0, {scale} * {alpha} * {input_scale} * exp({self_or_result} * {input_scale}), {scale} * {input_scale})",  # noqa: E501
    "erf": "erf({self})",
    "erfc": "erfc({self})",
    "erfinv": "erfinv({self})",
    "exp": "exp({self})",
    "exp2": "exp2({self})",
    "expm1": "expm1({self})",
    "floor": "floor({self})",
    "fmod": "fmod({self}, {other})",
    "hardsigmoid": "clip({self} / 6 + 0.5, 0, 1)",
    "hardswish": "{self} * clip({self} + 3, 0, 6) / 6",
    "hardtanh": "minimum(maximum({self}, {min_val}), {max_val})",
    "hardtanh_backward": "where({self} > {min_val} and {self} < {max_val}, {grad_output}, 0)",
    "hypot": "hypot({self}, {other})",
    "leaky_relu": "where({self} > 0, {self}, {negative_slope} * {self})",
    "leaky_relu_backward": "where({self} > 0, {grad_output}, {negative_slope} * {grad_output})",
    "lerp": "{self} + {weight} * ({end} - {self})",
    "lgamma": "lgamma({self})",
    "log": "log({self})",
    "log10": "log10({self})",
    "log1p": "log1p({self})",
    "log2": "log2({self})",
    "masked_fill": "where({mask}, {value}, {self})",
    "maximum": "maximum({self}, {other})",
    "minimum": "minimum({self}, {other})",
    "mul": "{self} * {other}",
    "neg": "-{self}",
    "reciprocal": "1 / {self}",
    "relu": "relu({self})",
    "remainder": "{self} % {other}",
    "round": "round({self})",
    "rsqrt": "rsqrt({self})",
    "sigmoid": "sigmoid({self})",
    "sigmoid_backward": "{grad_output} * {output} * (1 - {output})",
    "sgn": "where({self} > 0, 1, where({self} < 0, -1, 0))",
    "sign": "where({self} > 0, 1, where({self} < 0, -1, 0))",
    "silu": "silu({self})",
    "silu_backward": "{grad_output} * sigmoid({self}) * (1 + {self} * (1 - sigmoid({self})))",
    "sin": "sin({self})",
    "sinh": "sinh({self})",
    "softplus": "where({self} * {beta} > {threshold}, {self}, softplus({self} * {beta}) / {beta})",
    "softplus_backward": "where({self} * {beta} > {threshold}, {grad_output}, {grad_output} * sigmoid({self} * {beta}))",
    "sqrt": "sqrt({self})",
    "square": "{self} * {self}",
    "tan": "tan({self})",
    "tanh": "tanh({self})",
    "tanh_backward": "{grad_output} * (1 - {output} * {output})",
    "threshold_backward": "where({self} <= {threshold}, 0, {grad_output})",
    "trunc": "trunc({self})",
    "where": "where({condition}, {self}, {other})",
}
# Operands are converted to their common type; the result is a truth value.
COMPARISONS = {
    "eq": "{self} == {other}",
    "ge": "{self} >= {other}",
    "gt": "{self} > {other}",
    "isinf": "isinf({self})",
    "isnan": "isnan({self})",
    "le": "{self} <= {other}",
    "lt": "{self} < {other}",
    "ne": "{self} != {other}",
}
# Operands are truth values.
LOGICAL = {
    "logical_and": "{self} and {other}",
    "logical_not": "not {self}",
    "logical_or": "{self} or {other}",
    "logical_xor": "{self} != {other}",
}
_TRUTHS = ("condition", "mask")


def computed(w: Writer, out: ResultMeta, form: str, compute: Any = None, /, **operands: Any) -> TensorValue:
    """Return the value of a form over operands, values or numbers, computed in a type and given in the result's."""
    within = wide(out.dtype) if compute is None else compute
    fields = re.findall(r"\{(\w+)\}", form)
    work = len(re.findall(r"[-+*/%<>=&|^~]+|\b[a-z]\w*\(|\b(?:and|or|not)\b", form))
    values = {}
    for name in dict.fromkeys(fields):
        value = operands[name]
        if isinstance(value, TensorValue):
            again = fields.count(name) > 1 or value.shape != out.shape
            value = w.cheap(value, (2 if fields.count(name) > 1 else 0) if again else MAX_INLINE_OPERATIONS - work)
            work += value.work
        values[name] = value

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        shown = {}
        for name, value in values.items():
            to = torch.bool if name in _TRUTHS else within
            if isinstance(value, TensorValue):
                shown[name] = converted(value.read(loops, value.aligned(index)), value.dtype, to)
            elif isinstance(value, (bool, int, float)):
                shown[name] = literal(value, to)
            else:  # the value of a symbol
                shown[name] = converted(loops.sizes.text(value), torch.int64, to)
        return converted(f"({form.format(**shown)})", bool_or(within, out), out.dtype)

    return TensorValue(out.shape, out.dtype, read, max(work, 1))


def bool_or(within: Any, out: ResultMeta) -> Any:
    """Return the type that a form gives: a comparison's is bool, whatever it compares."""
    return torch.bool if out.dtype == torch.bool else within


def common(operands: list[Any]) -> Any:
    """Return the type that torch compares operands in."""
    found: Any = None
    for value in operands:
        if isinstance(value, TensorValue):
            one: Any = torch.empty((1,) * min(len(value.shape), 1), dtype=value.dtype)
        elif isinstance(value, (bool, int, float)):
            one = value
        else:
            one = 0
        if found is not None:
            dims = any(isinstance(v, torch.Tensor) and v.ndim for v in (found, one))
            one = torch.empty((1,) * dims, dtype=torch.result_type(found, one))
        found = one
    return found.dtype


def _arithmetic(form: str) -> Rule:
    def write(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
        if not out.dtype.is_floating_point and re.match("(?:round|ceil|floor|trunc)", form):
            x: TensorValue = a.self
            return x
        if getattr(a, "decimals", 0):
            raise Unsupported("rounding to decimals")
        return computed(w, out, form, **vars(a))

    return write


def _compared(form: str) -> Rule:
    def write(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
        return computed(w, out, form, wide(common(list(vars(a).values()))), **vars(a))

    return write


def _logical(form: str) -> Rule:
    return lambda w, a, out: computed(w, out, form, torch.bool, **vars(a))


RULES.update({name: _arithmetic(form) for name, form in ARITHMETIC.items()})
RULES.update({name: _compared(form) for name, form in COMPARISONS.items()})
RULES.update({name: _logical(form) for name, form in LOGICAL.items()})


def _sum(sign: str) -> Rule:
    def write(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
        factor = "" if a.alpha == 1 else "{alpha} * "
        return computed(w, out, f"{{self}} {sign} {factor}{{other}}", **vars(a))

    return write


RULES |= {"add": _sum("+"), "sub": _sum("-")}


@rule("pow")
def _pow(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    e = a.exponent
    if isinstance(e, (int, float)) and not isinstance(e, bool) and float(e).is_integer() and 0 <= e < 1 << 20:
        return computed(w, out, f"{{self}} ** {int(e)}", self=a.self)
    if not out.dtype.is_floating_point:
        raise Unsupported("powers of integers whose exponent is no number")
    return computed(w, out, "{self} ** {exponent}", **vars(a))


@rule("div.Tensor_mode", "div.Scalar_mode")
def _div(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    if a.rounding_mode == "floor":
        return computed(w, out, "{self} // {other}", **vars(a))
    if a.rounding_mode == "trunc" and out.dtype.is_floating_point:
        return computed(w, out, "trunc({self} / {other})", **vars(a))
    if a.rounding_mode is None:
        return computed(w, out, "{self} / {other}", **vars(a))
    raise Unsupported("division of integers that truncates")


@rule("clamp", "clamp_min", "clamp_max")
def _clamp(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    form = "{self}"
    if getattr(a, "min", None) is not None:
        form = f"maximum({form}, {{min}})"
    if getattr(a, "max", None) is not None:
        form = f"minimum({form}, {{max}})"
    return computed(w, out, form, **vars(a))


@rule("elu")
def _elu(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    form = "{scale} * where({self} > 0, {self}, {alpha} * expm1({self} * {input_scale}))"
    return computed(w, out, form, **vars(a))


_ROOT, _CUBE = 0.7978845608028654, 0.044715  # of the approximation of gelu by tanh


@rule("gelu")
def _gelu(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    if a.approximate == "none":
        return computed(w, out, "gelu({self})", self=a.self)
    form = f"0.5 * {{self}} * (1 + tanh({_ROOT} * ({{self}} + {_CUBE} * {{self}} * {{self}} * {{self}})))"
    return computed(w, out, form, self=a.self)


@rule("gelu_backward")
def _gelu_backward(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    if a.approximate == "none":
        density = "0.3989422804014327 * exp(-0.5 * {self} * {self})"
        form = f"{{grad_output}} * (0.5 * (1 + erf(0.7071067811865476 * {{self}})) + {{self}} * {density})"
        return computed(w, out, form, **vars(a))
    x = w.cheap(a.self, 1)
    inner = ResultMeta(out.shape, wide(out.dtype))
    t = w.stored(computed(w, inner, f"tanh({_ROOT} * ({{x}} + {_CUBE} * {{x}} * {{x}} * {{x}}))", x=x))
    slope = f"{_ROOT} * (1 + {3 * _CUBE} * {{x}} * {{x}})"
    form = f"{{g}} * (0.5 * (1 + {{t}}) + 0.5 * {{x}} * (1 - {{t}} * {{t}}) * {slope})"
    return computed(w, out, form, g=a.grad_output, x=x, t=t)


@rule("clone", "_to_copy", "convert_element_type", "alias", "detach", "lift_fresh_copy", "contiguous")
def _copy(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    x: TensorValue = a.self
    return x.cast(out.dtype)
