"""Random small programs of 64-bit integers, as text: subscripts, padding, bounds, conditions, loops, recurrences."""

from __future__ import annotations

import random

SUBSCRIPTS = (
    *("{a}",) * 6, "{a}+{b}", "2*{a}+{b}", "{a}-{b}", "{a}+1", "{a}-1", "{a}//2", "{a}%2", "3-{a}", "{a}+{b}+{c}", "2*{a}",
    "0", "{b}-2*{a}",
)  # fmt: skip
TARGETS = (*("{a}",) * 8, "{a}+1", "2*{a}", "{a}//2", "0", "{a}+{b}", "3-{a}")
BOUNDS = ("0:N", "0:3", "1:N", "0:{b}+1", "{b}:N", "N:2", "0:M", "1:4", "0:N-1", "-1:2", "0:N//2")
CONDITIONS = (
    "{b} <= {a}", "{a} != 1", "{a} % 2 == 0", "{a} + {b} < N", "0 < {a} < 3", "N > 2", "{a} >= 1", "2*{a} <= {b}+1",
)  # fmt: skip


class Writer:
    """Writes one random program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ranks = {"A": self.choice((1, 1, 2)), "B": self.choice((1, 2, 2))}

    def choice(self, options):
        return self.random.choice(options)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def fill(self, template: str) -> str:
        a, b, c = self.random.sample("ijk", 3)
        return template.format(a=a, b=b, c=c)

    def access(self, tensor: str, rank: int, templates, pad: bool = True) -> str:
        if not rank:
            return tensor
        subscripts = ", ".join(self.fill(self.choice(templates)) for _ in range(rank))
        return f"{tensor}[{subscripts}{'; pad=7' if pad and self.chance(0.12) else ''}]"

    def term(self) -> str:
        tensor = self.choice("AB")
        read = self.access(tensor, self.ranks[tensor], SUBSCRIPTS)
        if not self.chance(0.15):
            return read
        index = self.choice("ijk")
        bounds = self.choice(("", f" in 0:{self.fill('{a}')}+1", " in 0:N"))
        where = self.choice(("", "", f" where {self.fill(self.choice(CONDITIONS))}"))
        other = self.access(tensor, self.ranks[tensor], SUBSCRIPTS)
        return f"{self.choice(('sum', 'max'))}[{index}{bounds}]({read} * {other}{where})"

    def clauses(self) -> str:
        text = ""
        if self.chance(0.5):
            chosen = self.random.sample("ijk", self.choice((1, 1, 2)))
            text += " for " + ", ".join(f"{i} in {self.fill(self.choice(BOUNDS))}" for i in chosen)
        if self.chance(0.3):
            text += " where " + " and ".join(self.fill(self.choice(CONDITIONS)) for _ in range(self.choice((1, 1, 2))))
        return text

    def program(self) -> str:
        rank = self.choice((0, 1, 1, 2))
        update = self.choice(("=", "+=", "+=", "max="))
        left = self.access("T", rank, TARGETS, pad=False)
        lines = [f"{left} {update} {self.term()} {self.choice('+*-')} {self.term()}{self.clauses()}"]
        if self.chance(0.5):
            self.ranks["T"] = rank
            name = self.choice("OT")
            left = self.access(name, rank if name == "T" else self.choice((1, 2)), TARGETS, pad=False)
            read = self.access("T", rank, SUBSCRIPTS)
            lines.append(f"{left} {self.choice(('=', '+='))} {read} + {self.term()}{self.clauses()}")
        if not self.chance(0.2):
            return "; ".join(lines)
        shapes = {t: ",".join(self.choice("NM") for _ in range(self.ranks[t])) for t in "AB"}
        output = lines[-1][0]
        head = f"p(A: i64[{shapes['A']}], B: i64[{shapes['B']}], N, M, S) -> {output}:\n"
        loop = f"    for t in {self.choice(('0:S', '0:2', '1:S'))}:\n"
        return head + loop + "\n".join(f"        {line}" for line in lines)
