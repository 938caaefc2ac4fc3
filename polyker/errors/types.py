"""Catalogue of what can be wrong with element types (PK4xx)."""

from __future__ import annotations

from polyker.errors.base import DTypeError, register

NO_LOOP = register("PK401", DTypeError, "`{op}` does not take {types}", "{advice}")
LITERAL_RANGE = register(
    "PK402",
    DTypeError,
    "{value} is out of range for {dtype}",
    "convert the other operand first, such as `i64(...)`",
)
BITS_OF = register("PK411", DTypeError, "`{op}` is of integers and bool, not {types}", "{advice}")
NARROWER_KIND = register(
    "PK403",
    DTypeError,
    "a value of type {found} cannot be stored in `{tensor}` of type {dtype}",
    "convert it: `{dtype}(...)`",
)
NO_TYPE = register(
    "PK404",
    DTypeError,
    "the type of `{tensor}` depends on itself alone",
    "declare it on a line of its own, such as `{tensor}: f32[N]`",
)
NOT_INTEGER = register(
    "PK405",
    DTypeError,
    "`{tensor}` subscripts a tensor, so its type has to be an integer one, not {dtype}",
)
BAD_ACC = register(
    "PK406",
    DTypeError,
    "acc={dtype} is not a type to accumulate in",
    "use f32, f64, c64, c128 or an integer type",
)
DECLARED_TYPE = register(
    "PK407",
    DTypeError,
    "`{tensor}` is declared {declared} but the argument is {found}",
)
NEGATIVE_POWER = register(
    "PK408",
    DTypeError,
    "an integer to the negative power {value} is no integer",
    "write a floating-point base or exponent, such as `x ** {value}.0`",
)
TOO_DEEP = register(
    "PK409",
    DTypeError,
    "the value of `{target}` is {depth} operators deep, two operands each and conversions counted; the limit is {limit}",
    "split the statement in two",
)
TOO_LARGE = register(
    "PK410",
    DTypeError,
    "`{op}` of {types} takes its argument twice, and that has more than {limit} parts",
    "give the argument a statement of its own",
)
