"""The front end: text, numpy's einsum strings, or Python expressions to an untyped `Program`."""

from __future__ import annotations

from polyker.einsum_frontend.parser import parse

__all__ = ["parse"]
