"""Catalogue of what exporting kernels may say (PK9xx)."""

from __future__ import annotations

from polyker.errors.base import ArgumentError, BackendUnavailable, ShapeError, register

BAD_EXPORT_NAME = register(
    "PK901",
    ArgumentError,
    "{name} is no name for an exported function",
    "give an identifier of C, which begins with a letter and is no word of C or C++",
)
SAME_EXPORT_NAME = register(
    "PK902", ArgumentError, "two operators are exported as `{name}`", "give each a name of its own"
)
NO_EXPORT_KIND = register(
    "PK903", ArgumentError, "`{file}` is no kind of file that kernels are exported as", "known are {known}"
)
NOT_FOR_TARGET = register("PK904", ArgumentError, "a {kind} file is not made for {target}", "{advice}")
NO_LINKER = register(
    "PK905",
    BackendUnavailable,
    "no linker makes {file} for {target}: {tried}",
    "install one of them, or export a .o or .a file, which polyker writes alone",
)
LINKER_FAILED = register("PK906", BackendUnavailable, "{linker} does not link {file}: {reason}")
NOT_A_CONSTANT = register("PK907", ArgumentError, "`{name}` is no input that may be constant", "inputs are {inputs}")
CONSTANT_SHAPE = register(
    "PK909",
    ShapeError,
    "the constant `{name}` has shape {shape}, the kernel was compiled for {wanted}",
    "compile the operator for the constant's own shape",
)
NOT_STATIC = register(
    "PK908",
    ArgumentError,
    "`{name}` has no fixed amount of scratch memory",
    "fix its sizes, or leave static scratch memory out",
)
NO_JAVASCRIPT = register(
    "PK910",
    ArgumentError,
    "a page checks an operator by plain JavaScript, and `{name}` has none: {what}",
    "export a .wasm file instead",
)
NO_PAGE_SIZES = register(
    "PK911",
    ArgumentError,
    "a page runs `{name}` on data of its own, and has no value for {sizes}",
    "give them, as NAME=64",
)
