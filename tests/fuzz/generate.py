"""Random valid programs, by construction: every index has a range, every subscript stays inside, every element is written."""

from __future__ import annotations

import random
import re

from tests.fuzz.accesses import Base, Idx
from tests.fuzz.case import Case, Input
from tests.fuzz.conditions import joined, of_values
from tests.fuzz.pieces import Kinds, fold, reduction_of, scaled

UPDATES = ["+=", "+=", "+=", "+=", "*=", "max=", "min=", "any=", "all=", "logsumexp="]


class Maker(Base):
    """Adds statements to a program."""

    # --- a general statement ---

    def statement(self, base: str | None = None) -> str | None:
        """One statement with a fresh target, that reads `base` (made before) if given; returns the target's name."""
        r = self.rng
        self.taken = set(self.sizes)
        op = "=" if r.random() < 0.35 else r.choice(UPDATES)
        operands: list[tuple[str, str]] = []
        left: list[Idx] = []
        red: list[Idx] = []
        if base is not None:
            idx = [Idx(self.index_name(), 0, n, "bare", bare=True) for n in self.defined[base]]
            operands.append((f"{base}[{','.join(i.name for i in idx)}]" if idx else base, self.kinds[base]))
            for i in idx:
                (left if op == "=" or r.random() < 0.6 else red).append(i)
            around = 1
            for i in idx:
                around *= max(i.extent, 1)
            if around * 2 < self.budget and r.random() < 0.4:
                left += self.indices(1, around=around)
        else:
            left = self.indices(r.choice([0, 1, 1, 2, 2, 2, 3]))
            around = 1
            for i in left:
                around *= max(i.extent, 1)
            if op != "=":
                red = self.indices(r.choice([0, 1, 1, 1, 2]), around=around)
        every = left + red
        clauses = [i.clause for i in every if i.source == "for"]
        if op == "=":
            for i in left:
                if i.source == "for" and i.lo:
                    i.lo = 0
                    i.clause = f"{i.name} in 0:{self.bound(i.hi)}"
            clauses = [i.clause for i in every if i.source == "for"]
        conv = self.convolve(left, red, operands) if base is None and r.random() < 0.3 else None
        triangle = self.triangle(every, op, clauses)
        every = [*left, *red]
        pending = [i for i in every if i.source == "bare" and not i.bare]
        r.shuffle(pending)
        while pending:
            take = pending[: r.choice([1, 2, 2, 3])]
            pending = pending[len(take) :]
            operands.append(self.access([i for i in every if i.source != "conv"], take))
        known = [i for i in every if i.source != "conv"]
        while len(operands) < 3 and r.random() < 0.42:
            pick = r.random()
            if pick < 0.38:
                operands.append(self.padded(every))
            elif pick < 0.56 and known:
                operands.append(self.gathered(known))
            elif pick < 0.85:
                operands.append(self.access(known, []))
            else:
                scalar = self.tensor_name()
                self.inputs[scalar] = Input(scalar, self.dtype(), (), python=r.random() < 0.5)
                if self.inputs[scalar].python:
                    self.features.add("Python scalar")
                self.features.add("0-d input")
                operands.append((scalar, Kinds[self.inputs[scalar].dtype]))
        if r.random() < 0.22:
            operands.append(self.inline(known))
        if not operands or (known and r.random() < 0.04):
            i = r.choice(known) if known else None
            operands.append((i.name if i else "3", "w"))
            self.features.add("index as a value")
        text, kind = fold(self, operands, op)
        for i in [*left, *red]:
            if i in red and not re.search(rf"\b{i.name}\b", text):
                red.remove(i)
                clauses = [c for c in clauses if not c.startswith(f"{i.name} in")]
                if op == "=":
                    return None
        target = self.tensor_name("OSPQDEFGL")
        subs, left_clauses = self.target(left, op, conv is not None)
        clauses += left_clauses
        gone = {i.name for i in every} - {i.name for i in (*left, *red)}
        used = " ".join([triangle or "", *clauses])
        if any(re.search(rf"\b{n}\b", used) for n in gone):
            return None
        wheres = [] if triangle is None else [joined(self, triangle, [i.name for i in every if i.extent > 0])]
        seen = [i for i in every if i.source != "conv" and re.search(rf"\b{i.name}\b", text) and i.extent > 0]
        if op != "=" and seen and r.random() < 0.2:
            wheres.append(of_values(self, seen))
        if any(re.search(rf"\b{target}\[", w) for w in wheres):
            return None  # which terms are admitted would depend on the order
        if len(wheres) > 1 or " or " in "".join(wheres):
            wheres = [f"({w})" for w in wheres]
        line = f"{target}[{','.join(subs)}] {op} {text}" if subs else f"{target} {op} {text}"
        if clauses:
            line += " for " + ", ".join(dict.fromkeys(clauses))
        if wheres:
            line += " where " + " and ".join(wheres)
        self.lines.append(line)
        self.features.add(f"op:{op}")
        self.kinds[target] = (
            "f"
            if op == "logsumexp="
            else "b"
            if op in ("any=", "all=")
            else "i"
            if kind == "b" and op in ("+=", "*=")
            else kind
        )
        if self.kinds[target] == "w":
            self.kinds[target] = "i"
        return target

    def target(self, left: list[Idx], op: str, plain: bool) -> tuple[list[str], list[str]]:
        r = self.rng
        order = list(left)
        r.shuffle(order)
        subs = []
        for i in order:
            pick = r.random()
            if plain or pick < 0.8 or not i.extent or i.source == "for":
                subs.append(i.name)
            elif pick < 0.9:
                subs.append(f"{i.hi - 1}-{i.name}")
                self.features.add("target: reversed")
            elif op == "=":
                subs.append(i.name)
            else:
                subs.append(f"{i.name}//2" if pick < 0.95 else f"{i.name}%3")
                self.features.add("target: many to one")
        if op != "=" and len(order) >= 2 and r.random() < 0.12 and not plain:
            a, b = order[0], order[1]
            if a.source == b.source == "bare" and a.extent and b.extent:
                subs = [f"{a.name}+{b.name}", *subs[2:]]
                self.features.add("target: sum of indices")
        if op != "=" and r.random() < 0.03:
            subs.append("0")
        return subs, []

    def convolve(self, left: list[Idx], red: list[Idx], operands: list[tuple[str, str]]) -> Idx | None:
        """Let one index of the left be inferred from a window over another index."""
        r = self.rng
        others = [i for i in red + left if i.extent > 0 and i.source != "conv"]
        mine = [i for i in left if i.source == "bare" and i.extent > 0]
        if not mine:
            return None
        h = r.choice(mine)
        others = [i for i in others if i is not h]
        if not others:
            return None
        w = r.choice(others)
        a, b = r.choice([1, 1, 1, 2, 3]), r.choice([1, 1, 1, 2, -1])
        ends = sorted((b * w.lo, b * (w.hi - 1)))
        c = -ends[0] + r.randrange(a)
        extent = a * (h.extent - 1) + ends[1] + c + 1 + r.randrange(a)
        text = (f"{a}*" if a > 1 else "") + h.name
        text += {1: f"+{w.name}", 2: f"+2*{w.name}", -1: f"-{w.name}"}[b] + (f"+{c}" if c else "")
        h.source, h.bare = "conv", True
        self.features.add("range: window")
        dims = [(text, extent)]
        extra = [i for i in left + red if i.source == "bare" and i is not h and i is not w and not i.bare]
        if extra and r.random() < 0.6:
            x = r.choice(extra)
            x.bare = True
            dims.append((x.name, x.hi))
        if w.source == "bare" and not w.bare:
            operands.append(self.access([], [w]))
        r.shuffle(dims)
        operands.append(self.new_read([d[0] for d in dims], [d[1] for d in dims]))
        return h

    def triangle(self, every: list[Idx], op: str, clauses: list[str]) -> str | None:
        """A condition between indices, or a range that depends on another index."""
        r = self.rng
        if op == "=" or r.random() > 0.22:
            return None
        live = [i for i in every if i.extent > 0]
        if not live:
            return None
        i = r.choice(live)
        others = [j for j in live if j is not i]
        if not others:
            self.features.add("where")
            return r.choice([f"{i.name} % 2 == 0", f"{i.name} >= 1", f"{i.name} != 2", f"1 <= {i.name} < {i.hi}"])
        j = r.choice(others)
        red_for = [k for k in others if k.source == "for" and i.source != "conv"]
        if red_for and r.random() < 0.6:
            j = red_for[0]
            clauses[:] = [c for c in clauses if not c.startswith(f"{j.name} in")]
            hi = r.choice([f"{i.name}+1", i.name])
            clauses.append(f"{j.name} in 0:{hi}" if j.hi >= i.hi else f"{j.name} in 0:{j.hi}")
            j.lo = 0
            self.features.add("triangular for")
            return None
        self.features.add("where")
        self.features.add("triangular")
        form = r.randrange(7)
        if form in (2, 3):
            self.features.add("banded")
        return [
            f"{j.name} <= {i.name}", f"{i.name} < {j.name}", f"-2 < {i.name} - {j.name} <= 1",
            f"{i.name} - {j.name} < 2 and {j.name} - {i.name} < 3", f"({i.name} + {j.name}) % 2 == 0",
            f"{i.name} // 2 == {j.name} // 3", f"{i.name} + 2*{j.name} != 3",
        ][form]  # fmt: skip

    # --- inline reductions ---

    def inline(self, known: list[Idx], depth: int = 0) -> tuple[str, str]:
        r = self.rng
        op = r.choice(["sum", "prod", "max", "min", "mean", "logsumexp", "argmax", "argmin", "any", "all"])
        around = 1
        for i in known:
            around *= max(i.extent, 1)
        room = max(1, self.budget * 2 // max(around, 1))
        explicit = r.random() < 0.3
        n = self.extent(min(room, 40))
        if op in ("argmax", "argmin") and n == 0:
            op = "max"
        outer = self.taken.copy()
        k = Idx(self.index_name(), 0, n, "for" if explicit else "bare")
        ranges = k.name
        live = [i for i in known if i.extent > 0 and i.source != "conv"]
        if explicit:
            ranges = f"{k.name} in 0:{self.bound(n)}"
            pick = r.random()
            if pick < 0.4 and live and op not in ("argmax", "argmin"):
                i = r.choice(live)
                k.hi = i.hi
                ranges = f"{k.name} in 0:{i.name}{r.choice(['', '+1', '+1', '//2+1'])}"
                self.features.add("inline: triangular range")
        body = [self.access(live, [k] if k.source == "bare" else [])]
        if k.source == "for":
            body[0] = self.new_read([k.name], [k.hi]) if r.random() < 0.5 else self.access([*live, k], [])
        if r.random() < 0.4:
            body.append(self.access([*live, k], []))
        if depth == 0 and r.random() < 0.15 and n <= 8:
            body.append(self.inline([*live, k], 1))
            self.features.add("inline: nested")
        where = ""
        if r.random() < 0.2 and op not in ("argmax", "argmin"):
            i = r.choice(live).name if live else ""
            beside = [
                f"{k.name} <= {i}",
                f"{k.name} < {i}",
                f"{k.name} > {i}",
                f"{k.name} + 2 <= {i}",
                f"{i} + {k.name} < 4",
            ]
            where = f" where {r.choice(beside)}" if i else f" where {k.name} != 1"
            where = f" where {joined(self, where.removeprefix(' where '), [k.name, *([i] if i else [])])}"
            self.features.add("inline: where")
        elif r.random() < 0.2 and n > 0:
            where = f" where {of_values(self, [*live, k])}"
        text, kind = fold(self, body, {"any": "any=", "all": "all=", "prod": "*="}.get(op, "+="))
        text, op, kind = reduction_of(self, op, text, kind)
        if r.random() < 0.5:
            self.taken = outer
        self.features.add(f"inline:{op}")
        return f"{op}[{ranges}]({text}{where})", kind


def generate(seed: int, number: int) -> Case:
    """Return case `number` of a run; the same for the same two numbers."""
    from tests.fuzz.families import FAMILIES
    from tests.fuzz.finish import finish
    from tests.fuzz.offset_ranges import offset_ranges
    from tests.fuzz.scatters import last_wins
    from tests.fuzz.twins import twin

    families = {**FAMILIES, "twin": (8, twin), "last wins": (4, last_wins), "offset ranges": (8, offset_ranges)}

    rng = random.Random(f"{seed}/{number}")
    for attempt in range(40):
        big = rng.random() < 0.06
        theme = rng.choice(
            ["single"] * 4
            + ["double"] * 2
            + ["half"] * 2
            + ["integer"] * 3
            + ["bool", "complex", "complex"]
            + ["mixed"] * 3
        )
        maker = Maker(rng, big, theme, budget=100_000 if big else rng.choice([60, 200, 500, 1200]))
        family = rng.choices(list(families), [f[0] for f in families.values()])[0]
        maker.features.add(f"family:{family}")
        if families[family][1](maker):
            case = finish(maker, seed, number)
            if case is not None:
                return case
    raise AssertionError(f"no valid program in {attempt + 1} attempts for {seed}/{number}")


__all__ = ["Idx", "Maker", "generate", "scaled"]
