"""The operations of the Kernel IR on complex types, as LLVM IR on real and imaginary parts; formulas as numpy's."""

from __future__ import annotations

from polyker.codegen.ir.kernel import Const, Op
from polyker.codegen.llvm import operations as ops
from polyker.codegen.llvm.convert import ElementValue
from polyker.codegen.llvm.functions import complex_function
from polyker.codegen.llvm.operations import compare, flop, logical_not, negate
from polyker.codegen.llvm.text import IRBuilder, Reg, const
from polyker.errors.base import InternalError
from polyker.ir.dtypes import DType, bool_


def _split(value: ElementValue) -> tuple[Reg, Reg]:
    return value.re, value.im if value.im is not None else const(0.0, value.re.elem)


def multiply(b: IRBuilder, x: ElementValue, y: ElementValue) -> ElementValue:
    """Return x * y: (ar*br - ai*bi, ar*bi + ai*br), each product rounded."""
    (ar, ai), (br, bi), t = _split(x), _split(y), x.dtype.real
    re = flop(b, "fsub", flop(b, "fmul", ar, br, t), flop(b, "fmul", ai, bi, t), t)
    im = flop(b, "fadd", flop(b, "fmul", ar, bi, t), flop(b, "fmul", ai, br, t), t)
    return ElementValue(x.dtype, re, im)


def multiply_add(b: IRBuilder, x: ElementValue, y: ElementValue, total: ElementValue) -> ElementValue:
    """Return total + x * y, for a reduction: four multiply-adds, each rounded once."""
    (ar, ai), (br, bi), (re, im) = _split(x), _split(y), _split(total)
    re = ops.multiply_add(b, negate(b, ai, x.dtype.real), bi, ops.multiply_add(b, ar, br, re))
    im = ops.multiply_add(b, ai, br, ops.multiply_add(b, ar, bi, im))
    return ElementValue(total.dtype, re, im)


def add(b: IRBuilder, op: str, x: ElementValue, y: ElementValue) -> ElementValue:
    """Return x + y or x - y."""
    (ar, ai), (br, bi), t = _split(x), _split(y), x.dtype.real
    return ElementValue(x.dtype, flop(b, f"f{op}", ar, br, t), flop(b, f"f{op}", ai, bi, t))


def divide(b: IRBuilder, x: ElementValue, y: ElementValue) -> ElementValue:
    """Return x / y by Smith's method, in numpy's arrangement. Source: Smith, "Algorithm 116: Complex Division", 1962."""
    (ar, ai), (br, bi), t = _split(x), _split(y), x.dtype.real
    zero, one = const(0.0, br.elem), const(1.0, br.elem)
    wide_re = b.compare("fcmp oge", b.intrinsic("fabs", br), b.intrinsic("fabs", bi))
    large, small = b.select(wide_re, br, bi), b.select(wide_re, bi, br)
    ratio = flop(b, "fdiv", small, large, t)
    scale = flop(b, "fdiv", one, flop(b, "fadd", large, flop(b, "fmul", small, ratio, t), t), t)
    # |re| >= |im|: (ar + ai*ratio, ai - ar*ratio) * scale; else (ar*ratio + ai, ai*ratio - ar) * scale.
    p, q = b.select(wide_re, ar, ai), b.select(wide_re, ai, ar)
    re = flop(b, "fmul", flop(b, "fadd", p, flop(b, "fmul", q, ratio, t), t), scale, t)
    u = flop(b, "fsub", ai, flop(b, "fmul", ar, ratio, t), t)
    v = flop(b, "fsub", flop(b, "fmul", ai, ratio, t), ar, t)
    im = flop(b, "fmul", b.select(wide_re, u, v), scale, t)
    by_zero = b.binary("and", b.compare("fcmp oeq", br, zero), b.compare("fcmp oeq", bi, zero))
    magnitude = b.intrinsic("fabs", br)
    re = b.select(by_zero, flop(b, "fdiv", ar, magnitude, t), re)
    im = b.select(by_zero, flop(b, "fdiv", ai, magnitude, t), im)
    return ElementValue(x.dtype, re, im)


