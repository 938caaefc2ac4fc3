"""Elementary functions of complex values, composed from real ones."""

from __future__ import annotations

from polyker.codegen.llvm_convert import Value
from polyker.codegen.llvm_text import Builder
from polyker.errors.base import InternalError
from polyker.ir.dtypes import DType


def function(b: Builder, op: str, args: list[Value], dtype: DType) -> Value:
    """Return a function of complex arguments."""
    raise InternalError(f"no function {op} for {dtype}")
