"""Pieces of a text that is no operator yet: names, accesses, what stands in brackets, arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_CLOSING = {"(": ")", "[": "]"}
_MAX_TRIED_NAMES = 4096  # that are tried
NAME = r"[A-Za-z_]\w*"
ACCESS = rf"{NAME}\[[^\[\]]*\]"
ATOM = re.compile(r"[\w.]+(?:\[[^\[\]]*\]|\([^()]*\))?")


def closed(text: str, start: int) -> int:
    """Return where the bracket that opens at `start` is closed, -1 where it is not."""
    open_brackets: list[str] = []
    for position in range(start, len(text)):
        character = text[position]
        if character in _CLOSING:
            open_brackets.append(_CLOSING[character])
        elif character in _CLOSING.values():
            if not open_brackets or open_brackets.pop() != character:
                return -1
            if not open_brackets:
                return position
    return -1


def split(text: str) -> list[str]:
    """Return what stands between the commas of a text that are in no bracket."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in _CLOSING) - (character in _CLOSING.values())
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [p.strip() for p in (*parts, text[start:]) if p.strip()]


def grouped(argument: str) -> str:
    """Return an argument in brackets, unless it is one piece."""
    return argument if ATOM.fullmatch(argument) else f"({argument})"


def rewritten(text: str, pattern: str, made: Callable[[re.Match[str], str], str | None]) -> str:
    """Return a text in which each match of a pattern that ends in an open bracket, with what the bracket holds, is made anew."""
    position = 0
    while match := re.compile(pattern).search(text, position):
        position = match.end()
        end = closed(text, match.end() - 1)
        if end < 0:
            continue
        new = made(match, text[match.end() : end])
        if new is not None:
            text = text[: match.start()] + new + text[end + 1 :]
            position = match.start() + 1
    return text


def fresh(text: str, letters: Sequence[str]) -> str:
    """Return a name that a text does not use."""
    names: tuple[str, ...] = (*letters, *(f"{letters[0]}{k}" for k in range(_MAX_TRIED_NAMES)))
    return next(n for n in names if re.search(rf"\b{n}\b", text) is None)
