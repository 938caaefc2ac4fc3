"""The only door to llvmlite: a typed facade over the few of its functions that polyker uses.

Callers hold the compile lock (polyker.process): LLVM's own is not safe over `fork`, nor where threads end inside LLVM. What is
asked of this machine outside compiles takes it by itself.
"""

from __future__ import annotations

import ctypes
from collections import deque
from functools import cache
from typing import Any
from weakref import ref

import llvmlite.binding as _llvm

from polyker.errors.base import InternalError
from polyker.process.jobs import once

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


@once
def host_cpu() -> str:
    """Return LLVM's name of this machine's processor."""
    return str(_llvm.get_host_cpu_name())


@once
def host_features() -> str:
    """Return LLVM's feature string of this machine, `+name` for each that it has."""
    features: dict[str, bool] = _llvm.get_host_cpu_features()
    return ",".join(f"+{name}" for name in sorted(features) if features[name])


@once
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
    reloc = (
        "static" if triple.startswith("wasm") else "pic"
    )  # where there is no linker that would move WebAssembly's data
    return target.create_target_machine(
        cpu=cpu, features=features, opt=effort, reloc=reloc, codemodel="small", jit=False
    )


@cache
def _pass_builder(triple: str, cpu: str, features: str) -> Any:
    return _llvm.create_pass_builder(machine(triple, cpu, features), _llvm.create_pipeline_tuning_options(2))


def parse(*texts: str) -> Any:
    """Return the parsed and verified module, of several texts linked into one."""
    try:
        # In a context of its own: what LLVM keeps of a text's names and constants goes with it.
        context = _llvm.create_context()
        module, *others = (_llvm.parse_assembly(text, context) for text in texts)
        for other in others:
            module.link_in(other)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"generated LLVM IR is wrong: {error}") from error
    return module


def lay_out(module: Any, triple: str, cpu: str, features: str) -> None:
    """Tell a module how the target lays out data."""
    module.data_layout = str(machine(triple, cpu, features).target_data)


def make_internal(module: Any, names: frozenset[str]) -> None:
    """Make functions and variables of a module its own."""
    for value in (*module.functions, *module.global_variables):
        if value.name in names and not value.is_declaration:
            value.linkage = "internal"


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


class LinkedCode:
    """Machine code in memory, freed some time after the object is: see `free_dropped`."""

    __slots__ = ("__weakref__", "address")

    def __init__(self, image: bytes, symbol: str, imports: frozenset[str]) -> None:
        free_dropped()
        _native()
        # JITLink lays all sections of an object side by side. The older linker maps each where there is room, and ends the
        # process where code and constants come to lie more than 2 GiB apart, as they may beside large arrays.
        jit: Any = _llvm.create_lljit_compiler(None, use_jit_link=True, suppress_errors=True)
        builder = _llvm.JITLibraryBuilder().add_object_img(image).export_symbol(symbol)
        for name in sorted(imports):
            address = library_address(name)
            if address is not None:
                builder.import_symbol(name, address)
        try:
            tracker: Any = builder.link(jit, "kernel")
        except RuntimeError as error:
            jit.close()
            raise InternalError(f"machine code does not link: {error}") from error
        self.address = int(tracker[symbol])
        code = _Code(self, _dropped.append)
        code.handles = (tracker, jit)
        _living[id(code)] = code


class _Code(ref[LinkedCode]):
    """What LLVM keeps of a library; in `_dropped` once nobody holds that any more."""

    __slots__ = ("handles",)
    handles: tuple[Any, Any]


# A library may be dropped anywhere: in a thread that holds LLVM's lock, or in one that a signal handler or the end of the process
# may stop. So all that happens then is that a C function puts it in this queue.
_dropped: deque[ref[LinkedCode]] = deque()
_living: dict[int, _Code] = {}
# At the interpreter's end threads may still run kernels: the code goes with the process.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_living))


def free_dropped() -> None:
    """Free the machine code that nobody holds any more."""
    while _dropped:
        for handle in _living.pop(id(_dropped.popleft())).handles:
            handle.close()
