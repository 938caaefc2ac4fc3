"""Catalogue of what the bridge to JAX may say (PK95x)."""

from __future__ import annotations

from polyker.errors.base import BackendUnavailable, DTypeError, GradientError, ShapeError, register

NO_JAX = register("PK950", BackendUnavailable, "JAX is not here: {reason}", "pip install polyker[jax]")
NO_JAX_PLATFORM = register(
    "PK951",
    BackendUnavailable,
    "operators do not run inside JAX on {platform}: only on {known}",
    "outside of jit the operator itself takes JAX arrays of a GPU",
)
WIDE_TYPE = register(
    "PK952",
    DTypeError,
    "`{name}` is {type}, and JAX has 64-bit types only where jax_enable_x64 is set",
    "set it, or convert: an input before the call, a result in the text, as by `i32(...)` or `f32(...)`",
)
FFI_REFUSED = register(
    "PK953",
    BackendUnavailable,
    "JAX does not take a handler of polyker's: {reason}",
    "polyker speaks version {version} of XLA's foreign function interface",
)
UNKNOWN_EXTENT = register(
    "PK954",
    ShapeError,
    "an extent of `{name}` cannot be told for {shapes}: {reason}",
    "constrain the symbols, as by `jax.export.symbolic_shape(..., constraints=...)`, or export the function for each shape",
)
COMPLEX_GRADIENT = register(
    "PK955", GradientError, "`{name}` is {type}, and complex numbers have no gradient here", "give its parts as floats"
)
