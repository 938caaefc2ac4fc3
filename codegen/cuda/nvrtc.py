"""NVIDIA's compiler in this process (NVRTC), by ctypes: it needs neither a toolkit's headers nor a driver nor a GPU."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from polyker.errors.base import failure
from polyker.errors.codegen import COMPILER_FAILED

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


def _places() -> Iterator[str]:
    """Yield where the library may lie: the package nvidia-cuda-nvrtc, a toolkit, wherever the loader looks."""
    for entry in sys.path:
        for package in sorted(Path(entry or ".").glob("nvidia/*/lib")):
            yield from (str(package / name) for name in _NAMES if (package / name).exists())
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            yield from (str(Path(root) / "lib64" / name) for name in _NAMES)
    yield from _NAMES
    yield from (f"/usr/local/cuda/lib64/{name}" for name in _NAMES)


@cache
def library() -> Any:
    """Return the loaded library, None where there is none."""
    for place in _places():
        try:
            # It opens its other half by name, which the loader does not look for beside it.
            for other in sorted(Path(place).parent.glob("libnvrtc-builtins.so.*")) if "/" in place else ():
                ctypes.CDLL(str(other))
            return ctypes.CDLL(place)
        except OSError:
            continue
    return None


def version() -> str:
    """Return the version of the library that is there."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"nvrtc {major.value}.{minor.value}"


@cache
def architectures() -> frozenset[str]:
    """Return the architectures that it compiles for, such as sm_90a."""
    found, count = library(), ctypes.c_int()
    try:
        _checked(found, found.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "")
        numbers = (ctypes.c_int * count.value)()
        _checked(found, found.nvrtcGetSupportedArchs(numbers), "")
    except AttributeError:  # before CUDA 11.2
        return frozenset()
    # From compute capability 9.0 and CUDA 12 on there are instructions for one architecture alone, whose name ends in a.
    major = ctypes.c_int()
    found.nvrtcVersion(ctypes.byref(major), ctypes.byref(ctypes.c_int()))
    own = {f"sm_{n}a" for n in numbers if n >= 90 and major.value >= 12}
    return frozenset({f"sm_{n}" for n in numbers} | own)


def compile_nvrtc(text: str, options: tuple[str, ...], kind: str) -> tuple[bytes, str]:
    """Return a text's code, `kind` ptx or cubin, and the compiler's messages; raises InternalError with those where it fails."""
    found = library()
    program, source = ctypes.c_void_p(), text.encode()
    _checked(found, found.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None), "")
    try:
        given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        status = found.nvrtcCompileProgram(program, len(options), given)
        messages = _text(found.nvrtcGetProgramLogSize, found.nvrtcGetProgramLog, program).rstrip(b"\0").decode()
        _checked(found, status, messages)
        name = {"ptx": "PTX", "cubin": "CUBIN"}[kind]
        code = _text(getattr(found, f"nvrtcGet{name}Size"), getattr(found, f"nvrtcGet{name}"), program)
        return (code.rstrip(b"\0") if kind == "ptx" else code), messages
    finally:
        found.nvrtcDestroyProgram(ctypes.byref(program))


def _text(size_of: Any, get: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    get(program, buffer)
    return buffer.raw


def _checked(found: Any, status: int, messages: str) -> None:
    if not status:
        return
    found.nvrtcGetErrorString.restype = ctypes.c_char_p
    lines = [line for line in messages.splitlines() if "error" in line]
    reason = "; ".join(lines[:3]) or found.nvrtcGetErrorString(status).decode()
    raise failure(COMPILER_FAILED, compiler="NVRTC", reason=reason)
