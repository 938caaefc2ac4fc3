"""How sizes that a compile does not know are told apart."""

from __future__ import annotations

# Sizes up to MAX_EXACT_SIZE are expected as they are, those below MIN_LARGE_SIZE by a number that is no smaller, others by one
# near them (`TypedProgram.likely`).
MAX_EXACT_SIZE, MIN_LARGE_SIZE = 32, 1024
