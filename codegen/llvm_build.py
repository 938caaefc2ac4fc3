"""LLVM IR text -> machine code: parse, verify, check what it calls, optimise, emit, link."""

from __future__ import annotations

from dataclasses import dataclass, field

from polyker.codegen import llvm_binding as llvm
from polyker.codegen.llvm_functions import EXTERNALS
from polyker.errors.base import InternalError
from polyker.target.model import Target


def _optimized(text: str, target: Target) -> object:
    module = llvm.parse(text)
    for name in llvm.declared(module):
        if not name.startswith("llvm.") and name not in EXTERNALS:
            raise InternalError(f"generated code calls {name!r}, which is not among the functions it may call")
    llvm.optimize(module, target.triple, target.cpu, target.features)
    return module


def assembly(text: str, target: Target) -> str:
    """Return the assembly text of an LLVM IR module."""
    with llvm.LOCK:
        return llvm.emit_assembly(_optimized(text, target), target.triple, target.cpu, target.features)


def object_code(text: str, target: Target) -> bytes:
    """Return the object file (ELF, or WebAssembly) of an LLVM IR module."""
    with llvm.LOCK:
        return llvm.emit_object(_optimized(text, target), target.triple, target.cpu, target.features)


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """Machine code of one kernel, in memory while this object lives; `address` is 0 for a target other than this machine."""

    address: int
    text: str = field(repr=False)
    target: Target
    _library: llvm.Library | None = field(default=None, repr=False, compare=False)

    def assembly(self) -> str:
        """Return the assembly text."""
        return assembly(self.text, self.target)

    def object(self) -> bytes:
        """Return the object file."""
        return object_code(self.text, self.target)


def is_host(target: Target) -> bool:
    """Return whether code for `target` can run in this process."""
    host = llvm.host_triple().split("-")
    parts = target.triple.split("-")
    return parts[0] == host[0] and "linux" in parts


def build(text: str, target: Target) -> LoadedCode:
    """Return the machine code of an LLVM IR module whose entry is `kernel`.

    Raises InternalError where the text is no valid module or calls what it may not.
    """
    with llvm.LOCK:
        image = object_code(text, target)
        if not is_host(target):
            return LoadedCode(0, text, target)
        library = llvm.Library(image, "kernel", EXTERNALS)
        return LoadedCode(library.address, text, target, library)
