"""Expressions out of operands, each of a kind (b bool, i integer, f float, c complex, w a weak integer)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz import functions
from tests.fuzz.conditions import of_bits

if TYPE_CHECKING:
    from tests.fuzz.generate import Maker

Kinds = {
    "bool": "b", **dict.fromkeys(["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"], "i"),
    **dict.fromkeys(["f16", "bf16", "f32", "f64"], "f"), "c64": "c", "c128": "c",
}  # fmt: skip
ORDER = "wbifc"
CASTS = {"b": ["i32", "f32", "u8"], "i": ["i64", "f64", "f32", "i16", "u32", "u8", "bool"], "f": ["f64", "f32", "f16", "bf16"],
         "c": ["c128", "c64"], "w": ["i64", "f32"]}  # fmt: skip
FLOATING = [
    "exp",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "tanh",
    "erf",
    "sigmoid",
    "gelu",
    "silu",
]
COMPLEX = ["exp", "sqrt", "sin", "cos", "conj", "real", "imag", "abs"]
PLAIN = ["abs", "relu", "floor", "ceil", "round", "sign", "real", "conj", "imag"]


def join(a: str, b: str) -> str:
    kind = max(a, b, key=ORDER.index)
    return "i" if kind == "w" and "b" in (a, b) else kind


def scaled(name: str, text: str) -> str:
    """An argument in the domain of a function, and small."""
    match name:
        case "log" | "rsqrt":
            return f"abs({text}) + 1"
        case "sqrt" | "log1p":
            return f"abs({text})"
        case "exp" | "expm1" | "tan":
            return f"0.125 * ({text})"
    return text


def function(m: Maker, text: str, kind: str) -> tuple[str, str]:
    """Apply a random function, or a cast, that takes this kind."""
    r = m.rng
    pick = r.random()
    if pick < 0.15:
        to = r.choice(CASTS[kind])
        m.features.add("cast")
        return f"{to}({text})", {"bool": "b"}.get(to, "i" if to[0] in "iu" else "c" if to[0] == "c" else "f")
    if pick < 0.35 and (found := functions.one(m, text, kind)) is not None:
        return found
    if kind == "w":
        return text, kind
    if kind == "b":
        m.features.add("function:not")
        return f"(not {text})", "b"
    if kind == "i" and r.random() < 0.15:
        m.features.add("operator:~")
        return f"~({text})", kind
    if kind == "c":
        name = r.choice(COMPLEX)
        m.features.add(f"function:{name}")
        return f"{name}({scaled(name, text) if name in ('exp',) else text})", "f" if name in (
            "real",
            "imag",
            "abs",
        ) else "c"
    if pick < 0.6 and (kind == "f" or r.random() < 0.3):
        name = r.choice(FLOATING)
        m.features.add(f"function:{name}")
        return f"{name}({scaled(name, text)})", "f"
    name = r.choice(PLAIN)
    m.features.add(f"function:{name}")
    return f"{name}({text})", kind


def pair(m: Maker, a: tuple[str, str], b: tuple[str, str], op: str) -> tuple[str, str]:
    """Join two operands by a random operator."""
    r = m.rng
    (x, p), (y, q) = a, b
    if r.random() < 0.2 and (bits := of_bits(m, a, b)) is not None:
        return bits
    kind = join(p, q)
    pick = r.random()
    if kind == "b":
        name = r.choice(["and", "or", "==", "!=", "*", "+"])
        m.features.add(f"operator:{name}")
        return f"({x} {name} {y})", "b"
    if op in ("any=", "all=") and pick < 0.6:
        name = r.choice(["<", "<=", ">", ">=", "==", "!="] if kind != "c" else ["==", "!="])
        m.features.add(f"operator:{name}")
        return f"({x} {name} {y})", "b"
    if (pick < 0.45 and op in ("+=", "=")) or pick < 0.2:
        m.features.add("operator:*")
        return f"{x} * {y}", kind
    if pick < 0.6:
        m.features.add("operator:+")
        return f"({x} + {y})", kind
    if pick < 0.72:
        m.features.add("operator:-")
        return f"({x} - {y})", kind
    if r.random() < 0.12 and (found := functions.two(m, x, y, kind)) is not None:
        return found
    if kind == "c":
        return f"{x} * {y}", kind
    if pick < 0.80:
        name = r.choice(["minimum", "maximum"])
        m.features.add(f"function:{name}")
        return f"{name}({x}, {y})", kind
    if pick < 0.87:
        name = r.choice(["<", "<=", ">", ">=", "==", "!="])
        m.features.add("function:where")
        return f"where({x} {name} {y}, {x}, {y})", kind
    if pick < 0.93 and kind != "w":
        name = r.choice(["//", "%"])
        m.features.add(f"operator:{name}")
        return f"({x} {name} {y})", kind
    if pick < 0.97:
        m.features.add("operator:/")
        return f"({x} / (abs({y}) + 1))" if kind == "f" else f"({x} / {y})", "f"
    name = r.choice(["<", "<=", ">", ">=", "==", "!="])
    m.features.add(f"operator:{name}")
    return f"({x} {name} {y})", "b"


def fold(m: Maker, operands: list[tuple[str, str]], op: str) -> tuple[str, str]:
    """Join all operands, with literals and functions here and there."""
    r = m.rng
    operands = list(operands)
    r.shuffle(operands)
    text, kind = operands[0]
    if r.random() < 0.2:
        text, kind = function(m, text, kind)
    for other in operands[1:]:
        if r.random() < 0.12:
            other = function(m, *other)
        text, kind = pair(m, (text, kind), other, op)
    pick = r.random()
    if pick < 0.1 and kind in "if":
        lit = m.literal(kind)
        name = r.choice(["*", "+", "-", "+"])
        text = f"({text} {name} {lit})"
        m.features.add("literal")
        if name == "-":
            m.features.add("operator:-")
    elif pick < 0.14 and kind in "ifc":
        text = f"-({text})"
        m.features.add("operator:negation")
    elif pick < 0.17 and kind in "ifc":
        text = f"({text}) ** 2"
        m.features.add("operator:**")
    elif pick < 0.19 and kind in "if":
        text = f"{m.literal('i')} - ({text})"
        m.features.add("operator:-")
    elif pick < 0.3:
        text, kind = function(m, text, kind)
    if op in ("max=", "min=", "logsumexp=") and kind == "c":
        text, kind = f"abs({text})", "f"
    return text, kind


def reduction_of(m: Maker, op: str, text: str, kind: str) -> tuple[str, str, str]:
    """Return (body, operator, kind of the result) of an inline reduction that takes this kind."""
    if kind == "c" and op in ("max", "min", "argmax", "argmin", "logsumexp"):
        text, kind = f"real({text})", "f"
    if op in ("argmax", "argmin"):
        return text, op, "i"
    if op in ("any", "all"):
        return text, op, "b"
    if op in ("mean", "logsumexp"):
        return text, op, "c" if kind == "c" else "f"
    if op in ("sum", "prod") and kind == "b":
        return text, op, "i"
    return text, op, kind
