"""Random declared programs of several statements on square tensors, loops among them: for derivatives, most of them smooth."""

from __future__ import annotations

import random
import re

from tests.fuzz.case import Case, Input

SMOOTH = ["sin({})", "tanh({})", "exp(0.3 * ({}))", "sigmoid({})", "sqrt(({})**2 + 1)", "log1p(({})**2)", "({})**2", "({})**3",
          "atan({})", "erf({})", "softplus({})", "-({})", "gelu({})", "rsqrt(1 + ({})**2)", "cbrt(2 + sin({}))"]  # fmt: skip
CORNERS = ["abs({})", "relu({})", "clip({}, -0.5, 0.7)", "floor({})", "f64(i64(3 * ({})))"]
PAIRS = ["{} * {}", "({} + {})", "({} - {})", "{} * {}", "({} / (({})**2 + 1))", "maximum({}, {})", "minimum({}, {})",
         "where({0} > {1}, {0} * 2, {1})", "hypot({}, {} + 3)", "atan2({}, ({})**2 + 1)", "(abs({}) + 0.5)**({})"]  # fmt: skip
REDUCTIONS = ["sum", "sum", "mean", "max", "min", "prod", "logsumexp"]
UPDATES = ["+=", "+=", "*=", "max=", "min=", "logsumexp="]


