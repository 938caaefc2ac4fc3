"""Objects that need nothing: what LLVM calls of a C library becomes part of them."""

from __future__ import annotations

from collections.abc import Sequence

from polyker.codegen.llvm.jit import binding as llvm
from polyker.codegen.llvm.jit.build import HOSTS, optimized
from polyker.errors.base import InternalError
from polyker.export.closing.support import SHARED, definitions
from polyker.export.closing.symbols import undefined
from polyker.machine.model import Target
from polyker.process.jobs import run_exclusively


def closed_object(target: Target, *texts: str, effort: int = 3) -> bytes:
    """Return the object file of LLVM IR modules, which defines all that it calls but a host's functions; `effort`: 0 to 3.

    Raises InternalError where LLVM calls what is not in the table of such functions.
    """
    return run_exclusively(lambda: _closed(target, texts, effort)[0])


def closed_text(target: Target, *texts: str) -> str:
    """Return the LLVM IR of modules, linked into one, after LLVM's passes, with what LLVM would call of a C library."""
    return run_exclusively(lambda: _closed(target, texts, 3)[1])


def _closed(target: Target, texts: Sequence[str], effort: int) -> tuple[bytes, str]:
    table = definitions(target)
    defined, found = frozenset(table) - SHARED, dict[str, str]()
    while True:
        module = optimized(target, *texts, *found.values(), defined=defined)
        text = str(module)  # emitting changes the module
        image = llvm.emit_object(module, target.triple, target.cpu, target.features, effort)
        missing = undefined(image) - HOSTS
        if not missing:
            return image, text
        unknown = sorted(n for n in missing if n in found or n not in table)
        if unknown:
            raise InternalError(f"code for {target.name} calls {', '.join(unknown)}, which nothing defines")
        found |= {n: table[n] for n in sorted(missing)}
