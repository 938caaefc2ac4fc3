"""Compile one vector function into a loop over arrays, through LLJIT, and compare with mpmath."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence

import llvmlite.binding as llvm
import numpy as np
import pytest

from polyker.codegen.llvm.jit.detect import host
from polyker.codegen.vecmath import functions as vecmath
from polyker.codegen.vecmath.core.build import FunctionDefinition
from polyker.ir.dtypes import DType

# Whether functions of AVX-512's registers run here.
HAS_AVX512 = host().lanes(4) == 16
needs_avx512 = pytest.mark.skipif(not HAS_AVX512, reason="needs a processor with AVX-512")
LOOP = """
define void @run({pointers}, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{body}
  %next = add i64 %i, {lanes}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
"""


def loop(definition: vecmath.FunctionDefinition, lanes: int, results: Sequence[str]) -> str:
    """Return a function `void run(ptr in..., ptr out..., i64 n)` that calls the definition on n elements."""
    count, lines, args = len(definition.parameters), [], []
    for k, kind in enumerate(definition.parameters):
        element = kind.split(" x ")[-1].rstrip(">")
        lines += [
            f"  %p{k} = getelementptr {element}, ptr %a{k}, i64 %i",
            f"  %x{k} = load {kind}, ptr %p{k}, align {8 if element == 'double' else 4}",
        ]
        args.append(f"{kind} %x{k}")
    lines.append(f"  %r = call {definition.result} @{definition.symbol}({', '.join(args)})")
    for k, kind in enumerate(results):
        element = kind.split(" x ")[-1].rstrip(">")
        lines.append(f"  %q{k} = getelementptr {element}, ptr %a{count + k}, i64 %i")
        value = "%r"
        if len(results) > 1:
            lines.append(f"  %r{k} = extractvalue {definition.result} %r, {k}")
            value = f"%r{k}"
        lines.append(f"  store {kind} {value}, ptr %q{k}, align {8 if element == 'double' else 4}")
    pointers = ", ".join(f"ptr noalias %a{k}" for k in range(count + len(results)))
    return LOOP.format(pointers=pointers, body="\n".join(lines), lanes=lanes)


def link(definitions: Iterable[FunctionDefinition]) -> str:
    """Return the text of these definitions and all that they need, each once, after the declarations of the intrinsics."""
    seen: dict[str, FunctionDefinition] = {}
    stack = list(definitions)[::-1]
    while stack:
        definition = stack.pop()
        if definition.symbol not in seen:
            seen[definition.symbol] = definition
            stack.extend(definition.needs)
    declares = sorted({text for d in seen.values() for text, _ in d.declares})
    return "\n".join([*declares, "", *(d.text for d in seen.values())])


class Compiled:
    """A vector function over contiguous arrays; `assembly` and `ir` show what became of it."""

    def __init__(self, op: str, dtype: DType, lanes: int, cpu: str = "", **features: bool) -> None:
        self.op, self.dtype, self.lanes = op, dtype, lanes
        definition = vecmath.function(op, dtype, lanes, **features)
        first = definition.parameters[0]
        self.results = (first, first) if definition.result.startswith("{") else (first,)
        self.inputs = len(definition.parameters)
        self.element = np.float32 if dtype.real.name == "f32" else np.float64
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_triple(llvm.get_process_triple())
        host = "" if cpu else llvm.get_host_cpu_features().flatten()
        machine = target.create_target_machine(cpu=cpu or llvm.get_host_cpu_name(), features=host, opt=3, jit=True)
        module = llvm.parse_assembly(link([definition]) + loop(definition, lanes, self.results))
        module.verify()
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.add_new_gvn_pass()
        passes.run(module, builder)
        self.ir = str(module)
        self.assembly = machine.emit_assembly(module)
        self._jit = llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=False)
        library = llvm.JITLibraryBuilder()
        tracker = library.add_ir(self.ir).export_symbol("run").link(self._jit, "vecmath")
        self._tracker = tracker
        pointers = [ctypes.c_void_p] * (self.inputs + len(self.results))
        self.run = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(tracker["run"])

    def __call__(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        size = inputs[0].size
        padded = -(-size // self.lanes) * self.lanes
        arrays = []
        for x in inputs:
            full = np.ones(padded, self.element)
            full[:size] = x
            arrays.append(full)
        outputs = [np.zeros(padded, self.element) for _ in self.results]
        self.run(*(a.ctypes.data for a in [*arrays, *outputs]), padded)
        return tuple(o[:size] for o in outputs)
