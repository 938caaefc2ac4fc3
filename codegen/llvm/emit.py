"""Kernel IR -> LLVM IR text.

The function is `i64 @kernel(ptr %pointers, ptr %integers)`. All names in the text are generated. What stands in it is emitted by
`statements`, its loops by what `loops/table.py` has for their kind.
"""

from __future__ import annotations

from polyker.codegen.ir.kernel import KernelIR
from polyker.codegen.ir.walk import stored
from polyker.codegen.llvm.expressions import LlvmExpressions
from polyker.codegen.llvm.loops.parallel import PARTICIPATE
from polyker.codegen.llvm.loops.table import loops
from polyker.codegen.llvm.statements import Statements
from polyker.codegen.llvm.text import IRBuilder
from polyker.machine.model import Target


def emit(kernel: KernelIR, target: Target) -> str:
    """Return the LLVM IR module of a verified kernel for `target`, its entry named `kernel`, after the passes for the target."""
    b = builder_for(target, " ".join(kernel.fastmath))
    # What marks streamed stores comes after the metadata of the buffers.
    streamed = 5 + 3 * len(kernel.buffers)
    code = Statements(kernel, target, LlvmExpressions(b, {}, {}), loops(), f", !nontemporal !{streamed}")
    b.top.written = stored(kernel.body)
    code.arguments()
    code.block(kernel.body)
    body = code.function_body()
    width = 8 * target.vector_bytes
    return "\n".join(
        [
            f'target triple = "{target.triple}"',
            *(text for symbol, text in b.declarations.items() if symbol not in b.definitions),
            *b.definitions.values(),
            *code.functions,
            *([PARTICIPATE] if code.functions else []),
            "define i64 @kernel(ptr noalias readonly %pointers, ptr noalias readonly %integers) #0 {",
            "entry:",
            *body,
            "}",
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}',
            *_metadata(kernel),
            *([f"!{streamed} = !{{i32 1}}"] if code.streamed_anywhere else []),
            "",
        ]
    )


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


def _metadata(kernel: KernelIR) -> list[str]:
    """!0: empty (invariant loads); !1: loop options; !4: the alias domain; then one scope and two lists a buffer."""
    lines = [
        "!0 = !{}",
        "!1 = distinct !{!1, !2, !3}",
        '!2 = !{!"llvm.loop.unroll.disable"}',
        '!3 = !{!"llvm.loop.vectorize.enable", i1 false}',
        "!4 = distinct !{!4}",
    ]
    names = [b.name for b in kernel.buffers]
    sharing = kernel.disjoint | kernel.in_place
    aliasing = sharing | {(b, a) for a, b in sharing}
    for k, name in enumerate(names):
        others = ", ".join(f"!{5 + 3 * j}" for j, o in enumerate(names) if j != k and (name, o) not in aliasing)
        lines += [
            f"!{5 + 3 * k} = distinct !{{!{5 + 3 * k}, !4}}",
            f"!{6 + 3 * k} = !{{!{5 + 3 * k}}}",
            f"!{7 + 3 * k} = !{{{others}}}",
        ]
    return lines