class Sequence:
    """A program while it grows: all tensors have one or two dimensions of extent N."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.ranks = {"X": 1, "Y": 2, **({"V": 1} if rng.random() < 0.5 else {})}
        self.inputs = dict(self.ranks)
        self.numbers = {"I": rng.random() < 0.4, "a": rng.random() < 0.4}
        self.lines: list[str] = []
        self.fresh: list[str] = []
        self.loops: list[str] = []

    # --- values ---

    def place(self, index: str) -> str:
        """Return a subscript in bounds for an index of the whole range, or one with padding."""
        forms = [index] * 6 + [f"N-1-{index}", f"{index}//2", f"{index}%3", "0", "N-1", *self.loops[:1]]
        if self.numbers["I"]:
            forms.append(f"I[{index}]")
        return self.rng.choice(forms)

    def atom(self, indices: list[str]) -> str:
        """Return a read, or a number."""
        r = self.rng
        pick = r.random()
        if pick < 0.06:
            return r.choice(["2", "0.5", indices[0] if indices else "3", "N", "a" if self.numbers["a"] else "1.5"])
        if pick < 0.1 and self.numbers["I"] and indices:
            return f"I[{r.choice(indices)}]"
        name = r.choice(list(self.ranks))
        if not indices:
            return f"{name}[{', '.join(r.choice(['0', 'N-1', '1']) for _ in range(self.ranks[name]))}]"
        places = [self.place(r.choice(indices)) for _ in range(self.ranks[name])]
        if pick > 0.85:
            shift = r.choice(["-1", "+1", "+2", "-2"])
            pad = r.choice(["0", "0", "0.5", "edge", "wrap", "reflect"])
            return f"{name}[{', '.join([indices[-1] + shift, *places[1:]])}; pad={pad}]"
        return f"{name}[{', '.join(places)}]"

    def value(self, indices: list[str], depth: int = 2) -> str:
        """Return an expression at some indices."""
        r = self.rng
        pick = r.random()
        if depth == 0 or pick < 0.15:
            return self.atom(indices)
        if pick < 0.4:
            return r.choice(SMOOTH if r.random() < 0.85 else CORNERS).format(self.value(indices, depth - 1))
        if pick < 0.85 or len(indices) > 2:
            return r.choice(PAIRS).format(self.value(indices, depth - 1), self.value(indices, depth - 1))
        return self.reduced(indices, depth)

    def reduced(self, indices: list[str], depth: int) -> str:
        """Return an inline reduction."""
        r = self.rng
        k = next(n for n in "klmnpq" if n not in indices)
        op = r.choice(REDUCTIONS)
        reach = r.choice(["0:N", "0:N", f"0:{indices[0]}+1" if indices else "1:N", "1:N"])
        where = r.choice(["", "", "", f" where {k} % 2 == 0", f" where X[{k}] > -0.4"])
        if indices and r.random() < 0.15:
            where = f" where {k} <= {indices[-1]}"
        if op in ("max", "min", "mean", "logsumexp"):
            where = f" where {k} >= 0" if r.random() < 0.5 else ""
            reach = reach if reach == "0:N" else "0:N"
        return f"{op}[{k} in {reach}]({self.value([*indices, k], depth - 1)}{where})"

    # --- statements ---

    def statement(self, indent: str) -> None:
        """Add a statement."""
        r = self.rng
        if r.random() < 0.45 or not self.fresh:
            self.define(indent)
        else:
            self.update(indent)

    def define(self, indent: str) -> None:
        """Add a statement that defines a tensor."""
        r = self.rng
        name = f"{r.choice('TUW')}{len(self.fresh)}"
        rank = r.choice([1, 1, 2])
        indices = ["i", "j"][:rank]
        ranges = [f"{i} in 0:N" for i in indices]
        element = f"{name}[{', '.join(indices)}]"
        pick = r.random()
        if pick < 0.5 or indent:
            self.lines.append(f"{indent}{element} = {self.value(indices)} for {', '.join(ranges)}")
        elif pick < 0.6:
            self.lines.append(
                f"{indent}{name}[{', '.join(['0', *indices[1:]])}] = {self.value(indices[1:])}{self.clause(ranges[1:])}"
            )
            before = f"{name}[{', '.join(['i-1', *indices[1:]])}]"
            self.lines.append(
                f"{indent}{element} = 0.5 * {before} * {self.value(indices, 1)} + {self.value(indices)}"
                f" for {', '.join(['i in 1:N', *ranges[1:]])}"
            )
        else:
            where = r.choice(
                ["", "", " where s <= i", " where s % 2 == 0", " where X[s] < 0.5", " where s != i and s <= i + 1"]
            )
            op = r.choice(UPDATES)
            where = where if op in ("+=", "*=") else ""
            self.lines.append(
                f"{indent}{element} {op} {self.value([*indices, 's'])} for {', '.join([*ranges, 's in 0:N'])}{where}"
            )
        self.fresh.append(name)
        self.ranks[name] = rank

    def clause(self, ranges: list[str]) -> str:
        return f" for {', '.join(ranges)}" if ranges else ""

    def update(self, indent: str) -> None:
        """Add a statement on a tensor that is defined."""
        r = self.rng
        name = r.choice(self.fresh)
        indices = ["i", "j"][: self.ranks[name]]
        rest, others = [f"{i} in 0:N" for i in indices[1:]], indices[1:]
        pick = r.random()

        def element(first: str) -> str:
            return f"{name}[{', '.join([first, *others])}]"

        if pick < 0.3:
            old = r.choice(
                [
                    element("i"),
                    element("i"),
                    element("i-1"),
                    f"{name}[{', '.join(['i+1; pad=0'])}]" if not others else element("i"),
                ]
            )
            low, high = r.choice(["0", "1"]), r.choice(["N", "N-1"])
            low = "1" if "i-1" in old else low
            made = (
                f"{element('i')} = 0.5 * {old} + {self.value(indices)} for {', '.join([f'i in {low}:{high}', *rest])}"
            )
        elif pick < 0.45:
            first = r.choice(["2*i", "2*i+1"])
            made = f"{element(first)} = {self.value(indices)} for {', '.join(['i in 0:N//2', *rest])}"
        elif pick < 0.6:
            made = f"{element('i')} = {self.value(indices)} for {', '.join(['i in 0:N', *rest])}"
        elif pick < 0.7 and self.numbers["I"]:
            op = r.choice(["+=", "+=", "*=", "max="])
            made = f"{element('I[i]')} {op} {self.value(indices)} for {', '.join(['i in 0:N', *rest])}"
        else:
            op = r.choice(UPDATES)
            made = f"{element('i')} {op} {self.value([*indices, 's'])} for {', '.join(['i in 0:N', *rest, 's in 0:N'])}"
        self.lines.append(indent + made)

    def loop(self, indent: str, index: str) -> None:
        """Add a loop over time."""
        r = self.rng
        self.lines.append(f"{indent}for {index} in {r.choice(['0', '0', '1'])}:{r.choice(['2', '3', 'S'])}:")
        self.loops.append(index)
        for _ in range(r.choice([1, 2, 2, 3])):
            if index == "t" and r.random() < 0.12:
                self.loop(indent + "    ", "u")
            elif r.random() < 0.75:
                self.update(indent + "    ")
            else:
                self.define(indent + "    ")
        self.loops.pop()


def sequence(seed: int, number: int) -> Case:
    """Return case `number` of a run; the same for the same two numbers."""
    rng = random.Random(f"sequences/{seed}/{number}")
    made = Sequence(rng)
    n, steps = rng.choice([3, 4, 5, 6]), rng.choice([0, 1, 3])
    in_out = rng.random() < 0.25
    if in_out:
        made.fresh.append("X")
    else:
        made.define("    ")
    loops = rng.random() < 0.5
    for _ in range(rng.choice([1, 1, 2, 3])):
        if loops and rng.random() < 0.5:
            made.loop("    ", "t")
        else:
            made.statement("    ")
    last = next(n for n in reversed(made.fresh) if any(f"{n}[" in line for line in made.lines))
    outputs = [last, *(["X"] if in_out and "X[" in "".join(made.lines) else [])]
    body = "\n".join(made.lines)
    inputs = [Input(name, "f64", (n,) * rank) for name, rank in made.inputs.items()]
    inputs += [Input("I", "i64", (n,), limit=n), Input("a", "f64", ())]
    inputs = [i for i in inputs if re.search(rf"\b{i.name}\b", body)]
    heads = [f"{i.name}: {i.dtype}[{', '.join('N' * len(i.shape))}]" if i.shape else f"{i.name}: f64" for i in inputs]
    if "S" in body:
        heads.append("S")
    text = f"f({', '.join(heads)}) -> {', '.join(dict.fromkeys(outputs))}:\n{body}"
    sizes = (("S", steps),) if "S" in body else ()
    return Case(seed, number, text, tuple(inputs), sizes, early=rng.random() < 0.6)
