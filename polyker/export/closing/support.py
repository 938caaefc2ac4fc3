"""What LLVM calls where a processor has no instruction for it, in LLVM IR: rounding, remainders, 64-bit integers, memory.

An object file defines what it would otherwise leave to the target's C library, which may lack it. The text is that of
polyker/data/support.ll, a section a kind of function. Sources: musl's fmod for the remainder; the "Run-time ABI for the Arm
Architecture" for the functions of ARM; Boldo and Melquiond, "When double rounding is odd", 2005, for conversions.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template

from polyker.machine.model import Target

# Of a format: what C's names end in, LLVM's names of it and of its bits, its mantissa's bits, its exponent's bias.
_FORMATS = (("f", "float", "i32", 23, 127), ("", "double", "i64", 52, 1023))

# On Windows pages of the stack are touched in order: what `___chkstk_ms` of compiler-rt does, whose convention is its own (rax is
# the frame's size, no register changes), as machine code.
_CHKSTK = bytes.fromhex(
    "51 50 48 3d 00 10 00 00 48 8d 4c 24 18 72 18 48 81 e9 00 10 00 00 48 85 09 48 2d 00 10 00 00 48 3d 00 10 00 00 77 e8 48 29"
    "c1 48 85 09 58 59 c3"
)
_FRAME = '\n@{name} = constant [{count} x i8] c"{code}", section ".text", align 16\n'
# What code for MSVC says where it uses floating point, and its C library defines; the linker takes any one of several.
SHARED = frozenset({"_fltused"})
_USES_FLOATS = "\n@_fltused = weak_odr global i32 39029\n"


@cache
def _sections() -> dict[str, Template]:
    text = (files("polyker.data") / "support.ll").read_text(encoding="utf-8")
    return {name: Template(body) for name, _, body in (part.partition("\n") for part in text.split("\n;; ")[1:])}


def _filled(section: str, **values: object) -> str:
    return _sections()[section].substitute(values)


def _by_format() -> dict[str, str]:
    found = {}
    for s, kind, integer, m, bias in _FORMATS:
        bits = int(integer[1:])
        facts = {
            "s": s, "F": kind, "I": integer, "m": m, "bias": bias, "top": 2 * bias + 1, "shifts": bits - 1, "fm": f"f{bits}",
            "magnitude": (1 << (bits - 1)) - 1, "sign": -(1 << (bits - 1)), "mantissa": (1 << m) - 1, "one": 1 << m,
            "infinity": (2 * bias + 1) << m, "exponent": bits - 1 - m, "ulp": f"{float(1 << m):e}",
        }  # fmt: skip
        found[f"trunc{s}"] = _filled("trunc", **facts)
        found[f"floor{s}"] = _filled("floor and ceil", name="floor", test="ogt", op="fsub", **facts)
        found[f"ceil{s}"] = _filled("floor and ceil", name="ceil", test="olt", op="fadd", **facts)
        for name in ("roundeven", "rint", "nearbyint"):
            found[f"{name}{s}"] = _filled("roundeven", name=name, **facts)
        found[f"fmod{s}"] = _filled("fmod", **facts)
    return found


def _of_arm() -> dict[str, str]:
    found = {"__aeabi_uldivmod": _filled("uldivmod"), "__aeabi_ldivmod": _filled("ldivmod")}
    for u, to in (("", "si"), ("u", "ui")):
        found[f"__aeabi_{u}l2d"] = _filled("l2d", u=u, to=to)
        found[f"__aeabi_{u}l2f"] = _filled("l2f", u=u, to=to)
    for name in ("lz", "ulz"):
        found[f"__aeabi_d2{name}"] = _filled("d2lz", name=f"d2{name}", F="double", widened="fadd double %given, -0.0")
        found[f"__aeabi_f2{name}"] = _filled(
            "d2lz", name=f"f2{name}", F="float", widened="fpext float %given to double"
        )
    for name in (f"{stem}{aligned}" for stem in ("set", "clr", "cpy", "move") for aligned in ("", "4", "8")):
        found[f"__aeabi_mem{name}"] = _memory_call(f"__aeabi_mem{name}", "i32", "arm_aapcscc ")
    return found


def _memory_call(name: str, word: str, cc: str = "") -> str:
    """Return a function that fills, clears, copies or moves memory, by the C library's: its name says which."""
    count, fills = f"{word} %count", "set" in name
    if "cpy" in name or "move" in name:
        c, second = "memcpy" if "cpy" in name else "memmove", "ptr"
        parameters, arguments = f"ptr %to, ptr %from, {count}", f"ptr %to, ptr %from, {count}"
    else:
        c, second = "memset", "i32"
        parameters = f"ptr %to, {count}" + ", i32 %value" * fills
        arguments = f"ptr %to, i32 {'%value' if fills else '0'}, {count}"
    return _filled(
        "memory call", cc=cc, name=name, parameters=parameters, arguments=arguments, c=c, second=second, w=word
    )


def definitions(target: Target) -> dict[str, str]:
    """Return the functions, and what else is not code of a kernel, by name, each with what it is in LLVM IR."""
    word = "i32" if target.triple.startswith(("wasm32", "arm")) else "i64"
    found = _by_format()
    found |= {n: _filled(n, w=word) for n in ("memset", "memcpy", "memmove")}
    if target.triple.startswith("arm"):
        found |= _of_arm()
    if "apple" in target.triple:
        found |= {n: _memory_call(n, word) for n in ("bzero", "__bzero")}
    if "windows" in target.triple:
        code = "".join(f"\\{byte:02X}" for byte in _CHKSTK)
        found |= {n: _FRAME.format(name=n, count=len(_CHKSTK), code=code) for n in ("__chkstk", "___chkstk_ms")}
        found["_fltused"] = _USES_FLOATS
    return {name: f'{text}attributes #0 = {{ nounwind "no-builtins" }}\n' for name, text in found.items()}
