"""Programs in which sizes are written as extents of tensors: `len(X)` and `X.shape[0]` are sizes that a header declares."""

from __future__ import annotations

import re

from polyker.einsum_frontend.hints.pieces import NAME, fresh, split
from polyker.einsum_frontend.names import RESERVED_WORDS

_SIZES = "NMKLPQRSTUVW"
# How the extent of a dimension is written elsewhere: the tensor, then the dimension where there is one.
_EXTENTS = (
    rf"(?<![\w.])(?:np\.|numpy\.|torch\.)?(?:shape|size)\(\s*({NAME})\s*(?:\)\s*\[|,)\s*(\d+)\s*[\])]",
    rf"(?<![\w.])({NAME})\.(?:shape|size|extent)\s*[\[(]\s*(\d+)\s*[\])]",
    rf"(?<![\w.])(?:len|size|numel)\(\s*({NAME})\s*\)",
)


def by_extents(text: str) -> str:
    """`X[i] for i in 0:len(X)` is a program with a header, `f(X: [N]) -> Y:`, in which the extent is N."""
    if "->" in text:
        return text
    names: dict[tuple[str, int], str] = {}

    def named(match: re.Match[str]) -> str:
        tensor = match.group(1)
        d = int(match.group(2)) if match.re.groups > 1 else 0
        if (tensor, d) not in names:
            names[tensor, d] = fresh(f"{text} {' '.join(names.values())}", _SIZES)
        return names[tensor, d]

    new = text
    for pattern in _EXTENTS:
        new = re.sub(pattern, named, new)
    return new if new == text else _with_header(new, names)


def _with_header(text: str, names: dict[tuple[str, int], str]) -> str:
    """Return a text as a declared program, in which dimensions of its inputs have names."""
    accesses = {m.group(1): len(split(m.group(2))) for m in re.finditer(rf"({NAME})\[([^\[\]]*)\]", text)}
    lines = [line.strip() for line in re.split(r"[;\n](?![^\[\]]*\])", text) if line.strip()]
    written = dict.fromkeys(m.group(0) for line in lines if (m := re.match(NAME, line)))
    read = [name for name in accesses if name not in written and name not in RESERVED_WORDS]
    taken = f"{text} {' '.join(names.values())}"
    shown = []
    for name in read:
        known = {d: size for (tensor, d), size in names.items() if tensor == name}
        extents = []
        for d in range(accesses[name] if known else 0):
            extents.append(known.get(d) or fresh(taken, _SIZES))
            taken += f" {extents[-1]}"
        shown.append(f"{name}: [{','.join(extents)}]" if known else name)
    outputs = [n for n in written if not any(re.search(rf"\b{n}\b", line.partition("=")[2]) for line in lines)] or [
        *written
    ]
    body = "".join(f"\n    {line}" for line in lines)
    return f"f({', '.join(shown)}) -> {', '.join(outputs)}:{body}"


def with_outputs(text: str) -> str:
    """`f(X: f32[N]): Y[i] = X[i]` is `f(X: f32[N]) -> Y: Y[i] = X[i]`."""
    match = re.match(rf"\s*(?:def\s+)?({NAME}\s*\([^()]*\))\s*:(?=\s)", text)
    if match is None:
        return text
    body = text[match.end() :]
    targets = dict.fromkeys(re.findall(rf"(?:^|[;\n])\s*({NAME})(?=\s*[\[=+*])", body))
    return f"{match.group(1)} -> {', '.join(targets)}:{body}" if targets else text
