"""Map element types of torch to the notation's, and the types that torch computes in."""

from __future__ import annotations

from typing import Any

import torch

# What the notation calls torch's types; of others operators stay torch's.
NAMES: dict[Any, str] = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "bool",
}
HALVES = (torch.float16, torch.bfloat16)


def wide(dtype: Any) -> Any:
    """Return the type that torch computes in where values are of `dtype`: of 16 bits it rounds once, at the end."""
    return torch.float32 if dtype in HALVES else dtype


def converted(text: str, of: Any, to: Any) -> str:
    """Return a value's text in another type."""
    return text if of == to else f"{NAMES[to]}({text})"


def literal(value: Any, dtype: Any) -> str:
    """Return a number as a literal that is meant in a type."""
    if dtype == torch.bool:
        return str(bool(value))
    if not dtype.is_floating_point:
        return f"({int(value)})" if value < 0 else str(int(value))
    value = float(value)
    if value != value:
        return "nan"
    shown = "inf" if abs(value) == float("inf") else repr(abs(value))
    return f"(-{shown})" if value < 0 or str(value) == "-0.0" else shown
