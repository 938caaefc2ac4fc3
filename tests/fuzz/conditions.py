"""Conditions of `where`, on indices and on values, and bitwise operators, as pieces of random programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.accesses import Idx
    from tests.fuzz.generate import Maker


def joined(m: Maker, condition: str, names: list[str]) -> str:
    """Return a condition on indices, now and then joined by `or` to another one that may overlap it, or negated."""
    r = m.rng
    pick = r.random()
    if pick < 0.6 or not names:
        return condition
    if pick < 0.7:
        m.features.add("where: not")
        return f"not ({condition})"
    i, j = r.choice(names), r.choice(names)
    # Of an index with itself they would be true or false without it: then it does not count that the index is reduced.
    pairs = [f"{i} != {j} + 1", f"{i} == {j}", f"{i} + {j} < 3"] if i != j else []
    other = r.choice([f"{i} > 1", f"{i} % 3 == 1", "True", "False", *pairs])
    m.features.add("where: or")
    text = f"({condition}) or {other}" if r.random() < 0.7 else f"not ({condition} and {other})"
    return f"({text}) and {i} < 40" if r.random() < 0.3 else text


def of_values(m: Maker, known: list[Idx]) -> str:
    """Return a condition that reads values."""
    r = m.rng
    text, kind = m.access(known, []) if r.random() < 0.8 else m.gathered(known)
    text += "" if text.endswith("]") else "[]"  # a bare name is a size there
    m.features.add("where: values")
    if kind == "b":
        condition = r.choice([text, f"not {text}"])
    elif kind == "c":
        condition = f"{text} != 0"
    else:
        condition = f"{text} {r.choice(['<', '>', '<=', '!=', '=='])} {r.choice([0, 1, 2])}"
        condition = r.choice([condition, condition, text])
    i = r.choice(known).name
    return r.choice([condition, condition, f"({condition} or {i} == 1)", f"not ({condition} and {i} > 0)"])


def of_bits(m: Maker, a: tuple[str, str], b: tuple[str, str]) -> tuple[str, str] | None:
    """Join two operands by a bitwise operator, None where one is no integer."""
    r = m.rng
    (x, p), (y, q) = a, b
    if not {p, q} <= {"i", "b"}:
        return None
    name = r.choice(["&", "|", "^", "<<", ">>"])
    if name in ("<<", ">>") and r.random() < 0.6:
        y = f"({y} & 7)" if q == "i" else y
    m.features.add(f"operator:{name}")
    kind = "b" if p == q == "b" and name not in ("<<", ">>") else "i"
    return f"(({x}) {name} ({y}))", kind
