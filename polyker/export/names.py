"""Names and types of C: identifiers that a header may use, and what stands for each element type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

from polyker.errors.base import failure
from polyker.errors.export import BAD_EXPORT_NAME
from polyker.errors.given import printed
from polyker.ir.dtypes import DType
from polyker.record.forms import SizeForm

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
MAX_NAME = 200  # characters of a name: what all linkers take (chosen)
# Keywords of C and C++, and names of the C library that a header may meet as macros.
RESERVED = frozenset((
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char",
    "char8_t", "char16_t", "char32_t", "class", "co_await", "co_return", "co_yield", "compl", "complex", "concept", "const",
    "const_cast", "consteval", "constexpr", "constinit", "continue", "decltype", "default", "delete", "do", "double",
    "dynamic_cast", "else", "enum", "errno", "explicit", "export", "extern", "false", "float", "for", "friend", "goto",
    "if", "imaginary", "inline", "int", "long", "main", "mutable", "namespace", "new", "noexcept", "not", "not_eq",
    "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "reflexpr", "register", "reinterpret_cast",
    "requires", "restrict", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "stderr",
    "stdin", "stdout", "struct", "switch", "synchronized", "template", "this", "thread_local", "throw", "true", "try",
    "typedef", "typeid", "typename", "typeof", "union", "unix", "linux", "unsigned", "using", "virtual", "void", "volatile",
    "wchar_t", "while", "xor", "xor_eq", "scratch", "runtime",
))  # fmt: skip
# What LLVM calls by these names where a processor has no instruction.
LIBRARY = frozenset((
    *(f"{n}{f}" for n in ("ceil", "floor", "fmod", "nearbyint", "rint", "roundeven", "trunc") for f in ("", "f")),
    "bzero", "memcpy", "memmove", "memset",
))  # fmt: skip
_C = {
    "f32": "float",
    "f64": "double",
    "bool": "uint8_t",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "c64": "float",
    "c128": "double",
}
# What the header says of types that C has no name for.
NOTES = {
    "bool": "0 or 1",
    "f16": "bits of an IEEE half",
    "bf16": "bits of a bfloat16",
    "c64": "pairs of real and imaginary part",
    "c128": "pairs of real and imaginary part",
}


def c_type(dtype: DType) -> str:
    """Return the type of C that stands for an element, or for one part of a complex one."""
    return _C.get(dtype.name) or f"{'u' * (dtype.kind == 'u')}int{8 * dtype.itemsize}_t"


def function_name(name: object) -> str:
    """Return the name of an exported function; raises ArgumentError where it is no identifier of C, or reserved."""
    if (
        not isinstance(name, str)
        or not _IDENTIFIER.fullmatch(name)
        or name in RESERVED | LIBRARY
        or len(name) > MAX_NAME
    ):
        raise failure(BAD_EXPORT_NAME, name=printed(name))
    return name


def parameter_names(labels: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return identifiers for parameters of these labels, each its own.

    >>> parameter_names(["A", "int", "_x", "A"])
    ['A', 'int_', 'p_x', 'A_']
    """
    found: list[str] = []
    used = {*RESERVED, *taken}
    for label in labels:
        name = label if _IDENTIFIER.fullmatch(label) else "p" + re.sub(r"[^A-Za-z0-9_]", "_", label)
        while name in used:
            name += "_"
        used.add(name)
        found.append(name)
    return found


def shown(form: SizeForm, sizes: Mapping[str, str]) -> str:
    """Return an extent as C writes it; `sizes`: the names of sizes by generated name."""
    match form:
        case int():
            return str(form)
        case str():
            return sizes.get(form, form)
        case ("linear", int(constant), *pairs):
            terms = [_term(pair, sizes) for pair in pairs] + ([str(constant)] if constant or not pairs else [])
            return " + ".join(terms).replace("+ -", "- ")
        case ("floordiv" | "mod" as op, first, second):
            return f"({shown(first, sizes)}) {'/' if op == 'floordiv' else '%'} {shown(second, sizes)}"
        case ("add" | "mul" as op, *rest):
            return f"({(' + ' if op == 'add' else '*').join(shown(f, sizes) for f in rest)})".replace("+ -", "- ")
        case ("neg", first):
            return f"-{shown(first, sizes)}"
        case (str(op), *rest):
            return f"{op[:3]}({', '.join(shown(f, sizes) for f in rest)})"
    return "?"


def _term(pair: object, sizes: Mapping[str, str]) -> str:
    assert isinstance(pair, tuple), "an atom and its factor"
    atom, factor = pair
    inside = shown(atom, sizes)
    return inside if factor == 1 else f"-{inside}" if factor == -1 else f"{factor}*{inside}"


def name_of(file: str | PathLike[str]) -> str:
    """Return the name of a header, and of a function that has no other, after the file that is written."""
    return re.sub(r"\W", "_", Path(file).stem.removeprefix("lib"), flags=re.ASCII) or "kernel"
