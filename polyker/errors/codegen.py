"""PK6xx: targets, code generation and machine code."""

from __future__ import annotations

from polyker.errors.base import BackendUnavailable, CompileError, register

UNKNOWN_TARGET = register(
    "PK601", CompileError, "unknown target {name!r}", "known targets: cpu (this machine), {known}"
)
UNKNOWN_CPU = register(
    "PK603",
    CompileError,
    "unknown processor {cpu!r} with features {features!r} for {triple}",
    "known processors: {known}",
)
NO_CUDA = register(
    "PK602", BackendUnavailable, "target {name!r} needs the CUDA back end, which is not here yet", "use target='cpu'"
)
