"""Statements as other languages spell them: Tensor Comprehensions, Halide, Julia, C, LaTeX, NumPy.

Rules as in polyker.einsum_frontend.hints.repairs: each changes a text, or leaves it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from polyker.einsum_frontend.elsewhere import OVER_INDEX, RENAMED, WRITTEN
from polyker.einsum_frontend.hints.pieces import ACCESS, NAME, fresh, grouped, rewritten, split
from polyker.einsum_frontend.names import RESERVED_WORDS
from polyker.errors.spelling import near
from polyker.ir.dtypes import TYPE_NAMES, meant_type
from polyker.ir.expr import FUNCTIONS

_REDUCTIONS = "sum|prod|max|min|mean|logsumexp|argmax|argmin|any|all"
_SYMBOLS = {
    "×": "*", "·": "*", "⋅": "*", "∗": "*", "⊙": "*", "÷": "/", "−": "-", "–": "-", "≤": "<=", "≥": ">=", "≠": "!=", "∞": "inf",
    "∑": "sum", "Σ": "sum", "∏": "prod", "Π": "prod", "√": "sqrt", "²": " ** 2", "³": " ** 3", "←": "=", "∧": " and ",
    "∨": " or ", "¬": "not ", "π": "pi", "∈": " in ", "…": "...",
}  # fmt: skip
_TYPES = {**TYPE_NAMES, "int": "i32"}  # C's

_TYPE = r"['\"]?[<>=|]?(?:[A-Za-z_][\w.]*|\?)['\"]?"  # as it may be spelt elsewhere

# Names before round brackets that are no tensor's.
_OTHERS = "load store len size shape zeros ones full print matmul dot norm einsum reshape transpose sorted list tuple"
_FUNCTIONS = {*RESERVED_WORDS, *RENAMED, *OVER_INDEX, *_TYPES, *(name for name, _ in WRITTEN), *_OTHERS.split()}


def in_ascii(text: str) -> str:
    """`α × ∑[k](x[k])` is `alpha * sum[k](x[k])`."""
    text = re.sub(rf"√\s*({ACCESS}|\w+)", r"sqrt(\1)", text)
    for symbol, written in _SYMBOLS.items():
        text = text.replace(symbol, written)

    def named(match: re.Match[str]) -> str:
        found = re.fullmatch(
            r"GREEK (SMALL|CAPITAL) (?:LETTER )?(\w+)(?: SYMBOL)?", unicodedata.name(match.group(), "")
        )
        return (
            match.group()
            if found is None
            else found.group(2).lower()
            if found.group(1) == "SMALL"
            else found.group(2).title()
        )

    return re.sub(r"[^\x00-\x7f]", named, text)


def by_assignment(text: str) -> str:
    """`C[i] := A[i]` is `C[i] = A[i]`, a `+=` where an index stands on the right only; `+=!` is `+=`, `===` is `=`."""
    text = re.sub(r"@(?:tullio|einsum|ein|reduce)\b\s*", "", text)
    text = re.sub(r"((?:[+*]|\bmax|\bmin)=)!(?!=)", r"\1", text)

    def made(match: re.Match[str]) -> str:
        left, operator, right = match.groups()
        sums = operator == ":=" and set(_indices(right)) - set(_indices(left))
        return f"{left.rstrip()} {'+=' if sums else '='} {right.strip()}"

    return re.sub(rf"^(\s*{NAME}\s*(?:\[[^\]\n]*\])?\s*)(:=|<-|===?)(?!=)([^\n;]*)", made, text, flags=re.MULTILINE)


def _indices(text: str) -> list[str]:
    inside = " ".join(re.findall(r"\[([^\[\]]*)\]", text))
    return re.findall(rf"(?<![\w.])({NAME})(?![\w.]*\s*[\[(])", inside)


def by_brackets(text: str) -> str:
    """`A(i,k)` and `A{i,k}` are `A[i,k]`, `A[i][k]`, `A(i)(k)` and `A[i,k,]` too; `sum[k]{…}` is `sum[k](…)`."""
    rounds = (
        re.match(rf"\s*{NAME}\s?\([^()]*\)\s*[+*a-z]*=", text) is not None
    )  # so that T(I(i)) is no function's value

    def made(match: re.Match[str], inside: str) -> str | None:
        after, name = text[match.end() + len(inside) + 1 :].lstrip(), match.group(1)
        if name in _FUNCTIONS or after.startswith("->") or not re.fullmatch(r"[\w\s,+*/%\[\]-]+", inside):
            return None
        if "[" in inside and (not rounds or near(name, _FUNCTIONS)):
            return None
        return f"{match.group(1)}[{inside}]"

    text = re.sub(rf"(?<![\w.])((?!(?:{_REDUCTIONS})\b){NAME})\{{([^{{}}]*)\}}", r"\1[\2]", text)
    for _ in range(2):  # what stands inside first
        text = rewritten(text, rf"(?<![\w.])({NAME})\s?\(", made)
    several = rf"(?<![\w.])((?!(?:{_REDUCTIONS})\b){NAME}\[[^\[\]]*)\]\s*"
    text = re.sub(several + r"\[", r"\1,", text)
    text = re.sub(several + r"\(([^()\[\]]*)\)", r"\1,\2]", text)
    text = re.sub(r",\s*\]", "]", text)
    return re.sub(r"\]\s*\{([^{}]*)\}", r"](\1)", text)


def over_indices(text: str) -> str:
    """`sum(k, X[i,k])`, `sum(X[i,k], k)`, `sum(X[i,k], axis=1)`, `sum_k X[i,k]` and `sum[k] X[i,k]` are `sum[k](X[i,k])`."""
    text = re.sub(rf"\b({_REDUCTIONS})_\{{?({NAME}(?:\s*,\s*{NAME})*)\}}?(?=\W)", r"\1[\2]", text)

    def bracketed(match: re.Match[str]) -> str:
        head, body, where = match.group(1), match.group(3), match.group(4) or ""
        own = re.findall(NAME, match.group(2))
        inside = any(re.search(rf"\b{i}\b", where) for i in own)  # else it is the statement's
        return f"{head}{match.group(2)}({body}{where})" if inside else f"{head}{match.group(2)}({body}){where}"

    body = r"\s*(?![\s({=])([^\n;]*?)(\s+where\b[^\n;]*?)?(?=\s+for\b|[;\n]|$)"
    text = re.sub(rf"\b({_REDUCTIONS})(\[[^\[\]]*\]){body}", bracketed, text)
    left = set(_indices(text.partition("=")[0]))

    def made(match: re.Match[str], inside: str) -> str | None:
        parts = split(inside.replace(":", ",", 1) if re.match(rf"\s*{NAME}\s*:", inside) else inside)
        parts = [p for p in parts if not re.match(r"(?:axis|dim|keepdims?)\s*=", p)]
        bare = [p for p in parts if re.fullmatch(NAME, p)]
        rest = [p for p in parts if p not in bare and not p.isdecimal()]
        if len(rest) != 1 or ":" in rest[0]:
            return None
        over = bare or list(dict.fromkeys(i for i in _indices(rest[0]) if i not in left))
        return f"{match.group(1)}[{','.join(over)}]({rest[0]})" if over else None

    return rewritten(text, rf"(?<![\w.])({_REDUCTIONS})\(", made)


def as_reductions(text: str) -> str:
    """`X[i,j].sum(axis=1)` is `sum(X[i,j])`, `X[i].astype(f32)` is `f32(X[i])`."""
    text = re.sub(rf"({ACCESS})\s*\.\s*({_REDUCTIONS})\s*\([^()]*\)", r"\2(\1)", text)
    return re.sub(
        rf"({ACCESS})\s*\.\s*(?:astype|to|type)\s*\(\s*({_TYPE})\s*\)",
        lambda m: f"{_meant_type(m.group(2))}({m.group(1)})",
        text,
    )


def of_several(text: str) -> str:
    """`max(a, b, c)` is `maximum(maximum(a, b), c)`."""

    def made(match: re.Match[str], inside: str) -> str | None:
        parts = split(inside)
        if len(parts) < 3 or any("=" in p for p in parts):
            return None
        found = parts[0]
        for part in parts[1:]:
            found = f"{match.group(1)}imum({found}, {part})"
        return found

    return rewritten(text, r"(?<![\w.])(max|min)(?:imum)?\(", made)


def by_where(text: str) -> str:
    """`a if c else b` and `c ? a : b` are `where(c, a, b)`."""
    text = re.sub(
        r"(?<==)\s*([^=\n;?]+?)\s+if\s+([^\n;]+?)\s+else\s+([^\n;]+?)(?=\s+for\b|[;\n]|$)", r" where(\2, \1, \3)", text
    )
    text = re.sub(
        r"(?<==)\s*([^\n;?]+?)\s*\?\s*([^\n;:]+?)\s*:\s*([^\n;]+?)(?=\s+for\b|[;\n]|$)", r" where(\1, \2, \3)", text
    )
    return re.sub(r"\s+(?:if|when|s\.t\.)\s+([^\n;]+)$", r" where \1", text, flags=re.MULTILINE)


def by_words(text: str) -> str:
    """`a && b` is `a and b`, `a mod b` is `a % b`, `|a|` is `abs(a)`, `|=` is `any=`, `exp a[i]` is `exp(a[i])`."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"^(\s*)(?:let|var|val|const|auto)\s+", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"([=+*/(,-]\s*)\|([^|\n]+)\|", r"\1abs(\2)", text)
    text = re.sub(rf"^(\s*{NAME}(?:\[[^\[\]]*\])?\s*)([|&])=(?!=)", _by_bits, text, flags=re.MULTILINE)
    text = re.sub(rf"(?<![\w.])({'|'.join(FUNCTIONS)})\s+({ACCESS})", r"\1(\2)", text)
    text = re.sub(r",\s*pad\s*=", "; pad=", text)
    text = re.sub(r";(\s*;)+", ";", text).rstrip("; ")
    text = re.sub(r"\s*&&\s*", " and ", text)
    text = re.sub(r"\s*\|\|\s*", " or ", text)
    text = re.sub(r"\s+mod\s+", " % ", text)
    text = re.sub(r"\s*<>\s*", " != ", text)
    return re.sub(r"!(?!=)\s*(?=[\w(])", "not ", text)


def _by_bits(match: re.Match[str]) -> str:
    return f"{match.group(1)}{'any' if match.group(2) == '|' else 'all'}="


def by_ranges(text: str) -> str:
    """`for i = 0:4`, `for i in [0, 4)`, `for 0 <= i < 4`, `where i in 0:4` and `, i in 0:4` are `for i in 0:4`."""
    text = re.sub(rf"\bfor\s+({NAME})\s*=\s*", r"for \1 in ", text)
    text = re.sub(r"\bin\s*\[\s*([^\[\],;\n]+),\s*([^\[\],;\n]+)\)", r"in \1:\2", text)
    text = re.sub(rf"\bfor\s+(\w+)\s*<=\s*({NAME})\s*<\s*([\w+*-]+)", r"for \2 in \1:\3", text)
    text = re.sub(rf"\bfor\s+({NAME})\s*<\s*([\w+*-]+)", r"for \1 in 0:\2", text)
    reduced = rf"(?<![\w.])({_REDUCTIONS})\[\s*"
    text = re.sub(rf"{reduced}(\w+)\s*<=\s*({NAME})\s*<\s*([^\[\],<=]+)\]", r"\1[\3 in \2:\4]", text)
    text = re.sub(rf"{reduced}({NAME})\s*<\s*([^\[\],<=]+)\]", r"\1[\2 in 0:\3]", text)
    text = re.sub(rf"{reduced}({NAME})\s*=\s*([^\[\],<=]+:[^\[\],<=]+)\]", r"\1[\2 in \3]", text)
    text = re.sub(rf"\bwhere\s+(?={NAME}\s+in\s)", "for ", text)
    text = re.sub(rf"\s*\(\s*({NAME}\s+in\s+[^()\n;]+)\)\s*$", r" for \1", text, flags=re.MULTILINE)
    if not re.search(r"\bfor\b|\[[^\[\]]*\bin\b", text):
        text = re.sub(rf"\s*,\s*({NAME}\s+in\s)", r" for \1", text, count=1)
    return re.sub(rf"(\bfor\s+{NAME}\s+in\s+)({NAME})(?=\s*(?:$|[,;\n]))", r"\g<1>0:\2", text)


def _meant_type(text: str) -> str:
    """Return a type as it is called here; the text itself where it is none."""
    return _TYPES.get(text.rpartition(".")[2]) or meant_type(text) or text


def by_types(text: str) -> str:
    """`float32(x)` and `np.uint8(x)` are `f32(x)` and `u8(x)`."""
    return re.sub(rf"(?<![\w.])((?:{NAME}\.)*(?:{NAME}))(?=\()", lambda m: meant_type(m.group(1)) or m.group(1), text)


def transposed_first(text: str) -> str:
    """`A.T[i,j]`, `A'[i,j]` and `A[i,j]'` are `A[j,i]`."""
    pair = r"\[([^\[\],]+),([^\[\],]+)\]"
    text = re.sub(rf"\b({NAME})(?:\.T|\.mT|'){pair}", r"\1[\3,\2]", text)
    return re.sub(rf"\b({NAME}){pair}'", r"\1[\3,\2]", text)


def by_constants(text: str) -> str:
    """`np.pi` is `pi`."""
    return re.sub(rf"(?<![\w.]){NAME}\.(pi|inf|nan)\b", r"\1", text)


def without_colons(text: str) -> str:
    """`Y[i,j] = A[i,:]` is `Y[i,j] = A[i,j]`: a whole dimension has the index of the left that is left over, or a new one."""
    left, equals, right = text.partition("=")
    if len(re.findall(r"\[[^\[\]]*\]", left)) != 1 or not equals:
        return text
    found = [[p.strip() for p in s.split(",")] for s in re.findall(r"\[([^\[\]]*)\]", right)]
    whole = [s for s in found if ":" in s]
    if whole and all(set(_indices(left)) <= set(s) for s in whole):
        new = list[str]()
        for _ in range(max(s.count(":") for s in whole)):
            new.append(fresh(f"{text} {' '.join(new)}", "jklmnp"))
        left = re.sub(r"\]", f",{','.join(new)}]", left)

    def made(match: re.Match[str]) -> str:
        parts = [p.strip() for p in match.group(2).split(",")]
        free = [i for i in _indices(left) if i not in parts]
        if parts.count(":") != len(free):
            return match.group()
        return f"{match.group(1)}[{','.join(free.pop(0) if p == ':' else p for p in parts)}]"

    return left + equals + re.sub(rf"({NAME})\[([^\[\]]*)\]", made, right)


def by_windows(text: str) -> str:
    """`Y[i] = X[i:i+2]` is `Y[i,k] = X[i+k] for k in 0:2`: a slice is a dimension more."""
    left, equals, right = text.partition("=")
    found = re.search(rf"(?<![\w.])({NAME})\[([^\[\]:,;]+):([^\[\]:,;]+)\]", right)
    if found is None or re.search(r"\bfor\b|[;\n]", text) or not re.search(r"\]\s*$", left):
        return text
    low, high = found.group(2).strip(), found.group(3).strip()
    above = re.fullmatch(rf"{re.escape(low)}\s*\+\s*(.+)", high)
    k = fresh(text, "klmnp")
    length = above.group(1) if above else f"{high} - {grouped(low)}"
    moved = right[: found.start()] + f"{found.group(1)}[{low}+{k}]" + right[found.end() :]
    return left.rstrip()[:-1] + f",{k}] {equals}{moved} for {k} in 0:{length}"


def declared(text: str) -> str:
    """`def mv(float(M,K) A) -> (C) { … }` and `f(X: float32[N]) -> Y` are `mv(A: f32[M,K]) -> C:` and `f(X: f32[N]) -> Y:`."""
    names = "|".join(_TYPES)
    text = re.sub(r"^\s*def\s+", "", text)
    text = re.sub(
        rf"\b({names})\(([^()]*)\)\s+({NAME})", lambda m: f"{m.group(3)}: {_TYPES[m.group(1)]}[{m.group(2)}]", text
    )
    text = re.sub(rf"(:\s*)({_TYPE})(?=\s*(?:[\[(,)\n]|$))", lambda m: m.group(1) + _meant_type(m.group(2)), text)
    text = re.sub(r"(:\s*)(?:Tensor|Array|ndarray)(?=\[)", r"\1", text)
    text = re.sub(r"(:\s*[a-z]+\d+)\(([^()]*)\)", r"\1[\2]", text)
    text = re.sub(rf"->\s*\(({NAME}(?:\s*,\s*{NAME})*)\)", r"-> \1", text)
    text = re.sub(r"(->[^{\n:]*?)\s*\{\s*", r"\1:\n    ", text)
    text = re.sub(r"\s*\}\s*$", "", text)
    head, line, rest = text.partition("\n")
    return (
        f"{head.rstrip()}:{line}{rest}"
        if "->" in head and not head.rstrip().endswith(":") and rest[:1].isspace()
        else text
    )


def as_einsum(text: str) -> str:
    """`ij,jk->ik` is `C[i,k] += A[i,j] * B[j,k]`; spaces between labels are einops', an output left out is implied."""
    if not is_einsum(text):
        return text
    left, arrow, right = text.partition("->")
    words = max(len(w) for w in re.findall(r"\w+", text)) > 1 and bool(re.search(r"\w \w", text))
    terms = [_labels(term, words=words) for term in left.split(",")]
    every = [label for term in terms for label in term]
    implied = sorted({label for label in every if every.count(label) == 1 or label == "..."})
    output = _labels(right, words=words) if arrow else implied
    result, *names = (n for n in "CABDEFGHKLMNPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if n not in every)
    read = " * ".join(f"{n}[{','.join(t)}]" if t else n for n, t in zip(names, terms, strict=False))
    left = f"{result}[{','.join(output)}]" if output else result
    return f"{left} {'+=' if set(every) - set(output) else '='} {read}"


def is_einsum(text: str) -> bool:
    """Return whether a text is einsum's subscripts, or such with words for labels, as einops has them."""
    side = r"[A-Za-z_. ]*"
    found = re.fullmatch(rf"{side}(?:,{side})*(?:->{side})?", text.strip())
    return found is not None and ("->" in text or "," in text) and re.search(r"[A-Za-z]", text) is not None


def _labels(term: str, *, words: bool) -> list[str]:
    """Return the labels of a term: letters, or words with spaces between them."""
    return re.findall(r"\.\.\.|\w+" if words else r"\.\.\.|\w", term)


SPELLINGS: tuple[Callable[[str], str], ...] = (
    in_ascii, declared, by_assignment, by_brackets, as_reductions, over_indices, of_several, by_where, by_words, by_ranges,
    by_types, transposed_first, by_constants, without_colons, by_windows, as_einsum,
)  # fmt: skip
