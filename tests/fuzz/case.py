"""A case: a program's text, its inputs, and how it is called."""

from __future__ import annotations

from msgspec import Struct


class Input(Struct, frozen=True):
    """An input: `limit` bounds the values of an index array; `python` passes a Python scalar; `data` is how it is filled."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    limit: int = 0
    python: bool = False
    data: str = "coded"


class Case(Struct, frozen=True):
    """What is run.

    `mode`: call, fixed (a kernel for these shapes), symbolic (for any shapes), names (the same, by types with names).
    `out`: none, a layout, or the argument itself. `early`: sizes are fixed when the operator is made.
    `steps`: the rank of the order in which products are taken apart, whatever that costs; -1: as the model finds best.
    `eager`: what is worth it for much data only is done all the same.
    """

    seed: int
    number: int
    text: str
    inputs: tuple[Input, ...]
    sizes: tuple[tuple[str, int], ...] = ()
    features: frozenset[str] = frozenset()
    mode: str = "call"
    layouts: tuple[str, ...] = ()
    out: str = "none"
    guard: bool = False
    invalid: bool = False
    acc: str = ""
    early: bool = False
    steps: int = -1
    eager: bool = False
