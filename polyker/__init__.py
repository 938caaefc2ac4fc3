"""polyker: tensor operators in Einstein notation, compiled by the polyhedral model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyker.process.jobs import load

load("numpy")  # which a process can load once: a signal handler that raised half-way would leave it without

from polyker import errors as errors
from polyker.api.einsum import einsum
from polyker.errors import (
    ArgumentError,
    BackendUnavailable,
    CompileError,
    CompileTimeout,
    DTypeError,
    GatherError,
    GradientError,
    HostError,
    InternalError,
    LegalityError,
    ParseError,
    PathError,
    PolykerError,
    ScheduleError,
    ShapeError,
    StepNameError,
)
from polyker.ir.dtypes import bf16, bool_, c64, c128, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from polyker.options import get_num_threads, options, set_num_threads

if TYPE_CHECKING:  # what `_LAZY` loads at first use
    from polyker import viz as viz
    from polyker.api.compiling import clear_cache, tune
    from polyker.api.kernel import Kernel, export_library
    from polyker.api.operator import Operator, op
    from polyker.api.schedule_object import Schedule
    from polyker.bridge import jax as jax
    from polyker.bridge import torch as torch
    from polyker.einsum_frontend.builder import *  # noqa: F403
    from polyker.einsum_frontend.builder import indices, sizes, tensors
    from polyker.ir.dtypes import bool_ as bool  # noqa: F401
    from polyker.ir.program import Program
    from polyker.runtime.threads import set_parallel_for

    __version__: str

# Loaded at first use, so that importing polyker loads numpy and little more.
_LAZY = {
    "op": "polyker.api.operator",
    "tune": "polyker.api.compiling",
    "clear_cache": "polyker.api.compiling",
    "Operator": "polyker.api.operator",
    "Kernel": "polyker.api.kernel",
    "export_library": "polyker.api.kernel",
    "Schedule": "polyker.api.schedule_object",
    "Program": "polyker.ir.program",
    "set_parallel_for": "polyker.runtime.threads",
}
# Packages loaded at first use: bridges to frameworks, and pictures.
_PACKAGES = {"jax": "polyker.bridge.jax", "torch": "polyker.bridge.torch", "viz": "polyker.viz"}

__all__ = [
    "ArgumentError",
    "BackendUnavailable",
    "CompileError",
    "CompileTimeout",
    "DTypeError",
    "GatherError",
    "GradientError",
    "HostError",
    "InternalError",
    "Kernel",
    "LegalityError",
    "Operator",
    "ParseError",
    "PathError",
    "PolykerError",
    "Program",
    "Schedule",
    "ScheduleError",
    "ShapeError",
    "StepNameError",
    "__version__",
    "bf16",
    "bool_",
    "c64",
    "c128",
    "clear_cache",
    "einsum",
    "errors",
    "export_library",
    "f16",
    "f32",
    "f64",
    "get_num_threads",
    "i8",
    "i16",
    "i32",
    "i64",
    "indices",
    "op",
    "options",
    "set_num_threads",
    "set_parallel_for",
    "sizes",
    "tensors",
    "tune",
    "u8",
    "u16",
    "u32",
    "u64",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("polyker")
    elif name == "bool":
        value = bool_
    elif name in _LAZY:
        value = getattr(load(_LAZY[name]), name)
    elif name in _PACKAGES:
        value = load(_PACKAGES[name])
    elif not name.startswith("_"):
        builder = load("polyker.einsum_frontend.builder")
        if name not in builder.__all__:
            raise _no_attribute(name)
        value = getattr(builder, name)
    else:
        raise _no_attribute(name)
    globals()[name] = value
    return value


def _no_attribute(name: str) -> AttributeError:
    from polyker.errors.spelling import meant_name
    from polyker.ir.dtypes import TYPE_NAMES

    meant = None if name.startswith("_") else meant_name(name, __dir__(), TYPE_NAMES)
    said = "" if meant is None else f"; did you mean `{meant}`?"
    return AttributeError(f"module 'polyker' has no attribute {name!r}{said}")


def __dir__() -> list[str]:
    builder = load("polyker.einsum_frontend.builder")
    return sorted({*__all__, *builder.__all__, *_PACKAGES, "bool"})
