"""The only door to llvmlite: a typed facade over the few of its functions that polyker uses.

All calls hold one process-wide lock: LLVM's own lock is not safe over `fork`, so a fork waits for the lock here.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache
from typing import Any

import llvmlite.binding as _llvm

from polyker.errors.base import InternalError

LOCK = threading.RLock()
os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)

# What is left to do once the schedule has shaped the loops and the emitter has placed the invariants. No vectoriser, no
# unroller; no instruction combiner either: it finds nothing here that the code generator does not, and leaks 4-8 KiB. Nor
# NewGVN: it takes a value of one iteration for that of the next (LLVM 22: `min(x, 4 - x)` of `x = i & 3` in a loop).
_PASSES = (
    "add_always_inliner_pass",
    "add_sroa_pass",
    "add_simplify_cfg_pass",
    "add_dead_store_elimination_pass",
    "add_aggressive_dce_pass",
)


@cache
def _initialize() -> None:
    for name in ("initialize_all_targets", "initialize_all_asmprinters"):
        getattr(_llvm, name)()


@cache
def _native() -> None:
    try:
        _llvm.initialize_native_target()
        _llvm.initialize_native_asmprinter()
    except RuntimeError:  # newer llvmlite initializes by itself, and says so
        pass


@cache
def host_cpu() -> str:
    """Return LLVM's name of this machine's processor."""
    return str(_llvm.get_host_cpu_name())


@cache
def host_features() -> str:
    """Return LLVM's feature string of this machine, `+name` for each that it has."""
    features: dict[str, bool] = _llvm.get_host_cpu_features()
    return ",".join(f"+{name}" for name in sorted(features) if features[name])


@cache
def host_triple() -> str:
    """Return the triple of this process."""
    return str(_llvm.get_process_triple())


@cache
def machine(triple: str, cpu: str, features: str, effort: int = 3) -> Any:
    """Return a target machine; `cpu` and `features` must be known to LLVM, which ends the process otherwise.

    `effort`: LLVM's level of code generation, 0 to 3.
    """
    _native()
    if triple.split("-")[0] != host_triple().split("-")[0]:
        _initialize()
    target = _llvm.Target.from_triple(triple)
    return target.create_target_machine(
        cpu=cpu, features=features, opt=effort, reloc="pic", codemodel="small", jit=False
    )


@cache
def _pass_builder(triple: str, cpu: str, features: str) -> Any:
    return _llvm.create_pass_builder(machine(triple, cpu, features), _llvm.create_pipeline_tuning_options(2))


def parse(text: str) -> Any:
    """Return the parsed and verified module."""
    try:
        # In a context of its own: what LLVM keeps of a text's names and constants goes with it.
        module = _llvm.parse_assembly(text, _llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"generated LLVM IR is wrong: {error}") from error
    return module


def declared(module: Any) -> list[str]:
    """Return the names of the functions that the module declares without defining them."""
    return [str(f.name) for f in module.functions if f.is_declaration]


def optimize(module: Any, triple: str, cpu: str, features: str) -> None:
    """Run polyker's passes over a module."""
    manager = _llvm.create_new_module_pass_manager()
    for name in _PASSES:
        getattr(manager, name)()
    manager.run(module, _pass_builder(triple, cpu, features))
    manager.close()


def emit_object(module: Any, triple: str, cpu: str, features: str, effort: int = 3) -> bytes:
    """Return the object file of a module."""
    return bytes(machine(triple, cpu, features, effort).emit_object(module))


def emit_assembly(module: Any, triple: str, cpu: str, features: str) -> str:
    """Return the assembly text of a module."""
    return str(machine(triple, cpu, features).emit_assembly(module))


@cache
def library_address(name: str) -> int | None:
    """Return the address of a symbol of libm or libc in this process."""
    for library in ("libm.so.6", None):
        try:
            function = getattr(ctypes.CDLL(library), name)
        except (OSError, AttributeError):
            continue
        return ctypes.cast(function, ctypes.c_void_p).value
    return None


class Library:
    """Machine code in memory, freed when the object is."""

    def __init__(self, image: bytes, symbol: str, imports: frozenset[str]) -> None:
        # JITLink lays all sections of an object side by side. The older linker maps each where there is room, and ends the
        # process where code and constants come to lie more than 2 GiB apart, as they may beside large arrays.
        self._jit: Any = _llvm.create_lljit_compiler(None, use_jit_link=True, suppress_errors=True)
        builder = _llvm.JITLibraryBuilder().add_object_img(image).export_symbol(symbol)
        for name in sorted(imports):
            address = library_address(name)
            if address is not None:
                builder.import_symbol(name, address)
        try:
            self._tracker: Any = builder.link(self._jit, "kernel")
        except RuntimeError as error:
            self._jit.close()
            self._jit = None
            raise InternalError(f"machine code does not link: {error}") from error
        self.address = int(self._tracker[symbol])

    def close(self) -> None:
        """Free the code; `address` must not be called any more."""
        with LOCK:
            if self._jit is not None:
                self._tracker.close()
                self._jit.close()
                self._jit = None

    def __del__(self) -> None:
        # At the interpreter's end the module's names may be gone already; the code goes with the process then.
        if getattr(self, "_jit", None) is not None and _llvm is not None and LOCK is not None:
            self.close()
