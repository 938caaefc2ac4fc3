"""Errors of the plain interpreter (PK8xx); the compiler has its own codes for the same mistakes."""

from __future__ import annotations

from polyker.errors.base import DTypeError, GatherError, ShapeError, register

NO_RANGE = register("PK801", ShapeError, "index `{index}` has no range", "give it one: `for {index} in 0:N`")
DISAGREE = register(
    "PK802", ShapeError, "index `{index}` runs over {first} in `{tensor1}` and over {second} in `{tensor2}`"
)
OUTSIDE = register("PK803", ShapeError, "`{tensor}` has shape {shape} and is subscripted at {element}, for {instance}")
UNWRITTEN_READ = register("PK804", ShapeError, "`{tensor}` is read at {element} before anything is written there")
WRITTEN_TWICE = register(
    "PK805", ShapeError, "two instances of one `=` write `{tensor}` at {element}: {first} and {second}"
)
NEVER_WRITTEN = register("PK806", ShapeError, "output `{tensor}` is never written at {elements}", "use `pad=` or `for`")
GATHERED = register("PK807", GatherError, "`{tensor}` has shape {shape} and is gathered at {element}")
RANK = register("PK808", ShapeError, "`{tensor}` has {found} dimensions and is subscripted with {wanted}")
SIZE = register("PK809", ShapeError, "size `{size}`: {found} in one place and {wanted} in another")
MISSING = register("PK810", ShapeError, "no value for `{name}`")
BROADCAST = register("PK811", ShapeError, "the batch dimensions of `{tensor}`, {found}, do not broadcast with {wanted}")
CYCLIC = register("PK812", ShapeError, "the ranges of `{indices}` depend on each other")
NOTHING = register("PK813", ShapeError, "`{op}` over nothing has no value")
UNDECLARED = register("PK814", ShapeError, "`{tensor}` is scattered into and has no extents", "declare its extents")
OPERANDS = register("PK815", DTypeError, "`{op}` does not take {types}")
LITERAL = register("PK816", DTypeError, "{value} does not fit {dtype}")
ARGUMENT = register("PK817", DTypeError, "`{tensor}` is declared {wanted} and is given {found}")
EMPTY_PAD = register("PK818", ShapeError, "`{tensor}` has no element along dimension {dim} to pad from")
NOT_INTEGER = register("PK819", DTypeError, "a subscript, bound or condition needs integers; `{what}` is none")
NARROWER = register("PK821", DTypeError, "`{tensor}` of type {wanted} is given a value of type {found}")
NEGATIVE_POWER = register("PK820", ShapeError, "an integer to a negative integer power")
