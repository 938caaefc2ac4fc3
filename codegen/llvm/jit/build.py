"""LLVM IR text -> machine code: parse, verify, check what it calls, optimise, emit, link."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from polyker.codegen.llvm.functions import EXTERNALS
from polyker.codegen.llvm.jit import binding as llvm
from polyker.errors.base import InternalError, failure
from polyker.errors.codegen import UNKNOWN_CPU
from polyker.ir.instructions import INTRINSICS
from polyker.machine.known import KNOWN
from polyker.machine.model import Target
from polyker.process.jobs import checkpoint, run_exclusively

# LLVM's verifier lets unknown intrinsics pass.
_INTRINSIC = re.compile(
    r"llvm\.(prefetch|fma|fabs|sqrt|floor|ceil|trunc|rint|roundeven|copysign|minimum|maximum|minnum|maxnum|ldexp|smin|smax|umin|umax"
    r"|ctlz|cttz|ctpop|fshl|fshr|fptosi\.sat|fptoui\.sat|vector\.reduce\.(and|or|umax)"
    r"|masked\.(load|store|gather|scatter)|x86\.(sse|avx512\.(vpermi2var|permvar|rsqrt14|mask\.(scalef|range|cmp|fixupimm|getexp|getmant))))\.[a-z0-9.]+"
)


def _check_processor(target: Target) -> None:
    """LLVM ends the process where it does not know a processor or a feature: only those of known targets reach it."""
    known = [t for t in KNOWN.values() if t.triple.split("-")[0] == target.triple.split("-")[0]]
    cpus, features = {t.cpu for t in known}, {f for t in known for f in t.features.split(",")}
    if target.triple.split("-")[0] == llvm.host_triple().split("-")[0]:
        cpus.add(llvm.host_cpu())
        features |= set(llvm.host_features().split(","))
    if target.cpu not in cpus or not set(target.features.split(",")) <= features | {""}:
        raise failure(
            UNKNOWN_CPU, cpu=target.cpu, features=target.features, triple=target.triple, known=", ".join(sorted(cpus))
        )


def optimized(text: str, target: Target) -> object:
    """Return the LLVM module of a text after LLVM's passes."""
    _check_processor(target)
    module = llvm.parse(text)
    for name in llvm.declared(module):
        if name not in EXTERNALS | INTRINSICS and not _INTRINSIC.match(name):
            raise InternalError(f"generated code calls {name!r}, which is not among the functions it may call")
    llvm.optimize(module, target.triple, target.cpu, target.features)
    return module


def assembly(text: str, target: Target) -> str:
    """Return the assembly text of an LLVM IR module."""
    return run_exclusively(
        lambda: llvm.emit_assembly(optimized(text, target), target.triple, target.cpu, target.features)
    )


def object_code(text: str, target: Target) -> bytes:
    """Return the object file (ELF, or WebAssembly) of an LLVM IR module."""
    return run_exclusively(
        lambda: llvm.emit_object(optimized(text, target), target.triple, target.cpu, target.features)
    )


@dataclass(slots=True)
class LoadedCode:
    """Machine code of one kernel, in memory while this object lives; `address` is 0 for a target other than this machine."""

    address: int
    text: str = field(repr=False)
    target: Target
    _library: llvm.LinkedCode | None = field(default=None, repr=False, compare=False)

    def assembly(self) -> str:
        """Return the assembly text."""
        return assembly(self.text, self.target)


def is_host(target: Target) -> bool:
    """Return whether code for `target` can run in this process."""
    host = llvm.host_triple().split("-")
    parts = target.triple.split("-")
    return parts[0] == host[0] and "linux" in parts


def build(text: str, target: Target) -> LoadedCode:
    """Return the machine code of an LLVM IR module whose entry is `kernel`.

    Raises InternalError where the text is no valid module or calls what it may not.
    """
    checkpoint()
    image = object_code(text, target)
    if not is_host(target):
        return LoadedCode(0, text, target)
    library = run_exclusively(lambda: llvm.LinkedCode(image, "kernel", EXTERNALS))
    return LoadedCode(library.address, text, target, library)


def own_library(
    text: str, symbol: str, target: Target, effort: int, imports: frozenset[str] = frozenset()
) -> llvm.LinkedCode:
    """Return the machine code of a module of polyker's own, which is no kernel; `effort` as of `llvm.machine`."""

    def made() -> llvm.LinkedCode:
        module = llvm.parse(text)
        llvm.optimize(module, target.triple, target.cpu, target.features)
        image = llvm.emit_object(module, target.triple, target.cpu, target.features, effort)
        return llvm.LinkedCode(image, symbol, imports)

    return run_exclusively(made)


def free_dropped() -> None:
    """Free the machine code that nobody holds any more; else the next compile does."""
    run_exclusively(llvm.free_dropped)
