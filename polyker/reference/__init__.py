"""A plain interpreter of the untyped program: nested Python loops, the oracle for compiled code."""

from __future__ import annotations

from polyker.reference.interpreter import interpret

__all__ = ["interpret"]
