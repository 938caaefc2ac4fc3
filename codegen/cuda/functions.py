"""The functions of the notation as CUDA C, for the header of printed kernels (`pk_cuda.h`): C's own, and compositions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from polyker.codegen.cuda.digamma import digamma
from polyker.ir.functions import TABLE, Function
from polyker.ir.functions.composition import composed

# Where they go in the header.
PLACE = "// @functions of C's library\n"
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
EXTREMA = {"minimum": "pk_min", "maximum": "pk_max"}
# Code that no other function gives, by name; it goes into the texts that use it.
_CODE: dict[str, Callable[[], str]] = {"digamma": digamma}


def listed() -> str:
    """Return the macros that apply X(T, S, name, c) to each function of C's library of one argument, and of two: its name here
    and in C; and those that define the compositions for a type T, and for a type H of half precision."""
    lines = []
    for arity in (1, 2):
        calls = [f"X(T, S, {f.name}, {f.c})" for f in TABLE.values() if f.c and f.arity == arity]
        lines.append(f"#define PK_C{arity}(X, T, S) {' '.join(calls)}\n")
    written = [f for f in TABLE.values() if f.written and "f" not in f.expanded]
    lines.append(f"#define PK_WRITTEN(T) {' '.join(map(_defined, written))}\n")
    lines.append(f"#define PK_WRITTEN_HALF(H) {' '.join(map(_half, written))}\n")
    return "".join(lines)


def code_of(text: str) -> Iterator[str]:
    """Yield the code of the functions of a text that have code of their own."""
    return (code() for name, code in _CODE.items() if f"pk_{name}(" in text)


def _parameters(f: Function, kind: str) -> str:
    return ", ".join(f"{kind} {name}" for name in "xyz"[: f.arity])


def _defined(f: Function) -> str:
    text = composed(f.written, "xyz"[: f.arity], written, lambda number: f"T({number!r})")
    return f"PK_FN T pk_{f.name}({_parameters(f, 'T')}) {{ return {text}; }}"


def _half(f: Function) -> str:
    args = ", ".join(f"f32({name})" for name in "xyz"[: f.arity])
    return f"PK_FN H pk_{f.name}({_parameters(f, 'H')}) {{ return H(pk_{f.name}({args})); }}"


def written(op: str, args: tuple[str, ...]) -> str:
    """Return the text of an operation of a composition, on floats."""
    if op == "neg":
        return f"(-{args[0]})"
    if op == "where":
        return f"({args[0]} ? {args[1]} : {args[2]})"
    if op in INFIX or op in COMPARE:
        return f"({args[0]} {INFIX.get(op) or COMPARE[op]} {args[1]})"
    return f"{EXTREMA.get(op, f'pk_{op}')}({', '.join(args)})"
