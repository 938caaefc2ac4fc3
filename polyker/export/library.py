"""Exporting kernels: from compiled kernels to the files of a library."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from polyker.codegen.artifact import Artifact
from polyker.codegen.llvm.jit.own import host_triple
from polyker.errors.base import failure
from polyker.errors.calls import BAD_OPTION
from polyker.errors.export import (
    BAD_EXPORT_NAME,
    CONSTANT_SHAPE,
    NO_EXPORT_KIND,
    NOT_A_CONSTANT,
    NOT_FOR_TARGET,
    NOT_STATIC,
    SAME_EXPORT_NAME,
)
from polyker.errors.given import is_a
from polyker.export.archive import archive
from polyker.export.closing.closed import closed_object, closed_text
from polyker.export.entry import Subject, entry, scratch_bytes, told
from polyker.export.header import header
from polyker.export.javascript import RESERVED, declarations, glue
from polyker.export.link import shared_library
from polyker.export.manifest import cmake_config, manifest, pkg_config
from polyker.export.names import function_name, name_of, parameter_names
from polyker.export.page import Shown, page
from polyker.export.pool import FUNCTION as POOL
from polyker.export.pool import has_pool, pool_object
from polyker.export.tensors import meanings, tensor_entry
from polyker.export.wasm import linked
from polyker.machine.model import Target
from polyker.record.records import KernelRecord
from polyker.runtime.kinds import Array

# What a file of each kind is made for.
KINDS = {
    ".o": "an object file",
    ".obj": "an object file",
    ".a": "a static library",
    ".lib": "a static library",
    ".so": "a shared library of Linux",
    ".dylib": "a shared library of macOS",
    ".dll": "a shared library of Windows",
    ".ll": "LLVM IR",
    ".wasm": "a WebAssembly module with its JavaScript",
    ".html": "a page that runs a WebAssembly module",
    ".cu": "CUDA",
}
_SYSTEMS = {".so": "linux", ".dylib": "macosx", ".dll": "windows"}
_WEB = (".wasm", ".html")


class Export(Struct, frozen=True):
    """A kernel to export: the function's name, the operator's text, its record and artifact for dense arguments.

    `constants`: inputs by their labels, with the values that become part of the module. `static_scratch`: temporaries lie in
    memory of the module, so that one call at a time may run. `threads`: the caller gives what runs parallel loops.
    `abi`: c, dlpack or tvm-ffi.
    """

    name: str
    text: str
    record: KernelRecord
    artifact: Artifact
    constants: Mapping[str, Array] = field(default_factory=dict)
    static_scratch: bool = False
    threads: bool = False
    abi: str = "c"


class ExportedModule(Struct, frozen=True):
    """What the exported kernels became, for a target: of each the subject of its entry, a text of LLVM IR, and its constants."""

    target: Target
    subjects: tuple[Subject, ...]
    texts: tuple[str, ...]
    constants: tuple[Mapping[str, Array], ...]

    @property
    def symbols(self) -> tuple[str, ...]:
        """The functions that it defines for others."""
        return tuple(name for s in self.subjects for name in s.symbols)


def write_library(
    file: str | os.PathLike[str], exports: Sequence[Export], target: Target, effort: int = 3
) -> list[Path]:
    """Write a library and what stands beside it; return the files. Raises ArgumentError, BackendUnavailable, OSError."""
    path = Path(file)
    if path.suffix == ".cu":
        return _write_cuda(path, exports, target)
    if path.suffix not in KINDS:
        raise failure(NO_EXPORT_KIND, file=path.name, known=", ".join(KINDS))
    _check_system(path.suffix, target)
    module = module_of(exports, target)
    made = _web if path.suffix in _WEB else _native
    files = made(path, exports, module, effort)
    for written, content in files.items():
        (path.parent / written).write_bytes(content)
    return [path.parent / written for written in files]


def _web(path: Path, exports: Sequence[Export], module: ExportedModule, effort: int) -> dict[str, bytes]:
    """Return the files of a WebAssembly module, or of a page."""
    for subject in module.subjects:
        if subject.name in RESERVED:
            raise failure(BAD_EXPORT_NAME, name=subject.name)
        if subject.abi != "c":
            raise failure(BAD_OPTION, name="abi", value=subject.abi, accepted="c, in WebAssembly")
    image = linked(closed_object(module.target, *module.texts, effort=effort), module.symbols)
    texts = [e.text for e in exports]
    if path.suffix == ".html":
        rows = zip(module.subjects, texts, (e.artifact for e in exports), module.constants, strict=True)
        return {
            path.name: page(path.stem, [Shown(*row) for row in rows], image, module.target).encode(
                errors="backslashreplace"
            )
        }
    files = {
        path.name: image,
        f"{path.stem}.mjs": glue(path.name, module.subjects).encode(),
        f"{path.stem}.d.mts": declarations(module.subjects, texts).encode(),
    }
    return files | {f"{path.stem}.json": _manifest(exports, module, {path.name: image})}


def _manifest(exports: Sequence[Export], module: ExportedModule, files: Mapping[str, bytes]) -> bytes:
    schedules = [str(e.artifact.stages["schedule"]) for e in exports]
    return manifest(module.subjects, [e.text for e in exports], schedules, module.target, files).encode()


def _native(path: Path, exports: Sequence[Export], module: ExportedModule, effort: int) -> dict[str, bytes]:
    """Return the files of an object or a library."""
    name = name_of(path)
    target = module.target
    pool = any(s.threads for s in module.subjects) and has_pool(target) and path.suffix != ".ll"
    files: dict[str, bytes] = {}
    if path.suffix == ".ll":
        files[path.name] = closed_text(target, *module.texts).encode()
    elif path.suffix in (".a", ".lib"):
        files[path.name] = _static_library(module, target, effort, pool=pool)
    else:
        image = closed_object(target, *module.texts, effort=effort)
        if path.suffix in (".o", ".obj"):
            files[path.name] = image
            if pool:
                files[f"{name}_pool{path.suffix}"] = pool_object(target)
        else:
            parts = [image, pool_object(target)] if pool else [image]
            shared_library(parts, path, target, module.symbols, here=_is_here(path.suffix, target))
            files[path.name] = path.read_bytes()
    library = {path.name: files[path.name]}
    files[f"{name}.h"] = header(name, module.subjects, [e.text for e in exports], pool=pool).encode()
    files[f"{name}.json"] = _manifest(exports, module, library)
    files[f"{name}.pc"] = pkg_config(name, path.name).encode()
    files[f"{name}-config.cmake"] = cmake_config(name, path.name).encode()
    return files


def _static_library(module: ExportedModule, target: Target, effort: int, *, pool: bool) -> bytes:
    """Return an archive with an object for each operator, so that a program takes those alone that it calls."""
    members, symbols = {}, {}
    for subject, text in zip(module.subjects, module.texts, strict=True):
        members[f"{subject.name}.o"] = closed_object(target, text, effort=effort)
        symbols[f"{subject.name}.o"] = subject.symbols
    if pool:
        members[f"{POOL}.o"], symbols[f"{POOL}.o"] = pool_object(target), (POOL,)
    return archive(members, symbols)


def _is_here(suffix: str, target: Target) -> bool:
    """Whether a shared library is for this machine's processor and system."""
    here = host_triple()
    return target.triple.split("-")[0] == here.split("-")[0] and _SYSTEMS[suffix] in here


