"""Repair texts in another language's spelling, where the repaired text is an operator.

Each rule changes a text, or leaves it. A change is offered only if the whole text then is accepted, so that a hint can be typed
as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from polyker.einsum_frontend.elsewhere import MODULES, OVER_INDEX, RENAMED, WRITTEN
from polyker.einsum_frontend.hints.headers import by_extents, with_outputs
from polyker.einsum_frontend.hints.pieces import ACCESS, ATOM, NAME, closed, fresh, grouped, rewritten, split
from polyker.einsum_frontend.hints.spellings import SPELLINGS, is_einsum
from polyker.errors.base import PolykerError

MAX_RETRIED_CHARACTERS, MAX_RETRIED_LINES = 4096, 256  # characters and line ends of a text that is tried again
MAX_HINT_CHARACTERS = 180  # of a hint
Rule = Callable[[str], str]


def repaired(text: str, accepted: Callable[[str], object]) -> str | None:
    """Return a hint that writes statements of a text so that it is accepted; `accepted` raises PolykerError where it is not."""
    if not isinstance(text, str) or len(text) > MAX_RETRIED_CHARACTERS or text.count("\n") > MAX_RETRIED_LINES:
        return None
    for candidate in _candidates(text):
        try:
            accepted(candidate)
        except PolykerError:
            continue
        before, after = _statements(text), _statements(candidate)
        changed = [s for s in after if s not in before]
        # A declaration belongs to its block, which stands on lines of its own.
        shown = candidate.strip() if any("->" in s for s in changed) else "; ".join(changed)
        if not changed or len(shown) > MAX_HINT_CHARACTERS:
            return None
        letters = is_einsum(text) and re.search(r"\w \w\w|\w\w \w", text) is None
        einsum = f", or call pk.einsum({text.strip()!r}, ...)" if letters else ""
        return f"write `{shown}`{einsum}"
    return None


def _statements(text: str) -> list[str]:
    return [s.strip() for s in re.split(r"[;\n](?![^\[\]]*\])", text) if s.strip()]


def _candidates(text: str) -> Iterator[str]:
    """Yield texts with some spellings mended: first by one rule, then by all, one after another."""
    seen = {text}
    # A hint shows what is new: a text that rules make longer and longer of each other's results is no hint.
    most = len(text) + MAX_HINT_CHARACTERS
    whole = text
    for rule in _RULES:
        one = rule(text)
        whole = _bounded(rule, whole, most)
        if one not in seen:
            seen.add(one)
            yield one
    for _ in range(3):  # what one rule makes another may go on with
        for rule in _RULES:
            whole = _bounded(rule, whole, most)
        if whole not in seen:
            seen.add(whole)
            yield whole


def _bounded(rule: Rule, text: str, most: int) -> str:
    """Return what a rule makes of a text, the text itself where that has more than `most` characters."""
    made = rule(text)
    return made if len(made) <= most else text


def _renamed(text: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![\w.]){re.escape(old)}\b(?!\s*[\[(])", new, text)


# Rules.


def without_modules(text: str) -> str:
    """`np.exp(x)` is `exp(x)`."""
    modules = "|".join(map(re.escape, sorted(MODULES, key=len, reverse=True)))
    return re.sub(rf"(?<![\w.])(?:{modules})\s*\.\s*(?={NAME}\s*[\[(])", "", text)


def as_functions(text: str) -> str:
    """`X[i].exp()` is `exp(X[i])`."""
    return re.sub(rf"({ACCESS})\s*\.\s*({NAME})\s*\(\s*\)", r"\2(\1)", text)


def by_name(text: str) -> str:
    """Functions that have another name here."""

    def made(match: re.Match[str]) -> str:
        return RENAMED[match.group(1)]

    return re.sub(rf"(?<![\w.])({'|'.join(RENAMED)})(?=\s*[\[(])", made, text)


def by_operators(text: str) -> str:
    """`pow(a, b)` is `a ** b`."""

    def made(match: re.Match[str], inside: str) -> str | None:
        arguments = split(inside)
        template = WRITTEN.get((match.group(1), len(arguments)))
        if template is None:
            return None
        found, before = template.format(*map(grouped, arguments)), text[: match.start()].rstrip()
        alone = ATOM.fullmatch(found) or before.endswith(("=", "(", ",", "[", ":", " in")) or not before
        return found if alone else f"({found})"

    return rewritten(text, rf"(?<![\w.])({'|'.join(sorted({n for n, _ in WRITTEN}))})\s*\(", made)


def over_an_index(text: str) -> str:
    """`softmax[j](X[i,j])` is a quotient of sums."""

    def made(match: re.Match[str], inside: str) -> str | None:
        i, j = match.group(2), fresh(text, "klmnpqrs")
        k = fresh(f"{text} {j}", "klmnpqrs")
        bodies = (grouped(_renamed(inside, i, name)) for name in (i, j, k))
        found = OVER_INDEX[match.group(1)].format(*bodies, i=i, j=j, k=k)
        return found if text[: match.start()].rstrip().endswith("=") else f"({found})"

    return rewritten(text, rf"(?<![\w.])({'|'.join(OVER_INDEX)})\[\s*({NAME})\s*\]\s*\(", made)


def transposed(text: str) -> str:
    """`A[j,i].T` is `A[i,j]`."""
    return re.sub(rf"({NAME})\[([^\[\],]+),([^\[\],]+)\]\.(?:T|mT|t\(\))", r"\1[\3,\2]", text)


def half_open(text: str) -> str:
    """`0..3` is `0:3`, `0..=3` is `0:4`."""

    def inclusive(match: re.Match[str]) -> str:
        high = match.group(2)
        return f"{match.group(1)}:{int(high) + 1}" if high.isdecimal() else f"{match.group(1)}:{high}+1"

    text = re.sub(r"(\w+)\s*\.\.=\s*(\w+)", inclusive, text)
    return re.sub(r"(?<=\w)\s*\.\.\.?\s*(?=\w)", ":", text)


def without_steps(text: str) -> str:
    """`X[i] for i in 0:8:2` is `X[2*i] for i in 0:4`."""
    lines = []
    for line in text.split("\n"):
        match = re.search(r"\bin\s+([^:,;]+):([^:,;]+):\s*(\d+)", line)
        name = re.search(rf"({NAME})\s+in\s+[^:,;]+:[^:,;]+:\s*\d+", line)
        if match is None or name is None or "=" not in line:
            lines.append(line)
            continue
        low, high, step = (part.strip() for part in match.groups())
        plain = low.isdecimal() and high.isdecimal()
        count = (
            str(max(0, -(-(int(high) - int(low)) // int(step))))
            if plain
            else f"({high}{'' if low == '0' else f' - {low}'} + {int(step) - 1})//{step}"
        )
        moved = f"{step}*{name.group(1)}" + ("" if low == "0" else f" + {low}")
        left, operator, right = line.partition("=")
        head, clause, tail = right.partition(" for ")
        right = re.sub(rf"\b{name.group(1)}\b", moved, head)
        tail = tail.replace(match.group(0).removeprefix("in").strip(), f"0:{count}")
        lines.append(left + operator + right + clause + tail)
    return "\n".join(lines)


def without_slices(text: str) -> str:
    """`sum[k](X[i:i+2])` is `sum[k in 0:2](X[i+k])`."""

    def made(match: re.Match[str], inside: str) -> str | None:
        part = re.search(r"\[([^\[\]:,]*):([^\[\]:,]*)\]", inside)
        if part is None:
            return None
        low, high = (p.strip() for p in part.groups())
        index = (match.group(2) or "").strip() or fresh(text, "klmnpq")
        above = re.fullmatch(rf"{re.escape(low)}\s*\+\s*(.+)", high) if low else None
        length = above.group(1) if above else f"{high} - {grouped(low)}" if low else high
        moved = f"{low}+{index}" if low else index
        body = inside[: part.start()] + f"[{moved}]" + inside[part.end() :]
        return f"{match.group(1)}[{index} in 0:{length}]({body})"

    return rewritten(text, rf"(?<![\w.])(sum|prod|max|min|mean|any|all)(?:\[\s*({NAME})?\s*\])?\s*\(", made)


_UPDATED = re.compile(rf"^(\s*)({NAME})((?:\[[^\[\]]*\])?)\s*(//|\*\*|[-/%])=(?!=)\s*([^\n;#]+)", re.MULTILINE)


def without_updates(text: str) -> str:
    """`O[i] /= x` is `O[i] = O[i] / x`; where nothing else defines O it is an argument, too."""

    def made(match: re.Match[str]) -> str:
        indent, name, subscripts, operator, value = match.groups()
        target = name + subscripts
        return f"{indent}{target} = {target} {operator} {grouped(value.strip())}"

    found = _UPDATED.search(text)
    if found is None:
        return text
    new = _UPDATED.sub(made, text)
    if len(_statements(text)) > 1 or "->" in text:
        return new
    tensors = dict.fromkeys([found.group(2), *re.findall(rf"({NAME})\[", new)])
    return f"f({', '.join(tensors)}) -> {found.group(2)}:\n    {new.strip()}"


def by_gather(text: str) -> str:
    """`X[minimum(i, 2)]` reads at places that are computed first: `k[i] = minimum(i, 2)`, `X[k[i]]`."""
    statement, clause, ranges = text.partition(" for ")
    left, equals, right = statement.partition("=")
    if not clause or not equals or len(_statements(text)) != 1:
        return text
    indices = re.findall(rf"({NAME})\s+in\b", ranges)

    def made(match: re.Match[str]) -> str:
        subscript = match.group(2).strip()
        used = [i for i in indices if re.search(rf"\b{re.escape(i)}\b", subscript)]
        names = "|".join(map(re.escape, indices))
        computed = re.search(rf"{NAME}\s*\(|\b(?:{names})\s*\*\s*(?:\(|(?:{names})\b)", subscript) if used else None
        if computed is None or places:
            return match.group(0)
        name = fresh(text, "kpqrs")
        places.append(f"{name}[{','.join(used)}] = {subscript} for {ranges.strip()}; ")
        return f"{match.group(1)}[{name}[{','.join(used)}]]"

    places: list[str] = []
    right = re.sub(rf"({NAME})\[([^\[\]]*)\]", made, right)
    return "".join(places) + left + equals + right + clause + ranges if places else text


_SPARSE = re.compile(
    rf"^\s*({NAME})\[\s*({NAME})\s*\]\s*(?:=|\+=)\s*sum\[\s*({NAME})\s+in\s+"
    rf"({NAME})\[[^\[\]]*\]\s*:\s*\4\[[^\[\]]*\]\s*\]\s*\("
)


def by_rows(text: str) -> str:
    """A sum over `ptr[i]:ptr[i+1]` is a sum into the row of each entry: `y[row[p]] += v[p]`."""
    match = _SPARSE.match(text)
    end = -1 if match is None else closed(text, match.end() - 1)
    if match is None or end != len(text.rstrip()) - 1:
        return text
    result, i, p, _ = match.groups()
    row, size = fresh(text, ("row", "rows")), fresh(text, "NMR")
    body = re.sub(rf"\b{i}\b", f"{row}[{p}]", text[match.end() : end]).strip()
    tensors = dict.fromkeys([*re.findall(rf"({NAME})\[", body), row])
    return f"f({', '.join(tensors)}, {size}) -> {result}: f64[{size}]:\n    {result}[{row}[{p}]] += {body}"


_RULES: tuple[Rule, ...] = (
    by_extents, with_outputs, without_modules, as_functions, by_name, by_operators, over_an_index, transposed, half_open,
    without_steps, without_slices, without_updates, by_gather, by_rows, *SPELLINGS,
)  # fmt: skip