def _is_nan(b: IRBuilder, x: ElementValue) -> Reg:
    re, im = _split(x)
    return b.compare("fcmp uno", re, im)


def order(b: IRBuilder, op: str, x: ElementValue, y: ElementValue) -> Reg:
    """Return a comparison; complex numbers are ordered by real part, then imaginary part, as numpy's."""
    (ar, ai), (br, bi), t = _split(x), _split(y), x.dtype.real
    if op in ("eq", "ne"):
        same = b.binary("and", compare(b, "eq", ar, br, t), compare(b, "eq", ai, bi, t))
        return same if op == "eq" else logical_not(b, same)
    strict = {"le": "lt", "ge": "gt"}.get(op, op)
    first = b.binary("and", compare(b, strict, ar, br, t), b.compare("fcmp ord", ai, bi))
    return b.binary("or", first, b.binary("and", compare(b, "eq", ar, br, t), compare(b, op, ai, bi, t)))


def extremum(b: IRBuilder, op: str, x: ElementValue, y: ElementValue) -> ElementValue:
    """Return minimum or maximum in numpy's order; the first argument with a NaN wins."""
    take = b.binary("or", _is_nan(b, x), order(b, "ge" if op == "maximum" else "le", x, y))
    take = b.binary("and", take, b.binary("or", _is_nan(b, x), logical_not(b, _is_nan(b, y))))
    (ar, ai), (br, bi) = _split(x), _split(y)
    return ElementValue(x.dtype, b.select(take, ar, br), b.select(take, ai, bi))


def combine(b: IRBuilder, op: str, x: ElementValue, y: ElementValue) -> ElementValue:
    """Return one step of a reduction by add, mul, minimum or maximum."""
    match op:
        case "add":
            return add(b, "add", x, y)
        case "mul":
            return multiply(b, x, y)
        case _:
            return extremum(b, op, x, y)


def _power(b: IRBuilder, x: ElementValue, exponent: int) -> ElementValue:
    one = ElementValue(x.dtype, const(1.0, x.re.elem), const(0.0, x.re.elem))
    power = ops.by_squaring(x, abs(exponent), one, lambda p, q: multiply(b, p, q))
    return divide(b, one, power) if exponent < 0 else power


def _sign(b: IRBuilder, x: ElementValue) -> ElementValue:
    """Return z / |z|, and 0 where z is 0, as numpy's."""
    (re, im), size = _split(x), complex_function(b, "abs", [x], x.dtype.real).re
    zero = b.compare("fcmp oeq", size, const(0.0, size.elem))
    size = b.select(zero, const(1.0, size.elem), size)
    return ElementValue(x.dtype, *(flop(b, "fdiv", part, size, x.dtype.real) for part in (re, im)))


def operation(b: IRBuilder, op: str, args: list[ElementValue], expr: Op) -> ElementValue:
    """Return the value of an operation with complex arguments."""
    x = args[0]
    dtype: DType = expr.dtype
    match op:
        case "add" | "mul" | "minimum" | "maximum":
            for y in args[1:]:
                x = combine(b, op, x, y)
            return x
        case "sub":
            return add(b, "sub", x, args[1])
        case "div":
            return divide(b, x, args[1])
        case "neg":
            re, im = _split(x)
            return ElementValue(dtype, negate(b, re, dtype.real), negate(b, im, dtype.real))
        case "conj":
            re, im = _split(x)
            return ElementValue(dtype, re, negate(b, im, dtype.real))
        case "round":
            re, im = (b.intrinsic("roundeven", part) for part in _split(x))
            return ElementValue(dtype, re, im)
        case "sign":
            return _sign(b, x)
        case "real" | "imag":
            re, im = _split(x)
            return ElementValue(x.dtype.real, re if op == "real" else im)
        case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
            return ElementValue(bool_, order(b, op, x, args[1]))
        case "pow":
            exponent = expr.args[1]
            if isinstance(exponent, Const) and exponent.value == int(complex(exponent.value).real):
                n = int(complex(exponent.value).real)
                if abs(n) <= 64:
                    return _power(b, x, n)
            return complex_function(b, op, args, dtype)
        case "where":
            raise InternalError("where is lowered by its caller")
        case _:
            return complex_function(b, op, args, dtype)