def _write_cuda(path: Path, exports: Sequence[Export], target: Target) -> list[Path]:
    """Write the CUDA text of one kernel."""
    if target.gpu is None or len(exports) != 1:
        advice = "take a CUDA target, such as cuda:sm_80" if target.gpu is None else "export one operator a file"
        raise failure(NOT_FOR_TARGET, kind=".cu", target=target.name, advice=advice)
    path.write_text(exports[0].artifact.stages["cuda"], encoding="utf-8")
    return [path]


def _check_system(suffix: str, target: Target) -> None:
    """Raise ArgumentError where a target's system has no such libraries."""
    if target.gpu is not None:
        raise failure(NOT_FOR_TARGET, kind=suffix, target=target.name, advice="take a .cu file")
    web = target.triple.startswith("wasm")
    if suffix in _WEB and not web:
        advice = 'compile the operator with target="wasm32"'
        raise failure(NOT_FOR_TARGET, kind=suffix, target=target.name, advice=advice)
    wanted = _SYSTEMS.get(suffix)
    if wanted is not None and wanted not in target.triple:
        own = next((s for s, system in _SYSTEMS.items() if system in target.triple), ".wasm" if web else ".a")
        raise failure(NOT_FOR_TARGET, kind=suffix, target=target.name, advice=f"take a {own} file")


