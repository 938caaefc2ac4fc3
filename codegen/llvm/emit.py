"""Kernel IR -> LLVM IR text.

The function is `i64 @kernel(ptr %pointers, ptr %integers)`. All names in the text are generated. What stands in it is emitted by
`statements`, its loops by what `loops/table.py` has for their kind.
"""

from __future__ import annotations

from polyker.codegen.ir.kernel import KernelIR
from polyker.codegen.llvm.access.transpose import stored
from polyker.codegen.llvm.expressions import LlvmExpressions
from polyker.codegen.llvm.loops.parallel import PARTICIPATE
from polyker.codegen.llvm.loops.table import loops
from polyker.codegen.llvm.statements import Statements
from polyker.codegen.llvm.text import FLAGS, IRBuilder
from polyker.errors.base import InternalError
from polyker.machine.model import Target


def emit(kernel: KernelIR, target: Target) -> str:
    """Return the LLVM IR module of a verified kernel for `target`, its entry named `kernel`, after the passes for the target."""
    return Emitter(kernel, target).module()


def builder_for(target: Target, fastmath: str = "") -> IRBuilder:
    """Return a builder that knows what the target's instructions can do."""
    arm = target.triple.startswith(("aarch64", "arm64"))
    x86 = target.triple.startswith("x86_64")
    features = target.features.split(",")
    level = x86 and (target.cpu in ("x86-64-v3", "x86-64-v4") or "+avx2" in features)
    return IRBuilder(
        fastmath,
        native_half=arm or (x86 and ("+f16c" in features or level)),
        native_maximum=arm or target.triple.startswith("wasm"),
        native_fma=arm or (x86 and ("+fma" in features or level)),
        avx512=target.masks,
        dots=target.dot_products,
        dot_lanes=target.lanes(4),
    )


class Emitter:
    """Emits one kernel."""

    def __init__(self, kernel: KernelIR, target: Target) -> None:
        self.kernel = kernel
        self.target = target
        unknown = set(kernel.fastmath) - FLAGS
        if unknown:
            raise InternalError(f"unknown fast-math flags {sorted(unknown)}")
        self.b = builder_for(target, " ".join(kernel.fastmath))
        self.e = LlvmExpressions(self.b, {}, {})
        # What marks streamed stores comes after the metadata of the buffers.
        self.streamed = 5 + 3 * len(kernel.buffers)
        self.code = Statements(kernel, target, self.e, loops(), f", !nontemporal !{self.streamed}")

    def module(self) -> str:
        """Return the text of the module."""
        self.b.top.written = stored(self.kernel.body)
        self.code.arguments()
        self.code.block(self.kernel.body)
        body = self.code.function_body()
        defined = self.b.definitions
        declared = [t for s, t in self.b.declarations.items() if s not in defined]
        width = 8 * self.target.vector_bytes
        return "\n".join(
            [
                f'target triple = "{self.target.triple}"',
                *declared,
                *defined.values(),
                *self.code.functions,
                *([PARTICIPATE] if self.code.functions else []),
                "define i64 @kernel(ptr noalias readonly %pointers, ptr noalias readonly %integers) #0 {",
                "entry:",
                *body,
                "}",
                f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}',
                *self._metadata(),
                "",
            ]
        )

    def _metadata(self) -> list[str]:
        """!0: empty (invariant loads); !1: loop options; !4: the alias domain; then one scope and two lists a buffer;
        the last marks streamed stores."""
        lines = [
            "!0 = !{}",
            "!1 = distinct !{!1, !2, !3}",
            '!2 = !{!"llvm.loop.unroll.disable"}',
            '!3 = !{!"llvm.loop.vectorize.enable", i1 false}',
            "!4 = distinct !{!4}",
        ]
        names = [b.name for b in self.kernel.buffers]
        sharing = self.kernel.disjoint | self.kernel.in_place
        aliasing = sharing | {(b, a) for a, b in sharing}
        for k, name in enumerate(names):
            others = ", ".join(f"!{5 + 3 * j}" for j, o in enumerate(names) if j != k and (name, o) not in aliasing)
            lines += [
                f"!{5 + 3 * k} = distinct !{{!{5 + 3 * k}, !4}}",
                f"!{6 + 3 * k} = !{{!{5 + 3 * k}}}",
                f"!{7 + 3 * k} = !{{{others}}}",
            ]
        if self.code.streamed_anywhere:
            lines.append(f"!{self.streamed} = !{{i32 1}}")
        return lines
