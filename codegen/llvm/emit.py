"""Kernel IR -> LLVM IR text.

The function is `i64 @kernel(ptr %pointers, ptr %integers)`. All names in the text are generated. What stands in it is emitted by
`statements`, its loops by what `loops/table.py` has for their kind. Parts are functions of the same form beside it.
"""

from __future__ import annotations

from msgspec import Struct

from polyker.codegen.ir.kernel import KernelIR
from polyker.codegen.ir.walk import stored
from polyker.codegen.llvm.expressions import LlvmExpressions
from polyker.codegen.llvm.loops.parallel import PARTICIPATE
from polyker.codegen.llvm.loops.table import loops
from polyker.codegen.llvm.parts import calling_body, part_symbol
from polyker.codegen.llvm.statements import Statements
from polyker.codegen.llvm.text import IRBuilder
from polyker.machine.model import Target

# !0: empty (invariant loads); !1: loop options; !4: the alias domain; then what each function has of its own.
_COMMON_METADATA = (
    "!0 = !{}",
    "!1 = distinct !{!1, !2, !3}",
    '!2 = !{!"llvm.loop.unroll.disable"}',
    '!3 = !{!"llvm.loop.vectorize.enable", i1 false}',
    "!4 = distinct !{!4}",
)
FIRST_SCOPE = len(_COMMON_METADATA)


def emit(kernel: KernelIR, target: Target) -> str:
    """Return the LLVM IR module of a verified kernel for `target`, its entry named `kernel`, after the passes for the target."""
    made: list[Emitted] = []
    scopes = FIRST_SCOPE
    for number, part in enumerate(kernel.parts):
        # A part may not be inlined: its loads of pointers and integers are invariant in it alone.
        made.append(_emitted(part, target, part_symbol(number), scopes, "noinline #0"))
        scopes = made[-1].end
    if not kernel.parts:
        made.append(_emitted(kernel, target, "", scopes, "#0"))
    entry = _function("kernel", calling_body(kernel), "#0") if kernel.parts else []
    width = 8 * target.vector_bytes
    definitions = {symbol: text for one in made for symbol, text in one.builder.definitions.items()}
    declarations = {symbol: text for one in made for symbol, text in one.builder.declarations.items()}
    return "\n".join(
        [
            f'target triple = "{target.triple}"',
            *(text for symbol, text in declarations.items() if symbol not in definitions),
            *definitions.values(),
            *(text for one in made for text in one.code.functions),
            *([PARTICIPATE] if any(one.code.functions for one in made) else []),
            *(line for one in made for line in one.lines),
            *entry,
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}',
            *_COMMON_METADATA,
            *(line for one in made for line in one.metadata),
            "",
        ]
    )


class Emitted(Struct, frozen=True):
    """The function of a kernel or of a part: its lines, what it declares and defines besides, and its metadata.

    `end`: the first number of metadata that is free after it.
    """

    builder: IRBuilder
    code: Statements
    lines: list[str]
    metadata: list[str]
    end: int


def _emitted(kernel: KernelIR, target: Target, symbol: str, scopes: int, attributes: str) -> Emitted:
    """Return the function of a kernel or of a part; `symbol`: what its name begins with, `scopes`: its first metadata."""
    b = builder_for(target, " ".join(kernel.fastmath))
    code = Statements(kernel, target, LlvmExpressions(b, {}, {}), loops(), symbol, scopes)
    b.top.written = stored(kernel.body)
    code.arguments()
    code.block(kernel.body)
    lines = _function(f"{symbol}kernel", code.function_body(), attributes)
    metadata = _metadata(kernel, scopes)
    if code.streamed_anywhere:
        metadata.append(f"!{code.marks_streams} = !{{i32 1}}")
    return Emitted(b, code, lines, metadata, code.marks_streams + 1)


def _function(name: str, body: list[str], attributes: str) -> list[str]:
    linkage = "" if name == "kernel" else "internal "
    arguments = "ptr noalias readonly %pointers, ptr noalias readonly %integers"
    return [f"define {linkage}i64 @{name}({arguments}) {attributes} {{", "entry:", *body, "}"]


def builder_for(target: Target, fastmath: str = "") -> IRBuilder:
    """Return a builder that knows what the target's instructions can do."""
    return IRBuilder(
        fastmath,
        native_half=target.half,
        native_maximum=target.maximum,
        fma=target.fma,
        avx512=target.masks,
        dots=target.dot_products,
        dot_lanes=target.lanes(4),
    )


def _metadata(kernel: KernelIR, scopes: int) -> list[str]:
    """Return a scope and two lists a buffer, numbered from `scopes` on."""
    lines = []
    names = [b.name for b in kernel.buffers]
    sharing = kernel.disjoint | kernel.in_place
    aliasing = sharing | {(b, a) for a, b in sharing}
    for k, name in enumerate(names):
        at = scopes + 3 * k
        others = ", ".join(f"!{scopes + 3 * j}" for j, o in enumerate(names) if j != k and (name, o) not in aliasing)
        lines += [
            f"!{at} = distinct !{{!{at}, !4}}",
            f"!{at + 1} = !{{!{at}}}",
            f"!{at + 2} = !{{{others}}}",
        ]
    return lines
