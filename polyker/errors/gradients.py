"""Catalogue of what has no gradient (PK2xx)."""

from __future__ import annotations

from polyker.errors.base import ArgumentError, GradientError, register

NO_RULE = register("PK201", GradientError, "`{function}` has no derivative", "its value may be an input instead")
NO_REVERSE = register("PK202", GradientError, "no gradient of `{tensor}`: {reason}", "{advice}")
NOT_VARIED = register(
    "PK203", ArgumentError, "`{name}` is no input that a gradient can be taken by", "inputs of floats are {known}"
)
NOT_AN_OUTPUT = register("PK204", ArgumentError, "`{name}` is no output of floats", "outputs are {known}")
NOT_A_NUMBER = register(
    "PK205",
    ArgumentError,
    "grad is of one number, and `{name}` has {rank} dimensions",
    "vjp takes the gradient by `{name}` as one more input",
)
NO_FLOATS = register(
    "PK207", GradientError, "no {what} of the operator is of floats", "complex numbers have no gradient here"
)
INDEPENDENT = register("PK206", GradientError, "`{of}` does not depend on `{wrt}`", "leave `{wrt}` out")
