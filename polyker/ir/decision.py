"""What a pass decided, for people: the notes of a schedule."""

from __future__ import annotations

# How a note begins that tells what was not done, and why.
REFUSED = "not done: "
