"""Programs that compute something twice, under other names of indices: what is alike may be computed once."""

from __future__ import annotations

import re

from tests.fuzz.accesses import NAMES
from tests.fuzz.families import general, restore, snapshot, try_statement, valid
from tests.fuzz.generate import Maker


def twin(m: Maker) -> bool:
    """A statement, and the same one again: as it is, with a factor or a sign, or with a part of its range; perhaps one that reads
    it."""
    r = m.rng
    if not general(m):
        return False
    kept = snapshot(m)
    line = m.lines[-1]
    names = [n for n in NAMES if n not in m.sizes and re.search(rf"\b{n}\b", line)]
    others = dict(zip(names, r.sample([n for n in NAMES if n not in m.sizes], len(names)), strict=True))
    target = line.split("[")[0].split(" ")[0]
    second = next(n for n in "OSPQDEFGL" if n not in m.inputs and n not in m.defined)
    copy = re.sub(r"\b\w+\b", lambda word: second if word[0] == target else others.get(word[0], word[0]), line)
    if r.random() < 0.4:
        copy = _around(m, copy)
    m.lines.append(copy)
    if not valid(m):
        restore(m, kept)
        return False
    m.features |= {"multi-statement", "computed twice"}
    if r.random() < 0.5:
        try_statement(m, r.choice([target, second]))
    return True


def _around(m: Maker, line: str) -> str:
    """Return a statement with an operator around its whole right side."""
    head, op, rest = re.split(r" ((?:[+*]|max|min|any|all|logsumexp)?=) ", line, maxsplit=1)
    depth, end = 0, len(rest)
    for place, letter in enumerate(rest):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and rest[place:].startswith((" for ", " where ")):
            end = place
            break
    value = rest[:end]
    if op in ("any=", "all="):
        return f"{head} {op} not ({value}){rest[end:]}"
    around = m.rng.choice(["-({})", "2 * ({})", "({}) * -0.5", "({}) + 1.5", "({}) / 3", "relu({})", "f64({})"])
    m.features.add("an operator around all terms")
    return f"{head} {op} {around.format(value)}{rest[end:]}"
