"""The digamma function as CUDA C, which CUDA's library lacks: formulas and tables of vecmath, computed in f64."""

from __future__ import annotations

from collections.abc import Sequence

from polyker.codegen.vecmath.core.tables import table

_SHORT = ("f16", "bf16")


def _horner(coefficients: Sequence[float], x: str) -> str:
    """Return a polynomial, the constant coefficient first."""
    text = repr(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        text = f"fma({text}, {x}, {c!r})"
    return text


def _function(kind: str, middle: Sequence[float], far: Sequence[float]) -> str:
    zero, zero_low = table("PSI_ZERO")
    return f"""PK_FN {kind} pk_digamma({kind} value) {{
  f64 x = value, a = fabs(x), r;
  if (a == 0.0) return {kind}(copysign(pk_inf64(), -x));
  if (a == pk_inf64()) return x > 0.0 ? value : {kind}(pk_nan64());
  bool low = a < 1.0;
  if (a < 2.0) {{
    f64 t = (a - (low ? {zero - 1!r} : {zero!r})) - {zero_low!r};
    r = t * {_horner(middle, "t")};
    if (low && x > 0.0) r -= 1.0 / a;
  }} else {{
    f64 y = a - 0.5, b = fmin(y, {2.0**60!r}), u = (b - 1.5) / (b + 1.5);
    r = log(y) + {_horner(far, "u")} / (b * b);
  }}
  if (x < 0.0) {{
    // From the positive argument, by the distance to the nearest integer.
    f64 d = a - trunc(a);
    if (d > 0.5) d -= 1.0;
    if (d == 0.0) return {kind}(pk_nan64());
    if (!low) r += 1.0 / a;
    f64 z = d * d;
    r += 1.0 / d - d * {_horner(table("COTANGENT_PI"), "z")};
  }}
  return {kind}(r);
}}"""


def digamma() -> str:
    """Return the functions for all floats."""
    functions = [
        "// The derivative of the logarithm of the gamma function.",
        _function("f32", table("DIGAMMA_F32"), table("DIGAMMA_FAR_F32")),
        _function("f64", table("DIGAMMA_F64"), table("DIGAMMA_FAR_F64")),
        *(f"PK_FN {kind} pk_digamma({kind} x) {{ return {kind}(pk_digamma(f32(x))); }}" for kind in _SHORT),
    ]
    return "\n".join(functions)