def module_of(exports: Sequence[Export], target: Target) -> ExportedModule:
    """Return the module of kernels to export; raises ArgumentError for names that are none, or given twice."""
    names: set[str] = set()
    subjects, texts, constants = [], [], []
    for export in exports:
        function_name(export.name)
        subject, values = _subject(export, target)
        if not names.isdisjoint(subject.symbols):
            raise failure(SAME_EXPORT_NAME, name=export.name)
        names.update(subject.symbols)
        subjects.append(subject)
        texts.append(_text(export, subject, values))
        constants.append(values)
    return ExportedModule(target, tuple(subjects), tuple(texts), tuple(constants))


def _subject(export: Export, target: Target) -> tuple[Subject, dict[str, Array]]:
    record, call = export.record, export.record.call
    values: dict[str, Array] = {}
    for label, value in export.constants.items():
        named = [t for t in map(call.tensor, call.inputs) if t.label == label and t.name not in call.outputs]
        if not named:
            raise failure(NOT_A_CONSTANT, name=label, inputs=", ".join(call.tensor(n).label for n in call.inputs))
        array = np.asarray(value)
        if array.shape != named[0].shape:
            wanted = ", ".join(map(str, named[0].shape))
            raise failure(CONSTANT_SHAPE, name=label, shape=array.shape, wanted=f"({wanted})")
        values[named[0].name] = np.ascontiguousarray(array.astype(named[0].dtype.numpy, casting="same_kind"))
    if export.static_scratch and scratch_bytes(record) is None:
        raise failure(NOT_STATIC, name=export.name)
    narrow = target.triple.startswith("wasm32")
    given = [call.tensor(n) for n in record.arguments if n not in values]
    labels = parameter_names([t.label for t in given] + [label for _, label in call.sizes])
    subject = Subject(
        export.name,
        record,
        tensors={t.name: label for t, label in zip(given, labels, strict=False)},
        sizes=dict(zip((n for n, _ in call.sizes), labels[len(given) :], strict=True)),
        constants={name: f"{export.name}_constant_{name}" for name in values},
        narrow=narrow,
        static_scratch=export.static_scratch,
        threads=export.threads and not narrow,
        abi=export.abi,
    )
    return subject, values


def _text(export: Export, subject: Subject, values: Mapping[str, Array]) -> str:
    """Return the module of one kernel: its own text, made internal, with the entry that C calls."""
    kernel = export.artifact.stages["llvm"]
    kernel = kernel.replace("define i64 @kernel(", f"define internal i64 @{subject.name}_kernel(")
    data = "".join(_data(subject.constants[name], value) for name, value in values.items())
    count = "" if "@llvm.ctlz.i64(" in kernel else "declare i64 @llvm.ctlz.i64(i64, i1)\n"
    others = f"{told(subject, meanings(subject) if export.abi != 'c' else {})}\n{tensor_entry(subject, export.abi)}"
    return f"{kernel}\n{count}{data}{entry(subject)}\n{others}\n"


def _data(symbol: str, value: Array) -> str:
    """Return a constant of a module."""
    raw = value.tobytes()
    shown = "".join(f"\\{byte:02X}" for byte in raw)
    return f'@{symbol} = private unnamed_addr constant [{len(raw)} x i8] c"{shown}", align 64\n'


def constant_arrays(constants: object, inputs: Sequence[str]) -> dict[str, Any]:
    """Return the constants of an export by their labels; raises ArgumentError for what is no mapping of inputs."""
    if not is_a(constants, Mapping):
        raise failure(NOT_A_CONSTANT, name=type(constants).__name__, inputs=", ".join(inputs))
    found: dict[str, Any] = dict(constants)
    for name in found:
        if name not in inputs:
            raise failure(NOT_A_CONSTANT, name=name, inputs=", ".join(inputs))
    return found
