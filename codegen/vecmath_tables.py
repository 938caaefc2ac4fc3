"""Coefficients of the vector mathematics, as hexadecimal floats, written by tests/codegen/vecmath_fit.py.

The weighted error above a table is the largest of weight * (function - polynomial) over the interval of the fit, with
the weight that makes it relative to the result of the function (before the rounding errors of the evaluation).
"""


def _table(*values: str) -> tuple[float, ...]:
    return tuple(float.fromhex(v) for v in values)


LN2_F64 = _table(
    "0x1.62e42fefa3800p-1",
    "0x1.ef35793c76730p-45",
)
LN2_F32 = _table(
    "0x1.62e4000000000p-1",
    "0x1.7f7d1c0000000p-20",
)
# weighted error 2^-57.9
EXP_F64 = _table(
    "0x1.000000000000cp-1",
    "0x1.555555555555cp-3",
    "0x1.555555554fe07p-5",
    "0x1.111111110e9eep-7",
    "0x1.6c16c186069e7p-10",
    "0x1.a01a01b44ba88p-13",
    "0x1.a01995bc7e321p-16",
    "0x1.71ddee5f5b3d3p-19",
    "0x1.28b0f4a3f5455p-22",
    "0x1.af6ea368bb5bbp-26",
)
# weighted error 2^-28.1
EXP_F32 = _table(
    "0x1.0000000000000p-1",
    "0x1.55548a0000000p-3",
    "0x1.5554e40000000p-5",
    "0x1.123e380000000p-7",
    "0x1.6d51560000000p-10",
)
