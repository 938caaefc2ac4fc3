"""Compile LLVM IR text to machine code: parse, verify, check what it calls, optimise, emit, link."""

from __future__ import annotations

import re

from msgspec import Struct

from polyker.codegen.llvm.functions import EXTERNALS
from polyker.codegen.llvm.jit import binding as llvm
from polyker.errors.base import InternalError, failure
from polyker.errors.codegen import UNKNOWN_CPU
from polyker.ir.instructions import INTRINSICS
from polyker.machine.known import known
from polyker.machine.model import Target
from polyker.process.jobs import checkpoint, run_exclusively

# LLVM's verifier lets unknown intrinsics pass.
_INTRINSIC = re.compile(
    r"llvm\.(prefetch|fma|fmuladd|fabs|sqrt|floor|ceil|trunc|rint|roundeven|copysign|minimum|maximum|minnum|maxnum|ldexp|smin|smax|umin|umax"
    r"|ctlz|cttz|ctpop|fshl|fshr|fptosi\.sat|fptoui\.sat|vector\.reduce\.(and|or|umax)"
    r"|masked\.(load|store|gather|scatter)|x86\.(sse|avx512\.(vpermi2var|permvar|rsqrt14|mask\.(scalef|range|cmp|fixupimm|getexp|getmant))))\.[a-z0-9.]+"
)


# What the entries of other run times call, where these are there.
HOSTS = frozenset({"TVMFFIErrorSetRaisedFromCStr"})


def _check_processor(target: Target) -> None:
    """LLVM ends the process where it does not know a processor or a feature: only those of known targets reach it."""
    machine, asked = target.triple.split("-")[0], {*target.features.split(",")} - {""}
    cpus, features = set[str](), set[str]()
    if machine == llvm.host_triple().split("-")[0]:
        cpus, features = {llvm.host_cpu()}, {*llvm.host_features().split(",")}
        if target.cpu in cpus and asked <= features:
            return
    alike = [t for t in known().values() if t.triple.split("-")[0] == machine]
    cpus |= {t.cpu for t in alike}
    if target.cpu not in cpus or not asked <= features.union(*(t.features.split(",") for t in alike)):
        raise failure(
            UNKNOWN_CPU, cpu=target.cpu, features=target.features, triple=target.triple, known=", ".join(sorted(cpus))
        )


def optimized(target: Target, *texts: str, own: bool = False, defined: frozenset[str] = frozenset()) -> object:
    """Return the LLVM module of texts after LLVM's passes; one of polyker's `own`, which is no kernel, may call anything.

    `defined`: what it may call besides, and is its own where a text defines it.
    """
    _check_processor(target)
    module = llvm.parse(*texts)
    llvm.lay_out(module, target.triple, target.cpu, target.features)
    for name in () if own else llvm.declared(module):
        if name not in EXTERNALS | INTRINSICS | HOSTS | defined and not _INTRINSIC.match(name):
            raise InternalError(f"generated code calls {name!r}, which is not among the functions it may call")
    llvm.make_internal(module, defined)
    llvm.optimize(module, target.triple, target.cpu, target.features)
    return module


def assembly(text: str, target: Target) -> str:
    """Return the assembly text of an LLVM IR module."""
    return run_exclusively(
        lambda: llvm.emit_assembly(optimized(target, text), target.triple, target.cpu, target.features)
    )


def object_code(target: Target, *texts: str, effort: int = 3, own: bool = False) -> bytes:
    """Return the object file (ELF, Mach-O, COFF or WebAssembly) of LLVM IR modules, linked into one; `effort`: 0 to 3."""
    return run_exclusively(
        lambda: llvm.emit_object(optimized(target, *texts, own=own), target.triple, target.cpu, target.features, effort)
    )


class LoadedCode(Struct, eq=False):
    """Machine code of one kernel, in memory while this object lives; `address` is 0 for a target other than this machine.

    `image`: its object file; `imports`: the functions of the C library that this may call.
    """

    address: int
    text: str
    target: Target
    image: bytes
    imports: tuple[str, ...] = ()
    _library: llvm.LinkedCode | None = None

    def __repr__(self) -> str:
        return f"LoadedCode({self.address:#x}, {self.target.name})"

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
    image = object_code(target, text)
    imports = tuple(sorted(name for name in EXTERNALS if name.encode() + b"\0" in image))  # in its table of names
    if not is_host(target):
        return LoadedCode(0, text, target, image, imports)
    library = run_exclusively(lambda: llvm.LinkedCode(image, "kernel", frozenset(imports)))
    return LoadedCode(library.address, text, target, image, imports, library)
