"""What a kernel was compiled to: tests look into it by this one way."""

from __future__ import annotations

import polyker as pk
from polyker.codegen.artifact import Artifact
from polyker.ir.layout import Layout


def compiled_to(kernel: pk.Kernel, layouts: tuple[Layout, ...] | None = None) -> Artifact:
    """Return the artifact of a kernel for arguments of some layouts, dense ones where none are given."""
    compiled = kernel._compiled
    return compiled.artifact() if layouts is None else compiled.artifact(layouts)
